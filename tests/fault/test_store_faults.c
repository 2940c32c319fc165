/* faults: memory file */
/* link: --wrap=pthread_create */
/* Every read, every allocation and every thread fails once: the same bytes come all the same, or a clear error, after
 * which the store goes on; and nothing is left behind. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/check.h"
#include "support/fault.h"
#include "support/scratch.h"
#include "support/store_world.h"

static char model[512], packed_model[512], victim[512];

static _Atomic uint64_t threads_until_failure; /* 0: none fails */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user) {
    if (threads_until_failure > 0 && --threads_until_failure == 0) return EAGAIN;
    return __real_pthread_create(thread, attributes, run, user);
}

/* --- Reads -------------------------------------------------------------------------------------------------------- */

/* A pass in which a block that fails is asked for once more; returns how many failed. */
static uint32_t stubborn_pass(world *w, lever_status wanted) {
    uint32_t failures = 0;
    for (uint32_t block = 0; block < w->layout->blocks_count; block++) {
        lv_lease lease;
        lever_error error = {0};
        while (lv_store_acquire(w->store, block, NULL, &lease, &error) != LEVER_OK) {
            assert_int_equal(error.status, wanted);
            assert_non_null(strstr(error.message, block < w->layout->head_block_first ? "layer" : "head"));
            assert_non_null(strstr(error.message, "model"));
            assert_true(++failures < 4);
        }
        assert_true(world_lease_is_right(w, &lease));
        lv_store_release(w->store, &lease);
    }
    return failures;
}

/* Reads that the system gives in another way than asked for. */
static void odd_reads_give_the_same_bytes(void **state) {
    (void)state;
    const fault_kind kinds[] = {FAULT_EINTR, FAULT_SHORT, FAULT_SHORT_ODD, FAULT_EINVAL_DIRECT};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (uint64_t nth = 1;; nth++) {
            world w;
            lever_error error;
            fault_read_set(kinds[k], nth, nth % 3 == 0 ? 2 : 1);
            CHECK_OK(world_open(&w, model, &(world_options){.slots = 3, .lanes = 2, .pinned = 5}, &error));
            lv_store_set_head_wanted(w.store, true);
            CHECK_OK(world_pass(&w, true, &error));
            world_close(&w);
            uint64_t calls = fault_read_calls();
            CHECK_NOTHING_LEFT();
            if (calls < nth) break;
        }
    }
    fault_read_set(FAULT_SHORT, 1, FAULT_FOR_GOOD); /* every read is short */
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, packed_model, &(world_options){.slots = 3, .lanes = 2, .verify = true}, &error));
    CHECK_OK(world_pass(&w, true, &error));
    world_close(&w);
    fault_read_set(FAULT_EIO, 0, 0);
}

static void a_failing_read_is_told_and_heals(void **state) {
    (void)state;
    const fault_kind kinds[] = {FAULT_EIO, FAULT_END};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (uint64_t nth = 1;; nth++) {
            world w;
            lever_error error = {0};
            fault_read_set(kinds[k], nth, 1);
            const world_options options = {.slots = 3, .lanes = 2, .pinned = 5, .transform = true, .verify = nth % 2};
            lever_status status = world_open(&w, nth % 2 ? packed_model : model, &options, &error);
            if (status == LEVER_OK) {
                lv_store_set_head_wanted(w.store, true);
                for (int pass = 0; pass < 2; pass++) assert_true(stubborn_pass(&w, LEVER_E_IO) <= 1);
                world_close(&w);
            } else {
                assert_int_equal(status, LEVER_E_IO);
                assert_non_null(strstr(error.message, "model"));
            }
            uint64_t calls = fault_read_calls();
            CHECK_NOTHING_LEFT();
            if (calls < nth) break;
        }
    }
    fault_read_set(FAULT_EIO, 0, 0);
}

static void a_disk_that_is_gone_is_an_error_each_time(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth < 80; nth += 3) {
        world w;
        lever_error error;
        fault_read_set(FAULT_EIO, nth, FAULT_FOR_GOOD);
        if (world_open(&w, model, &(world_options){.slots = 4, .lanes = 3, .pinned = 4}, &error) == LEVER_OK) {
            uint32_t failed = 0;
            for (int pass = 0; pass < 3; pass++) failed += world_pass(&w, true, &error) != LEVER_OK;
            assert_true(failed >= 1);
            world_close(&w);
        }
        CHECK_NOTHING_LEFT();
    }
    fault_read_set(FAULT_EIO, 0, 0);
}

/* A bit that flips on the way is found where there are checksums, and the next read is right again. */
static void a_flipped_bit_never_reaches_a_lease(void **state) {
    (void)state;
    uint32_t found = 0;
    for (uint64_t nth = 1; nth <= 50; nth++) {
        world w;
        lever_error error;
        CHECK_OK(world_open(&w, packed_model, &(world_options){.slots = 3, .lanes = 2, .verify = true}, &error));
        fault_read_set(FAULT_GARBAGE, nth, 1);
        found += stubborn_pass(&w, LEVER_E_FORMAT);
        fault_read_set(FAULT_EIO, 0, 0);
        world_close(&w);
    }
    assert_true(found > 0);
}

/* --- The file changes --------------------------------------------------------------------------------------------- */

