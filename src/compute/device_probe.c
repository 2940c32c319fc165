/* device_probe.c - made-up weights A and B: A, B and A again go into the same buffer, and each time a product is
 * compared with what the CPU makes of them. A device with the CPU's bits must give these bits; another one has to come
 * near what floats give.
 *
 * Every shape that the blocks of the model have is tried: a backend chooses a kernel by its type, and by the numbers of
 * both kinds of rows. Only a few rows of weights are made up and computed by the CPU; they are repeated to the end.
 *
 * What it costs comes first, with the largest shape in the largest bucket: a device that is far too slow compiles
 * nothing else. The first run of a shape may compile something: it is not timed. */
#include "compute/device_probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "compute/linear.h"
#include "compute/offload.h"
#include "ggml.h"

enum { ROWS = 64, TIMES = 3, LINE_BYTES = 64, GGML_WORK_BYTES = 1 << 20 };

/* Of the length of a sum of this many random products. */
static const double tolerance = 0.1;
/* Measured times vary: a device must be slower than this to be refused. */
static const double pays_share = 1.15;

typedef struct {
    lv_device *device;
    const lv_device_probe_options *options;
    lv_device_findings *findings;
    uint64_t begin_ns;

    lv_device_matrix matrix; /* that is tried */
    lv_device_buffer *weights, *in, *out;
    void *memory;          /* what follows lies in it */
    uint8_t *made[2];      /* A and B, ROWS rows */
    uint8_t *repeated;     /* one of them, as often as it takes to fill the matrix */
    float *rows;           /* of activations: the largest bucket */
    float *floats;         /* ROWS rows */
    float *want[2];        /* of A and B: bucket x ROWS */
    float *got, *expected; /* bucket x rows of the matrix */
    uint8_t *rounded, *scratch;
    lv_graph *graph; /* for ggml's product on the CPU */
    uint8_t stable_batches[GGML_TYPE_COUNT];
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

static lv_device_matrix matrix_of(const lv_weights *weights, uint32_t segment) {
    const lv_segment *s = &weights->layout->segments[segment];
    const lv_tensor *tensor = weights->items[s->item].tensor;
    return (lv_device_matrix){tensor->type, tensor->dims[0], s->rows_count};
}

static bool is_of_a_layer(const lv_weights *weights, uint32_t segment) {
    return weights->layout->segments[segment].block < weights->layout->head_block_first;
}

/* The first matrix that the device does not run. */
static const lv_tensor *first_unsupported(const lv_device *device, const lv_weights *weights) {
    for (uint32_t s = 0; s < weights->layout->segments_count; s++) {
        if (!is_of_a_layer(weights, s)) continue;
        const lv_device_matrix matrix = matrix_of(weights, s);
        if (!lv_device_supports(device, &matrix)) return weights->items[weights->layout->segments[s].item].tensor;
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
        return refuse(p, LV_DEVICE_UNSUITED, text);
    }
    const uint64_t bytes = lv_offload_buffer_bytes(p->device, p->options->weights);
    if (bytes > p->device->facts.buffer_bytes_max) {
        snprintf(text, sizeof(text), "a buffer of %llu bytes is needed, and the largest that it gives has %llu",
                 (unsigned long long)bytes, (unsigned long long)p->device->facts.buffer_bytes_max);
        return refuse(p, LV_DEVICE_UNSUITED, text);
    }
    return LEVER_OK;
}

/* --- Steps: each is told before it is taken, and the clock is looked at afterwards ------------------------------- */

static void tell(const probe *p, const char *step, uint32_t bucket) {
    char type[32];
    lv_log_write(p->options->log, LEVER_LOG_DEBUG, "device %s: trying %s with %llu rows of %llu: %s, %u rows at once",
                 p->device->facts.name, lv_gguf_tensor_type_name(p->matrix.type, type, sizeof(type)),
                 (unsigned long long)p->matrix.rows_count, (unsigned long long)p->matrix.row_elements, step, bucket);
}

static double seconds_since(const probe *p, uint64_t begin_ns) {
    return lv_seconds(lv_clock_now_ns(p->options->clock) - begin_ns);
}

static lever_status in_time(const probe *p, const char *step, lever_error *error) {
    const double seconds = seconds_since(p, p->begin_ns);
    if (seconds <= LV_DEVICE_PROBE_SECONDS_MAX) return LEVER_OK;
    return lv_fail(error, LEVER_E_IO,
                   "trying it took %.1f s, %s at last, and %.0f s are the most; if its driver was compiling, the next "
                   "try takes less",
                   seconds, step, LV_DEVICE_PROBE_SECONDS_MAX);
}

static lever_status open_buffers(probe *p, lever_error *error) {
    static const char step[] = "opening buffers";
    const uint64_t bucket = largest_bucket(p), part = lv_device_part_bytes(p->device, &p->matrix);
    tell(p, step, largest_bucket(p));
    LV_TRY(lv_device_buffer_open(p->device, lv_device_align(p->device, part), &p->weights, error));
    LV_TRY(lv_device_buffer_open(p->device, bucket * p->matrix.row_elements * sizeof(float), &p->in, error));
    LV_TRY(lv_device_buffer_open(p->device, bucket * p->matrix.rows_count * sizeof(float), &p->out, error));
    LV_TRY(lv_device_write(p->in, 0, p->rows, bucket * (size_t)p->matrix.row_elements, error));
    return in_time(p, step, error);
}

static lever_status prepare(const probe *p, uint32_t bucket, lever_error *error) {
    static const char step[] = "preparing";
    tell(p, step, bucket);
    LV_TRY(lv_device_prepare(p->device, &p->matrix, bucket, error));
    return in_time(p, step, error);
}

static lever_status upload(const probe *p, lever_error *error) {
    static const char step[] = "uploading";
    tell(p, step, largest_bucket(p));
    LV_TRY(lv_device_clear(p->weights, error));
    LV_TRY(lv_device_upload(p->weights, 0, &p->matrix, LV_LAYOUT_ROWS, p->repeated, error));
    return in_time(p, step, error);
}

static lever_status run(const probe *p, uint32_t bucket, lever_error *error) {
    static const char step[] = "running";
    const lv_device_product product = {
        .matrix = p->matrix, .bucket = bucket, .weights = p->weights, .in = p->in, .out = p->out};
    uint64_t ticket = 0;
    tell(p, step, bucket);
    LV_TRY(lv_device_run(p->device, &product, &ticket, error));
    LV_TRY(lv_device_wait(p->device, ticket, error));
    return in_time(p, step, error);
}

static lever_status run_and_read(const probe *p, uint32_t bucket, lever_error *error) {
    static const char step[] = "reading results";
    LV_TRY(run(p, bucket, error));
    tell(p, step, bucket);
    LV_TRY(lv_device_read(p->out, 0, p->got, bucket * (size_t)p->matrix.rows_count, error));
    return in_time(p, step, error);
}

/* --- Weights and rows -------------------------------------------------------------------------------------------- */

static size_t rounded_up(size_t bytes) {
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static void *carve(uint8_t **at, size_t bytes) {
    void *part = *at;
    *at += rounded_up(bytes);
    return part;
}

static lever_status open_memory(probe *p, lever_error *error) {
    const size_t bucket = largest_bucket(p), elements = (size_t)p->matrix.row_elements;
    const size_t rows_count = (size_t)p->matrix.rows_count, groups = (elements + 255) / 256 * 256;
    const size_t row_bytes = ggml_row_size((enum ggml_type)p->matrix.type, (int64_t)elements);
    const size_t made = ROWS * row_bytes, repeated = rows_count * row_bytes;
    const size_t rows = bucket * elements * sizeof(float), floats = ROWS * elements * sizeof(float);
    const size_t want = bucket * ROWS * sizeof(float), got = bucket * rows_count * sizeof(float);
    const size_t rounded = bucket * (lv_activation_row_bytes(LV_ACTIVATION_32, groups) +
                                     lv_activation_row_bytes(LV_ACTIVATION_256, groups));
    const size_t scratch = lv_kernel_scratch_bytes(elements);
    const size_t all = LINE_BYTES + 2 * rounded_up(made) + rounded_up(repeated) + rounded_up(rows) +
                       rounded_up(floats) + 2 * rounded_up(want) + 2 * rounded_up(got) + rounded_up(rounded) +
                       rounded_up(scratch);
    LV_TRY(lv_alloc_checked(&p->memory, p->device->ledger, LV_MEM_DEVICE, 1, all, "trying a device", error));
    uint8_t *at = (uint8_t *)p->memory + (LINE_BYTES - (uintptr_t)p->memory % LINE_BYTES) % LINE_BYTES;
    p->made[0] = carve(&at, made);
    p->made[1] = carve(&at, made);
    p->repeated = carve(&at, repeated);
    p->rows = carve(&at, rows);
    p->floats = carve(&at, floats);
    p->want[0] = carve(&at, want);
    p->want[1] = carve(&at, want);
    p->got = carve(&at, got);
    p->expected = carve(&at, got);
    p->rounded = carve(&at, rounded);
    p->scratch = carve(&at, scratch);
    return LEVER_OK;
}

static void fill_noise(float *values, size_t count, uint32_t state) {
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)((double)state / 2147483648.0 - 1.0);
    }
}

