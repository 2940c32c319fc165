/* device_probe.c - made-up weights A and B: A, B and A again go into the same buffer, and each time a product is
 * compared with what the CPU makes of them. A device with the CPU's bits must give these bits; another one has to come
 * near what floats give.
 *
 * Few rows do for what is right; what it costs is measured with the largest run of rows that a block of this model has.
 * The first run of a shape may compile something: it is not timed. */
#include "compute/device_probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "compute/offload.h"
#include "ggml.h"

enum { ROWS = 64, TIMES = 3 };

/* Of the length of a sum of this many random products. */
static const double tolerance = 0.1;
/* Measured times vary: a device must be slower than this to be refused. */
static const double pays_share = 1.15;

typedef struct {
    lv_device *device;
    const lv_device_probe_options *options;
    lv_device_findings *findings;
    lv_device_buffer *weights, *in, *out;
    uint8_t *made[2];  /* A and B, as rows */
    float *rows;       /* of activations: the largest bucket */
    float *floats;     /* ROWS rows */
    float *got, *want; /* bucket x ROWS */
    uint8_t *rounded, *scratch;
    size_t elements;
} probe;

static lever_status refuse(probe *p, lv_device_verdict verdict, const char *why) {
    p->findings->verdict = verdict;
    snprintf(p->findings->reason, sizeof(p->findings->reason), "%s", why);
    return LEVER_OK;
}

static uint32_t largest_bucket(const probe *p) {
    return p->device->facts.buckets.rows[p->device->facts.buckets.count - 1];
}

/* --- What it can run --------------------------------------------------------------------------------------------- */

/* The first matrix that the device does not run. */
static const lv_tensor *first_unsupported(const lv_device *device, const lv_weights *weights) {
    const lv_layout *layout = weights->layout;
    for (uint32_t s = 0; s < layout->segments_count; s++) {
        const lv_segment *segment = &layout->segments[s];
        if (segment->block >= layout->head_block_first) continue;
        const lv_tensor *tensor = weights->items[segment->item].tensor;
        const lv_device_matrix matrix = {tensor->type, tensor->dims[0], segment->rows_count};
        if (!lv_device_supports(device, &matrix)) return tensor;
    }
    return NULL;
}

static lever_status check_shapes(probe *p) {
    char text[256], type[32];
    const lv_tensor *tensor = first_unsupported(p->device, p->options->weights);
    if (tensor) {
        snprintf(text, sizeof(text), "it does not run %s, of type %s with %llu rows of %llu", tensor->name,
                 lv_gguf_tensor_type_name(tensor->type, type, sizeof(type)), (unsigned long long)tensor->rows_count,
                 (unsigned long long)tensor->dims[0]);
        return refuse(p, LV_DEVICE_REFUSED, text);
    }
    const uint64_t bytes = lv_offload_buffer_bytes(p->device, p->options->weights);
    if (bytes > p->device->facts.buffer_bytes_max) {
        snprintf(text, sizeof(text), "a buffer of %llu bytes is needed, and the largest that it gives has %llu",
                 (unsigned long long)bytes, (unsigned long long)p->device->facts.buffer_bytes_max);
        return refuse(p, LV_DEVICE_REFUSED, text);
    }
    return LEVER_OK;
}

/* --- Memory ------------------------------------------------------------------------------------------------------ */

static lever_status take(void **memory, const probe *p, size_t bytes, lever_error *error) {
    return lv_alloc_checked(memory, p->device->ledger, LV_MEM_DEVICE, 1, bytes + 64, "trying a device", error);
}

static void close_memory(probe *p) {
    lv_device_buffer_close(&p->weights);
    lv_device_buffer_close(&p->in);
    lv_device_buffer_close(&p->out);
    void *const all[] = {p->made[0], p->made[1], p->rows, p->floats, p->got, p->want, p->rounded, p->scratch};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) lv_free(all[i]);
}

