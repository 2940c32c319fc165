/* placement.c - see placement.h. More rows than the largest bucket has count as the largest. */
#include "compute/placement.h"

#include <assert.h>

static const double newest_share = 0.3;

static uint32_t class_of(const lv_placement *placement, uint32_t rows) {
    assert(placement->buckets.count > 0);
    uint32_t class = 0;
    while (class + 1 < placement->buckets.count && placement->buckets.rows[class] < rows) class ++;
    return class;
}

bool lv_placement_choose(lv_placement *placement, uint32_t rows) {
    if (placement->always) return true;
    const uint32_t class = class_of(placement, rows);
    const double device = placement->of[class].device, cpu = placement->of[class].cpu;
    if (device <= 0) return true;
    if (cpu <= 0) return false;
    const bool best = device < cpu;
    if (++placement->of[class].age < LV_PLACEMENT_RETRY) return best;
    placement->of[class].age = 0;
    return !best;
}

void lv_placement_learn(lv_placement *placement, bool on_device, uint32_t rows, double seconds) {
    if (!(seconds > 0)) return;
    const uint32_t class = class_of(placement, rows);
    double *mean = on_device ? &placement->of[class].device : &placement->of[class].cpu;
    *mean = *mean > 0 ? *mean + newest_share * (seconds - *mean) : seconds;
}
