/* The real clock goes forward; the virtual one goes when it is told. */
#include "base/clock.h"

#include <time.h>

#include "support/check.h"

static void test_real_clock_is_monotonic(void **state) {
    (void)state;
    uint64_t before = lv_clock_now_ns(&lv_clock_real);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = lv_clock_now_ns(&lv_clock_real);
        assert_true(now >= before);
        before = now;
    }
    /* It is the system's clock: between two looks at that. */
    struct timespec first, last;
    clock_gettime(CLOCK_MONOTONIC, &first);
    uint64_t now = lv_clock_now_ns(&lv_clock_real);
    clock_gettime(CLOCK_MONOTONIC, &last);
    assert_true(now >= (uint64_t)first.tv_sec * 1000000000 + (uint64_t)first.tv_nsec);
    assert_true(now <= (uint64_t)last.tv_sec * 1000000000 + (uint64_t)last.tv_nsec);
}

static void test_virtual_clock(void **state) {
    (void)state;
    lv_clock_virtual virtual_clock = {5};
    lv_clock clock = lv_clock_of_virtual(&virtual_clock);
    assert_int_equal(lv_clock_now_ns(&clock), 5);
    assert_int_equal(lv_clock_now_ns(&clock), 5);
    virtual_clock.now_ns += 1500000000;
    assert_int_equal(lv_clock_now_ns(&clock), 1500000005);
    assert_true(lv_seconds(1500000000) == 1.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_clock_is_monotonic),
        cmocka_unit_test(test_virtual_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