static lever_status open_memory(probe *p, const lv_device_matrix *matrix, lever_error *error) {
    const size_t bucket = largest_bucket(p), elements = (size_t)matrix->row_elements;
    const size_t rows_bytes = ggml_row_size((enum ggml_type)matrix->type, (int64_t)elements) * ROWS;
    const size_t rounded = (elements + 255) / 256 * 256;
    p->elements = elements;
    void *memory[8] = {NULL};
    const size_t bytes[8] = {
        rows_bytes,
        rows_bytes,
        bucket * elements * sizeof(float),
        ROWS * elements * sizeof(float),
        bucket * ROWS * sizeof(float),
        bucket * ROWS * sizeof(float),
        bucket *
            (lv_activation_row_bytes(LV_ACTIVATION_32, rounded) + lv_activation_row_bytes(LV_ACTIVATION_256, rounded)),
        lv_kernel_scratch_bytes(elements),
    };
    lever_status status = LEVER_OK;
    for (size_t i = 0; i < 8 && status == LEVER_OK; i++) status = take(&memory[i], p, bytes[i], error);
    p->made[0] = memory[0];
    p->made[1] = memory[1];
    p->rows = memory[2];
    p->floats = memory[3];
    p->got = memory[4];
    p->want = memory[5];
    p->rounded = memory[6];
    p->scratch = memory[7];
    return status;
}

static lever_status open_buffers(probe *p, const lv_device_matrix *matrix, lever_error *error) {
    const uint64_t bucket = largest_bucket(p);
    lever_status status = lv_device_buffer_open(
        p->device, lv_device_align(p->device, lv_device_part_bytes(p->device, matrix)), &p->weights, error);
    if (status == LEVER_OK) {
        status = lv_device_buffer_open(p->device, bucket * matrix->row_elements * sizeof(float), &p->in, error);
    }
    if (status == LEVER_OK) {
        status = lv_device_buffer_open(p->device, bucket * matrix->rows_count * sizeof(float), &p->out, error);
    }
    return status;
}

/* --- Right results ----------------------------------------------------------------------------------------------- */

static void fill_noise(float *values, size_t count, uint32_t state) {
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)((double)state / 2147483648.0 - 1.0);
    }
}

static void make_weights(probe *p, const lv_device_matrix *matrix) {
    const enum ggml_type type = (enum ggml_type)matrix->type;
    /* Some types cannot be made without importances; all alike will do. */
    for (size_t i = 0; i < p->elements; i++) p->rows[i] = 1.0f;
    for (uint32_t which = 0; which < 2; which++) {
        fill_noise(p->floats, ROWS * p->elements, 7 + which);
        ggml_quantize_chunk(type, p->floats, p->made[which], 0, ROWS, (int64_t)p->elements, p->rows);
    }
    fill_noise(p->rows, largest_bucket(p) * p->elements, 99);
}

static uint8_t *align64(uint8_t *at) {
    return at + (64 - (uintptr_t)at % 64) % 64;
}

/* What lever's kernels make of `bucket` rows. */
static void compute_exact(probe *p, const lv_device_matrix *matrix, const uint8_t *weights, uint32_t bucket,
                          float *out) {
    const lv_activation_format format = lv_kernel_activation(matrix->type);
    const size_t stride = lv_activation_row_bytes(format, p->elements);
    uint8_t *rounded = align64(p->rounded);
    for (size_t row = 0; row < bucket; row++) {
        lv_activation_round(p->options->kernels, format, p->rows + row * p->elements, p->elements,
                            rounded + row * stride, 0, p->elements / (format == LV_ACTIVATION_32 ? 32 : 256));
    }
    const lv_product product = {
        .type = matrix->type,
        .layout = LV_LAYOUT_ROWS,
        .weights = weights,
        .rows_count = (size_t)matrix->rows_count,
        .row_elements = p->elements,
        .activations = rounded,
        .activation_stride = stride,
        .batch_count = bucket,
        .out = out,
        .out_stride = (size_t)matrix->rows_count,
    };
    lv_product_run(p->options->kernels, &product, 0, (product.rows_count + LV_TILE_ROWS - 1) / LV_TILE_ROWS,
                   align64(p->scratch));
}

