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
#define LV_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define LV_UNROLL _Pragma("GCC unroll 16")
#define LV_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Adds to each row's sum the products of its four weights with quants 4 * i to 4 * i + 3 of an activation row. */
LV_INLINE __m512i lv_dot_quad_avx512(__m512i sums, __m512i weights, const int8_t *quants, size_t i) {
#if defined(__clang__)
    return _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32((int32_t)lv_load_u32(quants + 4 * i)));
#else /* gcc would load and broadcast first: an instruction and a register more */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights), "m"(*(const int8_t(*)[4])(quants + 4 * i)));
    return sums;
#endif
}

/* Keeps the compiler from holding what it has loaded for the next use: to load again is free, to spill is not. */
LV_INLINE void lv_forget_loads(void) {
    __asm__ volatile("" ::: "memory");
}

/* Asks for `bytes` bytes in the second-level cache. */
LV_INLINE void lv_prefetch_avx512(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i += 64) _mm_prefetch((const char *)bytes + i, _MM_HINT_T1);
}

/* Defines an lv_dot_fn from the file's dot_block: columns in blocks of even size, at most 8, each with code of its own.
 * What is to be prefetched is spread evenly over all that is done. */
#define LV_DEFINE_DOT_AVX512(name, TYPE)                                                           \
    void name(const uint8_t *tile, size_t groups_count, const uint8_t *activations, size_t stride, \
              size_t columns_count, float *sums, const uint8_t *ahead, size_t ahead_bytes) {       \
        size_t blocks_left = (columns_count + 7) / 8;                                              \
        const size_t step = ahead_bytes / (blocks_left * groups_count);                            \
        for (; blocks_left > 0; blocks_left--) {                                                   \
            const size_t columns = (columns_count + blocks_left - 1) / blocks_left;                \
            switch (columns) {                                                                     \
            case 1:                                                                                \
                dot_block(TYPE, 1, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            case 2:                                                                                \
                dot_block(TYPE, 2, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            case 3:                                                                                \
                dot_block(TYPE, 3, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            case 4:                                                                                \
                dot_block(TYPE, 4, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            case 5:                                                                                \
                dot_block(TYPE, 5, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            case 6:                                                                                \
                dot_block(TYPE, 6, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            case 7:                                                                                \
                dot_block(TYPE, 7, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            default:                                                                               \
                dot_block(TYPE, 8, tile, groups_count, activations, stride, sums, ahead, step);    \
                break;                                                                             \
            }                                                                                      \
            columns_count -= columns;                                                              \
            activations += columns * stride;                                                       \
            sums += columns * LV_TILE_ROWS;                                                        \
            ahead += step * groups_count;                                                          \
        }                                                                                          \
    }

lv_round_fn lv_round_32_avx512, lv_round_256_avx512;
lv_dot_fn lv_dot_q4_0_avx512, lv_dot_q5_0_avx512, lv_dot_q8_0_avx512, lv_dot_q4_k_avx512, lv_dot_q6_k_avx512;
lv_interleave_fn lv_interleave_q4_0_avx512, lv_interleave_q5_0_avx512, lv_interleave_q8_0_avx512,
    lv_interleave_q4_k_avx512, lv_interleave_q6_k_avx512;

#endif
