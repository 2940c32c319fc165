/* The predictor: its gradient against finite differences, what training makes of a pair that can be learned, and files
 * that are damaged, of another kind or of a newer version. */
#include "spec/predictor.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "spec/training.h"
#include "support/check.h"

static lever_error error;

enum { WIDTH = 40, RANK = 3, TOKENS = 64, SAMPLES = 1600, CANDIDATES = 4 };

static float random_at(uint32_t a, uint32_t b) {
    const uint32_t counter[4] = {a, b, 0, 0}, key[2] = {7, 0};
    return (float)lv_philox(counter, key).word[0] / 2147483648.0f - 1.0f;
}

static lv_predictor *open_predictor(uint32_t width, uint32_t rank) {
    const lv_predictor_shape shape = {
        .target_hash = 11, .draft_hash = 22, .layer = 2, .layers_count = 6, .width = width, .rank = rank};
    lv_predictor *p = NULL;
    CHECK_OK(lv_predictor_open(&p, &shape, 5, NULL, &error));
    return p;
}

static void fill_candidates(lv_predictor_candidate *candidates, float (*rows)[WIDTH]) {
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const lv_feature feature = {
            .source = (lv_source)(c % 3), .rank = (uint8_t)c, .depth = 3, .estimate = 0.2f, .margin = 0.1f};
        for (uint32_t i = 0; i < WIDTH; i++) rows[c][i] = random_at(100 + c, i);
        lv_predictor_features(&feature, 0.4f / (float)(c + 1), candidates[c].features);
        candidates[c].row = rows[c];
        candidates[c].token = -1;
    }
}

static void test_starts_as_the_draft(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(WIDTH, RANK);
    float rows[CANDIDATES][WIDTH], hidden[WIDTH], shares[CANDIDATES], other;
    lv_predictor_candidate candidates[CANDIDATES];
    fill_candidates(candidates, rows);
    for (uint32_t i = 0; i < WIDTH; i++) hidden[i] = random_at(9, i);
    lv_predictor_score(p, hidden, candidates, CANDIDATES, shares, &other);
    float sum = 0;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        assert_float_equal(shares[c], 0.4f / (float)(c + 1), 1e-5);
        sum += shares[c];
    }
    assert_float_equal(other, 1 - sum, 1e-5);
    lv_predictor_close(&p);
}

/* Keys that were kept give the same shares, and go with the values that they came from. */
static void test_kept_keys(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(WIDTH, RANK);
    float rows[CANDIDATES][WIDTH], hidden[WIDTH], wanted[CANDIDATES], got[CANDIDATES], other;
    lv_predictor_candidate candidates[CANDIDATES];
    fill_candidates(candidates, rows);
    for (uint32_t i = 0; i < WIDTH; i++) hidden[i] = random_at(9, i);
    for (uint32_t change = 0; change < 3; change++) {
        for (size_t i = 0; i < RANK * WIDTH; i++) p->b[i] = random_at(50 + change, (uint32_t)i);
        lv_predictor_forget(p);
        for (uint32_t c = 0; c < CANDIDATES; c++) candidates[c].token = -1;
        lv_predictor_score(p, hidden, candidates, CANDIDATES, wanted, &other);
        /* The first and the last share a place. */
        for (uint32_t c = 0; c < CANDIDATES; c++) {
            candidates[c].token = (int32_t)(c + 1 < CANDIDATES ? c : LV_PREDICTOR_KEYS);
        }
        for (uint32_t again = 0; again < 2; again++) {
            lv_predictor_score(p, hidden, candidates, CANDIDATES, got, &other);
            assert_memory_equal(got, wanted, sizeof(got));
        }
    }
    lv_predictor_close(&p);
}

