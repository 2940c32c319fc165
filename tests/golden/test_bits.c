/* test_bits.c - the logits of a position are the same bits however they come about: token by token, in chunks of any
 * size, under any share of pinned layers, ring and number of threads, packed or in place. Runs over every tiny model
 * (LEVER_TINY_DIR). */
#include <stdlib.h>
#include <unistd.h>

#include "support/check.h"
#include "support/engines.h"

enum { TOKENS_COUNT = 70 };

typedef struct {
    int32_t tokens[TOKENS_COUNT];
    float *rows; /* the reference: everything pinned, one score */
    size_t vocabulary;
} reference;

static reference make_reference(const char *path) {
    lever_engine_options options;
    lv_test_options(&options, path);
    options.target_ram_percent = 100;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    reference made = {.vocabulary = lv_test_vocabulary(engine)};
    lv_test_tokens(engine, 7, made.tokens, TOKENS_COUNT);
    made.rows = lv_test_score(engine, session, made.tokens, TOKENS_COUNT);
    lever_session_close(&session);
    lever_engine_close(&engine);
    return made;
}

static void check_row(const reference *wanted, const char *path, const char *how, size_t position,
                      const float *logits) {
    assert_non_null(logits);
    const float *row = wanted->rows + position * wanted->vocabulary;
    if (memcmp(row, logits, wanted->vocabulary * sizeof(float)) == 0) return;
    for (size_t i = 0; i < wanted->vocabulary; i++) {
        if (memcmp(&row[i], &logits[i], sizeof(float)) != 0) {
            fail_msg("%s, %s: logit %zu after position %zu is %.9g, but %.9g in the reference", path, how, i, position,
                     (double)logits[i], (double)row[i]);
        }
    }
}

/* Prompts that grow by `step` tokens: each computes a chunk of that size. */
static void check_chunks(lever_engine *engine, const reference *wanted, const char *path, const char *how,
                         size_t step) {
    lever_session *session = lv_test_session(engine);
    lever_error error;
    for (size_t count = step; count <= TOKENS_COUNT; count += step) {
        CHECK_OK(lever_session_prompt(session, wanted->tokens, count, &error));
        check_row(wanted, path, how, count - 1, lever_session_logits(session));
    }
    lever_session_close(&session);
}

static void check_score(lever_engine *engine, const reference *wanted, const char *path, const char *how) {
    lever_session *session = lv_test_session(engine);
    float *rows = lv_test_score(engine, session, wanted->tokens, TOKENS_COUNT);
    for (size_t i = 0; i < TOKENS_COUNT; i++) check_row(wanted, path, how, i, rows + i * wanted->vocabulary);
    free(rows);
    lever_session_close(&session);
}

static void test_chunk_sizes(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        reference wanted = make_reference(paths.path[p]);
        lever_engine_options options;
        lv_test_options(&options, paths.path[p]);
        lever_engine *engine = lv_test_open(&options);
        for (size_t step = 1; step <= 33; step++) {
            char how[64];
            snprintf(how, sizeof(how), "chunks of %zu", step);
            check_chunks(engine, &wanted, paths.path[p], how, step);
        }
        lever_engine_close(&engine);
        free(wanted.rows);
    }
}

static void test_budgets_and_threads(void **state) {
    (void)state;
    static const struct {
        int percent;
        uint32_t threads, lanes, ring_bytes, block_bytes;
        bool direct;
    } cases[] = {
        {0, 1, 1, 0, 64u << 10, true},  {0, 2, 2, 1, 0, true},   {0, 3, 4, 64u << 20, 96u << 10, false},
        {50, 2, 2, 0, 64u << 10, true}, {100, 1, 1, 0, 0, true},
    };
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        reference wanted = make_reference(paths.path[p]);
        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            lever_engine_options options;
            lv_test_options(&options, paths.path[p]);
            options.target_ram_percent = cases[c].percent;
            options.threads = cases[c].threads;
            options.lanes = cases[c].lanes;
            options.ring_bytes = cases[c].ring_bytes;
            options.block_bytes = cases[c].block_bytes;
            options.direct_io = cases[c].direct;
            lever_engine *engine = lv_test_open(&options);
            char how[96];
            snprintf(how, sizeof(how), "%d %% pinned, %u threads, %u lanes", cases[c].percent, cases[c].threads,
                     cases[c].lanes);
            check_score(engine, &wanted, paths.path[p], how);
            /* More threads than processors spin for long at each barrier: one pass must do. */
            if (cases[c].threads == 1) check_chunks(engine, &wanted, paths.path[p], how, 5);
            lever_engine_close(&engine);
        }
        free(wanted.rows);
    }
}

static void test_least_budget(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        reference wanted = make_reference(paths.path[p]);
        lever_engine_options options;
        lv_test_options(&options, paths.path[p]);
        lever_plan plan;
        lever_error error;
        CHECK_OK(lever_engine_plan(&options, &plan, &error));
        options.ram_unlimited = false;
        /* The process grew between the plan and the opening. */
        options.ram_bytes = plan.least_bytes + (4u << 20);
        lever_engine *engine = lv_test_open(&options);
        check_chunks(engine, &wanted, paths.path[p], "the least budget", 9);
        check_chunks(engine, &wanted, paths.path[p], "the least budget", TOKENS_COUNT);
        lever_engine_close(&engine);
        free(wanted.rows);
    }
}

static void test_packed(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        reference wanted = make_reference(paths.path[p]);
        char packed[LV_TEST_PATH_BYTES + 16];
        snprintf(packed, sizeof(packed), "%s.bits.lvr", paths.path[p]);
        lever_error error;
        CHECK_OK(lever_pack(paths.path[p], packed, NULL, &error));
        static const int percents[] = {0, 40, 100};
        for (size_t c = 0; c < 3; c++) {
            lever_engine_options options;
            lv_test_options(&options, packed);
            options.target_ram_percent = percents[c];
            lever_engine *engine = lv_test_open(&options);
            check_score(engine, &wanted, paths.path[p], "packed");
            check_chunks(engine, &wanted, paths.path[p], "packed", 3);
            lever_engine_close(&engine);
        }
        unlink(packed);
        free(wanted.rows);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk_sizes),
        cmocka_unit_test(test_budgets_and_threads),
        cmocka_unit_test(test_least_budget),
        cmocka_unit_test(test_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
