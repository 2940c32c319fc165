/* link: --wrap=lv_pacer_begin */
/* test_disk.c - a disk of a stated speed: one pacer sees every read of both models, the text is the same, and nobody
 * waits for reads that nobody wants any more. */
#include <stdatomic.h>
#include <time.h>

#include "base/pacer.h"
#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

enum { ANSWER = 24 };

/* What was asked of the pacers. As long as `waits` is false, reads end at once. */
static atomic_ullong paced_bytes;
static _Atomic(lv_pacer *) seen; /* the first */
static atomic_bool several, waits;
static atomic_uint waiting_count; /* reads that began since then */

uint64_t __real_lv_pacer_begin(lv_pacer *pacer, size_t bytes);
uint64_t __wrap_lv_pacer_begin(lv_pacer *pacer, size_t bytes);
uint64_t __wrap_lv_pacer_begin(lv_pacer *pacer, size_t bytes) {
    lv_pacer *first = NULL;
    if (!atomic_compare_exchange_strong(&seen, &first, pacer) && first != pacer) atomic_store(&several, true);
    atomic_fetch_add(&paced_bytes, bytes);
    if (!atomic_load(&waits)) return 0;
    atomic_fetch_add(&waiting_count, 1);
    return __real_lv_pacer_begin(pacer, bytes);
}

static void begin_anew(void) {
    atomic_store(&paced_bytes, 0);
    atomic_store(&seen, NULL);
    atomic_store(&several, false);
    atomic_store(&waits, false);
}

static void pair_options(lever_engine_options *options, uint64_t bytes_per_second) {
    pairs_engine_options(options, &(pair_way){.level = {[PAIR_BUDGET] = 1}});
    options->disk_bytes_per_second = bytes_per_second;
}

static void answer(lever_session *session, pair_answer *to) {
    lever_error error;
    lever_generate_options options;
    int32_t prompt[PAIR_PROMPT];
    pairs_sampling(&options, 0, ANSWER);
    options.tree_nodes = 4;
    pairs_prompt(session->engine, 0, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &options, to, &error));
}

static void test_one_disk_for_both_models(void **state) {
    (void)state;
    pair_answer plain = {0}, paced = {0};
    for (uint32_t slow = 0; slow < 2; slow++) {
        lever_engine_options options;
        begin_anew();
        pair_options(&options, slow);
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = lv_test_session(engine);
        answer(session, slow ? &paced : &plain);
        lv_store_counters store;
        lv_store_get_counters(engine->store, &store);
        assert_int_equal(atomic_load(&seen) != NULL, slow);
        assert_true(atomic_load(&seen) == engine->pacer && !atomic_load(&several));
        const uint64_t draft = engine->draft->weights->layout->layer_bytes;
        assert_true(store.pinned_bytes > 0 && store.bytes_read > 0 && draft > 0);
        assert_true(atomic_load(&paced_bytes) > store.pinned_bytes + store.bytes_read + draft);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
    pairs_check_same(&paced, &plain, "a slower disk");
}

/* The read that a lane waits for would take a day. */
static void test_nobody_waits_in_vain(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    begin_anew();
    pair_options(&options, 1);
    options.target_ram_percent = 0;
    lever_engine *engine = lv_test_open(&options);
    const uint32_t blocks = engine->weights->layout->head_block_first, slots = engine->plan.slots_count;
    assert_true(slots < blocks);
    lv_lease lease;
    CHECK_OK(lv_store_acquire(engine->store, 0, NULL, &lease, &error)); /* now the ring may be full, or not yet */
    atomic_store(&waits, true);
    lv_store_release(engine->store, &lease);
    const atomic_bool cancel = true;
    CHECK_FAILS(lv_store_acquire(engine->store, blocks - 1, &cancel, &lease, &error), LEVER_E_CANCELLED, "cancelled");
    while (atomic_load(&waiting_count) == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK_FAILS(lv_store_acquire(engine->store, blocks - 1, &cancel, &lease, &error), LEVER_E_CANCELLED, "cancelled");
    lever_engine_close(&engine);
}

static void test_the_plan_knows_its_speed(void **state) {
    (void)state;
    lever_engine_options options;
    lever_error error;
    lever_plan plan;
    static const struct {
        uint64_t rate;
        double wanted;
    } cases[] = {{1000000, 1e6}, {(uint64_t)1 << 40, 0}, {0, 0}}; /* nothing was measured of the disk itself */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pair_options(&options, cases[i].rate);
        CHECK_OK(lever_engine_plan(&options, &plan, &error));
        assert_true(plan.io_bytes_per_second == cases[i].wanted);
    }
    options.disk_bytes_per_second = 1000000;
    options.phone = "oneplus12";
    CHECK_FAILS(lever_engine_plan(&options, &plan, &error), LEVER_E_ARGUMENT, "flash of its own");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_disk_for_both_models),
        cmocka_unit_test(test_nobody_waits_in_vain),
        cmocka_unit_test(test_the_plan_knows_its_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
