/* Blocks cover every row of every matrix once, in the order of use; and what is pinned is spread evenly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "flash/layout.h"

#define MIB ((uint64_t)1 << 20)

static lv_tensor matrix(const char *name, uint64_t offset, uint64_t row_bytes, uint64_t rows_count) {
    return (lv_tensor){.name = name,
                       .dims_count = 2,
                       .dims = {row_bytes, rows_count, 1, 1},
                       .row_bytes = row_bytes,
                       .rows_count = rows_count,
                       .bytes = row_bytes * rows_count,
                       .offset = offset};
}

/* What must hold for every table. */
static void check(const lv_layout *layout, const lv_layout_item *items, uint32_t items_count, uint64_t bytes_max) {
    uint64_t layer_bytes = 0, head_bytes = 0;
    for (uint32_t b = 0; b < layout->blocks_count; b++) {
        const lv_block *block = &layout->blocks[b];
        size_t superset = lv_file_superset_bytes(block->offset, (size_t)block->bytes);
        const lv_tensor *first = items[layout->segments[block->segment_first].item].tensor;
        assert_true(superset <= bytes_max || block->bytes <= lv_chunk_rows(first) * first->row_bytes);
        assert_true(superset <= layout->slot_bytes);
        assert_true(block->segments_count > 0);
        assert_int_equal(block->layer == LV_LAYER_HEAD, b >= layout->head_block_first);
        *(block->layer == LV_LAYER_HEAD ? &head_bytes : &layer_bytes) += block->bytes;
        for (uint32_t s = block->segment_first; s < block->segment_first + block->segments_count; s++) {
            const lv_segment *segment = &layout->segments[s];
            const lv_tensor *tensor = items[segment->item].tensor;
            assert_int_equal(segment->block, b);
            assert_int_equal(block->layer, items[segment->item].layer);
            assert_int_equal(block->file_index, tensor->file_index);
            assert_int_equal(segment->bytes, segment->rows_count * tensor->row_bytes);
            assert_int_equal(block->offset + segment->block_offset,
                             tensor->offset + segment->row_first * tensor->row_bytes);
            assert_true(segment->block_offset + segment->bytes <= block->bytes);
            assert_int_equal(segment->row_first % lv_chunk_rows(tensor), 0);
        }
    }
    assert_int_equal(layout->layer_bytes, layer_bytes);
    assert_int_equal(layout->head_bytes, head_bytes);
    assert_int_equal(layout->slot_bytes % LV_HUGE_PAGE_BYTES, 0);

    assert_int_equal(layout->items_count, items_count);
    assert_int_equal(layout->item_segment_first[0], 0);
    assert_int_equal(layout->item_segment_first[items_count], layout->segments_count);
    for (uint32_t i = 0; i < items_count; i++) {
        uint64_t row = 0;
        for (uint32_t s = layout->item_segment_first[i]; s < layout->item_segment_first[i + 1]; s++) {
            assert_int_equal(layout->segments[s].item, i);
            assert_int_equal(layout->segments[s].row_first, row);
            row += layout->segments[s].rows_count;
        }
        assert_int_equal(row, items[i].tensor->rows_count);
    }
}

static lv_layout *build(const lv_layout_item *items, uint32_t count, uint64_t bytes_max) {
    lv_layout *layout = NULL;
    lever_error error;
    assert_int_equal(lv_layout_build(&layout, items, count, bytes_max, NULL, &error), LEVER_OK);
    check(layout, items, count, bytes_max);
    return layout;
}

