/* clock.h - monotonic time in nanoseconds, real or virtual.
 *
 * A lv_clock is passed to whoever measures, so that simulations and tests can put a virtual one in its place. Any
 * thread. */
#ifndef LV_BASE_CLOCK_H
#define LV_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct lv_clock {
    uint64_t (*now_ns)(void *user);
    void *user;
} lv_clock;

extern const lv_clock lv_clock_real; /* CLOCK_MONOTONIC */

static inline uint64_t lv_clock_now_ns(const lv_clock *clock) {
    return clock->now_ns(clock->user);
}

/* A clock that stands still until it is moved. */
typedef struct lv_clock_virtual {
    uint64_t now_ns;
} lv_clock_virtual;
lv_clock lv_clock_of_virtual(lv_clock_virtual *virtual_clock);

static inline double lv_seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

#endif
