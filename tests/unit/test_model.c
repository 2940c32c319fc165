/* test_model.c - binding tensors to roles, and what is refused rather than run wrongly. */
/* faults: memory */
#include "support/check.h"

#include <math.h>

#include "model/model.h"
#include "support/fault.h"
#include "support/gguf_writer.h"
#include "support/models.h"

static lever_error error;

/* Saves, opens and binds; *gguf and *model are for the caller to close. */
static lever_status bind_writer(const gguf_writer *writer, lv_gguf **gguf, lv_model **model) {
    char path[1024];
    *model = NULL;
    lever_status status =
        lv_gguf_open(gguf, gguf_writer_save(writer, "model.gguf", path, sizeof path), &(lv_file_options){0}, &error);
    return status == LEVER_OK ? lv_model_bind(model, *gguf, NULL, &error) : status;
}

static void close_both(lv_gguf **gguf, lv_model **model) {
    lv_model_free(model);
    lv_gguf_close(gguf);
}

static gguf_writer *tiny(const char *arch) {
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_model(writer, arch, 100);
    return writer;
}

static void test_binds_each_architecture(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    for (int i = 0; i < 3; i++) {
        gguf_writer *writer = tiny(archs[i]);
        lv_gguf *gguf = NULL;
        lv_model *model = NULL;
        CHECK_OK(bind_writer(writer, &gguf, &model));
        const lv_hparams *h = &model->hparams;
        assert_int_equal(h->arch, i);
        assert_string_equal(model->arch_name, archs[i]);
        assert_string_equal(model->name, "tiny");
        assert_int_equal(h->layers_count, 2);
        assert_int_equal(h->embedding, 64);
        assert_int_equal(h->heads_count, 4);
        assert_int_equal(h->kv_heads_count, 2);
        assert_int_equal(h->head_dim, 16);
        assert_int_equal(h->feed_forward, 96);
        assert_int_equal(h->vocabulary, 100);
        assert_int_equal(h->context_train, 512);
        assert_true(h->norm_epsilon == 1e-5f);
        assert_true(h->attention_scale == 0.25f);
        assert_int_equal(h->rope.pairing, i == 0 ? LV_ROPE_ADJACENT : LV_ROPE_HALVES);
        assert_int_equal(h->rope.dims, 16);
        assert_true(h->rope.base == 10000.0f && h->rope.scale == 1.0f && h->rope.attention_factor == 1.0f);
        assert_true(h->rope.extrapolation_factor == 0.0f);
        assert_int_equal(h->rope.context_original, 512);
        assert_ptr_equal(model->output, model->token_embd); /* tied */
        assert_null(model->rope_freqs);
        assert_string_equal(model->layers[1].ffn_down->name, "blk.1.ffn_down.weight");
        assert_true((model->layers[0].attn_q_bias != NULL) == (i == 1));
        assert_true((model->layers[0].attn_q_norm != NULL) == (i == 2));
        close_both(&gguf, &model);
        gguf_writer_free(writer);
    }
}

