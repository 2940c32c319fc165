/* The AVX-512 set: VNNI for the products; rounding and interleaving follow the portable rules to the bit. */
#include "compute/kernels/x86.h"

const lv_kernels lv_kernels_avx512 = {
    .name = "avx512-vnni",
    .round = {lv_round_32_avx512, lv_round_256_avx512},
    .dot = {lv_dot_q4_0_avx512, lv_dot_q5_0_avx512, lv_dot_q8_0_avx512, lv_dot_q4_k_avx512, lv_dot_q6_k_avx512},
    .interleave = {lv_interleave_q4_0_avx2, lv_interleave_q5_0_avx2, lv_interleave_q8_0_avx2, lv_interleave_q4_k_avx2,
                   lv_interleave_q6_k_avx2},
};
