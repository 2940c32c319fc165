"""Other programs that run the same model on the same machine: one module each, with its command lines, its version, and
its figures read from what it prints. A peer that cannot be built is skipped; one that fails or is killed is a row that
says so."""
