/* Text leaves in whole characters, and nothing of a stop string leaves at all, however the bytes are cut into tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "engine/answer.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define TOKEN_BYTES_MAX 64

typedef struct {
    char text[32768];
    size_t bytes;
    size_t taken; /* input bytes until the stop */
    bool stopped;
} result;

static void take(result *got, lv_answer_text text) {
    assert_int_equal(lv_utf8_whole(text.data, text.bytes), text.bytes);
    assert_true(got->bytes + text.bytes <= sizeof got->text);
    if (text.bytes > 0) memcpy(got->text + got->bytes, text.data, text.bytes);
    got->bytes += text.bytes;
}

/* Pushes `input` in pieces of `step` bytes. */
static void run(result *got, const char *const *stops, size_t stops_count, const char *input, size_t input_bytes,
                size_t step) {
    *got = (result){.bytes = 0};
    lv_answer *answer = NULL;
    assert_int_equal(lv_answer_open(&answer, stops, stops_count, TOKEN_BYTES_MAX, NULL, NULL), LEVER_OK);
    lv_answer_text text;
    while (got->taken < input_bytes && !got->stopped) {
        const size_t piece = step < input_bytes - got->taken ? step : input_bytes - got->taken;
        got->stopped = lv_answer_push(answer, input + got->taken, piece, &text);
        got->taken += piece;
        take(got, text);
    }
    if (!got->stopped) {
        got->stopped = lv_answer_finish(answer, &text);
        take(got, text);
    }
    lv_answer_close(&answer);
    lv_answer_close(&answer);
}

static void text_does_not_depend_on_the_cuts(void **state) {
    (void)state;
    const struct {
        const char *input;
        const char *stops[4];
        const char *wanted;
        bool stopped;
    } cases[] = {
        {"plain text", {NULL}, "plain text", false},
        {"", {"stop"}, "", false},
        {"alpha beta gamma delta", {"beta gamma"}, "alpha ", true},
        {"a a ba b c", {"a b"}, "a ", true},
        {"x a a a b", {"a b"}, "x a a ", true},
        {"xaab", {"a b"}, "xaab", false},
        {"ends with a st", {"stop"}, "ends with a st", false},
        {"ababac", {"abac"}, "ab", true},
        {"aaaaaab", {"aaab"}, "aaa", true},
        {"pre end", {"pre", "prefix", "pr"}, "", true},
        {"a prefixed", {"prefix", "preface", "prefixes", "prey"}, "a ", true},
        {"prefer prey", {"prefix", "preface", "prefixes", "prey"}, "prefer ", true},
        {"one abcd", {"abcd", "b"}, "one a", true},
        {"one bcd", {"cd", "bcd"}, "one ", true},
        {"empty ones do not count", {"", ""}, "empty ones do not count", false},
        {"STOP", {"STOP"}, "", true},
        {"\xe6\xad\xa3 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac!",
         {NULL},
         "\xe6\xad\xa3 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac!",
         false},
        {"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac", {"\xe2\x80\x8d"}, "\xf0\x9f\x91\xa9", true},
        {"\xf0\x9f\x91\xa9\xf0\x9f\x91\xaa", {"\xf0\x9f\x91\xaa"}, "\xf0\x9f\x91\xa9", true},
        {"bad \xff\xfe byte", {NULL}, "bad \xef\xbf\xbd\xef\xbf\xbd byte", false},
        {"cut \xf0\x9f\x98", {NULL}, "cut \xef\xbf\xbd", false},
        {"cut \xf0\x9f\x98 on", {NULL}, "cut \xef\xbf\xbd on", false},
        {"\xe6\xad\xe6\xad\xa3", {NULL}, "\xef\xbf\xbd\xe6\xad\xa3", false},
        {"\xc0\xaf\xed\xa0\x80", {NULL}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", false},
        {"a\xff"
         "b",
         {"\xff"},
         "a",
         true}, /* a stop string is read as the text is */
        {"tail \xe6\xad", {"\xef\xbf\xbd"}, "tail ", true},
    };
    static result got;
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        size_t stops_count = 0;
        while (stops_count < 4 && cases[c].stops[stops_count] != NULL) stops_count++;
        for (size_t step = 1; step <= 24; step++) {
            run(&got, cases[c].stops, stops_count, cases[c].input, strlen(cases[c].input), step);
            if (got.bytes != strlen(cases[c].wanted) || memcmp(got.text, cases[c].wanted, got.bytes) != 0 ||
                got.stopped != cases[c].stopped) {
                fail_msg("case %zu ('%s'), %zu bytes a token: '%.*s', stopped: %d", c, cases[c].input, step,
                         (int)got.bytes, got.text, got.stopped);
            }
        }
    }
}

/* Text is held back only while it may become a stop string or a character. */
static void text_is_held_no_longer_than_needed(void **state) {
    (void)state;
    const struct {
        const char *push, *wanted;
    } steps[] = {{"one ", "one "},         {"st", ""}, {"o", ""},   {"ne ", "stone "}, {"\xe2", ""}, {"\x82", ""},
                 {"\xac", "\xe2\x82\xac"}, {"", ""},   {"ss", "s"}, {"t", ""}};
    const char *const stops[] = {"stop"};
    lv_answer *answer = NULL;
    assert_int_equal(lv_answer_open(&answer, stops, 1, TOKEN_BYTES_MAX, NULL, NULL), LEVER_OK);
    lv_answer_text text;
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        assert_false(lv_answer_push(answer, steps[i].push, strlen(steps[i].push), &text));
        if (text.bytes != strlen(steps[i].wanted) || memcmp(text.data, steps[i].wanted, text.bytes) != 0) {
            fail_msg("step %zu: '%.*s', not '%s'", i, (int)text.bytes, text.data, steps[i].wanted);
        }
    }
    assert_false(lv_answer_finish(answer, &text));
    assert_int_equal(text.bytes, 2);
    assert_memory_equal(text.data, "st", 2);
    lv_answer_close(&answer);
}

