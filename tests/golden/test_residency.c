/* test_residency.c - the draft's weights leave and come back: the text stays, the budget holds, and the memory goes to
 * the target's blocks meanwhile. */
/* link: --wrap=pthread_mutex_lock,--wrap=lv_store_set_head_wanted,--wrap=lv_speculation_wake */
#include "engine/residency.h"

#include <stdlib.h>
#include <time.h>

#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

enum { ANSWER = 120, LOCK_SECONDS = 20 };

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

/* The pair under a budget that holds half of the target's layers. */
static lever_engine *open_tight(lever_engine_options *options, lever_session **session) {
    lever_plan plan;
    lever_error error;
    lv_budget budget;
    pair_options(options);
    CHECK_OK(lever_engine_plan(options, &plan, &error));
    options->ram_unlimited = false;
    options->ram_bytes = plan.total_bytes + (4u << 20);
    lever_engine *engine = lv_test_open(options);
    *session = lv_test_session(engine);
    lv_budget_get(engine, &budget);
    options->ram_bytes = budget.least_bytes + plan.layer_bytes / 2;
    CHECK_OK(lever_engine_set_budget(engine, options->ram_bytes, &error));
    assert_true(lv_ledger_used(engine->ledger) <= options->ram_bytes);
    return engine;
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

/* --- Time --------------------------------------------------------------------------------------------------------- */

/* A session's clock that stands still, but for what passes, and waiting for them, are said to take. */
static struct {
    lv_clock_virtual clock;
    lv_clock seen;
    _Atomic(pthread_mutex_t *) pass_lock; /* NULL: nobody answers by it */
    uint64_t pass_ns, turn_ns, token_ns, odd_ns;
    uint32_t odd_pass, passes; /* this one takes odd_ns besides; 0: none */
} course;

void __real_lv_store_set_head_wanted(lv_store *store, bool wanted);
void __wrap_lv_store_set_head_wanted(lv_store *store, bool wanted);
void __wrap_lv_store_set_head_wanted(lv_store *store, bool wanted) {
    if (course.pass_lock)
        course.clock.now_ns += course.pass_ns + (++course.passes == course.odd_pass ? course.odd_ns : 0);
    __real_lv_store_set_head_wanted(store, wanted);
}

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock) {
    if (lock == course.pass_lock) course.clock.now_ns += course.turn_ns;
    return __real_pthread_mutex_lock(lock);
}

static bool take_slowly(void *user, int32_t token, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    *(uint32_t *)user += token >= 0;
    course.clock.now_ns += course.token_ns;
    return true;
}