static void make_weights(probe *p) {
    const size_t elements = (size_t)p->matrix.row_elements;
    /* Some types cannot be made without importances; all alike will do. */
    for (size_t i = 0; i < elements; i++) p->rows[i] = 1.0f;
    for (uint32_t which = 0; which < 2; which++) {
        fill_noise(p->floats, ROWS * elements, 7 + which);
        ggml_quantize_chunk((enum ggml_type)p->matrix.type, p->floats, p->made[which], 0, ROWS, (int64_t)elements,
                            p->rows);
    }
    fill_noise(p->rows, largest_bucket(p) * elements, 99);
}

static void repeat_weights(probe *p, uint32_t which) {
    const size_t row_bytes = ggml_row_size((enum ggml_type)p->matrix.type, (int64_t)p->matrix.row_elements);
    for (size_t row = 0; row < p->matrix.rows_count; row++) {
        memcpy(p->repeated + row * row_bytes, p->made[which] + row % ROWS * row_bytes, row_bytes);
    }
}

/* What lever's kernels make of the rows of the largest bucket. */
static void compute_exact(probe *p, const uint8_t *weights, size_t rows_count, float *out) {
    const lv_activation_format format = lv_kernel_activation(p->matrix.type);
    const size_t elements = (size_t)p->matrix.row_elements, bucket = largest_bucket(p);
    const size_t stride = lv_activation_row_bytes(format, elements);
    for (size_t row = 0; row < bucket; row++) {
        lv_activation_round(p->options->kernels, format, p->rows + row * elements, elements, p->rounded + row * stride,
                            0, elements / (format == LV_ACTIVATION_32 ? 32 : 256));
    }
    const lv_product product = {
        .type = p->matrix.type,
        .layout = LV_LAYOUT_ROWS,
        .weights = weights,
        .rows_count = rows_count,
        .row_elements = elements,
        .activations = p->rounded,
        .activation_stride = stride,
        .batch_count = bucket,
        .out = out,
        .out_stride = rows_count,
    };
    lv_product_run(p->options->kernels, &product, 0, (rows_count + LV_TILE_ROWS - 1) / LV_TILE_ROWS, p->scratch);
}

