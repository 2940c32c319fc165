/* link: --wrap=lv_system_memory_read,--wrap=lv_system_pressure_read,--wrap=lv_ledger_reserve,--wrap=lv_ledger_book */
/* The system becomes short of memory while text is being written, as /proc says, and has plenty again later. The budget
 * follows what the watch sees, pinned blocks go, then the draft, the text stays; at no moment is more in use than the
 * budget that is in force, and a few cycles after it was lowered no more than the lower one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/system.h"
#include "engine/engine_state.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"
#include "support/sanitizer.h"
#include "support/scratch.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define TOTAL_BYTES MIB(2048) /* of which the watch wants a twentieth free */

enum { ANSWER = 100, NODES = 4, CUT_AT = 3, BELOW_WITHIN = 3, SESSIONS = 3, WAIT_SECONDS = 60 };

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* --- A system of its own ----------------------------------------------------------------------------------------- */

/* Files as those below /proc, by what other programs have and what lever has. */
static struct {
    const lv_ledger *_Atomic ledger;
    atomic_ullong others_bytes;
    atomic_bool stalls; /* every read finds that somebody waited for memory, for a second */
    atomic_ullong stalled_us;
    pthread_mutex_t lock; /* of the files */
} made_up = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *write_file(const char *below, const char *text) {
    static char root[512];
    char path[600], name[128];
    snprintf(name, sizeof(name), "root%s", below);
    scratch_write(name, text, strlen(text), path, sizeof(path));
    return scratch_path("root", root, sizeof(root));
}

void __real_lv_system_memory_read(const char *root, lv_system_memory *memory);
void __wrap_lv_system_memory_read(const char *root, lv_system_memory *memory);
void __wrap_lv_system_memory_read(const char *root, lv_system_memory *memory) {
    (void)root;
    const lv_ledger *ledger = atomic_load(&made_up.ledger);
    const uint64_t taken = atomic_load(&made_up.others_bytes) + (ledger ? lv_ledger_used(ledger) : 0);
    char text[256];
    snprintf(text, sizeof(text), "MemTotal: %llu kB\nMemFree: 1 kB\nMemAvailable: %llu kB\n",
             (unsigned long long)(TOTAL_BYTES >> 10),
             (unsigned long long)((taken < TOTAL_BYTES ? TOTAL_BYTES - taken : 0) >> 10));
    pthread_mutex_lock(&made_up.lock);
    __real_lv_system_memory_read(write_file("/proc/meminfo", text), memory);
    pthread_mutex_unlock(&made_up.lock);
}

void __real_lv_system_pressure_read(const char *root, lv_system_pressure *pressure);
void __wrap_lv_system_pressure_read(const char *root, lv_system_pressure *pressure);
void __wrap_lv_system_pressure_read(const char *root, lv_system_pressure *pressure) {
    (void)root;
    if (atomic_load(&made_up.stalls)) atomic_fetch_add(&made_up.stalled_us, 1000000);
    char text[256];
    snprintf(text, sizeof(text),
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=%llu\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
             (unsigned long long)atomic_load(&made_up.stalled_us));
    pthread_mutex_lock(&made_up.lock);
    __real_lv_system_pressure_read(write_file("/proc/pressure/memory", text), pressure);
    pthread_mutex_unlock(&made_up.lock);
}

/* --- The budget at every moment ---------------------------------------------------------------------------------- */

static atomic_uint passed_count; /* how often more was in use than the budget in force allowed */

/* The limit is read before and after: it may change meanwhile, and is never below what is in use then. */
static void note_used(const lv_ledger *ledger) {
    if (!ledger || ledger != atomic_load(&made_up.ledger)) return;
    const uint64_t before = lv_ledger_limit(ledger), used = lv_ledger_used(ledger), after = lv_ledger_limit(ledger);
    if (used > before && used > after) atomic_fetch_add(&passed_count, 1);
}

