/* avx512.h - what dot_avx512.c and dot_k_avx512.c share. */
#ifndef LV_COMPUTE_KERNELS_AVX512_H
#define LV_COMPUTE_KERNELS_AVX512_H

#include "compute/kernels/x86.h"

/* Adds to each row's sum the products of its four weights with quants 4 * i to 4 * i + 3 of an activation row. */
LV_INLINE __m512i lv_dot_quad_avx512(__m512i sums, __m512i weights, const int8_t *quants, size_t i) {
#if defined(__clang__)
    return _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32((int32_t)lv_load_u32(quants + 4 * i)));
#else /* gcc would load and broadcast first: an instruction and a register more */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights), "m"(*(const int8_t(*)[4])(quants + 4 * i)));
    return sums;
#endif
}

/* Keeps the compiler from putting off what leads to `sums`: it would hold all that goes into it, and spill. */
LV_INLINE __m512i lv_settle(__m512i sums) {
    __asm__("" : "+v"(sums));
    return sums;
}

#endif
