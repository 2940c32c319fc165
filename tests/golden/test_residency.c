/* test_residency.c - the draft's weights leave and come back: the text stays, the budget holds, and the memory goes to
 * the target's blocks meanwhile. */
#include "engine/residency.h"

#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

enum { ANSWER = 200 };

static const pair_way some_way = {.level = {[PAIR_THREADS] = 1}};

static void pair_options(lever_engine_options *options) {
    pairs_engine_options(options, &some_way);
    options->target_ram_percent = -1;
    options->draft_forced = true;
    options->context_tokens = 256;
}

static lever_engine *open_pair(lever_engine_options *options, lever_session **session) {
    pair_options(options);
    lever_engine *engine = lv_test_open(options);
    *session = lv_test_session(engine);
    return engine;
}

/* The pair under a budget that does not hold all of the target: the first at which it opens. */
static lever_engine *open_tight(lever_engine_options *options, lever_session **session) {
    lever_plan plan;
    lever_error error;
    pair_options(options);
    CHECK_OK(lever_engine_plan(options, &plan, &error));
    options->ram_unlimited = false;
    for (options->ram_bytes = plan.least_bytes;; options->ram_bytes += 64u << 10) {
        lever_engine *engine = NULL;
        if (lever_engine_open(&engine, options, &error) != LEVER_OK) continue;
        if (lever_session_open(session, engine, NULL, &error) == LEVER_OK) return engine;
        lever_engine_close(&engine);
    }
}

static void answer(lever_session *session, lever_strategy strategy, pair_answer *to) {
    lever_error error;
    lever_generate_options options;
    int32_t prompt[PAIR_PROMPT];
    pairs_sampling(&options, 0, ANSWER);
    options.strategy = strategy;
    options.tree_nodes = 4; /* whatever drafting costs here */
    pairs_prompt(session->engine, 0, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &options, to, &error));
}

/* A tight pair, and what the target alone writes. */
static lever_engine *open_answered(lever_engine_options *options, lever_session **session, pair_answer *plain) {
    lever_engine *engine = open_tight(options, session);
    answer(*session, LEVER_STRATEGY_AR, plain);
    return engine;
}

static uint64_t pinned_bytes(const lever_engine *engine) {
    lv_store_counters counters;
    lv_store_get_counters(engine->store, &counters);
    return counters.pinned_bytes;
}

static void drop(lever_engine *engine, lever_session *session) {
    lv_speculation *speculation = session->speculation;
    const uint64_t cache = lv_ledger_used_by(engine->ledger, LV_MEM_KV);
    assert_true(lv_residency_enter(engine, speculation, LV_RESIDENCY_PROMPT));
    assert_true(lv_residency_drop(engine, speculation));
    assert_int_equal(lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT), 0);
    assert_true(lv_ledger_used_by(engine->ledger, LV_MEM_KV) < cache);
    assert_true(lv_speculation_resting_bytes(speculation) > 0);
    assert_null(engine->draft->forward);
}

