/* test_tree.c - a tree of branches in one pass gives every node the bits that its branch gives alone, and moving the
 * accepted nodes' cache rows gives the bits of plain decoding. Reaches below lever.h: trees have no public function. */
#include <stdlib.h>

#include "engine/engine_state.h"
#include "support/check.h"
#include "support/engines.h"

enum { PREFIX = 37, NODES = 11 };

/* A tree under the last token of the prefix: parent[i] is a node before i, or -1 for the prefix. */
static const int parents[NODES] = {-1, -1, 0, 0, 1, 2, 2, 5, 4, 7, 9};

typedef struct {
    lever_engine *engine;
    lever_error error;
    lv_kv kv;
    int32_t prefix[PREFIX], nodes[NODES];
    size_t vocabulary;
} fixture;

static void open_fixture(fixture *f, const char *path) {
    lever_engine_options options;
    lv_test_options(&options, path);
    f->engine = lv_test_open(&options);
    const lv_hparams *h = &f->engine->model->hparams;
    const lv_kv_shape shape = {h->layers_count, 128, h->kv_heads_count, h->head_dim};
    lever_error error;
    CHECK_OK(lv_kv_open(&f->kv, NULL, &shape, &error));
    f->vocabulary = lv_test_vocabulary(f->engine);
    lv_test_tokens(f->engine, 11, f->prefix, PREFIX);
    lv_test_tokens(f->engine, 12, f->nodes, NODES);
}

static void close_fixture(fixture *f) {
    lv_kv_close(&f->kv);
    lever_engine_close(&f->engine);
}

static void run(fixture *f, const lv_row *rows, size_t rows_count, float *logits) {
    lever_error error;
    const lv_pass pass = {.rows = rows, .rows_count = rows_count};
    uint32_t all[64];
    for (size_t i = 0; i < rows_count; i++) all[i] = (uint32_t)i;
    lv_store_set_head_wanted(f->engine->store, true);
    CHECK_OK(lv_forward_begin(f->engine->forward, &pass, &error));
    CHECK_OK(lv_forward_layers(f->engine->forward, 0, f->engine->model->hparams.layers_count, &error));
    CHECK_OK(lv_forward_logits(f->engine->forward, all, rows_count, logits, &error));
}

static void run_prefix(fixture *f) {
    lv_row rows[PREFIX];
    float *logits = calloc(PREFIX * f->vocabulary, sizeof(float));
    assert_non_null(logits);
    for (uint32_t i = 0; i < PREFIX; i++) {
        rows[i] = (lv_row){f->prefix[i], i, i, &f->kv, {.kv = &f->kv, .prefix_count = i + 1}};
    }
    run(f, rows, PREFIX, logits);
    free(logits);
}

static int depth_of(int node) {
    return parents[node] < 0 ? 0 : depth_of(parents[node]) + 1;
}

/* The nodes from the root of the tree down to `node`. */
static int path_of(int node, int *path) {
    const int depth = depth_of(node);
    for (int i = depth, n = node; i >= 0; i--, n = parents[n]) path[i] = n;
    return depth + 1;
}

/* All nodes as rows of one pass; node i lies in slot PREFIX + i. */
static void fill_rows(fixture *f, lv_row rows[NODES], uint32_t slots[NODES][NODES]) {
    for (int i = 0; i < NODES; i++) {
        int path[NODES];
        const int count = path_of(i, path);
        for (int k = 0; k < count; k++) slots[i][k] = PREFIX + (uint32_t)path[k];
        rows[i] = (lv_row){
            .token = f->nodes[i],
            .position = PREFIX + (uint32_t)depth_of(i),
            .slot = PREFIX + (uint32_t)i,
            .kv = &f->kv,
            .path = {.kv = &f->kv, .prefix_count = PREFIX, .path = slots[i], .path_count = (uint32_t)count},
        };
    }
}

static void run_tree(fixture *f, float *logits) {
    lv_row rows[NODES];
    uint32_t slots[NODES][NODES];
    fill_rows(f, rows, slots);
    run(f, rows, NODES, logits);
}

