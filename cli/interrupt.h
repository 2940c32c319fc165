/* interrupt.h - Ctrl-C.
 *
 * While a session is watched, the first Ctrl-C cancels its answer and the second ends the program. Otherwise Ctrl-C
 * ends the program with exit code 130, or is only remembered once interrupt_remember was called; a session that is
 * watched then is cancelled at once. Owns the handlers of SIGINT and SIGPIPE (ignored: writing to a closed pipe is an
 * error like others), and those of SIGTERM and SIGHUP while there is a file to remove. Main thread. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "lever.h"

void interrupt_open(void);
void interrupt_watch(lever_session *session); /* NULL: no longer */
void interrupt_remember(void);                /* begins anew: nothing has happened */
bool interrupt_happened(void);

/* A file that is not whole: it is removed when a signal ends the program. NULL: no longer. A longer path than can be is
 * left alone. */
void interrupt_removes(const char *path);

/* Waits until standard input can be read. False when Ctrl-C came before or meanwhile. */
bool interrupt_wait_for_input(void);

#endif
