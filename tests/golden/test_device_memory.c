/* link: --wrap=lv_system_memory_read */
/* test_device_memory.c - a device under a budget that is cut, by the caller or the watch, while sessions decode: its
 * buffers are booked and stay, blocks go, the text is the CPU's. A draft that leaves gives its buffers back. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/residency.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"
#include "support/scratch.h"
#include "support/usable_memory.h"

enum { SESSIONS = 3, PROMPT = 8, NODES = 3, ANSWER = 12, CUT_AT = 4, LOOKS = 400 };

static const pair_way some_way = {.level = {[PAIR_THREADS] = 1, [PAIR_COSTS] = 1}};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* --- Engines ------------------------------------------------------------------------------------------------------ */

/* The large target in a type that the device runs. */
static const char *model_path(void) {
    static char path[512];
    if (path[0]) return path;
    lever_pack_options options;
    lever_error error;
    lever_pack_options_init(&options);
    options.type = "q8_0";
    CHECK_OK(lever_pack(PAIR_LARGE, scratch_path("large.lvr", path, sizeof(path)), &options, &error));
    return path;
}

/* The pair, whose budget holds all layers and `sessions` sessions beside the device. The blocks are few: the device's
 * thread is woken for each of them. */
static lever_engine *open_pair(lever_engine_options *options, const char *device, uint32_t sessions) {
    lever_plan plan;
    lever_error error;
    pairs_large_options(options, &some_way);
    options->model_path = model_path();
    options->block_bytes = 1u << 20;
    options->sessions_max = sessions;
    options->device = device;
    options->device_use = LEVER_DEVICE_BOTH;
    CHECK_OK(lever_engine_plan(options, &plan, &error));
    options->ram_unlimited = false;
    options->ram_bytes = plan.total_bytes;
    return lv_test_open(options);
}

static lever_engine *open_on_device(lever_engine_options *options, uint32_t sessions) {
    lever_engine *engine = open_pair(options, "test", sessions);
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    assert_true(info.device_target && info.device_draft);
    return engine;
}

static uint64_t device_bytes(const lever_engine *engine) {
    return lv_ledger_used_by(engine->ledger, LV_MEM_DEVICE);
}

static uint64_t pinned_bytes(const lever_engine *engine) {
    lv_store_counters counters;
    lv_store_get_counters(engine->store, &counters);
    return counters.pinned_bytes;
}

/* A budget for all that is in use, and a share of what is pinned. */
static uint64_t budget_for(const lever_engine *engine, uint64_t percent) {
    const uint64_t pinned = pinned_bytes(engine) + lv_ledger_used_by(engine->ledger, LV_MEM_HEAD);
    return lv_ledger_used(engine->ledger) - pinned + pinned * percent / 100;
}

