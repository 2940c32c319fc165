/* The AVX2 set, for processors without VNNI. Wants FMA and half-precision conversion too. */
#include "compute/kernels/x86.h"

const lv_kernels lv_kernels_avx2 = {
    .name = "avx2",
    .round = {lv_round_32_avx2, lv_round_256_avx2},
    .dot = {lv_dot_q4_0_avx2, lv_dot_q5_0_avx2, lv_dot_q8_0_avx2, lv_dot_q4_k_avx2, lv_dot_q6_k_avx2},
    .interleave = {lv_interleave_q4_0_avx2, lv_interleave_q5_0_avx2, lv_interleave_q8_0_avx2, lv_interleave_q4_k_avx2,
                   lv_interleave_q6_k_avx2},
};
