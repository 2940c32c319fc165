/* thread.h - threads with a stack of known size, conditions with a steady clock, and what the machine offers.
 *
 * A stack is booked in the ledger (LV_MEM_STACKS). Any thread may start others; who starts one joins it. */
#ifndef LV_BASE_THREAD_H
#define LV_BASE_THREAD_H

#include <pthread.h>

#include "base/ledger.h"

#define LV_THREAD_STACK_BYTES ((size_t)256 << 10)

typedef struct lv_thread {
    pthread_t id;
    bool running;
    lv_ledger *ledger;
    size_t stack_bytes;
} lv_thread;

lever_status lv_thread_start(lv_thread *thread, lv_ledger *ledger, void *(*run)(void *), void *user, const char *name,
                             lever_error *error);
void lv_thread_join(lv_thread *thread); /* a thread that was never started is accepted */

/* A condition whose timed waits follow CLOCK_MONOTONIC. Returns 0, or what pthread_cond_init says. */
int lv_condition_open(pthread_cond_t *condition);

/* Processors that this process may use, of the fast kind where the machine has several kinds: cores whose capacity (or
 * maximum frequency) is at least three quarters of the highest. `sysfs_root` is "/sys" except in tests. At least 1. */
uint32_t lv_cpu_fast_count(const char *sysfs_root);

#endif
