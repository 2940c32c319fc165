/* sampler.c - keyed-noise sampling without sorting the vocabulary.
 *
 * A logit l becomes x = (l - largest) * (1 / temperature) <= 0, and its weight is w = exp(x). All arithmetic is in
 * double and in a fixed order, so that the same logits give the same token wherever they were computed:
 *
 *     mass of the softmax   16 partial sums over the ids (id modulo 16), added up in order
 *     ranks                 larger logit first, then lower id
 *     top-k                 the first k ranks; the mass is then the sum of their weights in rank order
 *     top-p                 the shortest run of ranks whose summed weight reaches top_p times the mass
 *     min-p                 x >= log(min_p)
 *     token                 largest x + Gumbel(seed, position, id), then lower id
 *
 * The mass is over all the logits, with an exp of our own that the compiler vectorises; 152k of them cost a fraction of
 * a millisecond. Ranks are wanted for the few likeliest only: what lies within NEAR of the largest goes into a heap,
 * and is popped until the mass is reached. Where that does not do (flat distributions), everything goes into the heap.
 * Nothing is cut off by the short cut: it changes the time, not the result.
 *
 * With neither top-k nor top-p there are no ranks: ids are visited in order, and the noise is not even drawn for those
 * that could not win with the largest noise there is. */
#include "spec/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"

#define LANES 16

/* Smaller x, and NaN, count as this one: exp(-700) is 1e-304. */
#define X_LEAST (-700.0)

/* In units of x. exp(-12) is 6e-6: the usual top-k and top-p are decided well above it. */
#define NEAR 12.0

/* No noise made from 53 random bits is larger: -log(-log(1 - 2^-54)) is 37.4. */
#define NOISE_MAX 40.0

typedef struct {
    float logit;
    int32_t id;
} candidate;

struct lv_sampler {
    int32_t vocabulary;
    float *penalised;  /* copy of the logits when there are penalties */
    uint32_t *counts;  /* per token, how often it is in the history looked at; zero between calls */
    candidate *ranked; /* heap in front, popped candidates behind it, the likeliest last */
};

/* What one pick looks at. */
typedef struct {
    const float *logits;
    int32_t vocabulary;
    float largest; /* finite */
    double scale;  /* 1 / temperature */
    double x_min;  /* log(min_p) */
    uint64_t seed, position;
} scope;

typedef struct {
    double score;
    int32_t id; /* -1: none yet */
} winner;

/* exp(x) for x <= 0 from additions and multiplications only: the nearest multiple of ln 2 is split off (Cody and Waite)
 * and the rest goes through the Taylor polynomial of degree 11, which is right to 14 digits for
 * |rest| <= ln 2 / 2. `x` is at least X_LEAST. */
static inline double exp_of(double x) {
    const double round_to_integer = 0x1.8p52;
    const double log2_e = 0x1.71547652b82fep+0, ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;

    const double shifted = x * log2_e + round_to_integer;
    const double power = shifted - round_to_integer;
    double rest = x - power * ln2_high;
    rest = rest - power * ln2_low;

    double sum = 1.0 / 39916800.0;
    sum = sum * rest + 1.0 / 3628800.0;
    sum = sum * rest + 1.0 / 362880.0;
    sum = sum * rest + 1.0 / 40320.0;
    sum = sum * rest + 1.0 / 5040.0;
    sum = sum * rest + 1.0 / 720.0;
    sum = sum * rest + 1.0 / 120.0;
    sum = sum * rest + 1.0 / 24.0;
    sum = sum * rest + 1.0 / 6.0;
    sum = sum * rest + 0.5;
    sum = sum * rest + 1.0;
    sum = sum * rest + 1.0;

    /* The integer sits in the low bits of `shifted`; moved to the exponent's place it scales by a power of two. */
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023u) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

static double weight_of(double x) {
    return exp_of(x > X_LEAST ? x : X_LEAST);
}

static float largest_of(const float *logits, int32_t vocabulary) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = -INFINITY;

    int32_t i = 0;
    for (; i + LANES <= vocabulary; i += LANES) {
        for (int j = 0; j < LANES; j++) lane[j] = logits[i + j] > lane[j] ? logits[i + j] : lane[j];
    }
    float largest = -INFINITY;
    for (; i < vocabulary; i++) largest = logits[i] > largest ? logits[i] : largest;
    for (int j = 0; j < LANES; j++) largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

static inline double x_of(const scope *look, float logit) {
    return ((double)logit - (double)look->largest) * look->scale;
}

static double softmax_mass(const scope *look) {
    double lane[LANES] = {0};
    int32_t i = 0;
    for (; i + LANES <= look->vocabulary; i += LANES) {
        double x[LANES];
        for (int j = 0; j < LANES; j++) x[j] = x_of(look, look->logits[i + j]);
        for (int j = 0; j < LANES; j++) x[j] = x[j] > X_LEAST ? x[j] : X_LEAST;
        for (int j = 0; j < LANES; j++) lane[j] += exp_of(x[j]);
    }
    for (int j = 0; i < look->vocabulary; i++, j++) {
        lane[j] += weight_of(x_of(look, look->logits[i]));
    }
    double mass = 0;
    for (int j = 0; j < LANES; j++) mass += lane[j];
    return mass;
}

