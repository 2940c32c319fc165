/* barrier.h - where threads that compute together wait for each other.
 *
 * Spins for some microseconds, which is how far they are apart as a rule, then sleeps, so that on a busy machine the
 * processor goes to the thread that is waited for. Zeroed memory is an open barrier. Any number of threads, the same in
 * all calls of one round. */
#ifndef LV_COMPUTE_BARRIER_H
#define LV_COMPUTE_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    atomic_uint arrived;
    char apart[60];    /* who arrives does not disturb who spins: they are in two cache lines */
    atomic_uint round; /* what sleepers wait to change */
    atomic_uint sleepers;
} lv_barrier;

/* Returns when `threads` threads have called it. What each wrote before is seen by all after. */
void lv_barrier_wait(lv_barrier *barrier, uint32_t threads);

#endif
