/* The sampler against a naive one that sorts everything, against the distribution it promises, and at its edges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "spec/sampler.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const lv_sampling off = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .penalty_tokens = 64, .seed = 1};

/* --- A small generator, so that a failure can be repeated from its number. --- */

static uint64_t random_state;

static uint32_t random_next(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static double random_unit(void) {
    return random_next() / 2147483648.0;
}

/* --- The naive sampler --- */

typedef struct {
    double logit;
    int32_t id;
} ranked;

static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Sets *close when the end of top-p hangs on the last bits of a sum, where two right answers exist. */
static int32_t pick_naively(const lv_sampling *s, const float *logits, int32_t vocabulary, const int32_t *history,
                            size_t history_count, uint64_t position, bool *close) {
    ranked *all = calloc((size_t)vocabulary, sizeof *all);
    int32_t left = 0;
    for (int32_t id = 0; id < vocabulary; id++) {
        double value = (double)logits[id];
        size_t seen = 0;
        size_t from = s->penalty_tokens >= 0 && history_count > (size_t)s->penalty_tokens
                          ? history_count - (size_t)s->penalty_tokens
                          : 0;
        for (size_t i = from; i < history_count; i++) seen += history[i] == id;
        if (seen > 0) {
            value = value > 0 ? value / (double)s->repeat_penalty : value * (double)s->repeat_penalty;
            value -= (double)seen * (double)s->frequency_penalty;
            value -= (double)s->presence_penalty;
            value = (double)(float)value;
        }
        if (!isnan(value) && !isinf(value)) all[left++] = (ranked){value, id};
    }
    int32_t result = 0;
    *close = false;
    if (left == 0) goto done;
    qsort(all, (size_t)left, sizeof *all, compare_ranked);
    result = all[0].id;
    if (s->temperature == 0.0f) goto done;

    const double largest = all[0].logit;
    if (s->top_k > 0 && s->top_k < left) left = s->top_k;
    double mass = 0, sum = 0, best = 0;
    for (int32_t i = 0; i < left; i++) mass += exp((all[i].logit - largest) / (double)s->temperature);
    for (int32_t i = 0; i < left; i++) {
        const double x = (all[i].logit - largest) / (double)s->temperature;
        if (s->min_p > 0.0f && exp(x) < (double)s->min_p) break;
        if (x < 0 && s->min_p > 0.0f && fabs(exp(x) - (double)s->min_p) < 1e-12) *close = true;
        const double score = x + lv_gumbel(s->seed, position, all[i].id);
        if (i == 0 || score > best || (score == best && all[i].id < result)) {
            best = score;
            result = all[i].id;
        }
        sum += exp(x);
        if (s->top_p < 1.0f && fabs(sum - (double)s->top_p * mass) < 1e-12 * mass) *close = true;
        if (s->top_p < 1.0f && sum >= (double)s->top_p * mass) break;
    }
done:
    free(all);
    return result;
}

static void agrees_with_naive_sampler(void **state) {
    (void)state;
    static const float temperatures[] = {0.0f, 1e-9f, 0.1f, 0.7f, 1.0f, 5.0f, 1e9f};
    static const float top_ps[] = {0.0f, 0.3f, 0.95f, 0.999f, 1.0f, 1.0f};
    static const float min_ps[] = {0.0f, 0.0f, 0.05f, 0.5f, 1.0f};
    static const int32_t top_ks[] = {-1, 0, 0, 1, 2, 40, 1000000000};
    int skipped = 0;
    for (uint64_t run = 0; run < 3000; run++) {
        random_state = run;
        const int32_t vocabulary = 1 + (int32_t)(random_next() % (run % 10 == 0 ? 5000 : 100));
        float *logits = calloc((size_t)vocabulary, sizeof *logits);
        const double spread = run % 3 == 0 ? 30 : 4;
        for (int32_t i = 0; i < vocabulary; i++) {
            logits[i] = (float)((random_unit() - 0.5) * spread);
            if (run % 4 == 0) logits[i] = roundf(logits[i]); /* many ties */
            if (run % 7 == 0 && random_next() % 5 == 0) logits[i] = random_next() % 2 ? NAN : -INFINITY;
        }
        int32_t history[100];
        for (size_t i = 0; i < COUNT_OF(history); i++) history[i] = (int32_t)(random_next() % (uint32_t)vocabulary);
        history[50] = -1;
        history[51] = vocabulary;
        const lv_sampling sampling = {
            .temperature = temperatures[random_next() % COUNT_OF(temperatures)],
            .top_k = top_ks[random_next() % COUNT_OF(top_ks)],
            .top_p = top_ps[random_next() % COUNT_OF(top_ps)],
            .min_p = min_ps[random_next() % COUNT_OF(min_ps)],
            .repeat_penalty = random_next() % 2 ? 1.0f : 1.3f,
            .presence_penalty = random_next() % 2 ? 0.0f : 0.4f,
            .frequency_penalty = random_next() % 2 ? 0.0f : -0.1f,
            .penalty_tokens = (int32_t)(random_next() % 120) - 1,
            .seed = run * 977,
        };
        assert_int_equal(lv_sampling_check(&sampling, NULL), LEVER_OK);

        float *before = malloc((size_t)vocabulary * sizeof *before);
        memcpy(before, logits, (size_t)vocabulary * sizeof *before);
        lv_sampler *sampler = NULL;
        assert_int_equal(lv_sampler_open(&sampler, vocabulary, NULL, NULL), LEVER_OK);
        for (uint64_t position = 0; position < 3; position++) {
            bool close = false;
            const size_t history_count = position * COUNT_OF(history) / 2;
            const int32_t wanted =
                pick_naively(&sampling, logits, vocabulary, history, history_count, position, &close);
            const int32_t got = lv_sampler_pick(sampler, &sampling, logits, history, history_count, position);
            skipped += close;
            if (!close && got != wanted) {
                fail_msg("run %d, position %d: token %d, the naive sampler says %d (temperature %g, top_k %d, top_p "
                         "%g, min_p %g)",
                         (int)run, (int)position, got, wanted, (double)sampling.temperature, sampling.top_k,
                         (double)sampling.top_p, (double)sampling.min_p);
            }
        }
        assert_memory_equal(before, logits, (size_t)vocabulary * sizeof *before);
        lv_sampler_close(&sampler);
        free(before);
        free(logits);
    }
    if (skipped > 200) fail_msg("%d of 9000 cases hang on the last bits", skipped);
}

/* Over many seeds the tokens come as often as the softmax says: chi-square below its 99.9 % point. */
static void keyed_noise_follows_the_softmax(void **state) {
    (void)state;
    static const float logits[] = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f, 1.5f, -2.0f, 0.25f};
    enum { TOKENS = COUNT_OF(logits), DRAWS = 40000 };
    static const struct {
        lv_sampling sampling;
        bool by_position;  /* the position varies in the place of the seed */
        double chi_square; /* 99.9 % point for the degrees of freedom left */
        unsigned kept;     /* bit per token */
    } cases[] = {
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1}, false, 24.3, 0xff},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1}, true, 24.3, 0xff},
        {{.temperature = 0.7f, .top_p = 1, .repeat_penalty = 1}, false, 24.3, 0xff},
        {{.temperature = 2, .top_k = 3, .top_p = 1, .repeat_penalty = 1}, false, 13.8, 0x26},
        {{.temperature = 1, .top_p = 0.6f, .repeat_penalty = 1}, false, 10.8, 0x24},
        {{.temperature = 1, .top_p = 1, .min_p = 0.2f, .repeat_penalty = 1}, false, 16.3, 0x36},
    };
    lv_sampler *sampler = NULL;
    assert_int_equal(lv_sampler_open(&sampler, TOKENS, NULL, NULL), LEVER_OK);
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        double weights[TOKENS], mass = 0;
        for (int i = 0; i < TOKENS; i++) {
            const bool kept = (cases[c].kept >> i & 1) != 0;
            weights[i] = kept ? exp((double)logits[i] / (double)cases[c].sampling.temperature) : 0;
            mass += weights[i];
        }
        int drawn[TOKENS] = {0};
        for (uint64_t n = 0; n < DRAWS; n++) {
            lv_sampling sampling = cases[c].sampling;
            sampling.seed = cases[c].by_position ? 5 : n;
            drawn[lv_sampler_pick(sampler, &sampling, logits, NULL, 0, cases[c].by_position ? n : 9)]++;
        }
        double chi_square = 0;
        for (int i = 0; i < TOKENS; i++) {
            const double expected = DRAWS * weights[i] / mass;
            if (expected > 0) {
                chi_square += (drawn[i] - expected) * (drawn[i] - expected) / expected;
            } else {
                assert_int_equal(drawn[i], 0);
            }
        }
        if (chi_square > cases[c].chi_square) fail_msg("case %zu: chi-square is %g", c, chi_square);
        if (chi_square == 0) fail_msg("case %zu: too good to be random", c);
    }
    lv_sampler_close(&sampler);
}

