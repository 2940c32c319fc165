/* layout.h - the blocks of a model: what is read at once, and where its rows then lie.
 *
 * A BLOCK is one contiguous byte range of one file: whole matrices of a layer, or a run of rows (a multiple of 16) of a
 * large one. A SEGMENT is a run of rows of one matrix inside one block. The table is built once from a list of matrices
 * in the order of use, is const afterwards, and may be read from any thread. Knows nothing of ggml: sizes come with the
 * matrices. */
#ifndef LV_FLASH_LAYOUT_H
#define LV_FLASH_LAYOUT_H

#include "model/gguf.h"

#define LV_BLOCK_BYTES_MAX ((uint64_t)32 << 20)
#define LV_LAYER_HEAD UINT32_MAX /* lv_block.layer of the head's blocks */

typedef struct {
    const lv_tensor *tensor;
    uint32_t layer; /* or LV_LAYER_HEAD */
    uint32_t group; /* matrices of one layer and group may share a block when they lie together in the file */
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
    lv_segment *segments;      /* sorted by item, then row */
    uint32_t segments_count;
    uint32_t *item_segment_first; /* items_count + 1 entries */
    uint32_t items_count;
    uint64_t layer_bytes; /* of all blocks but the head's */
    uint64_t head_bytes;
    uint64_t slot_bytes; /* what a slot needs: the largest aligned superset, rounded up to 2 MiB */
} lv_layout;

/* `items` are in order of use. Blocks are at most `block_bytes_max`, cut at rows that are multiples of 16, and of even
 * size where a matrix needs several. */
lever_status lv_layout_build(lv_layout **layout, const lv_layout_item *items, uint32_t items_count,
                             uint64_t block_bytes_max, lv_ledger *ledger, lever_error *error);
void lv_layout_free(lv_layout **layout);

/* Policy: which of the layers' blocks stay in memory when `target_bytes` may: spread evenly over the pass, so that
 * reading of what is streamed and computing of what is pinned alternate. Sets pinned[blocks_count] (the head's entries
 * are left alone), returns the sum of the pinned blocks' bytes, at most target_bytes. */
uint64_t lv_pin_spread(const lv_layout *layout, uint64_t target_bytes, bool *pinned);

#endif
