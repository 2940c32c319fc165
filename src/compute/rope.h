/* rope.h - the angles by which queries and keys of a position are turned, as ggml computes them.
 *
 * Pure functions; any thread. The frequencies fall geometrically with the pair; scaling is linear, by factors (Llama 3)
 * or YaRN (Peng et al., arXiv 2309.00071). */
#ifndef LV_COMPUTE_ROPE_H
#define LV_COMPUTE_ROPE_H

#include "model/model.h"

/* angles[2 * i] and angles[2 * i + 1]: cosine and sine for pair i, i below dims / 2. `factors` may be NULL. */
void lv_rope_angles(const lv_rope *rope, const float *factors, uint32_t position, float *angles);

#endif