static void test_leaves_and_comes_back(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    pair_answer plain = {0}, got = {0};
    lever_engine *engine = open_answered(&options, &session, &plain);
    const uint64_t weights = lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT), pinned = pinned_bytes(engine);
    const uint64_t streamed = engine->weights->layout->layer_bytes - pinned;
    assert_true(weights > 0 && streamed > 0);

    drop(engine, session);
    answer(session, LEVER_STRATEGY_LEVER, &got); /* the one without it */
    pairs_check_same(&got, &plain, "without the draft");
    assert_int_equal(got.statistics.nodes_drafted, 0);
    assert_true(pinned_bytes(engine) > pinned);

    answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "with the draft again");
    assert_true(got.statistics.nodes_drafted > 0);
    assert_int_equal(lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT), weights);
    assert_true(pinned_bytes(engine) <= pinned);
    assert_true(lv_ledger_peak(engine->ledger) <= options.ram_bytes);

    /* Once an answer was written with it, it is tried as soon as at first; else ever more seldom. */
    for (uint32_t row = 1, skipped = 1; row <= 3; row++, skipped = 2 * skipped + 1) {
        drop(engine, session);
        for (uint32_t i = 0; i < skipped; i++)
            assert_false(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
        assert_true(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
        lv_residency_leave(engine, false);
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_stays_while_others_use_it(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *first, *session;
    lever_engine *engine = open_pair(&options, &first);
    assert_true(lv_residency_enter(engine, first->speculation, LV_RESIDENCY_ANSWER));
    assert_true(lv_residency_enter(engine, first->speculation, LV_RESIDENCY_PROMPT));
    assert_false(lv_residency_drop(engine, first->speculation));
    lv_residency_leave(engine, false);
    assert_true(lv_residency_drop(engine, first->speculation));
    /* A session opens all the same, and gets the draft when it comes back. */
    session = lv_test_session(engine);
    assert_false(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
    pair_answer got = {0}, plain = {0};
    answer(session, LEVER_STRATEGY_LEVER, &got);
    assert_true(got.statistics.nodes_drafted > 0);
    answer(session, LEVER_STRATEGY_AR, &plain);
    pairs_check_same(&got, &plain, "a session that was opened meanwhile");
    /* The first one takes its cache again, and computes it anew. */
    assert_true(lv_speculation_resting_bytes(first->speculation) > 0);
    answer(first, LEVER_STRATEGY_LEVER, &got);
    assert_true(got.statistics.nodes_drafted > 0);
    assert_int_equal(lv_speculation_resting_bytes(first->speculation), 0);
    pairs_check_same(&got, &plain, "the session that had given its cache up");
    lever_session_close(&session);
    lever_session_close(&first);
    lever_engine_close(&engine);
}

/* What a session gave up is there for the next one. */
static void test_a_session_that_ends_without_its_cache(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    pair_answer plain = {0}, got = {0};
    lever_engine *engine = open_answered(&options, &session, &plain);
    drop(engine, session);
    answer(session, LEVER_STRATEGY_AR, &got); /* its memory is taken by blocks */
    lever_session_close(&session);
    assert_int_equal(engine->residency.resting_bytes, 0);
    session = lv_test_session(engine);
    answer(session, LEVER_STRATEGY_LEVER, &got);
    answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "another session");
    assert_true(got.statistics.nodes_drafted > 0);
    assert_true(lv_ledger_peak(engine->ledger) <= options.ram_bytes);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* The budget shrank meanwhile: the draft stays away until there is room again. */
static void test_no_room_to_come_back(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_session *session;
    lever_engine *engine = open_tight(&options, &session);
    const uint64_t weights = lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT);
    drop(engine, session);
    const uint64_t fixed = lv_budget_least(engine);
    CHECK_OK(lever_engine_set_budget(engine, fixed + weights / 2, &error));
    pair_answer plain = {0}, got = {0};
    answer(session, LEVER_STRATEGY_AR, &plain);
    for (uint32_t i = 0; i < 3; i++) {
        answer(session, LEVER_STRATEGY_LEVER, &got);
        pairs_check_same(&got, &plain, "without room for the draft");
        assert_int_equal(got.statistics.nodes_drafted, 0);
    }
    assert_true(lv_ledger_used(engine->ledger) <= fixed + weights / 2);
    CHECK_OK(lever_engine_set_budget(engine, options.ram_bytes, &error));
    for (uint32_t i = 0; i < 2; i++) answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "with room again");
    assert_true(got.statistics.nodes_drafted > 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* Memory so fast that the target alone must win. */
static void test_leaves_in_the_middle(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    pair_answer plain = {0}, got = {0};
    lever_engine *engine = open_answered(&options, &session, &plain);
    answer(session, LEVER_STRATEGY_LEVER, &got);
    assert_false(got.statistics.draft_dropped); /* it is forced */

    engine->options.draft_forced = false;
    engine->plan.table.memory_bytes_per_second = 1e18;
    engine->plan.table.pass_read_bytes = 1;
    answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "left in the middle");
    assert_true(got.statistics.draft_dropped && got.statistics.nodes_drafted > 0);
    assert_true(engine->residency.away);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_judging(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    lever_engine *engine = open_pair(&options, &session);
    lever_plan *table = &engine->plan.table;
    engine->options.draft_forced = false;
    engine->residency.weight_bytes = 250000000 - lv_speculation_memory_bytes(session->speculation);
    *table = (lever_plan){.pass_read_bytes = 400000000,
                          .layer_bytes = 740000000,
                          .head_bytes = 190000000,
                          .memory_bytes_per_second = 30e9};
    /* 150 MB at 2 GB/s are 75 ms: 13.3 tokens a second, of which 8.7 are asked for. */
    static const struct {
        uint64_t tokens, cycles;
        double seconds;
        bool better;
    } cases[] = {{34, 10, 4.0, true}, {35, 10, 4.0, false}, {16, 7, 4.0, false}, {100, 10, 4.0, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const lv_residency_progress progress = {.tokens = cases[i].tokens,
                                                .cycles = cases[i].cycles,
                                                .seconds = cases[i].seconds,
                                                .bytes_read = 4000000000,
                                                .reading_seconds = 2.0};
        double expected = 0;
        assert_int_equal(lv_residency_is_better_without(engine, session->speculation, &progress, &expected),
                         cases[i].better);
    }
    const lv_residency_progress slow = {.tokens = 10, .cycles = 10, .seconds = 4.0};
    double expected = 0;
    assert_true(lv_residency_is_better_without(engine, session->speculation, &slow, &expected));
    table->pass_read_bytes = 0; /* everything is pinned: nothing to gain */
    assert_false(lv_residency_is_better_without(engine, session->speculation, &slow, &expected));
    table->pass_read_bytes = 400000000;
    engine->options.target_ram_percent = 50; /* the user said what is pinned */
    assert_false(lv_residency_is_better_without(engine, session->speculation, &slow, &expected));
    lever_session_close(&session);
    lever_engine_close(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves_and_comes_back),
        cmocka_unit_test(test_stays_while_others_use_it),
        cmocka_unit_test(test_a_session_that_ends_without_its_cache),
        cmocka_unit_test(test_no_room_to_come_back),
        cmocka_unit_test(test_leaves_in_the_middle),
        cmocka_unit_test(test_judging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
