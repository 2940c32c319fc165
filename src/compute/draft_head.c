/* draft_head.c - the rows lie as pinned blocks do: in tiles where the type has a kernel, else as in the file.
 *
 * The rows that are always there are read in long runs, straight to where they stay, and turned into tiles in place. An
 * extra row goes into a tile that others share: the tile is unpacked, one row replaced, and packed again. That takes
 * some ten microseconds, a fraction of the read that brings the row, and saves a second copy of all extras. Rows that
 * change their type are read in runs to a buffer that is given back when the head is open, and rewritten tile by tile.
 *
 * Two bitmaps over the vocabulary answer in one step what a prompt of thousands of tokens asks: has this token a row,
 * and is it wanted by the call that runs, so that it must not leave for another one. */
#include "compute/draft_head.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "compute/convert.h"
#include "compute/kernels/kernel.h"
#include "compute/row_cache.h"

#define RUN_BYTES ((uint64_t)1 << 20)

struct lv_draft_head {
    const lv_tensor *output;
    lv_store *store;
    lv_tensor tensor; /* how the rows lie here; its offset means nothing */
    lv_area area;     /* the rows */
    uint8_t *scratch; /* two tiles of the file's type */
    uint8_t *tiles;   /* two tiles as they are kept */
    float *floats;    /* a tile's rows; NULL: the type is the file's */
    uint32_t first_rows, extras_count;
    uint32_t extra_next; /* the extra that is the first to leave */
    int32_t *extras;     /* the token of each extra row; -1: unused */
    uint64_t version;
    uint8_t *known, *wanted; /* a bit for each token: it has a row; it is asked for by the call that runs */
};

/* --- Sizes ---------------------------------------------------------------------------------------------------------
 */

typedef struct {
    uint32_t first_rows, extras_count;
    int32_t type; /* of the rows as they are kept */
    size_t row_bytes;
    size_t rows_bytes, scratch_bytes, tiles_bytes, floats_bytes, extras_bytes, bitmap_bytes;
} sizes;

static uint64_t whole_tiles(uint64_t rows) {
    return (rows + LV_TILE_ROWS - 1) / LV_TILE_ROWS * LV_TILE_ROWS;
}

static void choose_type(const lv_tensor *output, const lv_draft_head_shape *shape, bool whole, sizes *s) {
    s->type = output->type;
    s->row_bytes = (size_t)output->row_bytes;
    int32_t small_type;
    if (!shape->small || whole || !lv_convert_type("q4_0", &small_type) || !lv_convert_reads(output->type)) return;
    const uint64_t bytes = lv_convert_row_bytes(small_type, output->dims[0]);
    if (bytes == 0 || bytes >= output->row_bytes || !lv_kernel_supports(small_type, output->dims[0])) return;
    s->type = small_type;
    s->row_bytes = (size_t)bytes;
    s->floats_bytes = LV_TILE_ROWS * (size_t)output->dims[0] * sizeof(float);
}

static sizes sizes_of(const lv_tensor *output, const lv_draft_head_shape *shape) {
    const uint64_t all = whole_tiles(output->rows_count);
    const uint64_t first = whole_tiles(shape->tokens_first), left = first < output->rows_count ? all - first : 0;
    const uint64_t extras = whole_tiles(shape->extras_max);
    sizes s = {
        .first_rows = (uint32_t)(left > 0 ? first : all),
        .extras_count = (uint32_t)(extras < left ? extras : left),
        .scratch_bytes = 2 * LV_TILE_ROWS * (size_t)output->row_bytes,
        .bitmap_bytes = (size_t)(output->rows_count + 7) / 8,
    };
    choose_type(output, shape, s.first_rows + s.extras_count >= output->rows_count, &s);
    s.tiles_bytes = 2 * LV_TILE_ROWS * s.row_bytes;
    s.rows_bytes = ((size_t)s.first_rows + s.extras_count) * s.row_bytes;
    s.extras_bytes = s.extras_count * sizeof(int32_t);
    return s;
}

static size_t table_bytes(const sizes *s) {
    return s->floats_bytes + s->extras_bytes + s->scratch_bytes + s->tiles_bytes + 2 * s->bitmap_bytes;
}

/* Of the buffer through which rows of another type come, while opening. */
static size_t run_bytes(const lv_tensor *output, const sizes *s) {
    const uint64_t rows = whole_tiles(RUN_BYTES / output->row_bytes);
    return s->floats_bytes ? (size_t)((rows < s->first_rows ? rows : s->first_rows) * output->row_bytes) : 0;
}

uint64_t lv_draft_head_bytes(const lv_tensor *output, const lv_draft_head_shape *shape) {
    const sizes s = sizes_of(output, shape);
    return lv_area_booked_bytes(s.rows_bytes) + table_bytes(&s) + run_bytes(output, &s) + sizeof(lv_draft_head);
}

/* --- Rows ----------------------------------------------------------------------------------------------------------
 */

static bool lies_in_tiles(const lv_draft_head *head) {
    return head->tensor.layout == LV_LAYOUT_TILES;
}