/* A layer as a GGUF has it: k, o, q, v with biases between them, then down, gate, up. */
static void neighbours_share_a_block(void **state) {
    (void)state;
    lv_tensor k = matrix("k", 1000, 864, 256), o = matrix("o", 223000, 864, 1536), q = matrix("q", 1551000, 864, 1536),
              v = matrix("v", 2879000, 864, 256);
    lv_tensor down = matrix("down", 4000000, 5040, 1536), gate = matrix("gate", 11742000, 864, 8960),
              up = matrix("up", 19484000, 864, 8960);
    const lv_layout_item items[] = {{&q, 0, 0},    {&k, 0, 0},  {&v, 0, 0},   {&o, 0, 0},
                                    {&gate, 0, 1}, {&up, 0, 1}, {&down, 0, 1}};
    lv_layout *layout = build(items, 7, 32 * MIB);
    assert_int_equal(layout->blocks_count, 2);
    assert_int_equal(layout->blocks[0].offset, 1000);
    assert_int_equal(layout->blocks[0].bytes, 2879000 + 864 * 256 - 1000);
    assert_int_equal(layout->segments[0].block_offset, 1551000 - 1000);
    assert_int_equal(layout->blocks[1].offset, 4000000);
    assert_int_equal(layout->slot_bytes, 24 * MIB);
    lv_layout_free(&layout);
    assert_null(layout);

    /* gate and up are used one after the other and still fit; down does not. */
    layout = build(items, 7, 16 * MIB);
    assert_int_equal(layout->blocks_count, 3);
    assert_int_equal(layout->blocks[1].offset, 11742000);
    assert_int_equal(layout->blocks[1].segments_count, 2);
    assert_int_equal(layout->blocks[2].offset, 4000000);
    lv_layout_free(&layout);
}

