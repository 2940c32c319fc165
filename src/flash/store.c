/* store.c - the consumer's side of the ring and of the pinned blocks.
 *
 *     lanes (lanes.c)                       one mutex                      consumer (here)
 *     take slot, read, check, finish  <-->  ring.c: which block where  <-->  acquire, release
 *                                           pins.c: what stays
 *
 * The consumer asks for blocks in the order of use and finds them there, or waits for the read that is under way. What
 * makes this fast is not here but in the sequence: the lanes never wait for a request, they run ahead until the ring is
 * full, past the last block into the next pass.
 *
 * A block that is to be pinned while running is copied out of the ring when its lease comes back: the bytes are there,
 * and no read is spent on it. Memory is mapped and given back outside the mutex. */
#include "flash/store.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "flash/store_state.h"

#define OPENING_LANES 4u
#define CANCEL_LOOK_NS 20000000L /* how often a wait looks at a flag that a signal handler may have set */

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

static lever_status check_options(const lv_store_options *options, lever_error *error) {
    const lv_layout *layout = options->layout;
    bool streamed = false;
    for (uint32_t i = 0; i < layout->blocks_count; i++) streamed |= !options->pinned[i];
    if (streamed && options->slots_count < 2)
        return lv_fail(error, LEVER_E_ARGUMENT, "a ring of %u slots: streaming needs at least 2", options->slots_count);
    if (options->lanes == 0) return lv_fail(error, LEVER_E_ARGUMENT, "reading needs at least one lane");
    return LEVER_OK;
}

static lever_status open_locks(lv_store *store, lever_error *error) {
    int failure = pthread_mutex_init(&store->lock, NULL);
    if (failure == 0) failure = pthread_mutex_init(&store->rows_lock, NULL);
    if (failure == 0) failure = pthread_cond_init(&store->work, NULL);
    if (failure == 0) failure = lv_condition_open(&store->ended);
    if (failure == 0) return LEVER_OK;
    return lv_fail(error, LEVER_E_MEMORY, "the locks of the ring: %s", strerror(failure));
}

static void wait_for_a_read(lv_store *store, bool look_again_soon) {
    if (!look_again_soon) {
        pthread_cond_wait(&store->ended, &store->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CANCEL_LOOK_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&store->ended, &store->lock, &until);
}

static bool is_cancelled(const lv_store_options *options) {
    return options->cancel != NULL && atomic_load(options->cancel);
}

/* Reads what is pinned; the caller's thread waits and tells the progress. */
static lever_status read_pinned_blocks(lv_store *store, lever_error *error) {
    const lv_store_options *options = &store->options;
    uint64_t bytes_total = 0, bytes_done = 0;
    for (uint32_t i = 0; i < store->layout->blocks_count; i++) {
        if (!options->pinned[i]) continue;
        lv_pins_set(&store->pins, i, true, NULL);
        bytes_total += store->layout->blocks[i].bytes;
        store->open_left++;
    }
    if (store->open_left == 0) store->open_next = store->layout->blocks_count;
    LV_TRY(lv_lanes_start(store, options->lanes, store->open_left > 0 ? OPENING_LANES : 0, error));

    pthread_mutex_lock(&store->lock);
    while (store->open_left > 0 && store->open_error.status == LEVER_OK) {
        if (is_cancelled(options)) break;
        if (bytes_done == store->open_bytes_done) {
            wait_for_a_read(store, options->cancel != NULL);
            continue;
        }
        bytes_done = store->open_bytes_done;
        pthread_mutex_unlock(&store->lock);
        if (options->progress != NULL)
            options->progress(options->progress_user, LEVER_STAGE_OPEN, bytes_done, bytes_total);
        pthread_mutex_lock(&store->lock);
    }
    if (store->open_error.status == LEVER_OK && is_cancelled(options))
        lv_fail(&store->open_error, LEVER_E_CANCELLED, "cancelled");
    lever_status status = store->open_error.status;
    if (status != LEVER_OK && error != NULL) *error = store->open_error;
    store->open_next = store->layout->blocks_count; /* what is to be pinned from now on comes through the ring */
    pthread_mutex_unlock(&store->lock);

    if (status != LEVER_OK) {
        lv_lanes_stop(store);
        return status;
    }
    lv_lanes_join_opening(store);
    if (options->progress != NULL && bytes_total > 0)
        options->progress(options->progress_user, LEVER_STAGE_OPEN, bytes_total, bytes_total);
    return LEVER_OK;
}

lever_status lv_store_open(lv_store **out, const lv_store_options *options, lever_error *error) {
    *out = NULL;
    LV_TRY(check_options(options, error));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_METADATA, 1, sizeof(lv_store), "the block store", error));
    lv_store *store = memory;
    store->options = *options;
    if (options->pinned_category == 0) store->options.pinned_category = LV_MEM_PINNED;
    store->layout = options->layout;

    lever_status status = open_locks(store, error);
    if (status != LEVER_OK) {
        lv_free(store);
        return status;
    }
    status = lv_ring_open(&store->ring, store->layout, options->slots_count, options->ledger, error);
    store->ring.keeps = options->keeps;
    if (status == LEVER_OK)
        status = lv_pins_open(&store->pins, store->layout, store->ring.resident, options->ledger, error);
    if (status == LEVER_OK)
        status = lv_checks_open(&store->checks, options->gguf, options->verify, options->ledger, error);
    if (status == LEVER_OK && options->slots_count > 0)
        status = lv_area_open(
            &store->slots, options->ledger, LV_MEM_RING, (size_t)(options->slots_count * store->layout->slot_bytes),
            &(lv_area_options){.huge_pages = options->huge_pages, .touch = true}, "the ring of blocks", error);
    if (status == LEVER_OK) status = read_pinned_blocks(store, error);
    if (status != LEVER_OK) {
        lv_store_close(&store);
        return status;
    }
    store->options.pinned = NULL;
    store->options.cancel = NULL;
    pthread_mutex_lock(&store->lock);
    store->counters = (lv_store_counters){.ring_bytes = store->slots.bytes}; /* what follows is counted */
    pthread_mutex_unlock(&store->lock);
    *out = store;
    return LEVER_OK;
}