/* What the plan set aside for the buffers, at most, is what they take. */
static uint64_t planned_device_bytes(const lever_engine *engine) {
    return lv_accelerator_target_bytes(&engine->accelerator, engine->weights) +
           lv_accelerator_draft_bytes(&engine->accelerator, engine->draft);
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static lever_status answer(lever_session *session, uint32_t prompt, lever_strategy strategy, pair_answer *to,
                           lever_error *error) {
    int32_t tokens[PAIR_PROMPT];
    lever_generate_options options;
    pairs_sampling(&options, 1, ANSWER);
    options.strategy = strategy;
    options.tree_nodes = NODES;
    pairs_prompt(session->engine, prompt, tokens);
    lever_status status = lever_session_rewind(session, 0, error);
    if (status == LEVER_OK) status = lever_session_prompt(session, tokens, PROMPT, error);
    return status == LEVER_OK ? pairs_generate(session, &options, to, error) : status;
}

static pair_answer plain[PAIR_PROMPTS]; /* on the CPU */

static int make_plain(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_engine *engine = open_pair(&options, NULL, 1);
    lever_session *session = lv_test_session(engine);
    for (uint32_t i = 0; i < PAIR_PROMPTS; i++) CHECK_OK(answer(session, i, LEVER_STRATEGY_AR, &plain[i], &error));
    lever_session_close(&session);
    lever_engine_close(&engine);
    return 0;
}

/* The speculated answer is the CPU's plain one, and all of it came from the device. */
static void check_answer(lever_session *session, uint32_t prompt) {
    static pair_answer got;
    lever_error error;
    CHECK_OK(answer(session, prompt, LEVER_STRATEGY_LEVER, &got, &error));
    pairs_check_same(&got, &plain[prompt], "on the device");
    assert_true(got.statistics.nodes_drafted > 0);
    assert_int_equal(got.statistics.device_layer_rows, got.statistics.layer_rows);
}

/* --- A budget that is cut ----------------------------------------------------------------------------------------- */

/* Counts tokens, and cuts at one of them. */
typedef struct {
    lever_engine *engine;
    uint64_t limit, device_bytes;
    uint32_t count, cut_at;
    int32_t ids[ANSWER];
} cutter;

static bool take_and_cut(void *user, int32_t token, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    cutter *c = user;
    lever_error error;
    if (token >= 0) c->ids[c->count++] = token;
    if (c->count == c->cut_at) CHECK_OK(lever_engine_set_budget(c->engine, c->limit, &error));
    if (c->count >= c->cut_at) {
        assert_int_equal(lv_ledger_limit(c->engine->ledger), c->limit);
        assert_true(lv_ledger_used(c->engine->ledger) <= c->limit);
    }
    assert_int_equal(device_bytes(c->engine), c->device_bytes);
    return true;
}

/* To 60 % of the blocks in the middle of an answer: no lease is out then, and the limit is in force at once. */
static void test_cut_while_decoding(void **state) {
    (void)state;
    lever_engine_options options;
    lever_generate_options generate;
    lever_error error;
    int32_t tokens[PAIR_PROMPT];
    lever_engine *engine = open_on_device(&options, 1);
    lever_session *session = lv_test_session(engine);
    const uint64_t bytes = device_bytes(engine), pinned = pinned_bytes(engine);
    assert_true(bytes > 0 && bytes <= planned_device_bytes(engine));
    assert_int_equal(pinned, engine->weights->layout->layer_bytes);
    cutter c = {.engine = engine, .limit = budget_for(engine, 60), .device_bytes = bytes, .cut_at = CUT_AT};
    pairs_sampling(&generate, 1, ANSWER);
    generate.tree_nodes = NODES;
    pairs_prompt(engine, 0, tokens);
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    CHECK_OK(lever_session_generate(session, &generate, take_and_cut, &c, NULL, &error));
    assert_int_equal(c.count, ANSWER);
    assert_memory_equal(c.ids, plain[0].ids, sizeof(c.ids));
    assert_true(pinned_bytes(engine) < pinned);
    check_answer(session, 1);

    /* Down to what is in use, then back to all. */
    const uint64_t least = budget_for(engine, 0);
    CHECK_OK(lever_engine_set_budget(engine, least, &error));
    check_answer(session, 2);
    assert_int_equal(pinned_bytes(engine), 0);
    assert_true(lv_ledger_used(engine->ledger) <= least);
    CHECK_FAILS(lever_engine_set_budget(engine, bytes, &error), LEVER_E_BUDGET, "cannot give up");
    CHECK_OK(lever_engine_set_budget(engine, options.ram_bytes, &error));
    check_answer(session, 0);
    check_answer(session, 1);
    assert_true(pinned_bytes(engine) > 0);
    assert_true(lv_ledger_used(engine->ledger) <= options.ram_bytes);
    assert_int_equal(device_bytes(engine), bytes);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* While blocks that are to go are leased, the old limit is in force; a pass on the device brings the new one. */
static void test_a_cut_that_waits(void **state) {
    (void)state;
    enum { LEASES = 16 };
    lever_engine_options options;
    lever_error error;
    lever_engine *engine = open_on_device(&options, 1);
    lever_session *session = lv_test_session(engine);
    const uint64_t limit = budget_for(engine, 0);
    lv_lease leases[LEASES];
    for (uint32_t b = 0; b < LEASES; b++) CHECK_OK(lv_store_acquire(engine->store, b, NULL, &leases[b], &error));
    CHECK_OK(lever_engine_set_budget(engine, limit, &error));
    assert_true(lv_ledger_limit(engine->ledger) > limit);
    for (uint32_t b = 0; b < LEASES; b++) lv_store_release(engine->store, &leases[b]);
    assert_true(lv_ledger_limit(engine->ledger) > limit);
    check_answer(session, 0);
    assert_int_equal(lv_ledger_limit(engine->ledger), limit);
    assert_true(lv_ledger_used(engine->ledger) <= limit);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* --- Several sessions --------------------------------------------------------------------------------------------- */

/* Answers until it is told to stop, each prompt in turn. */
typedef struct {
    lever_engine *engine;
    uint32_t prompt;
    atomic_bool stop;
    atomic_uint answers, wrong;
    pair_answer got;
    lever_error error;
} worker;

static void *work(void *user) {
    worker *w = user;
    lever_session *session = NULL;
    if (lever_session_open(&session, w->engine, NULL, &w->error) != LEVER_OK) {
        atomic_fetch_add(&w->wrong, 1);
        return NULL;
    }
    for (; !atomic_load(&w->stop) && atomic_load(&w->wrong) == 0; w->prompt = (w->prompt + 1) % PAIR_PROMPTS) {
        const lever_status status = answer(session, w->prompt, LEVER_STRATEGY_LEVER, &w->got, &w->error);
        const pair_answer *wanted = &plain[w->prompt];
        const bool same = status == LEVER_OK && w->got.count == wanted->count &&
                          memcmp(w->got.ids, wanted->ids, wanted->count * sizeof(wanted->ids[0])) == 0;
        atomic_fetch_add(same ? &w->answers : &w->wrong, 1);
    }
    lever_session_close(&session);
    return NULL;
}

typedef struct {
    worker workers[SESSIONS];
    pthread_t threads[SESSIONS];
} crew;

static crew *start_crew(lever_engine *engine) {
    crew *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        c->workers[i].engine = engine;
        c->workers[i].prompt = i % PAIR_PROMPTS;
        assert_int_equal(pthread_create(&c->threads[i], NULL, work, &c->workers[i]), 0);
    }
    return c;
}

/* Until each session has given another answer, or something went wrong, which ending tells. */
static void await_answers(crew *c) {
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const uint32_t before = atomic_load(&c->workers[i].answers);
        while (atomic_load(&c->workers[i].answers) == before && atomic_load(&c->workers[i].wrong) == 0) sleep_ms(1);
    }
}

static void end_crew(crew *c) {
    for (uint32_t i = 0; i < SESSIONS; i++) atomic_store(&c->workers[i].stop, true);
    for (uint32_t i = 0; i < SESSIONS; i++) pthread_join(c->threads[i], NULL);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (atomic_load(&c->workers[i].wrong) > 0)
            fail_msg("session %u, prompt %u: %s", i, c->workers[i].prompt, c->workers[i].error.message);
        assert_true(atomic_load(&c->workers[i].answers) > 0);
    }
    free(c);
}