static bool ranks_before(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void heap_sift(candidate *heap, int32_t count, int32_t at) {
    const candidate moving = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && ranks_before(heap[child + 1], heap[child])) child++;
        if (!ranks_before(heap[child], moving)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* Everything down to `x_least` becomes a heap; returns how many that are. */
static int32_t heap_fill(candidate *heap, const scope *look, double x_least) {
    const double least = (double)look->largest + x_least / look->scale;
    const float logit_least = least > -(double)FLT_MAX ? (float)least : -FLT_MAX;

    int32_t count = 0;
    for (int32_t i = 0; i < look->vocabulary; i++) {
        if (look->logits[i] >= logit_least) heap[count++] = (candidate){look->logits[i], i};
    }
    for (int32_t i = count / 2; i-- > 0;) heap_sift(heap, count, i);
    return count;
}

/* Moves the likeliest of the heap to its end, where the heap no longer reaches, and returns it. */
static candidate heap_pop(candidate *heap, int32_t *count) {
    const candidate top = heap[0];
    heap[0] = heap[--*count];
    heap_sift(heap, *count, 0);
    heap[*count] = top;
    return top;
}

static void offer(winner *best, const scope *look, candidate one) {
    const double score = x_of(look, one.logit) + lv_gumbel(look->seed, look->position, one.id);
    if (best->id < 0 || score > best->score || (score == best->score && one.id < best->id)) {
        *best = (winner){score, one.id};
    }
}

/* Top-k and top-p: candidates in rank order. Returns false when the heap, filled down to `x_least`, held too few. */
static bool pick_ranked(lv_sampler *sampler, const scope *look, int32_t top_k, double top_p, double mass,
                        double x_least, winner *best) {
    candidate *heap = sampler->ranked;
    const int32_t filled = heap_fill(heap, look, x_least);
    const bool all = x_least < -NEAR;
    int32_t count = filled, taken = 0;
    double sum = 0;

    if (top_k > 0) {
        if (filled < top_k && !all) return false;
        const int32_t kept = filled < top_k ? filled : top_k;
        mass = 0;
        while (taken < kept) {
            mass += weight_of(x_of(look, heap_pop(heap, &count).logit));
            taken++;
        }
    }
    *best = (winner){0, -1};
    for (int32_t rank = 0; rank < filled; rank++) {
        if (top_k > 0 && rank >= taken) break;
        const candidate one = top_k > 0 ? heap[filled - 1 - rank] : heap_pop(heap, &count);
        const double x = x_of(look, one.logit);
        if (x < look->x_min) return true;
        offer(best, look, one);
        sum += weight_of(x);
        if (top_p < 1.0 && sum >= top_p * mass) return true;
    }
    return all || top_k > 0;
}

/* Neither top-k nor top-p: no ranks. */
static int32_t pick_any(const scope *look, int32_t likeliest) {
    winner best = {0, -1};
    offer(&best, look, (candidate){look->logits[likeliest], likeliest});
    for (int32_t i = 0; i < look->vocabulary; i++) {
        const double x = x_of(look, look->logits[i]);
        if (i == likeliest || !(x >= look->x_min) || x + NOISE_MAX < best.score) continue;
        offer(&best, look, (candidate){look->logits[i], i});
    }
    return best.id;
}

bool lv_sampling_penalises(const lv_sampling *sampling) {
    return (sampling->repeat_penalty != 1.0f || sampling->presence_penalty != 0.0f ||
            sampling->frequency_penalty != 0.0f) &&
           sampling->penalty_tokens != 0;
}

float lv_sampling_penalise(const lv_sampling *sampling, float logit, uint32_t count) {
    double value = (double)logit;
    value = value > 0 ? value / (double)sampling->repeat_penalty : value * (double)sampling->repeat_penalty;
    const double frequency = (double)count * (double)sampling->frequency_penalty;
    value = value - frequency;
    value = value - (double)sampling->presence_penalty;
    if (value > (double)FLT_MAX) return FLT_MAX;
    if (value < -(double)FLT_MAX) return isinf(logit) ? logit : -FLT_MAX;
    return (float)value;
}

static const float *penalise(lv_sampler *sampler, const lv_sampling *sampling, const float *logits,
                             const int32_t *history, size_t history_count) {
    size_t window = history_count;
    if (sampling->penalty_tokens >= 0 && (size_t)sampling->penalty_tokens < window) {
        window = (size_t)sampling->penalty_tokens;
    }
    if (!lv_sampling_penalises(sampling) || window == 0) return logits;

    memcpy(sampler->penalised, logits, (size_t)sampler->vocabulary * sizeof *logits);
    const int32_t *recent = history + (history_count - window);
    for (size_t i = 0; i < window; i++) {
        if (recent[i] >= 0 && recent[i] < sampler->vocabulary) sampler->counts[recent[i]]++;
    }
    for (size_t i = 0; i < window; i++) {
        const int32_t id = recent[i];
        if (id < 0 || id >= sampler->vocabulary || sampler->counts[id] == 0) continue;
        sampler->penalised[id] = lv_sampling_penalise(sampling, logits[id], sampler->counts[id]);
        sampler->counts[id] = 0;
    }
    return sampler->penalised;
}

lever_status lv_sampling_check(const lv_sampling *sampling, lever_error *error) {
    const struct {
        const char *name;
        float value, least, most;
    } ranges[] = {
        {"temperature", sampling->temperature, 0.0f, FLT_MAX},
        {"top_p", sampling->top_p, 0.0f, 1.0f},
        {"min_p", sampling->min_p, 0.0f, 1.0f},
        {"repeat_penalty", sampling->repeat_penalty, FLT_MIN, FLT_MAX},
        {"presence_penalty", sampling->presence_penalty, -FLT_MAX, FLT_MAX},
        {"frequency_penalty", sampling->frequency_penalty, -FLT_MAX, FLT_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most) continue;
        return lv_fail(error, LEVER_E_ARGUMENT, "%s is %g; it must be a number from %g to %g", ranges[i].name,
                       (double)ranges[i].value, (double)ranges[i].least, (double)ranges[i].most);
    }
    if (sampling->top_k < -1) {
        return lv_fail(error, LEVER_E_ARGUMENT, "top_k is %d; it must be a positive number, or 0 to switch it off",
                       (int)sampling->top_k);
    }
    if (sampling->penalty_tokens < -1) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "penalty_tokens is %d; it must be a number of tokens, or -1 for the whole session",
                       (int)sampling->penalty_tokens);
    }
    return LEVER_OK;
}

