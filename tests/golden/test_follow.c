/* link: --wrap=lv_costs_learn_pass,--wrap=lv_costs_learn_draft,--wrap=lv_forward_logits */
/* A disk, or cores, that become slower in the middle of an answer, and fast again: within a few cycles trees and
 * threads are what such a machine wants. Models, passes and reads are real; what they take is told by a false clock, so
 * that every run has the same cycles. */
#include <pthread.h>
#include <stdlib.h>

#include "engine/engine_state.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

/* --- The false machine ------------------------------------------------------------------------------------------- */

static struct {
    double read, row_all, row_one, step,
        head_row; /* seconds: of all that a pass streams, of a row, of a draft's forward */
    double pass_end;
    lv_clock_virtual time;
    lv_clock clock;
    pthread_t caller; /* what others do takes no time of its cycle */
} machine;

static double now(void) {
    return lv_seconds(machine.time.now_ns);
}

static void spend(double seconds) {
    if (pthread_equal(pthread_self(), machine.caller)) machine.time.now_ns += (uint64_t)(seconds * 1e9);
}

void __real_lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took);
void __wrap_lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took);
void __wrap_lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took) {
    (void)took;
    const double idle = machine.pass_end > 0 ? now() - machine.pass_end : 0;
    const double compute = rows * (split == LV_SPLIT_ONE ? machine.row_one : machine.row_all);
    const double left = machine.read - (idle < costs->ring_seconds ? idle : costs->ring_seconds);
    const double pass = compute > left ? compute : left;
    const lv_pass_seconds false_times = {
        .pass = pass, .compute = compute, .wait = pass - compute, .idle = idle, .read = machine.read};
    spend(pass);
    machine.pass_end = now();
    __real_lv_costs_learn_pass(costs, split, rows, &false_times);
}

void __real_lv_costs_learn_draft(lv_costs *costs, lv_split split, uint32_t rows, double seconds);
void __wrap_lv_costs_learn_draft(lv_costs *costs, lv_split split, uint32_t rows, double seconds);
void __wrap_lv_costs_learn_draft(lv_costs *costs, lv_split split, uint32_t rows, double seconds) {
    (void)seconds;
    spend(machine.step);
    __real_lv_costs_learn_draft(costs, split, rows, machine.step);
}

lever_status __real_lv_forward_logits(lv_forward *forward, const uint32_t *rows, size_t count, float *logits,
                                      lever_error *error);
lever_status __wrap_lv_forward_logits(lv_forward *forward, const uint32_t *rows, size_t count, float *logits,
                                      lever_error *error);
lever_status __wrap_lv_forward_logits(lv_forward *forward, const uint32_t *rows, size_t count, float *logits,
                                      lever_error *error) {
    spend((double)count * machine.head_row);
    return __real_lv_forward_logits(forward, rows, count, logits, error);
}

/* --- An answer that is watched ----------------------------------------------------------------------------------- */

enum { ANSWER = 120, CYCLES_MAX = 2 * ANSWER, CHANGED_AT = 8, BACK_AT = 20, FOLLOWS_WITHIN = 5 };

typedef struct {
    lever_engine *engine;
    lever_session *session;
    lever_generate_options generate;
    pair_answer wanted, got;
    uint64_t limit;
    uint32_t cycles, nodes[CYCLES_MAX];
    bool ahead[CYCLES_MAX];
    void (*change)(void); /* before cycle CHANGED_AT; undone before BACK_AT */
} world;

static void set_machine(double read, double row_all, double row_one) {
    machine.read = read;
    machine.row_all = row_all;
    machine.row_one = row_one;
    machine.step = 1e-3;
    machine.head_row = 5e-4;
}

static void usual(void) {
    set_machine(.02, .002, .004);
}

static void watch(void *user, const char *line) {
    world *w = user;
    assert_true(w->cycles < CYCLES_MAX);
    const char *nodes = strstr(line, "\"nodes_verified\":");
    assert_non_null(nodes);
    w->nodes[w->cycles] = (uint32_t)strtoul(nodes + strlen("\"nodes_verified\":"), NULL, 10);
    w->ahead[w->cycles] = strstr(line, "\"ahead\":true") != NULL;
    w->cycles++;
    if (w->cycles == CHANGED_AT && w->change) w->change();
    if (w->cycles == BACK_AT) usual();
    /* At every moment since the budget was set. */
    const uint64_t most = lv_ledger_peak(w->engine->ledger);
    if (w->limit > 0 && most > w->limit) fail_msg("cycle %u: %llu bytes in use", w->cycles, (unsigned long long)most);
}