static void argmax_takes_the_lowest_id(void **state) {
    (void)state;
    float logits[70];
    for (size_t i = 0; i < COUNT_OF(logits); i++) logits[i] = 1.0f;
    assert_int_equal(lv_argmax(logits, 70), 0);
    logits[33] = logits[17] = logits[69] = 2.0f;
    assert_int_equal(lv_argmax(logits, 70), 17);
    logits[3] = NAN;
    assert_int_equal(lv_argmax(logits, 70), 17);
    logits[69] = INFINITY;
    assert_int_equal(lv_argmax(logits, 70), 69);
    for (size_t i = 0; i < COUNT_OF(logits); i++) logits[i] = i % 2 ? NAN : -INFINITY;
    assert_int_equal(lv_argmax(logits, 70), 0);
    logits[40] = -1e30f;
    assert_int_equal(lv_argmax(logits, 70), 40);
}

/* Nothing finite, nothing but one, ties at every temperature. */
static void odd_logits_give_valid_tokens(void **state) {
    (void)state;
    static const float temperatures[] = {0.0f, 1e-30f, 1e-4f, 1.0f, 1e9f, 3e38f};
    lv_sampler *sampler = NULL;
    assert_int_equal(lv_sampler_open(&sampler, 20, NULL, NULL), LEVER_OK);
    for (size_t t = 0; t < COUNT_OF(temperatures); t++) {
        lv_sampling sampling = off;
        sampling.temperature = temperatures[t];
        for (int mode = 0; mode < 3; mode++) {
            sampling.top_p = mode == 1 ? 0.9f : 1.0f;
            sampling.top_k = mode == 2 ? 5 : 0;
            float logits[20];
            for (int i = 0; i < 20; i++) logits[i] = NAN;
            assert_int_equal(lv_sampler_pick(sampler, &sampling, logits, NULL, 0, 0), 0);
            logits[12] = -3e38f;
            assert_int_equal(lv_sampler_pick(sampler, &sampling, logits, NULL, 0, 0), 12);
            logits[15] = 3e38f;
            const int32_t far_apart = lv_sampler_pick(sampler, &sampling, logits, NULL, 0, 0);
            assert_true(far_apart == 15 || (sampling.temperature > 1e37f && far_apart == 12));
            logits[19] = INFINITY;
            assert_int_equal(lv_sampler_pick(sampler, &sampling, logits, NULL, 0, 0), 19);
        }
    }
    lv_sampler_close(&sampler);
}

