/* training.c - see training.h.
 *
 * Candidates of a batch share few rows, but turning each anew is cheap against what it saves in code. The values of the
 * best epoch are kept aside. Decay is decoupled from the gradient (Loshchilov and Hutter, arXiv 1711.05101): only A, B
 * and lens shrink. */
#include "spec/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static const double kept_share = 0.6; /* of the candidates, when recall is told */
static const double recall_wanted = 0.97;

/* The few weights of features and OTHER may move faster than the many of the matrices, which learn texts by heart. */
static const float few_factor = 10;
static const float in_tree_least = 0.02f;

void lv_training_options_init(lv_training_options *options) {
    *options = (lv_training_options){
        .seed = 1,
        .epochs_max = 20,
        .patience = 3,
        .batch = 64,
        .rate = 2e-4f,
        .decay = 2,
        .miss_weight = 1,
        .held_out = 8,
    };
}

/* --- Scratch ----------------------------------------------------------------------------------------------------- */

typedef struct {
    lv_predictor *predictor;
    const lv_samples *samples;
    const lv_training_options *options;
    size_t values_count;
    float *gradient, *mean, *square, *best; /* like the predictor's values */
    float *hidden, *rows;                   /* floats of one sample */
    uint32_t *order;                        /* those learned from, then those held out */
    size_t learned_count, held_out_count;
    bool trains_matrices;
    uint32_t steps;
    lv_scored *scored;
} trainer;

static size_t scratch_floats(const lv_predictor_shape *shape) {
    return 4 * lv_predictor_values_count(shape) + (1 + (size_t)LV_TRAINING_CANDIDATES_MAX) * shape->width;
}

size_t lv_training_bytes(const lv_predictor_shape *shape, size_t samples_count) {
    return scratch_floats(shape) * sizeof(float) + (samples_count + 1) * sizeof(uint32_t) +
           (samples_count * LV_TRAINING_CANDIDATES_MAX + 1) * sizeof(lv_scored);
}

static void place_scratch(trainer *t, float *floats) {
    const size_t width = t->predictor->shape.width;
    t->mean = floats; /* first, since set_scale keeps doubles there for a while */
    t->gradient = t->mean + t->values_count;
    t->square = t->gradient + t->values_count;
    t->best = t->square + t->values_count;
    t->hidden = t->best + t->values_count;
    t->rows = t->hidden + width;
}

static bool is_held_out(const trainer *t, const lv_sample *sample) {
    return t->options->held_out > 0 && sample->text % t->options->held_out == t->options->held_out - 1;
}

/* Where nothing was proposed there is nothing to learn. */
static void split(trainer *t) {
    const lv_sample *samples = t->samples->samples;
    for (size_t i = 0; i < t->samples->samples_count; i++) {
        if (samples[i].candidates_count == 0 || is_held_out(t, &samples[i])) continue;
        t->order[t->learned_count++] = (uint32_t)i;
    }
    for (size_t i = 0; i < t->samples->samples_count; i++) {
        if (samples[i].candidates_count == 0 || !is_held_out(t, &samples[i])) continue;
        t->order[t->learned_count + t->held_out_count++] = (uint32_t)i;
    }
}

static void to_floats(const uint16_t *halfs, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = lv_float_of(halfs[i]);
}

static uint32_t load(trainer *t, size_t index, lv_predictor_candidate *candidates) {
    const size_t width = t->predictor->shape.width;
    const lv_sample *sample = &t->samples->samples[index];
    to_floats(t->samples->hidden + index * width, width, t->hidden);
    for (uint32_t c = 0; c < sample->candidates_count; c++) {
        to_floats(t->samples->rows + sample->candidates[c].row * width, width, t->rows + c * width);
        candidates[c].row = t->rows + c * width;
        candidates[c].token = -1; /* the values change all the time */
        memcpy(candidates[c].features, sample->candidates[c].features, sizeof(candidates[c].features));
    }
    return sample->candidates_count;
}

/* --- Learning ---------------------------------------------------------------------------------------------------- */

/* Each element of the hidden state gets the same weight on average: a few are a hundred times as large as the rest. */
static void set_scale(trainer *t) {
    const size_t width = t->predictor->shape.width;
    double *sums = (double *)(void *)t->mean; /* not used yet; two floats hold one */
    memset(sums, 0, width * sizeof(*sums));
    for (size_t i = 0; i < t->learned_count; i++) {
        double square = 1e-12;
        to_floats(t->samples->hidden + t->order[i] * width, width, t->hidden);
        for (size_t k = 0; k < width; k++) square += (double)t->hidden[k] * (double)t->hidden[k];
        for (size_t k = 0; k < width; k++) {
            sums[k] += (double)t->hidden[k] * (double)t->hidden[k] / square * (double)width;
        }
    }
    for (size_t k = 0; k < width; k++) {
        t->predictor->scale[k] = (float)(1 / sqrt(sums[k] / (double)t->learned_count + 1e-6));
    }
    memset(t->mean, 0, width * sizeof(*sums));
}

