/* link: --wrap=lv_os_pread,--wrap=lv_system_memory_read,--wrap=ggml_graph_compute,--wrap=lv_costs_learn_pass */
/* The state of the system changes while text is being written: less memory, a slower disk, another process on the
 * cores. The text stays, the budget is kept, and what cycles are chosen by follows within a few of them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/os_file.h"
#include "engine/engine_state.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/models.h"
#include "support/pairs.h"
#include "support/sanitizer.h"
#include "support/usable_memory.h"

enum { ANSWER = 96 };

/* --- A system that can be made slow, or short of memory ---------------------------------------------------------- */

static atomic_uint read_sleep_us;
static atomic_uint compute_sleep_us;

static void sleep_us(unsigned us) {
    if (us > 0) nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000L}, NULL);
}

ssize_t __real_lv_os_pread(int fd, void *data, size_t bytes, uint64_t offset);
ssize_t __wrap_lv_os_pread(int fd, void *data, size_t bytes, uint64_t offset);
ssize_t __wrap_lv_os_pread(int fd, void *data, size_t bytes, uint64_t offset) {
    if (bytes > 4096) sleep_us(atomic_load(&read_sleep_us)); /* blocks, not rows of embeddings */
    return __real_lv_os_pread(fd, data, bytes, offset);
}

/* All that is computed, steps of our own kernels too, is computed in here, and its time is taken around it. The int
 * stands for an enum ggml_status. */
int __real_ggml_graph_compute(void *graph, void *plan);
int __wrap_ggml_graph_compute(void *graph, void *plan);
int __wrap_ggml_graph_compute(void *graph, void *plan) {
    sleep_us(atomic_load(&compute_sleep_us));
    return __real_ggml_graph_compute(graph, plan);
}

/* What the last pass was: the costs are looked at where it was taken into them. */
static lv_split learned_split;
static uint32_t learned_rows;

void __real_lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took);
void __wrap_lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took);
void __wrap_lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took) {
    learned_split = split;
    learned_rows = rows;
    __real_lv_costs_learn_pass(costs, split, rows, took);
}

/* --- An answer that is watched ----------------------------------------------------------------------------------- */

typedef struct {
    lever_engine *engine;
    lever_session *session;
    int32_t prompt[PAIR_PROMPT];
    size_t prompt_count;
    lever_generate_options generate;
    pair_answer wanted, got; /* while nothing changed, and then */
    uint64_t cycles;
    void (*on_cycle)(void *world, uint64_t cycle);

    uint64_t cut_cycle, limit;          /* when the budget is cut, and to what */
    uint64_t below_cycle;               /* the first cycle that ended below; 0: none yet */
    uint64_t passed;                    /* cycles after that which ended above */
    uint64_t fixed_before, fixed_after; /* what is not pinned */
    uint64_t pinned_before, pinned_after;
    double io_target;
    uint64_t io_cycle; /* the first cycle whose costs knew the slower disk */

    uint64_t above; /* cycles that ended above the limit */
    double layers_target;
    double layers_before, layers_after; /* what the costs said of the pass before the cores were busy, and then */
    uint32_t layers_rows;
    uint64_t layers_cycle; /* the first cycle whose costs knew the busy cores */
} world;

static void watch_cycle(void *user, const char *line) {
    (void)line;
    world *w = user;
    w->cycles++;
    if (w->on_cycle) w->on_cycle(w, w->cycles);
}

static void open_world(world *w, const lever_engine_options *options) {
    memset(w, 0, sizeof(*w));
    w->engine = lv_test_open(options);
    w->session = lv_test_session(w->engine);
}

static void close_world(world *w) {
    lever_session_close(&w->session);
    lever_engine_close(&w->engine);
}

static void answer(world *w, pair_answer *to) {
    lever_error error;
    lever_generate_options watched = w->generate;
    watched.trace = watch_cycle;
    watched.trace_user = w;
    CHECK_OK(lever_session_prompt(w->session, w->prompt, w->prompt_count, &error));
    CHECK_OK(pairs_generate(w->session, &watched, to, &error));
}

typedef struct {
    pair_way way;
    lever_strategy strategy;
    uint32_t prompt;
    uint32_t lanes; /* 0: as many as usual */
    bool watch_memory;
} setting;

static void open_pair(world *w, const setting *set) {
    lever_engine_options options;
    pairs_engine_options(&options, &set->way);
    options.lanes = set->lanes;
    options.watch_memory = set->watch_memory;
    open_world(w, &options);
    pairs_prompt(w->engine, set->prompt, w->prompt);
    w->prompt_count = PAIR_PROMPT;
    pairs_generate_options(&w->generate, &set->way, ANSWER);
    w->generate.strategy = set->strategy;
}

