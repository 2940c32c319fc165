/* attention.h - attention of batch rows over their own paths through a key/value cache.
 *
 * Owns nothing. A row's keys are a path: slots of the cache in the order of the text, so that the nodes of a tree, the
 * tokens of a prompt and the single token of plain decoding are one and the same case. The result of a row depends on
 * its query and on its keys in path order, and on nothing else: not on the rows computed with it, nor on where the keys
 * lie, nor on threads, nor on the instruction set (docs/ARITHMETIC.md, "Attention"). Rows of one call may belong to
 * different sessions. They must already be stored when lv_attention_run reads them: the store is a graph node before.
 *
 * Any thread. The work is cut into tasks that threads take from a common counter, in any order. */
#ifndef LV_COMPUTE_ATTENTION_H
#define LV_COMPUTE_ATTENTION_H

#include "compute/kv.h"

/* The keys of one row in path order: slots 0 .. prefix_count-1, then path[0 .. path_count-1]. The row's own slot is the
 * last of them, in whichever part it lies. At least one key. Borrowed. */
typedef struct {
    const lv_kv *kv;
    uint32_t prefix_count;
    uint32_t path_count;
    const uint32_t *path; /* NULL when path_count is 0 */
} lv_path;

typedef struct {
    uint32_t layer;
    uint32_t heads_count; /* a multiple of kv_heads_count */
    uint32_t kv_heads_count;
    uint32_t head_dim;
    uint32_t tasks_wanted; /* threads that will share; 0 and 1: no cutting beyond what is fastest for one */
    float scale;           /* of the scores; 1/sqrt(head_dim) as a rule */
    const float *q;        /* heads_count * head_dim floats a row, rope applied */
    size_t q_stride;       /* floats from row to row */
    float *out;            /* the same shape */
    size_t out_stride;
    const lv_path *rows;
    size_t rows_count;
} lv_attention;

typedef struct lv_attention_isa lv_attention_isa; /* one instruction set */

/* The best for this processor; never NULL. */
const lv_attention_isa *lv_attention_isa_best(void);
/* All that this processor can run, best first; NULL past the end. The last is the portable one. */
const lv_attention_isa *lv_attention_isa_at(size_t index);
const char *lv_attention_isa_name(const lv_attention_isa *isa);

size_t lv_attention_tasks_count(const lv_attention *attention);

/* Computes tasks [task_first, task_first + tasks_count). `scratch` is the calling thread's own,
 * lv_attention_scratch_bytes() bytes, aligned to 64. */
void lv_attention_run(const lv_attention_isa *isa, const lv_attention *attention, size_t task_first, size_t tasks_count,
                      void *scratch);

/* The same for every shape and every length of context: about 100 KiB. */
size_t lv_attention_scratch_bytes(void);

#endif