static void test_options_of_the_architecture(void **state) {
    (void)state;
    gguf_writer *writer = tiny("llama");
    gguf_writer_add_tensor(writer, "output.weight", 0, 64, 100);
    gguf_writer_add_tensor(writer, "rope_freqs.weight", 0, 8, 0);
    gguf_writer_remove_key(writer, "llama.attention.head_count_kv"); /* then as many as heads */
    for (int i = 0; i < 2; i++) {
        static const char *const wide[] = {"attn_k.weight", "attn_v.weight"};
        static const char *const biases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
        char name[64];
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "blk.%d.%s", i, wide[k]);
            gguf_writer_add_tensor(writer, name, 0, 64, 64);
        }
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "blk.%d.%s", i, biases[k]);
            gguf_writer_add_tensor(writer, name, 0, 64, 0);
        }
    }
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    CHECK_OK(bind_writer(writer, &gguf, &model));
    assert_string_equal(model->output->name, "output.weight");
    assert_string_equal(model->rope_freqs->name, "rope_freqs.weight");
    assert_int_equal(model->hparams.kv_heads_count, 4);
    assert_non_null(model->layers[1].attn_v_bias);
    close_both(&gguf, &model);

    /* Heads whose size is not embedding / heads. */
    gguf_writer_free(writer);
    writer = tiny("qwen3");
    gguf_writer_u32(writer, "qwen3.attention.key_length", 32);
    gguf_writer_u32(writer, "qwen3.attention.value_length", 32);
    gguf_writer_u32(writer, "qwen3.attention.head_count", 2);
    gguf_writer_u32(writer, "qwen3.attention.head_count_kv", 1);
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_q_norm.weight", i);
        gguf_writer_add_tensor(writer, name, 0, 32, 0);
        snprintf(name, sizeof name, "blk.%d.attn_k_norm.weight", i);
        gguf_writer_add_tensor(writer, name, 0, 32, 0);
    }
    CHECK_OK(bind_writer(writer, &gguf, &model));
    assert_int_equal(model->hparams.head_dim, 32);
    assert_int_equal(model->hparams.rope.dims, 32);
    close_both(&gguf, &model);
    gguf_writer_free(writer);
}

/* --- Rope -----------------------------------------------------------------------------------------------------------
 */

static lv_rope rope_of(const gguf_writer *writer) {
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    CHECK_OK(bind_writer(writer, &gguf, &model));
    lv_rope rope = model->hparams.rope;
    close_both(&gguf, &model);
    return rope;
}

static void test_rope_scaling(void **state) {
    (void)state;
    gguf_writer *writer = tiny("qwen2");
    gguf_writer_f32(writer, "qwen2.rope.freq_base", 1e6f);
    gguf_writer_f32(writer, "qwen2.rope.scaling.factor", 4.0f);
    gguf_writer_u32(writer, "qwen2.rope.scaling.original_context_length", 128);
    lv_rope rope = rope_of(writer); /* no type: linear */
    assert_true(rope.base == 1e6f && rope.scale == 0.25f && rope.extrapolation_factor == 0.0f);
    assert_true(rope.attention_factor == 1.0f);
    assert_int_equal(rope.context_original, 128);

    gguf_writer_text(writer, "qwen2.rope.scaling.type", "linear");
    assert_true(rope_of(writer).scale == 0.25f);

    gguf_writer_text(writer, "qwen2.rope.scaling.type", "none");
    rope = rope_of(writer);
    assert_true(rope.scale == 1.0f && rope.extrapolation_factor == 0.0f);

    gguf_writer_text(writer, "qwen2.rope.scaling.type", "yarn");
    gguf_writer_f32(writer, "qwen2.rope.scaling.yarn_beta_fast", 32.0f);
    gguf_writer_f32(writer, "qwen2.rope.scaling.yarn_ext_factor", 1.0f);
    rope = rope_of(writer);
    assert_true(rope.scale == 0.25f && rope.extrapolation_factor == 1.0f);
    assert_true(rope.beta_fast == 32.0f && rope.beta_slow == 1.0f);
    assert_true(fabsf(rope.attention_factor - 1.0f) < 1e-6f); /* ggml multiplies by 1 + 0.1 ln 4 itself */

    gguf_writer_f32(writer, "qwen2.rope.scaling.attn_factor", 1.5f);
    assert_true(fabsf(rope_of(writer).attention_factor - 1.5f) < 1e-6f);

    gguf_writer_f32(writer, "qwen2.rope.scaling.factor", 0.5f); /* below 1 ggml's own factor remains divided out */
    rope = rope_of(writer);
    assert_true(fabsf(rope.attention_factor - 1.5f / (1.0f + 0.1f * logf(0.5f))) < 1e-6f);
    gguf_writer_free(writer);

    writer = tiny("llama");
    gguf_writer_f32(writer, "llama.rope.scale_linear", 2.0f); /* the old name */
    assert_true(rope_of(writer).scale == 0.5f);
    gguf_writer_free(writer);
}

/* --- Refusals -------------------------------------------------------------------------------------------------------
 */

