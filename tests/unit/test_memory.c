/* Heap blocks and areas: booked, zeroed, aligned, given back; and every request to the system failing. */
/* faults: memory */
#include "base/memory.h"

#include <stdalign.h>

#include "support/check.h"
#include "support/fault.h"

static bool all_zero(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i]) return false;
    return true;
}

static void test_alloc_books_exactly(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(10000);
    uint8_t *memory = lv_alloc(ledger, LV_MEM_KV, 7, 100);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % alignof(max_align_t), 0);
    assert_true(all_zero(memory, 700));
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_KV), 700);
    void *empty = lv_alloc(ledger, LV_MEM_KV, 0, 8);
    assert_non_null(empty);
    assert_int_equal(lv_ledger_used(ledger), 700);
    lv_free(empty);
    lv_free(memory);
    lv_free(NULL);
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
}

static void test_alloc_refusals(void **state) {
    (void)state;
    lever_error error;
    void *memory = &error;
    lv_ledger *ledger = lv_ledger_create(100);
    assert_null(lv_alloc(ledger, LV_MEM_KV, 1, 101));
    assert_null(lv_alloc(ledger, LV_MEM_KV, SIZE_MAX / 2, 3));
    assert_null(lv_alloc(NULL, LV_MEM_KV, SIZE_MAX, 1));
    CHECK_FAILS(lv_alloc_checked(&memory, ledger, LV_MEM_KV, 101, 1, "cache of session 3", &error), LEVER_E_BUDGET,
                "cache of session 3: key/value cache: 101 B");
    assert_null(memory);
    CHECK_FAILS(lv_alloc_checked(&memory, NULL, LV_MEM_KV, SIZE_MAX, 2, "tables", &error), LEVER_E_MEMORY, "tables");
    fault_memory_set(1, 1);
    CHECK_FAILS(lv_alloc_checked(&memory, ledger, LV_MEM_KV, 10, 1, "tables", &error), LEVER_E_MEMORY,
                "tables: the system refused 10 B");
    fault_memory_set(0, 0);
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
}

static void test_growing_and_shrinking(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(1000);
    uint8_t *memory = lv_alloc(ledger, LV_MEM_SESSION, 10, 1);
    memset(memory, 0xAA, 10);
    memory = lv_realloc(memory, 300, 2);
    assert_non_null(memory);
    assert_int_equal(memory[9], 0xAA);
    assert_true(all_zero(memory + 10, 590));
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_SESSION), 600);

    assert_null(lv_realloc(memory, 1001, 1));     /* the ledger refuses */
    assert_null(lv_realloc(memory, SIZE_MAX, 2)); /* overflow */
    fault_memory_set(1, 1);
    assert_null(lv_realloc(memory, 700, 1)); /* the system refuses */
    fault_memory_set(0, 0);
    assert_int_equal(lv_ledger_used(ledger), 600);
    assert_int_equal(memory[9], 0xAA); /* the old block is still good */

    memory = lv_realloc(memory, 5, 1);
    assert_int_equal(lv_ledger_used(ledger), 5);
    memory = lv_realloc(memory, 20, 1); /* what was cut off and comes back is zero */
    assert_int_equal(memory[4], 0xAA);
    assert_true(all_zero(memory + 5, 15));
    lv_free(memory);
    lv_ledger_free(ledger);
}

static void test_strdup(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(6);
    char *text = lv_strdup(ledger, LV_MEM_METADATA, "lever");
    assert_string_equal(text, "lever");
    assert_null(lv_strdup(ledger, LV_MEM_METADATA, ""));
    lv_free(text);
    lv_ledger_free(ledger);
}

static void test_area(void **state) {
    (void)state;
    static const struct {
        size_t bytes, booked;
    } rows[] = {{0, 4096},
                {1, 4096},
                {4096, 4096},
                {4097, 8192},
                {(size_t)2 << 20, (size_t)2 << 20},
                {((size_t)5 << 20) + 1, ((size_t)5 << 20) + 4096}};
    lever_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int options = 0; options < 4; options++) {
            int64_t mapped_before = fault_memory_mapped_bytes();
            lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
            lv_area area;
            CHECK_OK(lv_area_open(&area, ledger, LV_MEM_RING, rows[i].bytes,
                                  &(lv_area_options){options & 1, options & 2}, "ring", &error));
            assert_int_equal((uintptr_t)area.data % LV_HUGE_PAGE_BYTES, 0);
            assert_int_equal(area.bytes, rows[i].bytes);
            assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_RING), rows[i].booked);
            assert_int_equal(fault_memory_mapped_bytes() - mapped_before, rows[i].booked);
            assert_true(all_zero(area.data, area.bytes));
            memset(area.data, 0xFF, area.bytes);
            lv_area_close(&area);
            assert_null(area.data);
            lv_area_close(&area);
            assert_int_equal(lv_ledger_used(ledger), 0);
            assert_int_equal(fault_memory_mapped_bytes(), mapped_before);
            lv_ledger_free(ledger);
        }
    }
    assert_int_equal(lv_area_booked_bytes(4097), 8192);
}

static void test_area_refusals(void **state) {
    (void)state;
    lever_error error;
    lv_area area;
    lv_ledger *ledger = lv_ledger_create(8192);
    const lv_area_options options = {true, true};
    CHECK_FAILS(lv_area_open(&area, ledger, LV_MEM_RING, 8193, &options, "ring", &error), LEVER_E_BUDGET,
                "ring: ring of blocks: 12.0 KiB");
    assert_null(area.data);
    fault_memory_set(1, 1);
    CHECK_FAILS(lv_area_open(&area, ledger, LV_MEM_RING, 8192, &options, "ring", &error), LEVER_E_MEMORY, "8.00 KiB");
    fault_memory_set(0, 0);
    assert_null(area.data);
    CHECK_FAILS(lv_area_open(&area, NULL, LV_MEM_RING, SIZE_MAX, &options, "ring", &error), LEVER_E_MEMORY, "ring");
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
}

static void test_ledger_creation_fails(void **state) {
    (void)state;
    fault_memory_set(1, 1);
    assert_null(lv_ledger_create(1));
    fault_memory_set(0, 0);
}

static int nothing_is_left(void **state) {
    (void)state;
    return fault_memory_blocks() == 0 && fault_memory_mapped_bytes() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_books_exactly),
        cmocka_unit_test(test_alloc_refusals),
        cmocka_unit_test(test_growing_and_shrinking),
        cmocka_unit_test(test_strdup),
        cmocka_unit_test(test_area),
        cmocka_unit_test(test_area_refusals),
        cmocka_unit_test(test_ledger_creation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
