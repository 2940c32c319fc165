/* weights.h - where each matrix of a model lies, and the small tensors that stay in memory.
 *
 * Owns the list of matrices in the order of use (items of the block table), and float copies of norms, biases and rope
 * factors, read once at opening. Const afterwards; any thread. */
#ifndef LV_COMPUTE_WEIGHTS_H
#define LV_COMPUTE_WEIGHTS_H

#include <assert.h>

#include "flash/layout.h"
#include "model/model.h"

/* The matrices of a layer in the order of use, and their position in the list of items: layer * LV_MATRICES + role. */
typedef enum {
    LV_ROLE_Q = 0,
    LV_ROLE_K,
    LV_ROLE_V,
    LV_ROLE_OUTPUT,
    LV_ROLE_GATE,
    LV_ROLE_UP,
    LV_ROLE_DOWN,
    LV_ROLES_COUNT
} lv_role;

/* Groups of a layer: matrices of one group may share a block. */
enum { LV_GROUP_ATTENTION = 0, LV_GROUP_FEED_FORWARD = 1, LV_GROUPS_COUNT = 2 };

/* Small tensors of a layer, as floats. NULL where the architecture has none. */
typedef struct {
    const float *attn_norm, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm, *ffn_norm;
} lv_layer_vectors;

typedef struct lv_weights {
    const lv_model *model;
    lv_layout *layout;
    lv_layout_item *items; /* layers_count * LV_ROLES_COUNT, then the head if there is one */
    uint32_t items_count;
    bool has_head;
    lv_layer_vectors *layers;
    const float *output_norm, *rope_factors; /* rope_factors may be NULL */
    float *vectors;                          /* what the pointers above point into */
} lv_weights;

/* Builds the list and the block table. No weight is read. Without `with_head` the model's output matrix has no blocks:
 * for a draft model, which keeps some of its rows elsewhere (draft_head.h). */
lever_status lv_weights_open(lv_weights **weights, const lv_gguf *gguf, const lv_model *model, uint64_t block_bytes_max,
                             bool with_head, lv_ledger *ledger, lever_error *error);
/* Reads the small tensors. */
lever_status lv_weights_read_vectors(lv_weights *weights, const lv_gguf *gguf, lv_ledger *ledger, lever_error *error);
uint64_t lv_weights_vector_bytes(const lv_model *model);
/* Of the small tensors, which every file of a model has alike, whatever type its matrices are stored in. They must have
 * been read. */
uint64_t lv_weights_fingerprint(const lv_weights *weights);
void lv_weights_close(lv_weights **weights);

/* Rewrites, in place, the matrices of a block that have a kernel from rows to tiles: what pinned blocks are turned into
 * when they are read. `scratch` holds lv_weights_transform_bytes. */
void lv_weights_transform(const lv_weights *weights, uint32_t block, uint8_t *data, void *scratch);
size_t lv_weights_transform_bytes(const lv_weights *weights);
/* How a matrix lies in a block that was, or was not, transformed. */
lv_weight_layout lv_weights_layout_of(const lv_tensor *tensor, bool transformed);

static inline uint32_t lv_weights_item(uint32_t layer, lv_role role) {
    return layer * LV_ROLES_COUNT + role;
}
static inline uint32_t lv_weights_head_item(const lv_weights *weights) {
    assert(weights->has_head);
    return weights->items_count - 1;
}

#endif