#define MUTATION(name) static void name(gguf_writer *w)
MUTATION(no_architecture) {
    gguf_writer_remove_key(w, "general.architecture");
}
MUTATION(other_architecture) {
    gguf_writer_text(w, "general.architecture", "gemma3");
}
MUTATION(adapter) {
    gguf_writer_text(w, "general.type", "adapter");
}
MUTATION(no_context) {
    gguf_writer_remove_key(w, "llama.context_length");
}
MUTATION(no_epsilon) {
    gguf_writer_remove_key(w, "llama.attention.layer_norm_rms_epsilon");
}
MUTATION(epsilon_negative) {
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", -1.0f);
}
MUTATION(heads_0) {
    gguf_writer_u32(w, "llama.attention.head_count", 0);
}
MUTATION(heads_3) {
    gguf_writer_u32(w, "llama.attention.head_count", 3);
}
MUTATION(kv_heads_3) {
    gguf_writer_u32(w, "llama.attention.head_count_kv", 3);
}
MUTATION(kv_heads_0) {
    gguf_writer_u32(w, "llama.attention.head_count_kv", 0);
}
MUTATION(heads_per_layer) {
    gguf_writer_array(w, "llama.attention.head_count", LV_GGUF_U32, (const uint32_t[]){4, 4}, 2, 4);
}
MUTATION(heads_odd) {
    gguf_writer_u32(w, "llama.attention.head_count", 64), gguf_writer_u32(w, "llama.attention.head_count_kv", 64);
}
MUTATION(heads_text) {
    gguf_writer_text(w, "llama.attention.head_count", "4");
}
MUTATION(layers_0) {
    gguf_writer_u32(w, "llama.block_count", 0);
}
MUTATION(layers_2_32) {
    gguf_writer_u32(w, "llama.block_count", UINT32_MAX);
}
MUTATION(layers_3) {
    gguf_writer_u32(w, "llama.block_count", 3);
}
MUTATION(layers_1) {
    gguf_writer_u32(w, "llama.block_count", 1);
}
MUTATION(value_length) {
    gguf_writer_u32(w, "llama.attention.value_length", 32);
}
MUTATION(rope_part) {
    gguf_writer_u32(w, "llama.rope.dimension_count", 8);
}
MUTATION(rope_foo) {
    gguf_writer_text(w, "llama.rope.scaling.type", "foo");
}
MUTATION(rope_longrope) {
    gguf_writer_text(w, "llama.rope.scaling.type", "longrope");
}
MUTATION(rope_base_0) {
    gguf_writer_f32(w, "llama.rope.freq_base", 0.0f);
}
MUTATION(rope_factor_negative) {
    gguf_writer_f32(w, "llama.rope.scaling.factor", -2.0f);
}
MUTATION(rope_attention_factor) {
    gguf_writer_f32(w, "llama.rope.scaling.attn_factor", -1.0f);
}
MUTATION(rope_alpha) {
    gguf_writer_f32(w, "llama.rope.scaling.alpha", 1000.0f);
}
MUTATION(yarn_beta) {
    gguf_writer_text(w, "llama.rope.scaling.type", "yarn");
    gguf_writer_f32(w, "llama.rope.scaling.factor", 4.0f);
    gguf_writer_f32(w, "llama.rope.scaling.yarn_beta_fast", 16.0f);
}
MUTATION(yarn_log_multiplier) {
    gguf_writer_f32(w, "llama.rope.scaling.yarn_log_multiplier", 0.1f);
}
MUTATION(experts) {
    gguf_writer_u32(w, "llama.expert_count", 8);
}
MUTATION(window) {
    gguf_writer_u32(w, "llama.attention.sliding_window", 256);
}
MUTATION(not_causal) {
    gguf_writer_bool(w, "llama.attention.causal", false), gguf_writer_u32(w, "llama.pooling_type", 1);
}
MUTATION(logit_scale) {
    gguf_writer_f32(w, "llama.logit_scale", 0.0625f);
}
MUTATION(attention_scale) {
    gguf_writer_f32(w, "llama.attention.scale", 0.5f);
}
MUTATION(unheard_of) {
    gguf_writer_text(w, "llama.unheard.of", "x");
}
MUTATION(no_embedding) {
    gguf_writer_remove_tensor(w, "token_embd.weight");
}
MUTATION(no_norm) {
    gguf_writer_remove_tensor(w, "blk.1.ffn_norm.weight");
}
MUTATION(wrong_shape) {
    gguf_writer_add_tensor(w, "blk.0.attn_k.weight", 0, 64, 64);
}
MUTATION(wrong_embedding) {
    gguf_writer_add_tensor(w, "token_embd.weight", 0, 32, 100);
}
MUTATION(norm_not_f32) {
    gguf_writer_find_tensor(w, "output_norm.weight")->type = 1;
}
MUTATION(matrix_of_integers) {
    gguf_writer_find_tensor(w, "blk.0.ffn_up.weight")->type = 26;
}
MUTATION(matrix_of_q8_1) {
    gguf_writer_find_tensor(w, "blk.0.ffn_up.weight")->type = 9;
}
MUTATION(some_biases) {
    gguf_writer_add_tensor(w, "blk.0.attn_q.bias", 0, 64, 0);
}
MUTATION(output_bias) {
    gguf_writer_add_tensor(w, "blk.0.attn_output.bias", 0, 64, 0);
}
MUTATION(expert_tensor) {
    gguf_writer_add_tensor(w, "blk.0.ffn_gate_inp.weight", 0, 64, 8);
}
MUTATION(q_norm_in_llama) {
    gguf_writer_add_tensor(w, "blk.0.attn_q_norm.weight", 0, 16, 0);
}
MUTATION(layer_too_many) {
    gguf_writer_add_tensor(w, "blk.2.attn_norm.weight", 0, 64, 0);
}
MUTATION(fused_qkv) {
    gguf_writer_remove_tensor(w, "blk.0.attn_q.weight");
    gguf_writer_add_tensor(w, "blk.0.attn_qkv.weight", 0, 64, 128);
}
MUTATION(short_vocabulary) {
    gguf_writer_texts(w, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
}

static const struct {
    void (*mutate)(gguf_writer *);
    const char *message;
} refused[] = {
    {no_architecture, "key 'general.architecture' is missing"},
    {other_architecture, "the architecture 'gemma3' is not supported; these are: llama, qwen2, qwen3"},
    {adapter, "holds a 'adapter'"},
    {no_context, "key 'llama.context_length' is missing"},
    {no_epsilon, "key 'llama.attention.layer_norm_rms_epsilon' is missing"},
    {epsilon_negative, "key 'llama.attention.layer_norm_rms_epsilon' is -1"},
    {heads_0, "key 'llama.attention.head_count' is 0"},
    {heads_3, "3 heads cannot share 2 key/value heads"},
    {kv_heads_3, "4 heads cannot share 3 key/value heads"},
    {kv_heads_0, "key 'llama.attention.head_count_kv' is 0"},
    {heads_per_layer, "key 'llama.attention.head_count' is an array of u32; an integer is wanted"},
    {heads_odd, "64 heads of 1 elements"},
    {heads_text, "key 'llama.attention.head_count' is of type text; an integer is wanted"},
    {layers_0, "key 'llama.block_count' is 0"},
    {layers_2_32, "key 'llama.block_count' is 4294967295"},
    {layers_3, "tensor 'blk.2.attn_norm.weight' is missing"},
    {layers_1, "tensor 'blk.1.attn_norm.weight' has no place"},
    {value_length, "key 'llama.attention.value_length' is 32"},
    {rope_part, "key 'llama.rope.dimension_count' is 8"},
    {rope_foo, "the rope scaling 'foo'"},
    {rope_longrope, "the rope scaling 'longrope'"},
    {rope_base_0, "key 'llama.rope.freq_base' is 0"},
    {rope_factor_negative, "is -2, out of range"},
    {rope_attention_factor, "out of range"},
    {rope_alpha, "key 'llama.rope.scaling.alpha' may change"},
    {yarn_beta, "key 'llama.rope.scaling.yarn_beta_fast' may change"},
    {yarn_log_multiplier, "key 'llama.rope.scaling.yarn_log_multiplier' may change"},
    {experts, "a mixture of 8 experts"},
    {window, "sliding window of 256 tokens"},
    {not_causal, "key 'llama.pooling_type' may change"},
    {logit_scale, "key 'llama.logit_scale' may change"},
    {attention_scale, "key 'llama.attention.scale' may change"},
    {unheard_of, "key 'llama.unheard.of' may change"},
    {no_embedding, "tensor 'token_embd.weight' is missing"},
    {no_norm, "tensor 'blk.1.ffn_norm.weight' is missing"},
    {wrong_shape, "tensor 'blk.0.attn_k.weight' is 64 x 64; its model wants 64 x 32"},
    {wrong_embedding, "tensor 'token_embd.weight' is 32 x 100; its model wants 64 x 100"},
    {norm_not_f32, "tensor 'output_norm.weight' is of type f16, not f32"},
    {matrix_of_integers, "tensor 'blk.0.ffn_up.weight' is of type i32, by which"},
    {matrix_of_q8_1, "tensor 'blk.0.ffn_up.weight' is of type q8_1, by which"},
    {some_biases, "layer 0 has a bias for some of q, k and v"},
    {output_bias, "tensor 'blk.0.attn_output.bias' has no place"},
    {expert_tensor, "tensor 'blk.0.ffn_gate_inp.weight' has no place"},
    {q_norm_in_llama, "tensor 'blk.0.attn_q_norm.weight' has no place"},
    {layer_too_many, "tensor 'blk.2.attn_norm.weight' has no place"},
    {fused_qkv, "tensor 'blk.0.attn_q.weight' is missing"},
    {short_vocabulary, "the vocabulary has 2 tokens (key 'tokenizer.ggml.tokens'), but 'token_embd.weight' has 100"},
};

static void test_refusals(void **state) {
    (void)state;
    int64_t blocks = fault_memory_blocks();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        gguf_writer *writer = tiny("llama");
        refused[i].mutate(writer);
        lv_gguf *gguf = NULL;
        lv_model *model = NULL;
        CHECK_FAILS(bind_writer(writer, &gguf, &model), LEVER_E_FORMAT, refused[i].message);
        assert_non_null(strstr(error.message, "model.gguf"));
        close_both(&gguf, &model);
        assert_int_equal(fault_memory_blocks(), blocks);
        gguf_writer_free(writer);
    }
}

