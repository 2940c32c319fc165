/* test_attention.c - attention over paths: right against double precision, and the same bits however it is computed.
 *
 * All tests run for every instruction set of this processor. Where the random content matters, a failure names the
 * seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "compute/attention.h"

typedef struct {
    uint32_t heads_count, kv_heads_count, head_dim;
} shape;

static const shape shapes[] = {
    {12, 2, 128}, {14, 2, 64}, {32, 8, 128}, {9, 3, 64}, {4, 4, 80}, {6, 2, 72}, {28, 1, 16}, {2, 1, 8}, {5, 1, 256},
};
#define SHAPES_COUNT (sizeof shapes / sizeof *shapes)

enum { LAYER = 1, LAYERS_COUNT = 2 };

/* --- Content -------------------------------------------------------------------------------------------------------*/

static uint64_t seed_now;

static uint32_t draw(void) { /* a 64-bit linear congruential generator, high bits */
    seed_now = seed_now * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed_now >> 33);
}

static float draw_float(float range) {
    return range * ((float)(draw() % 20001) / 10000.0f - 1.0f);
}

/* Keys and values of a text, as a model would give them: [token][kv_head * head_dim]. */
typedef struct {
    shape shape;
    size_t row_floats;
    float *keys, *values, *queries; /* queries have heads_count * head_dim floats a row */
} text;

static size_t query_floats(const shape *s) {
    return (size_t)s->heads_count * s->head_dim;
}

static text text_open(shape s, size_t tokens_count, uint64_t seed) {
    seed_now = seed;
    text t = {.shape = s, .row_floats = (size_t)s.kv_heads_count * s.head_dim};
    t.keys = malloc(tokens_count * t.row_floats * sizeof(float));
    t.values = malloc(tokens_count * t.row_floats * sizeof(float));
    t.queries = malloc(tokens_count * query_floats(&s) * sizeof(float));
    assert_true(t.keys && t.values && t.queries);
    for (size_t i = 0; i < tokens_count * t.row_floats; i++) {
        t.keys[i] = draw_float(2);
        t.values[i] = draw_float(1);
    }
    for (size_t i = 0; i < tokens_count * query_floats(&s); i++) t.queries[i] = draw_float(2);
    return t;
}

static void text_close(text *t) {
    free(t->keys);
    free(t->values);
    free(t->queries);
}

static void kv_open(lv_kv *kv, const shape *s, size_t slots_count) {
    lv_kv_shape kv_shape = {LAYERS_COUNT, (uint32_t)slots_count, s->kv_heads_count, s->head_dim};
    assert_int_equal(lv_kv_open(kv, NULL, &kv_shape, NULL), LEVER_OK);
    /* What nobody may look at: the largest numbers that there are. */
    size_t row_floats = (size_t)s->kv_heads_count * s->head_dim;
    float *rubbish = malloc(row_floats * sizeof(float));
    assert_non_null(rubbish);
    for (size_t i = 0; i < row_floats; i++) rubbish[i] = i % 2 ? INFINITY : -INFINITY;
    for (uint32_t slot = 0; slot < lv_kv_slots_count(kv); slot++) lv_kv_store(kv, LAYER, slot, rubbish, rubbish);
    free(rubbish);
}

static void store(lv_kv *kv, size_t slot, const text *t, size_t token) {
    lv_kv_store(kv, LAYER, (uint32_t)slot, t->keys + token * t->row_floats, t->values + token * t->row_floats);
}

/* --- Computing -----------------------------------------------------------------------------------------------------*/

static void *scratch_open(void) {
    void *scratch = aligned_alloc(64, lv_attention_scratch_bytes());
    assert_non_null(scratch);
    memset(scratch, 0xff, lv_attention_scratch_bytes()); /* not a number, wherever it is used unwritten */
    return scratch;
}

static lv_attention attention_of(const shape *s, const float *q, float *out, const lv_path *rows, size_t rows_count) {
    return (lv_attention){.layer = LAYER,
                          .heads_count = s->heads_count,
                          .kv_heads_count = s->kv_heads_count,
                          .head_dim = s->head_dim,
                          .scale = 1 / sqrtf((float)s->head_dim),
                          .q = q,
                          .q_stride = query_floats(s),
                          .out = out,
                          .out_stride = query_floats(s),
                          .rows = rows,
                          .rows_count = rows_count};
}