lever_status __real_lv_ledger_reserve(lv_ledger *ledger, lv_category category, uint64_t bytes, lever_error *error);
lever_status __wrap_lv_ledger_reserve(lv_ledger *ledger, lv_category category, uint64_t bytes, lever_error *error);
lever_status __wrap_lv_ledger_reserve(lv_ledger *ledger, lv_category category, uint64_t bytes, lever_error *error) {
    const lever_status status = __real_lv_ledger_reserve(ledger, category, bytes, error);
    note_used(ledger);
    return status;
}

void __real_lv_ledger_book(lv_ledger *ledger, lv_category category, uint64_t bytes);
void __wrap_lv_ledger_book(lv_ledger *ledger, lv_category category, uint64_t bytes);
void __wrap_lv_ledger_book(lv_ledger *ledger, lv_category category, uint64_t bytes) {
    __real_lv_ledger_book(ledger, category, bytes);
    note_used(ledger);
}

/* --- Answers that are watched ------------------------------------------------------------------------------------ */

typedef struct world world;

typedef struct {
    world *world;
    lever_session *session;
    pair_answer wanted, got;
    uint32_t cycles;
    atomic_uint since; /* cycles since the budget was lowered; when the answer is over, as many as are wanted */
} writer;

struct world {
    lever_engine *engine;
    lever_generate_options generate;
    writer writers[SESSIONS];
    uint32_t writers_count;
    uint64_t most; /* the budget to begin with */
    uint64_t pinned_before, fixed_before;
    atomic_ullong pinned_least; /* behind cycles since */
    bool lasts;                 /* the shortage, till the answer is written */
    void (*shortage)(world *w); /* begins behind cycle CUT_AT of the first writer */
    atomic_ullong lowered;      /* the budget then; 0: not yet */
    atomic_bool below;          /* it is in force */
};

static uint64_t pinned_of(const world *w) {
    return lv_ledger_used_by(w->engine->ledger, LV_MEM_PINNED) + lv_ledger_used_by(w->engine->ledger, LV_MEM_HEAD);
}

static uint64_t fixed_of(const world *w) {
    return lv_ledger_used(w->engine->ledger) - pinned_of(w);
}

static uint64_t limit_of(const world *w) {
    lv_budget budget;
    lv_budget_get(w->engine, &budget);
    return budget.limit_bytes;
}

/* Until the watch has looked. */
static void begin_shortage(world *w) {
    w->pinned_before = pinned_of(w);
    w->fixed_before = fixed_of(w);
    w->shortage(w);
    for (uint32_t i = 0; i < WAIT_SECONDS * 100 && limit_of(w) >= w->most; i++) sleep_ms(10);
    atomic_store(&made_up.stalls, false);
    assert_true(limit_of(w) < w->most);
    atomic_store(&w->pinned_least, w->pinned_before);
    atomic_store(&w->lowered, limit_of(w));
}

/* Every session has gone through as many cycles since, or has written its answer. */
static bool is_time(world *w) {
    for (uint32_t i = 0; i < w->writers_count; i++) {
        if (atomic_load(&w->writers[i].since) < BELOW_WITHIN) return false;
    }
    return true;
}

/* Behind each cycle, without a lock. */
static void watch(void *user, const char *line) {
    (void)line;
    writer *one = user;
    world *w = one->world;
    one->cycles++;
    if (one == w->writers && one->cycles == CUT_AT && w->shortage) {
        begin_shortage(w);
        return;
    }
    const uint64_t lowered = atomic_load(&w->lowered);
    if (lowered == 0) return;
    atomic_fetch_add(&one->since, 1);
    const uint64_t limit = lv_ledger_limit(w->engine->ledger), used = lv_ledger_used(w->engine->ledger);
    const bool below = limit <= lowered && used <= lowered, was_below = atomic_load(&w->below);
    const uint64_t pinned = pinned_of(w);
    if (pinned < atomic_load(&w->pinned_least)) atomic_store(&w->pinned_least, pinned);
    if (below) atomic_store(&w->below, true);
    if (!below && (was_below ? w->lasts : is_time(w)))
        fail_msg("%llu bytes in use; the budget is to be %llu and is %llu", (unsigned long long)used,
                 (unsigned long long)lowered, (unsigned long long)limit);
}

