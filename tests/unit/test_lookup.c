/* Look-ups: which place of a text is found, against a table and against a search written another way. */
#include "spec/lookup.h"

#include "base/rng.h"
#include "support/check.h"

enum { TEXT_MAX = 96 };

/* One letter is one token. */
static size_t tokens_of(const char *letters, int32_t *text) {
    size_t count = 0;
    for (; letters[count]; count++) text[count] = (unsigned char)letters[count];
    return count;
}

static void test_table(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t begin, count;
        uint32_t match_length;
    } rows[] = {
        {"", 0, 0, 0},
        {"a", 0, 0, 0},
        {"aaa", 0, 0, 0},
        {"abcdefgh", 0, 0, 0},
        {"xbcdybc", 0, 0, 0},       /* two tokens are too few */
        {"abcxabc", 3, 4, 3},       /* from the very beginning */
        {"abcxabcyabc", 7, 4, 3},   /* the latest of two that are alike */
        {"qabcxabcyqabc", 4, 9, 4}, /* the longest, though a shorter one is later */
        {"aaaa", 3, 1, 3},          /* a run may overlap the end */
        {"abababab", 6, 2, 6},      /* likewise */
        {"abcabc", 3, 3, 3},        /* what follows reaches to the end of the text */
        {"xabcdefgabcdeyabcdefg", 8, 13, 7},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int32_t text[TEXT_MAX];
        const lv_lookup_match match = lv_lookup_find(text, tokens_of(rows[i].text, text));
        if (match.begin != rows[i].begin || match.count != rows[i].count ||
            match.match_length != rows[i].match_length) {
            fail_msg("'%s': begin %zu, count %zu, length %u", rows[i].text, match.begin, match.count,
                     match.match_length);
        }
    }
    assert_int_equal(lv_lookup_find(NULL, 0).match_length, 0);
}

/* Runs longer than the longest that is looked at are alike: then the latest wins, not the longer one. */
static void test_longest_run(void **state) {
    (void)state;
    enum { RUN = LV_LOOKUP_MATCH_MOST + 8, PART = LV_LOOKUP_MATCH_MOST };
    int32_t text[2 * RUN + PART + 2];
    size_t count = 0;
    for (int32_t i = 0; i < RUN; i++) text[count++] = i;
    text[count++] = -1;
    for (int32_t i = RUN - PART; i < RUN; i++) text[count++] = i;
    const size_t wanted = count;
    text[count++] = -2;
    for (int32_t i = 0; i < RUN; i++) text[count++] = i;
    const lv_lookup_match match = lv_lookup_find(text, count);
    assert_int_equal(match.match_length, LV_LOOKUP_MATCH_MOST);
    assert_int_equal(match.begin, wanted);
    assert_int_equal(match.count, RUN + 1);
}

/* Length by length from above, place by place from behind: the first that agrees is the one. */
static lv_lookup_match find_slowly(const int32_t *text, size_t count) {
    for (size_t length = LV_LOOKUP_MATCH_MOST; length >= LV_LOOKUP_MATCH_LEAST; length--) {
        if (count <= length) continue;
        for (size_t begin = count - 1; begin >= length; begin--) {
            if (memcmp(text + begin - length, text + count - length, length * sizeof(*text)) == 0) {
                return (lv_lookup_match){begin, count - begin, (uint32_t)length};
            }
        }
    }
    return (lv_lookup_match){0};
}

static void test_random_texts(void **state) {
    (void)state;
    size_t found = 0;
    for (uint32_t n = 0; n < 3000; n++) {
        int32_t text[TEXT_MAX];
        const uint32_t key[2] = {n, 1};
        const size_t count = n % (TEXT_MAX + 1);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t counter[4] = {i, 0, 0, 0};
            text[i] = (int32_t)(lv_philox(counter, key).word[0] % (2 + n % 4));
        }
        const lv_lookup_match match = lv_lookup_find(text, count), wanted = find_slowly(text, count);
        assert_int_equal(match.begin, wanted.begin);
        assert_int_equal(match.count, wanted.count);
        assert_int_equal(match.match_length, wanted.match_length);
        found += match.match_length > 0;
    }
    assert_true(found > 1000 && found < 3000);
}

static void test_estimate(void **state) {
    (void)state;
    static const struct {
        uint32_t first, last;
        float estimate;
    } rows[] = {{0, 2, 0}, {3, 4, .58f}, {5, 6, .67f}, {7, 9, .79f}, {10, 15, .86f}, {16, LV_LOOKUP_MATCH_MOST, .97f}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (uint32_t length = rows[i].first; length <= rows[i].last; length++) {
            assert_float_equal(lv_lookup_estimate(length), rows[i].estimate, 1e-6);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_longest_run),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_estimate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
