/* test_speculation_faults.c - the life of an engine with a draft, in which every request for memory and every read
 * fails once: a clear error or the same text, never a crash, a leak or other text. */
/* faults: memory file */
#include <stdlib.h>

#include "support/check.h"
#include "support/engines.h"
#include "support/fault.h"
#include "support/pairs.h"
#include "support/scratch.h"

enum { ANSWER = 20 };

static const pair_way ways[] = {
    {.level = {[PAIR_COSTS] = 1}},                                          /* a tree, nothing pinned, one thread */
    {.level = {[PAIR_STRATEGY] = 2, [PAIR_COSTS] = 1, [PAIR_THREADS] = 1}}, /* drafting ahead */
};

/* Opens, answers, closes. A status that is not LEVER_OK has a message. */
static lever_status whole_life(const pair_way *way, const char *draft, pair_answer *to, lever_error *error) {
    lever_engine_options options;
    pairs_engine_options(&options, way);
    if (draft) options.draft_path = draft;
    lever_engine *engine = NULL;
    lever_session *session = NULL;
    lever_status status = lever_engine_open(&engine, &options, error);
    if (status == LEVER_OK) status = lever_session_open(&session, engine, NULL, error);
    if (status == LEVER_OK) {
        int32_t tokens[PAIR_PROMPT];
        lever_generate_options generate_options;
        pairs_generate_options(&generate_options, way, ANSWER);
        pairs_prompt(engine, 0, tokens);
        status = lever_session_prompt(session, tokens, PAIR_PROMPT, error);
        if (status == LEVER_OK) status = pairs_generate(session, &generate_options, to, error);
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
    if (status != LEVER_OK) {
        assert_int_equal(error->status, status);
        assert_true(strlen(error->message) > 10);
    }
    return status;
}

static void make_wanted(const pair_way *way, pair_answer *to) {
    lever_error error;
    CHECK_OK(whole_life(way, NULL, to, &error));
    assert_int_equal(to->count, ANSWER);
    assert_true(to->statistics.nodes_accepted > 0);
    CHECK_NOTHING_LEFT();
}

static void check_beginning(const pair_answer *got, const pair_answer *wanted) {
    assert_true(got->count <= wanted->count);
    assert_memory_equal(got->ids, wanted->ids, got->count * sizeof(got->ids[0]));
}

static void test_every_allocation_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        pair_answer wanted = {0};
        make_wanted(&ways[i], &wanted);
        uint64_t refused = 0;
        for (uint64_t nth = 1;; nth++) {
            pair_answer got = {0};
            lever_error error;
            fault_memory_set(nth, 1);
            const lever_status status = whole_life(&ways[i], NULL, &got, &error);
            const uint64_t calls = fault_memory_calls();
            fault_memory_set(0, 0);
            CHECK_NOTHING_LEFT();
            check_beginning(&got, &wanted);
            if (status != LEVER_OK && status != LEVER_E_MEMORY) fail_msg("request %d: %s", (int)nth, error.message);
            if (status == LEVER_OK) pairs_check_same(&got, &wanted, "after a failed request");
            refused += status != LEVER_OK;
            if (calls < nth) break;
        }
        assert_true(refused > 20);
    }
}

static void test_every_read_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        pair_answer wanted = {0};
        make_wanted(&ways[i], &wanted);
        uint64_t failed = 0;
        for (uint64_t nth = 1;; nth += 2) {
            pair_answer got = {0};
            lever_error error;
            fault_read_set(FAULT_EIO, nth, 1);
            const lever_status status = whole_life(&ways[i], NULL, &got, &error);
            const uint64_t calls = fault_read_calls();
            fault_read_set(FAULT_EIO, 0, 0);
            CHECK_NOTHING_LEFT();
            check_beginning(&got, &wanted);
            if (status != LEVER_OK && status != LEVER_E_IO && status != LEVER_E_FORMAT)
                fail_msg("read %d: %s", (int)nth, error.message);
            if (status == LEVER_OK) pairs_check_same(&got, &wanted, "after a failed read");
            failed += status != LEVER_OK;
            if (calls < nth) break;
        }
        assert_true(failed > 5);
    }
}

/* A draft that ends too early is refused, wherever it was cut, and named as the draft. */
static void test_cut_draft(void **state) {
    (void)state;
    FILE *file = fopen(PAIR_DRAFT, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(bytes), path[512];
    assert_non_null(data);
    assert_int_equal(fread(data, 1, bytes, file), bytes);
    fclose(file);
    for (size_t i = 0; i < 24; i++) {
        pair_answer got = {0};
        lever_error error;
        scratch_write("cut.gguf", data, i < 23 ? bytes * i / 23 : bytes - 1, path, sizeof(path));
        CHECK_FAILS(whole_life(&ways[0], path, &got, &error), LEVER_E_FORMAT, "the draft model: ");
        CHECK_NOTHING_LEFT();
        assert_int_equal(got.count, 0);
    }
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_every_read_fails),
        cmocka_unit_test(test_cut_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
