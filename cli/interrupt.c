/* interrupt.c - see interrupt.h.
 *
 * A handler may do next to nothing, and cancelling takes locks: the handler writes a byte into a pipe, and a thread
 * that waits there cancels the answer. The thread is the last to go, with the program. */
#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "models.h"
#include "terminal.h"

static atomic_bool watching, remembering;
static atomic_int count; /* of Ctrl-C since it was last begun anew */
static int pipe_ends[2] = {-1, -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `watched`, while it is cancelled too */
static lever_session *watched;

static char unfinished[PATH_BYTES]; /* written only while `has_unfinished` is false */
static atomic_bool has_unfinished;

static void remove_unfinished(void) {
    if (atomic_exchange(&has_unfinished, false)) (void)unlink(unfinished);
}

/* The program ends as it would without a handler. */
static void on_end(int signal_number) {
    remove_unfinished();
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

static void on_interrupt(int signal_number) {
    (void)signal_number;
    const int kept_errno = errno;
    const bool first = atomic_fetch_add(&count, 1) == 0;
    if (atomic_load(&watching) ? !first : !atomic_load(&remembering)) {
        remove_unfinished();
        _exit(EXIT_INTERRUPTED);
    }
    if (atomic_load(&watching)) {
        const ssize_t written = write(pipe_ends[1], "", 1);
        (void)written; /* a full pipe wakes the thread as well */
    }
    errno = kept_errno;
}

static void *cancel_when_told(void *user) {
    (void)user;
    for (;;) {
        char byte;
        const ssize_t got = read(pipe_ends[0], &byte, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return NULL;
        pthread_mutex_lock(&lock);
        if (watched != NULL && atomic_load(&count) > 0) lever_session_cancel(watched);
        pthread_mutex_unlock(&lock);
    }
}

void interrupt_open(void) {
    static lv_thread canceller;
    struct sigaction action = {.sa_handler = on_interrupt}; /* reads are interrupted: no SA_RESTART */
    sigemptyset(&action.sa_mask);
    if (pipe2(pipe_ends, O_CLOEXEC) == 0) {
        sigset_t interrupt, before; /* the thread must not take the signal: it is to end a read of the main thread */
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        pthread_sigmask(SIG_BLOCK, &interrupt, &before);
        (void)lv_thread_start(&canceller, NULL, cancel_when_told, NULL, "lever-interrupt", NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

void interrupt_watch(lever_session *session) {
    pthread_mutex_lock(&lock);
    watched = session;
    atomic_store(&watching, session != NULL);
    if (session != NULL && atomic_load(&count) > 0) lever_session_cancel(session);
    pthread_mutex_unlock(&lock);
}

/* Whoever wants the program to outlive a hang-up (nohup) has SIGHUP ignored: that stays. */
static void set_end_handler(int signal_number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(signal_number, &action, NULL);
    }
}

void interrupt_removes(const char *path) {
    atomic_store(&has_unfinished, false);
    if (path != NULL && strlen(path) >= sizeof unfinished) return;
    if (path != NULL) memcpy(unfinished, path, strlen(path) + 1);
    set_end_handler(SIGTERM, path != NULL ? on_end : SIG_DFL);
    set_end_handler(SIGHUP, path != NULL ? on_end : SIG_DFL);
    atomic_store(&has_unfinished, path != NULL);
}

void interrupt_remember(void) {
    atomic_store(&count, 0);
    atomic_store(&remembering, true);
}

bool interrupt_happened(void) {
    return atomic_load(&count) > 0;
}

/* The signal is let in only while waiting: one that came a moment before would not end a read. */
bool interrupt_wait_for_input(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    int ready = 0;
    while (!interrupt_happened() && ready == 0) {
        ready = ppoll(&input, 1, NULL, &before);
        if (ready < 0 && errno == EINTR) ready = 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !interrupt_happened();
}