/* A type without a kernel of lever's is multiplied by ggml on the CPU, as many rows at once as keep their bits. */
static lever_status open_graph(probe *p, lever_error *error) {
    const size_t bucket = largest_bucket(p), elements = (size_t)p->matrix.row_elements;
    const lv_graph_options options = {
        .nodes_max = (uint32_t)bucket + 1,
        .work_bytes = bucket * elements * sizeof(float) + GGML_WORK_BYTES,
        .records_bytes = LINE_BYTES,
        .threads = 1,
        .ledger = p->device->ledger,
    };
    LV_TRY(lv_graph_open(&p->graph, &options, error));
    p->stable_batches[p->matrix.type] =
        lv_linear_stable_batch(p->graph, (enum ggml_type)p->matrix.type, elements, p->device->ledger);
    return LEVER_OK;
}

static lever_status compute_by_ggml(probe *p, lever_error *error) {
    const lv_tensor tensor = {.type = p->matrix.type, .dims = {p->matrix.row_elements, p->matrix.rows_count, 1, 1}};
    const lv_linear_context context = {.graph = p->graph, .stable_batches = p->stable_batches};
    const lv_activations activations = {
        .floats = p->rows, .elements = (size_t)p->matrix.row_elements, .rows_count = largest_bucket(p)};
    const lv_linear_part part = {
        .tensor = &tensor,
        .layout = LV_LAYOUT_ROWS,
        .data = p->repeated,
        .rows_count = (size_t)p->matrix.rows_count,
        .out = p->expected,
        .out_stride = (size_t)p->matrix.rows_count,
    };
    lv_linear_add_products(&context, &activations, &part, 1);
    return lv_graph_run(p->graph, error);
}

