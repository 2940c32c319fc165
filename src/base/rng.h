/* rng.h - random numbers as a pure function of a key and a counter.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). No state: the same (seed,
 * position, token) always gives the same noise, on every machine, in any order. Any thread. */
#ifndef LV_BASE_RNG_H
#define LV_BASE_RNG_H

#include <stdint.h>

typedef struct {
    uint32_t word[4];
} lv_philox_block;

lv_philox_block lv_philox(const uint32_t counter[4], const uint32_t key[2]);

/* Standard Gumbel noise for candidate `token` of output position `position` under `seed`: -log(-log(u)) with u in the
 * open interval (0, 1), computed in double from 53 bits, so that it is finite and the same on every machine with a
 * correctly working log. */
double lv_gumbel(uint64_t seed, uint64_t position, int32_t token);

/* A seed drawn from the system; never fails (falls back on time and process id). */
uint64_t lv_seed_draw(void);

#endif
