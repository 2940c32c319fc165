/* shape.c - the table of known shapes: published configurations, of which weights and bytes follow. */
#include "phone/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

typedef struct {
    const char *name;
    double layers, width, query_width, key_value_width, feed_forward, vocabulary;
} known_model;

static const known_model models[] = {
    {"llama-3.1-8b", 32, 4096, 4096, 1024, 14336, 128256}, {"llama-3.2-3b", 28, 3072, 3072, 1024, 8192, 128256},
    {"llama-3.2-1b", 16, 2048, 2048, 512, 8192, 128256},   {"qwen2.5-0.5b", 24, 896, 896, 128, 4864, 151936},
    {"qwen2.5-1.5b", 28, 1536, 1536, 256, 8960, 151936},   {"qwen2.5-3b", 36, 2048, 2048, 256, 11008, 151936},
    {"qwen2.5-7b", 28, 3584, 3584, 512, 18944, 152064},    {"qwen2.5-14b", 48, 5120, 5120, 1024, 13824, 152064},
    {"qwen2.5-32b", 64, 5120, 5120, 1024, 27648, 152064},  {"qwen3-0.6b", 28, 1024, 2048, 1024, 3072, 151936},
    {"qwen3-1.7b", 28, 2048, 2048, 1024, 6144, 151936},    {"qwen3-4b", 36, 2560, 4096, 1024, 9728, 151936},
    {"qwen3-8b", 36, 4096, 4096, 1024, 12288, 151936},
};

typedef struct {
    const char *name;
    double layer_bytes, head_bytes; /* of a weight */
} known_type;

/* Q4_0: 18 bytes for 32 weights; Q8_0: 34; Q6_K: 210 for 256. */
static const known_type types[] = {
    {"q4_0", 18.0 / 32, 210.0 / 256},
    {"q8_0", 34.0 / 32, 34.0 / 32},
    {"f16", 2, 2},
};

enum { MODELS_COUNT = sizeof(models) / sizeof(models[0]), TYPES_COUNT = sizeof(types) / sizeof(types[0]) };

static void fill(lv_phone_shape *shape, const known_model *m, const known_type *type) {
    *shape = (lv_phone_shape){
        .layers_count = m->layers,
        .layer_weights =
            2 * m->width * m->query_width + 2 * m->width * m->key_value_width + 3 * m->width * m->feed_forward,
        .head_weights = m->vocabulary * m->width,
        .width = m->width,
        .key_value_width = m->key_value_width,
        .vocabulary = m->vocabulary,
    };
    shape->layer_bytes = shape->layer_weights * type->layer_bytes;
    shape->head_bytes = shape->head_weights * type->head_bytes;
    snprintf(shape->name, sizeof(shape->name), "%s-%s", m->name, type->name);
}

lever_status lv_phone_shape_find(lv_phone_shape *shape, const char *name, lever_error *error) {
    for (size_t i = 0; i < (size_t)MODELS_COUNT * TYPES_COUNT; i++) {
        fill(shape, &models[i / TYPES_COUNT], &types[i % TYPES_COUNT]);
        if (strcmp(shape->name, name) == 0) return LEVER_OK;
    }
    char names[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < MODELS_COUNT; i++) {
        used = lv_text_append(names, sizeof(names), used, "%s%s", i ? ", " : "", models[i].name);
    }
    return lv_fail(error, LEVER_E_ARGUMENT,
                   "'%s' is no shape that is known; allowed: one of %s, with -q4_0, -q8_0 or -f16 behind it", name,
                   names);
}

void lv_phone_shape_cut_head(lv_phone_shape *shape, double rows, double weight_bytes) {
    const double share = fmin(1, rows / shape->vocabulary);
    const double bytes = fmin(shape->head_bytes / shape->head_weights, weight_bytes);
    shape->head_weights *= share;
    shape->vocabulary *= share;
    shape->head_bytes = shape->head_weights * bytes;
}