static void compute_floats(probe *p, const lv_device_matrix *matrix, const uint8_t *weights, uint32_t bucket) {
    if (matrix->type == GGML_TYPE_F32) {
        memcpy(p->floats, weights, ROWS * p->elements * sizeof(float));
    } else {
        ggml_get_type_traits((enum ggml_type)matrix->type)->to_float(weights, p->floats, (int64_t)(ROWS * p->elements));
    }
    for (size_t row = 0; row < bucket; row++) {
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (size_t i = 0; i < p->elements; i++) {
                sum += (double)p->rows[row * p->elements + i] * (double)p->floats[r * p->elements + i];
            }
            p->want[row * ROWS + r] = (float)sum;
        }
    }
}

static bool is_right(const probe *p, uint32_t bucket) {
    if (p->device->facts.same_bits) return memcmp(p->got, p->want, bucket * ROWS * sizeof(float)) == 0;
    const double most = tolerance * sqrt((double)p->elements) / 3; /* values lie evenly between -1 and 1 */
    for (size_t i = 0; i < bucket * (size_t)ROWS; i++) {
        if (!(fabs((double)p->got[i] - (double)p->want[i]) <= most)) return false;
    }
    return true;
}

static lever_status run_once(probe *p, const lv_device_matrix *matrix, uint32_t bucket, lever_error *error) {
    const lv_device_product product = {
        .matrix = *matrix, .bucket = bucket, .weights = p->weights, .in = p->in, .out = p->out};
    uint64_t ticket = 0;
    LV_TRY(lv_device_run(p->device, &product, &ticket, error));
    return lv_device_wait(p->device, ticket, error);
}

static lever_status load(probe *p, const lv_device_matrix *matrix, const void *weights, lever_error *error) {
    LV_TRY(lv_device_clear(p->weights, error));
    return lv_device_upload(p->weights, 0, matrix, LV_LAYOUT_ROWS, weights, error);
}

static lever_status try_bucket(probe *p, const lv_device_matrix *matrix, uint32_t which, uint32_t bucket, bool *right,
                               lever_error *error) {
    LV_TRY(lv_device_prepare(p->device, matrix, bucket, error));
    LV_TRY(run_once(p, matrix, bucket, error));
    LV_TRY(lv_device_read(p->out, 0, p->got, bucket * (size_t)ROWS, error));
    if (p->device->facts.same_bits) {
        compute_exact(p, matrix, p->made[which], bucket, p->want);
    } else {
        compute_floats(p, matrix, p->made[which], bucket);
    }
    *right = is_right(p, bucket);
    return LEVER_OK;
}

/* Takes out the buckets whose rows have other bits than those of the largest, which was run last. */
static lever_status drop_unsteady(probe *p, const lv_device_matrix *matrix, lever_error *error) {
    lv_buckets *buckets = &p->device->facts.buckets;
    const uint32_t most = largest_bucket(p);
    lv_buckets kept = {.count = 0};
    memcpy(p->want, p->got, most * ROWS * sizeof(float));
    for (uint32_t i = 0; i + 1 < buckets->count; i++) {
        const uint32_t bucket = buckets->rows[i];
        LV_TRY(lv_device_prepare(p->device, matrix, bucket, error));
        LV_TRY(run_once(p, matrix, bucket, error));
        LV_TRY(lv_device_read(p->out, 0, p->got, bucket * (size_t)ROWS, error));
        if (memcmp(p->got, p->want, bucket * ROWS * sizeof(float)) == 0) kept.rows[kept.count++] = bucket;
    }
    kept.rows[kept.count++] = most;
    *buckets = kept;
    return LEVER_OK;
}

