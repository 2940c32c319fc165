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

/* Defines an lv_dot_fn from the file's dot_block: columns in blocks of even size, at most 8, each with code of its own.
 * What is to be prefetched is spread evenly over all that is done. */
#define LV_DEFINE_DOT(name, TYPE)                                                                  \
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

#endif