static void answer(writer *one, pair_answer *to) {
    world *w = one->world;
    int32_t prompt[PAIR_PROMPT];
    lever_error error;
    lever_generate_options generate = w->generate;
    generate.trace = watch;
    generate.trace_user = one;
    one->cycles = 0;
    pairs_prompt(w->engine, (uint32_t)(one - w->writers) % PAIR_PROMPTS, prompt);
    CHECK_OK(lever_session_prompt(one->session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(one->session, &generate, to, &error));
    atomic_store(&one->since, BELOW_WITHIN);
}

/* All layers are pinned, and the budget is what that takes. A large draft is the target once more. */
static void open_world(world *w, uint32_t writers_count, lever_strategy strategy, bool large_draft) {
    const pair_way way = {.level = {[PAIR_COSTS] = 1}};
    lever_engine_options options;
    lever_error error;
    lv_budget budget;
    memset(w, 0, sizeof(*w));
    atomic_store(&made_up.ledger, NULL);
    atomic_store(&made_up.others_bytes, 0);
    pairs_large_options(&options, &way);
    if (large_draft) options.draft_path = PAIR_LARGE;
    options.ring_bytes = MIB(1);
    options.watch_memory = true;
    options.sessions_max = writers_count;
    w->engine = lv_test_open(&options);
    pairs_generate_options(&w->generate, &way, ANSWER);
    w->generate.strategy = strategy;
    if (strategy == LEVER_STRATEGY_LEVER) w->generate.tree_nodes = NODES;
    if (strategy == LEVER_STRATEGY_CHAIN) w->generate.chain_length = NODES;
    w->writers_count = writers_count;
    for (uint32_t i = 0; i < writers_count; i++) {
        w->writers[i].world = w;
        w->writers[i].session = lv_test_session(w->engine);
    }
    lv_budget_get(w->engine, &budget);
    w->most = budget.least_bytes + pinned_of(w);
    CHECK_OK(lever_engine_set_budget(w->engine, w->most, &error));
    atomic_store(&passed_count, 0);
    atomic_store(&made_up.ledger, w->engine->ledger);
    for (uint32_t i = 0; i < writers_count; i++) answer(&w->writers[i], &w->writers[i].wanted);
    for (uint32_t i = 0; i < writers_count; i++) atomic_store(&w->writers[i].since, 0);
}

static void close_world(world *w) {
    assert_int_equal(atomic_load(&passed_count), 0);
    atomic_store(&made_up.ledger, NULL);
    for (uint32_t i = 0; i < w->writers_count; i++) lever_session_close(&w->writers[i].session);
    lever_engine_close(&w->engine);
}

/* --- Shortages --------------------------------------------------------------------------------------------------- */

/* The watch wants so much more to be free than there is. */
static void take(world *w, uint64_t missing) {
    w->lasts = true;
    atomic_store(&made_up.others_bytes, TOTAL_BYTES - TOTAL_BYTES / 20 - lv_ledger_used(w->engine->ledger) + missing);
}

static void half_of_the_blocks(world *w) {
    take(w, w->pinned_before / 2);
}

static void all_blocks_and_more(world *w) {
    take(w, w->pinned_before + lv_ledger_used_by(w->engine->ledger, LV_MEM_DRAFT) / 2);
}

/* Only until the watch has looked. */
static void somebody_waits(world *w) {
    w->lasts = false;
    atomic_store(&made_up.stalls, true);
}

static void check_shortage(world *w, bool draft_leaves, const char *what) {
    const uint64_t pinned = pinned_of(w), fixed = fixed_of(w);
    print_message("%s: pinned %.1f MiB, then %.1f; all else %.1f MiB, then %.1f\n", what,
                  (double)w->pinned_before / 1048576, (double)pinned / 1048576, (double)w->fixed_before / 1048576,
                  (double)fixed / 1048576);
    assert_true(atomic_load(&w->below));
    assert_true(atomic_load(&w->pinned_least) < w->pinned_before);
    assert_int_equal(w->engine->residency.away, draft_leaves);
    if (draft_leaves) {
        assert_true(fixed < w->fixed_before);
    } else {
        assert_true(pinned > 0 && fixed >= w->fixed_before);
    }
}

/* Others give it back: blocks and draft come back, and no more than the budget was. */
static void check_return(world *w) {
    atomic_store(&made_up.others_bytes, 0);
    atomic_store(&w->lowered, 0);
    w->shortage = NULL;
    /* A block that was copied out of the ring needs no room around it. */
    const uint64_t nearly_all = w->pinned_before / 10 * 9;
    const lever_session *first = w->writers[0].session;
    for (uint32_t i = 0; i < WAIT_SECONDS && (pinned_of(w) < nearly_all || w->engine->residency.away); i++) {
        sleep_ms(500);
        answer(&w->writers[0], &w->writers[0].got);
        pairs_check_same(&w->writers[0].got, &w->writers[0].wanted, "when memory was back");
    }
    assert_true(pinned_of(w) >= nearly_all && limit_of(w) <= w->most && !w->engine->residency.away);
    answer(&w->writers[0], &w->writers[0].got);
    const bool drafts = w->generate.strategy != LEVER_STRATEGY_AR;
    assert_true(!first->statistics.draft_dropped && (first->statistics.nodes_drafted > 0) == drafts);
}

static void test_a_shortage(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    static const struct {
        lever_strategy strategy;
        void (*shortage)(world *w);
        bool draft_leaves, returns;
        const char *what;
    } cases[] = {
        {LEVER_STRATEGY_LEVER, half_of_the_blocks, false, true, "half of the blocks"},
        {LEVER_STRATEGY_EDGE, half_of_the_blocks, false, false, "half of the blocks, edge"},
        {LEVER_STRATEGY_AR, half_of_the_blocks, false, false, "half of the blocks, plain"},
        {LEVER_STRATEGY_LEVER, somebody_waits, false, true, "somebody waits for memory"},
        {LEVER_STRATEGY_LEVER, all_blocks_and_more, true, true, "all blocks and more"},
        {LEVER_STRATEGY_CHAIN, all_blocks_and_more, true, false, "all blocks and more, chain"},
        {LEVER_STRATEGY_AR, all_blocks_and_more, true, false, "all blocks and more, plain"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static world w;
        open_world(&w, 1, cases[i].strategy, cases[i].draft_leaves);
        writer *one = &w.writers[0];
        w.shortage = cases[i].shortage;
        answer(one, &one->got);
        pairs_check_same(&one->got, &one->wanted, cases[i].what);
        check_shortage(&w, cases[i].draft_leaves, cases[i].what);
        assert_int_equal(one->got.statistics.draft_dropped,
                         cases[i].draft_leaves && cases[i].strategy != LEVER_STRATEGY_AR);
        if (cases[i].returns) check_return(&w);
        close_world(&w);
    }
}

/* --- Several sessions at once ------------------------------------------------------------------------------------ */

static void *write_answer(void *user) {
    writer *one = user;
    answer(one, &one->got);
    return NULL;
}

static void test_a_shortage_of_several_sessions(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    static void (*const shortages[])(world * w) = {half_of_the_blocks, all_blocks_and_more};
    for (uint32_t n = 0; n < 2; n++) {
        static world w;
        open_world(&w, SESSIONS, LEVER_STRATEGY_LEVER, n == 1);
        w.shortage = shortages[n];
        pthread_t threads[SESSIONS];
        for (uint32_t i = 0; i < SESSIONS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, write_answer, &w.writers[i]), 0);
        for (uint32_t i = 0; i < SESSIONS; i++) pthread_join(threads[i], NULL);
        for (uint32_t i = 0; i < SESSIONS; i++)
            pairs_check_same(&w.writers[i].got, &w.writers[i].wanted, "one of several sessions");
        check_shortage(&w, n == 1, "several sessions");
        check_return(&w);
        close_world(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shortage),
        cmocka_unit_test(test_a_shortage_of_several_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
