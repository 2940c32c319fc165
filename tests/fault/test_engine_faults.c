/* test_engine_faults.c - every request for memory and every read of an engine's life fails once: the result is a clear
 * error or the same text, never a crash, a leak or other text. */
/* faults: memory file */
#include <stdlib.h>

#include "support/check.h"
#include "support/engines.h"
#include "support/fault.h"

enum { PROMPT = 20, ANSWER = 6 };

static const char model_path[] = LEVER_TINY_DIR "/qwen2-q4_k_m.gguf";

typedef struct {
    int32_t ids[ANSWER];
    size_t count;
} answer;

static bool take(void *user, int32_t token, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    answer *to = user;
    if (token >= 0) {
        assert_true(to->count < ANSWER);
        to->ids[to->count++] = token;
    }
    return true;
}

static lever_status prompt_and_generate(lever_session *session, const int32_t *tokens, answer *to, lever_error *error) {
    lever_generate_options options;
    lever_generate_options_init(&options);
    options.tokens_max = ANSWER;
    options.temperature = 0;
    options.ignore_end = true;
    lever_status status = lever_session_rewind(session, 0, error);
    if (status == LEVER_OK) status = lever_session_prompt(session, tokens, PROMPT, error);
    if (status == LEVER_OK) status = lever_session_generate(session, &options, take, to, NULL, error);
    return status;
}

/* Opens, answers, closes. A status that is not LEVER_OK has a message. */
static lever_status whole_life(answer *to, lever_error *error) {
    lever_engine_options options;
    lv_test_options(&options, model_path);
    options.target_ram_percent = 50;
    options.lanes = 2;
    lever_engine *engine = NULL;
    lever_session *session = NULL;
    int32_t tokens[PROMPT];
    lever_status status = lever_engine_open(&engine, &options, error);
    if (status == LEVER_OK) status = lever_session_open(&session, engine, NULL, error);
    if (status == LEVER_OK) {
        lv_test_tokens(engine, 9, tokens, PROMPT);
        status = prompt_and_generate(session, tokens, to, error);
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
    if (status != LEVER_OK) {
        assert_int_equal(error->status, status);
        assert_true(strlen(error->message) > 10);
    }
    return status;
}

static answer wanted_answer(void) {
    answer to = {0};
    lever_error error;
    CHECK_OK(whole_life(&to, &error));
    assert_int_equal(to.count, ANSWER);
    CHECK_NOTHING_LEFT();
    return to;
}

static void test_every_allocation_fails(void **state) {
    (void)state;
    const answer wanted = wanted_answer();
    uint64_t refused = 0;
    for (uint64_t nth = 1;; nth++) {
        answer to = {0};
        lever_error error;
        fault_memory_set(nth, 1);
        const lever_status status = whole_life(&to, &error);
        const uint64_t calls = fault_memory_calls();
        fault_memory_set(0, 0);
        CHECK_NOTHING_LEFT();
        if (status == LEVER_OK) {
            assert_int_equal(to.count, ANSWER);
            assert_memory_equal(to.ids, wanted.ids, sizeof(to.ids));
        } else {
            if (status != LEVER_E_MEMORY) fail_msg("request %d: %s", (int)nth, error.message);
            refused++;
        }
        if (calls < nth) break;
    }
    assert_true(refused > 10);
}

static void check_every_read(fault_kind kind, uint64_t count, uint64_t step, bool must_heal) {
    const answer wanted = wanted_answer();
    uint64_t failed = 0;
    for (uint64_t nth = 1;; nth += step) {
        answer to = {0};
        lever_error error;
        fault_read_set(kind, nth, count);
        const lever_status status = whole_life(&to, &error);
        const uint64_t calls = fault_read_calls();
        fault_read_set(kind, 0, 0);
        CHECK_NOTHING_LEFT();
        if (status == LEVER_OK) {
            assert_int_equal(to.count, ANSWER);
            assert_memory_equal(to.ids, wanted.ids, sizeof(to.ids));
        } else {
            if (must_heal) fail_msg("read %d: %s", (int)nth, error.message);
            if (status != LEVER_E_IO && status != LEVER_E_FORMAT) fail_msg("read %d: %s", (int)nth, error.message);
            failed++;
        }
        if (calls < nth) break;
    }
    if (!must_heal) assert_true(failed > 0);
}

static void test_every_read_fails(void **state) {
    (void)state;
    check_every_read(FAULT_EIO, 1, 1, false);
    check_every_read(FAULT_EIO, FAULT_FOR_GOOD, 7, false);
    check_every_read(FAULT_END, 1, 3, false);
}

static void test_every_read_is_cut(void **state) {
    (void)state;
    check_every_read(FAULT_SHORT, 1, 1, true);
    check_every_read(FAULT_SHORT, FAULT_FOR_GOOD, 11, true);
    check_every_read(FAULT_SHORT_ODD, 1, 3, true);
    check_every_read(FAULT_EINTR, 1, 1, true);
    check_every_read(FAULT_EINVAL_DIRECT, 1, 1, true);
    check_every_read(FAULT_EINVAL_DIRECT, FAULT_FOR_GOOD, 9, true);
}

/* A read that fails while decoding leaves a session that gives the right text afterwards. */
static void test_session_goes_on(void **state) {
    (void)state;
    const answer wanted = wanted_answer();
    lever_engine_options options;
    lv_test_options(&options, model_path);
    options.target_ram_percent = 0;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 9, tokens, PROMPT);
    unsigned failures = 0;
    for (uint64_t nth = 1; nth < 120; nth += 5) {
        answer to = {0};
        lever_error error;
        fault_read_set(FAULT_EIO, nth, 1);
        const lever_status status = prompt_and_generate(session, tokens, &to, &error);
        fault_read_set(FAULT_EIO, 0, 0);
        if (status != LEVER_OK) {
            assert_int_equal(status, LEVER_E_IO);
            assert_memory_equal(to.ids, wanted.ids, to.count * sizeof(int32_t));
            failures++;
            answer again = {0};
            CHECK_OK(prompt_and_generate(session, tokens, &again, &error));
            assert_memory_equal(again.ids, wanted.ids, sizeof(again.ids));
        } else {
            assert_memory_equal(to.ids, wanted.ids, sizeof(to.ids));
        }
    }
    assert_true(failures > 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
    CHECK_NOTHING_LEFT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_every_read_fails),
        cmocka_unit_test(test_every_read_is_cut),
        cmocka_unit_test(test_session_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
