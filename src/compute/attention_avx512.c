/* attention_avx512.c - attention with 16 lanes.
 *
 * The vector that attention_impl.h is written over: `vec` of VEC_LANES floats, PASS_UNITS_MAX (queries times units of
 * 16 that registers hold: 24 sums leave 8 of 32 registers for the rest), and the functions below. */
#include <immintrin.h>
#include <stdint.h>

#define VEC_LANES 16
#define PASS_UNITS_MAX 24

typedef __m512 vec;

static inline vec vec_set(float value) {
    return _mm512_set1_ps(value);
}
static inline vec vec_load(const float *from) {
    return _mm512_loadu_ps(from);
}
static inline void vec_store(float *to, vec a) {
    _mm512_storeu_ps(to, a);
}
static inline vec vec_load_half(const uint16_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}
static inline vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}
static inline vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

/* Adds the low bits of `shifted`, an integer, to the exponents of `a`. */
static inline vec vec_add_exponent(vec a, vec shifted) {
    __m512i exponents = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), exponents));
}

/* `a` where x >= limit, else +0. */
static inline vec vec_zero_unless(vec x, vec limit, vec a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ), a);
}

#include "compute/attention_impl.h"

const lv_attention_isa lv_attention_avx512 = {.name = "avx512", .run = attention_run};
