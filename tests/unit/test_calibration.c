/* Calibration: a new one believes the estimate, a taught one the hits, and the text brings back what was learned. */
#include "spec/calibration.h"

#include <math.h>
#include <stdlib.h>

#include "support/check.h"

static lv_feature feature_of(float estimate) {
    return (lv_feature){.source = LV_SOURCE_DRAFT, .rank = 0, .depth = 1, .estimate = estimate, .margin = estimate};
}

/* `hits` matches among `trials` candidates, evenly spread. */
static void teach(lv_calibration *calibration, const lv_feature *feature, int hits, int trials) {
    for (int i = 0; i < trials; i++) {
        lv_calibration_learn(calibration, feature, (i + 1) * hits / trials > i * hits / trials);
    }
}

static void test_new_one_gives_the_estimate(void **state) {
    (void)state;
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    static const struct {
        float estimate, wanted;
    } rows[] = {{.002f, .002f}, {.03f, .03f}, {.34f, .34f}, {.5f, .5f},  {.96f, .96f},  {.999f, .999f},
                {0, .0005f},    {1, .9995f},  {-1, .0005f}, {7, .9995f}, {NAN, .0005f}, {INFINITY, .9995f}};
    for (int source = 0; source < LV_SOURCES_COUNT; source++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            lv_feature feature = feature_of(rows[i].estimate);
            feature.source = (lv_source)source;
            assert_float_equal(lv_calibration_apply(&calibration, &feature), rows[i].wanted, 1e-6);
        }
    }
}

/* Where all estimates of a bin are the same: the mean of 20 observations at the estimate and of what was seen. */
static void test_weight_of_the_prior(void **state) {
    (void)state;
    static const struct {
        float estimate;
        int hits, trials;
    } rows[] = {{.6f, 0, 1},   {.6f, 1, 1},    {.6f, 10, 20},   {.05f, 4, 20},  {.999f, 9, 10},
                {.94f, 0, 20}, {.3f, 30, 100}, {.3f, 100, 400}, {.001f, 2, 300}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        lv_calibration calibration;
        lv_calibration_init(&calibration);
        const lv_feature feature = feature_of(rows[i].estimate);
        teach(&calibration, &feature, rows[i].hits, rows[i].trials);
        const double wanted = (rows[i].hits + 20 * (double)rows[i].estimate) / (rows[i].trials + 20);
        assert_float_equal(lv_calibration_apply(&calibration, &feature), wanted, 1e-4);
    }
}

/* A bin whose candidates hit as often as promised is left alone, at each estimate; the applied value always rises
 * with the estimate, whatever was learned, and stays within (0, 1). */
static void test_follows_the_estimate_inside_a_bin(void **state) {
    (void)state;
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    const lv_feature low = feature_of(.66f), high = feature_of(.78f);
    for (int i = 0; i < 2; i++) {
        teach(&calibration, &low, 33, 50);
        teach(&calibration, &high, 39, 50);
    }
    assert_float_equal(lv_calibration_apply(&calibration, &low), .66, .001);
    assert_float_equal(lv_calibration_apply(&calibration, &high), .78, .001);

    static const float edges[] = {0, .03f, .1f, .2f, .35f, .5f, .65f, .8f, .9f, .97f, 1};
    for (size_t bin = 0; bin < LV_ESTIMATE_BINS; bin++) {
        for (int matched = 0; matched < 2; matched++) {
            lv_calibration_init(&calibration);
            const float width = edges[bin + 1] - edges[bin];
            lv_feature feature = {.source = LV_SOURCE_LOOKUP, .depth = 3, .margin = .2f};
            feature.estimate = edges[bin] + width / 3;
            teach(&calibration, &feature, matched * 15, 15);
            float last = 0;
            for (int step = 0; step < 10; step++) {
                feature.estimate = edges[bin] + width * ((float)step + .5f) / 10;
                const float applied = lv_calibration_apply(&calibration, &feature);
                assert_true(applied > 0 && applied < 1 && applied >= last);
                if (applied > .0006f && applied < .9994f) assert_true(applied > last);
                assert_true(matched ? applied >= fminf(feature.estimate, .9995f)
                                    : applied <= fmaxf(feature.estimate, .0005f));
                last = applied;
            }
        }
    }
}

