/* kv.c - how the cache is laid out and filled.
 *
 * One head's keys and values of a layer lie together, because one task of attention reads exactly them. The area ends
 * with a margin: attention loads values 16 at a time also where a head's size is an odd multiple of 8, and throws the
 * surplus away.
 *
 * Rounding to half precision is done in plain integer arithmetic, so that what is stored does not depend on the
 * instruction set. It is a small cost: kv_heads_count * head_dim numbers a token and layer, against a whole layer of
 * products. */
#include "compute/kv.h"

#include <assert.h>
#include <string.h>

#define MARGIN_BYTES ((uint64_t)64)
#define HALF_MAX 65504.0f

/* False when `bytes` would not fit. */
static bool multiply(uint64_t *bytes, uint64_t factor) {
    return !__builtin_mul_overflow(*bytes, factor, bytes);
}

static uint64_t slots_rounded(uint32_t slots_count) {
    return ((uint64_t)slots_count + LV_KV_TILE_SLOTS - 1) / LV_KV_TILE_SLOTS * LV_KV_TILE_SLOTS;
}

uint64_t lv_kv_bytes(const lv_kv_shape *shape) {
    uint64_t bytes = 2 * sizeof(uint16_t); /* a key and a value */
    bool fits = multiply(&bytes, slots_rounded(shape->slots_count)) && multiply(&bytes, shape->head_dim) &&
                multiply(&bytes, shape->kv_heads_count) && multiply(&bytes, shape->layers_count) &&
                bytes <= UINT64_MAX - MARGIN_BYTES;
    return fits ? bytes + MARGIN_BYTES : UINT64_MAX;
}

static lever_status check_shape(const lv_kv_shape *shape, lever_error *error) {
    if (shape->head_dim % 8 != 0 || shape->head_dim == 0 || shape->head_dim > LV_HEAD_DIM_MAX) {
        return lv_fail(
            error, LEVER_E_FORMAT,
            "Attention heads of %u elements are not supported: the size must be a multiple of 8, at most %zu.",
            shape->head_dim, LV_HEAD_DIM_MAX);
    }
    if (slots_rounded(shape->slots_count) > UINT32_MAX || lv_kv_bytes(shape) > SIZE_MAX) {
        return lv_fail(
            error, LEVER_E_MEMORY,
            "A key/value cache of %u tokens, %u layers, %u heads of %u elements is more than this machine can "
            "address; choose a smaller context.",
            shape->slots_count, shape->layers_count, shape->kv_heads_count, shape->head_dim);
    }
    return LEVER_OK;
}

lever_status lv_kv_open(lv_kv *kv, lv_ledger *ledger, const lv_kv_shape *shape, lever_error *error) {
    memset(kv, 0, sizeof *kv);
    LV_TRY(check_shape(shape, error));
    lv_area_options options = {.huge_pages = true, .touch = true};
    LV_TRY(
        lv_area_open(&kv->area, ledger, LV_MEM_KV, (size_t)lv_kv_bytes(shape), &options, "the key/value cache", error));
    kv->shape = *shape;
    kv->shape.slots_count = (uint32_t)slots_rounded(shape->slots_count);
    kv->head_halfs = (size_t)kv->shape.slots_count * shape->head_dim;
    kv->data = (uint16_t *)(void *)kv->area.data;
    return LEVER_OK;
}

void lv_kv_close(lv_kv *kv) {
    lv_area_close(&kv->area);
    memset(kv, 0, sizeof *kv);
}

uint32_t lv_kv_slots_count(const lv_kv *kv) {
    return kv->shape.slots_count;
}

static size_t head_offset(const lv_kv *kv, uint32_t layer, uint32_t kv_head) {
    assert(layer < kv->shape.layers_count && kv_head < kv->shape.kv_heads_count);
    return ((size_t)layer * kv->shape.kv_heads_count + kv_head) * 2 * kv->head_halfs;
}

const uint16_t *lv_kv_keys(const lv_kv *kv, uint32_t layer, uint32_t kv_head) {
    return kv->data + head_offset(kv, layer, kv_head);
}

