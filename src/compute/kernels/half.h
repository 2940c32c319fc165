/* half.h - half precision to float and back, in integer arithmetic.
 *
 * The same bits as the processor's own conversions (round to nearest, ties to even; subnormal numbers kept), on every
 * processor and whatever the compiler takes a half to be. Used where speed does not matter; the fast kernels convert in
 * hardware, and the tests hold them against this. */
#ifndef LV_COMPUTE_KERNELS_HALF_H
#define LV_COMPUTE_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float lv_float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t lv_bits_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float lv_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    if (magnitude < 0x0400u) { /* zero, or a multiple of 2^-24 */
        const float value = (float)magnitude * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    if (magnitude >= 0x7c00u) return lv_float_from_bits(sign | 0x7f800000u | (magnitude & 0x03ffu) << 13);
    return lv_float_from_bits(sign | ((magnitude << 13) + (112u << 23)));
}

static inline uint16_t lv_half_from_float(float value) {
    const uint32_t bits = lv_bits_from_float(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x01ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more: infinite */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the value, rounded to 2^-24, in the low bits */
        const float sum = lv_float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (lv_bits_from_float(sum) - 0x3f000000u));
    }
    const uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0x0fffu + odd) >> 13));
}

#endif