static void compute(const lv_attention_isa *isa, const shape *s, const float *q, float *out, const lv_path *rows,
                    size_t rows_count) {
    lv_attention attention = attention_of(s, q, out, rows, rows_count);
    void *scratch = scratch_open();
    lv_attention_run(isa, &attention, 0, lv_attention_tasks_count(&attention), scratch);
    free(scratch);
}

static double double_from_half(uint16_t half) {
    double size = half >> 10 & 31 ? ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25) : ldexp(half & 1023, -24);
    return half & 0x8000 ? -size : size;
}

/* The same in double precision, for one row. */
static void reference(const shape *s, const float *q, double *out, const lv_path *row) {
    size_t keys_count = row->prefix_count + row->path_count;
    double *weights = malloc(keys_count * sizeof(double));
    assert_non_null(weights);
    for (uint32_t head = 0; head < s->heads_count; head++) {
        const uint16_t *keys = lv_kv_keys(row->kv, LAYER, head / (s->heads_count / s->kv_heads_count));
        const uint16_t *values = lv_kv_values(row->kv, LAYER, head / (s->heads_count / s->kv_heads_count));
        double maximum = -HUGE_VAL, total = 0;
        for (size_t key = 0; key < keys_count; key++) {
            size_t slot = key < row->prefix_count ? key : row->path[key - row->prefix_count];
            double score = 0;
            for (size_t d = 0; d < s->head_dim; d++) {
                double factor = double_from_half(keys[(slot / 16 * s->head_dim + d) * 16 + slot % 16]);
                score += (double)q[head * s->head_dim + d] * factor;
            }
            weights[key] = score / sqrt(s->head_dim);
            if (weights[key] > maximum) maximum = weights[key];
        }
        for (size_t d = 0; d < s->head_dim; d++) out[head * s->head_dim + d] = 0;
        for (size_t key = 0; key < keys_count; key++) {
            size_t slot = key < row->prefix_count ? key : row->path[key - row->prefix_count];
            double weight = exp(weights[key] - maximum);
            total += weight;
            for (size_t d = 0; d < s->head_dim; d++) {
                out[head * s->head_dim + d] += weight * double_from_half(values[slot * s->head_dim + d]);
            }
        }
        for (size_t d = 0; d < s->head_dim; d++) out[head * s->head_dim + d] /= total;
    }
    free(weights);
}

static void check_bits(const float *got, const float *wanted, size_t count, const char *what, size_t where) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &wanted[i], sizeof(float)) != 0) {
            fail_msg("%s %zu, element %zu: %a, not %a", what, where, i, (double)got[i], (double)wanted[i]);
        }
    }
}

/* Every token of the text alone, each with all tokens up to it, stored in order: plain decoding. */
static float *decode_plainly(const lv_attention_isa *isa, const text *t, const lv_kv *kv, size_t tokens_count) {
    float *out = malloc(tokens_count * query_floats(&t->shape) * sizeof(float));
    assert_non_null(out);
    for (size_t token = 0; token < tokens_count; token++) {
        lv_path row = {.kv = kv, .prefix_count = (uint32_t)token + 1};
        size_t at = token * query_floats(&t->shape);
        compute(isa, &t->shape, t->queries + at, out + at, &row, 1);
    }
    return out;
}

#define FOR_EACH_ISA(isa)                                                           \
    for (size_t isa_index = 0; lv_attention_isa_at(isa_index) != NULL; isa_index++) \
        for (const lv_attention_isa *isa = lv_attention_isa_at(isa_index); isa != NULL; isa = NULL)

/* The portable one takes its time on processors where it is not the only one. */
static bool is_slow(size_t isa_index) {
    return isa_index > 0 && lv_attention_isa_at(isa_index + 1) == NULL;
}

/* --- Tests ---------------------------------------------------------------------------------------------------------*/

