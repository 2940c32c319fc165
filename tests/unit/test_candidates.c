/* Candidates: at temperature 0 the largest logits; above, the order in which the target's own sampler would pick. */
#include "spec/candidates.h"

#include <math.h>
#include <stdlib.h>

#include "support/check.h"

enum { VOCABULARY = 300, HISTORY = 50, ROUNDS = 400 };

static const lv_sampling neutral = {.top_p = 1, .repeat_penalty = 1, .penalty_tokens = 64};
static const lv_logits_tokens all_tokens = {.logits_count = VOCABULARY, .tokens_first = VOCABULARY};

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Logits with a spread of some units, a few of them equal. */
static void fill(uint32_t *state, float *logits, size_t count) {
    for (size_t i = 0; i < count; i++) logits[i] = (float)draw(state, 3000) / 250 + (float)draw(state, 5);
}

static lv_candidates *open_candidates(void) {
    lv_candidates *candidates = NULL;
    lever_error error;
    CHECK_OK(lv_candidates_open(&candidates, VOCABULARY, NULL, &error));
    return candidates;
}

/* --- Temperature 0 ----------------------------------------------------------------------------------------------- */

static bool is_before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* The naive way: how many of the tokens rank before this one. */
static uint32_t rank_of(const float *logits, const bool *there, int32_t token) {
    uint32_t rank = 0;
    for (int32_t i = 0; i < VOCABULARY; i++) rank += there[i] && is_before(logits, i, token);
    return rank;
}

static void check_likeliest(const float *logits, const bool *there, const lv_candidate *found, uint32_t count,
                            uint32_t most) {
    float largest = -INFINITY;
    double mass = 0;
    uint32_t near_count = 0;
    for (int32_t i = 0; i < VOCABULARY; i++) {
        if (there[i] && logits[i] > largest) largest = logits[i];
    }
    for (int32_t i = 0; i < VOCABULARY; i++) {
        if (!there[i] || !(logits[i] > largest - 14)) continue;
        mass += exp((double)logits[i] - (double)largest);
        near_count++;
    }
    assert_int_equal(count, near_count < most ? near_count : most);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(there[found[i].token]);
        assert_int_equal(rank_of(logits, there, found[i].token), i);
        const double wanted = exp((double)logits[found[i].token] - (double)largest) / mass;
        assert_true(fabs((double)found[i].estimate - wanted) <= 1e-5);
    }
}

static void test_likeliest(void **state) {
    (void)state;
    lv_candidates *candidates = open_candidates();
    uint32_t random = 1;
    bool there[VOCABULARY];
    for (size_t i = 0; i < VOCABULARY; i++) there[i] = true;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        float logits[VOCABULARY];
        lv_candidate found[LV_TREE_CHILDREN_MAX];
        fill(&random, logits, VOCABULARY);
        const uint32_t most = 1 + draw(&random, LV_TREE_CHILDREN_MAX);
        if (round % 3 == 0) logits[draw(&random, VOCABULARY)] += 12; /* few others are near */
        if (round % 7 == 0) logits[draw(&random, VOCABULARY)] = NAN;
        if (round % 5 == 0) logits[draw(&random, VOCABULARY)] = -INFINITY;
        const uint32_t count = lv_candidates_pick(candidates, &neutral, logits, &all_tokens, NULL, 0, 9, most, found);
        check_likeliest(logits, there, found, count, most);
        assert_int_equal(found[0].token, lv_argmax(logits, VOCABULARY));
    }
    lv_candidates_close(&candidates);
    assert_null(candidates);
}

static void test_nothing_is_left(void **state) {
    (void)state;
    lv_candidates *candidates = open_candidates();
    static const float values[] = {NAN, -INFINITY}, temperatures[] = {0, 1};
    for (size_t v = 0; v < 2; v++) {
        for (size_t t = 0; t < 2; t++) {
            float logits[VOCABULARY];
            lv_candidate found[LV_TREE_CHILDREN_MAX];
            lv_sampling sampling = neutral;
            sampling.temperature = temperatures[t];
            for (size_t i = 0; i < VOCABULARY; i++) logits[i] = values[v];
            assert_int_equal(lv_candidates_pick(candidates, &sampling, logits, &all_tokens, NULL, 0, 9, 8, found), 0);
            logits[77] = -3;
            assert_int_equal(lv_candidates_pick(candidates, &sampling, logits, &all_tokens, NULL, 0, 9, 8, found), 1);
            assert_int_equal(found[0].token, 77);
            assert_true(found[0].estimate > 0.999f);
        }
    }
    lv_candidates_close(&candidates);
}