/* Only the nodes of `keep` go on after `layers_before` layers; logits[i] are those of keep[i]. */
static void run_pruned(fixture *f, uint32_t layers_before, const uint32_t *keep, size_t keep_count, float *logits) {
    lever_error error;
    lv_row rows[NODES];
    uint32_t slots[NODES][NODES], all[NODES];
    const uint32_t layers = f->engine->model->hparams.layers_count;
    lv_forward *forward = f->engine->forward;
    const lv_pass pass = {.rows = rows, .rows_count = NODES};
    fill_rows(f, rows, slots);
    for (uint32_t i = 0; i < NODES; i++) all[i] = i;
    lv_store_set_head_wanted(f->engine->store, true);
    CHECK_OK(lv_forward_begin(forward, &pass, &error));
    CHECK_OK(lv_forward_layers(forward, 0, layers_before, &error));
    lv_forward_keep_rows(forward, keep, keep_count);
    CHECK_OK(lv_forward_layers(forward, layers_before, layers - layers_before, &error));
    CHECK_OK(lv_forward_logits(forward, all, keep_count, logits, &error));
}

/* The branch that ends in `node`, one token after the other, as plain decoding does. */
static void run_branch(fixture *f, int node, float *logits) {
    int path[NODES];
    const int count = path_of(node, path);
    for (int k = 0; k < count; k++) {
        const uint32_t slot = PREFIX + (uint32_t)k;
        const lv_row row = {f->nodes[path[k]], slot, slot, &f->kv, {.kv = &f->kv, .prefix_count = slot + 1}};
        run(f, &row, 1, logits);
    }
}

static void test_branches(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        fixture f;
        open_fixture(&f, paths.path[p]);
        float *together = calloc(NODES * f.vocabulary, sizeof(float));
        float *alone = calloc(f.vocabulary, sizeof(float));
        assert_non_null(together);
        assert_non_null(alone);
        run_prefix(&f);
        run_tree(&f, together);
        for (int i = 0; i < NODES; i++) {
            run_branch(&f, i, alone);
            if (memcmp(alone, together + (size_t)i * f.vocabulary, f.vocabulary * sizeof(float)) != 0) {
                fail_msg("%s: node %d has other logits in the tree than alone", paths.path[p], i);
            }
        }
        free(alone);
        free(together);
        close_fixture(&f);
    }
}

/* Rows that go on in the middle of a pass keep their bits, wherever the others end. */
static void test_keeping_rows(void **state) {
    (void)state;
    static const struct {
        uint32_t keep[NODES];
        size_t count;
    } cases[] = {{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 11},
                 {{0}, 1},
                 {{1, 4, 8}, 3},
                 {{0, 2, 5, 7, 9, 10}, 6},
                 {{0, 1, 3, 4}, 4}};
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        fixture f;
        open_fixture(&f, paths.path[p]);
        float *wanted = calloc(NODES * f.vocabulary, sizeof(float));
        float *got = calloc(NODES * f.vocabulary, sizeof(float));
        assert_non_null(wanted);
        assert_non_null(got);
        run_prefix(&f);
        run_tree(&f, wanted);
        for (uint32_t before = 0; before <= f.engine->model->hparams.layers_count; before++) {
            for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
                run_pruned(&f, before, cases[c].keep, cases[c].count, got);
                for (size_t i = 0; i < cases[c].count; i++) {
                    const float *row = wanted + cases[c].keep[i] * f.vocabulary;
                    if (memcmp(got + i * f.vocabulary, row, f.vocabulary * sizeof(float)) == 0) continue;
                    fail_msg("%s: after %u layers, case %zu, node %u: other logits", paths.path[p], before, c,
                             cases[c].keep[i]);
                }
            }
        }
        free(got);
        free(wanted);
        close_fixture(&f);
    }
}

/* Accepts the branch down to the deepest node, moves its rows, and decodes one more token. */
static void test_commit(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        fixture f;
        open_fixture(&f, paths.path[p]);
        float *logits = calloc(NODES * f.vocabulary, sizeof(float));
        float *wanted = calloc(f.vocabulary, sizeof(float));
        assert_non_null(logits);
        assert_non_null(wanted);
        run_prefix(&f);
        int path[NODES];
        const int count = path_of(NODES - 1, path);
        const uint32_t next = PREFIX + (uint32_t)count;
        const lv_row row = {f.nodes[3], next, next, &f.kv, {.kv = &f.kv, .prefix_count = next + 1}};
        run_branch(&f, NODES - 1, wanted);
        run(&f, &row, 1, wanted);

        run_tree(&f, logits);
        uint32_t slots[NODES];
        for (int k = 0; k < count; k++) slots[k] = PREFIX + (uint32_t)path[k];
        lv_kv_commit(&f.kv, PREFIX, slots, (uint32_t)count);
        run(&f, &row, 1, logits);
        assert_memory_equal(logits, wanted, f.vocabulary * sizeof(float));
        free(wanted);
        free(logits);
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_branches), cmocka_unit_test(test_keeping_rows),
                                       cmocka_unit_test(test_commit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