static void equals_the_reference(void **state) {
    (void)state;
    const size_t counts[] = {1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1500, 4096};
    for (size_t i = 0; i < SHAPES_COUNT; i++) {
        const shape *s = &shapes[i];
        text t = text_open(*s, 4096, 1 + i);
        lv_kv kv;
        kv_open(&kv, s, 4096);
        for (size_t token = 0; token < 4096; token++) store(&kv, token, &t, token);
        float *out = malloc(query_floats(s) * sizeof(float));
        float *first = malloc(query_floats(s) * sizeof(float));
        double *wanted = malloc(query_floats(s) * sizeof(double));
        assert_true(out && first && wanted);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            lv_path row = {.kv = &kv, .prefix_count = (uint32_t)counts[c]};
            reference(s, t.queries, wanted, &row);
            FOR_EACH_ISA(isa) {
                if (is_slow(isa_index) && i > 1 && counts[c] > 17) continue;
                compute(isa, s, t.queries, out, &row, 1);
                for (size_t e = 0; e < query_floats(s); e++) {
                    if (!(fabs((double)out[e] - wanted[e]) < 2e-6)) {
                        fail_msg("%s, shape %zu, %zu keys, element %zu: %g, not %g", lv_attention_isa_name(isa), i,
                                 counts[c], e, (double)out[e], wanted[e]);
                    }
                }
                if (isa_index == 0) memcpy(first, out, query_floats(s) * sizeof(float));
                check_bits(out, first, query_floats(s), "instruction set", isa_index);
            }
        }
        free(wanted);
        free(first);
        free(out);
        lv_kv_close(&kv);
        text_close(&t);
    }
}

/* Rows alone and in batches of 1 to 33, at places where chunks and tiles begin and end: the chunks of a prompt. */
static void batches_change_nothing(void **state) {
    (void)state;
    enum { TOKENS = 290 };
    for (size_t i = 0; i < SHAPES_COUNT; i++) {
        const shape *s = &shapes[i];
        text t = text_open(*s, TOKENS, 100 + i);
        lv_kv kv;
        kv_open(&kv, s, TOKENS);
        for (size_t token = 0; token < TOKENS; token++) store(&kv, token, &t, token);
        lv_path rows[TOKENS];
        for (size_t token = 0; token < TOKENS; token++) {
            rows[token] = (lv_path){.kv = &kv, .prefix_count = (uint32_t)token + 1};
        }
        float *out = malloc(TOKENS * query_floats(s) * sizeof(float));
        assert_non_null(out);
        FOR_EACH_ISA(isa) {
            if (is_slow(isa_index) && i != 5) continue;
            float *alone = decode_plainly(isa, &t, &kv, TOKENS);
            const size_t batches[] = {2, 3, 4, 5, 7, 8, 16, 31, 32, 33, TOKENS};
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                memset(out, 0xff, TOKENS * query_floats(s) * sizeof(float));
                for (size_t first = 0; first < TOKENS; first += batches[b]) {
                    size_t count = first + batches[b] < TOKENS ? batches[b] : TOKENS - first;
                    size_t at = first * query_floats(s);
                    compute(isa, s, t.queries + at, out + at, rows + first, count);
                }
                check_bits(out, alone, TOKENS * query_floats(s), "batch of", batches[b]);
            }
            free(alone);
        }
        free(out);
        lv_kv_close(&kv);
        text_close(&t);
    }
}

