/* attention_isa.h - what attention.c and the files of one instruction set each share. Nobody else includes this. */
#ifndef LV_COMPUTE_ATTENTION_ISA_H
#define LV_COMPUTE_ATTENTION_ISA_H

#include "compute/attention.h"

/* A QUERY is one head of one row. The queries of a task are computed together, so that keys and values are loaded and
 * converted once for all of them. */
#define LV_QUERIES_MAX ((size_t)24)

struct lv_attention_isa {
    const char *name;
    void (*run)(const lv_attention *attention, size_t task_first, size_t tasks_count, void *scratch);
};

extern const lv_attention_isa lv_attention_portable;
#if defined(__x86_64__)
extern const lv_attention_isa lv_attention_avx512;
extern const lv_attention_isa lv_attention_avx2;
#elif defined(__aarch64__)
extern const lv_attention_isa lv_attention_neon;
#endif

/* How the work is cut: a task is a block of rows times the heads, or some of the heads, of one key/value head. */
typedef struct {
    size_t row_blocks_count;
    size_t block_rows; /* of each block but the last */
    size_t head_parts_count;
    size_t part_heads; /* of each part but the last */
} lv_attention_plan;

lv_attention_plan lv_attention_plan_of(const lv_attention *attention);

#endif
