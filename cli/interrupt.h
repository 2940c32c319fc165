/* interrupt.h - Ctrl-C.
 *
 * While a session is watched, the first Ctrl-C cancels its answer and the second ends the program; otherwise Ctrl-C
 * ends the program with exit code 130, or is only remembered where interrupt_defer(true) said so. Owns the handlers of
 * SIGINT and SIGPIPE (ignored: writing to a closed pipe is an error like others). Main thread. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "lever.h"

void interrupt_open(void);
void interrupt_watch(lever_session *session); /* NULL: no longer; forgets what was remembered */
void interrupt_defer(bool defer);             /* forgets what was remembered */
bool interrupt_happened(void);

#endif