static void edge_values_mean_what_is_documented(void **state) {
    (void)state;
    float logits[50];
    for (int i = 0; i < 50; i++) logits[i] = (float)(i % 7) * 0.1f;
    lv_sampler *sampler = NULL;
    assert_int_equal(lv_sampler_open(&sampler, 50, NULL, NULL), LEVER_OK);
    const struct {
        lv_sampling sampling;
        int kind; /* 0: the likeliest of the lowest id, 1: as with everything off, 2: one of those that tie */
    } cases[] = {
        {{.temperature = 1, .top_p = 0, .repeat_penalty = 1}, 0},
        {{.temperature = 1, .top_k = 1, .top_p = 1, .repeat_penalty = 1}, 0},
        {{.temperature = 0, .top_p = 1, .repeat_penalty = 1}, 0},
        {{.temperature = 1, .top_k = -1, .top_p = 1, .repeat_penalty = 1}, 1},
        {{.temperature = 1, .top_k = 1000000000, .top_p = 1, .repeat_penalty = 1}, 1},
        {{.temperature = 1, .top_k = 50, .top_p = 1, .repeat_penalty = 1}, 1},
        {{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1}, 1},
        {{.temperature = 1, .top_p = 1, .min_p = 1, .repeat_penalty = 1}, 2},
        {{.temperature = 1e-9f, .top_p = 1, .repeat_penalty = 1}, 2},
    };
    int differing = 0;
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        for (uint64_t seed = 0; seed < 200; seed++) {
            lv_sampling sampling = cases[c].sampling, plain = off;
            sampling.seed = plain.seed = seed;
            const int32_t got = lv_sampler_pick(sampler, &sampling, logits, NULL, 0, 3);
            if (cases[c].kind == 0) assert_int_equal(got, 6);
            if (cases[c].kind == 1) assert_int_equal(got, lv_sampler_pick(sampler, &plain, logits, NULL, 0, 3));
            if (cases[c].kind == 2) assert_int_equal(got % 7, 6);
            differing += cases[c].kind == 2 && got != 6;
        }
    }
    assert_true(differing > 100);
    lv_sampler_close(&sampler);
}