static void test_refusals_of_other_architectures(void **state) {
    (void)state;
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    gguf_writer *writer = tiny("qwen2");
    gguf_writer_remove_tensor(writer, "blk.1.attn_v.bias");
    CHECK_FAILS(bind_writer(writer, &gguf, &model), LEVER_E_FORMAT, "tensor 'blk.1.attn_v.bias' is missing");
    close_both(&gguf, &model);
    gguf_writer_free(writer);

    writer = tiny("qwen2");
    gguf_writer_add_tensor(writer, "rope_freqs.weight", 0, 8, 0);
    CHECK_FAILS(bind_writer(writer, &gguf, &model), LEVER_E_FORMAT, "tensor 'rope_freqs.weight' has no place");
    close_both(&gguf, &model);
    gguf_writer_u32(writer, "qwen2.attention.key_length", 32);
    CHECK_FAILS(bind_writer(writer, &gguf, &model), LEVER_E_FORMAT, "4 heads of 32 elements do not make");
    close_both(&gguf, &model);
    gguf_writer_free(writer);

    writer = tiny("qwen3");
    gguf_writer_remove_tensor(writer, "blk.0.attn_k_norm.weight");
    CHECK_FAILS(bind_writer(writer, &gguf, &model), LEVER_E_FORMAT, "tensor 'blk.0.attn_k_norm.weight' is missing");
    close_both(&gguf, &model);
    gguf_writer_free(writer);
}

