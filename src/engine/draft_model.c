/* draft_model.c - the draft is a model like the target, opened through the same parts: the difference is that every
 * block of its layers is pinned, so that its store has no ring, and that its head is not one of the blocks.
 *
 * What it takes is known before anything large is read: the plan asks lv_draft_model_bytes and may decide that this
 * memory is better spent on the target. */
#include "engine/draft_model.h"

#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "compute/offload.h"
#include "engine/plan.h"

enum {
    PIECE_BYTES_MAX = 1024, /* of a token's text that is compared; of longer ones the length has to agree as well */
    LEASES_MAX = 1,         /* of streamed blocks: there are none */
};

/* --- Sizes ------------------------------------------------------------------------------------------------------- */

const lv_draft_head_shape lv_draft_model_head_shape = {
    .tokens_first = LV_DRAFT_TOKENS_FIRST, .extras_max = LV_DRAFT_EXTRAS_MAX, .small = true};

uint32_t lv_draft_model_head_rows(const lv_model *model) {
    const uint32_t rows = LV_DRAFT_TOKENS_FIRST + LV_DRAFT_EXTRAS_MAX;
    const uint32_t all = (model->hparams.vocabulary + 15) / 16 * 16;
    return rows < all ? rows : all;
}

lv_kv_shape lv_draft_model_cache_shape(const lv_model *model, uint32_t context_tokens) {
    return (lv_kv_shape){.layers_count = model->hparams.layers_count,
                         .slots_count = context_tokens + LV_DRAFT_TREE_SLOTS,
                         .kv_heads_count = model->hparams.kv_heads_count,
                         .head_dim = model->hparams.head_dim};
}

uint64_t lv_draft_model_session_bytes(const lv_model *model, uint32_t context_tokens) {
    const lv_kv_shape shape = lv_draft_model_cache_shape(model, context_tokens);
    return lv_area_booked_bytes((size_t)lv_kv_bytes(&shape));
}

static uint64_t head_bytes(const lv_draft_model *draft) {
    return lv_draft_head_bytes(draft->model->output, &lv_draft_model_head_shape);
}

uint64_t lv_draft_model_step_bytes(const lv_draft_model *draft) {
    return draft->weights->layout->layer_bytes + head_bytes(draft);
}

uint64_t lv_draft_model_bytes(const lv_draft_model *draft, uint32_t threads) {
    const lv_layout *layout = draft->weights->layout;
    const lv_forward_bytes forward = lv_forward_estimate(draft->model, LV_DRAFT_ROWS_MAX, LV_DRAFT_BATCH_ROWS,
                                                         LV_DRAFTING_WIDTH_MAX, threads, LV_DRAFT_EMBEDDING_ROWS);
    uint64_t bytes = draft->metadata_bytes + lv_plan_store_bytes(layout) + lv_weights_vector_bytes(draft->model) +
                     lv_weights_transform_bytes(draft->weights) + head_bytes(draft) + forward.workspace_bytes +
                     forward.graph_bytes + forward.embedding_bytes + LV_DRAFT_ROWS_MAX * sizeof(lv_row) +
                     lv_plan_stack_bytes(1, threads);
    for (uint32_t b = 0; b < layout->blocks_count; b++) bytes += lv_block_memory_bytes(&layout->blocks[b]);
    return bytes;
}

/* --- Files ------------------------------------------------------------------------------------------------------- */

lever_status lv_draft_model_open_files(lv_draft_model **out, const char *path, const lv_file_options *file,
                                       lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    const uint64_t before = lv_ledger_used_by(ledger, LV_MEM_METADATA);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof(lv_draft_model), "the draft model", error));
    lv_draft_model *draft = memory;
    pthread_mutex_init(&draft->lock, NULL);
    lever_status status = lv_gguf_open(&draft->gguf, path, file, error);
    if (status == LEVER_OK) status = lv_model_bind(&draft->model, draft->gguf, ledger, error);
    if (status == LEVER_OK) {
        /* No ring has to hold its blocks: the larger they are, the more of them is huge pages. */
        status = lv_weights_open(&draft->weights, draft->gguf, draft->model, LV_BLOCK_BYTES_MAX, false, ledger, error);
    }
    if (status != LEVER_OK) {
        lv_error_prefix(error, "the draft model: ");
        lv_draft_model_close(&draft);
        return status;
    }
    draft->metadata_bytes = lv_ledger_used_by(ledger, LV_MEM_METADATA) - before;
    *out = draft;
    return LEVER_OK;
}

/* --- Vocabulary -------------------------------------------------------------------------------------------------- */

typedef struct {
    char text[PIECE_BYTES_MAX];
    size_t bytes; /* may be more than fits */
} piece;

static void get_piece(piece *to, const lv_vocab *vocab, int32_t token) {
    to->bytes = lv_vocab_piece(vocab, token, true, to->text, sizeof(to->text));
}

static size_t held(const piece *p) {
    return p->bytes < sizeof(p->text) ? p->bytes : sizeof(p->text);
}

/* The first token that has another text, or -1. */
static int32_t first_difference(const lv_vocab *target, const lv_vocab *draft, piece *of_target, piece *of_draft) {
    const int32_t a = lv_vocab_tokens_count(target), b = lv_vocab_tokens_count(draft);
    for (int32_t token = 0; token < a && token < b; token++) {
        get_piece(of_target, target, token);
        get_piece(of_draft, draft, token);
        if (of_target->bytes != of_draft->bytes || memcmp(of_target->text, of_draft->text, held(of_draft)) != 0) {
            return token;
        }
    }
    return -1;
}

