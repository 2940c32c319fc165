/* hparams.c - reading the numbers of a model.
 *
 * What is computed from which key follows llama.cpp, whose converter writes these files: defaults of absent keys, the
 * frequency scale as the inverse of the factor, the attention factor of YaRN. What llama.cpp would silently ignore in
 * one of these architectures (a sliding window, a scale of the logits) is refused here, unless its value says "off": a
 * model is run rightly or not at all. */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS_MAX 1024u
#define DIMENSION_MAX (1u << 20)
#define CONTEXT_MAX (1u << 30)

static const char *const arch_names[] = {
    [LV_ARCH_LLAMA] = "llama", [LV_ARCH_QWEN2] = "qwen2", [LV_ARCH_QWEN3] = "qwen3"};
#define ARCHS_COUNT (sizeof arch_names / sizeof arch_names[0])

const char *lv_arch_name(lv_arch arch) {
    return arch_names[arch];
}

const char *lv_arch_list(void) {
    return "llama, qwen2, qwen3";
}

/* Keys are asked for by what follows the architecture's name. */
typedef struct {
    const lv_gguf *gguf;
    const char *arch;
    char key[128];
    lever_error *error;
} reader;

static const char *full(reader *r, const char *rest) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, rest);
    return r->key;
}

static lever_status get_u32(reader *r, const char *rest, uint32_t *value, bool *found) {
    return lv_gguf_get_u32(r->gguf, full(r, rest), value, found, r->error);
}

static lever_status get_f32(reader *r, const char *rest, float *value, bool *found) {
    return lv_gguf_get_f32(r->gguf, full(r, rest), value, found, r->error);
}

/* A number from 1 to `maximum`; required unless `found` is given. */
static lever_status get_count(reader *r, const char *rest, uint32_t maximum, uint32_t *value, bool *found) {
    LV_TRY(get_u32(r, rest, value, found));
    if ((found && !*found) || (*value >= 1 && *value <= maximum)) return LEVER_OK;
    return lv_fail(r->error, LEVER_E_FORMAT, "%s: key '%s' is %u; 1 to %u are valid", lv_gguf_path(r->gguf), r->key,
                   *value, maximum);
}

/* --- Architecture ---------------------------------------------------------------------------------------------------
 */

static lever_status read_arch(const lv_gguf *gguf, lv_arch *arch, lever_error *error) {
    const char *name = NULL, *kind = NULL;
    char shown[64];
    bool found = false;
    LV_TRY(lv_gguf_get_text(gguf, "general.type", &kind, &found, error));
    if (found && strcmp(kind, "model"))
        return lv_fail(error, LEVER_E_FORMAT, "%s: holds a '%s' (key 'general.type'), not a model", lv_gguf_path(gguf),
                       lv_gguf_printable(kind, strlen(kind), shown, sizeof shown));
    LV_TRY(lv_gguf_get_text(gguf, "general.architecture", &name, NULL, error));
    for (size_t i = 0; i < ARCHS_COUNT; i++) {
        if (strcmp(name, arch_names[i])) continue;
        *arch = (lv_arch)i;
        return LEVER_OK;
    }
    return lv_fail(error, LEVER_E_FORMAT, "%s: the architecture '%s' is not supported; these are: %s",
                   lv_gguf_path(gguf), lv_gguf_printable(name, strlen(name), shown, sizeof shown), lv_arch_list());
}

/* --- Shapes ---------------------------------------------------------------------------------------------------------
 */

static lever_status read_heads(reader *r, lv_hparams *h) {
    bool has_kv = false, has_key = false, has_value = false, has_rope = false;
    uint32_t value_length = 0, rope_dims = 0;
    LV_TRY(get_count(r, "attention.head_count", DIMENSION_MAX, &h->heads_count, NULL));
    h->kv_heads_count = h->heads_count;
    LV_TRY(get_count(r, "attention.head_count_kv", DIMENSION_MAX, &h->kv_heads_count, &has_kv));
    const char *path = lv_gguf_path(r->gguf);
    if (h->heads_count % h->kv_heads_count)
        return lv_fail(r->error, LEVER_E_FORMAT,
                       "%s: %u heads cannot share %u key/value heads evenly (keys '%s' and ..._kv)", path,
                       h->heads_count, h->kv_heads_count, full(r, "attention.head_count"));

    LV_TRY(get_count(r, "attention.key_length", DIMENSION_MAX, &h->head_dim, &has_key));
    if (!has_key) {
        h->head_dim = h->embedding / h->heads_count;
        if (h->embedding % h->heads_count)
            return lv_fail(r->error, LEVER_E_FORMAT, "%s: an embedding of %u cannot be cut into %u heads (key '%s')",
                           path, h->embedding, h->heads_count, full(r, "attention.head_count"));
    }
    value_length = rope_dims = h->head_dim;
    LV_TRY(get_count(r, "attention.value_length", DIMENSION_MAX, &value_length, &has_value));
    if (value_length != h->head_dim)
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: key '%s' is %u, but heads have %u elements; both must be equal",
                       path, r->key, value_length, h->head_dim);
    LV_TRY(get_count(r, "rope.dimension_count", DIMENSION_MAX, &rope_dims, &has_rope));
    if (rope_dims != h->head_dim)
        return lv_fail(r->error, LEVER_E_FORMAT,
                       "%s: key '%s' is %u, but heads have %u elements; rotating a part of a head is not supported",
                       path, r->key, rope_dims, h->head_dim);
    uint64_t width = (uint64_t)h->heads_count * h->head_dim;
    if (h->head_dim % 2 || width > DIMENSION_MAX)
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: %u heads of %u elements are out of range", path, h->heads_count,
                       h->head_dim);
    if (h->arch == LV_ARCH_QWEN2 && width != h->embedding)
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: %u heads of %u elements do not make an embedding of %u", path,
                       h->heads_count, h->head_dim, h->embedding);
    h->rope.dims = rope_dims;
    h->attention_scale = 1.0f / sqrtf((float)h->head_dim);
    return LEVER_OK;
}

