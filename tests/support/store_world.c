/* store_world.c - see store_world.h. */
#include "support/store_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/pack_file.h"
#include "flash/checks.h"
#include "support/check.h"

enum { TYPE_F32 = 0, ROW_ELEMENTS = 256, ROW_BYTES = ROW_ELEMENTS * 4 };
enum { ATTENTION_ROWS = 48, FEED_FORWARD_ROWS = 320, HEAD_ROWS = 700, TABLE_ROWS = 512, TENSORS = WORLD_ITEMS + 2 };

enum { FILE_BYTES_MAX = 12 << 20 };

/* The bytes of the file, and the same turned over: so that leases are compared at the speed of memory. */
static uint8_t known[2][FILE_BYTES_MAX];

uint8_t world_byte(uint64_t offset) {
    return (uint8_t)((offset * 0x9e3779b97f4a7c15u) >> 53);
}

static void fill_known(void) {
    for (uint64_t i = 0; i < FILE_BYTES_MAX; i++) {
        known[0][i] = world_byte(i);
        known[1][i] = (uint8_t)~known[0][i];
    }
}

/* The file order differs from the order of use, as in GGUFs from the usual converter. */
static const char *const names[7] = {"attn_k", "attn_output", "attn_q", "attn_v", "ffn_down", "ffn_gate", "ffn_up"};
static const int order_of_use[7] = {2, 0, 3, 1, 5, 6, 4};

static void describe(uint32_t index, lv_tensor *tensor, char *name, size_t capacity) {
    uint64_t rows = TABLE_ROWS;
    snprintf(name, capacity, "token_embd.weight");
    if (index == TENSORS - 1) {
        rows = 1;
        snprintf(name, capacity, "output_norm.weight");
    } else if (index == TENSORS - 2) {
        rows = HEAD_ROWS;
        snprintf(name, capacity, "output.weight");
    } else if (index > 0) {
        uint32_t role = (index - 1) % 7;
        rows = role < 4 ? ATTENTION_ROWS : FEED_FORWARD_ROWS;
        snprintf(name, capacity, "blk.%u.%s.weight", (index - 1) / 7, names[role]);
    }
    *tensor = (lv_tensor){.name = name,
                          .type = TYPE_F32,
                          .dims_count = index == TENSORS - 1 ? 1 : 2,
                          .dims = {ROW_ELEMENTS, rows, 1, 1},
                          .row_bytes = ROW_BYTES,
                          .rows_count = rows,
                          .bytes = rows * ROW_BYTES};
}

static void put(int descriptor, const void *data, size_t bytes) {
    if (write(descriptor, data, bytes) != (ssize_t)bytes) fail_msg("cannot write the test's model");
}

static void put_number(int descriptor, uint64_t number, size_t bytes) {
    put(descriptor, &number, bytes); /* the tests run on little-endian machines */
}

static void put_bytes(int descriptor, uint64_t offset, uint64_t bytes) {
    assert_true(offset + bytes <= FILE_BYTES_MAX);
    assert_int_equal(pwrite(descriptor, known[0] + offset, (size_t)bytes, (off_t)offset), bytes);
}

static void write_gguf(const char *path) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(descriptor >= 0);
    put(descriptor, "GGUF\3\0\0\0", 8);
    put_number(descriptor, TENSORS, 8);
    put_number(descriptor, 0, 8);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < TENSORS; i++) {
        lv_tensor tensor;
        char name[64];
        describe(i, &tensor, name, sizeof name);
        put_number(descriptor, strlen(name), 8);
        put(descriptor, name, strlen(name));
        put_number(descriptor, tensor.dims_count, 4);
        for (uint32_t d = 0; d < tensor.dims_count; d++) put_number(descriptor, tensor.dims[d], 8);
        put_number(descriptor, (uint64_t)tensor.type, 4);
        put_number(descriptor, offset, 8);
        offset += tensor.bytes + 96; /* not aligned to pages, and with a gap */
    }
    uint64_t begin = ((uint64_t)lseek(descriptor, 0, SEEK_CUR) + 31) / 32 * 32;
    put_bytes(descriptor, begin, offset);
    close(descriptor);
}

