/* convert.c - ggml's reference conversions behind the few questions that packing asks.
 *
 * The types that may be written are listed here, not asked for: ggml aborts on types that it cannot write, and some
 * that it can write want an importance matrix or build large tables that stay. */
#include "compute/convert.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "ggml.h"

#define TYPES(X)                  \
    X("f32", GGML_TYPE_F32)       \
    X("f16", GGML_TYPE_F16)       \
    X("bf16", GGML_TYPE_BF16)     \
    X("q4_0", GGML_TYPE_Q4_0)     \
    X("q4_1", GGML_TYPE_Q4_1)     \
    X("q5_0", GGML_TYPE_Q5_0)     \
    X("q5_1", GGML_TYPE_Q5_1)     \
    X("q8_0", GGML_TYPE_Q8_0)     \
    X("q2_k", GGML_TYPE_Q2_K)     \
    X("q3_k", GGML_TYPE_Q3_K)     \
    X("q4_k", GGML_TYPE_Q4_K)     \
    X("q5_k", GGML_TYPE_Q5_K)     \
    X("q6_k", GGML_TYPE_Q6_K)     \
    X("iq4_nl", GGML_TYPE_IQ4_NL) \
    X("iq4_xs", GGML_TYPE_IQ4_XS)

static const struct {
    const char *name;
    int32_t type;
} types[] = {
#define TYPE_ROW(name, type) {name, type},
    TYPES(TYPE_ROW)
#undef TYPE_ROW
};

bool lv_convert_type(const char *name, int32_t *type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcasecmp(types[i].name, name) != 0) continue;
        *type = types[i].type;
        return true;
    }
    return false;
}

const char *lv_convert_type_list(void) {
#define TYPE_NAME(name, type) ", " name
    return &TYPES(TYPE_NAME)[2];
#undef TYPE_NAME
}

bool lv_convert_reads(int32_t type) {
    return type == GGML_TYPE_F32 ||
           (type >= 0 && type < GGML_TYPE_COUNT && ggml_get_type_traits((enum ggml_type)type)->to_float != NULL);
}

uint64_t lv_convert_row_bytes(int32_t type, uint64_t row_elements) {
    uint64_t group = (uint64_t)ggml_blck_size((enum ggml_type)type);
    return row_elements % group != 0 ? 0 : row_elements / group * ggml_type_size((enum ggml_type)type);
}

void lv_convert_rows(int32_t from_type, const void *from, int32_t to_type, void *to, uint64_t row_elements,
                     uint64_t rows_count, float *floats) {
    uint64_t elements = row_elements * rows_count;
    if (from_type == GGML_TYPE_F32) {
        memcpy(floats, from, elements * sizeof(float));
    } else {
        ggml_get_type_traits((enum ggml_type)from_type)->to_float(from, floats, (int64_t)elements);
    }
    if (to_type == GGML_TYPE_F32) {
        memcpy(to, floats, elements * sizeof(float));
        return;
    }
    size_t bytes =
        ggml_quantize_chunk((enum ggml_type)to_type, floats, to, 0, (int64_t)rows_count, (int64_t)row_elements, NULL);
    assert(bytes == rows_count * lv_convert_row_bytes(to_type, row_elements));
    (void)bytes;
}
