/* predictor.h - a small network that tells, in the middle of the target, which candidate will follow a node.
 *
 * What the target is going to say is partly there in its residual stream long before the last layer. The predictor
 * scores each candidate of a node from the node's hidden state after `layer` layers, the candidate's embedding row, and
 * what the draft thought of it; a softmax over all candidates, in the tree and shadow, and OTHER makes shares of it:
 *
 *     h = hidden / rms(hidden) * scale           e = row / rms(row)
 *     score(c) = <A h, B e_c> + <lens, h * e_c> + gain * <h, e_c> + <weights, features(c)>
 *     score(OTHER) = bias + weight * log(what the draft leaves) + <u, A h>
 *
 * It starts as the draft's own distribution (B, lens, gain and u are zero) and learns what to correct. Pure functions
 * of the struct, which owns one array of values; changing them is training.c's affair. One thread at a time. */
#ifndef LV_SPEC_PREDICTOR_H
#define LV_SPEC_PREDICTOR_H

#include <stdatomic.h>

#include "base/memory.h"
#include "spec/calibration.h"

enum {
    LV_PREDICTOR_FEATURES = 10,
    LV_PREDICTOR_CANDIDATES_MAX = 24, /* of one node that are looked at; more stay what the draft made of them */
    LV_PREDICTOR_WIDTH_MAX = 16384,
    LV_PREDICTOR_RANK_MAX = 128,
    LV_PREDICTOR_KEYS = 2048, /* tokens whose B e is kept */
};

/* What a predictor belongs to and looks at. */
typedef struct {
    uint64_t target_hash, draft_hash; /* lv_weights_fingerprint of both models */
    uint32_t layer, layers_count;     /* it looks after so many layers of so many */
    uint32_t width, rank;             /* of the residual stream; of A and B */
} lv_predictor_shape;

typedef struct {
    lv_predictor_shape shape;
    atomic_uint version;                /* of the values: grows when refined ones take their place; any thread */
    float recall;                       /* of the true candidate, held out, when it was accepted */
    float *scale;                       /* width; not trained */
    float *a, *b;                       /* rank x width */
    float *lens;                        /* width */
    float *weights;                     /* LV_PREDICTOR_FEATURES */
    float *gain;                        /* 1 */
    float *other;                       /* bias, weight of what is left, then u: rank */
    float *values;                      /* all of the above, in this order, scale the first */
    float query[LV_PREDICTOR_RANK_MAX]; /* scratch: A h */
    float *hidden, *row;                /* scratch: width each */
    float keys[LV_PREDICTOR_CANDIDATES_MAX][LV_PREDICTOR_RANK_MAX]; /* scratch: B e */
    float *kept_keys;     /* LV_PREDICTOR_KEYS x rank, by token, each token having one place */
    int32_t *kept_tokens; /* whose they are; -1: nobody's */
} lv_predictor;

/* After values were changed: what was kept of them goes. */
void lv_predictor_forget(lv_predictor *predictor);

/* Numbers in `values`, and the bytes that opening takes. */
size_t lv_predictor_values_count(const lv_predictor_shape *shape);
size_t lv_predictor_bytes(const lv_predictor_shape *shape);

/* With the values it starts from; `seed` is for A. LEVER_E_ARGUMENT for a shape that cannot be. */
lever_status lv_predictor_open(lv_predictor **predictor, const lv_predictor_shape *shape, uint64_t seed,
                               lv_ledger *ledger, lever_error *error);
void lv_predictor_close(lv_predictor **predictor); /* NULL is accepted */

/* What is known of a candidate beside its token: `a` is its calibrated probability. */
void lv_predictor_features(const lv_feature *feature, float a, float features[LV_PREDICTOR_FEATURES]);

/* One candidate for lv_predictor_score: features as above, and its row of the target's embedding table. */
typedef struct {
    float features[LV_PREDICTOR_FEATURES];
    const float *row; /* width; read during the call only */
    int32_t token;    /* of the row, so that B e is computed once while the values stay; -1: it is not kept */
} lv_predictor_candidate;

/* Shares of the candidates, 1 to LV_PREDICTOR_CANDIDATES_MAX, in (0, 1); their sum and *other are 1. `left` is what the
 * candidates' own probabilities leave to others. */
void lv_predictor_score(lv_predictor *predictor, const float *hidden, const lv_predictor_candidate *candidates,
                        uint32_t count, float *shares, float *other);

/* For training: the loss -weight * log(share of the label), whose gradient is added to `gradient` (like values; that
 * of scale stays as it is). `label` == count: OTHER. */
double lv_predictor_backward(lv_predictor *predictor, const float *hidden, const lv_predictor_candidate *candidates,
                             uint32_t count, uint32_t label, float weight, float *gradient);

/* --- Its file ---
 *
 * Little-endian: magic, version, shape, recall, values as half precision, checksum (docs/FORMAT.md). */

size_t lv_predictor_file_bytes(const lv_predictor_shape *shape);
void lv_predictor_write(const lv_predictor *predictor, uint8_t *bytes); /* lv_predictor_file_bytes of them */

/* Whether a file that begins so is a predictor, of whatever version and however damaged. */
bool lv_predictor_is_file(const uint8_t *bytes, size_t count);

/* LEVER_E_FORMAT, saying after `name` what is wrong: not a predictor, damaged, or of a newer version. */
lever_status lv_predictor_read(lv_predictor **predictor, const uint8_t *bytes, size_t count, const char *name,
                               lv_ledger *ledger, lever_error *error);

/* Half precision, to nearest even; what is beyond the largest becomes the largest. */
uint16_t lv_half_of(float value);
float lv_float_of(uint16_t half);

#endif
