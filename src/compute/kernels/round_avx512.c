/* Rounding of activations with AVX-512: the rules of kernel_portable.c, 16 elements at a time.
 *
 * The order of operands matters where something is not a number: vmaxps and vminps give their second operand then, as
 * the comparisons of the portable code do. */
#include "compute/kernels/x86.h"

/* 16 quants as dwords. */
LV_INLINE __m512i round_16(__m512 x, __m512 inverse) {
    const __m512 rounded =
        _mm512_roundscale_ps(_mm512_mul_ps(x, inverse), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 raised = _mm512_max_ps(rounded, _mm512_set1_ps(-127.0f));
    return _mm512_cvtps_epi32(_mm512_min_ps(raised, _mm512_set1_ps(127.0f)));
}

void lv_round_32_avx512(const float *row, size_t groups_count, void *out) {
    lv_group_32 *groups = out;
    for (size_t g = 0; g < groups_count; g++, row += 32) {
        const __m512 x0 = _mm512_loadu_ps(row), x1 = _mm512_loadu_ps(row + 16);
        __m512 largest_of = _mm512_max_ps(_mm512_abs_ps(x0), _mm512_setzero_ps());
        largest_of = _mm512_max_ps(_mm512_abs_ps(x1), largest_of);
        const float largest = _mm512_reduce_max_ps(largest_of);
        const __m512 inverse = _mm512_set1_ps(largest != 0.0f ? 127.0f / largest : 0.0f);

        const __m512i q0 = round_16(x0, inverse), q1 = round_16(x1, inverse);
        _mm_storeu_si128((__m128i *)(void *)groups[g].quants, _mm512_cvtepi32_epi8(q0));
        _mm_storeu_si128((__m128i *)(void *)(groups[g].quants + 16), _mm512_cvtepi32_epi8(q1));
        const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
        groups[g].scale = _cvtsh_ss(_cvtss_sh(largest / 127.0f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        groups[g].seed_8 = -8 * sum;
        groups[g].seed_16 = -16 * sum;
        groups[g].seed_128 = -128 * sum;
    }
}

/* The first of the elements that are the largest but for their sign. */
LV_INLINE float first_of_size(const float *x, float largest) {
    for (size_t i = 0; i < 256; i += 16) {
        const __m512 size = _mm512_abs_ps(_mm512_loadu_ps(x + i));
        const uint32_t found = _mm512_cmp_ps_mask(size, _mm512_set1_ps(largest), _CMP_EQ_OQ);
        if (found != 0) return x[i + (size_t)__builtin_ctz(found)];
    }
    return 0.0f;
}

void lv_round_256_avx512(const float *row, size_t groups_count, void *out) {
    lv_group_256 *groups = out;
    for (size_t g = 0; g < groups_count; g++, row += 256) {
        __m512 largest_of = _mm512_setzero_ps();
        for (size_t i = 0; i < 256; i += 16)
            largest_of = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(row + i)), largest_of);
        const float largest = _mm512_reduce_max_ps(largest_of);
        const float inverse = largest != 0.0f ? -127.0f / first_of_size(row, largest) : 0.0f;
        groups[g].scale = largest != 0.0f ? 1.0f / inverse : 0.0f;

        for (size_t j = 0; j < 16; j++) {
            const __m512i q = round_16(_mm512_loadu_ps(row + 16 * j), _mm512_set1_ps(inverse));
            _mm_storeu_si128((__m128i *)(void *)(groups[g].quants + 16 * j), _mm512_cvtepi32_epi8(q));
        }
        /* Sums of neighbouring quants by multiplying with ones; -32 times the sum of four of the results is a seed. */
        for (size_t j = 0; j < 4; j++) {
            const __m512i quants = _mm512_loadu_si512(groups[g].quants + 64 * j);
            __m512i quads = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), quants);
            quads = _mm512_add_epi32(quads, _mm512_shuffle_epi32(quads, _MM_PERM_CDAB));
            quads = _mm512_add_epi32(quads, _mm512_shuffle_epi32(quads, _MM_PERM_BADC));
            const __m128i sums = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, quads));
            _mm_storeu_si128((__m128i *)(void *)(groups[g].seeds_16 + 4 * j),
                             _mm_mullo_epi32(sums, _mm_set1_epi32(-32)));
        }
        for (size_t j = 0; j < 8; j++) {
            const int32_t sum = (groups[g].seeds_16[2 * j] + groups[g].seeds_16[2 * j + 1]) / -32;
            groups[g].sums_32[lv_sums_32_place(j)] = (int16_t)sum;
        }
    }
}
