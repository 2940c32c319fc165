/* convert.h - rows of one tensor type rewritten as another, through floats.
 *
 * For packing: any type that ggml can read, to the types that it can write without an importance matrix. Pure functions
 * on caller's memory; any thread. */
#ifndef LV_COMPUTE_CONVERT_H
#define LV_COMPUTE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "q4_0", "Q4_K", "f16": a type that rows can be converted to. False for any other name. */
bool lv_convert_type(const char *name, int32_t *type);
/* "f16, bf16, q4_0, ...": for messages. */
const char *lv_convert_type_list(void);

/* Whether rows of `type` can be read as floats. */
bool lv_convert_reads(int32_t type);
/* Bytes of a row; 0 when the elements do not fill whole groups of the type. */
uint64_t lv_convert_row_bytes(int32_t type, uint64_t row_elements);

/* `floats` has room for rows_count * row_elements. Rows follow one another without a gap, in `from` and in `to`. */
void lv_convert_rows(int32_t from_type, const void *from, int32_t to_type, void *to, uint64_t row_elements,
                     uint64_t rows_count, float *floats);

#endif
