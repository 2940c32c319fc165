/* pacer.h - a disk that is slower than the real one.
 *
 * Owns the time at which the simulated disk is free. All who share a pacer share one disk: a read of n bytes holds it
 * for n / rate seconds, behind whatever was asked for before, and ends no earlier. Nothing is saved up while the disk
 * rests. It is the disk's rate alone: no seeking, no cache of the disk's, no reads beside each other. Any thread; NULL
 * is the disk as it is. */
#ifndef LV_BASE_PACER_H
#define LV_BASE_PACER_H

#include "base/clock.h"
#include "base/ledger.h"

typedef struct lv_pacer lv_pacer;

/* `clock` is borrowed. */
lever_status lv_pacer_open(lv_pacer **pacer, uint64_t bytes_per_second, const lv_clock *clock, lv_ledger *ledger,
                           lever_error *error);
void lv_pacer_close(lv_pacer **pacer); /* nobody waits any more; NULL in it is accepted */

/* A read of `bytes` begins now. Returns when it may end, by the pacer's clock. */
uint64_t lv_pacer_begin(lv_pacer *pacer, size_t bytes);

/* Returns at that time, or once the pacer has been stopped. */
void lv_pacer_wait(lv_pacer *pacer, uint64_t end_ns);

/* From now on nobody waits: what is read is not wanted any more. */
void lv_pacer_stop(lv_pacer *pacer);

#endif
