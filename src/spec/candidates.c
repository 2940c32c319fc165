/* candidates.c - the best of some ten thousand logits without sorting them.
 *
 * At temperature 0 one scan keeps the best few; the mass is summed over what lies near the largest, since the rest
 * weighs nothing. Above, what lies near is ranked, cut by top-k, top-p and min-p, and ordered by score with noise. The
 * estimate is then a softmax of the scores over DISAGREEMENT: were the target's scores those of the draft with Gumbel
 * errors of that scale, it would be the probability that this one wins (discrepancy softmax). */
#include "spec/candidates.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { NEAR_MAX = 512 };

static const float near_logits = 14.0f;    /* exp(-14) is 8e-7 */
static const double disagreement = 0.7;    /* scale of log q - log p, in nats */
static const double excluded_score = -4.0; /* what q cut off may still be in p */

typedef struct {
    double x, score; /* log weight, the largest 0; with noise */
    int32_t token;
    bool excluded;
} ranked_token;

struct lv_candidates {
    uint32_t logits_max;
    float *penalised;
    uint32_t *counts; /* by row, how often its token is in the window; zero between calls */
    ranked_token near[NEAR_MAX];
};

size_t lv_candidates_bytes(uint32_t logits_max) {
    return sizeof(lv_candidates) + logits_max * (sizeof(float) + sizeof(uint32_t));
}

lever_status lv_candidates_open(lv_candidates **out, uint32_t logits_max, lv_ledger *ledger, lever_error *error) {
    void *memory = NULL;
    *out = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, lv_candidates_bytes(logits_max), "candidates", error));
    lv_candidates *candidates = memory;
    candidates->logits_max = logits_max;
    candidates->penalised = (float *)(candidates + 1);
    candidates->counts = (uint32_t *)(candidates->penalised + logits_max);
    *out = candidates;
    return LEVER_OK;
}

void lv_candidates_close(lv_candidates **candidates) {
    if (!candidates) return;
    lv_free(*candidates);
    *candidates = NULL;
}

static int32_t token_of(const lv_logits_tokens *tokens, uint32_t row) {
    return row < tokens->tokens_first ? (int32_t)row : tokens->tokens[row - tokens->tokens_first];
}

static uint32_t row_of(const lv_logits_tokens *tokens, int32_t token) {
    if (token >= 0 && (uint32_t)token < tokens->tokens_first) return (uint32_t)token;
    for (uint32_t row = tokens->tokens_first; token >= 0 && row < tokens->logits_count; row++) {
        if (tokens->tokens[row - tokens->tokens_first] == token) return row;
    }
    return UINT32_MAX;
}

/* Each token once, with how often it is in the window that penalties look at. */
static const float *penalise(lv_candidates *c, const lv_sampling *sampling, const float *logits,
                             const lv_logits_tokens *tokens, const int32_t *history, size_t history_count) {
    if (!lv_sampling_penalises(sampling)) return logits;
    size_t window = history_count;
    if (sampling->penalty_tokens >= 0 && (size_t)sampling->penalty_tokens < window) {
        window = (size_t)sampling->penalty_tokens;
    }
    const int32_t *recent = history + (history_count - window);
    memcpy(c->penalised, logits, tokens->logits_count * sizeof(*logits));
    for (size_t i = 0; i < window; i++) {
        const uint32_t row = row_of(tokens, recent[i]);
        /* From the untouched logit each time: the last occurrence leaves what all of them make. */
        if (row != UINT32_MAX) c->penalised[row] = lv_sampling_penalise(sampling, logits[row], ++c->counts[row]);
    }
    for (size_t i = 0; i < window; i++) {
        const uint32_t row = row_of(tokens, recent[i]);
        if (row != UINT32_MAX) c->counts[row] = 0;
    }
    return c->penalised;
}

/* --- Temperature 0 ----------------------------------------------------------------------------------------------- */

typedef struct {
    float logit;
    int32_t token;
} likely;

static bool ranks_before(likely a, likely b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static uint32_t keep(likely *best, uint32_t count, uint32_t most, likely one) {
    uint32_t at = count < most ? count : most - 1;
    while (at > 0 && ranks_before(one, best[at - 1])) {
        best[at] = best[at - 1];
        at--;
    }
    best[at] = one;
    return count < most ? count + 1 : most;
}

static float largest_logit(const float *logits, const lv_logits_tokens *tokens) {
    float largest = -INFINITY;
    for (uint32_t i = 0; i < tokens->logits_count; i++) {
        if (logits[i] > largest && token_of(tokens, i) >= 0) largest = logits[i];
    }
    return largest;
}

static uint32_t pick_likeliest(const float *logits, const lv_logits_tokens *tokens, uint32_t most, lv_candidate *out) {
    const float largest = largest_logit(logits, tokens);
    if (!isfinite(largest)) return 0;
    likely best[LV_TREE_CHILDREN_MAX] = {{0}};
    uint32_t count = 0;
    float mass = 0;
    for (uint32_t i = 0; i < tokens->logits_count; i++) {
        if (!(logits[i] > largest - near_logits)) continue;
        const int32_t token = token_of(tokens, i);
        if (token < 0) continue;
        mass += expf(logits[i] - largest);
        const likely one = {logits[i], token};
        if (count < most || ranks_before(one, best[count - 1])) count = keep(best, count, most, one);
    }
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (lv_candidate){best[i].token, expf(best[i].logit - largest) / mass};
    }
    return count;
}