/* With the first answer, which is the one that is wanted from then on. */
static void open_answered(world *w, const setting *set) {
    open_pair(w, set);
    answer(w, &w->wanted);
    w->cycles = 0;
}

/* --- Less memory ------------------------------------------------------------------------------------------------- */

static uint64_t pinned_of(const world *w) {
    return lv_ledger_used_by(w->engine->ledger, LV_MEM_PINNED) + lv_ledger_used_by(w->engine->ledger, LV_MEM_HEAD);
}

static uint64_t least_of(const world *w) {
    lv_budget budget;
    lv_budget_get(w->engine, &budget);
    return budget.least_bytes;
}

static void cut_budget(void *user, uint64_t cycle) {
    world *w = user;
    const uint64_t used = lv_ledger_used(w->engine->ledger);
    if (cycle == w->cut_cycle) {
        lever_error error;
        w->pinned_before = pinned_of(w);
        w->fixed_before = used - w->pinned_before;
        CHECK_OK(lever_engine_set_budget(w->engine, w->limit, &error));
        return;
    }
    if (cycle < w->cut_cycle) return;
    const bool below = used <= w->limit && lv_ledger_limit(w->engine->ledger) == w->limit;
    if (below && w->below_cycle == 0) w->below_cycle = cycle;
    if (!below && w->below_cycle > 0) w->passed++;
    w->pinned_after = pinned_of(w);
    w->fixed_after = used - w->pinned_after;
}

static void check_cut(const world *w) {
    assert_true(w->below_cycle > 0);
    print_message("below the lower budget %u cycles after the cut; pinned %.1f MiB, then %.1f MiB\n",
                  (unsigned)(w->below_cycle - w->cut_cycle), (double)w->pinned_before / 1048576,
                  (double)w->pinned_after / 1048576);
    assert_true(w->below_cycle - w->cut_cycle <= 3);
    assert_int_equal(w->passed, 0);
    assert_true(w->pinned_after < w->pinned_before);
    /* Nothing else was given up. */
    assert_true(w->fixed_after >= w->fixed_before);
}

/* A second answer, the same as the first, while the budget is cut. */
static void answer_while_cut(world *w, uint64_t limit, uint64_t cycle, const char *what) {
    w->cycles = 0;
    w->cut_cycle = cycle;
    w->limit = limit;
    w->on_cycle = cut_budget;
    answer(w, &w->got);
    pairs_check_same(&w->got, &w->wanted, what);
    check_cut(w);
}

/* To so much that six tenths of what is pinned may stay. */
static void test_a_budget_that_is_cut(void **state) {
    (void)state;
    static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_EDGE, LEVER_STRATEGY_AR};
    for (uint32_t i = 0; i < 6; i++) {
        world w;
        open_answered(&w, &(setting){.way.level = {[PAIR_COSTS] = 1, [PAIR_BUDGET] = 2, [PAIR_THREADS] = i < 3 ? 0 : 1},
                                     .strategy = strategies[i % 3],
                                     .prompt = 1});
        answer_while_cut(&w, least_of(&w) + pinned_of(&w) * 6 / 10, 4, "a budget that was cut");
        close_world(&w);
    }
}

/* The whole budget, cut to 60 %: of a target whose layers are most of it. */
static void test_a_whole_budget_that_is_cut(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_EDGE, LEVER_STRATEGY_AR};
    const pair_way way = {.level = {[PAIR_COSTS] = 1, [PAIR_THREADS] = 1}};
    for (uint32_t i = 0; i < 3; i++) {
        lever_engine_options options;
        lever_plan plan;
        lever_error error;
        pairs_large_options(&options, &way);
        options.ring_bytes = 1u << 20;
        CHECK_OK(lever_engine_plan(&options, &plan, &error));
        options.ram_unlimited = false;
        options.ram_bytes = plan.total_bytes;
        world w;
        open_world(&w, &options);
        pairs_prompt(w.engine, 1, w.prompt);
        w.prompt_count = PAIR_PROMPT;
        pairs_generate_options(&w.generate, &way, 24);
        w.generate.strategy = strategies[i];
        answer(&w, &w.wanted);
        answer_while_cut(&w, options.ram_bytes * 6 / 10, 3, "a whole budget, cut to 60 %");
        assert_true(w.pinned_after > 0);
        close_world(&w);
    }
}

