/* training.h - teaching a predictor: Adam over minibatches, stopped early by what it does on texts that it never saw.
 *
 * Samples lie in the caller's arrays, hidden states and embedding rows as half precision: a few hundred megabytes for
 * some ten thousand. Everything is decided by the seed: the same samples give the same predictor. Owns its scratch
 * memory during the call. One thread. */
#ifndef LV_SPEC_TRAINING_H
#define LV_SPEC_TRAINING_H

#include "spec/predictor.h"

enum { LV_TRAINING_CANDIDATES_MAX = 10 };

/* A node of known text: what was proposed behind it, and what the target said. */
typedef struct {
    uint32_t text;                   /* which text it comes from: a text is learned from or held out as a whole */
    uint8_t candidates_count, label; /* label == candidates_count: none of them */
    struct {
        uint32_t row; /* of the embedding rows below */
        float features[LV_PREDICTOR_FEATURES];
    } candidates[LV_TRAINING_CANDIDATES_MAX];
} lv_sample;

typedef struct {
    const lv_sample *samples;
    size_t samples_count;
    const uint16_t *hidden; /* halfs: samples_count x width, each divided by its largest so that halfs hold it */
    const uint16_t *rows;   /* halfs: x width */
    size_t rows_count;
} lv_samples;

typedef struct {
    uint64_t seed;
    uint32_t epochs_max, patience; /* epochs without a better held-out loss before it stops */
    uint32_t batch;
    float rate, decay;
    float miss_weight; /* of samples where the draft's best is not what the target said */
    uint32_t held_out; /* every so-many-th text; 0: none, the loss of what was learned from counts */
    void (*progress)(void *user, uint32_t epoch, uint32_t epochs_max);
    void *progress_user;
} lv_training_options;

void lv_training_options_init(lv_training_options *options);

/* What lv_training_run takes for so many samples, as LV_MEM_SESSION. */
size_t lv_training_bytes(const lv_predictor_shape *shape, size_t samples_count);

typedef struct {
    uint32_t epochs;                      /* made */
    size_t learned_count, held_out_count; /* samples */
    double draft_loss, loss;              /* held out: of the draft's own distribution, and of the predictor */
    double prunable;                      /* held out: share of candidates that can go with a recall of 0.97 */
    double draft_recall, recall;          /* held out: see lv_training_recall */
} lv_training_result;

/* Trains the predictor as it was opened, sets its scale first (one over the root mean square of each element) and its
 * recall at the end. LEVER_E_ARGUMENT when there are no samples. */
lever_status lv_training_run(lv_predictor *predictor, const lv_samples *samples, const lv_training_options *options,
                             lv_training_result *result, lv_ledger *ledger, lever_error *error);

/* A share for each true or false candidate; `kept` of all candidates with the largest shares stay, each node's best
 * among them in any case: how many of the true ones do, of those that the draft proposed. */
typedef struct {
    float share;
    bool matched, best;
} lv_scored;
double lv_training_recall(lv_scored *scored, size_t count, double kept);

/* The largest share of candidates that can go, each node's best staying in any case, while the recall is at least
 * `recall`. Sorts like the above. */
double lv_training_prunable(lv_scored *scored, size_t count, double recall);

#endif
