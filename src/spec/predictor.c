/* predictor.c - forward, backward and file of the network; the mathematics stands in the header.
 *
 * Both products go over rows of `width` floats, so everything is a dot product or its transpose, written in sixteen
 * lanes that the compiler turns into vectors; the order of a sum is fixed, and so is what training gives. */
#include "spec/predictor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { LANES = 16, OTHER_FIRST = 2 };

static const float probability_least = 1e-4f;
static const float error_least = 1e-4f; /* of a candidate; less teaches nothing */
static const float score_share = 0.2f;  /* of <A h, B e>, which is summed over rank and width */

/* --- Vectors ----------------------------------------------------------------------------------------------------- */

static float dot(const float *restrict x, const float *restrict y, size_t count) {
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) lanes[lane] += x[i + lane] * y[i + lane];
    }
    float sum = 0;
    for (size_t lane = 0; lane < LANES; lane++) sum += lanes[lane];
    for (; i < count; i++) sum += x[i] * y[i];
    return sum;
}

static void add_scaled(float *restrict to, const float *restrict x, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += factor * x[i];
}

static float inverse_rms(const float *x, size_t count) {
    return 1.0f / sqrtf(dot(x, x, count) / (float)count + 1e-12f);
}

/* --- Opening ----------------------------------------------------------------------------------------------------- */

size_t lv_predictor_values_count(const lv_predictor_shape *s) {
    return (size_t)s->width * (2 + 2 * (size_t)s->rank) + LV_PREDICTOR_FEATURES + 1 + OTHER_FIRST + s->rank;
}

size_t lv_predictor_bytes(const lv_predictor_shape *s) {
    return sizeof(lv_predictor) + LV_PREDICTOR_KEYS * (s->rank + (size_t)1) * sizeof(float) +
           (lv_predictor_values_count(s) + 2 * (size_t)s->width) * sizeof(float);
}

static bool is_possible(const lv_predictor_shape *s) {
    return s->width >= 1 && s->width <= LV_PREDICTOR_WIDTH_MAX && s->rank >= 1 && s->rank <= LV_PREDICTOR_RANK_MAX &&
           s->layer >= 1 && s->layer < s->layers_count;
}

static void place(lv_predictor *p) {
    const size_t width = p->shape.width, rank = p->shape.rank;
    p->values = (float *)(p + 1);
    p->scale = p->values;
    p->a = p->scale + width;
    p->b = p->a + rank * width;
    p->lens = p->b + rank * width;
    p->weights = p->lens + width;
    p->gain = p->weights + LV_PREDICTOR_FEATURES;
    p->other = p->gain + 1;
    p->hidden = p->other + OTHER_FIRST + rank;
    p->row = p->hidden + width;
    p->kept_keys = p->row + width;
    p->kept_tokens = (int32_t *)(p->kept_keys + LV_PREDICTOR_KEYS * rank);
}

void lv_predictor_forget(lv_predictor *p) {
    for (size_t i = 0; i < LV_PREDICTOR_KEYS; i++) p->kept_tokens[i] = -1;
}

/* Uniform in (-1, 1). */
static float random_at(uint64_t seed, uint32_t index) {
    const uint32_t counter[4] = {index, 0, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return (float)lv_philox(counter, key).word[0] / 2147483648.0f - 1.0f;
}

lever_status lv_predictor_open(lv_predictor **out, const lv_predictor_shape *shape, uint64_t seed, lv_ledger *ledger,
                               lever_error *error) {
    *out = NULL;
    if (!is_possible(shape)) {
        return lv_fail(
            error, LEVER_E_ARGUMENT,
            "a predictor of rank %u after layer %u of %u and width %u cannot be; rank 1 to %d, a layer below "
            "the last",
            shape->rank, shape->layer, shape->layers_count, shape->width, LV_PREDICTOR_RANK_MAX);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, lv_predictor_bytes(shape), "a predictor", error));
    lv_predictor *p = memory;
    p->shape = *shape;
    place(p);
    const float reach = 1.0f / sqrtf((float)shape->width);
    for (uint32_t i = 0; i < shape->width; i++) p->scale[i] = 1;
    for (uint32_t i = 0; i < shape->rank * shape->width; i++) p->a[i] = random_at(seed, i) * reach;
    p->weights[0] = 1; /* the draft's own distribution */
    p->other[1] = 1;
    lv_predictor_forget(p);
    *out = p;
    return LEVER_OK;
}