lever_status lv_draft_model_compare(const lv_draft_model *draft, const lv_vocab *target, const char *target_path,
                                    lv_ledger *ledger, const lv_log *log, lever_error *error) {
    lv_vocab *vocab = NULL;
    lever_status status = lv_vocab_open(&vocab, draft->gguf, ledger, log, error);
    if (status != LEVER_OK) {
        lv_error_prefix(error, "the draft model: ");
        return status;
    }
    piece of_target, of_draft;
    const int32_t token = first_difference(target, vocab, &of_target, &of_draft);
    lv_vocab_close(&vocab);
    if (token < 0) return LEVER_OK;
    char target_text[64], draft_text[64];
    return lv_fail(error, LEVER_E_FORMAT,
                   "%s cannot draft for %s: their vocabularies differ, first in token %d, which is '%s' in the draft "
                   "and '%s' in the target; give a draft of the target's family (-d FILE), or none (--no-draft)",
                   lv_gguf_path(draft->gguf), target_path, token,
                   lv_gguf_printable(of_draft.text, held(&of_draft), draft_text, sizeof(draft_text)),
                   lv_gguf_printable(of_target.text, held(&of_target), target_text, sizeof(target_text)));
}

/* --- Weights ----------------------------------------------------------------------------------------------------- */

static void transform_pinned(void *user, uint32_t block, uint8_t *data) {
    lv_draft_model *draft = user;
    pthread_mutex_lock(&draft->lock);
    lv_weights_transform(draft->weights, block, data, draft->transform_scratch);
    pthread_mutex_unlock(&draft->lock);
}

static lever_status open_store(lv_draft_model *draft, const lv_draft_model_options *options, lv_ledger *ledger,
                               lever_error *error) {
    const lv_layout *layout = draft->weights->layout;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, lv_weights_transform_bytes(draft->weights), "a tile",
                            error));
    draft->transform_scratch = memory;
    memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, layout->blocks_count, sizeof(bool),
                            "the table of pinned blocks", error));
    bool *pinned = memory;
    memset(pinned, true, layout->blocks_count * sizeof(*pinned));
    const lv_store_options store = {
        .gguf = draft->gguf,
        .layout = layout,
        .pinned = pinned,
        .pinned_category = LV_MEM_DRAFT,
        .lanes = 1,
        .huge_pages = options->huge_pages,
        .verify = options->verify,
        .transform = transform_pinned,
        .transform_user = draft,
        .clock = &lv_clock_real,
        .log = options->log,
        .ledger = ledger,
        .progress = options->progress,
        .progress_user = options->progress_user,
        .cancel = options->cancel,
    };
    const lever_status status = lv_store_open(&draft->store, &store, error);
    lv_free(pinned);
    return status;
}

static lever_status open_forward(lv_draft_model *draft, const lv_draft_model_options *options, lv_ledger *ledger,
                                 lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_WORKSPACE, LV_DRAFT_ROWS_MAX, sizeof(lv_row),
                            "the rows of a pass of the draft", error));
    draft->rows = memory;
    const lv_forward_options forward = {
        .weights = draft->weights,
        .store = draft->store,
        .kernels = lv_kernels_best(),
        .attention = lv_attention_isa_best(),
        .threads = options->threads,
        .shares = true,
        .rows_max = LV_DRAFT_ROWS_MAX,
        .batch_rows = LV_DRAFT_BATCH_ROWS,
        .logits_rows = LV_DRAFTING_WIDTH_MAX,
        .leases_max = LEASES_MAX,
        .embedding_rows = LV_DRAFT_EMBEDDING_ROWS,
        .draft_head = draft->head,
        .device = options->device,
        .device_blocks = LV_OFFLOAD_ALL,
        .device_always = options->device_always,
        .device_required = options->device_required,
        .log = options->log,
        .ledger = ledger,
    };
    return lv_forward_open(&draft->forward, &forward, error);
}

lever_status lv_draft_model_open_weights(lv_draft_model *draft, const lv_draft_model_options *options,
                                         lv_ledger *ledger, lever_error *error) {
    lever_status status = LEVER_OK;
    if (!draft->weights->vectors) status = lv_weights_read_vectors(draft->weights, draft->gguf, ledger, error);
    if (status == LEVER_OK) status = open_store(draft, options, ledger, error);
    if (status == LEVER_OK) {
        status = lv_draft_head_open(&draft->head, draft->model->output, draft->store, &lv_draft_model_head_shape,
                                    options->cancel, ledger, error);
    }
    if (status == LEVER_OK) status = open_forward(draft, options, ledger, error);
    if (status != LEVER_OK) lv_error_prefix(error, "the draft model: ");
    return status;
}

void lv_draft_model_close_weights(lv_draft_model *draft) {
    lv_forward_close(&draft->forward);
    lv_free(draft->rows);
    draft->rows = NULL;
    lv_draft_head_close(&draft->head);
    lv_store_close(&draft->store);
    lv_free(draft->transform_scratch);
    draft->transform_scratch = NULL;
}

void lv_draft_model_close(lv_draft_model **out) {
    if (!out || !*out) return;
    lv_draft_model *draft = *out;
    lv_draft_model_close_weights(draft);
    lv_weights_close(&draft->weights);
    lv_model_free(&draft->model);
    lv_gguf_close(&draft->gguf);
    pthread_mutex_destroy(&draft->lock);
    lv_free(draft);
    *out = NULL;
}