/* A, B and A again in the same buffer, each in the largest bucket and the last in all. */
static lever_status try_results(probe *p, const lv_device_matrix *matrix, lever_error *error) {
    make_weights(p, matrix);
    LV_TRY(lv_device_write(p->in, 0, p->rows, largest_bucket(p) * p->elements, error));
    static const uint32_t order[] = {0, 1, 0};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        bool right = true;
        LV_TRY(load(p, matrix, p->made[order[i]], error));
        LV_TRY(try_bucket(p, matrix, order[i], largest_bucket(p), &right, error));
        if (right) continue;
        if (i == 0) return refuse(p, LV_DEVICE_REFUSED, "its results are wrong");
        return refuse(p, LV_DEVICE_HOLDS, "weights that are loaded over others do not take their place");
    }
    LV_TRY(drop_unsteady(p, matrix, error));
    for (uint32_t b = 0; b < p->device->facts.buckets.count && p->findings->verdict != LV_DEVICE_REFUSED; b++) {
        bool right = true;
        LV_TRY(try_bucket(p, matrix, 0, p->device->facts.buckets.rows[b], &right, error));
        if (!right) return refuse(p, LV_DEVICE_REFUSED, "its results are wrong for some numbers of rows");
    }
    return LEVER_OK;
}

/* --- What it costs ----------------------------------------------------------------------------------------------- */

static double seconds_since(uint64_t begin_ns) {
    return lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
}

static lever_status time_bucket(probe *p, const lv_device_matrix *part, const uint8_t *weights, float *out, uint32_t b,
                                lever_error *error) {
    const uint32_t bucket = p->device->facts.buckets.rows[b];
    double device = (double)INFINITY, cpu = (double)INFINITY;
    LV_TRY(lv_device_prepare(p->device, part, bucket, error));
    for (uint32_t i = 0; i < TIMES; i++) {
        uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
        LV_TRY(run_once(p, part, bucket, error));
        if (i > 0) device = fmin(device, seconds_since(begin_ns));
        if (!lv_kernel_supports(part->type, part->row_elements)) continue;
        begin_ns = lv_clock_now_ns(&lv_clock_real);
        compute_exact(p, part, weights, bucket, out);
        cpu = fmin(cpu, seconds_since(begin_ns) / p->options->threads);
    }
    p->findings->run_seconds[b] = device;
    p->findings->cpu_seconds[b] = cpu; /* infinite: ggml's own product, whose cost is not known */
    return LEVER_OK;
}

static void judge_costs(probe *p) {
    const lv_device_findings *f = p->findings;
    const uint32_t last = p->device->facts.buckets.count - 1;
    const double run = f->run_seconds[last], cpu = f->cpu_seconds[last];
    const double streamed = f->upload_seconds + run, hidden = fmax(cpu, f->read_seconds);
    if (p->options->forced || !p->device->facts.measures || streamed <= pays_share * hidden) return;
    char text[256];
    snprintf(text, sizeof(text),
             "uploading a block's weights takes %.2f ms and %u rows of them %.2f ms; the CPU takes %.2f ms and reading "
             "%.2f ms",
             1e3 * f->upload_seconds, p->device->facts.buckets.rows[last], 1e3 * run, 1e3 * cpu, 1e3 * f->read_seconds);
    (void)refuse(p, run <= pays_share * cpu ? LV_DEVICE_HOLDS : LV_DEVICE_REFUSED, text);
}

static lv_device_matrix largest_part(const lv_weights *weights) {
    const lv_layout *layout = weights->layout;
    uint64_t most = 0;
    lv_device_matrix largest = {0};
    for (uint32_t s = 0; s < layout->segments_count; s++) {
        const lv_segment *segment = &layout->segments[s];
        if (segment->block >= layout->head_block_first || segment->bytes <= most) continue;
        const lv_tensor *tensor = weights->items[segment->item].tensor;
        most = segment->bytes;
        largest = (lv_device_matrix){tensor->type, tensor->dims[0], segment->rows_count};
    }
    return largest;
}

