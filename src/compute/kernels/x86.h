/* x86.h - what the AVX2 and the AVX-512 kernels share. Internal to the files *_avx2.c and *_avx512.c of this folder. */
#ifndef LV_COMPUTE_KERNELS_X86_H
#define LV_COMPUTE_KERNELS_X86_H

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

/* Keeps the compiler from holding what it has loaded for the next use: to load again is free, to spill is not. */
LV_INLINE void lv_forget_loads(void) {
    __asm__ volatile("" ::: "memory");
}

/* Prefetches a part of what is to be prefetched with each group, into the second-level cache, and moves on. */
LV_INLINE void lv_prefetch(lv_ahead *ahead, size_t parts) {
    const size_t count = ahead->count / parts;
    for (size_t i = 0; i < count; i += 64) _mm_prefetch((const char *)ahead->bytes + i, _MM_HINT_T1);
    ahead->bytes += count;
}

/* Defines an lv_dot_fn from the file's dot_block: columns in blocks of even size, at most COLUMNS_MAX, each size with
 * code of its own, which BLOCKS lists. What is to be prefetched is spread evenly over all that is done. */
#define LV_DEFINE_DOT(name, TYPE, BLOCKS)                                                          \
    void name(const uint8_t *tile, size_t groups_count, const uint8_t *activations, size_t stride, \
              size_t columns_count, float *sums, lv_ahead ahead) {                                 \
        size_t blocks_left = (columns_count + COLUMNS_MAX - 1) / COLUMNS_MAX;                      \
        ahead.count /= blocks_left * groups_count;                                                 \
        for (; blocks_left > 0; blocks_left--) {                                                   \
            const size_t columns = (columns_count + blocks_left - 1) / blocks_left;                \
            switch (columns) {                                                                     \
                BLOCKS(LV_BLOCK, TYPE)                                                             \
            default:                                                                               \
                __builtin_unreachable();                                                           \
            }                                                                                      \
            columns_count -= columns;                                                              \
            activations += columns * stride;                                                       \
            sums += columns * LV_TILE_ROWS;                                                        \
        }                                                                                          \
    }
#define LV_BLOCK(TYPE, n)                                                          \
    case n:                                                                        \
        dot_block(TYPE, n, tile, groups_count, activations, stride, sums, &ahead); \
        break;
#define LV_BLOCKS_OF_4(X, TYPE) X(TYPE, 1) X(TYPE, 2) X(TYPE, 3) X(TYPE, 4)
#define LV_BLOCKS_OF_6(X, TYPE) LV_BLOCKS_OF_4(X, TYPE) X(TYPE, 5) X(TYPE, 6)
#define LV_BLOCKS_OF_8(X, TYPE) LV_BLOCKS_OF_6(X, TYPE) X(TYPE, 7) X(TYPE, 8)

lv_round_fn lv_round_32_avx2, lv_round_256_avx2, lv_round_32_avx512, lv_round_256_avx512;
lv_dot_fn lv_dot_q4_0_avx2, lv_dot_q5_0_avx2, lv_dot_q8_0_avx2, lv_dot_q4_k_avx2, lv_dot_q6_k_avx2;
lv_dot_fn lv_dot_q4_0_avx512, lv_dot_q5_0_avx512, lv_dot_q8_0_avx512, lv_dot_q4_k_avx512, lv_dot_q6_k_avx512;
lv_interleave_fn lv_interleave_q4_0_avx2, lv_interleave_q5_0_avx2, lv_interleave_q8_0_avx2, lv_interleave_q4_k_avx2,
    lv_interleave_q6_k_avx2;

#endif
