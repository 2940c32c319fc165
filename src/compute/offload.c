/* offload.c - one product after the other: its rows are written once for all the matrices that take them; each block's
 * runs are queued as soon as it is on the device, so that the next one is uploaded while they are computed; then all
 * results are read. Padding is not written: whatever the buffer held before will do for rows that nobody looks at.
 *
 * Blocks come in the order of use, so that the buffer that was filled first is the one that is free first. What is
 * where follows from the order alone: offsets are counted anew when results are read. */
#include "compute/offload.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "compute/forward_state.h"

#define NOWHERE UINT32_MAX

/* --- Sizes ------------------------------------------------------------------------------------------------------- */

static lv_device_matrix matrix_of(const lv_weights *weights, const lv_segment *segment) {
    const lv_tensor *tensor = weights->items[segment->item].tensor;
    return (lv_device_matrix){tensor->type, tensor->dims[0], segment->rows_count};
}

/* From the beginning of a block's buffer to a segment, or to the end of the block. */
static uint64_t offset_in_block(lv_device *device, const lv_weights *weights, uint32_t block, uint32_t segment) {
    const lv_block *b = &weights->layout->blocks[block];
    uint64_t offset = 0;
    for (uint32_t s = b->segment_first; s < b->segment_first + b->segments_count && s != segment; s++) {
        const lv_device_matrix matrix = matrix_of(weights, &weights->layout->segments[s]);
        offset += lv_device_align(device, lv_device_part_bytes(device, &matrix));
    }
    return offset;
}

static uint64_t block_bytes(lv_device *device, const lv_weights *weights) {
    uint64_t most = 0;
    for (uint32_t b = 0; b < weights->layout->head_block_first; b++) {
        const uint64_t bytes = offset_in_block(device, weights, b, NOWHERE);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Of the device, of its buffers and of blocks: generous. */
static const uint64_t tables_bytes = (uint64_t)2 << 20;

/* Matrices of a layer that take the same rows. */
static const struct {
    lv_role first, last;
} groups[] = {
    {LV_ROLE_Q, LV_ROLE_V}, {LV_ROLE_OUTPUT, LV_ROLE_OUTPUT}, {LV_ROLE_GATE, LV_ROLE_UP}, {LV_ROLE_DOWN, LV_ROLE_DOWN}};

/* Rows of a run, or its results, in their buffer: the next run's begin behind them, where the device wants them to. */
static uint64_t run_bytes(const lv_device *device, uint32_t bucket, uint64_t width) {
    return lv_device_align(device, bucket * width * sizeof(float));
}

static uint64_t runs_bytes(const lv_device *device, uint64_t width, uint32_t rows) {
    uint64_t bytes = 0;
    for (uint32_t first = 0, bucket; first < rows; first += bucket) {
        bucket = lv_buckets_next(&device->facts.buckets, rows - first);
        bytes += run_bytes(device, bucket, width);
    }
    return bytes;
}

typedef struct {
    uint64_t in_bytes, out_bytes;
    size_t part_rows; /* the most of one segment */
} sizes;

static sizes sizes_of(const lv_device *device, const lv_weights *weights, uint32_t rows) {
    const lv_layout *layout = weights->layout;
    sizes s = {0};
    for (uint32_t l = 0; l < weights->model->hparams.layers_count; l++) {
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
            uint64_t bytes = 0;
            for (uint32_t role = groups[g].first; role <= (uint32_t)groups[g].last; role++) {
                const uint32_t item = lv_weights_item(l, (lv_role)role);
                const uint64_t in_bytes = runs_bytes(device, weights->items[item].tensor->dims[0], rows);
                if (in_bytes > s.in_bytes) s.in_bytes = in_bytes;
                for (uint32_t i = layout->item_segment_first[item]; i < layout->item_segment_first[item + 1]; i++) {
                    bytes += runs_bytes(device, layout->segments[i].rows_count, rows);
                    if (layout->segments[i].rows_count > s.part_rows)
                        s.part_rows = (size_t)layout->segments[i].rows_count;
                }
            }
            if (bytes > s.out_bytes) s.out_bytes = bytes;
        }
    }
    return s;
}

uint64_t lv_offload_buffer_bytes(lv_device *device, const lv_weights *weights) {
    const sizes s = sizes_of(device, weights, LV_OFFLOAD_ROWS_MAX);
    const uint64_t block = block_bytes(device, weights), rows = s.in_bytes > s.out_bytes ? s.in_bytes : s.out_bytes;
    return block > rows ? block : rows;
}

static uint32_t blocks_of(const lv_weights *weights, uint32_t blocks) {
    const uint32_t all = weights->layout->head_block_first;
    return blocks < all ? blocks : all;
}

static uint64_t prepare_bytes(lv_device *device, const lv_weights *weights) {
    const lv_layout *layout = weights->layout;
    const lv_buckets *buckets = &device->facts.buckets;
    uint64_t most = 0;
    for (uint32_t s = 0; s < layout->segments_count; s++) {
        if (layout->segments[s].block >= layout->head_block_first) continue;
        const lv_device_matrix matrix = matrix_of(weights, &layout->segments[s]);
        const uint64_t bytes = lv_device_prepare_bytes(device, &matrix, buckets->rows[buckets->count - 1]);
        if (bytes > most) most = bytes;
    }
    return most;
}

uint64_t lv_offload_bytes(lv_device *device, const lv_weights *weights, uint32_t blocks) {
    const sizes s = sizes_of(device, weights, LV_OFFLOAD_ROWS_MAX);
    const uint64_t block = lv_area_booked_bytes((size_t)block_bytes(device, weights));
    const uint64_t rows = lv_area_booked_bytes((size_t)s.in_bytes) + lv_area_booked_bytes((size_t)s.out_bytes) +
                          LV_OFFLOAD_ROWS_MAX * s.part_rows * sizeof(float);
    return blocks_of(weights, blocks) * block + rows + prepare_bytes(device, weights) + tables_bytes;
}

/* --- Opening and closing ----------------------------------------------------------------------------------------- */

static lever_status open_blocks(lv_offload *o, const lv_offload_options *options, lever_error *error) {
    const uint32_t blocks_count = o->weights->layout->head_block_first;
    const uint64_t bytes = block_bytes(o->device, o->weights);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_DEVICE, blocks_count, sizeof(uint32_t),
                            "the table of blocks on a device", error));
    o->slot_of_block = memory;
    for (uint32_t b = 0; b < blocks_count; b++) o->slot_of_block[b] = NOWHERE;
    const uint32_t slots_count = blocks_of(o->weights, options->blocks);
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_DEVICE, slots_count, sizeof(*o->slots),
                            "the buffers of blocks on a device", error));
    o->slots = memory;
    for (; o->slots_count < slots_count; o->slots_count++) {
        lv_offload_slot *slot = &o->slots[o->slots_count];
        slot->block = NOWHERE;
        LV_TRY(lv_device_buffer_open(o->device, bytes, &slot->buffer, error));
    }
    return LEVER_OK;
}