static void test_gradient(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(WIDTH, RANK);
    const size_t count = lv_predictor_values_count(&p->shape);
    float *gradient = calloc(count, sizeof(float)), *ignored = calloc(count, sizeof(float));
    float rows[CANDIDATES][WIDTH], hidden[WIDTH];
    lv_predictor_candidate candidates[CANDIDATES];
    fill_candidates(candidates, rows);
    for (uint32_t i = 0; i < WIDTH; i++) hidden[i] = 30 * random_at(9, i);
    for (size_t i = 0; i < count; i++) p->values[i] = 0.5f * random_at(1, (uint32_t)i) + (i < WIDTH ? 1.0f : 0.0f);
    for (uint32_t label = 0; label <= CANDIDATES; label++) {
        memset(gradient, 0, count * sizeof(float));
        lv_predictor_backward(p, hidden, candidates, CANDIDATES, label, 1.5f, gradient);
        for (size_t i = WIDTH; i < count; i++) {
            const float value = p->values[i], reach = 4e-3f;
            p->values[i] = value + reach;
            const double more = lv_predictor_backward(p, hidden, candidates, CANDIDATES, label, 1.5f, ignored);
            p->values[i] = value - reach;
            const double less = lv_predictor_backward(p, hidden, candidates, CANDIDATES, label, 1.5f, ignored);
            p->values[i] = value;
            const double wanted = (more - less) / (2.0 * (double)reach);
            if (fabs(wanted - (double)gradient[i]) > 2e-3 + 0.01 * fabs(wanted)) {
                fail_msg("label %u, value %zu: gradient %g, by differences %g", label, i, (double)gradient[i], wanted);
            }
        }
        for (size_t i = 0; i < WIDTH; i++) assert_true(gradient[i] == 0);
    }
    free(gradient);
    free(ignored);
    lv_predictor_close(&p);
}

/* --- A pair that can be learned: the hidden state is the row of what follows, turned by one fixed permutation. ------
 */

typedef struct {
    lv_sample samples[SAMPLES];
    uint16_t hidden[SAMPLES][WIDTH], rows[TOKENS][WIDTH];
} toy;

static void fill_toy(toy *t) {
    for (uint32_t token = 0; token < TOKENS; token++) {
        for (uint32_t i = 0; i < WIDTH; i++) t->rows[token][i] = lv_half_of(random_at(200 + token, i));
    }
    for (uint32_t s = 0; s < SAMPLES; s++) {
        lv_sample *sample = &t->samples[s];
        sample->text = s / 20;
        sample->candidates_count = CANDIDATES;
        sample->label = (uint8_t)((unsigned)(fabsf(random_at(3, s)) * (CANDIDATES + 1)) % (CANDIDATES + 1));
        uint32_t answer = (uint32_t)(fabsf(random_at(4, s)) * TOKENS) % TOKENS;
        for (uint32_t c = 0; c < CANDIDATES; c++) {
            const lv_feature feature = {.rank = (uint8_t)c, .depth = 1, .estimate = 0.2f, .margin = 0};
            lv_predictor_features(&feature, 0.2f, sample->candidates[c].features);
            sample->candidates[c].row =
                c == sample->label ? answer : (answer + 1 + (uint32_t)(fabsf(random_at(5 + c, s)) * 60)) % TOKENS;
        }
        for (uint32_t i = 0; i < WIDTH; i++) {
            const uint32_t from = (i * 7 + 3) % WIDTH;
            t->hidden[s][i] = lv_half_of(0.1f * lv_float_of(t->rows[answer][from]));
        }
    }
}

static void test_toy_pair_is_learned(void **state) {
    (void)state;
    toy *t = calloc(1, sizeof(*t));
    fill_toy(t);
    lv_predictor *p = open_predictor(WIDTH, WIDTH);
    const lv_samples samples = {.samples = t->samples,
                                .samples_count = SAMPLES,
                                .hidden = t->hidden[0],
                                .rows = t->rows[0],
                                .rows_count = TOKENS};
    lv_training_options options;
    lv_training_options_init(&options);
    options.epochs_max = 60;
    options.rate = 1e-2f;
    options.decay = 0;
    options.patience = 8;
    lv_training_result result;
    CHECK_OK(lv_training_run(p, &samples, &options, &result, NULL, &error));
    assert_true(result.draft_recall < 0.8);
    if (result.recall < 1) fail_msg("recall %g, loss %g after %u epochs", result.recall, result.loss, result.epochs);
    assert_true(result.loss < 0.1 && result.loss < result.draft_loss);
    assert_int_equal(result.learned_count + result.held_out_count, SAMPLES);
    assert_true(result.held_out_count > SAMPLES / 10);
    /* The same seed gives the same predictor; another one another. */
    lv_predictor *again = open_predictor(WIDTH, WIDTH);
    lv_training_result same;
    options.epochs_max = 2;
    CHECK_OK(lv_training_run(again, &samples, &options, &result, NULL, &error));
    lv_predictor *third = open_predictor(WIDTH, WIDTH);
    CHECK_OK(lv_training_run(third, &samples, &options, &same, NULL, &error));
    assert_memory_equal(again->values, third->values, lv_predictor_values_count(&third->shape) * sizeof(float));
    lv_predictor_close(&third);
    third = open_predictor(WIDTH, WIDTH);
    options.seed = 2;
    CHECK_OK(lv_training_run(third, &samples, &options, &same, NULL, &error));
    assert_memory_not_equal(again->values, third->values, lv_predictor_values_count(&third->shape) * sizeof(float));
    lv_predictor_close(&third);
    lv_predictor_close(&again);
    lv_predictor_close(&p);
    free(t);
}

