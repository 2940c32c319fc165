/* test_kv.c - the key/value cache: its size, its layout, its rounding, moving slots, and refusal by the ledger. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "compute/kv.h"

static const lv_kv_shape small = {.layers_count = 3, .slots_count = 33, .kv_heads_count = 2, .head_dim = 24};

static double double_from_half(uint16_t half) {
    double size = half >> 10 & 31 ? ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25) : ldexp(half & 1023, -24);
    return half & 0x8000 ? -size : size;
}

/* A number that names its place. */
static float content(uint32_t layer, uint32_t slot, uint32_t head, uint32_t d, bool is_value) {
    return (float)((((layer * 5 + slot) * 7 + head) * 29 + d) * 2 + is_value) / 64;
}

static void fill(lv_kv *kv) {
    float key[64], value[64];
    for (uint32_t layer = 0; layer < small.layers_count; layer++) {
        for (uint32_t slot = 0; slot < small.slots_count; slot++) {
            for (uint32_t i = 0; i < small.kv_heads_count * small.head_dim; i++) {
                key[i] = content(layer, slot, i / small.head_dim, i % small.head_dim, false);
                value[i] = content(layer, slot, i / small.head_dim, i % small.head_dim, true);
            }
            lv_kv_store(kv, layer, slot, key, value);
        }
    }
}

/* What lies in `slot` is what was stored for `origin`. */
static void check_slot(const lv_kv *kv, uint32_t slot, uint32_t origin) {
    for (uint32_t layer = 0; layer < small.layers_count; layer++) {
        for (uint32_t head = 0; head < small.kv_heads_count; head++) {
            const uint16_t *keys = lv_kv_keys(kv, layer, head);
            const uint16_t *values = lv_kv_values(kv, layer, head);
            for (uint32_t d = 0; d < small.head_dim; d++) {
                double key = double_from_half(keys[(slot / 16 * small.head_dim + d) * 16 + slot % 16]);
                double value = double_from_half(values[slot * small.head_dim + d]);
                double key_wanted = (double)content(layer, origin, head, d, false);
                double value_wanted = (double)content(layer, origin, head, d, true);
                assert_true(fabs(key - key_wanted) <= key_wanted / 2048);
                assert_true(fabs(value - value_wanted) <= value_wanted / 2048);
            }
        }
    }
}

static void bytes_are_pinned(void **state) {
    (void)state;
    lv_kv_shape target = {.layers_count = 28, .slots_count = 4096 + 32, .kv_heads_count = 2, .head_dim = 128};
    assert_int_equal(lv_kv_bytes(&target), (uint64_t)28 * 4128 * 2 * 128 * 2 * 2 + 64);
    assert_int_equal(lv_kv_bytes(&small), (uint64_t)3 * 48 * 2 * 24 * 2 * 2 + 64); /* 33 slots are three tiles */
    lv_kv_shape huge = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 128};
    assert_true(lv_kv_bytes(&huge) == UINT64_MAX);
}

static void slots_keep_what_is_stored(void **state) {
    (void)state;
    lv_kv kv;
    assert_int_equal(lv_kv_open(&kv, NULL, &small, NULL), LEVER_OK);
    assert_int_equal(lv_kv_slots_count(&kv), 48);
    fill(&kv);
    for (uint32_t slot = 0; slot < small.slots_count; slot++) check_slot(&kv, slot, slot);
    lv_kv_close(&kv);
    lv_kv_close(&kv);
}

static void commit_moves_accepted_nodes(void **state) {
    (void)state;
    lv_kv kv;
    assert_int_equal(lv_kv_open(&kv, NULL, &small, NULL), LEVER_OK);
    fill(&kv);
    const uint32_t accepted[] = {14, 17, 18, 25,
                                 32}; /* the first stays where it is; destinations cross a tile border */
    lv_kv_commit(&kv, 14, accepted, 5);
    for (uint32_t slot = 0; slot < 14; slot++) check_slot(&kv, slot, slot);
    for (uint32_t i = 0; i < 5; i++) check_slot(&kv, 14 + i, accepted[i]);
    for (uint32_t slot = 19; slot < small.slots_count; slot++) check_slot(&kv, slot, slot);
    lv_kv_move(&kv, 31, 3);
    check_slot(&kv, 3, 31);
    check_slot(&kv, 31, 31);
    lv_kv_commit(&kv, 5, NULL, 0);
    check_slot(&kv, 5, 5);
    lv_kv_close(&kv);
}

