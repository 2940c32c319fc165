/* attention_impl.h - attention over paths, written once over a small vector type.
 *
 * Each attention_<isa>.c defines the vector (see attention_avx512.c for the list) and includes this. The arithmetic is
 * that of docs/ARITHMETIC.md: what is computed for one query never depends on the queries beside it, and every vector
 * operation is one correctly rounded operation a lane, so that all instruction sets give the same bits.
 *
 * A task walks through its rows' paths in chunks of CHUNK_KEYS keys:
 *
 *     scores   [query][key]  = sum over d of query[d] * key[d]            matrix product over the head's elements
 *     weights  [query][key]  = 2^(score - running maximum)                in place
 *     sums     [query][d]   += sum over the chunk's keys of weight * value[d]   matrix product over keys
 *
 * Both products are one routine: it broadcasts a number of the left side and multiplies it with 16 half-precision
 * numbers of the right, keeping several queries times several such UNITS in registers. The running maximum changes at
 * the borders of chunks only, and these lie at path indices that are multiples of CHUNK_KEYS, whatever the batch.
 *
 *     one row's path   |tile 0|tile 1|tile 2|tile 3|tile 4|tile 5|
 *     keys                prefix: slots 0 .. p-1  |listed slots |
 *     computed         |   shared by the rows    | row by row   |
 *
 * The leading tiles that lie wholly in every row's prefix are computed for all queries at once, straight from the
 * cache. Where a row has fewer keys than its neighbour its surplus weights are exactly zero, which adds nothing: sums
 * begin at +0 and never become -0, and whatever lies in the cache is finite. The remaining tiles are computed row by
 * row; keys of listed slots are first copied into a tile of their own. */
#include "compute/attention_isa.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    TILE = LV_KV_TILE_SLOTS, /* keys of a tile; also the width of a unit */
    UNIT_VECS = 16 / VEC_LANES,
    CHUNK_KEYS = 256,
    CHUNK_TILES = CHUNK_KEYS / TILE,
    PASS_QUERIES_MAX = 6,
    /* Floats from one query to the next, in all three arrays. More than a power of two, so that the queries of a pass
     * do not fall into the same sets of the first-level cache. */
    QUERY_FLOATS = CHUNK_KEYS + 16,
};

_Static_assert(CHUNK_KEYS >= LV_HEAD_DIM_MAX, "a query, or the sums of one, must fit where the scores of a chunk do");

#define LOG2_E 1.44269504f

/* Queries beyond this, which no model has, are cut off, so that no score overflows. */
#define QUERY_MAX 1e30f

/* Weights below 2^-115 are zero: 2^(score - maximum) is then always a normal number. */
#define EXPONENT_MIN (-115.0f)

typedef struct {
    float queries[LV_QUERIES_MAX][QUERY_FLOATS]; /* scaled */
    float scores[LV_QUERIES_MAX][QUERY_FLOATS];  /* of a chunk; then weights */
    float sums[LV_QUERIES_MAX][QUERY_FLOATS];    /* of weighted values */
    float totals[LV_QUERIES_MAX][TILE];          /* of weights, by path index modulo 16 */
    float maxima[LV_QUERIES_MAX];
    uint16_t key_tile[LV_HEAD_DIM_MAX][TILE]; /* listed keys, copied together */
} scratch_area;

/* The rows of a task that share a cache. Query i is head i % heads_count of row i / heads_count. */
typedef struct {
    const lv_attention *attention;
    const uint16_t *keys;
    const uint16_t *values;
    lv_path rows[LV_QUERIES_MAX];
    size_t row_first; /* in the batch */
    size_t rows_count;
    size_t head_first;
    size_t heads_count;
    size_t head_dim;
    size_t shared_keys; /* whole tiles, or as many as the longest row has */
    size_t keys_max;
    scratch_area *scratch;
} row_group;

/* --- The product ---------------------------------------------------------------------------------------------------*/

/* out[q][16 * u + lane] += sum over steps of left[q][step] * right[step * step_halfs + u * unit_halfs + lane], in the
 * order of steps, each by one fused multiply-add. Rows of left and out are QUERY_FLOATS apart. */