/* The same keys as prefix, and as listed slots in any order of storage behind a prefix of any length. */
static void storage_changes_nothing(void **state) {
    (void)state;
    enum { TOKENS = 300 };
    for (size_t i = 0; i < SHAPES_COUNT; i++) {
        const shape *s = &shapes[i];
        text t = text_open(*s, TOKENS, 200 + i);
        lv_kv straight, mixed;
        kv_open(&straight, s, TOKENS);
        for (size_t token = 0; token < TOKENS; token++) store(&straight, token, &t, token);
        float *wanted = malloc(query_floats(s) * sizeof(float));
        float *out = malloc(query_floats(s) * sizeof(float));
        assert_true(wanted && out);
        const size_t prefixes[] = {0, 1, 15, 16, 17, 100, 255, 256, 257, 283, 299};
        for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
            kv_open(&mixed, s, TOKENS + 50);
            uint32_t slots[TOKENS];
            for (uint32_t token = 0; token < TOKENS; token++) slots[token] = token + (token < prefixes[p] ? 0 : 50);
            for (size_t token = TOKENS - 1; token > prefixes[p]; token--) { /* runs stay among what is shuffled */
                size_t other = prefixes[p] + draw() % (token - prefixes[p] + 1);
                if (draw() % 3 != 0) continue;
                uint32_t slot = slots[token];
                slots[token] = slots[other];
                slots[other] = slot;
            }
            for (size_t token = 0; token < TOKENS; token++) store(&mixed, slots[token], &t, token);
            for (size_t keys = prefixes[p] + 1; keys <= TOKENS; keys += 37) {
                lv_path plain = {.kv = &straight, .prefix_count = (uint32_t)keys};
                lv_path listed = {.kv = &mixed,
                                  .prefix_count = (uint32_t)prefixes[p],
                                  .path_count = (uint32_t)(keys - prefixes[p]),
                                  .path = slots + prefixes[p]};
                FOR_EACH_ISA(isa) {
                    if (is_slow(isa_index) && i != 3) continue;
                    compute(isa, s, t.queries, wanted, &plain, 1);
                    compute(isa, s, t.queries, out, &listed, 1);
                    check_bits(out, wanted, query_floats(s), "prefix of", prefixes[p]);
                }
            }
            lv_kv_close(&mixed);
        }
        free(out);
        free(wanted);
        lv_kv_close(&straight);
        text_close(&t);
    }
}

enum { TREE_NODES = 33, TREE_PREFIX_MAX = 400, TREE_PATH = 1 + TREE_NODES };

/* A tree behind a prefix, its nodes in any slots behind that; every second tree keeps its root in the prefix. */
typedef struct {
    lv_path rows[TREE_NODES];
    uint32_t paths[TREE_NODES][TREE_PATH];
    uint32_t tokens[TREE_NODES][TREE_PATH]; /* the text's tokens of each path, which say what is stored */
} token_tree;

static void tree_grow(token_tree *tree, const lv_kv *kv, uint32_t prefix_count, uint32_t nodes_count, bool chain) {
    uint32_t slots[TREE_NODES];
    for (uint32_t n = 0; n < nodes_count; n++) slots[n] = prefix_count + n;
    for (uint32_t n = nodes_count - 1; n > 0 && !chain; n--) {
        uint32_t other = draw() % (n + 1);
        uint32_t slot = slots[n];
        slots[n] = slots[other];
        slots[other] = slot;
    }
    for (uint32_t n = 0; n < nodes_count; n++) {
        uint32_t count = 0;
        if (n > 0) {
            uint32_t parent = chain || draw() % 2 ? n - 1 : draw() % n;
            count = tree->rows[parent].path_count;
            memcpy(tree->paths[n], tree->paths[parent], count * sizeof(uint32_t));
            memcpy(tree->tokens[n], tree->tokens[parent], count * sizeof(uint32_t));
        }
        tree->paths[n][count] = slots[n];
        tree->tokens[n][count] = prefix_count + n;
        tree->rows[n] = (lv_path){kv, prefix_count, count + 1, tree->paths[n]};
    }
}

