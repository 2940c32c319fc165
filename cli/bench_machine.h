/* bench_machine.h - what a row of `lever bench` says about where it was measured: machine, commit, files. */
#ifndef CLI_BENCH_MACHINE_H
#define CLI_BENCH_MACHINE_H

#include "json.h"
#include "sha256.h"

/* Members "machine" and "commit" of the object that is open; `path` is a file on the disk that matters. */
void bench_machine_write(json *out, const char *path);

/* The words of this process' command line, as the member "command". */
void bench_command_write(json *out);

/* Of the last minute; 0: unknown. */
double bench_load_average(void);

/* SHA-256 of a file, remembered from run to run in lever's cache folder by path, size and time of change; `tell` may be
 * NULL. False: it could not be read. */
bool bench_checksum(const char *path, char text[SHA256_TEXT_BYTES], void (*tell)(void *user, uint64_t bytes),
                    void *user);

#endif
