/* link: --wrap=lv_system_memory_read */
/* test_budget.c - what a change of the budget leaves alone: the memory of sessions that open later, a share that was
 * asked for, the caller's word against that of the watch. And a lower limit that waits comes into force. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"
#include "support/sanitizer.h"
#include "support/scratch.h"
#include "support/usable_memory.h"

enum { PROMPT = 4, SCORED = 12, PASSES = 2, ANSWER = 2 };

static const pair_way some_way = {.level = {[PAIR_THREADS] = 1}};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* --- Engines over the large target -------------------------------------------------------------------------------- */

static void large_options(lever_engine_options *options, bool drafts) {
    pairs_large_options(options, &some_way);
    if (!drafts) options->draft_path = NULL;
}

/* A budget that holds about half of the layers. */
static lever_engine *open_half(lever_engine_options *options) {
    lever_plan plan;
    lever_error error;
    CHECK_OK(lever_engine_plan(options, &plan, &error));
    options->ram_unlimited = false;
    options->ram_bytes = plan.total_bytes - plan.layer_bytes / 2;
    return lv_test_open(options);
}

static uint64_t pinned_of(const lever_engine *engine) {
    return lv_ledger_used_by(engine->ledger, LV_MEM_PINNED) + lv_ledger_used_by(engine->ledger, LV_MEM_HEAD);
}

static uint64_t pinned_layers_of(const lever_engine *engine) {
    lv_store_counters counters;
    lv_store_get_counters(engine->store, &counters);
    return counters.pinned_bytes;
}

static lv_budget budget_of(lever_engine *engine) {
    lv_budget budget;
    lv_budget_get(engine, &budget);
    return budget;
}

/* Passes in which blocks are pinned as they go by. */
static void run_passes(lever_session *session) {
    int32_t prompt[PAIR_PROMPT];
    lever_error error;
    pairs_prompt(session->engine, 0, prompt);
    for (uint32_t i = 0; i < PASSES; i++) {
        CHECK_OK(lever_session_rewind(session, 0, &error));
        CHECK_OK(lever_session_prompt(session, prompt, PROMPT, &error));
    }
}

static void check_answers(lever_session *session) {
    int32_t prompt[PAIR_PROMPT];
    lever_error error;
    lever_generate_options options;
    pair_answer got = {0};
    pairs_sampling(&options, 0, ANSWER);
    pairs_prompt(session->engine, 1, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PROMPT, &error));
    CHECK_OK(pairs_generate(session, &options, &got, &error));
    assert_int_equal(got.count, ANSWER);
}

/* --- Sessions ----------------------------------------------------------------------------------------------------- */

static void check_session_bytes(const lever_engine_options *options) {
    lever_engine *engine = lv_test_open(options);
    for (uint32_t i = 0; i < options->sessions_max; i++) {
        const uint64_t before = lv_ledger_used(engine->ledger);
        lever_session *session = lv_test_session(engine);
        assert_true(lv_ledger_used(engine->ledger) - before <= engine->session_bytes);
        lever_session_close(&session);
        assert_int_equal(lv_ledger_used(engine->ledger), before);
    }
    lever_engine_close(&engine);
}

/* No session takes more than the plan has for it. */
static void test_what_a_session_takes(void **state) {
    (void)state;
    lever_engine_options options;
    large_options(&options, false);
    check_session_bytes(&options);
    large_options(&options, true);
    check_session_bytes(&options);
    pairs_engine_options(&options, &(pair_way){.level = {[PAIR_PRUNING] = 1}});
    options.learn = true;
    check_session_bytes(&options);
}

/* Given anew, the budget pins what the plan pinned. */
static void test_the_same_budget_again(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    for (uint32_t drafts = 0; drafts < 2; drafts++) {
        lever_engine_options options;
        lever_error error;
        large_options(&options, drafts);
        lever_engine *engine = open_half(&options);
        const uint32_t blocks = engine->weights->layout->blocks_count;
        bool *planned = calloc(blocks, sizeof(bool));
        assert_non_null(planned);
        memcpy(planned, engine->pinned, blocks * sizeof(bool));
        CHECK_OK(lever_engine_set_budget(engine, options.ram_bytes, &error));
        assert_memory_equal(engine->pinned, planned, blocks * sizeof(bool));
        free(planned);
        lever_engine_close(&engine);
    }
}

