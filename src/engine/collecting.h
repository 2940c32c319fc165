/* collecting.h - what training a predictor learns from: a pair of models taken through known text.
 *
 * For every position of a text: the target's hidden state behind a few layers, the draft's candidates, and what the
 * target itself says follows. One pass of each model serves all positions of a text at once. Samples are appended to a
 * file, a block a text, so that an interrupted run goes on behind the last whole block, as long as it asks for the same
 * texts in the same order. Uses the engine's forward pass and the draft's, and its ledger; no session of the engine may
 * be at work meanwhile. One thread. */
#ifndef LV_ENGINE_COLLECTING_H
#define LV_ENGINE_COLLECTING_H

#include <stdio.h>

#include "engine/engine_state.h"
#include "engine/samples_file.h"

typedef struct lv_collecting lv_collecting;

/* The most that an open one takes of the engine's ledger (lv_reserve_fn). */
uint64_t lv_collecting_bytes(const lv_model *target, const lv_model *draft);

/* Opens the file at `path` anew, or to go on with it when it is one of these models and layers. `path` is borrowed. */
lever_status lv_collecting_open(lv_collecting **collecting, lever_engine *engine, const char *path,
                                const uint32_t *layers, uint32_t layers_count, lever_error *error);
void lv_collecting_close(lv_collecting **collecting);

/* What makes a text the same one: what is given, whatever is answered to it. */
typedef struct {
    const int32_t *tokens;
    size_t tokens_count;
    size_t first;           /* samples are of the positions from here on */
    uint32_t answer_tokens; /* that are to follow at most */
} lv_collecting_text;

/* Whether the next text in the file is this one, and how many samples it has; if not, the rest of the file goes.
 * LEVER_E_FORMAT for a text whose numbers cannot be. */
lever_status lv_collecting_find(lv_collecting *collecting, const lv_collecting_text *text, bool *found,
                                uint32_t *samples_count, lever_error *error);

/* Goes through the text that was not found, its answer included, and appends its samples, those of the positions from
 * `first` on. */
lever_status lv_collecting_add(lv_collecting *collecting, const int32_t *tokens, size_t tokens_count, size_t first,
                               lever_error *error);

/* The samples of the texts that were found or added. Memory is of its own, booked in the ledger, until
 * lv_collected_free, which also takes one that is zero. */
typedef struct {
    lv_samples samples; /* counts are there from the beginning */
    const char *path;   /* borrowed */
    uint32_t texts_count, width, vocabulary, layers_count;
    FILE *rows_file; /* without a name: tokens of all candidates, each with its embedding row */
    void *samples_memory, *hidden_memory, *rows_memory;
    uint32_t *numbers; /* by token: 1 + its row; 0: none */
} lv_collected;

/* When all texts were added, and before the engine is closed, from whom the embedding rows come. */
lever_status lv_collecting_finish(lv_collecting *collecting, lv_collected *to, lever_error *error);

/* What opening and loading take, and each sample's part of it. */
uint64_t lv_collected_bytes(const lv_collected *collected);
uint64_t lv_collected_sample_bytes(const lv_collected *collected);

/* Reads the embedding rows; once. */
lever_status lv_collected_open(lv_collected *collected, lv_ledger *ledger, lever_error *error);
/* Samples and hidden states of the layer at `index`; may be called again for another one. */
lever_status lv_collected_load(lv_collected *collected, uint32_t index, lv_ledger *ledger, lever_error *error);
void lv_collected_free(lv_collected *collected);

#endif