/* A table that says which token a row stands for: its own up to a point, then in any order, some of them nobody's. */
typedef struct {
    int32_t tokens[VOCABULARY];
    uint32_t row[VOCABULARY]; /* by token; UINT32_MAX: it has none */
    lv_logits_tokens table;
} permuted;

static void permute(permuted *p, uint32_t *random) {
    const uint32_t first = draw(random, VOCABULARY);
    int32_t order[VOCABULARY];
    for (uint32_t i = 0; i < VOCABULARY; i++) order[i] = (int32_t)i;
    for (uint32_t i = VOCABULARY - 1; i > first; i--) {
        const uint32_t other = first + draw(random, i - first + 1);
        const int32_t moving = order[i];
        order[i] = order[other];
        order[other] = moving;
    }
    for (uint32_t i = 0; i < VOCABULARY; i++) p->row[order[i]] = i;
    for (uint32_t i = first; i < VOCABULARY; i++) {
        p->tokens[i - first] = order[i];
        if (draw(random, 4) > 0) continue;
        p->tokens[i - first] = -1;
        p->row[order[i]] = UINT32_MAX;
    }
    p->table = (lv_logits_tokens){.logits_count = VOCABULARY, .tokens_first = first, .tokens = p->tokens};
}

/* What the rows say of each token, after the penalty that the history brings. */
static void unpermute(const permuted *p, const float *rows, const lv_sampling *sampling, const int32_t *history,
                      float *logits, bool *there) {
    for (int32_t i = 0; i < VOCABULARY; i++) {
        there[i] = p->row[i] != UINT32_MAX;
        if (!there[i]) continue;
        uint32_t seen = 0;
        for (size_t h = 0; h < HISTORY; h++) seen += history[h] == i;
        logits[i] = rows[p->row[i]];
        if (seen) logits[i] = lv_sampling_penalise(sampling, logits[i], seen);
    }
}

static void test_rows_of_other_tokens(void **state) {
    (void)state;
    lv_candidates *candidates = open_candidates();
    uint32_t random = 2;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        permuted p;
        float rows[VOCABULARY], logits[VOCABULARY] = {0};
        bool there[VOCABULARY];
        int32_t history[HISTORY];
        lv_candidate found[LV_TREE_CHILDREN_MAX];
        lv_sampling sampling = neutral;
        if (round % 2) sampling.presence_penalty = 5;
        if (round % 4 == 3) sampling.frequency_penalty = 1;
        permute(&p, &random);
        fill(&random, rows, VOCABULARY);
        for (size_t i = 0; i < HISTORY; i++) history[i] = (int32_t)draw(&random, VOCABULARY / 4);
        unpermute(&p, rows, &sampling, history, logits, there);
        const uint32_t count =
            lv_candidates_pick(candidates, &sampling, rows, &p.table, history, HISTORY, HISTORY, 8, found);
        check_likeliest(logits, there, found, count, 8);
    }
    lv_candidates_close(&candidates);
}

/* A few rows of a large vocabulary; the largest logit is nobody's, the next one's token was just there. */
static void test_fewer_rows(void **state) {
    (void)state;
    lv_candidates *candidates = open_candidates();
    static const int32_t tokens[] = {150000, -1, 70000}, history[] = {150000, 5, -1, 150000};
    static const float logits[] = {1, 3, 9, 2}, temperatures[] = {0, 0.01f};
    const lv_logits_tokens table = {.logits_count = 4, .tokens_first = 1, .tokens = tokens};
    for (size_t t = 0; t < 2; t++) {
        lv_sampling sampling = neutral;
        lv_candidate found[LV_TREE_CHILDREN_MAX];
        sampling.temperature = temperatures[t];
        assert_true(lv_candidates_pick(candidates, &sampling, logits, &table, history, 4, 4, 8, found) >= 1);
        assert_int_equal(found[0].token, 150000);
        sampling.frequency_penalty = 0.6f;
        assert_true(lv_candidates_pick(candidates, &sampling, logits, &table, history, 4, 4, 8, found) >= 1);
        assert_int_equal(found[0].token, 70000);
    }
    lv_candidates_close(&candidates);
}

