/* collecting.h - what training a predictor learns from: a pair of models taken through known text.
 *
 * For every position of a text: the target's hidden state behind a few layers, the draft's candidates, and what the
 * target itself says follows. One pass of each model serves all positions of a text at once. Samples are appended to a
 * file, a block a text, so that an interrupted run goes on behind the last whole block. Uses the engine's forward pass
 * and the draft's; no session of the engine may be at work meanwhile. One thread. */
#ifndef LV_ENGINE_COLLECTING_H
#define LV_ENGINE_COLLECTING_H

#include "engine/engine_state.h"
#include "spec/training.h"

enum { LV_COLLECTING_LAYERS_MAX = 4, LV_COLLECTING_TOKENS_MAX = 512 /* of one text */ };

typedef struct lv_collecting lv_collecting;

/* Opens the file at `path` anew, or to go on with it when it is one of these models and layers. */
lever_status lv_collecting_open(lv_collecting **collecting, lever_engine *engine, const char *path,
                                const uint32_t *layers, uint32_t layers_count, lever_error *error);
void lv_collecting_close(lv_collecting **collecting);

uint32_t lv_collecting_texts_count(const lv_collecting *collecting); /* whole ones in the file */

/* Goes through one text and appends its samples, those of the positions from `first` on. */
lever_status lv_collecting_add(lv_collecting *collecting, const int32_t *tokens, size_t tokens_count, size_t first,
                               lever_error *error);

/* What the file holds, for one of the layers; everything is in memory of its own, booked in the ledger, until
 * lv_collected_free. The embedding rows come from the engine that collected. */
typedef struct {
    lv_samples samples;
    void *samples_memory, *hidden_memory, *rows_memory;
    uint32_t *numbers; /* by token: 1 + its row; 0: none */
} lv_collected;

/* Tokens of all candidates and their embedding rows: before the engine is closed. */
lever_status lv_collecting_rows(lv_collecting *collecting, lv_collected *to, lv_ledger *ledger, lever_error *error);
/* Samples and hidden states of the layer at `index`; may be called again for another one. */
lever_status lv_collected_load(lv_collected *to, const char *path, uint32_t width, uint32_t index, lv_ledger *ledger,
                               lever_error *error);
void lv_collected_free(lv_collected *collected);

#endif
