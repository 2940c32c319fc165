/* os_wait.h - the only call that waits for a simulated disk.
 *
 * A seam for tests, which replace it when linking (--wrap): there a false clock moves instead. Called by pacer.c alone,
 * from any thread. */
#ifndef LV_BASE_OS_WAIT_H
#define LV_BASE_OS_WAIT_H

#include <pthread.h>
#include <stdint.h>

/* Gives `lock` up until `changed` is signalled, CLOCK_MONOTONIC, which `changed` was made for, has reached `until_ns`,
 * or for no reason. */
void lv_os_wait_until(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t until_ns);

#endif