static void change_file(const char *how) {
    int descriptor = open(victim, O_RDWR | O_CLOEXEC);
    assert_true(descriptor >= 0);
    if (strcmp(how, "cut") == 0) assert_int_equal(ftruncate(descriptor, 3 << 20), 0);
    if (strcmp(how, "written") == 0) {
        usleep(20000); /* longer than the clock of the file system steps */
        assert_int_equal(pwrite(descriptor, "x", 1, 3 << 20), 1);
    }
    close(descriptor);
}

static void a_changed_file_is_told(void **state) {
    (void)state;
    static const char *const ways[] = {"cut", "written"};
    for (size_t i = 0; i < 2; i++) {
        world w;
        lever_error error;
        world_write(victim, false);
        CHECK_OK(world_open(&w, victim, &(world_options){.slots = 3, .lanes = 2, .pinned = 4}, &error));
        CHECK_OK(world_pass(&w, false, &error));
        change_file(ways[i]);
        CHECK_FAILS(world_pass(&w, true, &error), LEVER_E_IO, ways[i]);
        CHECK_FAILS(world_pass(&w, true, &error), LEVER_E_IO, ways[i]);
        world_close(&w);
    }
}

static void a_replaced_file_is_read_to_its_end(void **state) {
    (void)state;
    world w;
    lever_error error;
    world_write(victim, false);
    CHECK_OK(world_open(&w, victim, &(world_options){.slots = 3, .lanes = 2}, &error));
    CHECK_OK(world_pass(&w, false, &error));
    char other[sizeof victim + 8];
    snprintf(other, sizeof other, "%s.new", victim);
    world_write(other, true);
    assert_int_equal(rename(other, victim), 0);
    CHECK_OK(world_pass(&w, true, &error));
    world_close(&w);
}

/* --- Memory and threads ------------------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const paths[] = {model, packed_model};
    for (size_t p = 0; p < 2; p++) {
        for (uint64_t nth = 1;; nth++) {
            lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
            const world_options options = {
                .slots = 3, .lanes = 2, .pinned = 6, .transform = true, .verify = true, .ledger = ledger};
            world w;
            lever_error error = {0};
            fault_memory_set(nth, nth % 2 ? 1 : FAULT_FOR_GOOD);
            lever_status status = world_open(&w, paths[p], &options, &error);
            if (status == LEVER_OK) {
                for (uint32_t b = 0; b < w.layout->blocks_count; b++) w.pinned[b] = b % 3 == 0;
                lv_store_set_pinned(w.store, w.pinned); /* what cannot be pinned is streamed on */
                for (int pass = 0; pass < 2; pass++) CHECK_OK(world_pass(&w, true, &error));
                world_close(&w);
            } else {
                assert_int_equal(status, LEVER_E_MEMORY);
                assert_true(strlen(error.message) > 0);
            }
            uint64_t calls = fault_memory_calls();
            fault_memory_set(0, 0);
            assert_int_equal(lv_ledger_used(ledger), 0);
            lv_ledger_free(ledger);
            CHECK_NOTHING_LEFT();
            if (calls < nth) break;
        }
    }
}

/* Every limit from nothing to enough: refused with the reason, or opened; never more than the limit. */
static void every_budget_is_kept(void **state) {
    (void)state;
    uint32_t opened = 0;
    for (uint64_t limit = 0; limit <= (24u << 20); limit += 377 << 10) {
        lv_ledger *ledger = lv_ledger_create(limit);
        const world_options options = {.slots = 3, .lanes = 2, .pinned = 2, .verify = true, .ledger = ledger};
        world w;
        lever_error error = {0};
        lever_status status = world_open(&w, packed_model, &options, &error);
        assert_true(lv_ledger_peak(ledger) <= limit);
        if (status == LEVER_OK) {
            opened++;
            CHECK_OK(world_pass(&w, true, &error));
            world_close(&w);
        } else {
            assert_int_equal(status, LEVER_E_BUDGET);
        }
        assert_int_equal(lv_ledger_used(ledger), 0);
        lv_ledger_free(ledger);
        CHECK_NOTHING_LEFT();
    }
    assert_true(opened > 0);
}

static void every_thread_may_fail(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth++) {
        world w;
        lever_error error;
        threads_until_failure = nth;
        const world_options options = {.slots = 3, .lanes = 2, .pinned = 3};
        if (nth <= 4) { /* two lanes, and two that only help opening */
            CHECK_FAILS(world_open(&w, model, &options, &error), LEVER_E_MEMORY, "thread");
        } else {
            CHECK_OK(world_open(&w, model, &options, &error));
            world_close(&w);
        }
        threads_until_failure = 0;
        CHECK_NOTHING_LEFT();
    }
}

static int write_models(void **state) {
    (void)state;
    world_write(scratch_path("model.gguf", model, sizeof model), false);
    world_write(scratch_path("model.lvr", packed_model, sizeof packed_model), true);
    scratch_path("victim-model.gguf", victim, sizeof victim);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_reads_give_the_same_bytes),
        cmocka_unit_test(a_failing_read_is_told_and_heals),
        cmocka_unit_test(a_disk_that_is_gone_is_an_error_each_time),
        cmocka_unit_test(a_flipped_bit_never_reaches_a_lease),
        cmocka_unit_test(a_changed_file_is_told),
        cmocka_unit_test(a_replaced_file_is_read_to_its_end),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_budget_is_kept),
        cmocka_unit_test(every_thread_may_fail),
    };
    return cmocka_run_group_tests(tests, write_models, NULL);
}