/* What padding is before there were other rows: a device may not like to compute with what was never written. */
static lever_status write_zeros(const lv_offload *o, uint64_t bytes, lever_error *error) {
    static const float zeros[LV_DEVICE_ALIGNMENT_MAX / sizeof(float)];
    for (uint64_t at = 0; at < bytes; at += sizeof(zeros)) {
        const uint64_t left = bytes - at;
        const size_t count = (size_t)(left < sizeof(zeros) ? left : sizeof(zeros)) / sizeof(float);
        LV_TRY(lv_device_write(o->in, at, zeros, count, error));
    }
    return LEVER_OK;
}

static lever_status open_rows(lv_offload *o, const lv_offload_options *options, lever_error *error) {
    const sizes s = sizes_of(o->device, o->weights, options->rows_max);
    LV_TRY(lv_device_buffer_open(o->device, s.in_bytes, &o->in, error));
    LV_TRY(lv_device_buffer_open(o->device, s.out_bytes, &o->out, error));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_DEVICE, options->rows_max * s.part_rows, sizeof(float),
                            "results of a device", error));
    o->results = memory;
    return write_zeros(o, s.in_bytes, error);
}

static lever_status prepare(lv_offload *o, lever_error *error) {
    const lv_layout *layout = o->weights->layout;
    for (uint32_t s = 0; s < layout->segments_count; s++) {
        if (layout->segments[s].block >= layout->head_block_first) continue;
        const lv_device_matrix matrix = matrix_of(o->weights, &layout->segments[s]);
        for (uint32_t b = 0; b < o->device->facts.buckets.count; b++) {
            LV_TRY(lv_device_prepare(o->device, &matrix, o->device->facts.buckets.rows[b], error));
        }
    }
    return LEVER_OK;
}