lever_status lv_sampler_open(lv_sampler **sampler, int32_t vocabulary, lv_ledger *ledger, lever_error *error) {
    *sampler = NULL;
    if (vocabulary <= 0) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "a sampler for a vocabulary of %d tokens was asked for; at least 1 is "
                       "needed",
                       (int)vocabulary);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_LOGITS, 1, (size_t)lv_sampler_bytes(vocabulary), "sampler", error));

    /* One block: the object, then the arrays, the one with the widest elements first. */
    lv_sampler *opened = memory;
    const size_t tokens_count = (size_t)vocabulary;
    opened->vocabulary = vocabulary;
    opened->ranked = (candidate *)(opened + 1);
    opened->penalised = (float *)(opened->ranked + tokens_count);
    opened->counts = (uint32_t *)(opened->penalised + tokens_count);
    *sampler = opened;
    return LEVER_OK;
}

void lv_sampler_close(lv_sampler **sampler) {
    if (sampler == NULL) return;
    lv_free(*sampler);
    *sampler = NULL;
}

uint64_t lv_sampler_bytes(int32_t vocabulary) {
    return sizeof(lv_sampler) + (uint64_t)vocabulary * (sizeof(candidate) + sizeof(float) + sizeof(uint32_t));
}

int32_t lv_argmax(const float *logits, int32_t vocabulary) {
    const float largest = largest_of(logits, vocabulary);
    if (isinf(largest) && largest < 0) return 0;
    int32_t id = 0;
    while (id < vocabulary && !(logits[id] == largest)) id++;
    return id < vocabulary ? id : 0;
}

int32_t lv_sampler_pick(lv_sampler *sampler, const lv_sampling *sampling, const float *logits, const int32_t *history,
                        size_t history_count, uint64_t position) {
    assert(history != NULL || history_count == 0);
    logits = penalise(sampler, sampling, logits, history, history_count);

    const int32_t likeliest = lv_argmax(logits, sampler->vocabulary);
    const float largest = logits[likeliest];
    const bool nothing_left = isnan(largest) || isinf(largest);
    if (sampling->temperature == 0.0f || nothing_left) return likeliest;

    const scope look = {
        .logits = logits,
        .vocabulary = sampler->vocabulary,
        .largest = largest,
        .scale = 1.0 / (double)sampling->temperature,
        .x_min = sampling->min_p > 0.0f ? log((double)sampling->min_p) : -(double)INFINITY,
        .seed = sampling->seed,
        .position = position,
    };
    const int32_t top_k = sampling->top_k < sampler->vocabulary ? sampling->top_k : 0;
    const double top_p = (double)sampling->top_p;
    if (top_k <= 0 && top_p >= 1.0) return pick_any(&look, likeliest);

    const double mass = top_k > 0 ? 0 : softmax_mass(&look);
    winner best = {0};
    if (!pick_ranked(sampler, &look, top_k, top_p, mass, -NEAR, &best)) {
        (void)pick_ranked(sampler, &look, top_k, top_p, mass, -(double)INFINITY, &best);
    }
    return best.id;
}
