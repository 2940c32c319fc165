/* buckets.c - see buckets.h. A few entries: searched from the front. */
#include "base/buckets.h"

uint32_t lv_buckets_next(const lv_buckets *buckets, uint32_t rows) {
    if (buckets->count == 0) return rows;
    for (uint32_t i = 0; i < buckets->count; i++) {
        if (buckets->rows[i] >= rows) return buckets->rows[i];
    }
    return buckets->rows[buckets->count - 1];
}

uint32_t lv_buckets_padded(const lv_buckets *buckets, uint32_t rows) {
    if (buckets->count == 0) return rows;
    const uint32_t most = buckets->rows[buckets->count - 1];
    const uint32_t whole = rows / most * most, rest = rows - whole;
    return rest > 0 ? whole + lv_buckets_next(buckets, rest) : whole;
}

uint32_t lv_buckets_below(const lv_buckets *buckets, uint32_t rows) {
    if (buckets->count == 0 || rows <= 1) return rows > 0 ? rows - 1 : 0;
    const uint32_t most = buckets->rows[buckets->count - 1];
    const uint32_t whole = (rows - 1) / most * most;
    uint32_t below = 0;
    for (uint32_t i = 0; i < buckets->count && buckets->rows[i] < rows - whole; i++) below = buckets->rows[i];
    return whole + below;
}