const uint16_t *lv_kv_values(const lv_kv *kv, uint32_t layer, uint32_t kv_head) {
    return lv_kv_keys(kv, layer, kv_head) + kv->head_halfs;
}

/* Element 0 of a slot's key; element d lies d * LV_KV_TILE_SLOTS further. */
static uint16_t *key_at(const lv_kv *kv, uint32_t layer, uint32_t kv_head, uint32_t slot) {
    size_t tile = slot / LV_KV_TILE_SLOTS;
    return kv->data + head_offset(kv, layer, kv_head) + tile * LV_KV_TILE_SLOTS * kv->shape.head_dim +
           slot % LV_KV_TILE_SLOTS;
}

static uint16_t *value_at(const lv_kv *kv, uint32_t layer, uint32_t kv_head, uint32_t slot) {
    return kv->data + head_offset(kv, layer, kv_head) + kv->head_halfs + (size_t)slot * kv->shape.head_dim;
}

static uint16_t half_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    float size;
    memcpy(&size, &bits, sizeof size);
    if (!(size < HALF_MAX)) return (uint16_t)(sign | 0x7bffu); /* infinities and what is not a number, too */

    uint32_t rounded;
    if (bits < 0x38800000u) { /* below 2^-14: a subnormal half; adding 0.5 rounds to its unit, 2^-24 */
        size += 0.5f;
        memcpy(&rounded, &size, sizeof rounded);
        rounded -= 0x3f000000u;
    } else { /* moves the exponent's bias from 127 to 15 and rounds 13 bits away, ties to even */
        rounded = (bits - (112u << 23) + 0xfffu + (bits >> 13 & 1u)) >> 13;
    }
    return (uint16_t)(sign | rounded);
}

void lv_kv_store(lv_kv *kv, uint32_t layer, uint32_t slot, const float *key, const float *value) {
    assert(slot < kv->shape.slots_count);
    size_t head_dim = kv->shape.head_dim;
    for (uint32_t head = 0; head < kv->shape.kv_heads_count; head++) {
        uint16_t *key_halfs = key_at(kv, layer, head, slot);
        uint16_t *value_halfs = value_at(kv, layer, head, slot);
        for (size_t d = 0; d < head_dim; d++) {
            key_halfs[d * LV_KV_TILE_SLOTS] = half_from_float(key[head * head_dim + d]);
            value_halfs[d] = half_from_float(value[head * head_dim + d]);
        }
    }
}

static void copy_slot(lv_kv *kv, uint32_t layer, uint32_t kv_head, uint32_t slot_from, uint32_t slot_to) {
    size_t head_dim = kv->shape.head_dim;
    const uint16_t *key_from = key_at(kv, layer, kv_head, slot_from);
    uint16_t *key_to = key_at(kv, layer, kv_head, slot_to);
    for (size_t d = 0; d < head_dim; d++) key_to[d * LV_KV_TILE_SLOTS] = key_from[d * LV_KV_TILE_SLOTS];
    memcpy(value_at(kv, layer, kv_head, slot_to), value_at(kv, layer, kv_head, slot_from), head_dim * sizeof(uint16_t));
}

/* Layers outermost: the slots of a commit share tiles, which then come from memory once. */
void lv_kv_commit(lv_kv *kv, uint32_t slot_first, const uint32_t *slots, uint32_t slots_count) {
    assert((uint64_t)slot_first + slots_count <= kv->shape.slots_count);
    for (uint32_t layer = 0; layer < kv->shape.layers_count; layer++) {
        for (uint32_t head = 0; head < kv->shape.kv_heads_count; head++) {
            for (uint32_t i = 0; i < slots_count; i++) {
                assert(slots[i] < kv->shape.slots_count);
                if (slots[i] != slot_first + i) copy_slot(kv, layer, head, slots[i], slot_first + i);
            }
        }
    }
}

void lv_kv_move(lv_kv *kv, uint32_t slot_from, uint32_t slot_to) {
    lv_kv_commit(kv, slot_to, &slot_from, 1);
}