/* Every node of a random tree, computed with the others, has the bits of plain decoding of its own path. */
static void trees_equal_plain_decoding(void **state) {
    (void)state;
    for (size_t round = 0; round < 40; round++) {
        const shape *s = &shapes[round % SHAPES_COUNT];
        text t = text_open(*s, TREE_PREFIX_MAX + TREE_NODES, 300 + round);
        uint32_t prefix_count = draw() % TREE_PREFIX_MAX;
        uint32_t nodes_count = 1 + draw() % TREE_NODES;
        lv_kv kv, plain_kv;
        kv_open(&kv, s, prefix_count + nodes_count);
        kv_open(&plain_kv, s, prefix_count + nodes_count);
        static token_tree tree;
        tree_grow(&tree, &kv, prefix_count, nodes_count, round % 5 == 4);
        for (size_t token = 0; token < prefix_count; token++) store(&kv, token, &t, token);
        for (size_t token = 0; token < prefix_count; token++) store(&plain_kv, token, &t, token);
        for (uint32_t n = 0; n < nodes_count; n++) {
            store(&kv, tree.paths[n][tree.rows[n].path_count - 1], &t, prefix_count + n);
        }
        float *out = malloc(nodes_count * query_floats(s) * sizeof(float));
        float *wanted = malloc(query_floats(s) * sizeof(float));
        assert_true(out && wanted);
        FOR_EACH_ISA(isa) {
            if (is_slow(isa_index) && round > 8) continue;
            compute(isa, s, t.queries, out, tree.rows, nodes_count);
            for (uint32_t n = 0; n < nodes_count; n++) {
                uint32_t depth = tree.rows[n].path_count;
                for (uint32_t i = 0; i < depth; i++) store(&plain_kv, prefix_count + i, &t, tree.tokens[n][i]);
                lv_path plain = {.kv = &plain_kv, .prefix_count = prefix_count + depth};
                compute(isa, s, t.queries + n * query_floats(s), wanted, &plain, 1);
                check_bits(out + n * query_floats(s), wanted, query_floats(s), "tree (seed 300 + round)", round);
            }
        }
        free(wanted);
        free(out);
        lv_kv_close(&plain_kv);
        lv_kv_close(&kv);
        text_close(&t);
    }
}

/* After the accepted nodes were committed, decoding goes on as if it had never been otherwise. */
static void commit_equals_plain_decoding(void **state) {
    (void)state;
    const shape *s = &shapes[0];
    text t = text_open(*s, 64, 400);
    lv_kv plain, kv;
    kv_open(&plain, s, 64);
    kv_open(&kv, s, 64);
    for (size_t token = 0; token < 50; token++) store(&plain, token, &t, token);
    for (size_t token = 0; token < 45; token++) store(&kv, token, &t, token);
    const uint32_t accepted[] = {46, 47, 50, 51, 60};
    for (size_t i = 0; i < 5; i++) store(&kv, accepted[i], &t, 45 + i);
    lv_kv_commit(&kv, 45, accepted, 5);
    float *out = malloc(2 * query_floats(s) * sizeof(float));
    assert_non_null(out);
    FOR_EACH_ISA(isa) {
        compute(isa, s, t.queries, out, &(lv_path){.kv = &plain, .prefix_count = 50}, 1);
        compute(isa, s, t.queries, out + query_floats(s), &(lv_path){.kv = &kv, .prefix_count = 50}, 1);
        check_bits(out + query_floats(s), out, query_floats(s), "committed", 50);
    }
    free(out);
    lv_kv_close(&kv);
    lv_kv_close(&plain);
    text_close(&t);
}

/* Rows of two sessions, of very different lengths, in turn and in runs; and rows that mix all kinds of path. */
static void sessions_do_not_touch_each_other(void **state) {
    (void)state;
    enum { ROWS = 24, SLOTS = 600 };
    const shape *s = &shapes[0];
    text t = text_open(*s, SLOTS, 500);
    text u = text_open(*s, SLOTS, 501);
    lv_kv a, b;
    kv_open(&a, s, SLOTS);
    kv_open(&b, s, SLOTS);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        store(&a, slot, &t, slot);
        store(&b, slot, &u, slot);
    }
    lv_path rows[ROWS];
    uint32_t paths[ROWS][40];
    for (size_t r = 0; r < ROWS; r++) {
        rows[r] =
            (lv_path){.kv = (r < 10 ? r % 2 : r / 5 % 2) ? &a : &b, .prefix_count = draw() % 550, .path = paths[r]};
        rows[r].path_count = r % 3 == 0 && rows[r].prefix_count > 0 ? 0 : 1 + draw() % 40;
        for (size_t i = 0; i < rows[r].path_count; i++) paths[r][i] = draw() % SLOTS;
    }
    float *out = malloc(ROWS * query_floats(s) * sizeof(float));
    float *wanted = malloc(query_floats(s) * sizeof(float));
    assert_true(out && wanted);
    FOR_EACH_ISA(isa) {
        compute(isa, s, t.queries, out, rows, ROWS);
        for (size_t r = 0; r < ROWS; r++) {
            compute(isa, s, t.queries + r * query_floats(s), wanted, &rows[r], 1);
            check_bits(out + r * query_floats(s), wanted, query_floats(s), "row", r);
        }
    }
    free(wanted);
    free(out);
    lv_kv_close(&b);
    lv_kv_close(&a);
    text_close(&u);
    text_close(&t);
}