static void shuffle(uint32_t *order, size_t count, uint64_t seed, uint32_t epoch) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (size_t i = count; i > 1; i--) {
        const uint32_t counter[4] = {(uint32_t)i, epoch, 1, 0};
        const size_t other = lv_philox(counter, key).word[0] % i;
        const uint32_t moved = order[i - 1];
        order[i - 1] = order[other];
        order[other] = moved;
    }
}

static void step(trainer *t, size_t batch) {
    lv_predictor *p = t->predictor;
    const size_t width = p->shape.width, trained_first = width;
    const size_t decayed_end = width + (2 * (size_t)p->shape.rank + 1) * width;
    const float first = 0.9f, second = 0.999f, share = 1.0f / (float)batch;
    t->steps++;
    const float correction = sqrtf(1 - powf(second, (float)t->steps)) / (1 - powf(first, (float)t->steps));
    const float rate = t->options->rate * correction, kept = 1 - t->options->rate * t->options->decay;
    for (size_t i = t->trains_matrices ? trained_first : decayed_end; i < t->values_count; i++) {
        const float gradient = t->gradient[i] * share;
        t->mean[i] = first * t->mean[i] + (1 - first) * gradient;
        t->square[i] = second * t->square[i] + (1 - second) * gradient * gradient;
        if (i < decayed_end) p->values[i] *= kept;
        const float moved = rate * t->mean[i] / (sqrtf(t->square[i]) + 1e-8f);
        p->values[i] -= i < decayed_end ? moved : moved * few_factor;
    }
    memset(t->gradient, 0, t->values_count * sizeof(float));
}

static void learn_epoch(trainer *t, uint32_t epoch) {
    lv_predictor_candidate candidates[LV_TRAINING_CANDIDATES_MAX];
    shuffle(t->order, t->learned_count, t->options->seed, epoch);
    size_t batch = 0;
    for (size_t i = 0; i < t->learned_count; i++) {
        const lv_sample *sample = &t->samples->samples[t->order[i]];
        const uint32_t count = load(t, t->order[i], candidates);
        const float weight = sample->label == 0 ? 1 : t->options->miss_weight;
        lv_predictor_backward(t->predictor, t->hidden, candidates, count, sample->label, weight, t->gradient);
        if (++batch < t->options->batch && i + 1 < t->learned_count) continue;
        step(t, batch);
        batch = 0;
    }
}

/* --- What is held out -------------------------------------------------------------------------------------------- */

static int compare_shares(const void *left, const void *right) {
    const lv_scored *a = left, *b = right;
    if (a->share != b->share) return a->share > b->share ? -1 : 1;
    return 0;
}

double lv_training_recall(lv_scored *scored, size_t count, double kept) {
    size_t matched = 0, found = 0;
    const size_t stay = (size_t)ceil(kept * (double)count);
    qsort(scored, count, sizeof(*scored), compare_shares);
    for (size_t i = 0; i < count; i++) {
        matched += scored[i].matched;
        const bool stays = i < stay || scored[i].best;
        found += stays && scored[i].matched;
    }
    return matched > 0 ? (double)found / (double)matched : 1;
}

double lv_training_prunable(lv_scored *scored, size_t count, double recall) {
    size_t matched = 0, lost = 0, goes = 0;
    qsort(scored, count, sizeof(*scored), compare_shares);
    for (size_t i = 0; i < count; i++) matched += scored[i].matched;
    for (size_t i = count; i-- > 0;) {
        if (scored[i].best) continue;
        lost += scored[i].matched;
        if ((double)(matched - lost) < recall * (double)matched) break;
        goes++;
    }
    return count > 0 ? (double)goes / (double)count : 0;
}

static uint32_t best_of(const float *shares, uint32_t count) {
    uint32_t best = 0;
    for (uint32_t c = 1; c < count; c++) best = shares[c] > shares[best] ? c : best;
    return best;
}

