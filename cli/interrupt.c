/* interrupt.c - see interrupt.h. The handler touches nothing but lock-free atomics, lever_session_cancel (which may be
 * called from a handler) and _exit. */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "terminal.h"

static _Atomic(lever_session *) watched;
static atomic_bool deferred;
static atomic_int count;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    lever_session *session = atomic_load(&watched);
    const int before = atomic_fetch_add(&count, 1);
    if (session != NULL && before == 0) {
        lever_session_cancel(session);
    } else if (!atomic_load(&deferred)) {
        _exit(EXIT_INTERRUPTED);
    }
}

void interrupt_open(void) {
    struct sigaction action = {.sa_handler = on_interrupt}; /* reads are interrupted: no SA_RESTART */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

void interrupt_watch(lever_session *session) {
    atomic_store(&watched, session);
    atomic_store(&count, 0);
}

void interrupt_defer(bool defer) {
    atomic_store(&deferred, defer);
    atomic_store(&count, 0);
}

bool interrupt_happened(void) {
    return atomic_load(&count) > 0;
}