typedef struct {
    const float *left;
    const uint16_t *right;
    size_t step_halfs;
    size_t unit_halfs;
    size_t steps;
    float *out;
    bool from_zero; /* out is not read */
} product;

/* One pass, of sizes that the compiler knows: sums stay in registers. */
static inline __attribute__((always_inline)) void product_fixed(const product *p, const int units, const int queries) {
    vec sums[PASS_QUERIES_MAX][4 * UNIT_VECS];
    const int vecs = units * UNIT_VECS;
#pragma GCC unroll 8
    for (int q = 0; q < queries; q++) {
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) {
            sums[q][v] = p->from_zero ? vec_set(0.0f) : vec_load(p->out + q * QUERY_FLOATS + v * VEC_LANES);
        }
    }
    const float *left = p->left;
    const uint16_t *right = p->right;
    for (size_t step = 0; step < p->steps; step++, left++, right += p->step_halfs) {
        vec row[4 * UNIT_VECS];
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) {
            row[v] = vec_load_half(right + (size_t)(v / UNIT_VECS) * p->unit_halfs + v % UNIT_VECS * VEC_LANES);
        }
#pragma GCC unroll 8
        for (int q = 0; q < queries; q++) {
            vec factor = vec_set(left[q * QUERY_FLOATS]);
#pragma GCC unroll 16
            for (int v = 0; v < vecs; v++) sums[q][v] = vec_fma(factor, row[v], sums[q][v]);
        }
    }
#pragma GCC unroll 8
    for (int q = 0; q < queries; q++) {
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) vec_store(p->out + q * QUERY_FLOATS + v * VEC_LANES, sums[q][v]);
    }
}

/* Units of a pass: as many as registers hold. A power of two, so that few sizes need code of their own. */
static inline size_t pass_units(size_t units, size_t queries) {
    for (size_t pass = 4; pass > 1; pass /= 2) {
        if (pass <= units && pass * queries <= PASS_UNITS_MAX) return pass;
    }
    return 1;
}

static void product_pass(const product *p, size_t units, size_t queries) {
    switch (units * 8 + queries) {
#define PASS(u, q)                                     \
    case (u)*8 + (q):                                  \
        if ((u) * (q) <= PASS_UNITS_MAX || (u) == 1) { \
            product_fixed(p, u, q);                    \
        }                                              \
        break;
#define PASSES(u) PASS(u, 1) PASS(u, 2) PASS(u, 3) PASS(u, 4) PASS(u, 5) PASS(u, 6)
        PASSES(1)
        PASSES(2)
        PASSES(4)
#undef PASSES
#undef PASS
    default:
        assert(false);
    }
}

/* The whole product: passes of as equal a number of queries as can be. Units are outermost, so that what one pass took
 * from the cache is near for the next. */
static void product_run(const product *whole, size_t units, size_t queries) {
    size_t passes = (queries + PASS_QUERIES_MAX - 1) / PASS_QUERIES_MAX;
    size_t pass_queries = (queries + passes - 1) / passes;
    product pass = *whole;
    size_t step;
    for (size_t unit = 0; unit < units; unit += step) {
        step = pass_units(units - unit, pass_queries);
        pass.right = whole->right + unit * whole->unit_halfs;
        for (size_t i = 0, query = 0; i < passes; i++) {
            size_t count = (queries - query + passes - i - 1) / (passes - i);
            pass.left = whole->left + query * QUERY_FLOATS;
            pass.out = whole->out + query * QUERY_FLOATS + unit * TILE;
            product_pass(&pass, step, count);
            query += count;
        }
    }
}

/* --- Scores --------------------------------------------------------------------------------------------------------*/

/* Scores of the keys in `tiles` tiles that lie one behind the other. `key` counts from the chunk's first. */
static void score_tiles(const row_group *group, size_t query, size_t queries, const uint16_t *keys, size_t key,
                        size_t tiles) {
    product scores = {.left = group->scratch->queries[query],
                      .right = keys,
                      .step_halfs = TILE,
                      .unit_halfs = TILE * group->head_dim,
                      .steps = group->head_dim,
                      .out = group->scratch->scores[query] + key,
                      .from_zero = true};
    product_run(&scores, tiles, queries);
}

