/* energy.h - energy counters of the machine, where it has some that may be read.
 *
 * Linux's powercap interface: what the processor packages have taken since they were switched on. `root` is "" except
 * in tests, where it is put in front of every path. Any thread. */
#ifndef LV_BASE_ENERGY_H
#define LV_BASE_ENERGY_H

#include <stdint.h>

enum { LV_ENERGY_ZONES_MAX = 8 };

typedef struct {
    uint32_t zones_count; /* 0: nothing can be read */
    uint64_t microjoules[LV_ENERGY_ZONES_MAX];
    uint64_t range[LV_ENERGY_ZONES_MAX]; /* a counter begins anew behind this value */
} lv_energy;

void lv_energy_read(const char *root, lv_energy *energy);

/* Joules from one reading to a later one; 0 when that is not known. */
double lv_energy_between(const lv_energy *before, const lv_energy *after);

#endif
