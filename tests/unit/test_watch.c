/* What the budget becomes when the system is short of memory, and when it no longer is. */
#include "engine/watch.h"
#include "support/check.h"

#define MIB(n) ((uint64_t)(n) << 20)

static void test_one_look(void **state) {
    (void)state;
    static const struct {
        const char *name;
        lv_watch_reading reading;
        uint64_t used, least, most, limit, wanted;
    } cases[] = {
        {"enough", {MIB(4096), MIB(8192), 0, false}, MIB(800), MIB(200), MIB(900), MIB(900), MIB(900)},
        {"enough, no budget", {MIB(4096), MIB(8192), 0, false}, MIB(800), MIB(200), UINT64_MAX, UINT64_MAX, UINT64_MAX},
        {"short by 309 MiB", {MIB(100), MIB(8180), 0, false}, MIB(800), MIB(200), MIB(900), MIB(900), MIB(800 - 309)},
        {"short, no budget",
         {MIB(100), MIB(8180), 0, false},
         MIB(800),
         MIB(200),
         UINT64_MAX,
         UINT64_MAX,
         MIB(800 - 309)},
        {"short by a little: a sixteenth",
         {MIB(408), MIB(8180), 0, false},
         MIB(800),
         MIB(200),
         MIB(900),
         MIB(900),
         MIB(750)},
        {"stalled", {MIB(4096), MIB(8192), 0.2, false}, MIB(800), MIB(200), MIB(900), MIB(900), MIB(750)},
        {"hardly stalled", {MIB(4096), MIB(8192), 0.05, false}, MIB(800), MIB(200), MIB(900), MIB(900), MIB(900)},
        {"throttled", {MIB(4096), MIB(8192), 0, true}, MIB(800), MIB(200), MIB(900), MIB(900), MIB(750)},
        {"what cannot be given up", {0, MIB(8192), 0, false}, MIB(400), MIB(300), MIB(900), MIB(900), MIB(300)},
        {"more than all", {0, MIB(65536), 0, false}, MIB(400), 0, MIB(900), MIB(900), 0},
        {"already at the least", {0, MIB(8192), 0, false}, MIB(300), MIB(300), MIB(900), MIB(300), MIB(300)},
        {"never raised by being short", {0, MIB(8192), 0, false}, MIB(300), MIB(350), MIB(900), MIB(300), MIB(300)},
        {"a reserve of at most 512 MiB",
         {MIB(600), MIB(65536), 0, false},
         MIB(800),
         MIB(200),
         MIB(900),
         MIB(900),
         MIB(900)},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        lv_watch_state s = {.used_bytes = cases[i].used, .least_bytes = cases[i].least, .most_bytes = cases[i].most};
        const uint64_t got = lv_watch_next(&s, &cases[i].reading, cases[i].limit);
        if (got != cases[i].wanted) fail_msg("%s: %llu MiB", cases[i].name, (unsigned long long)(got >> 20));
    }
}

/* What is set aside for sessions to come is not taken from the blocks. */
static void test_sessions_to_come(void **state) {
    (void)state;
    const lv_watch_reading stalled = {MIB(4096), MIB(8180), 0.2, false}, nothing = {0, MIB(8180), 0, false};
    lv_watch_state s = {
        .used_bytes = MIB(800), .idle_bytes = MIB(150), .least_bytes = MIB(500), .most_bytes = UINT64_MAX};
    assert_int_equal(lv_watch_next(&s, &stalled, MIB(1000)), MIB(900));
    assert_int_equal(lv_watch_next(&s, &nothing, MIB(1000)), MIB(950 - 409));
    assert_int_equal(lv_watch_next(&s, &nothing, MIB(600)), MIB(500));
}

/* Comes back in steps after some calm, to what it was, and not while there is hardly enough. */
static void test_growing_again(void **state) {
    (void)state;
    lv_watch_state s = {.used_bytes = MIB(400), .least_bytes = MIB(200), .most_bytes = MIB(900)};
    const lv_watch_reading calm = {MIB(1500), MIB(8192), 0, false}, hardly = {MIB(500), MIB(8192), 0, false};
    uint64_t limit = MIB(400);
    for (uint32_t i = 0; i < 50; i++) assert_int_equal(lv_watch_next(&s, &hardly, limit), limit);
    uint32_t looks = 0, steps = 0;
    while (limit < MIB(900) && looks < 100) {
        const uint64_t next = lv_watch_next(&s, &calm, limit);
        assert_true(next >= limit && next <= MIB(900));
        steps += next > limit;
        limit = next;
        looks++;
    }
    assert_int_equal(limit, MIB(900));
    assert_true(looks > 5 && steps > 1);
    for (uint32_t i = 0; i < 50; i++) assert_int_equal(lv_watch_next(&s, &calm, limit), limit);
}

/* Nothing is taken of what was granted, as no pass runs: no more is granted than there is. */
static void test_granting_once(void **state) {
    (void)state;
    lv_watch_state s = {.used_bytes = MIB(400), .least_bytes = MIB(200), .most_bytes = UINT64_MAX};
    const lv_watch_reading small = {MIB(1000), MIB(8180), 0, false}; /* 182 MiB beyond twice the reserve */
    uint64_t limit = MIB(400);
    for (uint32_t i = 0; i < 200; i++) {
        const uint64_t next = lv_watch_next(&s, &small, limit);
        assert_true(next >= limit && next <= MIB(400 + 182));
        limit = next;
    }
    assert_true(limit > MIB(400 + 170));
    /* The blocks take it, and the system has that much less. */
    s.used_bytes = limit;
    const lv_watch_reading less = {MIB(818), MIB(8180), 0, false};
    for (uint32_t i = 0; i < 50; i++) assert_int_equal(lv_watch_next(&s, &less, limit), limit);
}

static void test_a_moment_of_shortage_ends_the_calm(void **state) {
    (void)state;
    lv_watch_state s = {.used_bytes = MIB(400), .least_bytes = MIB(200), .most_bytes = UINT64_MAX};
    const lv_watch_reading calm = {MIB(4000), MIB(8192), 0, false}, stalled = {MIB(4000), MIB(8192), 0.5, false};
    uint64_t limit = MIB(400);
    for (uint32_t i = 0; i < 9; i++) assert_int_equal(lv_watch_next(&s, &calm, limit), limit);
    limit = lv_watch_next(&s, &stalled, limit);
    assert_int_equal(limit, MIB(375));
    for (uint32_t i = 0; i < 9; i++) assert_int_equal(lv_watch_next(&s, &calm, limit), limit);
    assert_true(lv_watch_next(&s, &calm, limit) > limit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_look),
        cmocka_unit_test(test_sessions_to_come),
        cmocka_unit_test(test_growing_again),
        cmocka_unit_test(test_granting_once),
        cmocka_unit_test(test_a_moment_of_shortage_ends_the_calm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