lever_status lv_offload_open(lv_offload **out, const lv_offload_options *options, lever_error *error) {
    *out = NULL;
    assert(options->rows_max <= LV_OFFLOAD_ROWS_MAX);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_DEVICE, 1, sizeof(lv_offload), "a device's part of a pass",
                            error));
    lv_offload *o = memory;
    o->device = options->device;
    o->weights = options->weights;
    o->log = options->log;
    o->placement = (lv_placement){.buckets = options->device->facts.buckets, .always = options->always};
    atomic_init(&o->failed, false);
    atomic_init(&o->used, options->always);
    lv_log_write(o->log, LEVER_LOG_DEBUG, "device %s: preparing for %u layers, opening buffers",
                 options->device->facts.name, o->weights->model->hparams.layers_count);
    lever_status status = prepare(o, error);
    if (status == LEVER_OK) status = open_blocks(o, options, error);
    if (status == LEVER_OK) status = open_rows(o, options, error);
    if (status != LEVER_OK) {
        lv_error_prefix(error, "the device %s: ", options->device->facts.name);
        lv_offload_close(&o);
        return status;
    }
    *out = o;
    return LEVER_OK;
}

void lv_offload_close(lv_offload **out) {
    if (!out || !*out) return;
    lv_offload *o = *out;
    for (uint32_t i = 0; i < o->slots_count; i++) lv_device_buffer_close(&o->slots[i].buffer);
    lv_device_buffer_close(&o->in);
    lv_device_buffer_close(&o->out);
    lv_free(o->slots);
    lv_free(o->slot_of_block);
    lv_free(o->results);
    lv_free(o);
    *out = NULL;
}

bool lv_offload_failed(const lv_offload *o) {
    return atomic_load_explicit(&o->failed, memory_order_relaxed);
}

/* --- Products ---------------------------------------------------------------------------------------------------- */

/* Marks a failure as the device's own: the CPU then takes over. */
static lever_status by_device(lv_offload *o, lever_status status) {
    if (status != LEVER_OK) atomic_store_explicit(&o->failed, true, memory_order_relaxed);
    return status;
}

static lever_status write_rows(lv_offload *o, const float *in, size_t width, size_t rows_count, lever_error *error) {
    uint64_t offset = 0;
    for (uint32_t first = 0, bucket; first < rows_count; first += bucket) {
        const uint32_t left = (uint32_t)rows_count - first;
        bucket = lv_buckets_next(&o->device->facts.buckets, left);
        const size_t count = left < bucket ? left : bucket;
        LV_TRY(by_device(o, lv_device_write(o->in, offset, in + first * width, count * width, error)));
        offset += run_bytes(o->device, bucket, width);
    }
    return LEVER_OK;
}

static lever_status upload(lv_offload *o, lv_offload_slot *slot, const lv_lease *lease, lever_error *error) {
    const lv_layout *layout = o->weights->layout;
    const lv_block *block = &layout->blocks[lease->block];
    LV_TRY(lv_device_clear(slot->buffer, error));
    uint64_t offset = 0;
    for (uint32_t s = block->segment_first; s < block->segment_first + block->segments_count; s++) {
        const lv_segment *segment = &layout->segments[s];
        const lv_device_matrix matrix = matrix_of(o->weights, segment);
        const lv_weight_layout lies = lv_weights_layout_of(o->weights->items[segment->item].tensor, lease->transformed);
        LV_TRY(lv_device_upload(slot->buffer, offset, &matrix, lies, lease->data + segment->block_offset, error));
        offset += lv_device_align(o->device, lv_device_part_bytes(o->device, &matrix));
    }
    return LEVER_OK;
}

static lever_status take_block(lv_forward *f, uint32_t block, lv_offload_slot **out, lever_error *error) {
    lv_offload *o = f->offload;
    if (o->slot_of_block[block] != NOWHERE) {
        *out = &o->slots[o->slot_of_block[block]];
        return LEVER_OK;
    }
    lv_offload_slot *slot = &o->slots[o->slot_next];
    LV_TRY(by_device(o, lv_device_wait(o->device, slot->ticket, error)));
    const lv_lease *lease = NULL;
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    LV_TRY(lv_forward_wait_block(f, block, &lease, error));
    o->wait_ns += lv_clock_now_ns(&lv_clock_real) - begin_ns;
    if (slot->block != NOWHERE) o->slot_of_block[slot->block] = NOWHERE;
    slot->block = NOWHERE;
    const lever_status status = by_device(o, upload(o, slot, lease, error));
    if (!f->keep_leases) {
        lv_forward_release_all(f);
        if (f->options.on_block) f->options.on_block(f->options.user);
    }
    if (status != LEVER_OK) return status;
    slot->block = block;
    o->slot_of_block[block] = o->slot_next;
    o->slot_next = (o->slot_next + 1) % o->slots_count;
    *out = slot;
    return LEVER_OK;
}

