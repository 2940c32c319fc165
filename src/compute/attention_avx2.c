/* attention_avx2.c - attention with 8 lanes; see attention_avx512.c for what is defined here and why. Six units of 16
 * are twelve sums, which leave four of 16 registers. */
#include <immintrin.h>
#include <stdint.h>

#define VEC_LANES 8
#define PASS_UNITS_MAX 6

typedef __m256 vec;

static inline vec vec_set(float value) {
    return _mm256_set1_ps(value);
}
static inline vec vec_load(const float *from) {
    return _mm256_loadu_ps(from);
}
static inline void vec_store(float *to, vec a) {
    _mm256_storeu_ps(to, a);
}
static inline vec vec_load_half(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}
static inline vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b) {
    return _mm256_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}
static inline vec vec_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_add_exponent(vec a, vec shifted) {
    __m256i exponents = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponents));
}

static inline vec vec_zero_unless(vec x, vec limit, vec a) {
    return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_GE_OQ), a);
}

#include "compute/attention_impl.h"

const lv_attention_isa lv_attention_avx2 = {.name = "avx2", .run = attention_run};