/* --- Above ------------------------------------------------------------------------------------------------------- */

static int compare_x(const void *left, const void *right) {
    const ranked_token *a = left, *b = right;
    if (a->x != b->x) return a->x > b->x ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

static int compare_score(const void *left, const void *right) {
    const ranked_token *a = left, *b = right;
    if (a->excluded != b->excluded) return a->excluded ? 1 : -1;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

/* What lies near the largest, likeliest first; of more than fit, those with the larger logits. */
static uint32_t gather_near(lv_candidates *c, const lv_sampling *sampling, const float *logits,
                            const lv_logits_tokens *tokens, double *mass) {
    const float largest = largest_logit(logits, tokens);
    if (!isfinite(largest)) return 0;
    const float least = largest - near_logits * sampling->temperature;
    uint32_t count = 0;
    *mass = 0;
    for (uint32_t i = 0; i < tokens->logits_count; i++) {
        if (!(logits[i] > least)) continue;
        const int32_t token = token_of(tokens, i);
        if (token < 0) continue;
        const double x = ((double)logits[i] - (double)largest) / (double)sampling->temperature;
        *mass += exp(x);
        uint32_t at = count;
        if (count == NEAR_MAX) {
            /* Full: the last half by x is given up. Rare, and it only costs speed. */
            qsort(c->near, count, sizeof(*c->near), compare_x);
            count = NEAR_MAX / 2;
            at = count;
        }
        c->near[at] = (ranked_token){.x = x, .token = token};
        count = at + 1;
    }
    qsort(c->near, count, sizeof(*c->near), compare_x);
    return count;
}

static uint32_t pick_with_noise(lv_candidates *c, const lv_sampling *sampling, const float *logits,
                                const lv_logits_tokens *tokens, uint64_t position, uint32_t most, lv_candidate *out) {
    double mass = 0, sum = 0;
    const uint32_t count = gather_near(c, sampling, logits, tokens, &mass);
    const double x_min = sampling->min_p > 0 ? log((double)sampling->min_p) : -(double)INFINITY;
    if (sampling->top_k > 0) {
        mass = 0;
        for (uint32_t i = 0; i < count && i < (uint32_t)sampling->top_k; i++) mass += exp(c->near[i].x);
    }
    bool excluded = false;
    for (uint32_t i = 0; i < count; i++) {
        ranked_token *one = &c->near[i];
        if (i > 0 && (one->x < x_min || (sampling->top_k > 0 && i >= (uint32_t)sampling->top_k))) excluded = true;
        one->excluded = excluded;
        one->score = one->x + lv_gumbel(sampling->seed, position, one->token);
        sum += exp(one->x);
        if ((double)sampling->top_p < 1.0 && sum >= (double)sampling->top_p * mass) excluded = true;
    }
    qsort(c->near, count, sizeof(*c->near), compare_score);
    const uint32_t kept = count < most ? count : most;
    double total = 0, weights[LV_TREE_CHILDREN_MAX];
    for (uint32_t i = 0; i < kept; i++) {
        const double below = c->near[i].score - c->near[0].score + (c->near[i].excluded ? excluded_score : 0);
        weights[i] = exp((below < 0 ? below : 0) / disagreement);
        total += weights[i];
    }
    for (uint32_t i = 0; i < kept; i++) {
        out[i] = (lv_candidate){c->near[i].token, (float)(weights[i] / total)};
    }
    return kept;
}

uint32_t lv_candidates_pick(lv_candidates *c, const lv_sampling *sampling, const float *logits,
                            const lv_logits_tokens *tokens, const int32_t *history, size_t history_count,
                            uint64_t position, uint32_t most, lv_candidate *out) {
    assert(most >= 1 && most <= LV_TREE_CHILDREN_MAX && tokens->logits_count <= c->logits_max);
    logits = penalise(c, sampling, logits, tokens, history, history_count);
    if (sampling->temperature == 0) return pick_likeliest(logits, tokens, most, out);
    return pick_with_noise(c, sampling, logits, tokens, position, most, out);
}

void lv_candidates_add(lv_tree *tree, uint32_t node, lv_source source, const lv_calibration *calibration,
                       const lv_candidate *candidates, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const float next = i + 1 < count ? candidates[i + 1].estimate : 0;
        const lv_feature feature = {
            .source = source,
            .rank = (uint8_t)i,
            .depth = (uint16_t)(tree->nodes[node].feature.depth + 1),
            .estimate = candidates[i].estimate,
            .margin = candidates[i].estimate - next,
        };
        (void)lv_tree_add(tree, node, candidates[i].token, &feature, lv_calibration_apply(calibration, &feature));
    }
}