/* Each pair differs in one thing only, and the second is not told what the first learns. */
static void test_bins(void **state) {
    (void)state;
    static const struct {
        lv_feature taught, other;
        bool shared;
    } rows[] = {
        {{0, 0, 1, .6f, .3f}, {1, 0, 1, .6f, .3f}, false},    {{0, 0, 1, .6f, .3f}, {2, 0, 1, .6f, .3f}, false},
        {{0, 0, 1, .6f, .3f}, {0, 1, 1, .6f, .3f}, false},    {{0, 1, 1, .6f, .3f}, {0, 2, 1, .6f, .3f}, false},
        {{0, 2, 1, .6f, .3f}, {0, 3, 1, .6f, .3f}, true},     {{0, 3, 1, .6f, .3f}, {0, 4, 1, .6f, .3f}, false},
        {{0, 4, 1, .6f, .3f}, {0, 255, 1, .6f, .3f}, true},   {{0, 0, 1, .6f, .3f}, {0, 0, 2, .6f, .3f}, false},
        {{0, 0, 2, .6f, .3f}, {0, 0, 4, .6f, .3f}, true},     {{0, 0, 4, .6f, .3f}, {0, 0, 5, .6f, .3f}, false},
        {{0, 0, 5, .6f, .3f}, {0, 0, 60000, .6f, .3f}, true}, {{0, 0, 1, .6f, .3f}, {0, 0, 1, .6f, .05f}, false},
        {{0, 0, 1, .6f, .3f}, {0, 0, 1, .6f, .5f}, false},    {{0, 0, 1, .6f, .5f}, {0, 0, 1, .6f, 1}, true},
        {{0, 0, 1, .02f, 0}, {0, 0, 1, .04f, 0}, false},      {{0, 0, 1, .09f, 0}, {0, 0, 1, .11f, 0}, false},
        {{0, 0, 1, .34f, 0}, {0, 0, 1, .36f, 0}, false},      {{0, 0, 1, .49f, 0}, {0, 0, 1, .51f, 0}, false},
        {{0, 0, 1, .64f, 0}, {0, 0, 1, .66f, 0}, false},      {{0, 0, 1, .79f, 0}, {0, 0, 1, .81f, 0}, false},
        {{0, 0, 1, .89f, 0}, {0, 0, 1, .91f, 0}, false},      {{0, 0, 1, .96f, 0}, {0, 0, 1, .98f, 0}, false},
        {{0, 0, 1, .19f, 0}, {0, 0, 1, .21f, 0}, false},      {{0, 0, 1, .21f, 0}, {0, 0, 1, .34f, 0}, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        lv_calibration calibration;
        lv_calibration_init(&calibration);
        const float before = lv_calibration_apply(&calibration, &rows[i].other);
        for (int n = 0; n < 10; n++) lv_calibration_learn(&calibration, &rows[i].taught, n % 2);
        const bool changed = fabsf(lv_calibration_apply(&calibration, &rows[i].other) - before) > 1e-4f;
        if (changed != rows[i].shared) fail_msg("row %zu: %s", i, changed ? "shared" : "not shared");
    }
}

static void test_forgets(void **state) {
    (void)state;
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    const lv_feature feature = feature_of(.6f);
    teach(&calibration, &feature, 5000, 5000);
    assert_true(lv_calibration_apply(&calibration, &feature) > .97f);
    teach(&calibration, &feature, 0, 500);
    assert_true(lv_calibration_apply(&calibration, &feature) < .35f);
    assert_true(lv_calibration_rank_share(&calibration, 0) < .35f);
    for (int n = 0; n < 2000; n++) {
        lv_calibration_learn(&calibration, &feature, n % 10 < 3);
        assert_true(calibration.by_rank[LV_SOURCE_DRAFT][0].trials <= 400);
    }
    assert_float_equal(lv_calibration_apply(&calibration, &feature), .3, .05);
}

static void test_rank_share(void **state) {
    (void)state;
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    static const double wanted[] = {.88, .06, .03, .012};
    for (uint8_t rank = 0; rank < 4; rank++) {
        assert_float_equal(lv_calibration_rank_share(&calibration, rank), wanted[rank], 1e-6);
    }
    float sum = lv_calibration_rank_share(&calibration, 0);
    for (int rank = 1; rank < LV_RANKS_COUNT; rank++) {
        const float share = lv_calibration_rank_share(&calibration, (uint8_t)rank);
        assert_true(share > 0 && share < lv_calibration_rank_share(&calibration, (uint8_t)(rank - 1)));
        sum += share;
    }
    assert_true(sum < 1);
    assert_true(lv_calibration_rank_share(&calibration, 200) == lv_calibration_rank_share(&calibration, 7));

    /* All estimates of a rank count together; those of a look-up do not count. */
    lv_feature feature = feature_of(.2f);
    feature.rank = 1;
    teach(&calibration, &feature, 10, 10);
    feature.estimate = .7f;
    teach(&calibration, &feature, 0, 10);
    feature.source = LV_SOURCE_LOOKUP;
    teach(&calibration, &feature, 50, 50);
    assert_float_equal(lv_calibration_rank_share(&calibration, 1), (10 + 20 * .06) / 40, 1e-5);
    feature.source = LV_SOURCE_DRAFT;
    feature.rank = 200;
    teach(&calibration, &feature, 20, 20);
    assert_true(lv_calibration_rank_share(&calibration, 7) > .45f);
}

static void test_frozen_does_not_learn(void **state) {
    (void)state;
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    const lv_feature feature = feature_of(.6f);
    teach(&calibration, &feature, 3, 10);
    calibration.frozen = true;
    const lv_calibration before = calibration;
    teach(&calibration, &feature, 100, 100);
    assert_memory_equal(&calibration, &before, sizeof(before));
}

/* A calibration with counters in many places, of all sources. */
static void teach_many(lv_calibration *calibration) {
    lv_calibration_init(calibration);
    for (uint32_t n = 0; n < 20000; n++) {
        const lv_feature feature = {.source = (lv_source)(n % 3),
                                    .rank = (uint8_t)(n / 3 % 9),
                                    .depth = (uint16_t)(1 + n / 27 % 7),
                                    .estimate = (float)(n * 37 % 1000) / 1000,
                                    .margin = (float)(n * 91 % 700) / 1000};
        lv_calibration_learn(calibration, &feature, n * 53 % 1000 < n * 37 % 1000 / 2);
    }
}

static char *text_of(const lv_calibration *calibration) {
    const size_t length = lv_calibration_write(calibration, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(lv_calibration_write(calibration, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

static void test_text_round_trip(void **state) {
    (void)state;
    lv_calibration written, read, again;
    teach_many(&written);
    char *text = text_of(&written);
    lv_calibration_init(&read);
    read.frozen = true;
    assert_true(lv_calibration_read(&read, text));
    assert_true(read.frozen);
    for (int source = 0; source < LV_SOURCES_COUNT; source++) {
        for (uint32_t n = 0; n < 3000; n++) {
            const lv_feature feature = {.source = (lv_source)source,
                                        .rank = (uint8_t)(n % 9),
                                        .depth = (uint16_t)(1 + n % 7),
                                        .estimate = (float)(n * 37 % 1000) / 1000,
                                        .margin = (float)(n * 91 % 700) / 1000};
            assert_float_equal(lv_calibration_apply(&read, &feature), lv_calibration_apply(&written, &feature), 1e-3);
        }
    }
    for (int rank = 0; rank < LV_RANKS_COUNT; rank++) {
        assert_float_equal(lv_calibration_rank_share(&read, (uint8_t)rank),
                           lv_calibration_rank_share(&written, (uint8_t)rank), 1e-5);
    }
    char *text_again = text_of(&read);
    assert_string_equal(text, text_again);

    /* What was not used is not written. */
    lv_calibration_init(&again);
    char *text_new = text_of(&again);
    assert_string_equal(text_new, "lever calibration 1\nend 0\n");
    assert_true(lv_calibration_read(&read, text_new));
    const lv_feature feature = feature_of(.6f);
    assert_float_equal(lv_calibration_apply(&read, &feature), .6, 1e-6);
    free(text);
    free(text_again);
    free(text_new);
}

static void test_text_too_long(void **state) {
    (void)state;
    lv_calibration calibration;
    teach_many(&calibration);
    char *text = text_of(&calibration), part[64];
    for (size_t capacity = 1; capacity <= sizeof(part); capacity++) {
        memset(part, '#', sizeof(part));
        assert_int_equal(lv_calibration_write(&calibration, part, capacity), strlen(text));
        assert_int_equal(strlen(part), capacity - 1);
        assert_memory_equal(part, text, capacity - 1);
    }
    free(text);
}

static void check_refused(const char *text) {
    lv_calibration calibration;
    teach_many(&calibration);
    const lv_calibration before = calibration;
    if (lv_calibration_read(&calibration, text)) fail_msg("accepted: '%.200s'", text);
    assert_memory_equal(&calibration, &before, sizeof(before));
}

static void test_damaged_text(void **state) {
    (void)state;
#define HEADING "lever calibration 1\n"
    static const char *const texts[] = {
        NULL,
        "",
        "lever calibration 2\nend 0\n",
        "lever costs 2\nend 0\n",
        HEADING "end 1\n",
        HEADING "end 0",
        HEADING "end 0\nend 0\n",
        HEADING "rank 0 0 5000 9000\n",
        HEADING "rank 0 0 5000 9000\nend 2\n",
        HEADING "rank 3 0 5000 9000\nend 1\n",
        HEADING "rank 0 8 5000 9000\nend 1\n",
        HEADING "rank 0 -1 5000 9000\nend 1\n",
        HEADING "rank 0 0 -5000 9000\nend 1\n",
        HEADING "rank 0 0 9900 9000\nend 1\n",
        HEADING "rank 0 0 0 0\nend 1\n",
        HEADING "rank 0 0 nan 9000\nend 1\n",
        HEADING "rank 0 0 5000 inf\nend 1\n",
        HEADING "rank 0 0 5000 900000\nend 1\n",
        HEADING "rank 0 0 5000 99999999999999999999999\nend 1\n",
        HEADING "rank 0 0 5000 9000 1\nend 1\n",
        HEADING "counter 3 0 0 0 0 0 1000\nend 1\n",
        HEADING "counter 0 4 0 0 0 0 1000\nend 1\n",
        HEADING "counter 0 0 3 0 0 0 1000\nend 1\n",
        HEADING "counter 0 0 0 3 0 0 1000\nend 1\n",
        HEADING "counter 0 0 0 0 10 0 1000\nend 1\n",
        HEADING "counter 0 0 0 0 0 1200 1000\nend 1\n",
        HEADING "counter 0 0 0 0 0 -200 1000\nend 1\n",
        HEADING "counter 0 0 0 0 0 0 1000 \nend 1\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) check_refused(texts[i]);
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    assert_true(lv_calibration_read(&calibration, HEADING "counter 0 0 0 0 0 5 1000\nrank 0 0 5000 9000\nend 2\n"));
#undef HEADING

    /* Cut off anywhere. */
    teach_many(&calibration);
    char *text = text_of(&calibration);
    const size_t length = strlen(text);
    for (size_t cut = 1; cut < length; cut += cut < 200 ? 1 : 97) {
        const char kept = text[length - cut];
        text[length - cut] = '\0';
        check_refused(text);
        text[length - cut] = kept;
    }
    assert_true(lv_calibration_read(&calibration, text));
    free(text);
}

/* One text holds both, in either order; each reader takes its own and refuses what is no section behind it. */
static void test_text_with_other_sections(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool sound;
    } rows[] = {
        {"lever calibration 1\nrank 0 0 0 20000\nend 1\nlever costs 2\nio 0\n", true},
        {"lever costs 2\nio 0\nlever calibration 1\nrank 0 0 0 20000\nend 1\n", true},
        {"lever costs 2\nio 0 lever calibration 1\nrank 0 0 0 20000\nend 1\n", false},
        {"lever calibration 1\nrank 0 0 0 20000\nend 1\nio 0\n", false},
        {"lever calibration 1\nrank 0 0 0 20000\nlever costs 2\nend 1\n", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        lv_calibration calibration;
        lv_calibration_init(&calibration);
        if (lv_calibration_read(&calibration, rows[i].text) != rows[i].sound) fail_msg("row %zu", i);
        assert_float_equal(lv_calibration_rank_share(&calibration, 0), (rows[i].sound ? .44f : .88f), 1e-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_one_gives_the_estimate),
        cmocka_unit_test(test_weight_of_the_prior),
        cmocka_unit_test(test_follows_the_estimate_inside_a_bin),
        cmocka_unit_test(test_bins),
        cmocka_unit_test(test_forgets),
        cmocka_unit_test(test_rank_share),
        cmocka_unit_test(test_frozen_does_not_learn),
        cmocka_unit_test(test_text_round_trip),
        cmocka_unit_test(test_text_too_long),
        cmocka_unit_test(test_text_with_other_sections),
        cmocka_unit_test(test_damaged_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
