/* terminal.h - what goes to the terminal besides data: messages, their colours, the way a command ends.
 *
 * Standard output is for data; everything here goes to standard error. Colours only on a terminal, never with NO_COLOR
 * or TERM=dumb. Any thread. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

#include "lever.h"
#include "options.h"

/* Exit codes of the command. */
enum {
    EXIT_DONE = 0,
    EXIT_OTHER = 1,
    EXIT_USAGE = 2,
    EXIT_FILE = 3,
    EXIT_BUDGET = 4,
    EXIT_IO = 5,
    EXIT_INTERRUPTED = 130,
};

/* The one place that turns a status into an exit code. */
int exit_code_of(lever_status status);

/* "lever: message" on standard error. Returns the exit code. */
int fail_with(lever_status status, const char *message);
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Something worth knowing; not with --quiet. */
void note(const cli_options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* lever_log_fn; `user` is the cli_options, which choose the level. */
void show_log(void *user, lever_log_level level, const char *line);

/* A terminal that understands cursor movements? */
bool terminal_is_live(FILE *stream);
int terminal_columns(FILE *stream);
bool terminal_has_colour(FILE *stream);

/* Writes data to standard output. False when that failed; *quietly is then set when nobody listens any more, which is
 * no mistake. */
bool put_data(const char *data, size_t bytes, bool *quietly);

#endif