/* Keys that say what lever does anyway, or "off", are no reason to refuse. */
static void test_harmless_keys(void **state) {
    (void)state;
    gguf_writer *writer = tiny("llama");
    gguf_writer_u32(writer, "llama.expert_count", 0);
    gguf_writer_u32(writer, "llama.expert_used_count", 0);
    gguf_writer_f32(writer, "llama.logit_scale", 0.0f);
    gguf_writer_u32(writer, "llama.attention.sliding_window", 4096);
    gguf_writer_f32(writer, "llama.attention.scale", 0.25f);
    gguf_writer_bool(writer, "llama.attention.causal", true);
    gguf_writer_text(writer, "llama.hidden_activation", "silu");
    gguf_writer_f32(writer, "llama.rope.scaling.yarn_ext_factor", -1.0f);
    gguf_writer_u32(writer, "llama.vocab_size", 100);
    gguf_writer_text(writer, "llama.tensor_data_layout", "Meta AI original pth");
    gguf_writer_bool(writer, "llama.rope.scaling.finetuned", true);
    gguf_writer_u32(writer, "llamax.expert_count", 8); /* another architecture's */
    gguf_writer_text(writer, "quantize.imatrix.file", "x");
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    CHECK_OK(bind_writer(writer, &gguf, &model));
    close_both(&gguf, &model);
    gguf_writer_free(writer);
}

