/* placement.h - whether a device or the CPU should compute a pass: a policy without a clock.
 *
 * For each bucket the time that either took is kept as a running mean; who was faster computes, the other is tried
 * again now and then. Pure functions of the struct. */
#ifndef LV_COMPUTE_PLACEMENT_H
#define LV_COMPUTE_PLACEMENT_H

#include <stdbool.h>

#include "base/buckets.h"

enum { LV_PLACEMENT_RETRY = 48 }; /* passes of a bucket before the slower one is tried again */

typedef struct {
    lv_buckets buckets;
    bool always; /* the device takes every pass: asked for, or its bits differ from the CPU's */
    struct {
        double device, cpu; /* seconds; 0: not known yet */
        uint32_t age;       /* passes since the slower one was tried */
    } of[LV_BUCKETS_MAX];
} lv_placement;

/* True: the device. Counts the pass. */
bool lv_placement_choose(lv_placement *placement, uint32_t rows);

/* What a layer of the pass took, without waiting for blocks, by the clock or as the device tells. */
void lv_placement_learn(lv_placement *placement, bool on_device, uint32_t rows, double seconds);

#endif