static void penalties_look_back_as_far_as_they_should(void **state) {
    (void)state;
    static const float logits[] = {-1.0f, 2.0f, 1.9f, 1.8f};
    static const int32_t history[] = {2, 2, 2, 1};
    const struct {
        float repeat, presence, frequency;
        int32_t tokens, wanted;
    } cases[] = {
        {1.0f, 0.0f, 0.0f, -1, 1},  {2.0f, 0.0f, 0.0f, 0, 1},   {2.0f, 0.0f, 0.0f, 1, 2},  {2.0f, 0.0f, 0.0f, 2, 3},
        {1.0f, 0.15f, 0.0f, 1, 2},  {1.0f, 0.15f, 0.0f, -1, 1}, {1.0f, 0.3f, 0.0f, -1, 3}, {1.0f, 0.0f, 0.15f, 4, 1},
        {1.0f, 0.0f, 0.3f, 4, 3},   {1e-3f, 0.0f, 0.0f, 1, 1},  {1e30f, 0.0f, 0.0f, 2, 3}, {1.0f, -5.0f, 0.0f, -1, 1},
        {1.0f, 0.0f, -5.0f, -1, 2},
    };
    lv_sampler *sampler = NULL;
    assert_int_equal(lv_sampler_open(&sampler, 4, NULL, NULL), LEVER_OK);
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        lv_sampling sampling = off;
        sampling.temperature = 0;
        sampling.repeat_penalty = cases[c].repeat;
        sampling.presence_penalty = cases[c].presence;
        sampling.frequency_penalty = cases[c].frequency;
        sampling.penalty_tokens = cases[c].tokens;
        for (int again = 0; again < 2; again++) {
            const int32_t got = lv_sampler_pick(sampler, &sampling, logits, history, 4, 0);
            if (got != cases[c].wanted) fail_msg("case %zu: token %d, not %d", c, got, cases[c].wanted);
        }
    }
    /* A negative logit is multiplied: the penalty must not make it likelier. */
    static const float negative[] = {-1.0f, -1.5f, -9.0f, -9.0f};
    lv_sampling sampling = off;
    sampling.temperature = 0;
    sampling.repeat_penalty = 2;
    static const int32_t seen[] = {0};
    assert_int_equal(lv_sampler_pick(sampler, &sampling, negative, seen, 1, 0), 1);
    lv_sampler_close(&sampler);
}