static void what_does_not_lie_together_is_read_apart(void **state) {
    (void)state;
    lv_tensor a = matrix("a", 0, 1024, 64), gap = matrix("gap", 131073, 1024, 64),
              near = matrix("near", 131072, 1024, 64);
    lv_tensor other = matrix("other", 65536, 1024, 64);
    other.file_index = 1;
    const struct {
        lv_layout_item second;
        uint32_t blocks;
    } cases[] = {{{&near, 0, 0}, 1}, {{&gap, 0, 0}, 2}, {{&other, 0, 0}, 2}, {{&near, 1, 0}, 2}, {{&near, 0, 1}, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lv_layout_item items[] = {{&a, 0, 0}, cases[i].second};
        lv_layout *layout = build(items, 2, MIB);
        assert_int_equal(layout->blocks_count, cases[i].blocks);
        lv_layout_free(&layout);
    }
}

static void a_large_matrix_is_cut_evenly(void **state) {
    (void)state;
    const struct {
        uint64_t row_bytes, rows, bytes_max;
        uint32_t blocks;
    } cases[] = {
        {1260, 151936, 32 * MIB, 6}, /* a head in Q6_K */
        {1260, 151936, 8 * MIB, 24}, {5040, 1536, 4 * MIB, 2},
        {5040, 1541, 4 * MIB, 2},  /* rows that are no multiple of 16 */
        {40000, 100, 64 << 10, 7}, /* 16 rows are more than a block may hold: one chunk each */
        {864, 8960, 8 * MIB, 1},     {40, 17, 64 << 10, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lv_tensor tensor = matrix("m", 4096 + 32, cases[i].row_bytes, cases[i].rows);
        const lv_layout_item item = {&tensor, LV_LAYER_HEAD, 0};
        lv_layout *layout = build(&item, 1, cases[i].bytes_max);
        assert_int_equal(layout->blocks_count, cases[i].blocks);
        assert_int_equal(layout->head_block_first, 0);
        uint64_t least = UINT64_MAX, most = 0;
        for (uint32_t b = 0; b + 1 < layout->blocks_count; b++) {
            if (layout->blocks[b].bytes < least) least = layout->blocks[b].bytes;
            if (layout->blocks[b].bytes > most) most = layout->blocks[b].bytes;
        }
        if (layout->blocks_count > 1) assert_true(most - least <= lv_chunk_rows(&tensor) * tensor.row_bytes);
        lv_layout_free(&layout);
    }
}

/* The rule is part of the format of packed files. */
static void chunks_are_what_the_format_says(void **state) {
    (void)state;
    const struct {
        uint64_t row_bytes, rows, chunk_rows, chunks;
    } cases[] = {{864, 8960, 288, 32}, {1260, 151936, 208, 731}, {5040, 1536, 48, 32},
                 {16384, 64, 16, 4},   {40000, 33, 16, 3},       {6144, 1, 32, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lv_tensor tensor = matrix("m", 0, cases[i].row_bytes, cases[i].rows);
        assert_int_equal(lv_chunk_rows(&tensor), cases[i].chunk_rows);
        assert_int_equal(lv_chunks_count(&tensor), cases[i].chunks);
    }
}

static void bad_input_is_refused(void **state) {
    (void)state;
    lv_tensor good = matrix("good", 0, 64, 64), empty = matrix("empty", 0, 64, 0);
    const struct {
        lv_layout_item items[2];
        uint32_t count;
        uint64_t bytes_max;
        lever_status status;
    } cases[] = {{{{&good, 0, 0}}, 0, MIB, LEVER_E_ARGUMENT},
                 {{{&good, 0, 0}}, 1, 4096, LEVER_E_ARGUMENT},
                 {{{&good, 0, 0}}, 1, LV_BLOCK_BYTES_MAX + 1, LEVER_E_ARGUMENT},
                 {{{&empty, 0, 0}}, 1, MIB, LEVER_E_FORMAT},
                 {{{&good, LV_LAYER_HEAD, 0}, {&good, 0, 0}}, 2, MIB, LEVER_E_INTERNAL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lv_layout *layout = NULL;
        lever_error error = {0};
        assert_int_equal(lv_layout_build(&layout, cases[i].items, cases[i].count, cases[i].bytes_max, NULL, &error),
                         cases[i].status);
        assert_null(layout);
        assert_int_equal(error.status, cases[i].status);
        assert_true(strlen(error.message) > 0);
    }
}

/* 28 layers of a small and a large block. The longest stretch that is streamed, or pinned, stays near the even one. */
static void pinning_is_spread(void **state) {
    (void)state;
    static lv_tensor tensors[57];
    static lv_layout_item items[57];
    for (uint32_t i = 0; i < 56; i++) {
        tensors[i] = matrix("m", i * 32 * MIB, 1024, i % 2 ? 22000 : 3000);
        items[i] = (lv_layout_item){&tensors[i], i / 2, i % 2};
    }
    tensors[56] = matrix("head", 56 * 32 * MIB, 1024, 9000);
    items[56] = (lv_layout_item){&tensors[56], LV_LAYER_HEAD, 0};
    lv_layout *layout = build(items, 57, 32 * MIB);
    assert_int_equal(layout->blocks_count, 57);

    bool pinned[57];
    pinned[56] = true;
    for (uint32_t percent = 0; percent <= 100; percent++) {
        uint64_t target = layout->layer_bytes * percent / 100;
        uint64_t bytes = lv_pin_spread(layout, target, pinned);
        uint64_t sum = 0, passed = 0, least_left = UINT64_MAX;
        double drift_max = 0;
        for (uint32_t b = 0; b < 56; b++) {
            passed += layout->blocks[b].bytes;
            if (pinned[b]) sum += layout->blocks[b].bytes;
            if (!pinned[b] && layout->blocks[b].bytes < least_left) least_left = layout->blocks[b].bytes;
            double drift = (double)sum - (double)passed * percent / 100;
            if (drift < 0) drift = -drift;
            if (drift > drift_max) drift_max = drift;
        }
        assert_int_equal(bytes, sum);
        assert_true(bytes <= target);
        assert_true(bytes + least_left > target || bytes == layout->layer_bytes);
        assert_true(drift_max <= 3 * 22000.0 * 1024);
        assert_true(pinned[56]);
    }
    assert_int_equal(lv_pin_spread(layout, UINT64_MAX, pinned), layout->layer_bytes);
    lv_layout_free(&layout);
}

/* A pinned block takes whole pages: blocks of a page and a little must not pass the memory that is there. */
static void pinning_counts_pages(void **state) {
    (void)state;
    static lv_tensor tensors[20];
    static lv_layout_item items[20];
    for (uint32_t i = 0; i < 20; i++) {
        tensors[i] = matrix("m", i * MIB, 100, 41);
        items[i] = (lv_layout_item){&tensors[i], i, 0};
    }
    lv_layout *layout = build(items, 20, MIB);
    bool pinned[20];
    for (uint64_t target = 0; target < (uint64_t)300 << 10; target += 4096) {
        uint64_t sum = 0;
        const uint64_t bytes = lv_pin_spread(layout, target, pinned);
        for (uint32_t b = 0; b < layout->blocks_count; b++)
            sum += pinned[b] ? lv_block_memory_bytes(&layout->blocks[b]) : 0;
        assert_int_equal(bytes, sum);
        assert_true(sum <= target);
    }
    lv_layout_free(&layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_share_a_block),     cmocka_unit_test(what_does_not_lie_together_is_read_apart),
        cmocka_unit_test(a_large_matrix_is_cut_evenly), cmocka_unit_test(chunks_are_what_the_format_says),
        cmocka_unit_test(bad_input_is_refused),         cmocka_unit_test(pinning_is_spread),
        cmocka_unit_test(pinning_counts_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
