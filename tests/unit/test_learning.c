/* Refining: what decoding shows makes a predictor better, noise does not replace it, and what does not fit is dropped.
 */
#include "spec/learning.h"

#include <stdlib.h>

#include "base/rng.h"
#include "support/check.h"

enum { WIDTH = 32, TOKENS = 40, CANDIDATES = 4 };

typedef struct {
    float hidden[WIDTH], rows[LV_PREDICTOR_CANDIDATES_MAX * WIDTH];
    uint32_t fail_at, embeddings;
} world;

static float random_at(uint32_t a, uint32_t b) {
    const uint32_t counter[4] = {a, b, 0, 0}, key[2] = {77, 0};
    return (float)lv_philox(counter, key).word[0] / 2147483648.0f - 1.0f;
}

static const float *give_hidden(void *user, uint32_t row) {
    (void)row;
    return ((world *)user)->hidden;
}

static lever_status give_embedding(void *user, int32_t token, float *row, lever_error *error) {
    world *w = user;
    for (uint32_t i = 0; i < WIDTH; i++) row[i] = random_at((uint32_t)token, i);
    if (++w->embeddings == w->fail_at) return lv_fail(error, LEVER_E_IO, "was to fail");
    return LEVER_OK;
}

static lv_pruning_source source_of(world *w) {
    return (lv_pruning_source){w, give_hidden, give_embedding, w->rows};
}

static lv_predictor *open_predictor(void) {
    const lv_predictor_shape shape = {.layer = 1, .layers_count = 3, .width = WIDTH, .rank = WIDTH};
    lv_predictor *p = NULL;
    lever_error error;
    CHECK_OK(lv_predictor_open(&p, &shape, 1, NULL, &error));
    return p;
}

/* A root with four candidates that the draft finds alike; the hidden state is the row of the right one, or noise. */
static void see(lv_learning *learning, world *w, uint32_t number, bool noise) {
    static lv_pruning_view view;
    const lv_pruning_source source = source_of(w);
    const uint32_t right = lv_philox((uint32_t[4]){number, 5, 0, 0}, (uint32_t[2]){1, 2}).word[0] % CANDIDATES;
    const int32_t first = (int32_t)(number * 7 % (TOKENS - CANDIDATES));
    memset(&view, 0, sizeof(view));
    view.rows_count = 1;
    view.candidates_first[1] = CANDIDATES;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const lv_feature feature = {.estimate = 0.24f, .depth = 1};
        view.candidates[c].token = first + (int32_t)c;
        lv_predictor_features(&feature, 0.24f, view.candidates[c].features);
    }
    for (uint32_t i = 0; i < WIDTH; i++) {
        w->hidden[i] = noise ? random_at(9000 + number, i) : 50 * random_at((uint32_t)first + right, i);
    }
    lv_learning_keep(learning, &view, &source);
    lv_learning_label(learning, &view, 0, first + (int32_t)right);
}

static uint32_t adoptions(bool noise, uint32_t answers, lv_predictor *p) {
    static world w;
    lv_learning *learning = NULL;
    lever_error error;
    uint32_t count = 0;
    w = (world){0};
    CHECK_OK(lv_learning_open(&learning, p, NULL, &error));
    const lv_pruning_source source = source_of(&w);
    for (uint32_t answer = 0; answer < answers; answer++) {
        bool adopted;
        for (uint32_t i = 0; i < 100; i++) see(learning, &w, answer * 100 + i, noise);
        assert_int_equal(lv_learning_samples_count(learning), 100);
        CHECK_OK(lv_learning_refine(learning, p, &source, &adopted, &error));
        assert_int_equal(lv_learning_samples_count(learning), 0);
        count += adopted;
    }
    lv_learning_close(&learning);
    return count;
}

static void test_what_is_seen_makes_it_better(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(), *before = open_predictor();
    const size_t bytes = lv_predictor_values_count(&p->shape) * sizeof(float);
    assert_int_equal(adoptions(false, 2, p), 0); /* too few to judge by */
    assert_memory_equal(p->values, before->values, bytes);
    assert_true(adoptions(false, 40, p) > 2);
    assert_memory_not_equal(p->values, before->values, bytes);
    lv_predictor_close(&before);
    lv_predictor_close(&p);
}

static void test_noise_does_not_replace_it(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(), *before = open_predictor();
    assert_int_equal(adoptions(true, 12, p), 0);
    assert_memory_equal(p->values, before->values, lv_predictor_values_count(&p->shape) * sizeof(float));
    lv_predictor_close(&before);
    lv_predictor_close(&p);
}

/* Two sessions refine one predictor. What the one has judged before the other's copy took its place was of other
 * values: it is not enough that it was better than those. */
static void test_two_that_refine_one(void **state) {
    (void)state;
    static world w;
    lv_predictor *p = open_predictor();
    lv_learning *first = NULL, *second = NULL;
    lever_error error;
    bool adopted = false;
    w = (world){0};
    const size_t bytes = lv_predictor_values_count(&p->shape) * sizeof(float);
    const lv_pruning_source source = source_of(&w);
    CHECK_OK(lv_learning_open(&first, p, NULL, &error));
    CHECK_OK(lv_learning_open(&second, p, NULL, &error));
    assert_int_equal(p->version, 0);
    for (uint32_t i = 0; i < 250; i++) see(second, &w, i, false);
    CHECK_OK(lv_learning_refine(second, p, &source, &adopted, &error));
    assert_false(adopted); /* too few to judge by, so far */
    for (uint32_t i = 0; !adopted; i++) {
        assert_true(i < 4000);
        see(first, &w, i, false);
        if (i % 100 == 99) CHECK_OK(lv_learning_refine(first, p, &source, &adopted, &error));
    }
    assert_int_equal(p->version, 1);
    float *taken = malloc(bytes);
    assert_non_null(taken);
    memcpy(taken, p->values, bytes);
    for (uint32_t i = 0; i < 100; i++) see(second, &w, i, false);
    CHECK_OK(lv_learning_refine(second, p, &source, &adopted, &error));
    assert_false(adopted);
    assert_memory_equal(p->values, taken, bytes);
    free(taken);
    lv_learning_close(&second);
    lv_learning_close(&first);
    lv_predictor_close(&p);
}

static void test_what_does_not_fit_and_failures(void **state) {
    (void)state;
    static world w;
    lv_predictor *p = open_predictor();
    lv_learning *learning = NULL;
    lever_error error;
    bool adopted;
    w = (world){0};
    const lv_pruning_source source = source_of(&w);
    CHECK_OK(lv_learning_open(&learning, p, NULL, &error));
    for (uint32_t i = 0; i < 2000; i++) see(learning, &w, i, false);
    assert_int_equal(lv_learning_samples_count(learning), 512);
    w.fail_at = 30;
    CHECK_FAILS(lv_learning_refine(learning, p, &source, &adopted, &error), LEVER_E_IO, "was to fail");
    assert_false(adopted);
    assert_int_equal(lv_learning_samples_count(learning), 0);
    lv_learning_close(&learning);
    lv_predictor_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_seen_makes_it_better),
        cmocka_unit_test(test_noise_does_not_replace_it),
        cmocka_unit_test(test_two_that_refine_one),
        cmocka_unit_test(test_what_does_not_fit_and_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
