/* avx512.h - what the AVX-512 kernels share. Internal to the files *_avx512.c of this folder. */
#ifndef LV_COMPUTE_KERNELS_AVX512_H
#define LV_COMPUTE_KERNELS_AVX512_H

#include <immintrin.h>

#include "compute/kernels/tile.h"

/* Loops over columns and steps have constant bounds once inlined, and must be unrolled for their arrays to become
 * registers. */
#define LV_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define LV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LV_UNROLL _Pragma("GCC unroll 16")
#endif

/* Four bytes of an activation row in every row's place; compilers make it a broadcast operand of the next step. */
LV_INLINE __m512i lv_quad_avx512(const int8_t *quants, size_t i) {
    return _mm512_set1_epi32((int32_t)lv_load_u32(quants + 4 * i));
}

/* Asks for `bytes` bytes in the second-level cache. */
LV_INLINE void lv_prefetch_avx512(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i += 64) _mm_prefetch((const char *)bytes + i, _MM_HINT_T1);
}

/* dot_avx512.c */
lv_dot_fn lv_dot_q4_0_avx512, lv_dot_q5_0_avx512, lv_dot_q8_0_avx512;

#endif