/* Whatever the budget becomes before the first session opens, it opens, and answers. */
static void test_a_session_after_a_change(void **state) {
    (void)state;
    for (uint32_t drafts = 0; drafts < 2; drafts++) {
        lever_engine_options options;
        lever_error error;
        large_options(&options, drafts);
        lever_engine *engine = open_half(&options);
        const uint64_t used = lv_ledger_used(engine->ledger), least = budget_of(engine).least_bytes;
        const uint64_t limits[] = {options.ram_bytes, used, (used + least) / 2, least};
        for (size_t i = 0; i < 4; i++) {
            CHECK_OK(lever_engine_set_budget(engine, limits[i], &error));
            lever_session *session = lv_test_session(engine);
            check_answers(session);
            assert_true(lv_ledger_used(engine->ledger) <= limits[i]);
            lever_session_close(&session);
        }
        /* Below that it is the caller's will: what is in use is the end. */
        const uint64_t in_use = lv_ledger_used(engine->ledger) - pinned_of(engine);
        assert_true(in_use < least);
        CHECK_OK(lever_engine_set_budget(engine, in_use, &error));
        CHECK_FAILS(lever_engine_set_budget(engine, in_use - 1, &error), LEVER_E_BUDGET, "cannot give up");
        lever_session *session = NULL;
        CHECK_FAILS(lever_session_open(&session, engine, NULL, &error), LEVER_E_BUDGET, "budget");
        lever_engine_close(&engine);
    }
}

/* Passes fill what a change has left to blocks; a session more finds its memory all the same, and its scores are
 * those of an engine without a budget. */
static void test_the_second_session(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    int32_t prompt[PAIR_PROMPT];
    large_options(&options, false);
    lever_engine *engine = lv_test_open(&options);
    lever_session *first = lv_test_session(engine);
    pairs_prompt(engine, 2, prompt);
    float *wanted = lv_test_score(engine, first, prompt, SCORED);
    lever_session_close(&first);
    lever_engine_close(&engine);

    options.sessions_max = 3;
    engine = open_half(&options);
    const size_t logits = SCORED * lv_test_vocabulary(engine);
    first = lv_test_session(engine);
    const uint64_t limits[] = {options.ram_bytes, lv_ledger_used(engine->ledger)};
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(lever_engine_set_budget(engine, limits[i], &error));
        run_passes(first);
        lever_session *second = lv_test_session(engine);
        run_passes(first);
        lever_session *third = lv_test_session(engine);
        float *got = lv_test_score(engine, third, prompt, SCORED);
        assert_memory_equal(got, wanted, logits * sizeof(float));
        free(got);
        /* A budget without a byte to spare: fewer rows at a time, the same bits. */
        CHECK_OK(lever_engine_set_budget(engine, lv_ledger_used(engine->ledger) - pinned_of(engine), &error));
        got = lv_test_score(engine, third, prompt, SCORED);
        assert_memory_equal(got, wanted, logits * sizeof(float));
        free(got);
        lever_session_close(&third);
        lever_session_close(&second);
    }
    free(wanted);
    lever_session_close(&first);
    lever_engine_close(&engine);
}

/* --- Blocks ------------------------------------------------------------------------------------------------------- */

