/* buckets.h - the numbers of rows that a device computes at once, and what other numbers are padded to.
 *
 * An accelerator runs shapes that were fixed beforehand. Fewer rows than a shape has are padded with rows that nobody
 * looks at; more than the largest go in several runs. Pure functions; any thread. */
#ifndef LV_BASE_BUCKETS_H
#define LV_BASE_BUCKETS_H

#include <stdint.h>

enum { LV_BUCKETS_MAX = 16 };

typedef struct {
    uint32_t rows[LV_BUCKETS_MAX]; /* ascending */
    uint32_t count;                /* 0: any number of rows, as the CPU takes them */
} lv_buckets;

/* The run that takes the first of `rows` (at least 1): the smallest bucket that holds them all, else the largest. */
uint32_t lv_buckets_next(const lv_buckets *buckets, uint32_t rows);

/* Rows that are computed for `rows`, padding included. */
uint32_t lv_buckets_padded(const lv_buckets *buckets, uint32_t rows);

/* The most rows, fewer than `rows`, that are computed without padding or in a smaller shape: the next number that is
 * worth cutting down to. 0: none. */
uint32_t lv_buckets_below(const lv_buckets *buckets, uint32_t rows);

#endif