/* Many unlikely tokens together weigh enough for top-p to reach far below the first candidates looked at. */
static void flat_distributions_are_not_cut_short(void **state) {
    (void)state;
    enum { TOKENS = 30000, POSITIONS = 300 };
    static float logits[TOKENS];
    for (int i = 0; i < TOKENS; i++) logits[i] = -12.5f + (float)(i % 100) * 1e-3f;
    logits[TOKENS - 1] = logits[TOKENS - 2] = 0;
    lv_sampling sampling = off;
    sampling.top_p = 0.99f;
    int from_afar = 0;
    lv_sampler *sampler = NULL;
    assert_int_equal(lv_sampler_open(&sampler, TOKENS, NULL, NULL), LEVER_OK);
    for (uint64_t position = 0; position < POSITIONS; position++) {
        from_afar += lv_sampler_pick(sampler, &sampling, logits, NULL, 0, position) < TOKENS - 2;
    }
    /* 30000 exp(-12.45) = 0.12 of 2.12, less one hundredth of it all: 4.7 %. */
    assert_in_range(from_afar, 4, 30);

    sampling.top_p = 1;
    sampling.top_k = TOKENS - 1;
    from_afar = 0;
    for (uint64_t position = 0; position < POSITIONS / 3; position++) {
        from_afar += lv_sampler_pick(sampler, &sampling, logits, NULL, 0, position) < TOKENS - 2;
    }
    assert_in_range(from_afar, 1, 15); /* 5.6 % */
    lv_sampler_close(&sampler);
}

static void bad_values_are_named(void **state) {
    (void)state;
    const struct {
        lv_sampling sampling;
        const char *name;
    } cases[] = {
        {{.temperature = -1, .top_p = 1, .repeat_penalty = 1}, "temperature"},
        {{.temperature = NAN, .top_p = 1, .repeat_penalty = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1, .repeat_penalty = 1}, "temperature"},
        {{.temperature = 1, .top_p = 1.1f, .repeat_penalty = 1}, "top_p"},
        {{.temperature = 1, .top_p = -0.1f, .repeat_penalty = 1}, "top_p"},
        {{.temperature = 1, .top_p = NAN, .repeat_penalty = 1}, "top_p"},
        {{.temperature = 1, .top_p = 1, .min_p = 2, .repeat_penalty = 1}, "min_p"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 0}, "repeat_penalty"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = -1}, "repeat_penalty"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .presence_penalty = NAN}, "presence_penalty"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .frequency_penalty = INFINITY}, "frequency_penalty"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .top_k = -2}, "top_k"},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .penalty_tokens = -2}, "penalty_tokens"},
    };
    assert_int_equal(lv_sampling_check(&off, NULL), LEVER_OK);
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        lever_error error = {0};
        assert_int_equal(lv_sampling_check(&cases[c].sampling, &error), LEVER_E_ARGUMENT);
        if (strncmp(error.message, cases[c].name, strlen(cases[c].name)) != 0) {
            fail_msg("case %zu: '%s' does not name %s", c, error.message, cases[c].name);
        }
    }
}

static void scratch_is_booked(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(lv_sampler_bytes(1000));
    lv_sampler *sampler = NULL;
    lever_error error;
    assert_int_equal(lv_sampler_open(&sampler, 1001, ledger, &error), LEVER_E_BUDGET);
    assert_null(sampler);
    assert_int_equal(lv_sampler_open(&sampler, 1000, ledger, &error), LEVER_OK);
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_LOGITS), lv_sampler_bytes(1000));
    lv_sampler_close(&sampler);
    lv_sampler_close(&sampler);
    assert_int_equal(lv_sampler_open(&sampler, 0, ledger, &error), LEVER_E_ARGUMENT);
    lv_ledger_free(ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_naive_sampler),
        cmocka_unit_test(keyed_noise_follows_the_softmax),
        cmocka_unit_test(argmax_takes_the_lowest_id),
        cmocka_unit_test(odd_logits_give_valid_tokens),
        cmocka_unit_test(edge_values_mean_what_is_documented),
        cmocka_unit_test(penalties_look_back_as_far_as_they_should),
        cmocka_unit_test(flat_distributions_are_not_cut_short),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(scratch_is_booked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
