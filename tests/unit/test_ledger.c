/* The account of memory: sums, refusals, limits, many threads. */
/* link: --wrap=pthread_mutex_lock */
#include "base/ledger.h"

#include <pthread.h>
#include <sched.h>

#include "base/rng.h"
#include "support/check.h"

static void test_reserve_and_release(void **state) {
    (void)state;
    lever_error error;
    lv_ledger *ledger = lv_ledger_create(1000);
    CHECK_OK(lv_ledger_reserve(ledger, LV_MEM_RING, 600, &error));
    CHECK_OK(lv_ledger_reserve(ledger, LV_MEM_KV, 400, &error));
    assert_int_equal(lv_ledger_used(ledger), 1000);
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_RING), 600);
    assert_int_equal(lv_ledger_free_bytes(ledger), 0);
    CHECK_FAILS(lv_ledger_reserve(ledger, LV_MEM_HEAD, 1, &error), LEVER_E_BUDGET, "output head: 1 B");
    assert_int_equal(lv_ledger_used(ledger), 1000);
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_HEAD), 0);
    lv_ledger_release(ledger, LV_MEM_RING, 600);
    lv_ledger_release(ledger, LV_MEM_KV, 400);
    assert_int_equal(lv_ledger_used(ledger), 0);
    assert_int_equal(lv_ledger_peak(ledger), 1000);
    lv_ledger_free(ledger);
}

/* A sum that wraps around must not be granted. */
static void test_huge_requests_are_refused(void **state) {
    (void)state;
    lever_error error;
    lv_ledger *ledger = lv_ledger_create(1000);
    CHECK_OK(lv_ledger_reserve(ledger, LV_MEM_RING, 10, &error));
    CHECK_FAILS(lv_ledger_reserve(ledger, LV_MEM_RING, UINT64_MAX, &error), LEVER_E_BUDGET, "ring of blocks");
    CHECK_FAILS(lv_ledger_reserve(ledger, LV_MEM_RING, UINT64_MAX - 9, &error), LEVER_E_BUDGET, "of 1000 B are in use");
    lv_ledger_release(ledger, LV_MEM_RING, 10);
    lv_ledger_free(ledger);
}

static void test_booking_may_pass_the_limit(void **state) {
    (void)state;
    lever_error error;
    lv_ledger *ledger = lv_ledger_create(100);
    lv_ledger_book(ledger, LV_MEM_PROGRAM, 150);
    assert_int_equal(lv_ledger_used(ledger), 150);
    assert_int_equal(lv_ledger_free_bytes(ledger), 0);
    CHECK_FAILS(lv_ledger_reserve(ledger, LV_MEM_KV, 1, &error), LEVER_E_BUDGET, "key/value cache");
    CHECK_FAILS(lv_ledger_reserve(ledger, LV_MEM_KV, 0, &error), LEVER_E_BUDGET, "key/value cache");
    lv_ledger_free(ledger); /* the program's share may stay */
}

static void test_limit_changes(void **state) {
    (void)state;
    lever_error error;
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    CHECK_OK(lv_ledger_reserve(ledger, LV_MEM_KV, 500, &error));
    CHECK_FAILS(lv_ledger_set_limit(ledger, 499, &error), LEVER_E_BUDGET, "499 B");
    assert_true(lv_ledger_limit(ledger) == LV_LEDGER_UNLIMITED);
    CHECK_OK(lv_ledger_set_limit(ledger, 500, &error));
    CHECK_FAILS(lv_ledger_reserve(ledger, LV_MEM_KV, 1, &error), LEVER_E_BUDGET, "500 B");
    CHECK_OK(lv_ledger_set_limit(ledger, 501, &error));
    CHECK_OK(lv_ledger_reserve(ledger, LV_MEM_KV, 1, &error));
    lv_ledger_release(ledger, LV_MEM_KV, 501);
    lv_ledger_free(ledger);
}

static void test_no_ledger_grants_everything(void **state) {
    (void)state;
    lever_error error;
    CHECK_OK(lv_ledger_reserve(NULL, LV_MEM_KV, UINT64_MAX, &error));
    CHECK_OK(lv_ledger_set_limit(NULL, 0, &error));
    lv_ledger_release(NULL, LV_MEM_KV, 1);
    lv_ledger_book(NULL, LV_MEM_KV, 1);
    assert_true(lv_ledger_limit(NULL) == LV_LEDGER_UNLIMITED);
    assert_int_equal(lv_ledger_used(NULL), 0);
    lv_ledger_free(NULL);
}

static void test_names(void **state) {
    (void)state;
    for (int category = 0; category < LV_MEM_CATEGORIES_COUNT; category++) {
        assert_non_null(lv_category_name((lv_category)category));
        for (int other = 0; other < category; other++)
            assert_string_not_equal(lv_category_name((lv_category)category), lv_category_name((lv_category)other));
    }
    assert_string_equal(lv_category_name(LV_MEM_CATEGORIES_COUNT), "unknown");
}

/* Other threads get their turn before each lock, so that what is decided without it is soon wrong. */
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    sched_yield();
    return __real_pthread_mutex_lock(mutex);
}

enum { THREADS = 4, ROUNDS = 20000, LIMIT = 1000 };

typedef struct {
    lv_ledger *ledger;
    uint32_t number;
    bool above;
} worker;

static void *reserve_at_random(void *user) {
    worker *self = user;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        lv_philox_block random = lv_philox((const uint32_t[4]){round, self->number, 0, 0}, (const uint32_t[2]){0, 0});
        uint64_t bytes = random.word[0] % (LIMIT + 1);
        lv_category category = (lv_category)(random.word[1] % LV_MEM_CATEGORIES_COUNT);
        if (lv_ledger_reserve(self->ledger, category, bytes, NULL) != LEVER_OK) continue;
        if (lv_ledger_used(self->ledger) > LIMIT) self->above = true;
        lv_ledger_release(self->ledger, category, bytes);
    }
    return NULL;
}

static void test_threads_never_pass_the_limit(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(LIMIT);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ledger, i, false};
        assert_int_equal(pthread_create(&threads[i], NULL, reserve_at_random, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].above);
    }
    assert_int_equal(lv_ledger_used(ledger), 0);
    for (int category = 0; category < LV_MEM_CATEGORIES_COUNT; category++)
        assert_int_equal(lv_ledger_used_by(ledger, (lv_category)category), 0);
    assert_in_range(lv_ledger_peak(ledger), 1, LIMIT);
    lv_ledger_free(ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve_and_release),          cmocka_unit_test(test_huge_requests_are_refused),
        cmocka_unit_test(test_booking_may_pass_the_limit),   cmocka_unit_test(test_limit_changes),
        cmocka_unit_test(test_no_ledger_grants_everything),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_threads_never_pass_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
