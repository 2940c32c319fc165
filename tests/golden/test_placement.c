/* link: --wrap=lv_forward_layers */
/* test_placement.c - who computes which pass, by what was measured: on a device that tells costs beyond what a CPU
 * could ever take, or below, every pass of an engine can be foretold. The text is the CPU's all the while. */
#include <pthread.h>

#include "compute/forward_state.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

enum { ANSWER = 100, NARROW = 4, PASSES_MAX = 4096 };

/* A run of at most 4 rows takes ten seconds, of more a nanosecond; and the other way round. */
#define WIDE_PAYS "test:buckets=4+64,costs=10000000000+1"
#define NARROW_PAYS "test:buckets=4+64,costs=1+10000000000"

/* --- What was computed where -------------------------------------------------------------------------------------- */

typedef struct {
    const lv_forward *forward;
    uint32_t rows;
    bool on_device;
} pass;

/* The draft may be ahead while the target computes. */
static struct {
    pthread_mutex_t lock;
    pass passes[PASSES_MAX];
    uint32_t count;
    bool divided; /* a pass was computed here and there */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t device_rows(const lv_forward *forward) {
    lv_forward_counters counters;
    lv_forward_get_counters(forward, &counters);
    return counters.device_layer_rows;
}

lever_status __real_lv_forward_layers(lv_forward *f, uint32_t layer_first, uint32_t layers_count, lever_error *error);
lever_status __wrap_lv_forward_layers(lv_forward *f, uint32_t layer_first, uint32_t layers_count, lever_error *error);
lever_status __wrap_lv_forward_layers(lv_forward *f, uint32_t layer_first, uint32_t layers_count, lever_error *error) {
    const uint64_t before = device_rows(f);
    const uint32_t rows = (uint32_t)f->pass.rows_count;
    const lever_status status = __real_lv_forward_layers(f, layer_first, layers_count, error);
    const uint64_t on_device = device_rows(f) - before;
    pthread_mutex_lock(&seen.lock);
    if (status == LEVER_OK && seen.count < PASSES_MAX) seen.passes[seen.count++] = (pass){f, rows, on_device > 0};
    seen.divided |= status == LEVER_OK && on_device > 0 && on_device != (uint64_t)layers_count * rows;
    pthread_mutex_unlock(&seen.lock);
    return status;
}

/* Of a class of passes: how many, how many of them on the device, and how many where they are slower. */
typedef struct {
    uint32_t passes, on_device, retried;
} class_counts;

/* The first pass is the device's, the second the CPU's; then who is faster, but for every 48th. */
static bool is_due_on_device(uint32_t earlier, bool pays, bool *retried) {
    *retried = earlier >= 2 && (earlier - 1) % LV_PLACEMENT_RETRY == 0;
    if (earlier < 2) return earlier == 0;
    return *retried ? !pays : pays;
}

static void check_passes(const lv_forward *forward, bool wide_pays, class_counts counts[2]) {
    memset(counts, 0, 2 * sizeof(*counts));
    for (uint32_t i = 0; i < seen.count; i++) {
        const pass *p = &seen.passes[i];
        if (p->forward != forward) continue;
        class_counts *c = &counts[p->rows > NARROW];
        bool retried;
        const bool wanted = is_due_on_device(c->passes, wide_pays == (p->rows > NARROW), &retried);
        if (p->on_device != wanted)
            fail_msg("pass %u of its class, of %u rows, %s on the device", c->passes, p->rows,
                     wanted ? "was not" : "was");
        c->passes++;
        c->on_device += p->on_device;
        c->retried += retried;
    }
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

/* Passes of one row, of six and of many; the draft's of one row and of several. */
static const struct {
    lever_strategy strategy;
    uint32_t nodes;
} ways[] = {{LEVER_STRATEGY_AR, 0}, {LEVER_STRATEGY_CHAIN, 5}, {LEVER_STRATEGY_LEVER, 40}, {LEVER_STRATEGY_EDGE, 0}};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static lever_engine *open_pair(const char *device) {
    const pair_way way = {.level = {[PAIR_COSTS] = 1}};
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    options.device = device;
    return lv_test_open(&options);
}

static void answer(lever_session *session, uint32_t way, pair_answer *to) {
    lever_error error;
    lever_generate_options options;
    int32_t prompt[PAIR_PROMPT];
    pairs_sampling(&options, 1, ANSWER);
    options.strategy = ways[way].strategy;
    options.no_lookup = true;
    options.chain_length = options.tree_nodes = 0;
    if (ways[way].strategy == LEVER_STRATEGY_CHAIN) options.chain_length = ways[way].nodes;
    if (ways[way].strategy == LEVER_STRATEGY_LEVER) options.tree_nodes = ways[way].nodes;
    pairs_prompt(session->engine, 1, prompt);
    CHECK_OK(lever_session_rewind(session, 0, &error));
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &options, to, &error));
}

static void check_costs(const char *device, bool wide_pays) {
    static pair_answer plain, got;
    lever_engine *engine = open_pair(NULL);
    lever_session *session = lv_test_session(engine);
    answer(session, 0, &plain);
    lever_session_close(&session);
    lever_engine_close(&engine);

    engine = open_pair(device);
    session = lv_test_session(engine);
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    assert_true(info.device_target && info.device_draft);
    seen.count = 0;
    for (uint32_t w = 0; w < WAYS; w++) {
        const uint64_t before = device_rows(engine->forward);
        answer(session, w, &got);
        pairs_check_same(&got, &plain, lever_strategy_text(ways[w].strategy));
        assert_true(got.statistics.device_layer_rows <= device_rows(engine->forward) - before);
    }
    assert_true(seen.count < PASSES_MAX && !seen.divided);
    class_counts target[2], draft[2];
    check_passes(engine->forward, wide_pays, target);
    check_passes(engine->draft->forward, wide_pays, draft);
    for (uint32_t wide = 0; wide < 2; wide++) {
        print_message("%s: target %u passes, %u on the device, %u retried; draft %u, %u, %u\n",
                      wide ? "wide" : "narrow", target[wide].passes, target[wide].on_device, target[wide].retried,
                      draft[wide].passes, draft[wide].on_device, draft[wide].retried);
        assert_true(target[wide].passes > 20 && draft[wide].passes > 20);
    }
    /* Often enough that the slower one was tried again. */
    assert_true(target[0].retried > 0 && draft[0].retried > 0);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_wide_passes_go_to_the_device(void **state) {
    (void)state;
    check_costs(WIDE_PAYS, true);
}

static void test_narrow_passes_go_to_the_device(void **state) {
    (void)state;
    check_costs(NARROW_PAYS, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_passes_go_to_the_device),
        cmocka_unit_test(test_narrow_passes_go_to_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