/* Nothing was to be pinned but the head, whatever is free. */
static void test_a_share_that_was_asked_for(void **state) {
    (void)state;
    static const int shares[] = {0, 50};
    for (size_t i = 0; i < 2; i++) {
        lever_engine_options options;
        lever_error error;
        large_options(&options, false);
        options.target_ram_percent = shares[i];
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = lv_test_session(engine);
        const uint64_t layers = pinned_layers_of(engine), pinned = pinned_of(engine);
        assert_true(pinned > layers);
        CHECK_OK(lever_engine_set_budget(engine, lv_ledger_used(engine->ledger) - pinned, &error));
        run_passes(session);
        assert_int_equal(pinned_of(engine), 0);
        CHECK_OK(lever_engine_set_budget(engine, 0, &error));
        run_passes(session);
        assert_int_equal(pinned_layers_of(engine), layers);
        assert_true(pinned_of(engine) > layers && pinned_of(engine) <= pinned);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
}

/* While a lease holds a block that is to go, the old limit is in force, and more is taken under it. */
static void test_a_limit_that_waits(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    large_options(&options, false);
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    const uint64_t used = lv_ledger_used(engine->ledger), limit = used - pinned_of(engine) / 2;
    lv_lease leases[64];
    uint32_t count = 0;
    for (uint32_t b = 0; b < engine->weights->layout->blocks_count && count < 64; b++) {
        if (engine->pinned[b]) CHECK_OK(lv_store_acquire(engine->store, b, NULL, &leases[count++], &error));
    }
    CHECK_OK(lever_engine_set_budget(engine, limit, &error));
    assert_true(lv_ledger_limit(engine->ledger) > limit);
    lever_session *more = lv_test_session(engine); /* than the plan knew of */
    lever_session *most = lv_test_session(engine);
    while (count > 0) lv_store_release(engine->store, &leases[--count]);
    lv_budget_on_block(engine);
    assert_int_equal(lv_ledger_limit(engine->ledger), limit);
    assert_true(lv_ledger_used(engine->ledger) <= limit);
    assert_true(pinned_of(engine) > 0);
    lever_session_close(&most);
    lever_session_close(&more);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* --- The watch ---------------------------------------------------------------------------------------------------- */

/* Memory is short when the engine opens: blocks go, but what the first session needs is still there. */
static void test_short_before_the_first_session(void **state) {
    (void)state;
    lever_engine_options options;
    large_options(&options, true);
    options.watch_memory = true;
    lever_engine *engine = open_half(&options);
    atomic_store(&usable_bytes, 1);
    for (uint32_t i = 0; i < 100 && pinned_of(engine) > 0; i++) sleep_ms(50);
    assert_int_equal(pinned_of(engine), 0);
    lever_session *session = lv_test_session(engine);
    check_answers(session);
    assert_true(lv_ledger_used(engine->ledger) <= lv_ledger_limit(engine->ledger));
    atomic_store(&usable_bytes, 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* There is plenty of memory, but the caller wants less: so it stays, for longer than the watch waits before it lets a
 * budget grow. What it takes away by itself comes back as far as the caller's last word. */
static void test_the_caller_is_obeyed(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    atomic_store(&usable_bytes, (uint64_t)1 << 40);
    large_options(&options, false);
    options.watch_memory = true;
    lever_engine *engine = open_half(&options);
    const uint64_t less = options.ram_bytes - (8u << 20);
    CHECK_OK(lever_engine_set_budget(engine, less, &error));
    sleep_ms(3000);
    assert_int_equal(budget_of(engine).limit_bytes, less);
    assert_false(budget_of(engine).limit_bytes > budget_of(engine).most_bytes);

    atomic_store(&usable_bytes, 1);
    for (uint32_t i = 0; i < 100 && budget_of(engine).limit_bytes == less; i++) sleep_ms(50);
    assert_true(budget_of(engine).limit_bytes < less);
    assert_true(lv_budget_follow(engine, options.ram_bytes)); /* as a look that began before the caller spoke */
    assert_true(budget_of(engine).limit_bytes <= less);
    atomic_store(&usable_bytes, (uint64_t)1 << 40);
    for (uint32_t i = 0; i < 200 && budget_of(engine).limit_bytes < less; i++) sleep_ms(50);
    assert_int_equal(budget_of(engine).limit_bytes, less);
    atomic_store(&usable_bytes, 0);
    lever_engine_close(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_session_takes),           cmocka_unit_test(test_the_same_budget_again),
        cmocka_unit_test(test_a_session_after_a_change),       cmocka_unit_test(test_the_second_session),
        cmocka_unit_test(test_a_share_that_was_asked_for),     cmocka_unit_test(test_a_limit_that_waits),
        cmocka_unit_test(test_short_before_the_first_session), cmocka_unit_test(test_the_caller_is_obeyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
