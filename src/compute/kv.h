/* kv.h - the key/value cache of one session for one model.
 *
 * Owns one area of half-precision keys and values for all layers, booked as LV_MEM_KV and faulted in at opening, so
 * that nothing is allocated while decoding. A slot holds one token's key and value of every layer. Which token lies in
 * which slot is the session's affair: slots [0, committed) are its text in order, those behind are free for the nodes
 * of a tree, and what a slot held before is simply overwritten.
 *
 * Threads: several may store into different slots, or different layers, at once, and read other slots meanwhile.
 * Moving, opening and closing want the cache for themselves.
 *
 *     one layer, one key/value head:
 *     keys    tile 0: [d 0: slots 0..15][d 1: slots 0..15] ... [d head_dim-1: slots 0..15]   tile 1: slots 16..31 ...
 *     values  [slot 0: d 0..head_dim-1][slot 1: ...] ...
 *
 * Keys are transposed in tiles of 16 slots, so that one vector holds one dimension of 16 keys and scores need no sum
 * across lanes. A value beyond the largest finite half, or one that is not a number, is stored as +-65504: whatever
 * lies in a slot is finite, so that multiplying it by a weight of zero gives zero (attention.h relies on it). */
#ifndef LV_COMPUTE_KV_H
#define LV_COMPUTE_KV_H

#include "base/memory.h"

#define LV_KV_TILE_SLOTS ((size_t)16)

/* Attention is written for heads of a multiple of 8, up to this. */
#define LV_HEAD_DIM_MAX ((size_t)256)

typedef struct {
    uint32_t layers_count;
    uint32_t slots_count; /* context and room for the nodes of a tree; rounded up to whole tiles */
    uint32_t kv_heads_count;
    uint32_t head_dim; /* a multiple of 8, 8 to LV_HEAD_DIM_MAX */
} lv_kv_shape;

typedef struct lv_kv {
    lv_kv_shape shape; /* slots_count as rounded up */
    size_t head_halfs; /* elements of one head's keys; its values take as many */
    uint16_t *data;    /* [layer][kv_head][keys, values][head_halfs] */
    lv_area area;
} lv_kv;

/* Bytes that lv_kv_open asks of the ledger, before rounding to pages; UINT64_MAX when that does not fit 64 bits. */
uint64_t lv_kv_bytes(const lv_kv_shape *shape);

/* LEVER_E_BUDGET or LEVER_E_MEMORY; LEVER_E_FORMAT for a head size that attention cannot do. On failure `kv` is left
 * closed. */
lever_status lv_kv_open(lv_kv *kv, lv_ledger *ledger, const lv_kv_shape *shape, lever_error *error);
void lv_kv_close(lv_kv *kv); /* a closed or zeroed cache is accepted */

uint32_t lv_kv_slots_count(const lv_kv *kv);

/* Stores one token's key (rope applied) and value of one layer, kv_heads_count * head_dim floats each, rounded to half
 * precision, nearest even. Threads that share a batch best take runs of neighbouring slots. */
void lv_kv_store(lv_kv *kv, uint32_t layer, uint32_t slot, const float *key, const float *value);

/* Copies what slots[i] holds, in all layers, to slot_first + i, in ascending i. Safe when slots ascend and none lies
 * below its destination: committing the accepted nodes of a tree. */
void lv_kv_commit(lv_kv *kv, uint32_t slot_first, const uint32_t *slots, uint32_t slots_count);

/* The same for one slot. */
void lv_kv_move(lv_kv *kv, uint32_t slot_from, uint32_t slot_to);

/* Where one head's keys and values lie. */
const uint16_t *lv_kv_keys(const lv_kv *kv, uint32_t layer, uint32_t kv_head);
const uint16_t *lv_kv_values(const lv_kv *kv, uint32_t layer, uint32_t kv_head);

#endif
