/* test_residency_faults.c - a draft that comes back, in which every request for memory and every read fails once: it
 * stays out, nothing is left half done, and the text is the same. And what rests is back with the system. */
/* faults: memory file */
#include "engine/residency.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/fault.h"
#include "support/pairs.h"

enum { ANSWER = 20 };

/* Everything of the target is pinned: no read of a lane is among those that fail. */
static const pair_way way = {.level = {[PAIR_COSTS] = 1, [PAIR_BUDGET] = 2}};

typedef struct {
    lever_engine *engine;
    lever_session *session;
    uint64_t used_bytes; /* with the draft */
} pair;

static void answer(lever_session *session, lever_strategy strategy, pair_answer *to) {
    lever_error error;
    lever_generate_options options;
    int32_t prompt[PAIR_PROMPT];
    pairs_generate_options(&options, &way, ANSWER);
    options.strategy = strategy;
    pairs_prompt(session->engine, 0, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &options, to, &error));
}

static void open_pair(pair *p) {
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    p->engine = lv_test_open(&options);
    p->session = lv_test_session(p->engine);
    p->used_bytes = lv_ledger_used(p->engine->ledger);
}

static void close_pair(pair *p) {
    lever_session_close(&p->session);
    lever_engine_close(&p->engine);
    CHECK_NOTHING_LEFT();
}

/* By a call that has entered. */
static void send_away(const pair *p) {
    assert_true(lv_residency_drop(p->engine, p->session->speculation));
    p->engine->residency.skip_left = p->engine->residency.drops_in_row = 0;
}

static void check_away(const pair *p, uint64_t used_bytes) {
    assert_true(p->engine->residency.away && !p->engine->residency.coming);
    assert_int_equal(p->engine->residency.users, 0);
    assert_int_equal(p->engine->residency.promised_bytes, 0);
    assert_int_equal(p->engine->residency.drops_in_row, 1);
    assert_int_equal(p->engine->residency.resting_bytes, lv_speculation_memory_bytes(p->session->speculation));
    assert_int_equal(lv_speculation_resting_bytes(p->session->speculation), p->engine->residency.resting_bytes);
    assert_int_equal(lv_ledger_used_by(p->engine->ledger, LV_MEM_DRAFT), 0);
    assert_int_equal(lv_ledger_used(p->engine->ledger), used_bytes);
    assert_null(p->engine->draft->forward);
}

typedef struct {
    void (*set)(uint64_t nth);
    uint64_t (*calls)(void);
} fault;

static void refuse_memory(uint64_t nth) {
    fault_memory_set(nth, nth > 0);
}
static void fail_read(uint64_t nth) {
    fault_read_set(FAULT_EIO, nth, nth > 0);
}
static void spoil_read(uint64_t nth) {
    fault_read_set(FAULT_END, nth, nth > 0);
}

/* Returns how many failures there were. */
static uint64_t visit(const pair *p, const fault *f) {
    uint64_t failed = 0;
    assert_true(lv_residency_enter(p->engine, p->session->speculation, LV_RESIDENCY_ANSWER));
    for (uint64_t nth = 1;; nth++) {
        send_away(p);
        const uint64_t used_bytes = lv_ledger_used(p->engine->ledger);
        f->set(nth);
        const bool here = lv_residency_enter(p->engine, p->session->speculation, LV_RESIDENCY_ANSWER);
        const uint64_t calls = f->calls();
        f->set(0);
        if (!here) {
            check_away(p, used_bytes);
            failed++;
            p->engine->residency.skip_left = 0;
            assert_true(lv_residency_enter(p->engine, p->session->speculation, LV_RESIDENCY_ANSWER));
        }
        assert_int_equal(lv_ledger_used(p->engine->ledger), p->used_bytes);
        if (calls < nth) break;
    }
    lv_residency_leave(p->engine, false);
    return failed;
}

static void test_every_failure_of_coming_back(void **state) {
    (void)state;
    static const fault faults[] = {
        {refuse_memory, fault_memory_calls}, {fail_read, fault_read_calls}, {spoil_read, fault_read_calls}};
    pair p;
    pair_answer plain = {0}, got = {0};
    open_pair(&p);
    answer(p.session, LEVER_STRATEGY_AR, &plain);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const uint64_t failed = visit(&p, &faults[i]);
        if (failed < (i == 0 ? 10 : 2)) fail_msg("fault %zu: only %d failures", i, (int)failed);
        answer(p.session, LEVER_STRATEGY_LEVER, &got);
        pairs_check_same(&got, &plain, "after all failures");
        assert_true(got.statistics.nodes_drafted > 0);
    }
    close_pair(&p);
}

/* A failure in the middle of a conversation costs the draft, not the answer. */
static void test_answers_go_on_without_it(void **state) {
    (void)state;
    pair p;
    pair_answer plain = {0}, got = {0};
    open_pair(&p);
    answer(p.session, LEVER_STRATEGY_AR, &plain);
    assert_true(lv_residency_enter(p.engine, p.session->speculation, LV_RESIDENCY_ANSWER));
    send_away(&p);
    fault_read_set(FAULT_EIO, 1, FAULT_FOR_GOOD);
    assert_false(lv_residency_enter(p.engine, p.session->speculation, LV_RESIDENCY_ANSWER));
    fault_read_set(FAULT_EIO, 0, 0);
    for (uint32_t i = 0; i < 2; i++) { /* one is skipped */
        answer(p.session, LEVER_STRATEGY_LEVER, &got);
        pairs_check_same(&got, &plain, "after a draft that could not be read");
        assert_int_equal(got.statistics.nodes_drafted > 0, i > 0);
    }
    close_pair(&p);
}

/* What a session's draft takes is mapped by itself: resting gives all of it back, waking takes as much. */
static void test_what_rests_is_unmapped(void **state) {
    (void)state;
    pair p;
    open_pair(&p);
    const int64_t mapped = fault_memory_mapped_bytes(), blocks = fault_memory_blocks();
    const int64_t bytes = (int64_t)lv_speculation_memory_bytes(p.session->speculation);
    lever_error error;
    for (uint32_t i = 0; i < 2; i++) {
        lv_speculation_rest(p.session->speculation);
        assert_int_equal(fault_memory_mapped_bytes(), mapped - bytes);
        assert_int_equal(lv_ledger_used(p.engine->ledger), p.used_bytes - (uint64_t)bytes);
        assert_int_equal(fault_memory_blocks(), blocks);
        CHECK_OK(lv_speculation_wake(p.session->speculation, &error));
        assert_int_equal(fault_memory_mapped_bytes(), mapped);
    }
    close_pair(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure_of_coming_back),
        cmocka_unit_test(test_answers_go_on_without_it),
        cmocka_unit_test(test_what_rests_is_unmapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