/* --- With noise -------------------------------------------------------------------------------------------------- */

typedef struct {
    float temperature;
    int32_t top_k;
    float top_p, min_p, repeat, presence, frequency;
    int32_t penalty_tokens;
} setting;

static const setting settings[] = {
    {0.0f, 0, 1, 0, 1, 0, 0, 64},
    {0.0f, 0, 1, 0, 1.3f, 0.5f, 0.2f, -1},
    {1.0f, 0, 1, 0, 1, 0, 0, 64},
    {0.7f, 0, 0.95f, 0, 1, 0, 0, 64},
    {0.8f, 40, 1, 0, 1, 0, 0, 64},
    {0.8f, 1, 1, 0, 1, 0, 0, 64},
    {1.5f, 3, 0.5f, 0, 1, 0, 0, 64},
    {1.2f, 0, 1, 0.1f, 1, 0, 0, 64},
    {1.2f, 0, 1, 1, 1, 0, 0, 64},
    {1.0f, 0, 0, 0, 1, 0, 0, 64},
    {2.0f, 20, 0.9f, 0.05f, 1.2f, 0.3f, 0.1f, 32},
    {0.6f, 0, 0.8f, 0.02f, 1, -0.5f, 0, -1},
    {0.2f, 400, 0.99f, 0, 0.8f, 0, 0.4f, 7},
    {1.0f, 0, 1, 0, 1.5f, 1, 1, 0},
};
enum { SETTINGS_COUNT = sizeof(settings) / sizeof(settings[0]) };

static lv_sampling sampling_of(const setting *s, uint64_t seed) {
    return (lv_sampling){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repeat_penalty = s->repeat,
        .presence_penalty = s->presence,
        .frequency_penalty = s->frequency,
        .penalty_tokens = s->penalty_tokens,
        .seed = seed,
    };
}

/* A draft that is the target proposes the target's token first, at any setting. */
static void test_first_is_the_targets_pick(void **state) {
    (void)state;
    lv_candidates *candidates = open_candidates();
    lv_sampler *sampler = NULL;
    lever_error error;
    CHECK_OK(lv_sampler_open(&sampler, VOCABULARY, NULL, &error));
    uint32_t random = 3, moved = 0; /* noise decided */
    for (size_t s = 0; s < SETTINGS_COUNT; s++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            float logits[VOCABULARY];
            int32_t history[HISTORY];
            lv_candidate found[LV_TREE_CHILDREN_MAX];
            const lv_sampling sampling = sampling_of(&settings[s], draw(&random, 1u << 20));
            CHECK_OK(lv_sampling_check(&sampling, &error));
            fill(&random, logits, VOCABULARY);
            for (size_t i = 0; i < HISTORY; i++) history[i] = (int32_t)draw(&random, VOCABULARY);
            const uint64_t position = draw(&random, 4000);
            const int32_t wanted = lv_sampler_pick(sampler, &sampling, logits, history, HISTORY, position);
            const uint32_t count = lv_candidates_pick(candidates, &sampling, logits, &all_tokens, history, HISTORY,
                                                      position, 1 + round % LV_TREE_CHILDREN_MAX, found);
            assert_true(count >= 1);
            if (found[0].token != wanted)
                fail_msg("setting %zu, round %u: %d instead of %d", s, round, (int)found[0].token, (int)wanted);
            moved += wanted != lv_argmax(logits, VOCABULARY);
        }
    }
    assert_true(moved > ROUNDS);
    lv_sampler_close(&sampler);
    lv_candidates_close(&candidates);
}

