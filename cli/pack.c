/* pack.c - `lever pack`: a GGUF into the packed layout. */
#include "command.h"
#include "interrupt.h"
#include "progress.h"
#include "terminal.h"

int command_pack(const cli_options *options) {
    progress bar;
    progress_open(&bar, "", UNIT_BYTES, options);
    lever_pack_options pack_options;
    lever_pack_options_init(&pack_options);
    pack_options.type = options->type;
    pack_options.progress = progress_of_stage;
    pack_options.progress_user = &bar;
    pack_options.log = show_log;
    pack_options.log_user = (void *)(uintptr_t)options; /* show_log does not change it */

    interrupt_open();
    lever_error error = {0};
    const lever_status status = lever_pack(options->arguments[0], options->arguments[1], &pack_options, &error);
    progress_close(&bar);
    if (status != LEVER_OK) return fail_with(status, error.message);
    note(options, "%s is packed into %s", options->arguments[0], options->arguments[1]);
    return EXIT_DONE;
}
