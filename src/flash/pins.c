/* pins.c - the life of a pinned block.
 *
 * Each block has an area of its own, so that one can be given back alone when the budget shrinks. Whether a block is
 * wanted may change at any moment, also between begin and publish: then publish finds another state than the one that
 * begin left, and the area goes back to where it came from. */
#include "flash/pins.h"

#include <assert.h>

lever_status lv_pins_open(lv_pins *pins, const lv_layout *layout, bool *resident, lv_ledger *ledger,
                          lever_error *error) {
    *pins = (lv_pins){.layout = layout, .resident = resident};
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, layout->blocks_count, sizeof(lv_pin),
                            "the table of pinned blocks", error));
    pins->pins = memory;
    return LEVER_OK;
}

void lv_pins_close(lv_pins *pins) {
    for (uint32_t i = 0; pins->pins != NULL && i < pins->layout->blocks_count; i++) {
        assert(pins->pins[i].leases == 0);
        lv_area_close(&pins->pins[i].area);
    }
    lv_free(pins->pins);
    *pins = (lv_pins){0};
}

static void enter(lv_pins *pins, uint32_t block, lv_pin_state state) {
    if (pins->pins[block].state == LV_PIN_READY) pins->ready_count--;
    if (state == LV_PIN_READY) pins->ready_count++;
    pins->pins[block].state = state;
    pins->resident[block] = state == LV_PIN_READY;
}

static void take_area(lv_pins *pins, uint32_t block, lv_area *freed) {
    lv_pin *pin = &pins->pins[block];
    *freed = pin->area;
    pin->area = (lv_area){0};
    if (block < pins->layout->head_block_first) pins->layer_bytes -= pins->layout->blocks[block].bytes;
    enter(pins, block, LV_PIN_NONE);
}

void lv_pins_set(lv_pins *pins, uint32_t block, bool pinned, lv_area *freed) {
    lv_pin *pin = &pins->pins[block];
    if (pinned) {
        if (pin->state == LV_PIN_NONE) enter(pins, block, LV_PIN_WANTED);
        if (pin->state == LV_PIN_LEAVING) enter(pins, block, LV_PIN_READY);
        return;
    }
    if (pin->state == LV_PIN_WANTED || pin->state == LV_PIN_FILLING) enter(pins, block, LV_PIN_NONE);
    if (pin->state != LV_PIN_READY) return;
    if (pin->leases > 0) {
        enter(pins, block, LV_PIN_LEAVING);
    } else {
        take_area(pins, block, freed);
    }
}

bool lv_pins_begin(lv_pins *pins, uint32_t block) {
    if (pins->pins[block].state != LV_PIN_WANTED) return false;
    enter(pins, block, LV_PIN_FILLING);
    return true;
}

bool lv_pins_publish(lv_pins *pins, uint32_t block, const lv_area *area, size_t skip) {
    lv_pin *pin = &pins->pins[block];
    if (pin->state != LV_PIN_FILLING) return false;
    pin->area = *area;
    pin->skip = skip;
    if (block < pins->layout->head_block_first) pins->layer_bytes += pins->layout->blocks[block].bytes;
    enter(pins, block, LV_PIN_READY);
    return true;
}

void lv_pins_abandon(lv_pins *pins, uint32_t block) {
    if (pins->pins[block].state == LV_PIN_FILLING) enter(pins, block, LV_PIN_WANTED);
}

const uint8_t *lv_pins_lease(lv_pins *pins, uint32_t block) {
    lv_pin *pin = &pins->pins[block];
    if (pin->state != LV_PIN_READY) return NULL;
    pin->leases++;
    return pin->area.data + pin->skip;
}

void lv_pins_release(lv_pins *pins, uint32_t block, lv_area *freed) {
    lv_pin *pin = &pins->pins[block];
    assert(pin->leases > 0);
    pin->leases--;
    if (pin->state == LV_PIN_LEAVING && pin->leases == 0) take_area(pins, block, freed);
}
