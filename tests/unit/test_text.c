/* Sizes, numbers and UTF-8, as tables. */
#include "base/text.h"
#include "support/check.h"

static void test_parse_size(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"4096B", 4096},
        {"64K", 65536},
        {"64k", 65536},
        {"64KB", 65536},
        {"64KiB", 65536},
        {"64kib", 65536},
        {"700M", 734003200},
        {"1.5G", 1610612736},
        {"0.5K", 512},
        {"1.25m", 1310720},
        {"2T", UINT64_C(2) << 40},
        {"0.1G", 107374182},
        {"16777215T", UINT64_C(16777215) << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t bytes = 1;
        if (!lv_parse_size(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("'%s' gave %llu", good[i].text, (unsigned long long)bytes);
    }
    static const char *const bad[] = {
        "",          " 1M",   "1M ",
        "-1M",       "+1M",   "M",
        ".5G",       "5.G",   "1.5",
        "1.5B",      "1,5G",  "1e3",
        "0x10",      "1iB",   "1Mi",
        "1MM",       "1 M",   "inf",
        "1P",        "1MBx",  "18446744073709551616",
        "16777216T", "1..5G", "99999999999999999999G",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes = 77;
        if (lv_parse_size(bad[i], &bytes)) fail_msg("'%s' was taken for %llu", bad[i], (unsigned long long)bytes);
        assert_int_equal(bytes, 77);
    }
    uint64_t bytes;
    assert_false(lv_parse_size(NULL, &bytes));
}

static void test_format_size(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {864, "864 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1610612736, "1.50 GiB"},
        {27577549, "26.3 MiB"},
        {734003200, "700 MiB"},
        {10239, "10.0 KiB"},
        {1048575, "1.00 MiB"},
        {1047552, "1023 KiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char buffer[32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(lv_format_size(rows[i].bytes, buffer, sizeof buffer), rows[i].text);
    assert_string_equal(lv_format_size(734003200, buffer, 5), "700 ");
}

static void test_parse_integers(void **state) {
    (void)state;
    uint64_t u = 0;
    assert_true(lv_parse_u64("18446744073709551615", 0, UINT64_MAX, &u) && u == UINT64_MAX);
    assert_true(lv_parse_u64("007", 0, 7, &u) && u == 7);
    static const char *const bad_u64[] = {"", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0", "18446744073709551616"};
    for (size_t i = 0; i < sizeof bad_u64 / sizeof *bad_u64; i++)
        assert_false(lv_parse_u64(bad_u64[i], 0, UINT64_MAX, &u));
    assert_false(lv_parse_u64("4", 5, 9, &u) || lv_parse_u64("10", 5, 9, &u) || lv_parse_u64(NULL, 0, 9, &u));

    int64_t i = 0;
    assert_true(lv_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i) && i == INT64_MIN);
    assert_true(lv_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &i) && i == INT64_MAX);
    assert_true(lv_parse_i64("-0", -1, 1, &i) && i == 0);
    assert_true(lv_parse_i64("-12", -12, 0, &i) && i == -12);
    static const char *const bad_i64[] = {"", "-", "--1", "+1", "1-", "9223372036854775808", "-9223372036854775809"};
    for (size_t k = 0; k < sizeof bad_i64 / sizeof *bad_i64; k++)
        assert_false(lv_parse_i64(bad_i64[k], INT64_MIN, INT64_MAX, &i));
    assert_false(lv_parse_i64("-13", -12, 0, &i) || lv_parse_i64("1", -12, 0, &i) || lv_parse_i64(NULL, -1, 1, &i));
}

static void test_parse_double(void **state) {
    (void)state;
    double value = 0;
    assert_true(lv_parse_double("0.7", 0, 2, &value) && value == 0.7);
    assert_true(lv_parse_double("-1e-3", -1, 1, &value) && value == -1e-3);
    assert_true(lv_parse_double(".5", 0, 1, &value) && value == 0.5);
    static const char *const bad[] = {"", " 1", "1 ", "+1", "nan", "inf", "-inf", "0x1p3", "1e999", "1.2.3", "e5", "-"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lv_parse_double(bad[i], -1e300, 1e300, &value)) fail_msg("'%s' was taken", bad[i]);
    assert_false(lv_parse_double("2.1", 0, 2, &value) || lv_parse_double("-0.1", 0, 2, &value));
    assert_false(lv_parse_double(NULL, 0, 1, &value));
}

/* whole: leading bytes that are valid; incomplete: whether the rest can become valid; repaired: the text with U+FFFD,
 * here written as '?'. The cases of invalid sequences follow the Unicode Standard, table 3-8. */
static void test_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t whole;
        bool incomplete;
        const char *repaired;
    } rows[] = {
        {"", 0, false, ""},
        {"plain", 5, false, "plain"},
        {"gr\xC3\xBC\xC3\x9F", 6, false, "gr\xC3\xBC\xC3\x9F"},
        {"\xE2\x82\xAC", 3, false, "\xE2\x82\xAC"},
        {"\xF0\x9F\x98\x80!", 5, false, "\xF0\x9F\x98\x80!"},
        {"a\xC3", 1, true, "a?"},
        {"a\xE2\x82", 1, true, "a?"},
        {"\xF0", 0, true, "?"},
        {"\xF0\x9F\x98", 0, true, "?"},
        {"\x80", 0, false, "?"},
        {"\xC0\xAF", 0, false, "??"},           /* overlong */
        {"\xE0\x80\x80", 0, false, "???"},      /* overlong */
        {"\xF0\x80\x80\xAF", 0, false, "????"}, /* overlong */
        {"\xED\xA0\x80", 0, false, "???"},      /* surrogate */
        {"\xED\xA0", 0, false, "??"},           /* surrogate, cut */
        {"\xF4\x90\x80\x80", 0, false, "????"}, /* above U+10FFFF */
        {"\xFF", 0, false, "?"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 0, false, "????A"},
        {"a\xC3z", 1, false, "a?z"},
        {"\xF4\x8F\xBF\xBF", 4, false, "\xF4\x8F\xBF\xBF"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t bytes = strlen(rows[i].text);
        size_t whole = lv_utf8_whole(rows[i].text, bytes);
        assert_int_equal(whole, rows[i].whole);
        assert_int_equal(lv_utf8_incomplete(rows[i].text + whole, bytes - whole), rows[i].incomplete);

        char wanted[64] = "", out[64];
        size_t length = 0;
        for (const char *c = rows[i].repaired; *c; c++) {
            if (*c == '?') {
                memcpy(wanted + length, "\xEF\xBF\xBD", 3);
                length += 3;
            } else {
                wanted[length++] = *c;
            }
        }
        assert_int_equal(lv_utf8_repair(rows[i].text, bytes, out, sizeof out), length);
        assert_memory_equal(out, wanted, length);
    }
}

/* Too little room: whole characters are written, the need is told, nothing is touched behind the room. */
static void test_utf8_repair_with_little_room(void **state) {
    (void)state;
    const char text[] = "a\xE2\x82\xAC\xFFz"; /* 1 + 3 + 3 + 1 bytes */
    for (size_t capacity = 0; capacity <= 8; capacity++) {
        char out[16];
        memset(out, '#', sizeof out);
        assert_int_equal(lv_utf8_repair(text, 6, out, capacity), 8);
        size_t written = capacity < 1 ? 0 : capacity < 4 ? 1 : capacity < 7 ? 4 : capacity < 8 ? 7 : 8;
        assert_memory_equal(out, "a\xE2\x82\xAC\xEF\xBF\xBDz", written);
        for (size_t i = written; i < sizeof out; i++) assert_int_equal(out[i], '#');
    }
    assert_int_equal(lv_utf8_repair(text, 6, NULL, 0), 8);
}

static void test_append(void **state) {
    (void)state;
    for (size_t capacity = 0; capacity <= 12; capacity++) {
        char text[16];
        memset(text, '#', sizeof text);
        size_t used = lv_text_append(text, capacity, 0, "%s", "one ");
        used = lv_text_append(text, capacity, used, "%d ", 22);
        used = lv_text_append(text, capacity, used, "%s", "three");
        assert_int_equal(used, 12);
        for (size_t i = capacity; i < sizeof text; i++) assert_int_equal(text[i], '#');
        if (capacity == 12) assert_memory_equal(text, "one 22 thre", 12);
        if (capacity > 0 && capacity < 12) assert_null(memchr(text, '#', capacity > 4 ? 4 : capacity));
    }
    assert_int_equal(lv_text_append(NULL, 0, 3, "%s", "four"), 7);
}

static void test_sections(void **state) {
    (void)state;
    static const struct {
        const char *text, *heading, *wanted; /* NULL: no such section */
    } rows[] = {
        {"lever a 1\nx\n", "lever a 1\n", "x\n"}, {"lever a 1\nx\nlever b 1\ny\n", "lever b 1\n", "y\n"},
        {"lever a 10\nx\n", "lever a 1\n", NULL}, {"x lever a 1\ny\n", "lever a 1\n", NULL},
        {"lever a 1", "lever a 1\n", NULL},       {"", "lever a 1\n", NULL},
        {"\n\nlever a 1\n", "lever a 1\n", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *found = lv_text_section(rows[i].text, rows[i].heading);
        if (rows[i].wanted) {
            assert_non_null(found);
            assert_string_equal(found, rows[i].wanted);
        } else {
            assert_null(found);
        }
    }
    assert_true(lv_text_is_section_end("") && lv_text_is_section_end("lever b 1\ny\n"));
    assert_false(lv_text_is_section_end("lever") || lv_text_is_section_end("\n") || lv_text_is_section_end("x"));
}

static void test_what_may_have_been_cut_off(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool may;
    } cases[] = {{"", true},   {"{", true},           {"{\"row", true}, {"{\"row\": 1", true},
                 {"[", false}, {"{\"raw\": 1", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(lv_text_may_begin(cases[i].text, strlen(cases[i].text), "{\"row\": "), cases[i].may);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_size),
        cmocka_unit_test(test_format_size),
        cmocka_unit_test(test_parse_integers),
        cmocka_unit_test(test_parse_double),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_utf8_repair_with_little_room),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_what_may_have_been_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