void lv_predictor_close(lv_predictor **predictor) {
    if (!predictor) return;
    lv_free(*predictor);
    *predictor = NULL;
}

/* --- Scores ------------------------------------------------------------------------------------------------------ */

static float at_least(float value, float least) {
    return value > least ? value : least;
}

void lv_predictor_features(const lv_feature *feature, float a, float out[LV_PREDICTOR_FEATURES]) {
    const float depth = feature->depth < 16 ? (float)feature->depth : 16.0f;
    const float features[LV_PREDICTOR_FEATURES] = {
        logf(at_least(a, probability_least)),
        logf(at_least(1 - a, probability_least)) * 0.1f,
        feature->margin,
        depth / 16,
        (float)(feature->source == LV_SOURCE_LOOKUP),
        (float)(feature->source == LV_SOURCE_REJECTED),
        (float)(feature->rank == 0),
        (float)(feature->rank == 1),
        (float)(feature->rank == 2 || feature->rank == 3),
        (float)(feature->rank > 3),
    };
    memcpy(out, features, sizeof(features));
}

/* What the candidates' own probabilities leave, from their first feature. */
static float log_left(const lv_predictor_candidate *candidates, uint32_t count) {
    float left = 1;
    for (uint32_t i = 0; i < count; i++) left -= expf(candidates[i].features[0]);
    return logf(at_least(left, probability_least));
}

static void take_hidden(lv_predictor *p, const float *hidden) {
    const size_t width = p->shape.width;
    const float inverse = inverse_rms(hidden, width);
    for (size_t i = 0; i < width; i++) p->hidden[i] = hidden[i] * inverse * p->scale[i];
    for (size_t r = 0; r < p->shape.rank; r++) p->query[r] = dot(p->a + r * width, p->hidden, width);
}

static void take_row(lv_predictor *p, const float *row) {
    const float inverse = inverse_rms(row, p->shape.width);
    for (size_t i = 0; i < p->shape.width; i++) p->row[i] = row[i] * inverse;
}

static void take_key(lv_predictor *p, int32_t token, float *key) {
    const size_t rank = p->shape.rank, width = p->shape.width, at = (uint32_t)token % LV_PREDICTOR_KEYS;
    const bool keeps = token >= 0;
    if (keeps && p->kept_tokens[at] == token) {
        memcpy(key, p->kept_keys + at * rank, rank * sizeof(float));
        return;
    }
    for (size_t r = 0; r < rank; r++) key[r] = dot(p->b + r * width, p->row, width);
    if (!keeps) return;
    p->kept_tokens[at] = token;
    memcpy(p->kept_keys + at * rank, key, rank * sizeof(float));
}

/* What the target would say if it ended here, up to a factor: <h, e> of elements that weigh the same on average. */
static float overlap(const lv_predictor *p) {
    return dot(p->hidden, p->row, p->shape.width) / sqrtf((float)p->shape.width);
}

static float score_of(lv_predictor *p, const lv_predictor_candidate *candidate, float *key) {
    const size_t width = p->shape.width;
    float lens = 0;
    take_row(p, candidate->row);
    take_key(p, candidate->token, key);
    /* In lanes, as dot does it. */
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        for (size_t l = 0; l < LANES; l++) lanes[l] += p->lens[i + l] * p->hidden[i + l] * p->row[i + l];
    }
    for (size_t l = 0; l < LANES; l++) lens += lanes[l];
    for (; i < width; i++) lens += p->lens[i] * p->hidden[i] * p->row[i];
    return score_share * dot(p->query, key, p->shape.rank) + lens + p->gain[0] * overlap(p) +
           dot(p->weights, candidate->features, LV_PREDICTOR_FEATURES);
}

static float score_other(const lv_predictor *p, float left) {
    return p->other[0] + p->other[1] * left + score_share * dot(p->other + OTHER_FIRST, p->query, p->shape.rank);
}

/* Scores become shares; the last one is OTHER. */
static void normalise(float *scores, uint32_t count) {
    float most = scores[0], sum = 0;
    for (uint32_t i = 1; i <= count; i++) most = scores[i] > most ? scores[i] : most;
    for (uint32_t i = 0; i <= count; i++) sum += scores[i] = expf(scores[i] - most);
    for (uint32_t i = 0; i <= count; i++) scores[i] = at_least(scores[i] / sum, 1e-12f);
}