static lever_status read_shapes(reader *r, lv_hparams *h) {
    LV_TRY(get_count(r, "block_count", LAYERS_MAX, &h->layers_count, NULL));
    LV_TRY(get_count(r, "embedding_length", DIMENSION_MAX, &h->embedding, NULL));
    LV_TRY(get_count(r, "feed_forward_length", DIMENSION_MAX, &h->feed_forward, NULL));
    LV_TRY(get_count(r, "context_length", CONTEXT_MAX, &h->context_train, NULL));
    LV_TRY(get_f32(r, "attention.layer_norm_rms_epsilon", &h->norm_epsilon, NULL));
    if (!(h->norm_epsilon >= 0.0f && h->norm_epsilon < 1.0f))
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: key '%s' is %g, out of range", lv_gguf_path(r->gguf), r->key,
                       (double)h->norm_epsilon);
    return read_heads(r, h);
}

/* --- Rope -----------------------------------------------------------------------------------------------------------
 */

/* As llama.cpp derives it for a context whose parameters all have their defaults. ggml multiplies by
 * 1 + 0.1 ln(factor) wherever extrapolation is on, so that is divided out first; for a factor of at least 1 the
 * attention factor is then 1 up to rounding, and the rounding is kept too. */
static float yarn_attention_factor(float scale) {
    float factor = 1.0f / scale;
    float magnitude = factor <= 1.0f ? 1.0f : 0.1f * logf(factor) + 1.0f;
    return magnitude * (1.0f / (1.0f + 0.1f * logf(factor)));
}

static lever_status read_rope(reader *r, lv_hparams *h) {
    lv_rope *rope = &h->rope;
    rope->pairing = h->arch == LV_ARCH_LLAMA ? LV_ROPE_ADJACENT : LV_ROPE_HALVES;
    rope->base = 10000.0f;
    rope->beta_fast = 32.0f;
    rope->beta_slow = 1.0f;
    rope->context_original = h->context_train;
    const char *type = "linear", *path = lv_gguf_path(r->gguf);
    float factor = 0.0f, attention_factor = 1.0f;
    bool found = false;
    LV_TRY(get_f32(r, "rope.freq_base", &rope->base, &found));
    if (!(rope->base > 0.0f))
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: key '%s' is %g, out of range", path, r->key, (double)rope->base);
    LV_TRY(get_count(r, "rope.scaling.original_context_length", CONTEXT_MAX, &rope->context_original, &found));
    LV_TRY(get_f32(r, "rope.scaling.factor", &factor, &found));
    if (!found) LV_TRY(get_f32(r, "rope.scale_linear", &factor, &found)); /* its old name */
    if (!(factor >= 0.0f && factor <= 1e6f))
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: key '%s' is %g, out of range", path, r->key, (double)factor);
    LV_TRY(get_f32(r, "rope.scaling.attn_factor", &attention_factor, &found));
    LV_TRY(lv_gguf_get_text(r->gguf, full(r, "rope.scaling.type"), &type, &found, r->error));

    rope->scale = factor == 0.0f ? 1.0f : 1.0f / factor;
    rope->attention_factor = 1.0f;
    if (!strcmp(type, "none")) {
        rope->scale = 1.0f;
    } else if (!strcmp(type, "yarn")) {
        rope->extrapolation_factor = 1.0f;
        rope->attention_factor = yarn_attention_factor(rope->scale);
    } else if (strcmp(type, "linear")) {
        char shown[64];
        return lv_fail(r->error, LEVER_E_FORMAT,
                       "%s: the rope scaling '%s' (key '%s') is not supported; these are: none, linear, yarn, and "
                       "llama3 through the tensor rope_freqs.weight",
                       path, lv_gguf_printable(type, strlen(type), shown, sizeof shown), r->key);
    }
    rope->attention_factor *= attention_factor;
    if (!isfinite(rope->scale) || !(rope->attention_factor > 0.0f) || !isfinite(rope->attention_factor))
        return lv_fail(r->error, LEVER_E_FORMAT,
                       "%s: the rope scaling (keys '%s', .factor, .attn_factor) is out of range", path, r->key);
    return LEVER_OK;
}