static void test_every_failing_allocation(void **state) {
    (void)state;
    gguf_writer *writer = tiny("llama");
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    CHECK_OK(bind_writer(writer, &gguf, &model));
    lv_model_free(&model);
    int64_t blocks = fault_memory_blocks();
    for (uint64_t nth = 1;; nth++) {
        fault_memory_set(nth, 1);
        lever_status status = lv_model_bind(&model, gguf, NULL, &error);
        uint64_t calls = fault_memory_calls();
        fault_memory_set(0, 0);
        lv_model_free(&model);
        assert_int_equal(fault_memory_blocks(), blocks);
        if (calls < nth) {
            assert_int_equal(status, LEVER_OK);
            assert_true(nth > 3);
            break;
        }
        assert_int_equal(status, LEVER_E_MEMORY);
    }
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

static void test_real_models(void **state) {
    (void)state;
    static const struct {
        const char *name;
        lv_arch arch;
        uint32_t layers_count, embedding, heads_count, kv_heads_count, head_dim, feed_forward, vocabulary;
        float rope_base;
    } models[] = {
        {MODEL_QWEN_1_5B, LV_ARCH_QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, 1e6f},
        {MODEL_QWEN_0_5B, LV_ARCH_QWEN2, 24, 896, 14, 2, 64, 4864, 151936, 1e6f},
        {MODEL_SMOLLM2, LV_ARCH_LLAMA, 30, 576, 9, 3, 64, 1536, 49152, 1e5f},
    };
    unsigned bound = 0;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        lv_gguf *gguf = NULL;
        lv_model *model = NULL;
        const char *path = model_path(models[i].name);
        if (!path) continue;
        CHECK_OK(lv_gguf_open(&gguf, path, &(lv_file_options){.direct = true}, &error));
        CHECK_OK(lv_model_bind(&model, gguf, NULL, &error));
        const lv_hparams *h = &model->hparams;
        assert_int_equal(h->arch, models[i].arch);
        assert_int_equal(h->layers_count, models[i].layers_count);
        assert_int_equal(h->embedding, models[i].embedding);
        assert_int_equal(h->heads_count, models[i].heads_count);
        assert_int_equal(h->kv_heads_count, models[i].kv_heads_count);
        assert_int_equal(h->head_dim, models[i].head_dim);
        assert_int_equal(h->feed_forward, models[i].feed_forward);
        assert_int_equal(h->vocabulary, models[i].vocabulary);
        assert_true(h->rope.base == models[i].rope_base);
        close_both(&gguf, &model);
        bound++;
    }
    if (!bound) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binds_each_architecture),
        cmocka_unit_test(test_options_of_the_architecture),
        cmocka_unit_test(test_rope_scaling),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_of_other_architectures),
        cmocka_unit_test(test_harmless_keys),
        cmocka_unit_test(test_every_failing_allocation),
        cmocka_unit_test(test_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
