/* Philox against published vectors; Gumbel noise against its distribution and against frozen values. */
#include "base/rng.h"

#include <math.h>

#include "support/check.h"

/* From the paper's reference implementation. */
static void test_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], wanted[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lv_philox_block block = lv_philox(rows[i].counter, rows[i].key);
        for (int word = 0; word < 4; word++) assert_int_equal(block.word[word], rows[i].wanted[word]);
    }
}

static void test_gumbel_is_a_pure_function(void **state) {
    (void)state;
    assert_true(lv_gumbel(1, 2, 3) == lv_gumbel(1, 2, 3));
    assert_true(lv_gumbel(1, 2, 3) != lv_gumbel(2, 2, 3));
    assert_true(lv_gumbel(1, 2, 3) != lv_gumbel(1, 3, 3));
    assert_true(lv_gumbel(1, 2, 3) != lv_gumbel(1, 2, 4));
    /* All 64 bits of seed and position count. */
    assert_true(lv_gumbel(1, 2, 3) != lv_gumbel(1 + (UINT64_C(1) << 32), 2, 3));
    assert_true(lv_gumbel(1, 2, 3) != lv_gumbel(1, 2 + (UINT64_C(1) << 32), 3));
}

/* Frozen, for texts must not change from one version to the next: seed 7, position 11. */
static void test_gumbel_is_frozen(void **state) {
    (void)state;
    static const double wanted[] = {-1.041022878760375, 1.0333505855604066, -0.12436101846293879};
    for (int token = 0; token < 3; token++) assert_true(fabs(lv_gumbel(7, 11, token) - wanted[token]) < 1e-12);
}

/* Mean 0.5772, variance pi^2 / 6, and the distribution function at quantiles. The counts are fixed by the seed. */
static void test_gumbel_distribution(void **state) {
    (void)state;
    enum { COUNT = 200000, CELLS = 16 };
    double sum = 0, squares = 0;
    int cells[CELLS] = {0};
    for (int i = 0; i < COUNT; i++) {
        double noise = lv_gumbel(42, (uint64_t)i / 100, i % 100);
        assert_true(isfinite(noise));
        sum += noise;
        squares += noise * noise;
        double probability = exp(-exp(-noise));
        int cell = (int)(probability * CELLS);
        cells[cell < CELLS ? cell : CELLS - 1]++;
    }
    double mean = sum / COUNT;
    assert_true(fabs(mean - 0.57721566) < 0.01);
    assert_true(fabs(squares / COUNT - mean * mean - 1.64493407) < 0.03);
    double chi_square = 0;
    for (int i = 0; i < CELLS; i++) {
        double difference = cells[i] - (double)COUNT / CELLS;
        chi_square += difference * difference / ((double)COUNT / CELLS);
    }
    assert_true(chi_square < 37.7); /* 15 degrees of freedom, one in a thousand */
}

static void test_drawn_seeds_differ(void **state) {
    (void)state;
    uint64_t first = lv_seed_draw();
    assert_true(first < UINT64_C(1) << 53);
    assert_true(first != lv_seed_draw());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),      cmocka_unit_test(test_gumbel_is_a_pure_function),
        cmocka_unit_test(test_gumbel_is_frozen),   cmocka_unit_test(test_gumbel_distribution),
        cmocka_unit_test(test_drawn_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