typedef struct {
    lv_thread thread;
    const lv_attention *attention;
    size_t ith, nth;
} worker;

static void *work(void *user) {
    worker *w = user;
    void *scratch = aligned_alloc(64, lv_attention_scratch_bytes());
    if (!scratch) return NULL;
    for (size_t task = lv_attention_tasks_count(w->attention); task-- > 0;) { /* backwards: order is free */
        if (task % w->nth == w->ith) lv_attention_run(lv_attention_isa_best(), w->attention, task, 1, scratch);
    }
    free(scratch);
    return NULL;
}

static void cutting_changes_nothing(void **state) {
    (void)state;
    enum { ROWS = 21, PREFIX = 333 };
    for (size_t i = 0; i < SHAPES_COUNT; i++) {
        const shape *s = &shapes[i];
        text t = text_open(*s, PREFIX + ROWS, 600 + i);
        lv_kv kv;
        kv_open(&kv, s, PREFIX + ROWS);
        for (size_t token = 0; token < PREFIX + ROWS; token++) store(&kv, token, &t, token);
        lv_path rows[ROWS];
        for (size_t r = 0; r < ROWS; r++) rows[r] = (lv_path){.kv = &kv, .prefix_count = (uint32_t)(PREFIX + r + 1)};
        float *wanted = malloc(ROWS * query_floats(s) * sizeof(float));
        float *out = malloc(ROWS * query_floats(s) * sizeof(float));
        assert_true(wanted && out);
        const size_t rows_counts[] = {1, 2, 5, ROWS};
        for (size_t c = 0; c < 4; c++) {
            compute(lv_attention_isa_best(), s, t.queries, wanted, rows, rows_counts[c]);
            for (uint32_t threads = 1; threads <= 8; threads++) {
                lv_attention attention = attention_of(s, t.queries, out, rows, rows_counts[c]);
                attention.tasks_wanted = threads;
                memset(out, 0xff, ROWS * query_floats(s) * sizeof(float));
                worker workers[8];
                for (uint32_t w = 0; w < threads; w++) {
                    workers[w] = (worker){.attention = &attention, .ith = w, .nth = threads};
                    assert_int_equal(lv_thread_start(&workers[w].thread, NULL, work, &workers[w], "attention", NULL),
                                     LEVER_OK);
                }
                for (uint32_t w = 0; w < threads; w++) lv_thread_join(&workers[w].thread);
                check_bits(out, wanted, rows_counts[c] * query_floats(s), "threads:", threads);
            }
        }
        free(out);
        free(wanted);
        lv_kv_close(&kv);
        text_close(&t);
    }
}

