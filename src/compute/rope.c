/* rope.c - in single precision and in this order, because models were trained and are compared with such angles. */
#include "compute/rope.h"

#include <math.h>

/* The pair whose wave length makes `turns` turns in the original context. */
static float pair_of_turns(const lv_rope *rope, float turns) {
    const float pi = 3.14159265358979323846f;
    return (float)rope->dims * logf((float)rope->context_original / (turns * 2 * pi)) / (2 * logf(rope->base));
}

/* YaRN: 1 for pairs up to `low`, which turn often and keep their frequency, 0 for those from `high` on, which hardly
 * turn and are stretched. */
static float kept_share(float low, float high, uint32_t pair) {
    const float y = ((float)pair - low) / fmaxf(0.001f, high - low);
    return 1 - fminf(1, fmaxf(0, y));
}

void lv_rope_angles(const lv_rope *rope, const float *factors, uint32_t position, float *angles) {
    const float step = powf(rope->base, -2.0f / (float)rope->dims);
    const bool yarn = rope->extrapolation_factor != 0;
    const float length =
        yarn ? rope->attention_factor * (1.0f + 0.1f * logf(1.0f / rope->scale)) : rope->attention_factor;
    float low = 0, high = 0;
    if (yarn) {
        low = fmaxf(0, floorf(pair_of_turns(rope, rope->beta_fast)));
        high = fminf((float)rope->dims - 1, ceilf(pair_of_turns(rope, rope->beta_slow)));
    }
    float theta = (float)position;
    for (uint32_t pair = 0; pair < rope->dims / 2; pair++) {
        const float unscaled = factors ? theta / factors[pair] : theta;
        float angle = rope->scale * unscaled;
        if (yarn) {
            const float kept = kept_share(low, high, pair) * rope->extrapolation_factor;
            angle = angle * (1 - kept) + unscaled * kept;
        }
        angles[2 * pair] = cosf(angle) * length;
        angles[2 * pair + 1] = sinf(angle) * length;
        theta *= step;
    }
}