/* An answer by that clock; passes are counted from its first cycle on. */
static lever_statistics answer_in_time(lever_session *session, uint32_t tokens) {
    lever_error error;
    lever_generate_options options;
    lever_statistics statistics;
    int32_t prompt[PAIR_PROMPT];
    uint32_t count = 0;
    pairs_sampling(&options, 0, tokens);
    options.tree_nodes = 4;
    pairs_prompt(session->engine, 0, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    course.seen = lv_clock_of_virtual(&course.clock);
    session->clock = &course.seen;
    course.pass_lock = &session->engine->pass_lock;
    course.passes = 0;
    CHECK_OK(lever_session_generate(session, &options, take_slowly, &count, NULL, &error));
    session->clock = &lv_clock_real;
    course.pass_lock = NULL;
    assert_int_equal(count, tokens);
    lever_session_get_statistics(session, &statistics);
    return statistics;
}

/* The plan has left a choice. */
static void let_it_be_judged(lever_engine *engine) {
    engine->options.draft_forced = false;
}

/* --- Coming and going --------------------------------------------------------------------------------------------- */

static uint64_t in_use(const lever_engine *engine) {
    return lv_ledger_used(engine->ledger) - lv_ledger_used_by(engine->ledger, LV_MEM_PINNED) -
           lv_ledger_used_by(engine->ledger, LV_MEM_HEAD);
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
    const uint64_t used = lv_ledger_used(engine->ledger);
    assert_true(lv_residency_drop(engine, speculation));
    assert_int_equal(used - lv_ledger_used(engine->ledger),
                     engine->residency.weight_bytes + engine->residency.resting_bytes);
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
    assert_true(lv_ledger_used(engine->ledger) <= options.ram_bytes);

    /* It is tried ever more seldom. */
    engine->residency.drops_in_row = 0;
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
    assert_true(lv_ledger_used(engine->ledger) <= options.ram_bytes);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void count_progress(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    if (stage == LEVER_STAGE_OPEN) ++*(uint32_t *)user;
}

/* The budget shrank meanwhile: the draft stays away until there is room again, for its weights and for the session's
 * cache, and is not read in vain. */
static void check_no_room(bool weights_fit) {
    lever_engine_options options;
    lever_error error;
    lever_session *session;
    lever_engine *engine = open_tight(&options, &session);
    uint32_t readings = 0;
    engine->options.progress = count_progress;
    engine->options.progress_user = &readings;
    drop(engine, session);
    const uint64_t weights = engine->residency.weight_bytes, cache = engine->residency.resting_bytes;
    const uint64_t budget = in_use(engine) + (weights_fit ? weights + cache / 2 : weights / 2);
    CHECK_OK(lever_engine_set_budget(engine, budget, &error));
    pair_answer plain = {0}, got = {0};
    answer(session, LEVER_STRATEGY_AR, &plain);
    for (uint32_t i = 0; i < 3; i++) {
        answer(session, LEVER_STRATEGY_LEVER, &got);
        pairs_check_same(&got, &plain, "without room for the draft");
        assert_int_equal(got.statistics.nodes_drafted, 0);
        assert_true(got.statistics.draft_away);
    }
    assert_int_equal(readings, 0);
    assert_true(lv_ledger_used(engine->ledger) <= budget);
    CHECK_OK(lever_engine_set_budget(engine, options.ram_bytes, &error));
    for (uint32_t i = 0; i < 2; i++) answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "with room again");
    assert_true(got.statistics.nodes_drafted > 0 && readings > 0);
    assert_false(got.statistics.draft_away);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_no_room_to_come_back(void **state) {
    (void)state;
    check_no_room(false);
    check_no_room(true);
}

static bool wakes_fail;

lever_status __real_lv_speculation_wake(lv_speculation *speculation, lever_error *error);
lever_status __wrap_lv_speculation_wake(lv_speculation *speculation, lever_error *error);
lever_status __wrap_lv_speculation_wake(lv_speculation *speculation, lever_error *error) {
    if (!wakes_fail) return __real_lv_speculation_wake(speculation, error);
    error->status = LEVER_E_MEMORY;
    snprintf(error->message, sizeof(error->message), "no memory for a test");
    return error->status;
}

/* What was unpinned for a cache that then cannot be had is pinned again, whether the weights are here or not; and
 * weights that were read in vain are tried ever more seldom. */
static void test_a_cache_that_cannot_be_had(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session, *other;
    lever_error error;
    lever_engine *engine = open_tight(&options, &session);
    const uint32_t blocks = engine->weights->layout->blocks_count;
    bool *pinned = malloc(blocks * sizeof(*pinned));
    assert_non_null(pinned);
    drop(engine, session);
    CHECK_OK(lever_engine_set_budget(engine, options.ram_bytes + (4u << 20), &error));
    other = lv_test_session(engine);
    const uint64_t given_up = engine->residency.weight_bytes + engine->residency.resting_bytes;
    CHECK_OK(lever_engine_set_budget(engine, in_use(engine) + given_up + options.block_bytes, &error));

    wakes_fail = true;
    engine->residency.skip_left = 0;
    memcpy(pinned, engine->pinned, blocks * sizeof(*pinned));
    for (uint32_t drops = 2; drops <= 3; drops++) {
        assert_false(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
        assert_true(engine->residency.away && !engine->residency.coming && engine->residency.users == 0);
        assert_int_equal(engine->residency.drops_in_row, drops);
        assert_int_equal(engine->residency.skip_left, (1u << drops) - 1);
        assert_int_equal(engine->residency.promised_bytes, 0);
        assert_memory_equal(engine->pinned, pinned, blocks * sizeof(*pinned));
        engine->residency.skip_left = 0;
    }

    assert_true(lv_residency_enter(engine, other->speculation, LV_RESIDENCY_ANSWER));
    memcpy(pinned, engine->pinned, blocks * sizeof(*pinned));
    assert_false(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
    assert_true(!engine->residency.away && engine->residency.users == 1);
    assert_int_equal(engine->residency.promised_bytes, 0);
    assert_int_equal(engine->residency.resting_bytes, lv_speculation_memory_bytes(session->speculation));
    assert_memory_equal(engine->pinned, pinned, blocks * sizeof(*pinned));
    wakes_fail = false;
    lv_residency_leave(engine, false);
    free(pinned);
    lever_session_close(&other);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* --- What is called while it comes -------------------------------------------------------------------------------- */

typedef struct {
    lever_engine *engine;
    lever_session *cancelled, *other; /* what is done at the first progress of an opening; NULL: nothing */
    const pair_answer *plain;
    uint32_t openings, traces, lines;
} listener;

static void check_no_lock(const listener *l) {
    pthread_mutex_t *locks[] = {&l->engine->pass_lock, &l->engine->residency.lock, &l->engine->budget_lock,
                                &l->engine->draft->lock};
    /* Another thread may have one for a moment; who waits for a lock of its own waits for ever. */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_SECONDS;
    for (size_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++) {
        assert_int_equal(pthread_mutex_timedlock(locks[i], &until), 0);
        pthread_mutex_unlock(locks[i]);
    }
}

static void hear_progress(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    listener *l = user;
    (void)done;
    (void)total;
    if (stage != LEVER_STAGE_OPEN) return;
    check_no_lock(l);
    if (l->openings++ > 0) return;
    if (l->cancelled) lever_session_cancel(l->cancelled);
    if (!l->other) return;
    pair_answer got = {0};
    answer(l->other, LEVER_STRATEGY_LEVER, &got); /* which does not wait for it */
    pairs_check_same(&got, l->plain, "beside a draft that comes back");
    assert_int_equal(got.statistics.nodes_drafted, 0);
    assert_true(got.statistics.draft_away);
}

static void hear_line(void *user, lever_log_level level, const char *line) {
    listener *l = user;
    (void)level;
    assert_true(strlen(line) > 0);
    check_no_lock(l);
    l->lines++;
}

static void hear_trace(void *user, const char *line) {
    listener *l = user;
    assert_true(line[0] == '{');
    check_no_lock(l);
    l->traces++;
}

static bool hear_token(void *user, int32_t token, const char *text, size_t bytes) {
    (void)token;
    (void)text;
    (void)bytes;
    check_no_lock(user);
    return true;
}

static void listen(lever_engine *engine, listener *l) {
    engine->options.progress = hear_progress;
    engine->options.progress_user = l;
    engine->log = (lv_log){hear_line, l};
}

/* Whatever an answer with a draft that comes back tells, it tells without a lock, once a cycle. */
static void test_callbacks_come_without_locks(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_generate_options generate;
    lever_session *session;
    int32_t prompt[PAIR_PROMPT];
    lever_engine *engine = open_tight(&options, &session);
    listener l = {.engine = engine};
    listen(engine, &l);
    drop(engine, session);
    engine->residency.skip_left = 0;
    pairs_sampling(&generate, 0, 20);
    generate.tree_nodes = 4;
    generate.trace = hear_trace;
    generate.trace_user = &l;
    pairs_prompt(engine, 0, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(lever_session_generate(session, &generate, hear_token, &l, NULL, &error));
    assert_true(l.openings > 0 && session->statistics.nodes_drafted > 0);
    assert_int_equal(l.traces, session->statistics.cycles);

    /* It leaves, and cannot come back. */
    wakes_fail = true;
    drop(engine, session);
    engine->residency.skip_left = 0;
    assert_false(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
    assert_int_equal(l.lines, 1);
    wakes_fail = false;
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* Coming back ends when the session is cancelled, and is not held against the draft. */
static void test_coming_back_can_be_cancelled(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_session *session;
    pair_answer plain = {0}, got = {0};
    lever_engine *engine = open_answered(&options, &session, &plain);
    listener l = {.engine = engine, .cancelled = session};
    listen(engine, &l);
    drop(engine, session);
    engine->residency.skip_left = 0;
    lever_generate_options generate;
    int32_t prompt[PAIR_PROMPT];
    pairs_sampling(&generate, 0, ANSWER);
    pairs_prompt(engine, 0, prompt);
    /* The draft comes for the prompt, where its prefill runs beside the target's, or for the answer. */
    lever_status status = lever_session_prompt(session, prompt, PAIR_PROMPT, &error);
    if (status == LEVER_OK) status = pairs_generate(session, &generate, &got, &error);
    assert_int_equal(status, LEVER_E_CANCELLED);
    assert_int_equal(l.openings, 1);
    assert_int_equal(got.count, 0);
    assert_true(engine->residency.away && !engine->residency.coming && engine->residency.users == 0);
    assert_int_equal(engine->residency.promised_bytes, 0);
    assert_int_equal(engine->residency.skip_left, 0);
    assert_int_equal(engine->residency.drops_in_row, 1);
    assert_int_equal(l.lines, 0);
    assert_int_equal(lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT), 0);
    answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "after a cancellation");
    assert_true(got.statistics.nodes_drafted > 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* Another session goes on while the draft is read for the first. */
static void test_others_go_on_while_it_comes(void **state) {
    (void)state;
    lever_engine_options options;
    pair_options(&options);
    options.sessions_max = 2;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine), *other = lv_test_session(engine);
    pair_answer plain = {0}, got = {0};
    answer(session, LEVER_STRATEGY_AR, &plain);
    listener l = {.engine = engine, .other = other, .plain = &plain};
    listen(engine, &l);
    drop(engine, session);
    engine->residency.skip_left = 0;
    answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "with the draft, which came beside another answer");
    assert_true(l.openings > 0 && got.statistics.nodes_drafted > 0);
    assert_int_equal(engine->residency.users, 0);
    lever_session_close(&other);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* A budget that changes while the draft is read: `other` writes an answer then, by which blocks are pinned as they
 * pass, or leases hold the blocks that are to go. */
typedef struct {
    lever_engine *engine;
    lever_session *other; /* NULL: leases */
    uint64_t budget;      /* 0: less than what will be in use beside pinned blocks */
    lv_lease leases[64];
    uint32_t leases_count, changes;
} changer;

static void change_budget(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    changer *c = user;
    lever_engine *engine = c->engine;
    lever_error error;
    if (stage != LEVER_STAGE_OPEN || done < total || c->changes++ > 0) return;
    for (uint32_t b = 0; !c->other && b < engine->weights->layout->blocks_count && c->leases_count < 64; b++) {
        if (engine->pinned[b] && lv_store_try_acquire(engine->store, b, &c->leases[c->leases_count])) c->leases_count++;
    }
    if (c->budget == 0) c->budget = in_use(engine) + 4096;
    CHECK_OK(lever_engine_set_budget(engine, c->budget, &error));
    if (!c->other) return;
    pair_answer got = {0};
    answer(c->other, LEVER_STRATEGY_AR, &got);
}

/* What was promised is left free, also where more is in use than the plan knew of: the draft comes. */
static void test_a_change_keeps_the_promise(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_session *session;
    lever_engine *engine = open_tight(&options, &session);
    drop(engine, session);
    CHECK_OK(lever_engine_set_budget(engine, options.ram_bytes + (8u << 20), &error));
    changer c = {.engine = engine, .other = lv_test_session(engine)};
    const uint64_t promised = engine->residency.weight_bytes + engine->residency.resting_bytes;
    c.budget = in_use(engine) + promised + 2 * options.block_bytes;
    engine->planned_bytes = 0;
    CHECK_OK(lever_engine_set_budget(engine, c.budget, &error));
    engine->options.progress = change_budget;
    engine->options.progress_user = &c;
    engine->residency.skip_left = 0;
    assert_true(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
    assert_int_equal(c.changes, 1);
    assert_int_equal(engine->residency.promised_bytes, 0);
    assert_true(lv_ledger_used(engine->ledger) <= c.budget);
    lv_residency_leave(engine, false);
    /* Nothing is promised any more: the same budget pins what there is room for. */
    CHECK_OK(lever_engine_set_budget(engine, c.budget, &error));
    assert_int_equal(engine->pin_bytes, c.budget - in_use(engine));
    lever_session_close(&c.other);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* There is no room for the draft under the new budget, which waits for leases: it goes again, and the budget is kept.
 */
static void test_a_cut_ends_the_promise(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    pair_answer plain = {0}, got = {0};
    lever_engine *engine = open_answered(&options, &session, &plain);
    drop(engine, session);
    changer c = {.engine = engine};
    engine->options.progress = change_budget;
    engine->options.progress_user = &c;
    engine->residency.skip_left = 0;
    assert_false(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
    assert_true(c.changes == 1 && c.leases_count > 0);
    assert_true(engine->residency.away && !engine->residency.coming && engine->residency.users == 0);
    assert_int_equal(engine->residency.promised_bytes, 0);
    assert_int_equal(engine->residency.resting_bytes, lv_speculation_memory_bytes(session->speculation));
    while (c.leases_count > 0) lv_store_release(engine->store, &c.leases[--c.leases_count]);
    lv_budget_on_block(engine);
    assert_int_equal(lv_ledger_limit(engine->ledger), c.budget);
    assert_true(lv_ledger_used(engine->ledger) <= c.budget);
    answer(session, LEVER_STRATEGY_LEVER, &got);
    pairs_check_same(&got, &plain, "after a cut that left no room for the draft");
    assert_int_equal(got.statistics.nodes_drafted, 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

typedef struct {
    lever_session *session;
    const pair_answer *plain;
    bool drops;
    uint32_t dropped, drafted, wrong;
} worker;

static void *work(void *user) {
    worker *w = user;
    lever_engine *engine = w->session->engine;
    for (uint32_t round = 0; round < 6; round++) {
        lever_error error;
        lever_generate_options options;
        pair_answer got = {0};
        int32_t prompt[PAIR_PROMPT];
        if (w->drops && lv_residency_enter(engine, w->session->speculation, LV_RESIDENCY_PROMPT)) {
            const bool left = lv_residency_drop(engine, w->session->speculation);
            if (!left) lv_residency_leave(engine, false);
            w->dropped += left;
        }
        pairs_sampling(&options, 0, ANSWER / 4);
        options.tree_nodes = 4;
        pairs_prompt(engine, 0, prompt);
        lever_status status = lever_session_prompt(w->session, prompt, PAIR_PROMPT, &error);
        if (status == LEVER_OK) status = pairs_generate(w->session, &options, &got, &error);
        const bool same =
            got.count == ANSWER / 4 && memcmp(got.ids, w->plain->ids, got.count * sizeof(got.ids[0])) == 0;
        w->wrong += status != LEVER_OK || !same;
        w->drafted += got.statistics.nodes_drafted > 0;
    }
    return NULL;
}

/* Two threads: one session sends the draft away and takes it back, the other writes with and without it. */
static void test_two_threads(void **state) {
    (void)state;
    lever_engine_options options;
    pair_options(&options);
    options.sessions_max = 2;
    lever_engine *engine = lv_test_open(&options);
    lever_session *sessions[2] = {lv_test_session(engine), lv_test_session(engine)};
    pair_answer plain = {0};
    answer(sessions[0], LEVER_STRATEGY_AR, &plain);
    worker workers[2];
    pthread_t threads[2];
    for (uint32_t i = 0; i < 2; i++) {
        workers[i] = (worker){.session = sessions[i], .plain = &plain, .drops = i == 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(workers[0].wrong + workers[1].wrong, 0);
    assert_true(workers[0].drafted + workers[1].drafted > 0);
    assert_int_equal(engine->residency.users, 0);
    assert_int_equal(engine->residency.promised_bytes, 0);
    assert_false(engine->residency.coming);
    uint64_t resting = 0;
    for (uint32_t i = 0; i < 2; i++) resting += lv_speculation_resting_bytes(sessions[i]->speculation);
    assert_int_equal(engine->residency.resting_bytes, resting);
    for (uint32_t i = 0; i < 2; i++) lever_session_close(&sessions[i]);
    lever_engine_close(&engine);
}

/* --- Judging -------------------------------------------------------------------------------------------------------
 */

#define LONG_NS UINT64_C(1000000000000)

/* Cycles that take a thousand seconds: the target alone must win. What is not the session's own work, what it took to
 * begin, and one interruption, are not held against the draft. */
static void test_leaves_in_the_middle(void **state) {
    (void)state;
    static const struct {
        const char *what;
        uint64_t pass_ns, turn_ns, token_ns, odd_ns;
        uint32_t odd_pass;
        bool leaves;
    } cases[] = {
        {.what = "fast", .pass_ns = 1},
        {.what = "a receiver that takes its time", .pass_ns = 1, .token_ns = LONG_NS},
        {.what = "passes of others", .pass_ns = 1, .turn_ns = LONG_NS},
        {.what = "a long first cycle", .pass_ns = 1, .odd_ns = LONG_NS, .odd_pass = 1},
        {.what = "a stop in the middle", .pass_ns = 1, .odd_ns = LONG_NS, .odd_pass = 12},
        {.what = "slow", .pass_ns = LONG_NS, .leaves = true},
    };
    lever_engine_options options;
    lever_session *session;
    pair_answer plain = {0}, got = {0};
    lever_engine *engine = open_answered(&options, &session, &plain);
    answer(session, LEVER_STRATEGY_LEVER, &got);
    assert_false(got.statistics.draft_dropped); /* it is forced */
    let_it_be_judged(engine);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        course.pass_ns = cases[i].pass_ns;
        course.turn_ns = cases[i].turn_ns;
        course.token_ns = cases[i].token_ns;
        course.odd_ns = cases[i].odd_ns;
        course.odd_pass = cases[i].odd_pass;
        const lever_statistics s = answer_in_time(session, ANSWER);
        if (s.draft_dropped != cases[i].leaves)
            fail_msg("%s: it %s", cases[i].what, s.draft_dropped ? "left" : "stayed");
        assert_true(s.nodes_drafted > 0);
        assert_int_equal(engine->residency.away, cases[i].leaves);
    }
    size_t count;
    const int32_t *tokens = lever_session_tokens(session, &count);
    assert_int_equal(count, PAIR_PROMPT + ANSWER);
    assert_memory_equal(tokens + PAIR_PROMPT, plain.ids, ANSWER * sizeof(*tokens));
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* Only an answer that was judged, and was better with the draft, ends the row of those in which it left. */
static void test_what_has_paid(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    lever_engine *engine = open_tight(&options, &session);
    let_it_be_judged(engine);
    course.turn_ns = course.token_ns = course.odd_ns = 0;
    course.pass_ns = 1;
    engine->residency.drops_in_row = 2;
    answer_in_time(session, 8); /* too short to be judged */
    assert_int_equal(engine->residency.drops_in_row, 2);
    course.pass_ns = LONG_NS; /* slower with it, but another one needs it */
    assert_true(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_ANSWER));
    assert_false(answer_in_time(session, ANSWER).draft_dropped);
    lv_residency_leave(engine, false);
    assert_int_equal(engine->residency.drops_in_row, 2);
    course.pass_ns = 1;
    assert_false(answer_in_time(session, ANSWER).draft_dropped);
    assert_int_equal(engine->residency.drops_in_row, 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* What is streamed is seen at the moment: all was pinned when the engine opened, and is not any more. */
static void test_leaves_after_a_cut(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    lever_error error;
    lever_engine *engine = open_pair(&options, &session);
    const lv_layout *layout = engine->weights->layout;
    assert_int_equal(engine->plan.table.pass_read_bytes, 0);
    assert_int_equal(lv_residency_streamed_bytes(engine), 0);
    let_it_be_judged(engine);
    course.turn_ns = course.token_ns = course.odd_ns = 0;
    course.pass_ns = LONG_NS;
    assert_false(answer_in_time(session, ANSWER).draft_dropped); /* its memory is no use to the target */

    lv_budget budget;
    lv_budget_get(engine, &budget);
    CHECK_OK(lever_engine_set_budget(engine, budget.least_bytes + layout->layer_bytes / 2, &error));
    const uint64_t streamed = lv_residency_streamed_bytes(engine);
    assert_true(streamed >= layout->layer_bytes / 4 && streamed <= layout->layer_bytes + layout->head_bytes);
    assert_true(answer_in_time(session, ANSWER).draft_dropped);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static bool cut_once(void *user, int32_t token, const char *text, size_t bytes) {
    lever_engine *engine = user;
    lever_error error;
    lv_budget budget;
    (void)text;
    (void)bytes;
    lv_budget_get(engine, &budget);
    if (token >= 0 && budget.limit_bytes == LV_LEDGER_UNLIMITED) {
        const uint64_t half = engine->weights->layout->layer_bytes / 2;
        CHECK_OK(lever_engine_set_budget(engine, budget.least_bytes + half, &error));
    }
    return true;
}

/* All was pinned when the engine opened, so that reading costs nothing; that changes between answers, and within one,
 * and back again. */
static void test_costs_follow_what_is_streamed(void **state) {
    (void)state;
    lever_engine_options options;
    lever_session *session;
    lever_error error;
    pair_answer got = {0};
    lever_engine *engine = open_pair(&options, &session);
    const lv_costs *costs = &session->cycle.costs;
    answer(session, LEVER_STRATEGY_LEVER, &got);
    assert_true(costs->io_seconds <= 0 && engine->costs.pass_read_bytes == 0);
    for (uint32_t round = 0; round < 2; round++) {
        lever_generate_options generate;
        int32_t prompt[PAIR_PROMPT];
        pairs_sampling(&generate, 0, ANSWER);
        generate.tree_nodes = 4;
        if (round == 0) cut_once(engine, 0, NULL, 0);
        pairs_prompt(engine, 0, prompt);
        CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
        CHECK_OK(lever_session_generate(session, &generate, cut_once, engine, NULL, &error));
        assert_int_equal(engine->costs.pass_read_bytes, lv_residency_streamed_bytes(engine));
        assert_true(costs->io_seconds > 0 && engine->costs.pass_read_bytes > 0);
        assert_true(engine->costs.costs.io_seconds > 0);

        CHECK_OK(lever_engine_set_budget(engine, 0, &error));
        answer(session, LEVER_STRATEGY_AR, &got); /* blocks are pinned as they pass */
        assert_int_equal(lv_residency_streamed_bytes(engine), 0);
        answer(session, LEVER_STRATEGY_LEVER, &got);
        assert_true(costs->io_seconds <= 0 && engine->costs.costs.io_seconds <= 0);
        assert_int_equal(engine->costs.pass_read_bytes, 0);
    }
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
    *table = (lever_plan){0};
    /* 150 MB at 2 GB/s are 75 ms, and 5 ms go to the head: 12.5 tokens a second, of which 8.1 are asked for. Where the
     * layers take 200 ms, 4.9 and 3.2; and less than that where one of two threads was seen to take 460 ms. */
    static const struct {
        double layers, one;
        uint64_t tokens, cycles;
        double seconds;
        bool better;
    } cases[] = {
        {0.03, 0, 32, 10, 4.0, true},   {0.03, 0, 33, 10, 4.0, false},   {0.03, 0, 16, 7, 4.0, false},
        {0.03, 0, 90, 10, 4.0, false},  {0.2, 0, 12, 10, 4.0, true},     {0.2, 0, 13, 10, 4.0, false},
        {0.03, 0.4, 10, 10, 4.0, true}, {0.03, 0.4, 12, 10, 4.0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const lv_residency_progress progress = {.tokens = cases[i].tokens,
                                                .cycles = cases[i].cycles,
                                                .seconds = cases[i].seconds,
                                                .bytes_read = 4000000000,
                                                .reading_seconds = 2.0,
                                                .streamed_bytes = 400000000};
        double expected = 0;
        lv_costs *costs = &session->cycle.costs;
        lv_costs_init(costs, cases[i].layers, 0.001, 0.005, 0, 0);
        for (size_t p = 0; p < LV_COST_POINTS; p++) costs->layers[LV_SPLIT_ONE].seconds[p] += cases[i].one;
        const bool better = lv_residency_is_better_without(engine, session->speculation, &progress, &expected);
        if (better != cases[i].better) fail_msg("case %zu: %.2f tokens a second expected", i, expected);
        assert_int_equal(lv_residency_is_judged(engine, &progress), cases[i].cycles > 7);
    }
    lv_residency_progress slow = {.tokens = 1, .cycles = 10, .seconds = 4.0, .streamed_bytes = 400000000};
    double expected = 0;
    assert_true(lv_residency_is_better_without(engine, session->speculation, &slow, &expected));
    slow.streamed_bytes = 0; /* everything is pinned: nothing to gain */
    assert_false(lv_residency_is_better_without(engine, session->speculation, &slow, &expected));
    slow.streamed_bytes = 400000000;
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
        cmocka_unit_test(test_a_cache_that_cannot_be_had),
        cmocka_unit_test(test_callbacks_come_without_locks),
        cmocka_unit_test(test_coming_back_can_be_cancelled),
        cmocka_unit_test(test_others_go_on_while_it_comes),
        cmocka_unit_test(test_a_change_keeps_the_promise),
        cmocka_unit_test(test_a_cut_ends_the_promise),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_leaves_in_the_middle),
        cmocka_unit_test(test_what_has_paid),
        cmocka_unit_test(test_leaves_after_a_cut),
        cmocka_unit_test(test_costs_follow_what_is_streamed),
        cmocka_unit_test(test_judging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
