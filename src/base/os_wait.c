/* os_wait.c - nothing but the call itself. */
#include "base/os_wait.h"

#include <time.h>

void lv_os_wait_until(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t until_ns) {
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(changed, lock, &until);
}
