/* editor.h - lines from the user: with editing and history on a terminal (libedit, where lever was built with it),
 * plain ones otherwise.
 *
 * Prompts go to standard error. A bracketed paste of several lines comes as one line with its newlines. Main thread. */
#ifndef CLI_EDITOR_H
#define CLI_EDITOR_H

#include <stdbool.h>

typedef struct editor editor;

typedef enum {
    LINE_READ,
    LINE_END,         /* end of input */
    LINE_INTERRUPTED, /* Ctrl-C while something had been typed */
    LINE_LEFT,        /* Ctrl-C on an empty line */
} line_result;

/* `history_path` is NULL for none. NULL when memory runs out. */
editor *editor_open(const char *history_path);
void editor_close(editor **opened);

/* *line, without its newline, is the editor's until the next call. */
line_result editor_read(editor *reader, const char *prompt, char **line);

#endif