/* The real pair, its whole budget cut to 60 %. */
static void test_the_real_pair(void **state) {
    (void)state;
    char target[1024], draft[1024];
    const char *path = model_path(MODEL_QWEN_1_5B);
    if (!path) skip();
    snprintf(target, sizeof(target), "%s", path);
    path = model_path(MODEL_QWEN_0_5B);
    if (!path) skip();
    snprintf(draft, sizeof(draft), "%s", path);
    lever_engine_options options;
    lv_test_options(&options, target);
    options.draft_path = draft;
    options.draft_forced = true;
    options.ram_unlimited = false;
    options.ram_bytes = (uint64_t)1900 << 20;
    world w;
    open_world(&w, &options);
    lever_generate_options_init(&w.generate);
    w.generate.temperature = 0;
    w.generate.tokens_max = 48;
    lever_error error;
    static const char text[] = "def fibonacci(n):\n";
    CHECK_OK(
        lever_tokenize(w.engine, text, sizeof(text) - 1, true, false, w.prompt, PAIR_PROMPT, &w.prompt_count, &error));
    answer(&w, &w.wanted);
    answer_while_cut(&w, options.ram_bytes * 6 / 10, 3, "the real pair, cut to 60 %");
    close_world(&w);
}

/* --- The watch --------------------------------------------------------------------------------------------------- */

static void wait_for_looks(void *user, uint64_t cycle) {
    (void)user;
    if (cycle == 8) atomic_store(&usable_bytes, 1);
    if (cycle >= 8 && cycle < 20) sleep_us(60000);
}

/* The system says that nothing is left: all that is pinned goes; then there is plenty, and it comes back. */
static void test_watching_memory(void **state) {
    (void)state;
    atomic_store(&usable_bytes, (uint64_t)1 << 40);
    world w;
    open_answered(&w, &(setting){.way.level = {[PAIR_COSTS] = 1, [PAIR_BUDGET] = 2},
                                 .strategy = LEVER_STRATEGY_AR,
                                 .prompt = 2,
                                 .watch_memory = true});
    const uint64_t pinned = pinned_of(&w);
    assert_true(pinned > 0);
    w.on_cycle = wait_for_looks;
    answer(&w, &w.got);
    pairs_check_same(&w.got, &w.wanted, "while memory was short");
    assert_int_equal(pinned_of(&w), 0);
    assert_true(lv_ledger_used(w.engine->ledger) <= lv_ledger_limit(w.engine->ledger));
    atomic_store(&usable_bytes, (uint64_t)1 << 40);
    w.on_cycle = NULL;
    /* A block that was copied out of the ring needs no room around it. */
    const uint64_t nearly_all = pinned / 10 * 9;
    for (uint32_t i = 0; i < 100 && pinned_of(&w) < nearly_all; i++) {
        sleep_us(100000);
        answer(&w, &w.got);
        pairs_check_same(&w.got, &w.wanted, "when it was back");
    }
    assert_true(pinned_of(&w) >= nearly_all && pinned_of(&w) <= pinned);
    atomic_store(&usable_bytes, 0);
    close_world(&w);
}

/* --- Slower ------------------------------------------------------------------------------------------------------ */

enum { FAST_READ_US = 3000, SLOW_READ_US = 10000, SLOW_FROM = 6, FOLLOWS_WITHIN = 6 };

static void slow_the_disk(void *user, uint64_t cycle) {
    world *w = user;
    if (cycle == SLOW_FROM) atomic_store(&read_sleep_us, SLOW_READ_US);
    if (cycle > SLOW_FROM && w->io_cycle == 0 && w->session->cycle.costs.io_seconds >= w->io_target)
        w->io_cycle = cycle;
}

/* Reads take three times as long from the sixth cycle on: a few cycles later the costs know most of it. */
static void test_a_disk_that_is_throttled(void **state) {
    (void)state;
    world w;
    open_answered(&w, &(setting){.strategy = LEVER_STRATEGY_LEVER, .prompt = 1, .lanes = 1});
    atomic_store(&read_sleep_us, FAST_READ_US);
    answer(&w, &w.got);
    uint32_t blocks = 0;
    for (uint32_t b = 0; b < w.engine->weights->layout->head_block_first; b++) blocks += !w.engine->pinned[b];
    assert_true(blocks >= 3);
    w.cycles = 0;
    w.io_target = 0.6 * 1e-6 * SLOW_READ_US * blocks;
    w.on_cycle = slow_the_disk;
    answer(&w, &w.got);
    atomic_store(&read_sleep_us, 0);
    pairs_check_same(&w.got, &w.wanted, "a slower disk");
    assert_true(w.io_cycle > 0);
    print_message("the costs knew of the slower disk %u cycles later\n", (unsigned)(w.io_cycle - SLOW_FROM));
    assert_true(w.io_cycle - SLOW_FROM <= FOLLOWS_WITHIN);
    close_world(&w);
}

/* --- Another process on the cores -------------------------------------------------------------------------------- */

enum { ALONE_US = 1500, BUSY_US = 4500, BUSY_FROM = 12, KNOWN_WITHIN = 10, SPINNERS = 2 };

static void watch_limit(void *user, uint64_t cycle) {
    (void)cycle;
    world *w = user;
    if (lv_ledger_used(w->engine->ledger) > w->limit) w->above++;
}