/* --- Keys that must not be ignored ----------------------------------------------------------------------------------
 */

static bool is_zero(const lv_gguf_value *value) {
    if (value->type == LV_GGUF_ARRAY || value->type == LV_GGUF_TEXT) return false;
    return value->unsigned_integer == 0 ||
           ((value->type == LV_GGUF_F32 || value->type == LV_GGUF_F64) && value->real == 0.0);
}

static bool is_one_of(const char *name, const char *const *names) {
    while (*names && strcmp(name, *names)) names++;
    return *names != NULL;
}

/* The value says what lever does anyway. */
static bool agrees(const char *name, const lv_gguf_value *value, const lv_hparams *h) {
    bool real = value->type == LV_GGUF_F32 || value->type == LV_GGUF_F64;
    bool integer = !real && value->type != LV_GGUF_TEXT && value->type != LV_GGUF_ARRAY;
    if (!strcmp(name, "attention.causal")) return value->type == LV_GGUF_BOOL && value->unsigned_integer;
    if (!strcmp(name, "attention.sliding_window")) /* never reached */
        return integer && value->unsigned_integer >= h->context_train;
    if (!strcmp(name, "attention.scale")) return real && fabs(value->real / (double)h->attention_scale - 1.0) < 1e-6;
    if (!strcmp(name, "hidden_activation"))
        return value->type == LV_GGUF_TEXT && (!strcmp(value->text, "silu") || !strcmp(value->text, "swish"));
    /* Negative: not set. */
    if (!strcmp(name, "rope.scaling.yarn_ext_factor"))
        return real && (value->real < 0.0 || value->real == (double)h->rope.extrapolation_factor);
    if (!strcmp(name, "rope.scaling.yarn_attn_factor")) return real && (value->real < 0.0 || value->real == 1.0);
    if (!strcmp(name, "rope.scaling.yarn_beta_fast")) return real && (value->real < 0.0 || value->real == 32.0);
    if (!strcmp(name, "rope.scaling.yarn_beta_slow")) return real && (value->real < 0.0 || value->real == 1.0);
    return false;
}

/* Every key of the architecture is read above, is of no consequence, says "off", or is refused. */
static lever_status check_keys(reader *r, const lv_hparams *h) {
    static const char *const known[] = {
        "block_count", "embedding_length", "feed_forward_length", "context_length", "attention.layer_norm_rms_epsilon",
        "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
        "rope.dimension_count", "rope.freq_base", "rope.scaling.original_context_length", "rope.scaling.factor",
        "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.type",
        /* of no consequence */
        "vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "attention.layer_norm_epsilon", NULL};
    size_t prefix = strlen(r->arch);
    for (uint32_t i = 0; i < lv_gguf_keys_count(r->gguf); i++) {
        const char *name = NULL;
        lv_gguf_value value;
        lv_gguf_key_at(r->gguf, i, &name, &value);
        if (strncmp(name, r->arch, prefix) || name[prefix] != '.') continue;
        const char *rest = name + prefix + 1;
        if (is_one_of(rest, known) || is_zero(&value) || agrees(rest, &value, h)) continue;
        if (!strcmp(rest, "expert_count"))
            return lv_fail(r->error, LEVER_E_FORMAT, "%s: a mixture of %llu experts (key '%s'), which is not supported",
                           lv_gguf_path(r->gguf), (unsigned long long)value.unsigned_integer, name);
        if (!strcmp(rest, "attention.sliding_window"))
            return lv_fail(r->error, LEVER_E_FORMAT,
                           "%s: attention to a sliding window of %llu tokens (key '%s'), which is not supported",
                           lv_gguf_path(r->gguf), (unsigned long long)value.unsigned_integer, name);
        return lv_fail(
            r->error, LEVER_E_FORMAT,
            "%s: key '%.200s' may change what the model computes, and lever does not know it with this value",
            lv_gguf_path(r->gguf), name);
    }
    return LEVER_OK;
}

lever_status lv_hparams_read(lv_hparams *hparams, const lv_gguf *gguf, lever_error *error) {
    *hparams = (lv_hparams){0};
    LV_TRY(read_arch(gguf, &hparams->arch, error));
    reader r = {.gguf = gguf, .arch = arch_names[hparams->arch], .error = error};
    LV_TRY(read_shapes(&r, hparams));
    LV_TRY(read_rope(&r, hparams));
    return check_keys(&r, hparams);
}
