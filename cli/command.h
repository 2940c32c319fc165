/* command.h - the commands, one file each; main.c has their table. Each returns the exit code. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

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

#endif