/* Stores `number` as key and as value; both must come out as the same half. */
static uint16_t rounded(lv_kv *kv, float number) {
    float row[8] = {0};
    row[3] = number;
    lv_kv_store(kv, 0, 0, row, row);
    uint16_t key = lv_kv_keys(kv, 0, 0)[3 * 16];
    assert_int_equal(key, lv_kv_values(kv, 0, 0)[3]);
    return key;
}

static void rounding_is_nearest_even(void **state) {
    (void)state;
    lv_kv_shape shape = {.layers_count = 1, .slots_count = 1, .kv_heads_count = 1, .head_dim = 8};
    lv_kv kv;
    assert_int_equal(lv_kv_open(&kv, NULL, &shape, NULL), LEVER_OK);
    /* Each finite half, the number half way to the next, and the floats beside that. */
    for (uint32_t half = 0; half < 0x7bff; half++) {
        double below = double_from_half((uint16_t)half);
        double above = double_from_half((uint16_t)(half + 1));
        float middle = (float)((below + above) / 2); /* exact */
        uint32_t even = half + (half & 1);
        assert_int_equal(rounded(&kv, (float)below), half);
        assert_int_equal(rounded(&kv, -(float)below), half | 0x8000);
        assert_int_equal(rounded(&kv, middle), even);
        assert_int_equal(rounded(&kv, -middle), even | 0x8000);
        assert_int_equal(rounded(&kv, nextafterf(middle, 0)), half);
        assert_int_equal(rounded(&kv, nextafterf(middle, INFINITY)), half + 1);
    }
    lv_kv_close(&kv);
}

static void what_is_stored_is_finite(void **state) {
    (void)state;
    lv_kv_shape shape = {.layers_count = 1, .slots_count = 1, .kv_heads_count = 1, .head_dim = 8};
    lv_kv kv;
    assert_int_equal(lv_kv_open(&kv, NULL, &shape, NULL), LEVER_OK);
    const float large[] = {65504, 65519, 65520, 1e30f, 3e38f, INFINITY, NAN};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(rounded(&kv, large[i]) & 0x7fff, 0x7bff);
        if (!isnan(large[i])) assert_int_equal(rounded(&kv, -large[i]), 0xfbff);
    }
    assert_int_equal(rounded(&kv, 1e-45f), 0);
    lv_kv_close(&kv);
}

static void ledger_is_asked(void **state) {
    (void)state;
    lv_kv_shape shape = {.layers_count = 2, .slots_count = 64, .kv_heads_count = 2, .head_dim = 64};
    uint64_t booked = lv_area_booked_bytes((size_t)lv_kv_bytes(&shape));
    lever_error error;
    lv_kv kv;

    lv_ledger *ledger = lv_ledger_create(booked - 1);
    assert_int_equal(lv_kv_open(&kv, ledger, &shape, &error), LEVER_E_BUDGET);
    assert_non_null(strstr(error.message, "key/value cache"));
    assert_null(kv.data);
    lv_kv_close(&kv);
    assert_int_equal(lv_ledger_used(ledger), 0);

    assert_int_equal(lv_ledger_set_limit(ledger, booked, NULL), LEVER_OK);
    assert_int_equal(lv_kv_open(&kv, ledger, &shape, NULL), LEVER_OK);
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_KV), booked);
    lv_kv_close(&kv);
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    const struct {
        lv_kv_shape shape;
        lever_status status;
    } cases[] = {
        {{1, 16, 1, 0}, LEVER_E_FORMAT},
        {{1, 16, 1, 100}, LEVER_E_FORMAT},
        {{1, 16, 1, 264}, LEVER_E_FORMAT},
        {{1, UINT32_MAX, 1, 64}, LEVER_E_MEMORY},
        {{1u << 31, 1u << 31, 8, 64}, LEVER_E_MEMORY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lv_kv kv;
        lever_error error;
        assert_int_equal(lv_kv_open(&kv, NULL, &cases[i].shape, &error), cases[i].status);
        assert_true(strlen(error.message) > 20);
        lv_kv_close(&kv);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_pinned),
        cmocka_unit_test(slots_keep_what_is_stored),
        cmocka_unit_test(commit_moves_accepted_nodes),
        cmocka_unit_test(rounding_is_nearest_even),
        cmocka_unit_test(what_is_stored_is_finite),
        cmocka_unit_test(ledger_is_asked),
        cmocka_unit_test(impossible_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
