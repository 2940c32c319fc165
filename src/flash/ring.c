/* ring.c - the sequence of reads as a small state machine.
 *
 * There is no queue: the order is in the sequence numbers, and with the few slots that a ring has (2 to some dozens) a
 * walk over all of them is cheaper than anything clever. The next block is worked out when a lane asks for it, from the
 * last one taken, so that pinning and unpinning while running need no repair here: the sequence just skips what is
 * resident at that moment. Entries that became useless are passed over when the consumer asks for what stands behind
 * them.
 *
 * Of a cache nothing more has to be known than what lies in each slot: lanes that read ahead use a block when they take
 * it, so the order of use is the order of the sequence numbers. */
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

/* --- Taking ------------------------------------------------------------------------------------------------------- */

static uint32_t next_block(const lv_ring *ring) {
    const uint32_t restart = ring->block_restart;
    if (restart == LV_BLOCK_NONE) return block_after(ring, ring->block_last);
    return ring->resident[restart] ? block_after(ring, restart) : restart;
}

static void enter_sequence(lv_ring *ring, lv_slot *slot, uint32_t block, lv_slot_state state) {
    ring->block_restart = LV_BLOCK_NONE;
    ring->block_last = block;
    slot->state = state;
    slot->block = block;
    slot->sequence = ring->sequence_next++;
}

/* With a cache, what is next and still there needs no reading. Each takes up a free slot, so this ends. */
static void revive(lv_ring *ring) {
    for (uint32_t i = 0; ring->keeps && i < ring->slots_count; i++) {
        const uint32_t block = next_block(ring);
        lv_slot *kept = NULL;
        for (uint32_t s = 0; s < ring->slots_count && kept == NULL; s++) {
            lv_slot *slot = &ring->slots[s];
            if (slot->state == LV_SLOT_FREE && slot->whole && slot->block == block) kept = slot;
        }
        if (kept == NULL) return;
        enter_sequence(ring, kept, block, LV_SLOT_READY);
    }
}

/* Of a cache the one that was used the longest ago, those that hold nothing before all others. */
static lv_slot *find_free(lv_ring *ring) {
    lv_slot *found = NULL;
    for (uint32_t i = 0; i < ring->slots_count; i++) {
        lv_slot *slot = &ring->slots[i];
        if (slot->state != LV_SLOT_FREE) continue;
        if (!ring->keeps || !slot->whole) return slot;
        if (found == NULL || slot->sequence < found->sequence) found = slot;
    }
    return found;
}

bool lv_ring_take(lv_ring *ring, uint32_t *out) {
    revive(ring);
    lv_slot *slot = find_free(ring);
    if (slot == NULL) return false;
    const uint32_t block = next_block(ring);
    if (block == LV_BLOCK_NONE) return false;
    enter_sequence(ring, slot, block, LV_SLOT_READING);
    slot->used = false;
    *out = (uint32_t)(slot - ring->slots);
    return true;
}

void lv_ring_finish(lv_ring *ring, uint32_t index, size_t skip, lever_status status, const lever_error *error) {
    lv_slot *slot = &ring->slots[index];
    assert(slot->state == LV_SLOT_READING || slot->state == LV_SLOT_ABANDONED);
    slot->skip = skip;
    slot->whole = status == LEVER_OK;
    if (slot->state == LV_SLOT_ABANDONED) {
        slot->state = LV_SLOT_FREE;
    } else if (status == LEVER_OK) {
        slot->state = LV_SLOT_READY;
    } else {
        slot->state = LV_SLOT_FAILED;
        slot->error = *error;
    }
}

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

static void lease(lv_ring *ring, lv_slot *leased) {
    for (uint32_t i = 0; i < ring->slots_count; i++)
        if (ring->slots[i].sequence < leased->sequence) drop(&ring->slots[i]);
    if (leased->used) ring->hit_bytes += ring->layout->blocks[leased->block].bytes;
    leased->used = true;
    leased->state = LV_SLOT_LEASED;
    ring->leased_count++;
}

lv_want lv_ring_want(lv_ring *ring, uint32_t block, uint32_t *out) {
    lv_slot *slot = find(ring, block);
    if (slot == NULL) {
        if (ring->leased_count == ring->slots_count) return LV_WANT_STUCK;
        if (ring->block_restart != block) lv_ring_restart(ring, block);
        revive(ring);
        slot = find(ring, block);
        if (slot == NULL) return LV_WANT_PENDING;
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