static void test_cut_while_several_decode(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_engine *engine = open_on_device(&options, SESSIONS);
    const uint64_t bytes = device_bytes(engine);
    crew *c = start_crew(engine);
    await_answers(c);
    const uint64_t limits[] = {budget_for(engine, 60), options.ram_bytes, budget_for(engine, 40),
                               budget_for(engine, 80)};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const uint64_t limit = limits[i];
        CHECK_OK(lever_engine_set_budget(engine, limit, &error));
        await_answers(c);
        assert_int_equal(lv_ledger_limit(engine->ledger), limit);
        assert_true(lv_ledger_used(engine->ledger) <= limit);
        assert_int_equal(device_bytes(engine), bytes);
    }
    end_crew(c);
    assert_true(lv_ledger_peak(engine->ledger) <= options.ram_bytes);
    lever_engine_close(&engine);
}

/* --- The watch ---------------------------------------------------------------------------------------------------- */

/* The system is short of memory while sessions decode, and then is not. */
static void test_watched_while_several_decode(void **state) {
    (void)state;
    lever_engine_options options;
    atomic_store(&usable_bytes, (uint64_t)1 << 40);
    lever_engine *engine = open_on_device(&options, SESSIONS);
    lever_engine_close(&engine);
    options.watch_memory = true;
    engine = lv_test_open(&options);
    const uint64_t bytes = device_bytes(engine), pinned = pinned_bytes(engine);
    assert_true(pinned > 0);
    crew *c = start_crew(engine);
    await_answers(c);
    atomic_store(&usable_bytes, 1);
    for (uint32_t i = 0; i < LOOKS && pinned_bytes(engine) > 0; i++) sleep_ms(50);
    assert_int_equal(pinned_bytes(engine), 0);
    await_answers(c);
    assert_true(lv_ledger_limit(engine->ledger) < options.ram_bytes);
    assert_true(lv_ledger_used(engine->ledger) <= lv_ledger_limit(engine->ledger));
    assert_int_equal(device_bytes(engine), bytes);
    atomic_store(&usable_bytes, (uint64_t)1 << 40);
    for (uint32_t i = 0; i < LOOKS && pinned_bytes(engine) < pinned / 2; i++) sleep_ms(50);
    assert_true(pinned_bytes(engine) >= pinned / 2);
    await_answers(c);
    end_crew(c);
    atomic_store(&usable_bytes, 0);
    assert_true(lv_ledger_peak(engine->ledger) <= options.ram_bytes);
    lever_engine_close(&engine);
}

