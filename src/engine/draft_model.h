/* draft_model.h - the draft: a small model that is in memory whole, but for the rows of its head that never win.
 *
 * Owns file, weights, store (every layer block pinned, no ring), head, forward pass and the rows of a pass. Layers and
 * head are booked as LV_MEM_DRAFT, tables, activations and graphs with those of the target. The engine opens it in
 * steps: files and tables, for the plan; then the draft's vocabulary, compared with the target's and freed before large
 * areas are taken; then the weights. Its forward pass is used by one thread at a time: who holds `lock`. */
#ifndef LV_ENGINE_DRAFT_MODEL_H
#define LV_ENGINE_DRAFT_MODEL_H

#include <pthread.h>

#include "compute/draft_head.h"
#include "compute/forward.h"
#include "model/vocab.h"
#include "spec/drafting.h"

enum {
    LV_DRAFT_TREE_SLOTS = 320, /* of a session's draft cache, behind its context: nodes that were expanded */
    LV_DRAFT_ROWS_MAX = 256,   /* of one pass: a chunk of the prompt */
    LV_DRAFT_BATCH_ROWS = 64,
    LV_DRAFT_TOKENS_FIRST = 98304, /* rows of the head that are kept */
    LV_DRAFT_EXTRAS_MAX = 1024,
    LV_DRAFT_EMBEDDING_ROWS = 4096, /* that are kept: a read in the middle of a step would wait behind the target's */
};

typedef struct {
    pthread_mutex_t lock;
    lv_gguf *gguf;
    lv_model *model;
    lv_weights *weights; /* without the head */
    lv_store *store;
    lv_draft_head *head;
    lv_forward *forward;
    lv_row *rows;            /* LV_DRAFT_ROWS_MAX */
    void *transform_scratch; /* a tile, while the weights are read; guarded by `lock` then */
    uint64_t metadata_bytes; /* what files and tables take */
} lv_draft_model;

/* What the whole takes beside a session's part, and what a session takes (its draft cache). */
uint64_t lv_draft_model_bytes(const lv_draft_model *draft, uint32_t threads);
uint64_t lv_draft_model_session_bytes(const lv_model *model, uint32_t context_tokens);
lv_kv_shape lv_draft_model_cache_shape(const lv_model *model, uint32_t context_tokens);
/* What one step of a single token reads of memory: the layers, and the head's rows that are kept. */
uint64_t lv_draft_model_step_bytes(const lv_draft_model *draft);
/* Rows of the head that are kept: what lv_draft_head_rows_count says once it is open. */
uint32_t lv_draft_model_head_rows(const lv_model *model);
extern const lv_draft_head_shape lv_draft_model_head_shape;

/* Opens file and tables only: enough for the plan. */
lever_status lv_draft_model_open_files(lv_draft_model **draft, const char *path, const lv_file_options *file,
                                       lv_ledger *ledger, lever_error *error);

/* LEVER_E_FORMAT naming the first token whose text differs; a padded tail (ids that only one of both has) is fine, and
 * so is another kind of a token (control or not). `target` is open, its path is for the message; the draft's vocabulary
 * is loaded, compared and freed. The same file needs no comparison. */
lever_status lv_draft_model_compare(const lv_draft_model *draft, const lv_vocab *target, const char *target_path,
                                    lv_ledger *ledger, const lv_log *log, lever_error *error);

typedef struct {
    uint32_t threads;
    lv_device *device; /* NULL: none; it then holds all layers */
    bool device_always, device_required;
    bool huge_pages, verify;
    const lv_log *log;
    lever_progress_fn progress;
    void *progress_user;
    const atomic_bool *cancel; /* ends the reading with LEVER_E_CANCELLED; may be NULL */
} lv_draft_model_options;

/* Reads the weights, the first time or anew. On failure the model is left with its files open; the two below take it as
 * it is. */
lever_status lv_draft_model_open_weights(lv_draft_model *draft, const lv_draft_model_options *options,
                                         lv_ledger *ledger, lever_error *error);
/* Gives the large areas back: layers, head, activations. Nobody computes with it. */
void lv_draft_model_close_weights(lv_draft_model *draft);
void lv_draft_model_close(lv_draft_model **draft); /* NULL is accepted */

#endif