static void test_nothing_to_learn(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(WIDTH, RANK);
    const lv_samples none = {.samples_count = 0};
    lv_training_options options;
    lv_training_result result;
    lv_training_options_init(&options);
    CHECK_FAILS(lv_training_run(p, &none, &options, &result, NULL, &error), LEVER_E_ARGUMENT, "nothing to learn from");
    /* Nor where nothing was proposed. */
    const lv_sample bare = {.text = 0};
    const uint16_t hidden[WIDTH] = {0};
    const lv_samples alone = {.samples = &bare, .samples_count = 1, .hidden = hidden};
    CHECK_FAILS(lv_training_run(p, &alone, &options, &result, NULL, &error), LEVER_E_ARGUMENT, "nothing to learn from");
    lv_predictor_close(&p);
}

/* What is said to be taken is what is taken: a budget that is smaller by a byte is refused. */
static void test_memory_of_training(void **state) {
    (void)state;
    toy *t = calloc(1, sizeof(*t));
    fill_toy(t);
    lv_predictor *p = open_predictor(WIDTH, RANK);
    const lv_samples samples = {.samples = t->samples, .samples_count = 40, .hidden = t->hidden[0], .rows = t->rows[0]};
    lv_training_options options;
    lv_training_result result;
    lv_training_options_init(&options);
    options.epochs_max = 1;
    const size_t bytes = lv_training_bytes(&p->shape, samples.samples_count);
    for (size_t missing = 0; missing < 2; missing++) {
        lv_ledger *ledger = lv_ledger_create(bytes - missing);
        assert_non_null(ledger);
        const lever_status status = lv_training_run(p, &samples, &options, &result, ledger, &error);
        assert_int_equal(status, missing ? LEVER_E_BUDGET : LEVER_OK);
        lv_ledger_free(ledger);
    }
    lv_predictor_close(&p);
    free(t);
}

static void test_recall(void **state) {
    (void)state;
    lv_scored scored[] = {
        {0.9f, true, true}, {0.5f, true, false}, {0.1f, true, false}, {0.2f, false, true}, {0.05f, true, true}};
    assert_float_equal(lv_training_recall(scored, 5, 1), 1, 1e-9);
    assert_float_equal(lv_training_recall(scored, 5, 0.4), 0.75,
                       1e-9); /* .9 and .5 stay, .05 is the best of its node */
    assert_float_equal(lv_training_recall(scored, 0, 0.4), 1, 1e-9);
    /* In the order .9 .5 .2 .1 .05: the best of their nodes, .9 .2 and .05, stay; .1 and .5 are lost when they go. */
    assert_float_equal(lv_training_prunable(scored, 5, 1), 0, 1e-9);
    assert_float_equal(lv_training_prunable(scored, 5, 0.75), 0.2, 1e-9);
    assert_float_equal(lv_training_prunable(scored, 5, 0.5), 0.4, 1e-9);
    assert_float_equal(lv_training_prunable(scored, 5, 0), 0.4, 1e-9);
    /* What was wrong goes for nothing, unless it is its node's best. */
    lv_scored wrong[] = {{0.9f, true, true}, {0.4f, false, true}, {0.3f, false, false}, {0.2f, false, true}};
    assert_float_equal(lv_training_prunable(wrong, 4, 1), 0.25, 1e-9);
}

