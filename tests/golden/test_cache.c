/* test_cache.c - the layers' memory as a cache of the blocks used last (LEVER_CACHE_LRU): the same text; nothing saved
 * until everything fits; no block pinned, whatever becomes of the budget. */
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

enum { ANSWER = 12, OTHER_READS = 2 << 20 /* rows of the embedding table, in whole pages */ };

static const pair_way some_way = {0};

static void cache_options(lever_engine_options *options, lever_cache cache, bool drafts) {
    pairs_large_options(options, &some_way);
    options->block_bytes = 4u << 20;
    options->cache = cache;
    if (!drafts) options->draft_path = NULL;
}

static void answer(lever_session *session, bool drafts, pair_answer *to) {
    lever_error error;
    lever_generate_options options;
    int32_t prompt[PAIR_PROMPT];
    pairs_sampling(&options, 0, ANSWER);
    options.strategy = drafts ? LEVER_STRATEGY_LEVER : LEVER_STRATEGY_AR;
    options.tree_nodes = 4;
    options.head = LEVER_HEAD_ALL;
    pairs_prompt(session->engine, 0, prompt);
    CHECK_OK(lever_session_rewind(session, 0, &error));
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &options, to, &error));
}

static void answer_anew(const lever_engine_options *options, pair_answer *to) {
    lever_engine *engine = lv_test_open(options);
    lever_session *session = lv_test_session(engine);
    answer(session, options->draft_path != NULL, to);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* Of one pass over the layers, as it is read. */
static uint64_t pass_bytes(const lever_engine *engine) {
    const lv_layout *layout = engine->weights->layout;
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < layout->head_block_first; b++) {
        bytes += lv_file_superset_bytes(layout->blocks[b].offset, (size_t)layout->blocks[b].bytes);
    }
    return bytes;
}

/* Half of the layers' memory saves half of the reading when it pins, and nothing when it caches. */
static void test_half_of_it_saves_nothing(void **state) {
    (void)state;
    for (uint32_t drafts = 0; drafts < 2; drafts++) {
        lever_engine_options options;
        pair_answer pinned = {0}, cached = {0};
        cache_options(&options, LEVER_CACHE_PIN, drafts);
        options.target_ram_percent = 50;
        answer_anew(&options, &pinned);

        options.cache = LEVER_CACHE_LRU;
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = lv_test_session(engine);
        const uint32_t slots = engine->plan.slots_count, blocks = engine->weights->layout->head_block_first;
        assert_true(engine->plan.head_pinned && slots > blocks / 4 && slots < blocks);
        answer(session, drafts, &cached);
        pairs_check_same(&cached, &pinned, "a cache");
        const lever_statistics *s = &cached.statistics, *p = &pinned.statistics;
        assert_int_equal(s->cycles, p->cycles);
        assert_true(s->cache == LEVER_CACHE_LRU && p->cache == LEVER_CACHE_PIN);
        assert_true(s->target_bytes_pinned == 0 && s->cache_hit_bytes == 0);
        /* Every byte of every pass, but for what the ring held before the first and holds behind the last. */
        const uint64_t passes = s->cycles * pass_bytes(engine);
        assert_true(s->bytes_read + s->ring_bytes >= passes);
        assert_true(s->bytes_read <= passes + s->ring_bytes + OTHER_READS);
        assert_true(p->bytes_read <= passes / 2 + p->ring_bytes + pass_bytes(engine) / 4 * p->cycles);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
}

static void test_all_of_it_saves_everything(void **state) {
    (void)state;
    lever_engine_options options;
    pair_answer pinned = {0}, cached = {0};
    cache_options(&options, LEVER_CACHE_PIN, false);
    answer_anew(&options, &pinned);
    options.cache = LEVER_CACHE_LRU;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    const lv_layout *layout = engine->weights->layout;
    lever_plan plan;
    lever_engine_get_plan(engine, &plan);
    assert_true(plan.cache == LEVER_CACHE_LRU && plan.pass_read_bytes == 0 && plan.pinned_bytes == 0);
    assert_int_equal(engine->plan.slots_count, layout->head_block_first);
    answer(session, false, &cached);
    pairs_check_same(&cached, &pinned, "a cache of everything");
    assert_int_equal(cached.statistics.cache_hit_bytes, cached.statistics.cycles * layout->layer_bytes);
    assert_true(cached.statistics.bytes_read <= OTHER_READS);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static uint64_t pinned_layers_of(const lever_engine *engine) {
    lv_store_counters counters;
    lv_store_get_counters(engine->store, &counters);
    return counters.pinned_bytes;
}

/* The ring cannot give its memory back, and a draft's that leaves is nobody's. */
static void test_no_change_pins_a_layer(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    pair_answer first = {0}, again = {0};
    cache_options(&options, LEVER_CACHE_LRU, true);
    options.target_ram_percent = 25;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    answer(session, true, &first);
    CHECK_OK(lever_engine_set_budget(engine, 0, &error));
    answer(session, true, &again);
    pairs_check_same(&again, &first, "without a limit");
    assert_int_equal(pinned_layers_of(engine), 0);
    assert_true(lv_budget_repin(engine, engine->residency.weight_bytes, 0));
    answer(session, true, &again);
    assert_int_equal(pinned_layers_of(engine), 0);

    const uint64_t head = lv_ledger_used_by(engine->ledger, LV_MEM_HEAD);
    const uint64_t least = lv_ledger_used(engine->ledger) - head, ring = lv_ledger_used_by(engine->ledger, LV_MEM_RING);
    assert_true(head > 0 && ring >= engine->weights->layout->layer_bytes / 8);
    CHECK_OK(lever_engine_set_budget(engine, least, &error));
    CHECK_FAILS(lever_engine_set_budget(engine, least - 1, &error), LEVER_E_BUDGET, "cannot give up");
    answer(session, true, &again);
    pairs_check_same(&again, &first, "with the least budget");
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_other_values_are_refused(void **state) {
    (void)state;
    lever_engine_options options;
    lever_engine *engine = NULL;
    lever_error error;
    cache_options(&options, (lever_cache)2, false);
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_ARGUMENT, "cache is 2");
    assert_string_equal(lever_cache_text(LEVER_CACHE_PIN), "pin");
    assert_string_equal(lever_cache_text(LEVER_CACHE_LRU), "lru");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_of_it_saves_nothing),
        cmocka_unit_test(test_all_of_it_saves_everything),
        cmocka_unit_test(test_no_change_pins_a_layer),
        cmocka_unit_test(test_other_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
