/* layout.c - cutting the matrices of a model into blocks.
 *
 * A read should be large (a request of a few MiB is what flash serves at full rate) and a block small (the ring holds
 * several, and a cancelled pass waits for one). So small neighbours share a block, and a large matrix is cut into equal
 * parts: three parts of 4 MiB flow better than two of 5 and one of 2.
 *
 * Neighbours that share a block must also be neighbours in the order of use: the rows of a block are then needed at
 * about the same time, and its segments stand together in the table. Their order in the file may differ. The bytes
 * between them (norms and biases, which are held elsewhere, and padding) are read and ignored.
 *
 * The table is made by one walk that runs twice: first it only counts, then it fills. */
#include "flash/layout.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

#define GAP_BYTES_MAX ((uint64_t)64 << 10)
#define SHARED_ITEMS_MAX 16u
/* The superset begins up to one page before the block and ends up to one after it. */
#define MARGIN_BYTES ((uint64_t)2 * LV_FILE_ALIGN)

typedef struct {
    const lv_layout_item *items;
    uint32_t items_count;
    uint64_t block_bytes_max; /* of the exact range */
    lv_layout *layout;        /* blocks == NULL: count only */
} builder;

uint64_t lv_chunk_rows(const lv_tensor *tensor) {
    uint64_t rows = LV_CHUNK_BYTES / tensor->row_bytes / 16 * 16;
    return rows > 16 ? rows : 16;
}

uint64_t lv_chunks_count(const lv_tensor *tensor) {
    uint64_t rows = lv_chunk_rows(tensor);
    return (tensor->rows_count + rows - 1) / rows;
}

static void add_segment(builder *b, uint32_t item, uint64_t row_first, uint64_t rows_count, uint64_t block_offset) {
    lv_layout *layout = b->layout;
    if (layout->blocks != NULL) {
        layout->segments[layout->segments_count] = (lv_segment){
            .item = item,
            .block = layout->blocks_count,
            .row_first = row_first,
            .rows_count = rows_count,
            .block_offset = block_offset,
            .bytes = rows_count * b->items[item].tensor->row_bytes,
        };
        if (row_first == 0) layout->item_segment_first[item] = layout->segments_count;
    }
    layout->segments_count++;
}

/* Ends the block whose segments, `segments_count` of them, were just added. */
static void add_block(builder *b, uint32_t item, uint64_t offset, uint64_t bytes, uint32_t segments_count) {
    lv_layout *layout = b->layout;
    uint32_t layer = b->items[item].layer;
    if (layout->blocks != NULL) {
        layout->blocks[layout->blocks_count] = (lv_block){
            .file_index = b->items[item].tensor->file_index,
            .layer = layer,
            .offset = offset,
            .bytes = bytes,
            .segment_first = layout->segments_count - segments_count,
            .segments_count = segments_count,
        };
    }
    layout->blocks_count++;
    *(layer == LV_LAYER_HEAD ? &layout->head_bytes : &layout->layer_bytes) += bytes;
    if (layer != LV_LAYER_HEAD) layout->head_block_first = layout->blocks_count;
    uint64_t superset = lv_file_superset_bytes(offset, (size_t)bytes);
    if (superset > layout->slot_bytes) layout->slot_bytes = superset;
}

/* One matrix in as few blocks of even size as the limit allows. */
static void cut_item(builder *b, uint32_t item) {
    const lv_tensor *tensor = b->items[item].tensor;
    uint64_t chunk_rows = lv_chunk_rows(tensor);
    uint64_t chunks = lv_chunks_count(tensor);
    uint64_t chunk_bytes = chunk_rows * tensor->row_bytes;
    uint64_t chunks_per_block_max = b->block_bytes_max / chunk_bytes;
    if (chunks_per_block_max == 0) chunks_per_block_max = 1;

    uint64_t parts = (chunks + chunks_per_block_max - 1) / chunks_per_block_max;
    for (uint64_t part = 0; part < parts; part++) {
        uint64_t row_first = chunks * part / parts * chunk_rows;
        uint64_t row_end = chunks * (part + 1) / parts * chunk_rows;
        if (row_end > tensor->rows_count) row_end = tensor->rows_count;
        add_segment(b, item, row_first, row_end - row_first, 0);
        add_block(b, item, tensor->offset + row_first * tensor->row_bytes, (row_end - row_first) * tensor->row_bytes,
                  1);
    }
}

/* Whether items [first, end) lie together in one file, within one block; *offset and *bytes: their range. */
static bool lie_together(const builder *b, uint32_t first, uint32_t end, uint64_t *offset, uint64_t *bytes) {
    const lv_tensor *sorted[SHARED_ITEMS_MAX];
    uint32_t count = 0;
    for (uint32_t i = first; i < end; i++) {
        const lv_tensor *tensor = b->items[i].tensor;
        if (tensor->file_index != b->items[first].tensor->file_index) return false;
        uint32_t at = count++;
        for (; at > 0 && sorted[at - 1]->offset > tensor->offset; at--) sorted[at] = sorted[at - 1];
        sorted[at] = tensor;
    }
    for (uint32_t i = 1; i < count; i++) {
        uint64_t previous_end = sorted[i - 1]->offset + sorted[i - 1]->bytes;
        if (sorted[i]->offset < previous_end || sorted[i]->offset - previous_end > GAP_BYTES_MAX) return false;
    }
    *offset = sorted[0]->offset;
    *bytes = sorted[count - 1]->offset + sorted[count - 1]->bytes - *offset;
    return *bytes <= b->block_bytes_max;
}