static lever_status try_costs(probe *p, const lv_device_matrix *part, lever_error *error) {
    void *weights = NULL, *out = NULL;
    const size_t row_bytes = ggml_row_size((enum ggml_type)part->type, (int64_t)part->row_elements);
    lever_status status = take(&weights, p, row_bytes * (size_t)part->rows_count, error);
    if (status == LEVER_OK) {
        status = take(&out, p, largest_bucket(p) * (size_t)part->rows_count * sizeof(float), error);
    }
    if (status == LEVER_OK) {
        make_weights(p, part);
        for (size_t row = 0; row < part->rows_count; row++) {
            memcpy((uint8_t *)weights + row * row_bytes, p->made[0] + row % ROWS * row_bytes, row_bytes);
        }
        status = lv_device_write(p->in, 0, p->rows, largest_bucket(p) * p->elements, error);
    }
    p->findings->upload_seconds = (double)INFINITY;
    for (uint32_t i = 0; i < TIMES && status == LEVER_OK; i++) {
        const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
        status = load(p, part, weights, error);
        p->findings->upload_seconds = fmin(p->findings->upload_seconds, seconds_since(begin_ns));
    }
    for (uint32_t b = 0; b < p->device->facts.buckets.count && status == LEVER_OK; b++) {
        status = time_bucket(p, part, weights, out, b, error);
    }
    if (p->options->io_bytes_per_second > 0) {
        p->findings->read_seconds = (double)row_bytes * (double)part->rows_count / p->options->io_bytes_per_second;
    }
    if (status == LEVER_OK) judge_costs(p);
    lv_free(out);
    lv_free(weights);
    return status;
}

/* --- The probe --------------------------------------------------------------------------------------------------- */

/* One matrix: open, try, close. What the device refuses is a finding, want of memory is not. */
static lever_status with_matrix(probe *p, const lv_device_matrix *matrix,
                                lever_status (*try_it)(probe *, const lv_device_matrix *, lever_error *),
                                lever_error *error) {
    lever_error own;
    lv_error_clear(&own);
    lever_status status = open_memory(p, matrix, &own);
    if (status == LEVER_OK) status = open_buffers(p, matrix, &own);
    if (status == LEVER_OK) status = try_it(p, matrix, &own);
    close_memory(p);
    *p = (probe){.device = p->device, .options = p->options, .findings = p->findings};
    if (status == LEVER_OK) return LEVER_OK;
    if (status == LEVER_E_BUDGET || status == LEVER_E_MEMORY) {
        if (error) *error = own;
        return status;
    }
    return refuse(p, LV_DEVICE_REFUSED, own.message);
}

static bool is_first_of_its_kind(const lv_weights *weights, uint32_t item) {
    const lv_tensor *tensor = weights->items[item].tensor;
    for (uint32_t i = 0; i < item; i++) {
        const lv_tensor *other = weights->items[i].tensor;
        if (other->type == tensor->type && other->dims[0] == tensor->dims[0]) return false;
    }
    return true;
}

lever_status lv_device_probe(lv_device *device, const lv_device_probe_options *options, lv_device_findings *findings,
                             lever_error *error) {
    *findings = (lv_device_findings){.verdict = LV_DEVICE_STREAMS};
    probe p = {.device = device, .options = options, .findings = findings};
    const lv_weights *weights = options->weights;
    LV_TRY(check_shapes(&p));
    const uint32_t items_count = weights->model->hparams.layers_count * LV_ROLES_COUNT;
    for (uint32_t i = 0; i < items_count && findings->verdict != LV_DEVICE_REFUSED; i++) {
        if (!is_first_of_its_kind(weights, i)) continue;
        const lv_tensor *tensor = weights->items[i].tensor;
        const lv_device_matrix matrix = {tensor->type, tensor->dims[0], ROWS};
        LV_TRY(with_matrix(&p, &matrix, try_results, error));
    }
    if (findings->verdict != LV_DEVICE_STREAMS) return LEVER_OK;
    const lv_device_matrix part = largest_part(weights);
    return with_matrix(&p, &part, try_costs, error);
}
