/* model.h - what a model is: its numbers, and its tensors by their role.
 *
 * Owns copies of the numbers and pointers into the table of the lv_gguf it was bound from, which must outlive it.
 * Binding checks every shape once; afterwards plain field access. An architecture, a rope scaling or a key that would
 * change the result and that lever does not know is refused by name: a model is never run wrongly. Const after binding;
 * any thread. */
#ifndef LV_MODEL_MODEL_H
#define LV_MODEL_MODEL_H

#include "model/gguf.h"

typedef enum { LV_ARCH_LLAMA = 0, LV_ARCH_QWEN2 = 1, LV_ARCH_QWEN3 = 2 } lv_arch;

typedef enum { LV_ROPE_ADJACENT = 0, LV_ROPE_HALVES = 2 } lv_rope_pairing; /* the numbers of ggml's rope modes */

/* All that ggml_rope_ext wants; computed as llama.cpp does from the rope.scaling keys. */
typedef struct {
    lv_rope_pairing pairing;
    uint32_t dims;
    uint32_t context_original;
    float base;
    float scale; /* frequency scale: 1 / factor */
    float extrapolation_factor, attention_factor, beta_fast, beta_slow;
} lv_rope;

typedef struct {
    lv_arch arch;
    uint32_t layers_count, embedding, heads_count, kv_heads_count, head_dim, feed_forward, vocabulary, context_train;
    float norm_epsilon;
    float attention_scale; /* 1 / sqrt(head_dim) */
    lv_rope rope;
} lv_hparams;

/* NULL where the model has none. Matrices are of a type that ggml's CPU backend computes, the others F32. */
typedef struct {
    const lv_tensor *attn_norm, *attn_q, *attn_k, *attn_v, *attn_output;
    const lv_tensor *attn_q_bias, *attn_k_bias, *attn_v_bias; /* all three or none */
    const lv_tensor *attn_q_norm, *attn_k_norm;
    const lv_tensor *ffn_norm, *ffn_gate, *ffn_up, *ffn_down;
} lv_layer;

typedef struct lv_model {
    lv_hparams hparams;
    lv_layer *layers;                                   /* layers_count */
    const lv_tensor *token_embd, *output_norm, *output; /* output == token_embd: tied */
    const lv_tensor *rope_freqs;                        /* NULL, or head_dim / 2 factors, F32 */
    const char *arch_name, *name;                       /* borrowed from the lv_gguf */
} lv_model;

lever_status lv_model_bind(lv_model **model, const lv_gguf *gguf, lv_ledger *ledger, lever_error *error);
void lv_model_free(lv_model **model);

/* "llama, qwen2, qwen3": for messages. */
const char *lv_arch_list(void);

#endif