static void write_packed(const char *path) {
    char source[512];
    snprintf(source, sizeof source, "%s.source", path);
    write_gguf(source);
    lv_gguf *gguf = NULL;
    lever_error error;
    CHECK_OK(lv_gguf_open(&gguf, source, &(lv_file_options){0}, &error));

    static lv_packed_tensor tensors[TENSORS];
    static char tensor_names[TENSORS][64];
    for (uint32_t i = 0; i < TENSORS; i++) describe(i, &tensors[i].out, tensor_names[i], sizeof tensor_names[i]);
    lv_pack_file file;
    CHECK_OK(lv_pack_file_create(&file, path, &error));
    CHECK_OK(lv_pack_file_begin(&file, gguf, tensors, TENSORS, "a test", &error));
    for (uint32_t i = 0; i < TENSORS; i++) {
        const lv_tensor *out = &tensors[i].out;
        for (uint64_t chunk = 0; chunk < lv_chunks_count(out); chunk++) {
            uint64_t row = chunk * lv_chunk_rows(out), offset = out->offset + row * out->row_bytes;
            uint64_t rows = out->rows_count - row < lv_chunk_rows(out) ? out->rows_count - row : lv_chunk_rows(out);
            size_t bytes = (size_t)(rows * out->row_bytes);
            assert_true(offset + bytes <= FILE_BYTES_MAX);
            file.sums[tensors[i].chunk_first + chunk] = lv_checksum(known[0] + offset, bytes);
            CHECK_OK(lv_pack_file_write(&file, known[0] + offset, offset, bytes, &error));
        }
    }
    CHECK_OK(lv_pack_file_finish(&file, &error));
    lv_pack_file_close(&file);
    lv_gguf_close(&gguf);
    unlink(source);
}

void world_write(const char *path, bool packed) {
    if (known[1][0] == 0) fill_known();
    if (packed) {
        write_packed(path);
    } else {
        write_gguf(path);
    }
}

static void turn_over(void *user, uint32_t block, uint8_t *data) {
    const world *w = user;
    for (uint64_t i = 0; i < w->layout->blocks[block].bytes; i++) data[i] = (uint8_t)~data[i];
}

static void list_items(world *w) {
    for (uint32_t i = 0; i + 1 < WORLD_ITEMS; i++) {
        int role = order_of_use[i % 7];
        w->items[i] = (lv_layout_item){.tensor = lv_gguf_tensor(w->gguf, 1 + i / 7 * 7 + (uint32_t)role),
                                       .layer = i / 7,
                                       .group = role < 4 ? 0 : 1};
    }
    w->items[WORLD_ITEMS - 1] = (lv_layout_item){lv_gguf_tensor(w->gguf, TENSORS - 2), LV_LAYER_HEAD, 0};
}

lever_status world_open(world *w, const char *path, const world_options *options, lever_error *error) {
    *w = (world){0};
    lv_file_options file_options = {
        .direct = !options->buffered, .ledger = options->ledger, .log = options->log, .pacer = options->pacer};
    lever_status status = lv_gguf_open(&w->gguf, path, &file_options, error);
    if (status != LEVER_OK) return status;
    list_items(w);
    status = lv_layout_build(&w->layout, w->items, WORLD_ITEMS, WORLD_BLOCK_BYTES, options->ledger, error);
    if (status == LEVER_OK) {
        for (uint32_t i = 0; options->pinned > 0 && i < w->layout->blocks_count; i++)
            w->pinned[i] = i % options->pinned == 0;
        lv_store_options store_options = {.gguf = w->gguf,
                                          .layout = w->layout,
                                          .pinned = w->pinned,
                                          .slots_count = options->slots,
                                          .keeps = options->keeps,
                                          .lanes = options->lanes,
                                          .huge_pages = false,
                                          .verify = options->verify,
                                          .transform = options->transform ? turn_over : NULL,
                                          .transform_user = w,
                                          .clock = options->clock != NULL ? options->clock : &lv_clock_real,
                                          .log = options->log,
                                          .ledger = options->ledger,
                                          .progress = options->progress,
                                          .progress_user = options->progress_user,
                                          .cancel = options->cancel};
        status = lv_store_open(&w->store, &store_options, error);
    }
    if (status != LEVER_OK) world_close(w);
    return status;
}

void world_close(world *w) {
    lv_store_close(&w->store);
    lv_layout_free(&w->layout);
    lv_gguf_close(&w->gguf);
}

bool world_lease_is_right(const world *w, const lv_lease *lease) {
    const lv_block *block = &w->layout->blocks[lease->block];
    return memcmp(lease->data, known[lease->transformed] + block->offset, (size_t)block->bytes) == 0;
}

lever_status world_pass(world *w, bool head, lever_error *error) {
    uint32_t end = head ? w->layout->blocks_count : w->layout->head_block_first;
    for (uint32_t block = 0; block < end; block++) {
        lv_lease lease;
        lever_status status = lv_store_acquire(w->store, block, NULL, &lease, error);
        if (status != LEVER_OK) return status;
        assert_int_equal(lease.block, block);
        assert_true(world_lease_is_right(w, &lease));
        lv_store_release(w->store, &lease);
    }
    return LEVER_OK;
}
