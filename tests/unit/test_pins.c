/* A block may be wanted, not wanted and leased at any moment of its life; its memory is given back exactly once. */
#include "flash/pins.h"
#include "support/check.h"

enum { BLOCKS = 3, HEAD_FIRST = 2, BYTES = 5000 };

static lv_block blocks[BLOCKS] = {{.bytes = BYTES}, {.bytes = BYTES}, {.bytes = BYTES}};
static const lv_layout layout = {.blocks = blocks, .blocks_count = BLOCKS, .head_block_first = HEAD_FIRST};

typedef struct {
    lv_pins pins;
    bool resident[BLOCKS];
} table;

static table *open_table(void) {
    static table t;
    t = (table){0};
    lever_error error;
    CHECK_OK(lv_pins_open(&t.pins, &layout, t.resident, NULL, &error));
    return &t;
}

static lv_area open_area(void) {
    lv_area area;
    lever_error error;
    CHECK_OK(lv_area_open(&area, NULL, LV_MEM_PINNED, BYTES, &(lv_area_options){0}, "a test", &error));
    return area;
}

static void fill(table *t, uint32_t block) {
    lv_area area = open_area();
    lv_pins_set(&t->pins, block, true, NULL);
    assert_true(lv_pins_begin(&t->pins, block));
    assert_false(lv_pins_begin(&t->pins, block)); /* one fills it */
    assert_false(t->resident[block]);
    assert_null(lv_pins_lease(&t->pins, block));
    assert_true(lv_pins_publish(&t->pins, block, &area, 7));
    assert_true(t->resident[block]);
}

static void a_filled_block_is_leased_until_it_is_given_back(void **state) {
    (void)state;
    table *t = open_table();
    fill(t, 0);
    assert_int_equal(t->pins.layer_bytes, BYTES);
    const uint8_t *data = lv_pins_lease(&t->pins, 0);
    assert_ptr_equal(data, t->pins.pins[0].area.data + 7);
    assert_ptr_equal(lv_pins_lease(&t->pins, 0), data); /* any number of times */

    lv_area freed = {0};
    lv_pins_set(&t->pins, 0, false, &freed);
    assert_null(freed.data);
    assert_false(t->resident[0]);
    assert_null(lv_pins_lease(&t->pins, 0)); /* it is leaving */
    lv_pins_release(&t->pins, 0, &freed);
    assert_null(freed.data);
    lv_pins_release(&t->pins, 0, &freed);
    assert_non_null(freed.data);
    assert_int_equal(t->pins.layer_bytes, 0);
    lv_area_close(&freed);
    lv_pins_close(&t->pins);
}

static void a_leaving_block_may_come_back(void **state) {
    (void)state;
    table *t = open_table();
    lv_area freed = {0};
    fill(t, 1);
    assert_non_null(lv_pins_lease(&t->pins, 1));
    lv_pins_set(&t->pins, 1, false, &freed);
    lv_pins_set(&t->pins, 1, true, &freed);
    assert_true(t->resident[1]);
    lv_pins_release(&t->pins, 1, &freed);
    assert_null(freed.data);
    lv_pins_set(&t->pins, 1, false, &freed); /* without a lease: at once */
    assert_non_null(freed.data);
    lv_area_close(&freed);
    lv_pins_close(&t->pins);
}

static void who_fills_in_vain_keeps_the_memory(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        table *t = open_table();
        lv_area area = open_area();
        lv_pins_set(&t->pins, 0, true, NULL);
        assert_true(lv_pins_begin(&t->pins, 0));
        lv_pins_set(&t->pins, 0, false, NULL);
        if (again) lv_pins_set(&t->pins, 0, true, NULL);
        assert_false(lv_pins_publish(&t->pins, 0, &area, 0));
        assert_false(t->resident[0]);
        assert_int_equal(lv_pins_begin(&t->pins, 0), again); /* if wanted again, then the next time */
        lv_pins_abandon(&t->pins, 0);
        assert_int_equal(lv_pins_begin(&t->pins, 0), again);
        lv_area_close(&area);
        lv_pins_close(&t->pins);
    }
}

static void the_head_is_counted_apart(void **state) {
    (void)state;
    table *t = open_table();
    fill(t, HEAD_FIRST);
    assert_int_equal(t->pins.layer_bytes, 0);
    lv_pins_close(&t->pins); /* gives back what is still pinned */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filled_block_is_leased_until_it_is_given_back),
        cmocka_unit_test(a_leaving_block_may_come_back),
        cmocka_unit_test(who_fills_in_vain_keeps_the_memory),
        cmocka_unit_test(the_head_is_counted_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
