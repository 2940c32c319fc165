/* elementwise.h - what stands between the products of a layer: norms, rope, the gate, sums.
 *
 * Pure functions over runs of rows; several threads share a call's rows. Each number is one chain of correctly rounded
 * operations in a fixed order (docs/ARITHMETIC.md), none contracted, so every instruction set gives the same bits, and
 * a row's bits depend on that row alone. The instruction set is chosen when the program starts. */
#ifndef LV_COMPUTE_KERNELS_ELEMENTWISE_H
#define LV_COMPUTE_KERNELS_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;

    /* out = in / sqrt(mean(in^2) + epsilon) * weight, row by row; `out` may be `in`. */
    void (*norm)(const float *in, const float *weight, float epsilon, size_t width, size_t rows_count, float *out);

    /* Turns pairs of the first dims elements of each head by the row's angles: cosine and sine of pair i are
     * angles[2 * i] and angles[2 * i + 1]. Pairs are (i, i + dims / 2) when `halves`, else neighbours. */
    void (*rope)(float *heads, size_t heads_count, size_t head_dim, size_t dims, int halves, const float *angles);

    /* gate = gate * sigmoid(gate) * up */
    void (*swiglu)(float *gate, const float *up, size_t count);

    /* x += y */
    void (*add)(float *x, const float *y, size_t count);
} lv_elementwise;

/* The best for this processor; never NULL. */
const lv_elementwise *lv_elementwise_best(void);
/* All that this processor can run, best first; NULL past the end. The last is the portable one. */
const lv_elementwise *lv_elementwise_at(size_t index);

#endif
