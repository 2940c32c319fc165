/* thread_choice.h - whether one thread or all should compute a pass: a policy without a clock.
 *
 * When reading is the bottleneck, computing with all threads gains nothing and costs: waking threads takes time, and
 * spinning ones keep the lanes from a processor. One thread then leaves the disk busier (docs/SPEED.md). The choice
 * follows what was measured in the last pass. Pure functions of the struct. */
#ifndef LV_COMPUTE_THREAD_CHOICE_H
#define LV_COMPUTE_THREAD_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t threads; /* in all */
    bool single;      /* the choice for the next pass */
    uint32_t rest;    /* passes before a single thread is tried again */
} lv_thread_choice;

/* What one pass took: in all, computing, and waiting for blocks. */
void lv_thread_choice_update(lv_thread_choice *choice, uint64_t pass_ns, uint64_t compute_ns, uint64_t wait_ns);

#endif