/* Estimates are probabilities, the first is the largest, no token comes twice, and what the draft cuts off is offered
 * all the same. */
static void test_estimates(void **state) {
    (void)state;
    lv_candidates *candidates = open_candidates();
    uint32_t random = 4;
    for (size_t s = 0; s < SETTINGS_COUNT; s++) {
        for (uint32_t round = 0; round < 50; round++) {
            float logits[VOCABULARY];
            lv_candidate found[LV_TREE_CHILDREN_MAX];
            const lv_sampling sampling = sampling_of(&settings[s], round);
            fill(&random, logits, VOCABULARY);
            const uint32_t count = lv_candidates_pick(candidates, &sampling, logits, &all_tokens, NULL, 0, 5, 8, found);
            assert_true(count == 8 || sampling.temperature == 0.2f);
            double sum = 0;
            for (uint32_t i = 0; i < count; i++) {
                assert_true(found[i].estimate >= 0 && found[i].estimate <= found[0].estimate);
                for (uint32_t j = 0; j < i; j++) assert_int_not_equal(found[i].token, found[j].token);
                sum += (double)found[i].estimate;
            }
            assert_true(sum <= 1.0001);
        }
    }
    lv_candidates_close(&candidates);
}

/* More tokens lie near than there is room for: those with the larger logits stay. */
static void test_a_flat_distribution(void **state) {
    (void)state;
    enum { MANY = 5000 };
    lv_candidates *candidates = NULL;
    lever_error error;
    CHECK_OK(lv_candidates_open(&candidates, MANY, NULL, &error));
    float *logits = calloc(MANY, sizeof(*logits));
    assert_non_null(logits);
    for (size_t i = 0; i < MANY; i++) logits[i] = (float)(i % 1000) * 0.001f;
    logits[2345] = 13.5f;
    const lv_logits_tokens table = {.logits_count = MANY, .tokens_first = MANY};
    lv_sampling sampling = neutral;
    sampling.temperature = 1;
    sampling.top_k = 1;
    for (uint64_t position = 0; position < 20; position++) {
        lv_candidate found[LV_TREE_CHILDREN_MAX];
        assert_int_equal(lv_candidates_pick(candidates, &sampling, logits, &table, NULL, 0, position, 8, found), 8);
        assert_int_equal(found[0].token, 2345);
        for (uint32_t i = 1; i < 8; i++) assert_true(logits[found[i].token] > 0.4f);
    }
    free(logits);
    lv_candidates_close(&candidates);
}

static void test_adding(void **state) {
    (void)state;
    lv_tree tree;
    lever_error error;
    lv_calibration calibration;
    lv_calibration_init(&calibration);
    CHECK_OK(lv_tree_open(&tree, NULL, &error));
    lv_tree_reset(&tree, 1);
    static const lv_candidate candidates[] = {{10, 0.6f}, {11, 0.25f}, {12, 0.05f}};
    lv_candidates_add(&tree, LV_TREE_ROOT, LV_SOURCE_DRAFT, &calibration, candidates, 3);
    assert_int_equal(tree.nodes_count, 4);
    for (uint32_t i = 0; i < 3; i++) {
        const lv_node *node = &tree.nodes[lv_tree_child(&tree, LV_TREE_ROOT, candidates[i].token)];
        const float next = i < 2 ? candidates[i + 1].estimate : 0;
        assert_int_equal(node->feature.rank, i);
        assert_int_equal(node->feature.depth, 1);
        assert_int_equal(node->feature.source, LV_SOURCE_DRAFT);
        assert_true(node->feature.estimate == candidates[i].estimate);
        assert_true(node->feature.margin == candidates[i].estimate - next);
        assert_true(node->a == lv_calibration_apply(&calibration, &node->feature));
    }
    assert_true(lv_tree_is_sound(&tree));
    lv_tree_close(&tree);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_likeliest),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_rows_of_other_tokens),
        cmocka_unit_test(test_fewer_rows),
        cmocka_unit_test(test_first_is_the_targets_pick),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_a_flat_distribution),
        cmocka_unit_test(test_adding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