/* Goes through the runs of a product in order, the same for computing and for reading. */
typedef struct {
    size_t width, rows_count;
    uint64_t out_offset; /* of the next result */
} cursor;

static lever_status run_segment(lv_forward *f, cursor *at, uint32_t segment, lever_error *error) {
    lv_offload *o = f->offload;
    const lv_segment *s = &o->weights->layout->segments[segment];
    lv_offload_slot *slot = NULL;
    LV_TRY(take_block(f, s->block, &slot, error));
    lv_device_product product = {
        .matrix = matrix_of(o->weights, s),
        .weights = slot->buffer,
        .weights_offset = offset_in_block(o->device, o->weights, s->block, segment),
        .in = o->in,
        .out = o->out,
    };
    for (uint32_t first = 0; first < at->rows_count; first += product.bucket) {
        product.bucket = lv_buckets_next(&o->device->facts.buckets, (uint32_t)at->rows_count - first);
        product.out_offset = at->out_offset;
        LV_TRY(by_device(o, lv_device_run(o->device, &product, &slot->ticket, error)));
        o->ticket = slot->ticket;
        product.in_offset += run_bytes(o->device, product.bucket, at->width);
        at->out_offset += run_bytes(o->device, product.bucket, s->rows_count);
    }
    return LEVER_OK;
}

static void place_results(const lv_forward_linear *matrix, const lv_segment *s, const float *results, size_t first,
                          size_t count) {
    for (size_t row = 0; row < count; row++) {
        float *out = matrix->out + (first + row) * matrix->out_stride + s->row_first;
        const float *in = results + row * s->rows_count;
        if (matrix->bias) {
            const float *bias = matrix->bias + s->row_first;
            for (size_t i = 0; i < s->rows_count; i++) out[i] = in[i] + bias[i];
        } else {
            memcpy(out, in, s->rows_count * sizeof(*out));
        }
    }
}

static lever_status read_segment(lv_offload *o, cursor *at, const lv_forward_linear *matrix, uint32_t segment,
                                 lever_error *error) {
    const lv_segment *s = &o->weights->layout->segments[segment];
    for (uint32_t first = 0, bucket; first < at->rows_count; first += bucket) {
        const uint32_t left = (uint32_t)at->rows_count - first;
        bucket = lv_buckets_next(&o->device->facts.buckets, left);
        const size_t count = left < bucket ? left : bucket;
        LV_TRY(lv_device_read(o->out, at->out_offset, o->results, count * s->rows_count, error));
        place_results(matrix, s, o->results, first, count);
        at->out_offset += run_bytes(o->device, bucket, s->rows_count);
    }
    return LEVER_OK;
}

static lever_status run_all(lv_forward *f, const float *in, size_t width, size_t rows_count,
                            const lv_forward_linear *matrices, size_t matrices_count, lever_error *error) {
    lv_offload *o = f->offload;
    const uint32_t *segment_first = o->weights->layout->item_segment_first;
    LV_TRY(write_rows(o, in, width, rows_count, error));
    cursor at = {.width = width, .rows_count = rows_count};
    for (size_t i = 0; i < matrices_count; i++) {
        for (uint32_t s = segment_first[matrices[i].item]; s < segment_first[matrices[i].item + 1]; s++) {
            LV_TRY(run_segment(f, &at, s, error));
        }
    }
    LV_TRY(by_device(o, lv_device_wait(o->device, o->ticket, error)));
    at.out_offset = 0;
    for (size_t i = 0; i < matrices_count; i++) {
        for (uint32_t s = segment_first[matrices[i].item]; s < segment_first[matrices[i].item + 1]; s++) {
            LV_TRY(by_device(o, read_segment(o, &at, &matrices[i], s, error)));
        }
    }
    return LEVER_OK;
}

lever_status lv_offload_products(lv_forward *f, const float *in, size_t width, size_t rows_count,
                                 const lv_forward_linear *matrices, size_t matrices_count, lever_error *error) {
    lv_offload *o = f->offload;
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real), wait_ns = o->wait_ns;
    const lever_status status = run_all(f, in, width, rows_count, matrices, matrices_count, error);
    /* What is still queued uses buffers that the next product writes. */
    if (status != LEVER_OK) (void)lv_device_wait(o->device, o->ticket, NULL);
    const uint64_t spent_ns = lv_clock_now_ns(&lv_clock_real) - begin_ns - (o->wait_ns - wait_ns);
    atomic_fetch_add_explicit(&o->compute_ns, spent_ns, memory_order_relaxed);
    return status;
}
