/* clock.c - the two clocks behind lv_clock. */
#include "base/clock.h"

#include <time.h>

static uint64_t real_now_ns(void *user) {
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const lv_clock lv_clock_real = {real_now_ns, NULL};

static uint64_t virtual_now_ns(void *user) {
    const lv_clock_virtual *virtual_clock = user;
    return virtual_clock->now_ns;
}

lv_clock lv_clock_of_virtual(lv_clock_virtual *virtual_clock) {
    return (lv_clock){virtual_now_ns, virtual_clock};
}
