/* store_state.h - what the parts of the store share: store.c (the consumer's side) and lanes.c (the reading side). */
#ifndef LV_FLASH_STORE_STATE_H
#define LV_FLASH_STORE_STATE_H

#include "base/thread.h"
#include "flash/checks.h"
#include "flash/pins.h"
#include "flash/ring.h"
#include "flash/store.h"

typedef struct {
    lv_store *store;
    lv_thread thread;
    bool opening_only; /* helps to read the pinned blocks, then ends */
} lv_lane;

struct lv_store {
    lv_store_options options; /* `pinned`, `progress` and `cancel` are the opener's and not used later */
    const lv_layout *layout;
    lv_area slots;    /* slots_count times slot_bytes; a slot belongs to who holds its lease or reads into it */
    lv_checks checks; /* const but for atomic marks; its scratch: rows_lock */
    lv_lane *lanes;
    uint32_t lanes_count;

    pthread_mutex_t lock; /* protects everything below; not held while reading, checking, copying or mapping */
    pthread_cond_t work;  /* lanes wait: a slot became free, the sequence changed, or the store closes */
    pthread_cond_t ended; /* consumer and opener wait: a read has ended, or somebody cancels */
    lv_ring ring;
    lv_pins pins;
    bool closing;

    uint32_t open_next; /* the first block that no lane has looked at for reading what is pinned at opening */
    uint32_t open_left; /* pinned blocks that are still to be read */
    uint64_t open_bytes_done;
    lever_error open_error; /* status LEVER_OK while all goes well */

    lv_store_counters counters; /* busy_ns: without the stretch that is under way */
    uint32_t reads_in_flight;
    uint64_t busy_since_ns;

    pthread_mutex_t rows_lock; /* protects checks.scratch */
};

/* Starts `lanes` threads and, for the opening, as many more as make `opening_lanes`. On failure none is left. */
lever_status lv_lanes_start(lv_store *store, uint32_t lanes, uint32_t opening_lanes, lever_error *error);
/* Ends the lanes that only help opening; waits for what they do. */
void lv_lanes_join_opening(lv_store *store);
/* Ends all lanes. A read that is under way is waited for. */
void lv_lanes_stop(lv_store *store);

/* What the memory of a pinned block is booked as. */
static inline lv_category lv_store_pin_category(const lv_store *store, uint32_t block) {
    return block >= store->layout->head_block_first ? LV_MEM_HEAD : store->options.pinned_category;
}

/* Accounting of reads; under the lock. */
void lv_store_read_begins(lv_store *store);
void lv_store_read_ends(lv_store *store, uint64_t bytes);

#endif
