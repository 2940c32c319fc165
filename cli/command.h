/* command.h - the commands, one file each; main.c has their table. Each returns the exit code. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "lever.h"
#include "options.h"

int command_run(const cli_options *options);
int command_chat(const cli_options *options);
int command_plan(const cli_options *options);
int command_pack(const cli_options *options);
int command_pull(const cli_options *options);
int command_inspect(const cli_options *options);
int command_doctor(const cli_options *options);
int command_bench(const cli_options *options);
int command_train(const cli_options *options);

/* pack.c: lever_pack with progress; a signal that ends the program leaves no half of a file. `type`: NULL keeps them.
 */
lever_status pack_file(const char *input, const char *output, const char *type, const cli_options *options,
                       lever_error *error);

#endif
