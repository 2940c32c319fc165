/* ring.h - which block is in which slot, and which is read next.
 *
 * Owns the states of the slots and the sequence of reads; no memory for weights, no thread, no lock: the store calls it
 * under its mutex. The sequence runs through the blocks in the order of use, from the last back to the first, without
 * those that are resident (pinned) and, unless they are wanted, the head's. It promises that what the consumer asks for
 * is either in a slot, being read, or the next to be read; and that a slot that is leased or being read into is never
 * given to anyone else.
 *
 * With `keeps` the ring is a cache of the blocks used last: a free slot still holds its block, the one used the longest
 * ago is the first to be read into, and what is next in the sequence and still there takes its place in it unread.
 *
 *     FREE --take--> READING --finish--> READY --want--> LEASED --release--> FREE
 *                       |  '--finish--> FAILED --want, then restart--> FREE
 *                       '--(passed over)--> ABANDONED --finish--> FREE */
#ifndef LV_FLASH_RING_H
#define LV_FLASH_RING_H

#include "flash/layout.h"

#define LV_BLOCK_NONE UINT32_MAX

typedef enum {
    LV_SLOT_FREE = 0,
    LV_SLOT_READING,
    LV_SLOT_ABANDONED, /* still being read into, but nobody wants it any more */
    LV_SLOT_READY,
    LV_SLOT_FAILED,
    LV_SLOT_LEASED,
} lv_slot_state;

typedef struct {
    lv_slot_state state;
    uint32_t block;
    uint64_t sequence; /* position in the sequence of reads: lower is nearer to the consumer */
    size_t skip;       /* bytes of the slot before the block's first byte */
    bool whole;        /* `block` has been read into it, all of it */
    bool used;         /* and was leased since */
    lever_error error; /* of a FAILED one */
} lv_slot;

typedef struct {
    const lv_layout *layout;
    bool *resident; /* blocks_count: not read through the ring; written by the store */
    bool head_wanted;
    bool keeps;         /* set before the first block is taken */
    uint64_t hit_bytes; /* of the blocks that were leased again without having been read again */
    lv_slot *slots;
    uint32_t slots_count, leased_count;
    uint32_t block_last;    /* the last one taken; LV_BLOCK_NONE: none yet */
    uint32_t block_restart; /* to be taken next, whatever the last was; else LV_BLOCK_NONE */
    uint64_t sequence_next;
} lv_ring;

lever_status lv_ring_open(lv_ring *ring, const lv_layout *layout, uint32_t slots_count, lv_ledger *ledger,
                          lever_error *error);
void lv_ring_close(lv_ring *ring); /* a zeroed one is accepted */

/* The lane's side. Takes a free slot for the next block of the sequence; false when there is no free slot or nothing to
 * read. Every slot taken is finished once: `status` LEVER_OK, or why the block could not be read. */
bool lv_ring_take(lv_ring *ring, uint32_t *slot);
void lv_ring_finish(lv_ring *ring, uint32_t slot, size_t skip, lever_status status, const lever_error *error);

typedef enum {
    LV_WANT_LEASED,  /* *slot is leased now */
    LV_WANT_PENDING, /* being read, or next in the sequence: ask again when a read has ended */
    LV_WANT_FAILED,  /* *slot holds the error; call lv_ring_restart after having copied it */
    LV_WANT_STUCK,   /* every slot is leased: it would never come */
} lv_want;

/* The consumer's side. What stands in front of the block in the sequence is passed over; where the block is not in the
 * sequence, the sequence starts anew with it. */
lv_want lv_ring_want(lv_ring *ring, uint32_t block, uint32_t *slot);
/* Leases the block if it is there, and changes nothing otherwise. */
bool lv_ring_try(lv_ring *ring, uint32_t block, uint32_t *slot);
void lv_ring_release(lv_ring *ring, uint32_t slot);
/* Empties the ring and starts the sequence anew with `block`. Leases stay. */
void lv_ring_restart(lv_ring *ring, uint32_t block);

#endif