static void compute_floats(probe *p, uint32_t which) {
    const size_t elements = (size_t)p->matrix.row_elements;
    if (p->matrix.type == GGML_TYPE_F32) {
        memcpy(p->floats, p->made[which], ROWS * elements * sizeof(float));
    } else {
        ggml_get_type_traits((enum ggml_type)p->matrix.type)
            ->to_float(p->made[which], p->floats, (int64_t)(ROWS * elements));
    }
    for (size_t row = 0; row < largest_bucket(p); row++) {
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (size_t i = 0; i < elements; i++) {
                sum += (double)p->rows[row * elements + i] * (double)p->floats[r * elements + i];
            }
            p->want[which][row * ROWS + r] = (float)sum;
        }
    }
}

/* --- Right results ----------------------------------------------------------------------------------------------- */

/* The numbers themselves would say that 0 is -0, and that nothing is NaN. */
static bool have_same_bits(const void *a, const void *b) {
    return memcmp(a, b, sizeof(float)) == 0;
}

/* Of the largest bucket. */
static bool is_right(const probe *p, uint32_t which) {
    const double most = tolerance * sqrt((double)p->matrix.row_elements) / 3; /* values lie evenly between -1 and 1 */
    const size_t rows_count = (size_t)p->matrix.rows_count;
    for (size_t row = 0; row < largest_bucket(p); row++) {
        for (size_t r = 0; r < rows_count; r++) {
            const float *got = &p->got[row * rows_count + r], *want = &p->want[which][row * ROWS + r % ROWS];
            const bool right =
                p->device->facts.same_bits ? have_same_bits(got, want) : fabs((double)*got - (double)*want) <= most;
            if (!right) return false;
        }
    }
    return true;
}

/* Takes out the buckets whose rows have other bits than those of the largest, which was run last, and right. */
static lever_status drop_unsteady(probe *p, lever_error *error) {
    lv_buckets *buckets = &p->device->facts.buckets;
    const uint32_t most = largest_bucket(p);
    const size_t row_bytes = (size_t)p->matrix.rows_count * sizeof(float);
    lv_buckets kept = {.count = 0};
    memcpy(p->expected, p->got, most * row_bytes);
    for (uint32_t i = 0; i + 1 < buckets->count; i++) {
        const uint32_t bucket = buckets->rows[i];
        LV_TRY(prepare(p, bucket, error));
        LV_TRY(run_and_read(p, bucket, error));
        if (memcmp(p->got, p->expected, bucket * row_bytes) == 0) kept.rows[kept.count++] = bucket;
    }
    kept.rows[kept.count++] = most;
    *buckets = kept;
    return LEVER_OK;
}

/* A, B and A again in the same buffer, each in the largest bucket and the last in all. */
static lever_status try_results(probe *p, lever_error *error) {
    for (uint32_t which = 0; which < 2; which++) {
        if (p->device->facts.same_bits) {
            compute_exact(p, p->made[which], ROWS, p->want[which]);
        } else {
            compute_floats(p, which);
        }
    }
    static const uint32_t order[] = {0, 1, 0};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        repeat_weights(p, order[i]);
        LV_TRY(upload(p, error));
        LV_TRY(run_and_read(p, largest_bucket(p), error));
        if (is_right(p, order[i])) continue;
        if (i == 0) return refuse(p, LV_DEVICE_REFUSED, "its results are wrong");
        return refuse(p, LV_DEVICE_HOLDS, "weights that are loaded over others do not take their place");
    }
    return drop_unsteady(p, error);
}

/* --- What it costs ----------------------------------------------------------------------------------------------- */

typedef struct {
    double upload, run, cpu, read; /* seconds, of the matrix in the largest bucket */
} costs;

static void judge_costs(probe *p, const costs *c) {
    const double streamed = c->upload + c->run, hidden = fmax(c->cpu, c->read);
    if (streamed <= pays_share * hidden) return;
    char text[256];
    snprintf(text, sizeof(text),
             "uploading a block's weights takes %.2f ms and %u rows of them %.2f ms; the CPU takes %.2f ms and reading "
             "%.2f ms",
             1e3 * c->upload, largest_bucket(p), 1e3 * c->run, 1e3 * c->cpu, 1e3 * c->read);
    (void)refuse(p, c->run <= pays_share * c->cpu ? LV_DEVICE_HOLDS : LV_DEVICE_UNSUITED, text);
}

