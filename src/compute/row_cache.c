/* row_cache.c - direct mapped: row r can only be entry r modulo the number of entries, so that a look-up is one
 * comparison and nothing is ever sorted or chained. Frequent tokens have low numbers and seldom meet.
 *
 *     area:   entries: row_bytes each | scratch: a tile as it lies on flash, then its rows | number of each entry's row
 */
#include "compute/row_cache.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "compute/kernels/kernel.h"

#define NO_ROW UINT32_MAX

struct lv_row_cache {
    const lv_tensor *table;
    lv_store *store;
    lv_area area;
    uint8_t *rows, *scratch;
    uint32_t *row_of; /* of each entry; NO_ROW: empty */
    uint32_t entries; /* at least 1: without a cache there is one, which is forgotten at once */
    bool keeps;
};

typedef struct {
    uint32_t entries;
    size_t rows_bytes, scratch_bytes, total;
} sizes;

static sizes sizes_of(const lv_tensor *table, uint32_t entries) {
    sizes s = {.entries = entries > 0 ? entries : 1};
    if (s.entries > table->rows_count) s.entries = (uint32_t)table->rows_count;
    s.rows_bytes = (s.entries * (size_t)table->row_bytes + 63) / 64 * 64;
    if (table->layout == LV_LAYOUT_TILES) s.scratch_bytes = 2 * LV_TILE_ROWS * (size_t)table->row_bytes;
    s.total = s.rows_bytes + s.scratch_bytes + s.entries * sizeof(uint32_t);
    return s;
}

uint64_t lv_row_cache_bytes(const lv_tensor *table, uint32_t entries) {
    return lv_area_booked_bytes(sizes_of(table, entries).total) + sizeof(lv_row_cache);
}

lever_status lv_row_cache_open(lv_row_cache **out, const lv_tensor *table, lv_store *store, uint32_t entries,
                               lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    const sizes s = sizes_of(table, entries);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_EMBEDDING, 1, sizeof(lv_row_cache), "the embedding rows", error));
    lv_row_cache *cache = memory;
    const lv_area_options area = {.touch = true};
    const lever_status status =
        lv_area_open(&cache->area, ledger, LV_MEM_EMBEDDING, s.total, &area, "the embedding rows", error);
    if (status != LEVER_OK) {
        lv_free(cache);
        return status;
    }
    cache->table = table;
    cache->store = store;
    cache->rows = cache->area.data;
    cache->scratch = cache->rows + s.rows_bytes;
    cache->row_of = (uint32_t *)(void *)(cache->scratch + s.scratch_bytes);
    cache->entries = s.entries;
    cache->keeps = entries > 0;
    for (uint32_t i = 0; i < s.entries; i++) cache->row_of[i] = NO_ROW;
    *out = cache;
    return LEVER_OK;
}

void lv_row_cache_close(lv_row_cache **out) {
    if (out == NULL || *out == NULL) return;
    lv_area_close(&(*out)->area);
    lv_free(*out);
    *out = NULL;
}

lever_status lv_row_read(lv_store *store, const lv_tensor *table, uint64_t row, uint8_t *scratch, uint8_t *to,
                         lever_error *error) {
    if (table->layout == LV_LAYOUT_ROWS) return lv_store_read_rows(store, table, row, 1, to, error);
    const size_t row_bytes = (size_t)table->row_bytes;
    const uint64_t first = row / LV_TILE_ROWS * LV_TILE_ROWS;
    uint8_t *rows = scratch + LV_TILE_ROWS * row_bytes;
    LV_TRY(lv_store_read_rows(store, table, first, LV_TILE_ROWS, scratch, error));
    lv_tile_unpack(table->type, (size_t)table->dims[0], scratch, rows);
    memcpy(to, rows + (row - first) * row_bytes, row_bytes);
    return LEVER_OK;
}

lever_status lv_row_cache_get(lv_row_cache *cache, uint32_t row, const uint8_t **data, lever_error *error) {
    assert(row < cache->table->rows_count);
    const uint32_t entry = row % cache->entries;
    uint8_t *place = cache->rows + entry * (size_t)cache->table->row_bytes;
    *data = place;
    if (cache->row_of[entry] == row) return LEVER_OK;
    cache->row_of[entry] = NO_ROW; /* a read that fails leaves rubbish */
    LV_TRY(lv_row_read(cache->store, cache->table, row, cache->scratch, place, error));
    if (cache->keeps) cache->row_of[entry] = row;
    return LEVER_OK;
}