static void score_all(lv_predictor *p, const float *hidden, const lv_predictor_candidate *candidates, uint32_t count,
                      float scores[LV_PREDICTOR_CANDIDATES_MAX + 1]) {
    assert(count >= 1 && count <= LV_PREDICTOR_CANDIDATES_MAX);
    take_hidden(p, hidden);
    for (uint32_t i = 0; i < count; i++) scores[i] = score_of(p, &candidates[i], p->keys[i]);
    scores[count] = score_other(p, log_left(candidates, count));
    normalise(scores, count);
}

void lv_predictor_score(lv_predictor *p, const float *hidden, const lv_predictor_candidate *candidates, uint32_t count,
                        float *shares, float *other) {
    float scores[LV_PREDICTOR_CANDIDATES_MAX + 1];
    score_all(p, hidden, candidates, count, scores);
    memcpy(shares, scores, count * sizeof(*shares));
    *other = scores[count];
}

/* --- Gradient ---------------------------------------------------------------------------------------------------- */

double lv_predictor_backward(lv_predictor *p, const float *hidden, const lv_predictor_candidate *candidates,
                             uint32_t count, uint32_t label, float weight, float *gradient) {
    float shares[LV_PREDICTOR_CANDIDATES_MAX + 1], of_query[LV_PREDICTOR_RANK_MAX] = {0};
    const size_t width = p->shape.width, rank = p->shape.rank;
    score_all(p, hidden, candidates, count, shares);
    float *const of_a = gradient + (p->a - p->values), *const of_b = gradient + (p->b - p->values);
    float *const of_lens = gradient + (p->lens - p->values), *const of_weights = gradient + (p->weights - p->values);
    float *const of_other = gradient + (p->other - p->values), *const of_gain = gradient + (p->gain - p->values);
    for (uint32_t i = 0; i < count; i++) {
        const float error = weight * (shares[i] - (i == label ? 1.0f : 0.0f));
        if (fabsf(error) < error_least) continue;
        take_row(p, candidates[i].row);
        for (size_t r = 0; r < rank; r++) {
            of_query[r] += error * score_share * p->keys[i][r];
            add_scaled(of_b + r * width, p->row, error * score_share * p->query[r], width);
        }
        for (size_t k = 0; k < width; k++) of_lens[k] += error * p->hidden[k] * p->row[k];
        of_gain[0] += error * overlap(p);
        add_scaled(of_weights, candidates[i].features, error, LV_PREDICTOR_FEATURES);
    }
    const float error = weight * (shares[count] - (label == count ? 1.0f : 0.0f));
    of_other[0] += error;
    of_other[1] += error * log_left(candidates, count);
    for (size_t r = 0; r < rank; r++) {
        of_other[OTHER_FIRST + r] += error * score_share * p->query[r];
        of_query[r] += error * score_share * p->other[OTHER_FIRST + r];
    }
    for (size_t r = 0; r < rank; r++) add_scaled(of_a + r * width, p->hidden, of_query[r], width);
    return -(double)weight * log((double)shares[label]);
}

/* --- File -------------------------------------------------------------------------------------------------------- */