static void walk(builder *b) {
    lv_layout *layout = b->layout;
    layout->blocks_count = layout->segments_count = layout->head_block_first = 0;
    layout->layer_bytes = layout->head_bytes = layout->slot_bytes = 0;

    for (uint32_t first = 0, end; first < b->items_count; first = end) {
        const lv_layout_item *item = &b->items[first];
        end = first + 1;
        while (end < b->items_count && end - first < SHARED_ITEMS_MAX && b->items[end].layer == item->layer &&
               b->items[end].group == item->group)
            end++;
        uint64_t offset = 0, bytes = 0;
        while (end > first + 1 && !lie_together(b, first, end, &offset, &bytes)) end--;
        if (end == first + 1) {
            cut_item(b, first);
            continue;
        }
        for (uint32_t i = first; i < end; i++)
            add_segment(b, i, 0, b->items[i].tensor->rows_count, b->items[i].tensor->offset - offset);
        add_block(b, first, offset, bytes, end - first);
    }
}

static lever_status check_items(const lv_layout_item *items, uint32_t items_count, lever_error *error) {
    for (uint32_t i = 0; i < items_count; i++) {
        const lv_tensor *tensor = items[i].tensor;
        if (tensor->bytes == 0 || tensor->row_bytes == 0)
            return lv_fail(error, LEVER_E_FORMAT, "tensor %s is empty", tensor->name);
        if (i > 0 && items[i - 1].layer == LV_LAYER_HEAD && items[i].layer != LV_LAYER_HEAD)
            return lv_fail(error, LEVER_E_INTERNAL, "tensor %s of a layer stands behind the output head", tensor->name);
    }
    return LEVER_OK;
}

lever_status lv_layout_build(lv_layout **out, const lv_layout_item *items, uint32_t items_count,
                             uint64_t block_bytes_max, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    if (items_count == 0) return lv_fail(error, LEVER_E_ARGUMENT, "a block table needs at least one matrix");
    if (block_bytes_max < LV_BLOCK_BYTES_MIN || block_bytes_max > LV_BLOCK_BYTES_MAX)
        return lv_fail(error, LEVER_E_ARGUMENT, "a block of at most %llu bytes: give %llu to %llu",
                       (unsigned long long)block_bytes_max, (unsigned long long)LV_BLOCK_BYTES_MIN,
                       (unsigned long long)LV_BLOCK_BYTES_MAX);
    LV_TRY(check_items(items, items_count, error));

    lv_layout counted = {0};
    builder b = {.items = items,
                 .items_count = items_count,
                 .block_bytes_max = block_bytes_max - MARGIN_BYTES,
                 .layout = &counted};
    walk(&b);

    /* One allocation: the table, then its arrays, the ones with 64-bit numbers first. */
    size_t items_at = sizeof(lv_layout);
    size_t segments_at = items_at + items_count * sizeof(lv_layout_item);
    size_t blocks_at = segments_at + counted.segments_count * sizeof(lv_segment);
    size_t firsts_at = blocks_at + counted.blocks_count * sizeof(lv_block);
    size_t bytes = firsts_at + ((size_t)items_count + 1) * sizeof(uint32_t);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, bytes, "the block table", error));

    uint8_t *base = memory;
    lv_layout *layout = memory;
    memcpy(base + items_at, items, items_count * sizeof *items);
    layout->items = (const lv_layout_item *)(base + items_at);
    layout->items_count = items_count;
    layout->segments = (lv_segment *)(base + segments_at);
    layout->blocks = (lv_block *)(base + blocks_at);
    layout->item_segment_first = (uint32_t *)(base + firsts_at);
    b.layout = layout;
    walk(&b);
    assert(layout->blocks_count == counted.blocks_count && layout->segments_count == counted.segments_count);
    layout->item_segment_first[items_count] = layout->segments_count;
    layout->slot_bytes = (layout->slot_bytes + LV_HUGE_PAGE_BYTES - 1) / LV_HUGE_PAGE_BYTES * LV_HUGE_PAGE_BYTES;
    *out = layout;
    return LEVER_OK;
}

void lv_layout_free(lv_layout **layout) {
    if (layout == NULL || *layout == NULL) return;
    lv_free(*layout);
    *layout = NULL;
}

uint64_t lv_block_memory_bytes(const lv_block *block) {
    return lv_area_booked_bytes(lv_file_superset_bytes(block->offset, (size_t)block->bytes));
}

/* In bytes of memory: a pinned block takes whole pages.
 *
 * As a line is drawn on a raster: a block is pinned when the pinned share would otherwise fall behind the even one.
 * What is left because blocks are whole is spread in the same way over the smaller ones, until nothing fits. */
uint64_t lv_pin_spread(const lv_layout *layout, uint64_t target_bytes, bool *pinned) {
    uint64_t pinned_bytes = 0;
    for (uint32_t i = 0; i < layout->head_block_first; i++) pinned[i] = false;

    for (uint64_t added = 1; added > 0; pinned_bytes += added) {
        uint64_t rest = target_bytes - pinned_bytes, candidates = 0, passed = 0;
        for (uint32_t i = 0; i < layout->head_block_first; i++)
            if (!pinned[i] && lv_block_memory_bytes(&layout->blocks[i]) <= rest)
                candidates += lv_block_memory_bytes(&layout->blocks[i]);

        added = 0;
        for (uint32_t i = 0; i < layout->head_block_first; i++) {
            const uint64_t bytes = lv_block_memory_bytes(&layout->blocks[i]);
            if (pinned[i] || bytes > rest) continue;
            passed += bytes;
            uint64_t even =
                passed == candidates ? rest : (uint64_t)((double)rest * ((double)passed / (double)candidates));
            if (rest < candidates && added + bytes > even) continue;
            pinned[i] = true;
            added += bytes;
        }
    }
    return pinned_bytes;
}
