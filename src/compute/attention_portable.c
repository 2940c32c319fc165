/* attention_portable.c - attention in plain C, the reference that the others are compared with bit for bit; see
 * attention_avx512.c for what is defined here and why. fmaf is one rounding by the standard's word: fast where the
 * processor has the instruction, slow elsewhere. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compute/attention.h"

#define VEC_LANES 4
#define PASS_UNITS_MAX 6

typedef struct {
    float lanes[VEC_LANES];
} vec;

#define EACH_LANE(expression)                                           \
    vec result;                                                         \
    for (int i = 0; i < VEC_LANES; i++) result.lanes[i] = (expression); \
    return result

static inline float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Every finite half is a float: the multiplication by 2^112 mends the exponent's bias, exactly, subnormals too. */
static inline float float_from_half(uint32_t half) {
    uint32_t size = bits_of_float(float_from_bits((half & 0x7fffu) << 13) * 0x1p112f);
    return float_from_bits(size | (half & 0x8000u) << 16);
}

static inline vec vec_set(float value) {
    EACH_LANE(value);
}
static inline vec vec_load(const float *from) {
    EACH_LANE(from[i]);
}
static inline void vec_store(float *to, vec a) {
    memcpy(to, a.lanes, sizeof a.lanes);
}
static inline vec vec_load_half(const uint16_t *from) {
    EACH_LANE(float_from_half(from[i]));
}
static inline vec vec_add(vec a, vec b) {
    EACH_LANE(a.lanes[i] + b.lanes[i]);
}
static inline vec vec_sub(vec a, vec b) {
    EACH_LANE(a.lanes[i] - b.lanes[i]);
}
static inline vec vec_mul(vec a, vec b) {
    EACH_LANE(a.lanes[i] * b.lanes[i]);
}
static inline vec vec_max(vec a, vec b) {
    EACH_LANE(a.lanes[i] > b.lanes[i] ? a.lanes[i] : b.lanes[i]);
}
static inline vec vec_fma(vec a, vec b, vec c) {
    EACH_LANE(fmaf(a.lanes[i], b.lanes[i], c.lanes[i]));
}

static inline vec vec_add_exponent(vec a, vec shifted) {
    EACH_LANE(float_from_bits(bits_of_float(a.lanes[i]) + (bits_of_float(shifted.lanes[i]) << 23)));
}

static inline vec vec_zero_unless(vec x, vec limit, vec a) {
    EACH_LANE(x.lanes[i] >= limit.lanes[i] ? a.lanes[i] : 0.0f);
}

#include "compute/attention_impl.h"

const lv_attention_isa lv_attention_portable = {.name = "portable", .run = attention_run};

size_t lv_attention_scratch_bytes(void) {
    return (sizeof(scratch_area) + 63) / 64 * 64;
}
