/* pins.h - the blocks that stay in memory.
 *
 * Owns an area of memory for each pinned block, and what is to become of each block. No lock of its own: every function
 * is called under the store's mutex, but memory is mapped, filled and given back outside of it. It promises that an
 * area is neither given back while it is leased, nor leased before it is filled.
 *
 *     NONE --(to be pinned)--> WANTED --begin--> FILLING --publish--> READY <--(to be pinned)--> LEAVING
 *      ^-----(not any more)-----'------------------'                    |                           |
 *      '-------------------------------------------(not any more, no lease)-----(last lease back)---' */
#ifndef LV_FLASH_PINS_H
#define LV_FLASH_PINS_H

#include "base/memory.h"
#include "flash/layout.h"

typedef enum {
    LV_PIN_NONE = 0,
    LV_PIN_WANTED,
    LV_PIN_FILLING, /* somebody fills an area for it */
    LV_PIN_READY,
    LV_PIN_LEAVING, /* leased, and given back with the last lease */
} lv_pin_state;

typedef struct {
    lv_pin_state state;
    uint32_t leases;
    lv_area area; /* open in READY and LEAVING */
    size_t skip;  /* bytes of the area before the block's first byte */
} lv_pin;

typedef struct {
    const lv_layout *layout;
    lv_pin *pins;         /* blocks_count */
    bool *resident;       /* the ring's: true exactly for the READY ones */
    uint64_t layer_bytes; /* of the READY and LEAVING blocks of layers */
    uint32_t ready_count; /* blocks, the head's included */
} lv_pins;

lever_status lv_pins_open(lv_pins *pins, const lv_layout *layout, bool *resident, lv_ledger *ledger,
                          lever_error *error);
void lv_pins_close(lv_pins *pins); /* gives all areas back; a zeroed one is accepted */

/* Says whether the block is to be pinned. Where that sets memory free, *freed is the area, which the caller closes once
 * the mutex is released; else it is left alone. It may be NULL when `pinned` is true. */
void lv_pins_set(lv_pins *pins, uint32_t block, bool pinned, lv_area *freed);

/* Filling: begin is true when the block is wanted and nobody else fills it. publish hands over the filled area; where
 * the block is not wanted any more it returns false and the caller keeps the area. abandon: it could not be filled. */
bool lv_pins_begin(lv_pins *pins, uint32_t block);
bool lv_pins_publish(lv_pins *pins, uint32_t block, const lv_area *area, size_t skip);
void lv_pins_abandon(lv_pins *pins, uint32_t block);

/* The block's first byte, now leased; NULL: it is not pinned. */
const uint8_t *lv_pins_lease(lv_pins *pins, uint32_t block);
/* *freed as in lv_pins_set. */
void lv_pins_release(lv_pins *pins, uint32_t block, lv_area *freed);

#endif