static uint32_t slot_of(const lv_path *row, size_t key) {
    return key < row->prefix_count ? (uint32_t)key : row->path[key - row->prefix_count];
}

static size_t keys_of(const lv_path *row) {
    return (size_t)row->prefix_count + row->path_count;
}

/* Copies up to 16 keys, from path index `key` on, into the scratch tile. */
static void copy_keys(const row_group *group, const lv_path *row, size_t key) {
    size_t head_dim = group->head_dim;
    uint16_t *tile = group->scratch->key_tile[0];
    size_t count = keys_of(row) - key < TILE ? keys_of(row) - key : TILE;
    if (count < TILE) memset(tile, 0, head_dim * TILE * sizeof *tile); /* the rest is computed with, then dropped */
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = slot_of(row, key + i);
        const uint16_t *from = group->keys + slot / TILE * TILE * head_dim + slot % TILE;
        for (size_t d = 0; d < head_dim; d++) tile[d * TILE + i] = from[d * TILE];
    }
}

/* Scores of one row's keys [key, key_end) of a chunk that begins at chunk_first; `key` begins a tile. */
static void score_row(const row_group *group, size_t r, size_t chunk_first, size_t key, size_t key_end) {
    const lv_path *row = &group->rows[r];
    size_t query = r * group->heads_count;
    for (; key < key_end; key += TILE) {
        const uint16_t *tile = group->keys + key * group->head_dim;
        if (key + TILE > row->prefix_count && row->path_count > 0) {
            copy_keys(group, row, key);
            tile = group->scratch->key_tile[0];
        }
        score_tiles(group, query, group->heads_count, tile, key - chunk_first, 1);
    }
}

/* --- Weights -------------------------------------------------------------------------------------------------------*/

/* 2^x for x <= 0, zero below EXPONENT_MIN and for minus infinity; error at most 1 unit in the last place. x = n + r
 * with n an integer and |r| <= 1/2, exactly; 2^r is a polynomial; n is added to the exponent. */
static inline vec vec_exp2(vec x) {
    const vec magic =
        vec_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold */
    vec shifted = vec_add(x, magic);
    vec r = vec_sub(x, vec_sub(shifted, magic));
    vec power = vec_set(0x1.44138ap-13f);
    power = vec_fma(power, r, vec_set(0x1.5f0890p-10f));
    power = vec_fma(power, r, vec_set(0x1.3b2a54p-7f));
    power = vec_fma(power, r, vec_set(0x1.c6af6cp-5f));
    power = vec_fma(power, r, vec_set(0x1.ebfbe0p-3f));
    power = vec_fma(power, r, vec_set(0x1.62e430p-1f));
    power = vec_fma(power, r, vec_set(1.0f));
    return vec_zero_unless(x, vec_set(EXPONENT_MIN), vec_add_exponent(power, shifted));
}

static float largest(const float *scores, size_t count) {
    vec maxima[UNIT_VECS];
    for (int v = 0; v < UNIT_VECS; v++) maxima[v] = vec_load(scores + v * VEC_LANES);
    for (size_t key = TILE; key < count; key += TILE) {
        for (int v = 0; v < UNIT_VECS; v++) maxima[v] = vec_max(maxima[v], vec_load(scores + key + v * VEC_LANES));
    }
    float lanes[TILE];
    for (int v = 0; v < UNIT_VECS; v++) vec_store(lanes + v * VEC_LANES, maxima[v]);
    for (size_t width = TILE / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    }
    return lanes[0];
}

/* Adding zero turns a product of -0 into +0. */
static void multiply(float *numbers, size_t count, float factor) {
    vec factors = vec_set(factor);
    for (size_t i = 0; i < count; i += VEC_LANES) {
        vec_store(numbers + i, vec_add(vec_mul(vec_load(numbers + i), factors), vec_set(0.0f)));
    }
}

/* Turns a query's scores of a chunk into weights and adds them to its totals. The first `count` are its own (there may
 * be none); those up to `filled`, a multiple of 16, become zero. */
