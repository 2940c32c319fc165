/* learning.h - refining a predictor with what decoding shows anyway: labels for free.
 *
 * In the middle of a pass the hidden states of its rows are kept; when the walk is over, the token behind each visited
 * row labels its candidates. After an answer a copy of the predictor learns from them, in order. Each sample is judged
 * by both before the copy learns from it, so that what is compared was unseen: once the copy has been better over some
 * hundred samples it takes the predictor's place, and when it has been worse it begins anew. Owns its memory, all of it
 * taken at opening. One thread at a time. */
#ifndef LV_SPEC_LEARNING_H
#define LV_SPEC_LEARNING_H

#include "spec/pruning.h"

typedef struct lv_learning lv_learning;

size_t lv_learning_bytes(const lv_predictor_shape *shape); /* what opening takes, as LV_MEM_SESSION */
lever_status lv_learning_open(lv_learning **learning, const lv_predictor *predictor, lv_ledger *ledger,
                              lever_error *error);
void lv_learning_close(lv_learning **learning); /* NULL is accepted */

/* In the middle of a pass: hidden states of the view's rows. */
void lv_learning_keep(lv_learning *learning, const lv_pruning_view *view, const lv_pruning_source *source);
/* After the walk: `token` followed the row. What does not fit any more is dropped. */
void lv_learning_label(lv_learning *learning, const lv_pruning_view *view, uint32_t row, int32_t token);

uint32_t lv_learning_samples_count(const lv_learning *learning); /* that wait */

/* Learns from what waits. *adopted: the predictor's values are now those of the copy. `source` gives embedding rows. */
lever_status lv_learning_refine(lv_learning *learning, lv_predictor *predictor, const lv_pruning_source *source,
                                bool *adopted, lever_error *error);

#endif
