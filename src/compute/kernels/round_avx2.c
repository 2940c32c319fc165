/* Rounding of activations with AVX2: the rules of kernel_portable.c, eight elements at a time.
 *
 * The order of operands matters where something is not a number: vmaxps and vminps give their second operand then, as
 * the comparisons of the portable code do. */
#include "compute/kernels/x86.h"

LV_INLINE __m256 size_of(__m256 x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

LV_INLINE float largest_of_8(__m256 x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

LV_INLINE int32_t sum_of_8(__m256i x) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

LV_INLINE __m256i round_8(const float *x, __m256 inverse) {
    const __m256 rounded =
        _mm256_round_ps(_mm256_mul_ps(_mm256_loadu_ps(x), inverse), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 raised = _mm256_max_ps(rounded, _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(_mm256_min_ps(raised, _mm256_set1_ps(127.0f)));
}

/* Rounds 32 elements; returns the sums of the first and of the second 16. */
LV_INLINE void round_quants(const float *x, float inverse, int8_t *quants, int32_t sums[2]) {
    const __m256 factor = _mm256_set1_ps(inverse);
    const __m256i a = round_8(x, factor), b = round_8(x + 8, factor);
    const __m256i c = round_8(x + 16, factor), d = round_8(x + 24, factor);
    /* Packing works within lanes of 128 bits; the permutation puts the dwords in order again. */
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)quants, ordered);
    sums[0] = sum_of_8(_mm256_add_epi32(a, b));
    sums[1] = sum_of_8(_mm256_add_epi32(c, d));
}

LV_INLINE float largest_of(const float *x, size_t count) {
    __m256 largest = _mm256_setzero_ps();
    for (size_t i = 0; i < count; i += 8) largest = _mm256_max_ps(size_of(_mm256_loadu_ps(x + i)), largest);
    return largest_of_8(largest);
}

void lv_round_32_avx2(const float *row, size_t groups_count, void *out) {
    lv_group_32 *groups = out;
    for (size_t g = 0; g < groups_count; g++, row += 32) {
        const float largest = largest_of(row, 32);
        int32_t sums[2];
        round_quants(row, largest != 0.0f ? 127.0f / largest : 0.0f, groups[g].quants, sums);
        groups[g].scale = _cvtsh_ss(_cvtss_sh(largest / 127.0f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        groups[g].seed_8 = -8 * (sums[0] + sums[1]);
        groups[g].seed_16 = -16 * (sums[0] + sums[1]);
        groups[g].seed_128 = -128 * (sums[0] + sums[1]);
    }
}

/* The first of the elements that are the largest but for their sign. */
LV_INLINE float first_of_size(const float *x, float largest) {
    for (size_t i = 0; i < 256; i += 8) {
        const __m256 equal = _mm256_cmp_ps(size_of(_mm256_loadu_ps(x + i)), _mm256_set1_ps(largest), _CMP_EQ_OQ);
        const int found = _mm256_movemask_ps(equal);
        if (found != 0) return x[i + (size_t)__builtin_ctz((unsigned)found)];
    }
    return 0.0f;
}

void lv_round_256_avx2(const float *row, size_t groups_count, void *out) {
    lv_group_256 *groups = out;
    for (size_t g = 0; g < groups_count; g++, row += 256) {
        const float largest = largest_of(row, 256);
        const float inverse = largest != 0.0f ? -127.0f / first_of_size(row, largest) : 0.0f;
        groups[g].scale = largest != 0.0f ? 1.0f / inverse : 0.0f;
        for (size_t j = 0; j < 8; j++) {
            int32_t sums[2];
            round_quants(row + 32 * j, inverse, groups[g].quants + 32 * j, sums);
            groups[g].seeds_16[2 * j] = -32 * sums[0];
            groups[g].seeds_16[2 * j + 1] = -32 * sums[1];
            groups[g].sums_32[lv_sums_32_place(j)] = (int16_t)(sums[0] + sums[1]);
        }
    }
}