static lever_status try_costs(probe *p, lever_error *error) {
    const lv_clock *clock = p->options->clock;
    costs c = {.upload = (double)INFINITY, .run = (double)INFINITY, .cpu = (double)INFINITY};
    const bool by_ggml = !lv_kernel_supports(p->matrix.type, p->matrix.row_elements);
    if (by_ggml) LV_TRY(open_graph(p, error));
    repeat_weights(p, 0);
    for (uint32_t i = 0; i < TIMES; i++) {
        uint64_t begin_ns = lv_clock_now_ns(clock);
        LV_TRY(upload(p, error));
        c.upload = fmin(c.upload, seconds_since(p, begin_ns));
        begin_ns = lv_clock_now_ns(clock);
        LV_TRY(run(p, largest_bucket(p), error));
        if (i > 0) c.run = fmin(c.run, seconds_since(p, begin_ns));
        begin_ns = lv_clock_now_ns(clock);
        if (by_ggml) {
            LV_TRY(compute_by_ggml(p, error));
        } else {
            compute_exact(p, p->repeated, (size_t)p->matrix.rows_count, p->expected);
        }
        c.cpu = fmin(c.cpu, seconds_since(p, begin_ns) / p->options->threads);
    }
    if (p->options->io_bytes_per_second > 0) {
        const double row_bytes = (double)ggml_row_size((enum ggml_type)p->matrix.type, (int64_t)p->matrix.row_elements);
        c.read = row_bytes * (double)p->matrix.rows_count / p->options->io_bytes_per_second;
    }
    judge_costs(p, &c);
    return LEVER_OK;
}

static uint32_t largest_segment(const lv_weights *weights) {
    const lv_segment *segments = weights->layout->segments;
    uint32_t largest = 0; /* the head comes last */
    for (uint32_t s = 1; s < weights->layout->segments_count; s++) {
        if (is_of_a_layer(weights, s) && segments[s].bytes > segments[largest].bytes) largest = s;
    }
    return largest;
}

/* --- The probe --------------------------------------------------------------------------------------------------- */

static void close_all(probe *p) {
    lv_device_buffer_close(&p->weights);
    lv_device_buffer_close(&p->in);
    lv_device_buffer_close(&p->out);
    lv_graph_close(&p->graph);
    lv_free(p->memory);
    p->memory = NULL;
}

/* One matrix: open, try, close. What the device refuses is a finding, want of memory is not. */
static lever_status with_matrix(probe *p, uint32_t segment, lever_status (*try_it)(probe *, lever_error *),
                                lever_error *error) {
    lever_error own;
    lv_error_clear(&own);
    p->matrix = matrix_of(p->options->weights, segment);
    lever_status status = open_memory(p, &own);
    if (status == LEVER_OK) {
        make_weights(p);
        status = prepare(p, largest_bucket(p), &own);
    }
    if (status == LEVER_OK) status = open_buffers(p, &own);
    if (status == LEVER_OK) status = try_it(p, &own);
    close_all(p);
    if (status == LEVER_OK) return LEVER_OK;
    if (status == LEVER_E_BUDGET || status == LEVER_E_MEMORY) {
        if (error) *error = own;
        return status;
    }
    return refuse(p, LV_DEVICE_REFUSED, own.message);
}

static bool is_first_of_its_shape(const lv_weights *weights, uint32_t segment) {
    const lv_device_matrix matrix = matrix_of(weights, segment);
    for (uint32_t s = 0; s < segment; s++) {
        const lv_device_matrix other = matrix_of(weights, s);
        if (other.type == matrix.type && other.row_elements == matrix.row_elements &&
            other.rows_count == matrix.rows_count) {
            return false;
        }
    }
    return true;
}

lever_status lv_device_probe(lv_device *device, const lv_device_probe_options *options, lv_device_findings *findings,
                             lever_error *error) {
    *findings = (lv_device_findings){.verdict = LV_DEVICE_STREAMS};
    probe p = {.device = device, .options = options, .findings = findings, .begin_ns = lv_clock_now_ns(options->clock)};
    const lv_weights *weights = options->weights;
    LV_TRY(check_shapes(&p));
    if (findings->verdict == LV_DEVICE_STREAMS && !options->forced && device->facts.measures) {
        LV_TRY(with_matrix(&p, largest_segment(weights), try_costs, error));
    }
    for (uint32_t s = 0; s < weights->layout->segments_count && findings->verdict <= LV_DEVICE_HOLDS; s++) {
        if (!is_of_a_layer(weights, s) || !is_first_of_its_shape(weights, s)) continue;
        LV_TRY(with_matrix(&p, s, try_results, error));
    }
    return LEVER_OK;
}