static void answer(world *w, pair_answer *to) {
    int32_t prompt[PAIR_PROMPT];
    lever_error error;
    pairs_prompt(w->engine, 1, prompt);
    machine.pass_end = 0;
    w->cycles = 0;
    w->generate.trace = watch;
    w->generate.trace_user = w;
    CHECK_OK(lever_session_prompt(w->session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(w->session, &w->generate, to, &error));
    assert_true(w->cycles > BACK_AT + 2 * FOLLOWS_WITHIN);
}

/* With costs that know the usual machine, from answers before, and a budget that is just kept. */
static void open_world(world *w, uint32_t threads, bool ahead) {
    /* With all in memory, whatever the false clock says of reading, no real time decides who computes. */
    const pair_way way = {.level = {[PAIR_THREADS] = (uint8_t)(threads - 1),
                                    [PAIR_AHEAD] = !ahead,
                                    [PAIR_LOOKUP] = 1,
                                    [PAIR_BUDGET] = threads > 1 ? 2 : 0}};
    lever_engine_options options;
    lever_error error;
    lv_budget budget;
    memset(w, 0, sizeof(*w));
    memset(&machine, 0, sizeof(machine));
    machine.caller = pthread_self();
    machine.clock = lv_clock_of_virtual(&machine.time);
    machine.time.now_ns = 1000000;
    usual();
    pairs_engine_options(&options, &way);
    w->engine = lv_test_open(&options);
    w->session = lv_test_session(w->engine);
    w->session->clock = &machine.clock;
    pairs_generate_options(&w->generate, &way, ANSWER);
    lv_budget_get(w->engine, &budget);
    w->limit = budget.least_bytes + lv_ledger_used_by(w->engine->ledger, LV_MEM_PINNED) +
               lv_ledger_used_by(w->engine->ledger, LV_MEM_HEAD);
    CHECK_OK(lever_engine_set_budget(w->engine, w->limit, &error));
    answer(w, &w->wanted);
}

static void close_world(world *w) {
    lever_session_close(&w->session);
    lever_engine_close(&w->engine);
}

static double mean_nodes(const world *w, uint32_t from, uint32_t to) {
    double sum = 0;
    for (uint32_t i = from; i < to; i++) sum += w->nodes[i];
    return sum / (to - from);
}

static double ahead_share(const world *w, uint32_t from, uint32_t to) {
    double sum = 0;
    for (uint32_t i = from; i < to; i++) sum += w->ahead[i];
    return sum / (to - from);
}

/* Before, behind the change, and when it is undone: each from the cycle on in which it has to be known. */
typedef struct {
    double before, changed, back;
} course;

static course nodes_of(const world *w) {
    const course c = {mean_nodes(w, 0, CHANGED_AT), mean_nodes(w, CHANGED_AT + FOLLOWS_WITHIN, BACK_AT),
                      mean_nodes(w, BACK_AT + FOLLOWS_WITHIN, w->cycles)};
    print_message("%.1f nodes, then %.1f, then %.1f of %u cycles; ahead %.2f, %.2f, %.2f\n", c.before, c.changed,
                  c.back, w->cycles, ahead_share(w, 0, CHANGED_AT),
                  ahead_share(w, CHANGED_AT + FOLLOWS_WITHIN, BACK_AT),
                  ahead_share(w, BACK_AT + FOLLOWS_WITHIN, w->cycles));
    return c;
}

static course run_changed(world *w, void (*change)(void), const char *what) {
    w->change = change;
    answer(w, &w->got);
    pairs_check_same(&w->got, &w->wanted, what);
    return nodes_of(w);
}

/* --- The tests --------------------------------------------------------------------------------------------------- */

static void slow_disk(void) {
    set_machine(.08, .002, .004);
}
static void slow_cores(void) {
    set_machine(.02, .008, .016);
}
static void crowded_cores(void) {
    set_machine(.02, .008, .004);
    machine.head_row *= 4;
}

static void test_a_disk_that_slows_down(void **state) {
    (void)state;
    world w;
    open_world(&w, 1, false);
    const course c = run_changed(&w, slow_disk, "a slower disk");
    assert_true(c.changed > 3 * c.before);
    assert_true(c.back < 1.25 * c.before);
    close_world(&w);
}

static void test_cores_that_slow_down(void **state) {
    (void)state;
    world w;
    open_world(&w, 1, false);
    const course c = run_changed(&w, slow_cores, "slower cores");
    assert_true(c.changed < 0.5 * c.before);
    assert_true(c.back > 0.75 * c.before);
    close_world(&w);
}

static void test_cores_that_wait_for_each_other(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, true);
    run_changed(&w, crowded_cores, "crowded cores");
    assert_true(ahead_share(&w, 0, CHANGED_AT) < 0.25);
    assert_true(ahead_share(&w, CHANGED_AT + FOLLOWS_WITHIN, BACK_AT) > 0.6);
    assert_true(ahead_share(&w, BACK_AT + FOLLOWS_WITHIN, w.cycles) < 0.25);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_disk_that_slows_down),
        cmocka_unit_test(test_cores_that_slow_down),
        cmocka_unit_test(test_cores_that_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
