/* forward.h - a pass of a model over a set of rows, one layer after the other, its weights leased block by block.
 *
 * A ROW is one node: a token at a position of one session, the slot of that session's cache that its keys and values go
 * to, and the path of slots that it attends to. Rows of several sessions, and of several branches of a tree, may go in
 * one pass. The bits of a row's result depend on its path alone (docs/ARITHMETIC.md).
 *
 * Owns graphs, threads, activations and the small tensors' use; borrows model, weights and store. One thread at a time
 * (the engine serialises passes). After a failed or cancelled pass no lease is out, and cache slots of the pass's rows
 * hold rubbish that nobody refers to. */
#ifndef LV_COMPUTE_FORWARD_H
#define LV_COMPUTE_FORWARD_H

#include "compute/attention.h"
#include "compute/device.h"
#include "compute/draft_head.h"
#include "compute/kernels/kernel.h"
#include "compute/weights.h"
#include "flash/store.h"

typedef struct lv_forward lv_forward;

/* Embedding rows that are worth keeping: the tokens of a tree, of the passes before, and of the answer. */
enum { LV_FORWARD_EMBEDDING_ROWS = 2048 };

typedef struct {
    const lv_weights *weights;
    lv_store *store;
    const lv_kernels *kernels;
    const lv_attention_isa *attention;
    uint32_t threads;
    bool shares;             /* another model computes in turn with this one: threads sleep meanwhile */
    uint32_t rows_max;       /* rows of one pass */
    uint32_t batch_rows;     /* rows computed at once, at most rows_max; more rows go in turns, layer by layer */
    uint32_t logits_rows;    /* rows that the head takes at once */
    uint32_t leases_max;     /* streamed blocks held at once before computing; at least 1 */
    uint32_t embedding_rows; /* rows of the embedding table that are kept in memory; 0: none */
    lv_device *device;       /* products of the layers may be computed there; NULL: none. Borrowed */
    uint32_t device_blocks;  /* LV_OFFLOAD_BLOCKS or LV_OFFLOAD_ALL */
    bool device_always;      /* for every pass, not just where it is faster */
    bool device_required; /* it is a failure when there is no memory for it; else the CPU computes, and the log says so
                           */
    const lv_draft_head *draft_head; /* logits of these rows only, instead of the model's head; may be NULL */
    void (*on_block)(void *user);    /* called between blocks, no lease held; may be NULL */
    void *user;
    lv_spans *spans;   /* layers, products and head are recorded here; may be NULL */
    const lv_log *log; /* a device that failed is told once; may be NULL */
    lv_ledger *ledger;
} lv_forward_options;

/* The memory that lv_forward_open takes, by category of the ledger. */
typedef struct {
    uint64_t workspace_bytes, graph_bytes, embedding_bytes;
} lv_forward_bytes;
lv_forward_bytes lv_forward_estimate(const lv_model *model, uint32_t rows_max, uint32_t batch_rows,
                                     uint32_t logits_rows, uint32_t threads, uint32_t embedding_rows);

lever_status lv_forward_open(lv_forward **forward, const lv_forward_options *options, lever_error *error);
void lv_forward_close(lv_forward **forward);

typedef struct {
    int32_t token;
    uint32_t position;
    uint32_t slot;
    lv_kv *kv;
    lv_path path; /* ends with `slot` */
} lv_row;

typedef struct {
    const lv_row *rows; /* in an order in which every row comes after those of its path */
    size_t rows_count;
    const atomic_bool *cancel;  /* may be NULL */
    lever_progress_fn progress; /* LEVER_STAGE_PREFILL; may be NULL */
    void *progress_user;
    uint64_t progress_done, progress_total; /* rows times layers before this pass, and in all */
} lv_pass;

/* Who computes from the next call on. AUTO, at first: what is fastest for this pass (thread_choice.h); the head then
 * takes all threads. */
typedef enum { LV_COMPUTE_AUTO = 0, LV_COMPUTE_ONE = 1, LV_COMPUTE_ALL = 2 } lv_compute_threads;
void lv_forward_set_threads(lv_forward *forward, lv_compute_threads threads);
bool lv_forward_computed_single(const lv_forward *forward); /* the layers of the last pass, by one thread */

/* Numbers of rows that the last pass could have had; empty while the CPU computes. Any thread. */
lv_buckets lv_forward_buckets(const lv_forward *forward);
/* Rows that a pass of `rows` computes then, padding included. */
uint32_t lv_forward_padded_rows(const lv_forward *forward, uint32_t rows);
bool lv_forward_has_device(const lv_forward *forward);
bool lv_forward_device_failed(const lv_forward *forward); /* any thread */

/* Looks up embeddings, then runs the layers [layer_first, layer_first + layers_count) of the pass begun. */
lever_status lv_forward_begin(lv_forward *forward, const lv_pass *pass, lever_error *error);
lever_status lv_forward_layers(lv_forward *forward, uint32_t layer_first, uint32_t layers_count, lever_error *error);

/* The residual stream of row `row` of the pass, as it stands. Borrowed until the next pass. */
const float *lv_forward_hidden(const lv_forward *forward, size_t row);

/* Between two ranges of layers: the rows keep[0] < keep[1] < ... go on as rows 0, 1, ..., the others are over. A row
 * that goes on needs those of its path. What is computed for it has the same bits as if all had gone on. */
void lv_forward_keep_rows(lv_forward *forward, const uint32_t *keep, size_t keep_count);

/* A token's row of the embedding table, as floats. */
lever_status lv_forward_embedding(lv_forward *forward, int32_t token, float *out, lever_error *error);

/* Logits of some rows after the last layer: out[i * lv_forward_logits_count()] for rows[i]; any count. */
lever_status lv_forward_logits(lv_forward *forward, const uint32_t *rows, size_t rows_count, float *out,
                               lever_error *error);

/* Logits of one row: the vocabulary, or the rows of the draft head. */
uint32_t lv_forward_logits_count(const lv_forward *forward);

/* Since opening; from any thread, while another one passes too. */
typedef struct {
    uint64_t compute_ns, head_ns, passes, layer_rows;
    uint64_t device_ns, device_layer_rows; /* of these, on the device */
    uint64_t padded_layer_rows;            /* computed besides, for nobody */
} lv_forward_counters;
void lv_forward_get_counters(const lv_forward *forward, lv_forward_counters *counters);

/* The largest batch of ggml's product that keeps the bits for a type of this model: 255 for kernels of ours. */
uint8_t lv_forward_stable_batch(const lv_forward *forward, int32_t type);

#endif