static void tasks_serve_all_threads(void **state) {
    (void)state;
    const struct {
        shape shape;
        uint32_t rows_count, threads;
        size_t tasks_count;
    } cases[] = {
        {{12, 2, 128}, 1, 1, 2},     {{12, 2, 128}, 1, 2, 2}, {{12, 2, 128}, 1, 4, 4},
        {{12, 2, 128}, 16, 2, 8},    {{14, 2, 64}, 1, 2, 2},  {{9, 3, 64}, 1, 2, 3},
        {{12, 2, 128}, 512, 4, 256}, {{28, 1, 16}, 3, 1, 6},  {{12, 2, 128}, 0, 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lv_attention attention = attention_of(&cases[i].shape, NULL, NULL, NULL, cases[i].rows_count);
        attention.tasks_wanted = cases[i].threads;
        assert_int_equal(lv_attention_tasks_count(&attention), cases[i].tasks_count);
    }
}

/* Neither huge keys and queries, nor what is not a number, nor a single overwhelming score give anything but finite
 * numbers; an overwhelming score gives its own value. */
static void large_numbers_stay_finite(void **state) {
    (void)state;
    enum { TOKENS = 40 };
    const shape *s = &shapes[1];
    text t = text_open(*s, TOKENS, 700);
    lv_kv kv;
    kv_open(&kv, s, TOKENS);
    for (size_t i = 0; i < TOKENS * t.row_floats; i++) t.keys[i] *= i % 3 ? 1e9f : 3e4f;
    for (size_t token = 0; token < TOKENS; token++) store(&kv, token, &t, token);
    float *out = malloc(query_floats(s) * sizeof(float));
    assert_non_null(out);
    const float factors[] = {1e3f, 1e20f, 3e37f, INFINITY, NAN};
    FOR_EACH_ISA(isa) {
        for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
            for (size_t i = 0; i < query_floats(s); i++) t.queries[i] = factors[f] * (i % 2 ? 1.0f : -1.0f);
            compute(isa, s, t.queries, out, &(lv_path){.kv = &kv, .prefix_count = TOKENS}, 1);
            for (size_t i = 0; i < query_floats(s); i++) assert_true(fabsf(out[i]) <= 1.0f);
        }
    }

    for (size_t i = 0; i < t.row_floats; i++) t.keys[7 * t.row_floats + i] = 1e3f;
    store(&kv, 7, &t, 7);
    for (size_t token = 0; token < TOKENS; token++) {
        if (token == 7) continue;
        for (size_t i = 0; i < t.row_floats; i++) t.keys[token * t.row_floats + i] = -1e3f;
        store(&kv, token, &t, token);
    }
    for (size_t i = 0; i < query_floats(s); i++) t.queries[i] = 10;
    FOR_EACH_ISA(isa) {
        compute(isa, s, t.queries, out, &(lv_path){.kv = &kv, .prefix_count = TOKENS}, 1);
        for (size_t i = 0; i < query_floats(s); i++) {
            size_t kv_head = i / s->head_dim / (s->heads_count / s->kv_heads_count);
            double wanted =
                double_from_half(lv_kv_values(&kv, LAYER, (uint32_t)kv_head)[7 * s->head_dim + i % s->head_dim]);
            assert_true((double)out[i] == wanted);
        }
    }
    free(out);
    lv_kv_close(&kv);
    text_close(&t);
}

/* Surplus weights of a neighbouring row are zero, and zero times something is added to a sum of -0 if there is one: it
 * would become +0, alone it would stay. Here a maximum rises so much that all sums before it become zero. */
static void no_sum_is_minus_zero(void **state) {
    (void)state;
    const shape s = {1, 1, 16};
    lv_kv kv;
    kv_open(&kv, &s, 258);
    float key[16] = {0}, value[16];
    for (uint32_t slot = 0; slot < 258; slot++) {
        key[0] = slot < 256 ? -100 : slot == 256 ? 100 : -100;
        for (int d = 0; d < 16; d++) value[d] = slot < 256 ? -1.0f : slot == 256 ? -0.0f : 1.0f;
        lv_kv_store(&kv, LAYER, slot, key, value);
    }
    const float q[32] = {[0] = 10, [16] = 10};
    const lv_path rows[] = {{.kv = &kv, .prefix_count = 257}, {.kv = &kv, .prefix_count = 258}};
    float alone[16], together[32];
    FOR_EACH_ISA(isa) {
        compute(isa, &s, q, alone, rows, 1);
        compute(isa, &s, q, together, rows, 2);
        check_bits(together, alone, 16, "minus zero: row", 0);
    }
    lv_kv_close(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),         cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(storage_changes_nothing),      cmocka_unit_test(trees_equal_plain_decoding),
        cmocka_unit_test(commit_equals_plain_decoding), cmocka_unit_test(sessions_do_not_touch_each_other),
        cmocka_unit_test(cutting_changes_nothing),      cmocka_unit_test(tasks_serve_all_threads),
        cmocka_unit_test(large_numbers_stay_finite),    cmocka_unit_test(no_sum_is_minus_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