uint16_t lv_half_of(float value) {
    union {
        float number;
        uint32_t bits;
    } u = {value};
    const uint16_t sign = (uint16_t)(u.bits >> 16 & 0x8000u);
    const float size = fabsf(value);
    if (!(size < 65504.0f)) return (uint16_t)(sign | (isnan(value) ? 0u : 0x7bffu));
    if (size < 6.103515625e-5f) return (uint16_t)(sign | (uint16_t)lrintf(size * 16777216.0f));
    u.number = size;
    const uint32_t rounded = u.bits + 0x0fffu + (u.bits >> 13 & 1u);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

float lv_float_of(uint16_t half) {
    /* The exponent's bias differs by 112, for the smallest numbers as well. */
    union {
        uint32_t bits;
        float number;
    } u = {(uint32_t)(half & 0x7fffu) << 13};
    const float size = u.number * 0x1p112f;
    return half & 0x8000u ? -size : size;
}

static const char magic[8] = {'L', 'V', 'P', 'R', 'E', 'D', 'I', 'C'};

enum { VERSION = 1, HEADER_BYTES = 64, CHECKSUM_BYTES = 8 };

static void put_u32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static void put_u64(uint8_t *to, uint64_t value) {
    for (int i = 0; i < 8; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get_u32(const uint8_t *from) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)from[i] << 8 * i;
    return value;
}

static uint64_t get_u64(const uint8_t *from) {
    return get_u32(from) | (uint64_t)get_u32(from + 4) << 32;
}

static uint64_t checksum_of(const uint8_t *bytes, size_t count) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

size_t lv_predictor_file_bytes(const lv_predictor_shape *shape) {
    return HEADER_BYTES + 2 * lv_predictor_values_count(shape) + CHECKSUM_BYTES;
}

/*   0  magic        8  version      12  features   16  hash of the target   24  hash of the draft
 *  32  layer       36  layers       40  width      44  rank                 48  recall, millionths    52  zero */
void lv_predictor_write(const lv_predictor *p, uint8_t *bytes) {
    const lv_predictor_shape *s = &p->shape;
    const size_t values_count = lv_predictor_values_count(s), end = lv_predictor_file_bytes(s) - CHECKSUM_BYTES;
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, magic, sizeof(magic));
    put_u32(bytes + 8, VERSION);
    put_u32(bytes + 12, LV_PREDICTOR_FEATURES);
    put_u64(bytes + 16, s->target_hash);
    put_u64(bytes + 24, s->draft_hash);
    put_u32(bytes + 32, s->layer);
    put_u32(bytes + 36, s->layers_count);
    put_u32(bytes + 40, s->width);
    put_u32(bytes + 44, s->rank);
    put_u32(bytes + 48, (uint32_t)lrintf(p->recall * 1e6f));
    for (size_t i = 0; i < values_count; i++) {
        const uint16_t half = lv_half_of(p->values[i]);
        bytes[HEADER_BYTES + 2 * i] = (uint8_t)half;
        bytes[HEADER_BYTES + 2 * i + 1] = (uint8_t)(half >> 8);
    }
    put_u64(bytes + end, checksum_of(bytes, end));
}

bool lv_predictor_is_file(const uint8_t *bytes, size_t count) {
    return count >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

static lever_status check_file(const uint8_t *bytes, size_t count, const char *name, lv_predictor_shape *shape,
                               lever_error *error) {
    if (!lv_predictor_is_file(bytes, count)) {
        return lv_fail(error, LEVER_E_FORMAT, "%s: is not a predictor; 'lever train' makes one", name);
    }
    if (count < HEADER_BYTES + CHECKSUM_BYTES) {
        return lv_fail(error, LEVER_E_FORMAT,
                       "%s: the predictor is cut off after %zu bytes; 'lever train' makes a new one", name, count);
    }
    if (get_u32(bytes + 8) != VERSION || get_u32(bytes + 12) != LV_PREDICTOR_FEATURES) {
        return lv_fail(error, LEVER_E_FORMAT,
                       "%s: is a predictor of version %u with %u features, this program reads version %d with %d; "
                       "'lever train' makes a new one",
                       name, get_u32(bytes + 8), get_u32(bytes + 12), VERSION, LV_PREDICTOR_FEATURES);
    }
    *shape = (lv_predictor_shape){
        .target_hash = get_u64(bytes + 16),
        .draft_hash = get_u64(bytes + 24),
        .layer = get_u32(bytes + 32),
        .layers_count = get_u32(bytes + 36),
        .width = get_u32(bytes + 40),
        .rank = get_u32(bytes + 44),
    };
    const bool whole = is_possible(shape) && count == lv_predictor_file_bytes(shape) &&
                       get_u64(bytes + count - CHECKSUM_BYTES) == checksum_of(bytes, count - CHECKSUM_BYTES);
    if (whole && get_u32(bytes + 48) <= 1000000u) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT, "%s: the predictor is damaged; 'lever train' makes a new one", name);
}

lever_status lv_predictor_read(lv_predictor **out, const uint8_t *bytes, size_t count, const char *name,
                               lv_ledger *ledger, lever_error *error) {
    lv_predictor_shape shape = {0};
    *out = NULL;
    LV_TRY(check_file(bytes, count, name, &shape, error));
    LV_TRY(lv_predictor_open(out, &shape, 0, ledger, error));
    assert(*out);
    const size_t values_count = lv_predictor_values_count(&shape);
    (*out)->recall = (float)get_u32(bytes + 48) / 1e6f;
    for (size_t i = 0; i < values_count; i++) {
        const uint8_t *half = bytes + HEADER_BYTES + 2 * i;
        (*out)->values[i] = lv_float_of((uint16_t)(half[0] | half[1] << 8));
    }
    return LEVER_OK;
}