/* --- The draft ---------------------------------------------------------------------------------------------------- */

/* Its buffers leave with it, for blocks of the target, and come back with it, as many. */
static void test_a_draft_leaves_the_device(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_engine *engine = open_on_device(&options, 1);
    lever_session *session = lv_test_session(engine);
    check_answer(session, 0);
    const uint64_t limit = budget_for(engine, 60), with_draft = device_bytes(engine);
    CHECK_OK(lever_engine_set_budget(engine, limit, &error));
    const uint64_t pinned = pinned_bytes(engine);
    assert_true(lv_residency_enter(engine, session->speculation, LV_RESIDENCY_PROMPT));
    assert_true(lv_residency_drop(engine, session->speculation));
    const uint64_t without = device_bytes(engine);
    assert_true(without < with_draft);
    assert_true(without <= lv_accelerator_target_bytes(&engine->accelerator, engine->weights));
    static pair_answer got;
    CHECK_OK(answer(session, 1, LEVER_STRATEGY_LEVER, &got, &error)); /* the one without it */
    pairs_check_same(&got, &plain[1], "without the draft");
    assert_int_equal(got.statistics.nodes_drafted, 0);
    assert_int_equal(got.statistics.device_layer_rows, got.statistics.layer_rows);
    assert_true(pinned_bytes(engine) > pinned);
    assert_true(lv_ledger_used(engine->ledger) <= limit);
    check_answer(session, 2);
    assert_int_equal(device_bytes(engine), with_draft);
    assert_true(lv_ledger_used(engine->ledger) <= limit);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_while_decoding),        cmocka_unit_test(test_a_cut_that_waits),
        cmocka_unit_test(test_cut_while_several_decode),  cmocka_unit_test(test_watched_while_several_decode),
        cmocka_unit_test(test_a_draft_leaves_the_device),
    };
    return cmocka_run_group_tests(tests, make_plain, NULL);
}
