/* store.h - blocks on flash, leased in memory.
 *
 * Owns the ring of slots, the pinned blocks, and the lanes (threads that read). A lease is the only way to see weights:
 * it is valid until it is released, and its memory is not touched meanwhile. Lanes read ahead in the order of use,
 * wrapping from the last block to the first, as long as a slot is free, so the disk rests only while the ring is full.
 * A failed read is kept with its block and returned by the acquire that wants it; the next acquire tries once more. A
 * failed checksum is LEVER_E_FORMAT.
 *
 *     slot:   FREE --lane takes--> READING --done--> READY --acquire--> LEASED --release--> FREE
 *                                     '--error--> FAILED --acquire returns it--> FREE
 *
 * One consumer at a time acquires and releases (the engine serialises passes); lv_store_set_pinned,
 * lv_store_get_counters and lv_store_cancel_wait may be called from any thread. One mutex guards all states; it is not
 * held while reading. */
#ifndef LV_FLASH_STORE_H
#define LV_FLASH_STORE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/spans.h"
#include "flash/layout.h"

typedef struct lv_store lv_store;

/* Called once for each block that becomes pinned, with its bytes, before it can be leased: rewrites it in place (row
 * layout to tiles). The consumer's thread, or a lane's; at opening from several lanes at once, for different blocks. */
typedef void (*lv_pin_transform_fn)(void *user, uint32_t block, uint8_t *data);

typedef struct {
    const lv_gguf *gguf;     /* its files are read; borrowed */
    const lv_layout *layout; /* borrowed */
    const bool *pinned;      /* blocks_count; copied; read at opening */
    lv_category
        pinned_category;  /* what pinned blocks of layers are booked as; 0: LV_MEM_PINNED. The head's: LV_MEM_HEAD */
    uint32_t slots_count; /* 0 only when every block is pinned; else at least 2 */
    bool keeps;           /* the ring is a cache of the blocks used last (ring.h) */
    uint32_t lanes;
    bool huge_pages;
    bool verify;                   /* packed files: check each chunk when it is read the first time */
    lv_pin_transform_fn transform; /* may be NULL */
    void *transform_user;
    const lv_clock *clock;
    lv_spans *spans; /* reads and waits are recorded here; may be NULL */
    const lv_log *log;
    lv_ledger *ledger;
    lever_progress_fn progress; /* LEVER_STAGE_OPEN while reading pinned blocks; may be NULL */
    void *progress_user;
    const atomic_bool
        *cancel; /* ends the opening with LEVER_E_CANCELLED when the reads that run are over; may be NULL */
} lv_store_options;

lever_status lv_store_open(lv_store **store, const lv_store_options *options, lever_error *error);
void lv_store_close(lv_store **store); /* asserts that no lease is out; joins the lanes */

typedef struct {
    const uint8_t *data; /* the block's first byte; any alignment */
    uint32_t block;
    uint32_t slot;    /* or UINT32_MAX: pinned */
    bool transformed; /* the transform was applied: the segments are in tiles */
} lv_lease;

/* Waits for the block. Cheapest in the order of use; any other block works (the ring is then refilled from there).
 * Leases of streamed blocks take a slot each: at most slots_count at a time (LEVER_E_INTERNAL). `cancel` (may be NULL)
 * ends the wait with LEVER_E_CANCELLED: at once when lv_store_cancel_wait is called after it became true, else (it was
 * set in a signal handler) within some hundredths of a second. */
lever_status lv_store_acquire(lv_store *store, uint32_t block, const atomic_bool *cancel, lv_lease *lease,
                              lever_error *error);
/* False, without waiting, when the block is not there yet or its reading failed. */
bool lv_store_try_acquire(lv_store *store, uint32_t block, lv_lease *lease);
void lv_store_release(lv_store *store, lv_lease *lease); /* exactly once for each acquired lease */

/* Whether read-ahead goes on into the head's blocks after the last layer (when they are not pinned), or wraps to the
 * first layer at once. */
void lv_store_set_head_wanted(lv_store *store, bool wanted);

/* Wakes a waiting acquire so that it looks at its `cancel`. */
void lv_store_cancel_wait(lv_store *store);

/* Changes which blocks are pinned. What leaves is given back at once, or when its lease is released; what comes is
 * pinned when it next passes by, as far as the ledger grants memory. Returns without waiting. */
void lv_store_set_pinned(lv_store *store, const bool *pinned);

typedef struct {
    uint64_t bytes_read; /* from the files, aligned supersets included */
    uint64_t reads_count;
    uint64_t busy_ns;         /* time in which at least one read was in flight */
    uint64_t wait_ns;         /* time the consumer waited in acquire */
    uint64_t pinned_bytes;    /* of the layers' blocks, now */
    uint32_t streamed_blocks; /* not pinned now, nor kept by a ring that has room for all of them; the head too */
    uint64_t ring_bytes;
    uint64_t hit_bytes; /* of blocks that were leased again, and had not to be read again: the ring keeps them */
} lv_store_counters;

void lv_store_get_counters(lv_store *store, lv_store_counters *counters);

/* Reads rows of any tensor on demand (embedding rows), beside the lanes. Of a tensor in tiles: whole tiles, row_first
 * and rows_count multiples of 16. `rows` takes rows_count * row_bytes. */
lever_status lv_store_read_rows(lv_store *store, const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                                void *rows, lever_error *error);

/* The reader alone: streams all unpinned blocks in order for `passes`, releasing each at once; what `doctor` and the
 * benchmark compare decoding with. 0 when everything is pinned. */
lever_status lv_store_measure(lv_store *store, uint32_t passes, double *bytes_per_second, lever_error *error);

#endif
