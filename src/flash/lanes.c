/* lanes.c - the threads that read.
 *
 * A lane does one thing at a time: it takes the next block of the sequence and a free slot, reads the whole block with
 * one request, checks it, and takes the next. One large request at a time keeps flash busy; a second lane hides the
 * moment between two requests. At opening the same lanes first read the pinned blocks, each into an area of its own; a
 * few more lanes help then, because rewriting what was read (tiles) takes processor time.
 *
 * A lane never waits for the consumer while it holds something: a slot that nobody wants any more is simply given back
 * when its read has ended. */
#include <string.h>

#include "flash/store_state.h"

void lv_store_read_begins(lv_store *store) {
    if (store->reads_in_flight++ == 0) store->busy_since_ns = lv_clock_now_ns(store->options.clock);
}

void lv_store_read_ends(lv_store *store, uint64_t bytes) {
    store->counters.bytes_read += bytes;
    store->counters.reads_count++;
    if (--store->reads_in_flight == 0)
        store->counters.busy_ns += lv_clock_now_ns(store->options.clock) - store->busy_since_ns;
}

/* Reads and checks a block; called without the lock. `data` holds the block's superset. */
static lever_status read_block(lv_store *store, uint32_t block, uint8_t *data, size_t *skip, lever_error *error) {
    const lv_block *b = &store->layout->blocks[block];
    lv_file *file = lv_gguf_file(store->options.gguf, b->file_index);

    pthread_mutex_lock(&store->lock);
    lv_store_read_begins(store);
    pthread_mutex_unlock(&store->lock);

    lever_status status = lv_file_read_superset(file, data, b->offset, (size_t)b->bytes, skip, error);

    pthread_mutex_lock(&store->lock);
    lv_store_read_ends(store, status == LEVER_OK ? lv_file_superset_bytes(b->offset, (size_t)b->bytes) : 0);
    pthread_mutex_unlock(&store->lock);

    if (status == LEVER_OK) status = lv_checks_block(&store->checks, store->layout, block, data + *skip, error);
    return status;
}

static void read_into_slot(lv_store *store, uint32_t lane, uint32_t slot) {
    uint32_t block = store->ring.slots[slot].block;
    pthread_mutex_unlock(&store->lock);

    size_t skip = 0;
    lever_error error = {0};
    uint8_t *data = store->slots.data + slot * store->layout->slot_bytes;
    const uint64_t begin_ns = lv_spans_begin(store->options.spans);
    lever_status status = read_block(store, block, data, &skip, &error);
    lv_spans_end(store->options.spans, LV_TRACK_LANE + lane, "read block", block, begin_ns);

    pthread_mutex_lock(&store->lock);
    lv_ring_finish(&store->ring, slot, skip, status, &error);
    pthread_cond_broadcast(&store->ended);
}

static lever_status fill_area(lv_store *store, uint32_t block, lv_area *area, size_t *skip, lever_error *error) {
    const lv_block *b = &store->layout->blocks[block];
    LV_TRY(lv_area_open(area, store->options.ledger, lv_store_pin_category(store, block),
                        lv_file_superset_bytes(b->offset, (size_t)b->bytes),
                        &(lv_area_options){.huge_pages = store->options.huge_pages, .touch = true}, "a pinned block",
                        error));
    lever_status status = read_block(store, block, area->data, skip, error);
    if (status == LEVER_OK && store->options.transform != NULL)
        store->options.transform(store->options.transform_user, block, area->data + *skip);
    if (status != LEVER_OK) lv_area_close(area);
    return status;
}

/* The next block that is to be pinned at opening, or LV_BLOCK_NONE. */
static uint32_t next_to_pin(lv_store *store) {
    while (store->open_next < store->layout->blocks_count) {
        uint32_t block = store->open_next++;
        if (lv_pins_begin(&store->pins, block)) return block;
    }
    return LV_BLOCK_NONE;
}

static void read_pinned(lv_store *store, uint32_t block) {
    pthread_mutex_unlock(&store->lock);

    size_t skip = 0;
    lv_area area = {0};
    lever_error error = {0};
    lever_status status = fill_area(store, block, &area, &skip, &error);

    pthread_mutex_lock(&store->lock);
    if (status == LEVER_OK) {
        lv_pins_publish(&store->pins, block, &area, skip); /* nobody changes his mind before opening is done */
        store->open_bytes_done += store->layout->blocks[block].bytes;
    } else {
        if (store->open_error.status == LEVER_OK) store->open_error = error;
        store->open_next = store->layout->blocks_count;
        lv_pins_abandon(&store->pins, block);
    }
    store->open_left--;
    pthread_cond_broadcast(&store->ended);
}

static void *run(void *user) {
    lv_lane *lane = user;
    lv_store *store = lane->store;
    pthread_mutex_lock(&store->lock);
    while (!store->closing) {
        uint32_t slot = 0, block = next_to_pin(store);
        if (block != LV_BLOCK_NONE) {
            read_pinned(store, block);
        } else if (lane->opening_only) {
            break;
        } else if (lv_ring_take(&store->ring, &slot)) {
            read_into_slot(store, (uint32_t)(lane - store->lanes), slot);
        } else {
            pthread_cond_wait(&store->work, &store->lock);
        }
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

lever_status lv_lanes_start(lv_store *store, uint32_t lanes, uint32_t opening_lanes, lever_error *error) {
    uint32_t count = opening_lanes > lanes ? opening_lanes : lanes;
    void *memory = NULL;
    LV_TRY(
        lv_alloc_checked(&memory, store->options.ledger, LV_MEM_METADATA, count, sizeof(lv_lane), "the lanes", error));
    store->lanes = memory;
    store->lanes_count = count;
    lever_status status = LEVER_OK;
    for (uint32_t i = 0; i < count && status == LEVER_OK; i++) {
        lv_lane *lane = &store->lanes[i];
        lane->store = store;
        lane->opening_only = i >= lanes;
        status = lv_thread_start(&lane->thread, store->options.ledger, run, lane, "lever-lane", error);
    }
    if (status != LEVER_OK) lv_lanes_stop(store);
    return status;
}

void lv_lanes_join_opening(lv_store *store) {
    for (uint32_t i = 0; i < store->lanes_count; i++)
        if (store->lanes[i].opening_only) lv_thread_join(&store->lanes[i].thread);
}

void lv_lanes_stop(lv_store *store) {
    pthread_mutex_lock(&store->lock);
    store->closing = true;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; i < store->lanes_count; i++) lv_thread_join(&store->lanes[i].thread);
    lv_free(store->lanes);
    store->lanes = NULL;
    store->lanes_count = 0;
}
