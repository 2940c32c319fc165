/* ring.c - the sequence of reads as a small state machine.
 *
 * There is no queue: the order is in the sequence numbers, and with the few slots that a ring has (2 to some dozens) a
 * walk over all of them is cheaper than anything clever. The next block is worked out when a lane asks for it, from the
 * last one taken, so that pinning and unpinning while running need no repair here: the sequence just skips what is
 * resident at that moment. Entries that became useless are passed over when the consumer asks for what stands behind
 * them. */
#include "flash/ring.h"

#include <assert.h>

#include "base/memory.h"

lever_status lv_ring_open(lv_ring *ring, const lv_layout *layout, uint32_t slots_count, lv_ledger *ledger,
                          lever_error *error) {
    *ring = (lv_ring){.layout = layout, .block_last = LV_BLOCK_NONE, .block_restart = LV_BLOCK_NONE};
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, layout->blocks_count, sizeof(bool), "the ring", error));
    ring->resident = memory;
    if (slots_count == 0) return LEVER_OK;
    lever_status status =
        lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, slots_count, sizeof(lv_slot), "the ring", error);
    if (status != LEVER_OK) {
        lv_ring_close(ring);
        return status;
    }
    ring->slots = memory;
    ring->slots_count = slots_count;
    return LEVER_OK;
}

void lv_ring_close(lv_ring *ring) {
    lv_free(ring->slots);
    lv_free(ring->resident);
    *ring = (lv_ring){0};
}

/* The block that follows `block` in the sequence, or LV_BLOCK_NONE when everything is resident. Inside the head the
 * sequence goes on to its end, wanted or not: somebody asked for it. */
static uint32_t block_after(const lv_ring *ring, uint32_t block) {
    const lv_layout *layout = ring->layout;
    bool head = ring->head_wanted || (block != LV_BLOCK_NONE && block >= layout->head_block_first);
    uint32_t next = block;
    for (uint32_t i = 0; i < layout->blocks_count; i++) {
        next = next == LV_BLOCK_NONE || next + 1 == layout->blocks_count ? 0 : next + 1;
        if (next == 0) head = ring->head_wanted;
        if (!ring->resident[next] && (head || next < layout->head_block_first)) return next;
    }
    return LV_BLOCK_NONE;
}

static void drop(lv_slot *slot) {
    if (slot->state == LV_SLOT_READING) slot->state = LV_SLOT_ABANDONED;
    if (slot->state == LV_SLOT_READY || slot->state == LV_SLOT_FAILED) slot->state = LV_SLOT_FREE;
}

static bool in_sequence(const lv_slot *slot) {
    return slot->state == LV_SLOT_READING || slot->state == LV_SLOT_READY || slot->state == LV_SLOT_FAILED;
}

/* The entry of `block` that is nearest to the consumer, or NULL. */
static lv_slot *find(lv_ring *ring, uint32_t block) {
    lv_slot *found = NULL;
    for (uint32_t i = 0; i < ring->slots_count; i++) {
        lv_slot *slot = &ring->slots[i];
        if (in_sequence(slot) && slot->block == block && (found == NULL || slot->sequence < found->sequence))
            found = slot;
    }
    return found;
}

bool lv_ring_take(lv_ring *ring, uint32_t *out) {
    uint32_t slot = 0;
    while (slot < ring->slots_count && ring->slots[slot].state != LV_SLOT_FREE) slot++;
    if (slot == ring->slots_count) return false;

    uint32_t block = ring->block_restart;
    if (block == LV_BLOCK_NONE)
        block = block_after(ring, ring->block_last);
    else if (ring->resident[block])
        block = block_after(ring, block);
    if (block == LV_BLOCK_NONE) return false;
    ring->block_restart = LV_BLOCK_NONE;
    ring->block_last = block;
    ring->slots[slot].state = LV_SLOT_READING;
    ring->slots[slot].block = block;
    ring->slots[slot].sequence = ring->sequence_next++;
    *out = slot;
    return true;
}

void lv_ring_finish(lv_ring *ring, uint32_t index, size_t skip, lever_status status, const lever_error *error) {
    lv_slot *slot = &ring->slots[index];
    assert(slot->state == LV_SLOT_READING || slot->state == LV_SLOT_ABANDONED);
    slot->skip = skip;
    if (slot->state == LV_SLOT_ABANDONED) {
        slot->state = LV_SLOT_FREE;
    } else if (status == LEVER_OK) {
        slot->state = LV_SLOT_READY;
    } else {
        slot->state = LV_SLOT_FAILED;
        slot->error = *error;
    }
}

static void lease(lv_ring *ring, lv_slot *leased) {
    for (uint32_t i = 0; i < ring->slots_count; i++)
        if (ring->slots[i].sequence < leased->sequence) drop(&ring->slots[i]);
    leased->state = LV_SLOT_LEASED;
    ring->leased_count++;
}

lv_want lv_ring_want(lv_ring *ring, uint32_t block, uint32_t *out) {
    lv_slot *slot = find(ring, block);
    if (slot == NULL) {
        if (ring->leased_count == ring->slots_count) return LV_WANT_STUCK;
        if (ring->block_restart != block) lv_ring_restart(ring, block);
        return LV_WANT_PENDING;
    }
    *out = (uint32_t)(slot - ring->slots);
    if (slot->state == LV_SLOT_FAILED) return LV_WANT_FAILED;
    if (slot->state == LV_SLOT_READING) {
        for (uint32_t i = 0; i < ring->slots_count; i++)
            if (ring->slots[i].sequence < slot->sequence) drop(&ring->slots[i]);
        return LV_WANT_PENDING;
    }
    lease(ring, slot);
    return LV_WANT_LEASED;
}

bool lv_ring_try(lv_ring *ring, uint32_t block, uint32_t *out) {
    lv_slot *slot = find(ring, block);
    if (slot == NULL || slot->state != LV_SLOT_READY) return false;
    lease(ring, slot);
    *out = (uint32_t)(slot - ring->slots);
    return true;
}

void lv_ring_release(lv_ring *ring, uint32_t slot) {
    assert(ring->slots[slot].state == LV_SLOT_LEASED);
    ring->slots[slot].state = LV_SLOT_FREE;
    ring->leased_count--;
}

void lv_ring_restart(lv_ring *ring, uint32_t block) {
    for (uint32_t i = 0; i < ring->slots_count; i++) drop(&ring->slots[i]);
    ring->block_restart = block;
}