void lv_store_close(lv_store **out) {
    if (out == NULL || *out == NULL) return;
    lv_store *store = *out;
    *out = NULL;
    assert(store->ring.leased_count == 0);
    lv_lanes_stop(store);
    lv_area_close(&store->slots);
    lv_checks_close(&store->checks);
    lv_pins_close(&store->pins);
    lv_ring_close(&store->ring);
    pthread_cond_destroy(&store->ended);
    pthread_cond_destroy(&store->work);
    pthread_mutex_destroy(&store->rows_lock);
    pthread_mutex_destroy(&store->lock);
    lv_free(store);
}

/* --- Leases ------------------------------------------------------------------------------------------------------- */

static lv_lease lease_of_slot(const lv_store *store, uint32_t slot) {
    const lv_slot *s = &store->ring.slots[slot];
    return (lv_lease){
        .data = store->slots.data + slot * store->layout->slot_bytes + s->skip, .block = s->block, .slot = slot};
}

static bool lease_pinned(lv_store *store, uint32_t block, lv_lease *lease) {
    const uint8_t *data = lv_pins_lease(&store->pins, block);
    if (data == NULL) return false;
    *lease =
        (lv_lease){.data = data, .block = block, .slot = UINT32_MAX, .transformed = store->options.transform != NULL};
    return true;
}

/* Hands over the error of a block that could not be read, and has it read once more. */
static lever_status take_failure(lv_store *store, uint32_t slot, lever_error *error) {
    const lv_slot *s = &store->ring.slots[slot];
    uint32_t layer = store->layout->blocks[s->block].layer;
    lever_status status = s->error.status;
    if (error != NULL) *error = s->error;
    if (layer == LV_LAYER_HEAD) {
        lv_error_prefix(error, "the output head: ");
    } else {
        lv_error_prefix(error, "layer %u: ", layer);
    }
    lv_ring_restart(&store->ring, s->block);
    return status;
}

