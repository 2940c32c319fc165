/* attention_neon.c - attention with 4 lanes; see attention_avx512.c for what is defined here and why. Six units of 16
 * are 24 sums of 32 registers. Elsewhere than on aarch64 this file is empty. */
#include <stdint.h>

#if defined(__aarch64__)
#include <arm_neon.h>

#define VEC_LANES 4
#define PASS_UNITS_MAX 6

typedef float32x4_t vec;

static inline vec vec_set(float value) {
    return vdupq_n_f32(value);
}
static inline vec vec_load(const float *from) {
    return vld1q_f32(from);
}
static inline void vec_store(float *to, vec a) {
    vst1q_f32(to, a);
}
static inline vec vec_load_half(const uint16_t *from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}
static inline vec vec_add(vec a, vec b) {
    return vaddq_f32(a, b);
}
static inline vec vec_sub(vec a, vec b) {
    return vsubq_f32(a, b);
}
static inline vec vec_mul(vec a, vec b) {
    return vmulq_f32(a, b);
}
static inline vec vec_max(vec a, vec b) {
    return vmaxq_f32(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}

static inline vec vec_add_exponent(vec a, vec shifted) {
    uint32x4_t exponents = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), exponents));
}

static inline vec vec_zero_unless(vec x, vec limit, vec a) {
    return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x, limit), vreinterpretq_u32_f32(a)));
}

#include "compute/attention_impl.h"

const lv_attention_isa lv_attention_neon = {.name = "neon", .run = attention_run};
#endif