/* Random text over a small alphabet against a search that looks at all of it. */
static void agrees_with_a_plain_search(void **state) {
    (void)state;
    uint32_t random = 7;
    static result got;
    for (int round = 0; round < 3000; round++) {
        char input[80], stop_text[3][6];
        const char *stops[3];
        const size_t input_bytes = (size_t)(round % 80);
        for (size_t i = 0; i < sizeof input; i++)
            input[i] = (char)('a' + (random = random * 1664525u + 1013904223u) % 128 / 64);
        for (size_t s = 0; s < 3; s++) {
            const size_t bytes = 2 + (random >> 8) % 4;
            for (size_t i = 0; i < 6; i++) {
                random = random * 1664525u + 1013904223u;
                stop_text[s][i] = i < bytes ? (char)('a' + (random >> 20) % 2) : '\0';
            }
            stops[s] = stop_text[s];
        }
        size_t wanted = input_bytes;
        bool stopped = false;
        for (size_t end = 1; end <= input_bytes && !stopped; end++) {
            for (size_t s = 0; s < 3; s++) {
                const size_t bytes = strlen(stops[s]);
                if (bytes > end || memcmp(input + end - bytes, stops[s], bytes) != 0) continue;
                if (!stopped || end - bytes < wanted) wanted = end - bytes;
                stopped = true;
            }
        }
        run(&got, stops, 3, input, input_bytes, 1 + (size_t)(round % 9));
        assert_int_equal(got.stopped, stopped);
        assert_int_equal(got.bytes, wanted);
        assert_memory_equal(got.text, input, wanted);
    }
}

/* Every byte invalid: the text grows threefold, and fits. */
static void rubbish_stays_valid_text(void **state) {
    (void)state;
    char input[4096];
    uint32_t random = 3;
    for (size_t i = 0; i < sizeof input; i++) {
        random = random * 1664525u + 1013904223u;
        input[i] = (char)(0x80 | random >> 24);
    }
    static result got;
    const char *const stops[] = {"never"};
    for (size_t step = 1; step <= TOKEN_BYTES_MAX; step++) {
        run(&got, stops, 1, input, sizeof input, step);
        static char whole[sizeof input * 3];
        assert_int_equal(got.bytes, lv_utf8_repair(input, sizeof input, whole, sizeof whole));
        assert_memory_equal(got.text, whole, got.bytes);
    }
}

static void limits_are_stated(void **state) {
    (void)state;
    lever_error error;
    lv_answer *answer = NULL;
    const char *many[LV_ANSWER_STOPS_MAX + 1];
    for (size_t i = 0; i < COUNT_OF(many); i++) many[i] = "x";
    assert_int_equal(lv_answer_open(&answer, many, COUNT_OF(many), 8, NULL, &error), LEVER_E_ARGUMENT);
    assert_non_null(strstr(error.message, "16"));
    assert_null(answer);
    assert_int_equal(lv_answer_open(&answer, many, LV_ANSWER_STOPS_MAX, 8, NULL, &error), LEVER_OK);
    lv_answer_close(&answer);

    char *longest = calloc(LV_ANSWER_STOP_BYTES_MAX + 2, 1);
    memset(longest, '\xff', LV_ANSWER_STOP_BYTES_MAX); /* three times as long once repaired */
    const char *const one[] = {"good", longest};
    assert_int_equal(lv_answer_open(&answer, one, 2, 8, NULL, &error), LEVER_OK);
    lv_answer_text text;
    bool stopped = false;
    for (size_t i = 0; i < LV_ANSWER_STOP_BYTES_MAX; i++) {
        assert_false(stopped);
        stopped = lv_answer_push(answer, "\xff", 1, &text);
        assert_int_equal(text.bytes, 0);
    }
    assert_true(stopped);
    lv_answer_close(&answer);

    longest[LV_ANSWER_STOP_BYTES_MAX] = 'x';
    assert_int_equal(lv_answer_open(&answer, one, 2, 8, NULL, &error), LEVER_E_ARGUMENT);
    assert_non_null(strstr(error.message, "4096"));
    assert_non_null(strstr(error.message, "2"));
    const char *const missing[] = {NULL};
    assert_int_equal(lv_answer_open(&answer, missing, 1, 8, NULL, &error), LEVER_E_ARGUMENT);
    free(longest);
}

static void refused_memory_leaks_nothing(void **state) {
    (void)state;
    const char *const stops[] = {"one", "another"};
    lv_answer *answer = NULL;
    uint64_t limit = 0;
    for (lever_status status = LEVER_E_BUDGET; status != LEVER_OK; limit += 8) {
        lv_ledger *ledger = lv_ledger_create(limit);
        lever_error error;
        status = lv_answer_open(&answer, stops, 2, 32, ledger, &error);
        assert_true(status == LEVER_OK || status == LEVER_E_BUDGET);
        assert_true((answer != NULL) == (status == LEVER_OK));
        lv_answer_close(&answer);
        assert_int_equal(lv_ledger_used(ledger), 0);
        lv_ledger_free(ledger);
    }
    assert_true(limit > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_does_not_depend_on_the_cuts),
        cmocka_unit_test(text_is_held_no_longer_than_needed),
        cmocka_unit_test(agrees_with_a_plain_search),
        cmocka_unit_test(rubbish_stays_valid_text),
        cmocka_unit_test(limits_are_stated),
        cmocka_unit_test(refused_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
