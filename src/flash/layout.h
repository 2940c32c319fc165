/* layout.h - the blocks of a model: what is read at once, and where its rows then lie.
 *
 * A BLOCK is one contiguous byte range of one file: whole matrices of a layer, or a run of rows of a large one. A
 * SEGMENT is a run of rows of one matrix inside one block. A CHUNK is the run of rows that one checksum of a packed
 * file covers; matrices are cut between chunks only, so that every block can be checked alone. The table is built once
 * from a list of matrices in the order of use, is const afterwards, and may be read from any thread. Knows nothing of
 * ggml: sizes come with the matrices.
 *
 *     file:      | q | bias | k | v | o |..| gate          | up            | down          |
 *     blocks:    '------ block 0 ------'   '- 1 -''-- 2 --''- 3 -''-- 4 --''- 5 -''-- 6 --'
 *     chunks:    |.:.|      |.|.|.:.|      |.:.:.:.:.:.:.:.|.:. ...
 */
#ifndef LV_FLASH_LAYOUT_H
#define LV_FLASH_LAYOUT_H

#include "model/gguf.h"

#define LV_BLOCK_BYTES_MAX ((uint64_t)32 << 20)
#define LV_BLOCK_BYTES_MIN ((uint64_t)64 << 10)
#define LV_BLOCK_BYTES_DEFAULT ((uint64_t)8 << 20) /* 16 MiB: a few percent faster, twice the ring (docs/SPEED.md) */
#define LV_LAYER_HEAD UINT32_MAX                   /* lv_block.layer of the head's blocks */

/* A chunk holds as many rows, a multiple of 16, as fit these bytes, and at least 16. Part of the format of packed
 * files: another number is another LV_PACK_VERSION. */
#define LV_CHUNK_BYTES ((uint64_t)256 << 10)

uint64_t lv_chunk_rows(const lv_tensor *tensor);
uint64_t lv_chunks_count(const lv_tensor *tensor);

typedef struct {
    const lv_tensor *tensor;
    uint32_t layer; /* or LV_LAYER_HEAD */
    uint32_t group; /* neighbours in the list of one layer and group share a block when they lie together in the file */
} lv_layout_item;

typedef struct {
    uint32_t item; /* index into the items given to lv_layout_build */
    uint32_t block;
    uint64_t row_first, rows_count;
    uint64_t block_offset; /* of its first byte, from the block's first byte */
    uint64_t bytes;
} lv_segment;

typedef struct {
    uint32_t file_index;
    uint32_t layer;
    uint64_t offset, bytes; /* exact range in the file, not yet aligned */
    uint32_t segment_first, segments_count;
} lv_block;

typedef struct lv_layout {
    lv_block *blocks; /* in order of use: layer by layer, the head last */
    uint32_t blocks_count;
    uint32_t head_block_first; /* == blocks_count: no head */
    lv_segment *segments;      /* sorted by item, then row; those of a block stand together */
    uint32_t segments_count;
    uint32_t *item_segment_first; /* items_count + 1 entries */
    uint32_t items_count;
    const lv_layout_item *items; /* a copy */
    uint64_t layer_bytes;        /* of all blocks but the head's */
    uint64_t head_bytes;
    uint64_t slot_bytes; /* what a slot needs: the largest aligned superset, rounded up to 2 MiB */
} lv_layout;

/* `items` are in order of use, the head's last. The aligned superset of a block is at most `block_bytes_max`
 * (LV_BLOCK_BYTES_MIN to LV_BLOCK_BYTES_MAX) unless a single chunk is larger; where a matrix needs several blocks they
 * are of even size. */
lever_status lv_layout_build(lv_layout **layout, const lv_layout_item *items, uint32_t items_count,
                             uint64_t block_bytes_max, lv_ledger *ledger, lever_error *error);
void lv_layout_free(lv_layout **layout);

/* What a block takes in memory when it is pinned, as the ledger books it. */
uint64_t lv_block_memory_bytes(const lv_block *block);

/* Policy: which of the layers' blocks stay in memory when `target_bytes` may: spread evenly over the pass, so that
 * reading of what is streamed and computing of what is pinned alternate. Sets pinned[blocks_count] (the head's entries
 * are left alone), returns the memory that the pinned blocks take, at most target_bytes. */
uint64_t lv_pin_spread(const lv_layout *layout, uint64_t target_bytes, bool *pinned);

#endif
