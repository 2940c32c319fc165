/* Messages: filled, prefixed, cut, and never needed. */
#include "base/status.h"
#include "support/check.h"

static void test_texts(void **state) {
    (void)state;
    assert_string_equal(lever_status_text(LEVER_OK), "success");
    assert_string_equal(lever_status_text(LEVER_E_BUDGET), "memory budget too small");
    assert_string_equal(lever_status_text(LEVER_E_INTERNAL), "internal error");
    assert_string_equal(lever_status_text((lever_status)-99), "unknown status");
    assert_string_equal(lever_version(), LEVER_VERSION_TEXT);
}

static void test_fail_fills(void **state) {
    (void)state;
    lever_error error;
    assert_int_equal(lv_fail(&error, LEVER_E_IO, "%s at %d", "torn", 7), LEVER_E_IO);
    assert_int_equal(error.status, LEVER_E_IO);
    assert_string_equal(error.message, "torn at 7");
    assert_int_equal(lv_fail(NULL, LEVER_E_IO, "nobody listens"), LEVER_E_IO);
}

static void test_prefix(void **state) {
    (void)state;
    lever_error error;
    lv_fail(&error, LEVER_E_FORMAT, "wrong magic");
    lv_error_prefix(&error, "%s: ", "model.gguf");
    assert_string_equal(error.message, "model.gguf: wrong magic");
    assert_int_equal(error.status, LEVER_E_FORMAT);
    lv_error_prefix(NULL, "nobody listens");
}

static void test_long_texts_are_cut(void **state) {
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    struct {
        lever_error error;
        char guard[4096];
    } whole;
    memset(whole.guard, '#', sizeof whole.guard);
    lever_error *error = &whole.error;
    lv_fail(error, LEVER_E_IO, "%s", text);
    assert_int_equal(strlen(error->message), sizeof error->message - 1);
    lv_error_prefix(error, "front ");
    assert_int_equal(strlen(error->message), sizeof error->message - 1);
    assert_memory_equal(error->message, "front xxx", 9);
    lv_error_prefix(error, "%s", text);
    assert_int_equal(strlen(error->message), sizeof error->message - 1);
    assert_int_equal(error->message[0], 'x');
    for (size_t i = 0; i < sizeof whole.guard; i++) assert_int_equal(whole.guard[i], '#');
}

static void test_clear(void **state) {
    (void)state;
    lever_error error;
    lv_fail(&error, LEVER_E_IO, "old");
    lv_error_clear(&error);
    assert_int_equal(error.status, LEVER_OK);
    assert_string_equal(error.message, "");
    lv_error_clear(NULL);
}

static lever_status passes_up(lever_status inner, int *reached) {
    LV_TRY(inner);
    *reached = 1;
    return LEVER_OK;
}

static void test_try(void **state) {
    (void)state;
    int reached = 0;
    assert_int_equal(passes_up(LEVER_E_MEMORY, &reached), LEVER_E_MEMORY);
    assert_int_equal(reached, 0);
    assert_int_equal(passes_up(LEVER_OK, &reached), LEVER_OK);
    assert_int_equal(reached, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),  cmocka_unit_test(test_fail_fills),
        cmocka_unit_test(test_prefix), cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_clear),  cmocka_unit_test(test_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
