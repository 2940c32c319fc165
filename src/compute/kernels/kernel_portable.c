/* The reference: the arithmetic of docs/ARITHMETIC.md in plain C, for every processor.
 *
 * Each block of a tile is taken out, decoded to plain numbers and multiplied with all activation rows. Simple before
 * fast, though the integer loops are such that compilers vectorise them. The other instruction sets are tested against
 * this one, bit for bit. */
#include <math.h>

#include "compute/kernels/half.h"
#include "compute/kernels/tile.h"

/* --- Rounding of activations -------------------------------------------------------------------------------------- */

/* The comparisons are such that NaN is passed over; it becomes -127 in the end. What is infinite makes the scale
 * infinite, and the product NaN: rubbish in, rubbish out, but no undefined conversion on the way. */
static int8_t round_quant(float scaled) {
    const float rounded = rintf(scaled); /* half to even */
    const float raised = rounded > -127.0f ? rounded : -127.0f;
    return (int8_t)(raised < 127.0f ? raised : 127.0f);
}

void lv_round_32_portable(const float *row, size_t groups_count, void *out) {
    lv_group_32 *groups = out;
    for (size_t g = 0; g < groups_count; g++) {
        const float *x = row + 32 * g;
        float largest = 0.0f;
        for (size_t i = 0; i < 32; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;

        const float inverse = largest != 0.0f ? 127.0f / largest : 0.0f;
        int32_t sum = 0;
        for (size_t i = 0; i < 32; i++) {
            groups[g].quants[i] = round_quant(x[i] * inverse);
            sum += groups[g].quants[i];
        }
        groups[g].scale = lv_half_to_float(lv_half_from_float(largest / 127.0f));
        groups[g].seed_8 = -8 * sum;
        groups[g].seed_16 = -16 * sum;
        groups[g].seed_128 = -128 * sum;
    }
}

void lv_round_256_portable(const float *row, size_t groups_count, void *out) {
    lv_group_256 *groups = out;
    for (size_t g = 0; g < groups_count; g++) {
        const float *x = row + 256 * g;
        float largest = 0.0f, signed_largest = 0.0f; /* of several, the first decides the sign */
        for (size_t i = 0; i < 256; i++) {
            if (fabsf(x[i]) > largest) {
                largest = fabsf(x[i]);
                signed_largest = x[i];
            }
        }

        const float inverse = largest != 0.0f ? -127.0f / signed_largest : 0.0f;
        groups[g].scale = largest != 0.0f ? 1.0f / inverse : 0.0f;
        for (size_t i = 0; i < 256; i++) groups[g].quants[i] = round_quant(x[i] * inverse);

        int32_t sums[16];
        for (size_t j = 0; j < 16; j++) {
            sums[j] = 0;
            for (size_t i = 0; i < 16; i++) sums[j] += groups[g].quants[16 * j + i];
            groups[g].seeds_16[j] = -32 * sums[j];
        }
        for (size_t j = 0; j < 8; j++)
            groups[g].sums_32[lv_sums_32_place(j)] = (int16_t)(sums[2 * j] + sums[2 * j + 1]);
    }
}

/* --- Products ----------------------------------------------------------------------------------------------------- */

static int32_t dot(const int8_t *a, const int8_t *b, size_t count) {
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += (int32_t)a[i] * (int32_t)b[i];
    return sum;
}

static float add_32(float sum, const lv_decoded_block *w, const lv_group_32 *a) {
    return fmaf((float)dot(w->quants, a->quants, 32), w->scale * a->scale, sum);
}

static float add_q4_k(float sum, const lv_decoded_block *w, const lv_group_256 *a) {
    int32_t products = 0, minima = 0;
    for (size_t j = 0; j < 8; j++) {
        products += w->sub_scales[j] * dot(w->quants + 32 * j, a->quants + 32 * j, 32);
        minima += w->sub_minima[j] * a->sums_32[lv_sums_32_place(j)];
    }
    sum = fmaf((float)products, w->scale * a->scale, sum);
    return fmaf(-(float)minima, w->minimum * a->scale, sum);
}

static float add_q6_k(float sum, const lv_decoded_block *w, const lv_group_256 *a) {
    int32_t products = 0;
    for (size_t j = 0; j < 16; j++) products += w->sub_scales[j] * dot(w->quants + 16 * j, a->quants + 16 * j, 16);
    return fmaf((float)products, w->scale * a->scale, sum);
}

static void dot_type(lv_kernel_type type, const uint8_t *tile, size_t groups_count, const uint8_t *activations,
                     size_t stride, size_t columns_count, float *sums) {
    const size_t group_bytes = lv_kernel_traits[type].block_bytes * LV_TILE_ROWS;
    lv_decoded_block decoded;
    uint8_t block[LV_BLOCK_BYTES_LARGEST];
    for (size_t g = 0; g < groups_count; g++) {
        for (size_t r = 0; r < LV_TILE_ROWS; r++) {
            lv_block_from_tile(type, tile + g * group_bytes, r, block);
            lv_block_decode(type, block, &decoded);
            for (size_t c = 0; c < columns_count; c++) {
                float *sum = sums + c * LV_TILE_ROWS + r;
                const void *row = activations + c * stride;
                switch (type) {
                case LV_Q4_K:
                    *sum = add_q4_k(*sum, &decoded, (const lv_group_256 *)row + g);
                    break;
                case LV_Q6_K:
                    *sum = add_q6_k(*sum, &decoded, (const lv_group_256 *)row + g);
                    break;
                default:
                    *sum = add_32(*sum, &decoded, (const lv_group_32 *)row + g);
                    break;
                }
            }
        }
    }
}

#define DEFINE_TYPE(name, TYPE)                                                                                        \
    void lv_dot_##name##_portable(const uint8_t *tile, size_t groups_count, const uint8_t *activations, size_t stride, \
                                  size_t columns_count, float *sums, lv_ahead ahead) {                                 \
        (void)ahead;                                                                                                   \
        dot_type(TYPE, tile, groups_count, activations, stride, columns_count, sums);                                  \
    }                                                                                                                  \
    void lv_interleave_##name(const uint8_t *rows, size_t stride, size_t rows_count, size_t groups_count,              \
                              uint8_t *tile) {                                                                         \
        lv_interleave(TYPE, rows, stride, rows_count, groups_count, tile);                                             \
    }

DEFINE_TYPE(q4_0, LV_Q4_0)
DEFINE_TYPE(q5_0, LV_Q5_0)
DEFINE_TYPE(q8_0, LV_Q8_0)
DEFINE_TYPE(q4_k, LV_Q4_K)
DEFINE_TYPE(q6_k, LV_Q6_K)

const lv_kernels lv_kernels_portable = {
    .name = "portable",
    .round = {lv_round_32_portable, lv_round_256_portable},
    .dot = {lv_dot_q4_0_portable, lv_dot_q5_0_portable, lv_dot_q8_0_portable, lv_dot_q4_k_portable,
            lv_dot_q6_k_portable},
    .interleave = {lv_interleave_q4_0, lv_interleave_q5_0, lv_interleave_q8_0, lv_interleave_q4_k, lv_interleave_q6_k},
};