static void weigh(const row_group *group, size_t query, size_t count, size_t filled) {
    scratch_area *scratch = group->scratch;
    float *scores = scratch->scores[query];
    for (size_t key = count; key < filled; key++) scores[key] = -INFINITY;

    float maximum_before = scratch->maxima[query];
    float maximum = largest(scores, filled);
    if (maximum < maximum_before) maximum = maximum_before;
    if (maximum != maximum_before) {
        float factor[VEC_LANES];
        vec_store(factor, vec_exp2(vec_set(maximum_before - maximum)));
        multiply(scratch->totals[query], TILE, factor[0]);
        multiply(scratch->sums[query], (group->head_dim + TILE - 1) / TILE * TILE, factor[0]);
        scratch->maxima[query] = maximum;
    }

    vec shift = vec_set(maximum);
    vec totals[UNIT_VECS];
    for (int v = 0; v < UNIT_VECS; v++) totals[v] = vec_load(scratch->totals[query] + v * VEC_LANES);
    for (size_t key = 0; key < filled; key += TILE) {
        for (int v = 0; v < UNIT_VECS; v++) {
            float *at = scores + key + v * VEC_LANES;
            vec weights = vec_exp2(vec_sub(vec_load(at), shift));
            vec_store(at, weights);
            totals[v] = vec_add(totals[v], weights);
        }
    }
    for (int v = 0; v < UNIT_VECS; v++) vec_store(scratch->totals[query] + v * VEC_LANES, totals[v]);
}

/* --- Weighted values -----------------------------------------------------------------------------------------------*/

/* Adds the values of `count` slots from `slot` on; `key` counts the first from the chunk's beginning. */
static void add_values(const row_group *group, size_t query, size_t queries, size_t slot, size_t key, size_t count) {
    product sums = {.left = group->scratch->scores[query] + key,
                    .right = group->values + slot * group->head_dim,
                    .step_halfs = group->head_dim,
                    .unit_halfs = TILE,
                    .steps = count,
                    .out = group->scratch->sums[query]};
    product_run(&sums, (group->head_dim + TILE - 1) / TILE, queries);
}

/* Adds the values of one row's keys [key, key_end), run by run of neighbouring slots. */
static void add_row_values(const row_group *group, size_t r, size_t chunk_first, size_t key, size_t key_end) {
    const lv_path *row = &group->rows[r];
    while (key < key_end) {
        size_t slot = slot_of(row, key);
        size_t count = 1;
        while (key + count < key_end && slot_of(row, key + count) == slot + count) count++;
        add_values(group, r * group->heads_count, group->heads_count, slot, key - chunk_first, count);
        key += count;
    }
}

/* --- A group of rows -----------------------------------------------------------------------------------------------*/

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}
static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* A path whose listed slots simply go on where the prefix ends is a longer prefix. */
static lv_path path_normalised(lv_path row) {
    while (row.path_count > 0 && row.path[0] == row.prefix_count) {
        row.prefix_count++;
        row.path++;
        row.path_count--;
    }
    return row;
}

static void group_begin(row_group *group) {
    const lv_attention *attention = group->attention;
    scratch_area *scratch = group->scratch;
    float factor = attention->scale * LOG2_E;
    for (size_t query = 0; query < group->rows_count * group->heads_count; query++) {
        size_t row = group->row_first + query / group->heads_count;
        size_t head = group->head_first + query % group->heads_count;
        const float *from = attention->q + row * attention->q_stride + head * group->head_dim;
        for (size_t d = 0; d < group->head_dim; d++) {
            float scaled = from[d] * factor;
            scaled = scaled < QUERY_MAX ? scaled : QUERY_MAX;
            scratch->queries[query][d] = scaled > -QUERY_MAX ? scaled : -QUERY_MAX;
        }
        memset(scratch->sums[query], 0, sizeof scratch->sums[query]);
        memset(scratch->totals[query], 0, sizeof scratch->totals[query]);
        scratch->maxima[query] = -INFINITY;
    }

    size_t listed_from = SIZE_MAX; /* the first tile border below which no row lists slots */
    group->keys_max = 0;
    for (size_t r = 0; r < group->rows_count; r++) {
        const lv_path *row = &group->rows[r];
        assert(keys_of(row) > 0);
        group->keys_max = larger(group->keys_max, keys_of(row));
        if (row->path_count > 0) listed_from = smaller(listed_from, row->prefix_count / TILE * TILE);
    }
    group->shared_keys = smaller(group->keys_max, listed_from);
}