/* One look. True when there is nothing to wait for: the block is leased, or *status says why it does not come. */
static bool look(lv_store *store, uint32_t block, lv_lease *lease, lever_status *status, lever_error *error) {
    uint32_t slot = 0;
    if (lease_pinned(store, block, lease)) return true;
    lv_want want = lv_ring_want(&store->ring, block, &slot);
    if (want == LV_WANT_LEASED) *lease = lease_of_slot(store, slot);
    if (want == LV_WANT_FAILED) *status = take_failure(store, slot, error);
    if (want == LV_WANT_STUCK)
        *status = lv_fail(error, LEVER_E_INTERNAL, "block %u: all %u slots of the ring are leased", block,
                          store->ring.slots_count);
    pthread_cond_broadcast(&store->work); /* slots were passed over, or the sequence starts anew */
    return want != LV_WANT_PENDING;
}

lever_status lv_store_acquire(lv_store *store, uint32_t block, const atomic_bool *cancel, lv_lease *lease,
                              lever_error *error) {
    lever_status status = LEVER_OK;
    pthread_mutex_lock(&store->lock);
    if (!look(store, block, lease, &status, error)) {
        uint64_t begin_ns = lv_clock_now_ns(store->options.clock), span_ns = lv_spans_begin(store->options.spans);
        do {
            if (cancel != NULL && atomic_load(cancel)) {
                status = lv_fail(error, LEVER_E_CANCELLED, "cancelled");
                break;
            }
            wait_for_a_read(store, cancel != NULL);
        } while (!look(store, block, lease, &status, error));
        store->counters.wait_ns += lv_clock_now_ns(store->options.clock) - begin_ns;
        lv_spans_end(store->options.spans, LV_TRACK_MAIN, "wait block", block, span_ns);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

bool lv_store_try_acquire(lv_store *store, uint32_t block, lv_lease *lease) {
    uint32_t slot = 0;
    pthread_mutex_lock(&store->lock);
    bool leased = lease_pinned(store, block, lease);
    if (!leased && lv_ring_try(&store->ring, block, &slot)) {
        *lease = lease_of_slot(store, slot);
        leased = true;
        pthread_cond_broadcast(&store->work);
    }
    pthread_mutex_unlock(&store->lock);
    return leased;
}

/* Copies a leased block into an area of its own; without the lock. */
static bool copy_to_area(lv_store *store, const lv_lease *lease, lv_area *area) {
    assert(lease->data != NULL);
    size_t bytes = (size_t)store->layout->blocks[lease->block].bytes;
    lv_area_options options = {.huge_pages = store->options.huge_pages};
    if (lv_area_open(area, store->options.ledger, lv_store_pin_category(store, lease->block), bytes, &options,
                     "a pinned block", NULL) != LEVER_OK)
        return false;
    memcpy(area->data, lease->data, bytes);
    if (store->options.transform != NULL)
        store->options.transform(store->options.transform_user, lease->block, area->data);
    return true;
}

void lv_store_release(lv_store *store, lv_lease *lease) {
    lv_area freed = {0};
    pthread_mutex_lock(&store->lock);
    if (lease->slot == UINT32_MAX) {
        lv_pins_release(&store->pins, lease->block, &freed);
    } else {
        if (lv_pins_begin(&store->pins, lease->block)) {
            lv_area area = {0};
            pthread_mutex_unlock(&store->lock);
            bool copied = copy_to_area(store, lease, &area);
            pthread_mutex_lock(&store->lock);
            if (!copied) {
                lv_pins_abandon(&store->pins, lease->block);
            } else if (!lv_pins_publish(&store->pins, lease->block, &area, 0)) {
                freed = area;
            }
        }
        lv_ring_release(&store->ring, lease->slot);
        pthread_cond_signal(&store->work);
    }
    pthread_mutex_unlock(&store->lock);
    lv_area_close(&freed);
    *lease = (lv_lease){0};
}

/* --- What changes while running ----------------------------------------------------------------------------------- */

void lv_store_set_head_wanted(lv_store *store, bool wanted) {
    pthread_mutex_lock(&store->lock);
    store->ring.head_wanted = wanted;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
}

void lv_store_cancel_wait(lv_store *store) {
    pthread_mutex_lock(&store->lock);
    pthread_cond_broadcast(&store->ended);
    pthread_mutex_unlock(&store->lock);
}

/* Block by block, so that the memory of each is back with the system before this returns. */
void lv_store_set_pinned(lv_store *store, const bool *pinned) {
    for (uint32_t i = 0; i < store->layout->blocks_count; i++) {
        lv_area freed = {0};
        pthread_mutex_lock(&store->lock);
        lv_pins_set(&store->pins, i, pinned[i], &freed);
        pthread_mutex_unlock(&store->lock);
        lv_area_close(&freed);
    }
    pthread_mutex_lock(&store->lock);
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
}

void lv_store_get_counters(lv_store *store, lv_store_counters *counters) {
    pthread_mutex_lock(&store->lock);
    *counters = store->counters;
    counters->pinned_bytes = store->pins.layer_bytes;
    counters->hit_bytes = store->ring.hit_bytes;
    counters->streamed_blocks = store->layout->blocks_count - store->pins.ready_count;
    if (store->ring.keeps && store->ring.slots_count >= counters->streamed_blocks) counters->streamed_blocks = 0;
    if (store->reads_in_flight > 0) counters->busy_ns += lv_clock_now_ns(store->options.clock) - store->busy_since_ns;
    pthread_mutex_unlock(&store->lock);
}

/* --- Rows on demand, and the reader alone ------------------------------------------------------------------------- */

static lever_status check_row_range(const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                                    lever_error *error) {
    bool tiles = tensor->layout == LV_LAYOUT_TILES;
    if (row_first > tensor->rows_count || rows_count > tensor->rows_count - row_first ||
        (tiles && (row_first % 16 != 0 || rows_count % 16 != 0)))
        return lv_fail(error, LEVER_E_ARGUMENT, "rows %llu and %llu more of %s, which has %llu%s",
                       (unsigned long long)row_first, (unsigned long long)rows_count, tensor->name,
                       (unsigned long long)tensor->rows_count, tiles ? " in tiles of 16" : "");
    return LEVER_OK;
}

lever_status lv_store_read_rows(lv_store *store, const lv_tensor *tensor, uint64_t row_first, uint64_t rows_count,
                                void *rows, lever_error *error) {
    LV_TRY(check_row_range(tensor, row_first, rows_count, error));
    if (rows_count == 0) return LEVER_OK;
    uint64_t offset = tensor->offset + row_first * tensor->row_bytes;
    size_t bytes = (size_t)(rows_count * tensor->row_bytes);

    pthread_mutex_lock(&store->lock);
    lv_store_read_begins(store);
    pthread_mutex_unlock(&store->lock);

    pthread_mutex_lock(&store->rows_lock);
    lever_status status = lv_checks_read(&store->checks, tensor, row_first, rows_count, error);
    pthread_mutex_unlock(&store->rows_lock);
    if (status == LEVER_OK)
        status = lv_file_read(lv_gguf_file(store->options.gguf, tensor->file_index), rows, offset, bytes, error);

    pthread_mutex_lock(&store->lock);
    lv_store_read_ends(store, status == LEVER_OK ? lv_file_superset_bytes(offset, bytes) : 0);
    pthread_mutex_unlock(&store->lock);
    if (status != LEVER_OK) lv_error_prefix(error, "rows of %s: ", tensor->name);
    return status;
}

static uint64_t bytes_read(lv_store *store) {
    lv_store_counters counters;
    lv_store_get_counters(store, &counters);
    return counters.bytes_read;
}

static bool is_streamed(lv_store *store, uint32_t block) {
    pthread_mutex_lock(&store->lock);
    bool streamed =
        !store->ring.resident[block] && (block < store->layout->head_block_first || store->ring.head_wanted);
    pthread_mutex_unlock(&store->lock);
    return streamed;
}

lever_status lv_store_measure(lv_store *store, uint32_t passes, double *bytes_per_second, lever_error *error) {
    *bytes_per_second = 0;
    uint64_t begin_ns = lv_clock_now_ns(store->options.clock), begin_bytes = bytes_read(store);
    for (uint32_t pass = 0; pass < passes; pass++) {
        for (uint32_t block = 0; block < store->layout->blocks_count; block++) {
            if (!is_streamed(store, block)) continue;
            lv_lease lease = {0};
            LV_TRY(lv_store_acquire(store, block, NULL, &lease, error));
            lv_store_release(store, &lease);
        }
    }
    uint64_t elapsed_ns = lv_clock_now_ns(store->options.clock) - begin_ns;
    if (elapsed_ns > 0) *bytes_per_second = (double)(bytes_read(store) - begin_bytes) / lv_seconds(elapsed_ns);
    return LEVER_OK;
}
