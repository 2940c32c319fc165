/* row_cache.h - rows of a table that is too large for memory, read one by one, the last ones kept.
 *
 * For embeddings: a pass over a tree of candidates asks for dozens of rows, most of them tokens of the last passes, and
 * each would wait for a read of its own. Owns the rows that are kept, booked as LV_MEM_EMBEDDING; borrows table and
 * store. One thread at a time. Rows are the bytes of the file in row layout, so what is computed from them does not
 * depend on the cache. */
#ifndef LV_COMPUTE_ROW_CACHE_H
#define LV_COMPUTE_ROW_CACHE_H

#include "flash/store.h"

typedef struct lv_row_cache lv_row_cache;

/* `entries` is bounded by the table's rows; 0: nothing is kept, each row is read when it is asked for. */
uint64_t lv_row_cache_bytes(const lv_tensor *table, uint32_t entries);
lever_status lv_row_cache_open(lv_row_cache **cache, const lv_tensor *table, lv_store *store, uint32_t entries,
                               lv_ledger *ledger, lever_error *error);
void lv_row_cache_close(lv_row_cache **cache);

/* `data`: row_bytes of the row in LV_LAYOUT_ROWS, whatever the table's layout. Borrowed until the next call. */
lever_status lv_row_cache_get(lv_row_cache *cache, uint32_t row, const uint8_t **data, lever_error *error);

/* One row of any table from the file, in LV_LAYOUT_ROWS. `scratch` has room for two tiles and is used where the table
 * lies in tiles; `to` may be its beginning. */
lever_status lv_row_read(lv_store *store, const lv_tensor *table, uint64_t row, uint8_t *scratch, uint8_t *to,
                         lever_error *error);

#endif