/* One chunk, from path index `first` on. */
static void group_chunk(const row_group *group, size_t first) {
    size_t queries = group->rows_count * group->heads_count;
    size_t shared_end = larger(first, smaller(group->shared_keys, first + CHUNK_KEYS));
    size_t shared_tiles = (shared_end - first + TILE - 1) / TILE;
    if (shared_tiles > 0) score_tiles(group, 0, queries, group->keys + first * group->head_dim, 0, shared_tiles);

    for (size_t r = 0; r < group->rows_count; r++) {
        size_t end = larger(first, smaller(keys_of(&group->rows[r]), first + CHUNK_KEYS));
        if (end > shared_end) score_row(group, r, first, shared_end, end);
        size_t filled = larger(shared_tiles, (end - first + TILE - 1) / TILE) * TILE;
        for (size_t head = 0; filled > 0 && head < group->heads_count; head++) {
            weigh(group, r * group->heads_count + head, end - first, filled);
        }
    }

    if (shared_end > first) add_values(group, 0, queries, first, 0, shared_end - first);
    for (size_t r = 0; r < group->rows_count; r++) {
        size_t end = smaller(keys_of(&group->rows[r]), first + CHUNK_KEYS);
        if (end > shared_end) add_row_values(group, r, first, shared_end, end);
    }
}

static void group_end(const row_group *group) {
    const lv_attention *attention = group->attention;
    scratch_area *scratch = group->scratch;
    for (size_t query = 0; query < group->rows_count * group->heads_count; query++) {
        float *totals = scratch->totals[query];
        for (size_t width = TILE / 2; width > 0; width /= 2) {
            for (size_t i = 0; i < width; i++) totals[i] += totals[i + width];
        }
        size_t row = group->row_first + query / group->heads_count;
        size_t head = group->head_first + query % group->heads_count;
        float *to = attention->out + row * attention->out_stride + head * group->head_dim;
        for (size_t d = 0; d < group->head_dim; d++) to[d] = scratch->sums[query][d] / totals[0];
    }
}

/* Rows [row_first, row_end) of the batch, cut where the cache changes. */
static void run_rows(row_group *group, uint32_t kv_head, size_t row_first, size_t row_end) {
    const lv_attention *attention = group->attention;
    while (row_first < row_end) {
        const lv_kv *kv = attention->rows[row_first].kv;
        assert(kv->shape.kv_heads_count == attention->kv_heads_count && kv->shape.head_dim == attention->head_dim);
        group->keys = lv_kv_keys(kv, attention->layer, kv_head);
        group->values = lv_kv_values(kv, attention->layer, kv_head);
        group->row_first = row_first;
        group->rows_count = 0;
        for (; row_first < row_end && attention->rows[row_first].kv == kv; row_first++) {
            group->rows[group->rows_count++] = path_normalised(attention->rows[row_first]);
        }

        group_begin(group);
        for (size_t first = 0; first < group->keys_max; first += CHUNK_KEYS) group_chunk(group, first);
        group_end(group);
    }
}

/* Row blocks are innermost: threads that take tasks in turn find a head's keys and values in the cache. */
static void attention_run(const lv_attention *attention, size_t task_first, size_t tasks_count, void *scratch) {
    lv_attention_plan plan = lv_attention_plan_of(attention);
    size_t group_heads = attention->heads_count / attention->kv_heads_count;
    for (size_t task = task_first; task < task_first + tasks_count; task++) {
        size_t row_first = task % plan.row_blocks_count * plan.block_rows;
        size_t part = task / plan.row_blocks_count % plan.head_parts_count;
        uint32_t kv_head = (uint32_t)(task / plan.row_blocks_count / plan.head_parts_count);
        assert(kv_head < attention->kv_heads_count);
        row_group group = {
            .attention = attention,
            .head_first = kv_head * group_heads + part * plan.part_heads,
            .heads_count = smaller(plan.part_heads, group_heads - part * plan.part_heads),
            .head_dim = attention->head_dim,
            .scratch = scratch,
        };
        run_rows(&group, kv_head, row_first, smaller(row_first + plan.block_rows, attention->rows_count));
    }
}
