/* attention.c - cutting the work, and choosing the instruction set.
 *
 * How the work is cut changes no bit of the result, so it follows speed alone. Queries that share a key/value head go
 * together as far as they fit (LV_QUERIES_MAX): the heads of a group first, then neighbouring rows, whose prefixes are
 * nearly the same. With few rows there may be fewer tasks than threads, or one too many; then the heads of a group are
 * parted, at the price of loading keys and values once for each part. */
#include "compute/attention_isa.h"

#include <assert.h>

/* What loading and converting the keys and values of one key/value head costs, in heads computed: about this. */
#define LOAD_HEADS ((size_t)2)

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

/* The number of parts of a head group of which the busiest thread has the least to do. */
static size_t head_parts(size_t group_heads, size_t tasks, size_t threads) {
    size_t best = divide_up(group_heads, LV_QUERIES_MAX);
    size_t best_cost = SIZE_MAX;
    for (size_t parts = best; threads > 1 && parts <= group_heads; parts++) {
        size_t cost = divide_up(tasks * parts, threads) * (divide_up(group_heads, parts) + LOAD_HEADS);
        if (cost < best_cost) {
            best_cost = cost;
            best = parts;
        }
    }
    return best;
}

lv_attention_plan lv_attention_plan_of(const lv_attention *attention) {
    assert(attention->kv_heads_count > 0 && attention->heads_count % attention->kv_heads_count == 0);
    lv_attention_plan plan = {0};
    if (attention->rows_count == 0) return plan;

    size_t group_heads = attention->heads_count / attention->kv_heads_count;
    size_t rows_max = group_heads < LV_QUERIES_MAX ? LV_QUERIES_MAX / group_heads : 1;
    plan.block_rows = divide_up(attention->rows_count, divide_up(attention->rows_count, rows_max));
    plan.row_blocks_count = divide_up(attention->rows_count, plan.block_rows);

    size_t tasks = plan.row_blocks_count * attention->kv_heads_count;
    plan.part_heads = divide_up(group_heads, head_parts(group_heads, tasks, attention->tasks_wanted));
    plan.head_parts_count = divide_up(group_heads, plan.part_heads);
    return plan;
}

size_t lv_attention_tasks_count(const lv_attention *attention) {
    lv_attention_plan plan = lv_attention_plan_of(attention);
    return plan.row_blocks_count * plan.head_parts_count * attention->kv_heads_count;
}

void lv_attention_run(const lv_attention_isa *isa, const lv_attention *attention, size_t task_first, size_t tasks_count,
                      void *scratch) {
    assert(attention->head_dim % 8 == 0 && attention->head_dim <= LV_HEAD_DIM_MAX);
    isa->run(attention, task_first, tasks_count, scratch);
}

#if defined(__x86_64__)
const lv_attention_isa *lv_attention_isa_at(size_t index) {
    const lv_attention_isa *able[3];
    size_t count = 0;
    /* Every processor with AVX2 and fused multiply-add converts half precision, too; compilers do not all know its
     * name. */
    bool fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (fused && __builtin_cpu_supports("avx512f")) able[count++] = &lv_attention_avx512;
    if (fused) able[count++] = &lv_attention_avx2;
    able[count++] = &lv_attention_portable;
    return index < count ? able[index] : NULL;
}
#elif defined(__aarch64__)
const lv_attention_isa *lv_attention_isa_at(size_t index) {
    return index == 0 ? &lv_attention_neon : index == 1 ? &lv_attention_portable : NULL;
}
#else
const lv_attention_isa *lv_attention_isa_at(size_t index) {
    return index == 0 ? &lv_attention_portable : NULL;
}
#endif

const lv_attention_isa *lv_attention_isa_best(void) {
    return lv_attention_isa_at(0);
}

const char *lv_attention_isa_name(const lv_attention_isa *isa) {
    return isa->name;
}
