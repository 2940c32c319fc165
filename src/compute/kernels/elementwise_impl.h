/* elementwise_impl.h - the one source of elementwise.h, compiled once for each instruction set: loops that the compiler
 * vectorises, over sixteen lanes where the order of a sum matters. Who includes it defines LV_ELEMENTWISE. */
#include <math.h>
#include <string.h>

#include "compute/kernels/elementwise.h"

enum { LANES = 16 };

static double sum_of_squares(const float *in, size_t width) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        for (size_t j = 0; j < LANES; j++) lane[j] += (double)in[i + j] * (double)in[i + j];
    }
    for (size_t j = 0; i < width; i++, j++) lane[j] += (double)in[i] * (double)in[i];
    for (size_t apart = LANES / 2; apart > 0; apart /= 2) {
        for (size_t j = 0; j < apart; j++) lane[j] += lane[j + apart];
    }
    return lane[0];
}

static void norm_rows(const float *in, const float *weight, float epsilon, size_t width, size_t rows_count,
                      float *out) {
    for (size_t r = 0; r < rows_count; r++, in += width, out += width) {
        const float mean = (float)(sum_of_squares(in, width) / (double)width);
        const float scale = 1.0f / sqrtf(mean + epsilon);
        for (size_t i = 0; i < width; i++) out[i] = in[i] * scale * weight[i];
    }
}

static void rope_heads(float *heads, size_t heads_count, size_t head_dim, size_t dims, int halves,
                       const float *angles) {
    const size_t pairs = dims / 2;
    for (size_t h = 0; h < heads_count; h++, heads += head_dim) {
        if (halves) {
            float *low = heads, *high = heads + pairs;
            for (size_t i = 0; i < pairs; i++) {
                const float a = low[i], b = high[i], c = angles[2 * i], s = angles[2 * i + 1];
                low[i] = a * c - b * s;
                high[i] = a * s + b * c;
            }
        } else {
            for (size_t i = 0; i < pairs; i++) {
                const float a = heads[2 * i], b = heads[2 * i + 1], c = angles[2 * i], s = angles[2 * i + 1];
                /* Not as a difference: gcc 12 would contract one beside a sum, whatever it is told. */
                heads[2 * i] = a * c + b * -s;
                heads[2 * i + 1] = a * s + b * c;
            }
        }
    }
}

/* exp(-x) for x >= 0: n is the nearest integer to -x / log 2, r the rest, in two steps of which the first is exact; a
 * polynomial for exp(r), n into the exponent. Off by at most two units in the last place; zero from 87 on. */
static inline float exp_minus(float x) {
    const float y = x < 87.0f ? -x : -87.0f;
    const float shifted = y * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer in the low bits */
    const float n = shifted - 12582912.0f;
    const float r = y - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.39337312e-3f;
    p = p * r + 8.36922042e-3f;
    p = p * r + 4.16664630e-2f;
    p = p * r + 1.66665047e-1f;
    p = p * r + 5.0e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits << 23) + 0x3f800000u; /* n modulo 512 moves to the exponent */
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return x < 87.0f ? p * scale : 0.0f;
}

static void swiglu_run(float *gate, const float *up, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const float g = gate[i];
        const float e = exp_minus(g < 0 ? -g : g);
        const float numerator = g < 0 ? g * e : g;
        gate[i] = numerator / (1.0f + e) * up[i];
    }
}

static void add_run(float *x, const float *y, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] += y[i];
}

#define LV_ELEMENTWISE_TABLE(text) \
    { text, norm_rows, rope_heads, swiglu_run, add_run }