static double layers_cost(const world *w) {
    return lv_cost_curve_at(&w->session->cycle.costs.layers[learned_split], learned_rows);
}

static void crowd_the_cores(void *user, uint64_t cycle) {
    world *w = user;
    watch_limit(w, cycle);
    if (cycle == BUSY_FROM) {
        w->layers_before = layers_cost(w);
        atomic_store(&compute_sleep_us, BUSY_US);
    }
    if (cycle <= BUSY_FROM || w->layers_cycle > 0) return;
    w->layers_after = layers_cost(w);
    w->layers_rows = learned_rows;
    if (w->layers_after >= w->layers_target) w->layers_cycle = cycle;
}

/* From here on the budget is what is in use or set aside. */
static void keep_to_what_is_used(world *w) {
    lever_error error;
    w->limit = least_of(w) + pinned_of(w);
    CHECK_OK(lever_engine_set_budget(w->engine, w->limit, &error));
}

static void check_limit(const world *w) {
    assert_true(w->cycles > 0);
    assert_int_equal(w->above, 0);
    assert_true(lv_ledger_peak(w->engine->ledger) <= w->limit);
}

static void answer_beside_a_busy_program(world *w) {
    w->cycles = w->layers_cycle = 0;
    w->on_cycle = crowd_the_cores;
    answer(w, &w->got);
    atomic_store(&compute_sleep_us, 0);
    w->on_cycle = NULL;
}

static void check_that_costs_followed(const world *w) {
    print_message("%u rows: %.1f ms, then %.1f ms; known %d cycles later\n", (unsigned)w->layers_rows,
                  1e3 * w->layers_before, 1e3 * w->layers_after, (int)(w->layers_cycle - BUSY_FROM));
    /* One thread is all of them: its costs are those by which trees are chosen. */
    assert_int_equal(learned_split, LV_SPLIT_ALL);
    assert_true(w->layers_cycle > 0);
    assert_true(w->layers_cycle - BUSY_FROM <= KNOWN_WITHIN);
}

/* Computing takes three times as long from the twelfth cycle on: a few cycles later the costs know most of it, for one
 * row and for those of a chain. All layers are pinned, so that a pass over them is one graph. A sleep is never shorter
 * than asked for, so a machine that is busy anyway only makes them know earlier. */
static void test_computing_that_is_slowed(void **state) {
    (void)state;
    static const lever_strategy strategies[] = {LEVER_STRATEGY_AR, LEVER_STRATEGY_CHAIN};
    world w;
    open_pair(&w, &(setting){.way.level = {[PAIR_BUDGET] = 2}, .prompt = 1});
    w.generate.no_lookup = w.generate.no_ahead = true;
    w.layers_target = 0.6e-6 * BUSY_US;
    for (uint32_t i = 0; i < 2; i++) {
        w.generate.strategy = strategies[i];
        w.generate.chain_length = strategies[i] == LEVER_STRATEGY_CHAIN ? 3 : 0;
        atomic_store(&compute_sleep_us, ALONE_US);
        answer(&w, &w.wanted);
        keep_to_what_is_used(&w);
        answer_beside_a_busy_program(&w);
        pairs_check_same(&w.got, &w.wanted, "busy cores");
        check_limit(&w);
        check_that_costs_followed(&w);
    }
    close_world(&w);
}

static atomic_bool spinners_stop;

static void *spin(void *user) {
    while (!atomic_load(&spinners_stop)) continue;
    return user;
}

/* Threads that take the cores from all others, the reader's and the draft's too. */
static void test_beside_spinning_threads(void **state) {
    (void)state;
    static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_EDGE, LEVER_STRATEGY_AR};
    for (uint32_t i = 0; i < 3; i++) {
        world w;
        open_answered(&w, &(setting){.way.level = {[PAIR_BUDGET] = 1}, .strategy = strategies[i], .prompt = 2});
        keep_to_what_is_used(&w);
        w.on_cycle = watch_limit;
        pthread_t threads[SPINNERS];
        atomic_store(&spinners_stop, false);
        for (uint32_t t = 0; t < SPINNERS; t++) assert_int_equal(pthread_create(&threads[t], NULL, spin, NULL), 0);
        answer(&w, &w.got);
        atomic_store(&spinners_stop, true);
        for (uint32_t t = 0; t < SPINNERS; t++) pthread_join(threads[t], NULL);
        pairs_check_same(&w.got, &w.wanted, "beside spinning threads");
        check_limit(&w);
        close_world(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_budget_that_is_cut),
        cmocka_unit_test(test_a_whole_budget_that_is_cut),
        cmocka_unit_test(test_the_real_pair),
        cmocka_unit_test(test_watching_memory),
        cmocka_unit_test(test_a_disk_that_is_throttled),
        cmocka_unit_test(test_computing_that_is_slowed),
        cmocka_unit_test(test_beside_spinning_threads),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