static uint8_t *tile_at(const lv_draft_head *head, uint64_t row) {
    return head->area.data + row / LV_TILE_ROWS * LV_TILE_ROWS * head->tensor.row_bytes;
}

static void keep_tile(const lv_draft_head *head, const uint8_t *rows, uint8_t *to) {
    if (lies_in_tiles(head)) {
        lv_tile_pack(head->tensor.type, (size_t)head->tensor.dims[0], rows, to);
    } else {
        memcpy(to, rows, LV_TILE_ROWS * (size_t)head->tensor.row_bytes);
    }
}

/* A tile's worth of rows as they came from the file, `rows_count` of them, to where they stay. */
static void convert_tile(lv_draft_head *head, const uint8_t *from, uint64_t rows_count, uint8_t *to) {
    const lv_tensor *output = head->output;
    const size_t elements = (size_t)output->dims[0];
    if (output->layout == LV_LAYOUT_TILES) {
        lv_tile_unpack(output->type, elements, from, head->scratch);
        from = head->scratch;
    }
    memset(head->tiles, 0, LV_TILE_ROWS * (size_t)head->tensor.row_bytes);
    lv_convert_rows(output->type, from, head->tensor.type, head->tiles, elements, rows_count, head->floats);
    keep_tile(head, head->tiles, to);
}

/* Rows [row, row + count) of the file to `data`, and from there to their tiles. Rows of the file's own type may lie
 * where they stay already. */
static lever_status read_run(lv_draft_head *head, uint64_t row, uint64_t count, uint8_t *data, lever_error *error) {
    const lv_tensor *output = head->output;
    const size_t file_tile_bytes = LV_TILE_ROWS * (size_t)output->row_bytes;
    LV_TRY(lv_store_read_rows(head->store, output, row, count, data, error));
    if (!head->floats && (!lies_in_tiles(head) || output->layout == LV_LAYOUT_TILES)) return LEVER_OK;
    for (uint64_t done = 0; done < count; done += LV_TILE_ROWS, data += file_tile_bytes) {
        if (head->floats) {
            const uint64_t rows = count - done < LV_TILE_ROWS ? count - done : LV_TILE_ROWS;
            convert_tile(head, data, rows, tile_at(head, row + done));
        } else {
            memcpy(head->scratch, data, file_tile_bytes);
            keep_tile(head, head->scratch, data);
        }
    }
    return LEVER_OK;
}

/* Of a vocabulary that is no multiple of 16 the last tile is filled up with rows of zeros. */
static lever_status read_first_rows(lv_draft_head *head, uint8_t *buffer, const atomic_bool *cancel,
                                    lever_error *error) {
    const lv_tensor *output = head->output;
    const uint64_t rows_count = head->first_rows < output->rows_count ? head->first_rows : output->rows_count;
    const uint64_t run = whole_tiles(RUN_BYTES / output->row_bytes);
    for (uint64_t row = 0; row < rows_count; row += run) {
        if (cancel != NULL && atomic_load(cancel)) return lv_fail(error, LEVER_E_CANCELLED, "cancelled");
        const uint64_t count = rows_count - row < run ? rows_count - row : run;
        LV_TRY(read_run(head, row, count, buffer ? buffer : tile_at(head, row), error));
    }
    for (uint64_t token = 0; token < rows_count; token++) head->known[token / 8] |= (uint8_t)(1u << token % 8);
    return LEVER_OK;
}

/* Puts the row that stands at the beginning of the scratch memory where `row` is. */
static void place_row(lv_draft_head *head, uint64_t row) {
    const size_t row_bytes = (size_t)head->tensor.row_bytes, elements = (size_t)head->tensor.dims[0];
    const uint8_t *data = head->scratch;
    if (head->floats) {
        lv_convert_rows(head->output->type, head->scratch, head->tensor.type, head->tiles, elements, 1, head->floats);
        data = head->tiles;
    }
    if (!lies_in_tiles(head)) {
        memcpy(head->area.data + row * row_bytes, data, row_bytes);
        return;
    }
    uint8_t *rows = head->tiles + LV_TILE_ROWS * row_bytes, *tile = tile_at(head, row);
    lv_tile_unpack(head->tensor.type, elements, tile, rows);
    memcpy(rows + row % LV_TILE_ROWS * row_bytes, data, row_bytes);
    lv_tile_pack(head->tensor.type, elements, rows, tile);
}

/* --- Opening and closing -------------------------------------------------------------------------------------------
 */

static lever_status fill(lv_draft_head *head, size_t buffer_bytes, const atomic_bool *cancel, lv_ledger *ledger,
                         lever_error *error) {
    const lv_area_options area = {.huge_pages = true, .touch = true};
    LV_TRY(
        lv_area_open(&head->area, ledger, LV_MEM_DRAFT, (size_t)head->tensor.bytes, &area, "the draft's head", error));
    void *buffer = NULL;
    if (buffer_bytes > 0) {
        LV_TRY(lv_alloc_checked(&buffer, ledger, LV_MEM_DRAFT, 1, buffer_bytes, "rows of the draft's head", error));
    }
    const lever_status status = read_first_rows(head, buffer, cancel, error);
    lv_free(buffer);
    return status;
}

