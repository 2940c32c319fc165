/* test_thread_choice.c - the policy as a table of passes. */
#include "compute/thread_choice.h"
#include "support/check.h"

static void test_reading_is_the_bottleneck(void **state) {
    (void)state;
    lv_thread_choice choice = {.threads = 2};
    lv_thread_choice_update(&choice, 300, 100, 200);
    assert_true(choice.single);
    /* It stays while the thread waits often enough. */
    lv_thread_choice_update(&choice, 300, 180, 110);
    assert_true(choice.single);
}

static void test_computing_is_the_bottleneck(void **state) {
    (void)state;
    lv_thread_choice choice = {.threads = 4};
    lv_thread_choice_update(&choice, 300, 100, 200);
    assert_false(choice.single);
    choice = (lv_thread_choice){.threads = 2};
    lv_thread_choice_update(&choice, 300, 290, 5);
    assert_false(choice.single);
}

static void test_a_wrong_guess_is_taken_back(void **state) {
    (void)state;
    lv_thread_choice choice = {.threads = 2, .single = true};
    lv_thread_choice_update(&choice, 300, 290, 10);
    assert_false(choice.single);
    unsigned passes = 0;
    while (!choice.single) {
        lv_thread_choice_update(&choice, 300, 100, 200);
        passes++;
        assert_true(passes < 1000);
    }
    assert_true(passes > 32);
}

static void test_one_thread_has_no_choice(void **state) {
    (void)state;
    lv_thread_choice choice = {.threads = 1};
    lv_thread_choice_update(&choice, 300, 1, 299);
    assert_false(choice.single);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading_is_the_bottleneck),
        cmocka_unit_test(test_computing_is_the_bottleneck),
        cmocka_unit_test(test_a_wrong_guess_is_taken_back),
        cmocka_unit_test(test_one_thread_has_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
