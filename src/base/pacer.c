/* pacer.c - one number, the time at which the disk is free, moved on by every read when it begins.
 *
 * The real read goes on meanwhile, so it costs nothing as long as the real disk is the faster one. A wait that ends a
 * moment late costs as little: with two lanes the next read has its time already when one ends. */
#include "base/pacer.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/os_wait.h"
#include "base/thread.h"

struct lv_pacer {
    uint64_t bytes_per_second;
    const lv_clock *clock;
    pthread_mutex_t lock; /* protects what follows; given up while waiting */
    pthread_cond_t changed;
    uint64_t free_ns;
    bool stopped;
};

static int open_locks(lv_pacer *pacer) {
    const int failure = pthread_mutex_init(&pacer->lock, NULL);
    return failure != 0 ? failure : lv_condition_open(&pacer->changed);
}

lever_status lv_pacer_open(lv_pacer **out, uint64_t bytes_per_second, const lv_clock *clock, lv_ledger *ledger,
                           lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof(lv_pacer), "the slower disk", error));
    lv_pacer *pacer = memory;
    pacer->bytes_per_second = bytes_per_second;
    pacer->clock = clock;
    const int failure = open_locks(pacer);
    if (failure != 0) {
        lv_free(pacer);
        return lv_fail(error, LEVER_E_MEMORY, "the locks of the slower disk: %s", strerror(failure));
    }
    *out = pacer;
    return LEVER_OK;
}

void lv_pacer_close(lv_pacer **out) {
    lv_pacer *pacer = *out;
    if (pacer == NULL) return;
    pthread_cond_destroy(&pacer->changed);
    pthread_mutex_destroy(&pacer->lock);
    lv_free(pacer);
    *out = NULL;
}

uint64_t lv_pacer_begin(lv_pacer *pacer, size_t bytes) {
    if (pacer == NULL) return 0;
    const double held_ns = ceil((double)bytes * 1e9 / (double)pacer->bytes_per_second);
    pthread_mutex_lock(&pacer->lock);
    const uint64_t now_ns = lv_clock_now_ns(pacer->clock);
    if (pacer->free_ns < now_ns) pacer->free_ns = now_ns;
    pacer->free_ns += (uint64_t)held_ns;
    const uint64_t end_ns = pacer->free_ns;
    pthread_mutex_unlock(&pacer->lock);
    return end_ns;
}

void lv_pacer_wait(lv_pacer *pacer, uint64_t end_ns) {
    if (pacer == NULL) return;
    pthread_mutex_lock(&pacer->lock);
    while (!pacer->stopped && lv_clock_now_ns(pacer->clock) < end_ns)
        lv_os_wait_until(&pacer->changed, &pacer->lock, end_ns);
    pthread_mutex_unlock(&pacer->lock);
}

void lv_pacer_stop(lv_pacer *pacer) {
    if (pacer == NULL) return;
    pthread_mutex_lock(&pacer->lock);
    pacer->stopped = true;
    pthread_cond_broadcast(&pacer->changed);
    pthread_mutex_unlock(&pacer->lock);
}