/* --- Files ------------------------------------------------------------------------------------------------------- */

static void test_halfs(void **state) {
    (void)state;
    static const struct {
        float value;
        uint16_t half;
    } rows[] = {
        {0, 0},          {1, 0x3c00},     {-2, 0xc000},        {65504, 0x7bff},        {1e9f, 0x7bff},
        {-1e9f, 0xfbff}, {6e-8f, 0x0001}, {6.104e-5f, 0x0400}, {0.333251953f, 0x3555}, {1.00048828125f, 0x3c00}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) assert_int_equal(lv_half_of(rows[i].value), rows[i].half);
    for (uint32_t half = 0; half < 0x7c00; half++) {
        assert_int_equal(lv_half_of(lv_float_of((uint16_t)half)), half);
        if (half > 0) assert_int_equal(lv_half_of(lv_float_of((uint16_t)(half | 0x8000u))), half | 0x8000u);
    }
}

static void test_file(void **state) {
    (void)state;
    lv_predictor *p = open_predictor(WIDTH, RANK), *read = NULL;
    p->recall = 0.9875f;
    p->lens[3] = -0.125f;
    const size_t bytes = lv_predictor_file_bytes(&p->shape);
    uint8_t *file = malloc(bytes + 1);
    lv_predictor_write(p, file);
    CHECK_OK(lv_predictor_read(&read, file, bytes, "x", NULL, &error));
    assert_memory_equal(&read->shape, &p->shape, sizeof(p->shape));
    assert_float_equal(read->recall, 0.9875f, 1e-6);
    for (size_t i = 0; i < lv_predictor_values_count(&p->shape); i++) {
        assert_true(fabsf(read->values[i] - p->values[i]) <= 1e-3f * fabsf(p->values[i]) + 1e-7f);
    }
    lv_predictor_close(&read);
    /* Every byte counts, and every length. */
    for (size_t i = 0; i < bytes; i++) {
        file[i] ^= 0x40;
        lever_status status = lv_predictor_read(&read, file, bytes, "x.predictor", NULL, &error);
        if (status != LEVER_E_FORMAT || read) fail_msg("byte %zu changed: %s", i, lever_status_text(status));
        file[i] ^= 0x40;
    }
    for (size_t length = 0; length < bytes; length++) {
        assert_int_equal(lv_predictor_read(&read, file, length, "x", NULL, &error), LEVER_E_FORMAT);
    }
    assert_int_equal(lv_predictor_read(&read, file, bytes + 1, "x", NULL, &error), LEVER_E_FORMAT);
    file[8] = 2;
    CHECK_FAILS(lv_predictor_read(&read, file, bytes, "new.predictor", NULL, &error), LEVER_E_FORMAT, "version 2");
    CHECK_FAILS(lv_predictor_read(&read, (const uint8_t *)"GGUF", 4, "model.gguf", NULL, &error), LEVER_E_FORMAT,
                "model.gguf: is not a predictor");
    free(file);
    lv_predictor_close(&p);
}

static void test_shapes_that_cannot_be(void **state) {
    (void)state;
    static const lv_predictor_shape shapes[] = {{.layer = 0, .layers_count = 4, .width = 8, .rank = 2},
                                                {.layer = 4, .layers_count = 4, .width = 8, .rank = 2},
                                                {.layer = 1, .layers_count = 4, .width = 0, .rank = 2},
                                                {.layer = 1, .layers_count = 4, .width = 8, .rank = 0},
                                                {.layer = 1, .layers_count = 4, .width = 8, .rank = 129}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        lv_predictor *p = NULL;
        CHECK_FAILS(lv_predictor_open(&p, &shapes[i], 0, NULL, &error), LEVER_E_ARGUMENT, "cannot be");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_as_the_draft),
        cmocka_unit_test(test_kept_keys),
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_toy_pair_is_learned),
        cmocka_unit_test(test_nothing_to_learn),
        cmocka_unit_test(test_memory_of_training),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_halfs),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_shapes_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