lever_status lv_draft_head_open(lv_draft_head **out, const lv_tensor *output, lv_store *store,
                                const lv_draft_head_shape *shape, const atomic_bool *cancel, lv_ledger *ledger,
                                lever_error *error) {
    *out = NULL;
    const sizes s = sizes_of(output, shape);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_DRAFT, 1, sizeof(lv_draft_head) + table_bytes(&s),
                            "the tables of the draft's head", error));
    lv_draft_head *head = memory;
    head->output = output;
    head->store = store;
    head->first_rows = s.first_rows;
    head->extras_count = s.extras_count;
    uint8_t *tables = (uint8_t *)(head + 1);
    head->floats = s.floats_bytes ? (float *)(void *)tables : NULL;
    head->extras = (int32_t *)(void *)(tables + s.floats_bytes);
    head->scratch = (uint8_t *)head->extras + s.extras_bytes;
    head->tiles = head->scratch + s.scratch_bytes;
    head->known = head->tiles + s.tiles_bytes;
    head->wanted = head->known + s.bitmap_bytes;
    for (uint32_t i = 0; i < s.extras_count; i++) head->extras[i] = -1;
    head->tensor = *output;
    head->tensor.type = s.type;
    head->tensor.row_bytes = s.row_bytes;
    head->tensor.rows_count = s.first_rows + s.extras_count;
    head->tensor.dims[1] = head->tensor.rows_count;
    head->tensor.bytes = s.rows_bytes;
    head->tensor.layout = lv_kernel_supports(s.type, output->dims[0]) ? LV_LAYOUT_TILES : LV_LAYOUT_ROWS;
    const lever_status status = fill(head, run_bytes(output, &s), cancel, ledger, error);
    if (status != LEVER_OK) {
        lv_draft_head_close(&head);
        return status;
    }
    *out = head;
    return LEVER_OK;
}

void lv_draft_head_close(lv_draft_head **out) {
    if (out == NULL || *out == NULL) return;
    lv_area_close(&(*out)->area);
    lv_free(*out);
    *out = NULL;
}

/* --- Extras --------------------------------------------------------------------------------------------------------
 */

static bool has_bit(const uint8_t *bits, int32_t token) {
    return bits[token / 8] >> token % 8 & 1;
}

static void set_bit(uint8_t *bits, int32_t token, bool value) {
    const uint8_t bit = (uint8_t)(1u << token % 8);
    bits[token / 8] = (uint8_t)(value ? bits[token / 8] | bit : bits[token / 8] & ~bit);
}

static bool is_token(const lv_draft_head *head, int32_t token) {
    return token >= 0 && (uint64_t)token < head->output->rows_count;
}

/* Moves extra_next to a row that is free, or whose token the running call does not want. False: there is none. */
static bool find_room(lv_draft_head *head) {
    for (uint32_t looked = 0; looked < head->extras_count; looked++) {
        const int32_t token = head->extras[head->extra_next];
        if (token < 0 || !has_bit(head->wanted, token)) return true;
        head->extra_next = (head->extra_next + 1) % head->extras_count;
    }
    return false;
}

static lever_status add_extra(lv_draft_head *head, int32_t token, lever_error *error) {
    LV_TRY(lv_row_read(head->store, head->output, (uint64_t)token, head->scratch, head->scratch, error));
    int32_t *extra = &head->extras[head->extra_next];
    if (*extra >= 0) set_bit(head->known, *extra, false);
    place_row(head, (uint64_t)head->first_rows + head->extra_next);
    *extra = token;
    set_bit(head->known, token, true);
    head->version++;
    head->extra_next = (head->extra_next + 1) % head->extras_count;
    return LEVER_OK;
}

lever_status lv_draft_head_add(lv_draft_head *head, const int32_t *tokens, size_t tokens_count, lever_error *error) {
    for (size_t i = 0; i < tokens_count; i++) {
        if (is_token(head, tokens[i])) set_bit(head->wanted, tokens[i], true);
    }
    lever_status status = LEVER_OK;
    for (size_t i = 0; i < tokens_count && status == LEVER_OK; i++) {
        if (!is_token(head, tokens[i]) || has_bit(head->known, tokens[i])) continue;
        if (!find_room(head)) break;
        status = add_extra(head, tokens[i], error);
    }
    for (size_t i = 0; i < tokens_count; i++) {
        if (is_token(head, tokens[i])) set_bit(head->wanted, tokens[i], false);
    }
    return status;
}

uint64_t lv_draft_head_version(const lv_draft_head *head) {
    return head->version;
}

uint32_t lv_draft_head_rows_count(const lv_draft_head *head) {
    return head->first_rows + head->extras_count;
}

int32_t lv_draft_head_token(const lv_draft_head *head, uint32_t row) {
    assert(row < lv_draft_head_rows_count(head));
    if (row >= head->first_rows) return head->extras[row - head->first_rows];
    return row < head->output->rows_count ? (int32_t)row : -1;
}

const lv_tensor *lv_draft_head_tensor(const lv_draft_head *head) {
    return &head->tensor;
}

const uint8_t *lv_draft_head_data(const lv_draft_head *head) {
    return head->area.data;
}