/* The mean loss of the held-out samples, and their recall. `draft`: of the draft's own distribution. */
static double judge(trainer *t, bool draft, double *recall, double *prunable) {
    lv_predictor_candidate candidates[LV_TRAINING_CANDIDATES_MAX];
    const bool held_out = t->held_out_count > 0;
    const uint32_t *order = held_out ? t->order + t->learned_count : t->order;
    const size_t count = held_out ? t->held_out_count : t->learned_count;
    double loss = 0;
    size_t scored_count = 0;
    for (size_t i = 0; i < count; i++) {
        const lv_sample *sample = &t->samples->samples[order[i]];
        const uint32_t candidates_count = load(t, order[i], candidates);
        float shares[LV_TRAINING_CANDIDATES_MAX + 1];
        lv_predictor_score(t->predictor, t->hidden, candidates, candidates_count, shares, &shares[candidates_count]);
        float left = 1;
        for (uint32_t c = 0; draft && c < candidates_count; c++) {
            shares[c] = expf(candidates[c].features[0]);
            left -= shares[c];
        }
        if (draft) shares[candidates_count] = fmaxf(left, 1e-4f);
        loss -= log((double)shares[sample->label]);
        const uint32_t best = best_of(shares, candidates_count);
        for (uint32_t c = 0; c < candidates_count; c++) {
            if (expf(candidates[c].features[0]) < in_tree_least) continue;
            t->scored[scored_count++] = (lv_scored){shares[c], c == sample->label, c == best};
        }
    }
    *recall = lv_training_recall(t->scored, scored_count, kept_share);
    *prunable = lv_training_prunable(t->scored, scored_count, recall_wanted);
    return loss / (double)count;
}

/* --- The run ----------------------------------------------------------------------------------------------------- */

/* Epochs from the best values so far until the held-out loss has not been better for some. */
static void train_until_best(trainer *t, bool matrices, uint32_t epochs_max, lv_training_result *result) {
    const size_t bytes = t->values_count * sizeof(float);
    double recall = 0, prunable = 0;
    uint32_t since_best = 0;
    t->trains_matrices = matrices;
    t->steps = 0;
    memset(t->mean, 0, bytes);
    memset(t->square, 0, bytes);
    for (uint32_t epoch = 0; epoch < epochs_max && since_best < t->options->patience; epoch++) {
        learn_epoch(t, result->epochs);
        result->epochs++;
        const double loss = judge(t, false, &recall, &prunable);
        since_best++;
        if (loss < result->loss) {
            result->loss = loss;
            result->recall = recall;
            result->prunable = prunable;
            since_best = 0;
            memcpy(t->best, t->predictor->values, bytes);
        }
        if (t->options->progress)
            t->options->progress(t->options->progress_user, result->epochs, t->options->epochs_max);
    }
    memcpy(t->predictor->values, t->best, bytes);
}

/* The few weights first: trained together, the many learn texts by heart before the few have settled. */
static void train(trainer *t, lv_training_result *result) {
    double prunable = 0;
    result->draft_loss = judge(t, true, &result->draft_recall, &prunable);
    set_scale(t);
    result->loss = judge(t, false, &result->recall, &result->prunable);
    memcpy(t->best, t->predictor->values, t->values_count * sizeof(float));
    train_until_best(t, false, t->options->epochs_max / 3, result);
    train_until_best(t, true, t->options->epochs_max - result->epochs, result);
    t->predictor->recall = (float)result->recall;
    result->learned_count = t->learned_count;
    result->held_out_count = t->held_out_count;
}

lever_status lv_training_run(lv_predictor *predictor, const lv_samples *samples, const lv_training_options *options,
                             lv_training_result *result, lv_ledger *ledger, lever_error *error) {
    trainer t = {.predictor = predictor, .samples = samples, .options = options};
    void *floats = NULL, *order = NULL, *scored = NULL;
    memset(result, 0, sizeof(*result));
    t.values_count = lv_predictor_values_count(&predictor->shape);
    lever_status status = lv_alloc_checked(&floats, ledger, LV_MEM_SESSION, scratch_floats(&predictor->shape),
                                           sizeof(float), "training a predictor", error);
    if (status != LEVER_OK) goto done;
    status = lv_alloc_checked(&order, ledger, LV_MEM_SESSION, samples->samples_count + 1, sizeof(uint32_t),
                              "the order of samples", error);
    if (status != LEVER_OK) goto done;
    status = lv_alloc_checked(&scored, ledger, LV_MEM_SESSION, samples->samples_count * LV_TRAINING_CANDIDATES_MAX + 1,
                              sizeof(lv_scored), "the scores of samples", error);
    if (status != LEVER_OK) goto done;
    place_scratch(&t, floats);
    t.order = order;
    t.scored = scored;
    split(&t);
    if (t.learned_count == 0) {
        status = lv_fail(error, LEVER_E_ARGUMENT, "there is nothing to learn from: give more texts, or longer ones");
        goto done;
    }
    train(&t, result);

done:
    lv_free(scored);
    lv_free(order);
    lv_free(floats);
    return status;
}
