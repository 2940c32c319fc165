/* device_test.c - a queue of runs and a thread that computes them. Each rule is checked where it can be broken, before
 * anything is touched.
 *
 * A buffer remembers which run used it last: until that one was waited for, nobody may touch it. What was uploaded is
 * kept as a list of parts, so that a run over weights that are not there, or lie there in another shape, is seen.
 *
 * Where costs are given, a run adds its own when it is given, whatever becomes of it. */
#include "compute/device_test.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "ggml.h"

enum { PARTS_MAX = 64, QUEUE_MAX = 64, SHAPES_MAX = 256, SLOW_NS = 20000000, BUCKET_ROWS_MAX = 1024, WORD_BYTES = 256 };

#define SMALL_BUFFER_BYTES ((uint64_t)64 << 10)
#define COST_NS_MAX ((uint64_t)1000000000000) /* a thousand seconds */

typedef struct {
    uint64_t offset, bytes;
    lv_device_matrix matrix;
} part;

typedef struct {
    lv_device_buffer base;
    lv_area area;
    part parts[PARTS_MAX];
    uint32_t parts_count;
    uint64_t written_bytes; /* from the front, without a gap */
    uint64_t used_until;    /* ticket of the last run that uses it */
} test_buffer;

typedef struct {
    lv_device_matrix matrix;
    uint32_t bucket;
} shape;

typedef struct {
    lv_device base;
    bool wrong, once, slow, floats;
    uint64_t fail_at; /* 0: never */
    uint64_t costs_ns[LV_BUCKETS_MAX], spent_ns;
    uint32_t costs_count; /* 0: it does not tell */
    lv_buckets priced;    /* what the costs are for: its buckets, before some were taken away */
    const lv_kernels *kernels;
    shape shapes[SHAPES_MAX];
    uint32_t shapes_count;
    uint8_t *scratch; /* rounded rows, then the kernel's own; as large as what was prepared wants */
    size_t scratch_bytes;
    lv_area taken;   /* in no ledger */
    uint64_t waited; /* the last ticket that was waited for */

    lv_thread thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    lv_device_product queue[QUEUE_MAX];
    uint64_t given, done; /* tickets */
    bool quits, failed;
} test_device;

static test_device *device_of(lv_device *device) {
    return (test_device *)device;
}

static test_buffer *buffer_of(lv_device_buffer *buffer) {
    return (test_buffer *)buffer;
}

static lever_status broken(lever_error *error, const char *rule) {
    return lv_fail(error, LEVER_E_ARGUMENT, "device test: %s", rule);
}

static bool same_matrix(const lv_device_matrix *a, const lv_device_matrix *b) {
    return a->type == b->type && a->row_elements == b->row_elements && a->rows_count == b->rows_count;
}

/* --- What it can run --------------------------------------------------------------------------------------------- */

static bool test_supports(const lv_device *device, const lv_device_matrix *matrix) {
    if (matrix->rows_count == 0 || matrix->rows_count % LV_TILE_ROWS != 0) return false;
    if (((const test_device *)device)->floats) return true;
    return lv_kernel_supports(matrix->type, matrix->row_elements);
}

static uint64_t weight_bytes(const lv_device_matrix *matrix) {
    return ggml_row_size((enum ggml_type)matrix->type, (int64_t)matrix->row_elements) * matrix->rows_count;
}

static uint64_t test_part_bytes(lv_device *device, const lv_device_matrix *matrix) {
    return lv_device_align(device, weight_bytes(matrix));
}

static bool has_bucket(const lv_device *device, uint32_t bucket) {
    for (uint32_t i = 0; i < device->facts.buckets.count; i++) {
        if (device->facts.buckets.rows[i] == bucket) return true;
    }
    return false;
}

/* For this bucket; 0: for any. */
static bool is_prepared(const test_device *d, const lv_device_matrix *matrix, uint32_t bucket) {
    for (uint32_t i = 0; i < d->shapes_count; i++) {
        if ((bucket == 0 || d->shapes[i].bucket == bucket) && same_matrix(&d->shapes[i].matrix, matrix)) return true;
    }
    return false;
}

/* --- The thread of its own --------------------------------------------------------------------------------------- */

static size_t rounded_bytes(const lv_device_matrix *matrix, uint32_t bucket) {
    return bucket * lv_activation_row_bytes(lv_kernel_activation(matrix->type), matrix->row_elements);
}

static size_t scratch_wanted(const test_device *d, const lv_device_matrix *matrix, uint32_t bucket) {
    if (d->floats) return (size_t)matrix->row_elements * sizeof(float) + 64;
    return rounded_bytes(matrix, bucket) + lv_kernel_scratch_bytes(matrix->row_elements) + 128;
}

static uint64_t test_prepare_bytes(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket) {
    return scratch_wanted(device_of(device), matrix, bucket);
}

static uint8_t *align64(uint8_t *at) {
    return at + (64 - (uintptr_t)at % 64) % 64;
}

static void row_to_floats(int32_t type, const void *row, float *floats, size_t elements) {
    if (type == GGML_TYPE_F32) {
        memcpy(floats, row, elements * sizeof(*floats));
    } else {
        ggml_get_type_traits((enum ggml_type)type)->to_float(row, floats, (int64_t)elements);
    }
}

/* A result's bits do not depend on the bucket. */
static void compute_floats(const test_device *d, const lv_device_product *p, const float *in, float *out) {
    const lv_device_matrix *m = &p->matrix;
    const size_t elements = (size_t)m->row_elements, rows_count = (size_t)m->rows_count;
    const uint8_t *weights = buffer_of(p->weights)->area.data + p->weights_offset;
    float *floats = (float *)(void *)align64(d->scratch);
    for (size_t r = 0; r < rows_count; r++) {
        row_to_floats(m->type, weights + r * (size_t)(weight_bytes(m) / rows_count), floats, elements);
        for (size_t row = 0; row < p->bucket; row++) {
            double sum = 0;
            for (size_t i = 0; i < elements; i++) sum += (double)in[row * elements + i] * (double)floats[i];
            out[row * rows_count + r] = (float)sum;
        }
    }
}

static void compute_exact(test_device *d, const lv_device_product *p, const float *in, float *out) {
    const lv_device_matrix *m = &p->matrix;
    const lv_activation_format format = lv_kernel_activation(m->type);
    const size_t stride = lv_activation_row_bytes(format, m->row_elements);
    const size_t groups = m->row_elements / (format == LV_ACTIVATION_32 ? 32 : 256);
    uint8_t *rounded = align64(d->scratch), *scratch = align64(rounded + rounded_bytes(m, p->bucket));
    for (size_t row = 0; row < p->bucket; row++) {
        lv_activation_round(d->kernels, format, in + row * m->row_elements, m->row_elements, rounded + row * stride, 0,
                            groups);
    }
    const lv_product product = {
        .type = m->type,
        .layout = LV_LAYOUT_TILES,
        .weights = buffer_of(p->weights)->area.data + p->weights_offset,
        .rows_count = m->rows_count,
        .row_elements = m->row_elements,
        .activations = rounded,
        .activation_stride = stride,
        .batch_count = p->bucket,
        .out = out,
        .out_stride = m->rows_count,
    };
    lv_product_run(d->kernels, &product, 0, m->rows_count / LV_TILE_ROWS, scratch);
}

static void compute(test_device *d, const lv_device_product *p) {
    const float *in = (const float *)(const void *)(buffer_of(p->in)->area.data + p->in_offset);
    float *out = (float *)(void *)(buffer_of(p->out)->area.data + p->out_offset);
    if (d->floats) {
        compute_floats(d, p, in, out);
    } else {
        compute_exact(d, p, in, out);
    }
    if (d->wrong) out[0] += 1.0f + out[0];
    if (d->slow) nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
}

static void *run_thread(void *user) {
    test_device *d = user;
    pthread_mutex_lock(&d->lock);
    while (!d->quits || d->done < d->given) {
        if (d->done == d->given) {
            pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        const lv_device_product product = d->queue[d->done % QUEUE_MAX];
        const bool fails = d->failed || (d->fail_at > 0 && d->done + 1 >= d->fail_at);
        pthread_mutex_unlock(&d->lock);
        if (!fails) compute(d, &product);
        pthread_mutex_lock(&d->lock);
        d->failed = fails;
        d->done++;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static lever_status check_alive(test_device *d, lever_error *error) {
    pthread_mutex_lock(&d->lock);
    const bool failed = d->failed;
    pthread_mutex_unlock(&d->lock);
    return failed ? lv_fail(error, LEVER_E_IO, "device test: it has failed") : LEVER_OK;
}

/* --- Buffers ----------------------------------------------------------------------------------------------------- */

static lever_status test_buffer_open(lv_device *device, uint64_t bytes, lv_device_buffer **out, lever_error *error) {
    *out = NULL;
    LV_TRY(check_alive(device_of(device), error));
    if (bytes == 0 || bytes > device->facts.buffer_bytes_max) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "device test: a buffer of %" PRIu64 " bytes was asked for; the most is %" PRIu64, bytes,
                       device->facts.buffer_bytes_max);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, device->ledger, LV_MEM_DEVICE, 1, sizeof(test_buffer), "a buffer of a device",
                            error));
    test_buffer *buffer = memory;
    const lv_area_options area = {.huge_pages = true, .touch = true};
    const lever_status status =
        lv_area_open(&buffer->area, device->ledger, LV_MEM_DEVICE, (size_t)bytes, &area, "a buffer of a device", error);
    if (status != LEVER_OK) {
        lv_free(buffer);
        return status;
    }
    buffer->base = (lv_device_buffer){.device = device, .bytes = bytes};
    *out = &buffer->base;
    return LEVER_OK;
}

static lever_status wait_for(test_device *d, uint64_t ticket, lever_error *error) {
    pthread_mutex_lock(&d->lock);
    while (d->done < ticket) pthread_cond_wait(&d->changed, &d->lock);
    const bool failed = d->failed;
    pthread_mutex_unlock(&d->lock);
    return failed ? lv_fail(error, LEVER_E_IO, "device test: a run has failed") : LEVER_OK;
}

static void test_buffer_close(lv_device_buffer *base) {
    test_buffer *buffer = buffer_of(base);
    (void)wait_for(device_of(base->device), buffer->used_until, NULL);
    lv_area_close(&buffer->area);
    lv_free(buffer);
}

/* The host touches [offset, offset + bytes). */
static lever_status check_access(const test_buffer *buffer, uint64_t offset, uint64_t bytes, lever_error *error) {
    test_device *d = device_of(buffer->base.device);
    LV_TRY(check_alive(d, error));
    if (offset % d->base.facts.alignment != 0) return broken(error, "an offset is not aligned");
    if (offset > buffer->base.bytes || bytes > buffer->base.bytes - offset) {
        return broken(error, "a range lies beyond its buffer");
    }
    /* Even when the run happens to be over: nobody has waited for it. */
    if (buffer->used_until > d->waited) return broken(error, "a buffer is touched while a run uses it; wait first");
    return LEVER_OK;
}

static lever_status test_clear(lv_device_buffer *base, lever_error *error) {
    test_buffer *buffer = buffer_of(base);
    LV_TRY(check_access(buffer, 0, 0, error));
    if (!device_of(base->device)->once) buffer->parts_count = 0;
    buffer->written_bytes = 0;
    return LEVER_OK;
}

static const part *find_part(const test_buffer *buffer, uint64_t offset) {
    for (uint32_t i = 0; i < buffer->parts_count; i++) {
        if (buffer->parts[i].offset == offset) return &buffer->parts[i];
    }
    return NULL;
}

/* Tiles for the kernels, rows for floats. */
static void copy_weights(uint8_t *to, lv_weight_layout to_layout, const lv_device_matrix *matrix,
                         lv_weight_layout layout, const uint8_t *weights) {
    const size_t tile_bytes = (size_t)(weight_bytes(matrix) / matrix->rows_count * LV_TILE_ROWS);
    for (uint64_t row = 0; row < matrix->rows_count; row += LV_TILE_ROWS, to += tile_bytes, weights += tile_bytes) {
        if (layout == to_layout) {
            memcpy(to, weights, tile_bytes);
        } else if (to_layout == LV_LAYOUT_ROWS) {
            lv_tile_unpack(matrix->type, (size_t)matrix->row_elements, weights, to);
        } else {
            lv_tile_pack(matrix->type, (size_t)matrix->row_elements, weights, to);
        }
    }
}

static lever_status test_upload(lv_device_buffer *base, uint64_t offset, const lv_device_matrix *matrix,
                                lv_weight_layout layout, const void *weights, lever_error *error) {
    test_buffer *buffer = buffer_of(base);
    if (!test_supports(base->device, matrix)) return broken(error, "a matrix is of a kind that it does not run");
    if (!is_prepared(device_of(base->device), matrix, 0)) return broken(error, "weights of a shape were not prepared");
    const uint64_t bytes = test_part_bytes(base->device, matrix);
    LV_TRY(check_access(buffer, offset, bytes, error));
    if (device_of(base->device)->once && find_part(buffer, offset)) return LEVER_OK;
    for (uint32_t i = 0; i < buffer->parts_count; i++) {
        const part *other = &buffer->parts[i];
        if (offset < other->offset + other->bytes && other->offset < offset + bytes) {
            return broken(error, "weights are uploaded over others; clear the buffer first");
        }
    }
    if (buffer->parts_count == PARTS_MAX) return broken(error, "a buffer holds too many matrices");
    copy_weights(buffer->area.data + offset, device_of(base->device)->floats ? LV_LAYOUT_ROWS : LV_LAYOUT_TILES, matrix,
                 layout, weights);
    buffer->parts[buffer->parts_count++] = (part){offset, bytes, *matrix};
    return LEVER_OK;
}

static lever_status test_write(lv_device_buffer *base, uint64_t offset, const float *values, size_t count,
                               lever_error *error) {
    test_buffer *buffer = buffer_of(base);
    LV_TRY(check_access(buffer, offset, count * sizeof(*values), error));
    if (buffer->parts_count > 0) return broken(error, "rows are written into a buffer of weights");
    memcpy(buffer->area.data + offset, values, count * sizeof(*values));
    if (offset <= buffer->written_bytes && offset + count * sizeof(*values) > buffer->written_bytes) {
        buffer->written_bytes = offset + count * sizeof(*values);
    }
    return LEVER_OK;
}

static lever_status test_read(lv_device_buffer *base, uint64_t offset, float *values, size_t count,
                              lever_error *error) {
    const test_buffer *buffer = buffer_of(base);
    LV_TRY(check_access(buffer, offset, count * sizeof(*values), error));
    if (buffer->parts_count > 0) return broken(error, "weights cannot be read back");
    memcpy(values, buffer->area.data + offset, count * sizeof(*values));
    return LEVER_OK;
}

/* --- Runs -------------------------------------------------------------------------------------------------------- */

static lever_status test_prepare(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket,
                                 lever_error *error) {
    test_device *d = device_of(device);
    LV_TRY(check_alive(d, error));
    if (!has_bucket(device, bucket)) return broken(error, "a number of rows is not one of its buckets");
    if (!test_supports(device, matrix)) return broken(error, "a matrix is of a kind that it does not run");
    if (is_prepared(d, matrix, bucket)) return LEVER_OK;
    if (d->shapes_count == SHAPES_MAX) return broken(error, "too many shapes were prepared");
    LV_TRY(wait_for(d, d->given, error)); /* the scratch may move */
    const size_t wanted = scratch_wanted(d, matrix, bucket);
    if (wanted > d->scratch_bytes) {
        void *memory = NULL;
        LV_TRY(lv_alloc_checked(&memory, device->ledger, LV_MEM_DEVICE, 1, wanted, "a device's scratch", error));
        lv_free(d->scratch);
        d->scratch = memory;
        d->scratch_bytes = wanted;
    }
    d->shapes[d->shapes_count++] = (shape){*matrix, bucket};
    return LEVER_OK;
}

static lever_status check_range(const lv_device_buffer *buffer, uint64_t offset, uint64_t bytes, lever_error *error) {
    if (offset % buffer->device->facts.alignment != 0) return broken(error, "an offset is not aligned");
    if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
        return broken(error, "a range lies beyond its buffer");
    }
    return LEVER_OK;
}

static lever_status check_product(test_device *d, const lv_device_product *p, lever_error *error) {
    const lv_device *device = &d->base;
    if (!has_bucket(device, p->bucket)) return broken(error, "a number of rows is not one of its buckets");
    if (!is_prepared(d, &p->matrix, p->bucket)) return broken(error, "a shape was not prepared");
    if (p->weights->device != device || p->in->device != device || p->out->device != device) {
        return broken(error, "a buffer belongs to another device");
    }
    const part *weights = find_part(buffer_of(p->weights), p->weights_offset);
    if (!weights) return broken(error, "no weights were uploaded there");
    if (!same_matrix(&weights->matrix, &p->matrix)) return broken(error, "the weights there have another shape");
    if (buffer_of(p->out)->parts_count > 0) return broken(error, "results would overwrite weights");
    const uint64_t in_bytes = p->bucket * p->matrix.row_elements * sizeof(float);
    LV_TRY(check_range(p->in, p->in_offset, in_bytes, error));
    LV_TRY(check_range(p->out, p->out_offset, p->bucket * p->matrix.rows_count * sizeof(float), error));
    if (p->in_offset + in_bytes > buffer_of(p->in)->written_bytes) {
        return broken(error, "rows were not written, padding included");
    }
    return LEVER_OK;
}

static lever_status test_run(lv_device *device, const lv_device_product *product, uint64_t *ticket,
                             lever_error *error) {
    test_device *d = device_of(device);
    LV_TRY(check_alive(d, error));
    LV_TRY(check_product(d, product, error));
    pthread_mutex_lock(&d->lock);
    while (d->given - d->done == QUEUE_MAX) pthread_cond_wait(&d->changed, &d->lock);
    d->queue[d->given % QUEUE_MAX] = *product;
    *ticket = ++d->given;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->costs_count; i++) {
        if (d->priced.rows[i] == product->bucket) d->spent_ns += d->costs_ns[i];
    }
    buffer_of(product->weights)->used_until = *ticket;
    buffer_of(product->in)->used_until = *ticket;
    buffer_of(product->out)->used_until = *ticket;
    return LEVER_OK;
}

static lever_status test_wait(lv_device *device, uint64_t ticket, lever_error *error) {
    test_device *d = device_of(device);
    if (ticket > d->given) return broken(error, "a ticket was never given out");
    LV_TRY(wait_for(d, ticket, error));
    if (ticket > d->waited) d->waited = ticket;
    return LEVER_OK;
}

static uint64_t test_spent_ns(const lv_device *device) {
    return ((const test_device *)device)->spent_ns;
}

/* --- Opening and closing ----------------------------------------------------------------------------------------- */

static void test_close(lv_device *device) {
    test_device *d = device_of(device);
    if (d->thread.running) {
        pthread_mutex_lock(&d->lock);
        d->quits = true;
        pthread_cond_broadcast(&d->changed);
        pthread_mutex_unlock(&d->lock);
        lv_thread_join(&d->thread);
    }
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    lv_free(d->scratch);
    lv_area_close(&d->taken);
    lv_free(d);
}

static const lv_device_ops test_ops = {
    .supports = test_supports,
    .part_bytes = test_part_bytes,
    .prepare_bytes = test_prepare_bytes,
    .buffer_open = test_buffer_open,
    .buffer_close = test_buffer_close,
    .clear = test_clear,
    .upload = test_upload,
    .write = test_write,
    .read = test_read,
    .prepare = test_prepare,
    .run = test_run,
    .wait = test_wait,
    .spent_ns = test_spent_ns,
    .close = test_close,
};

/* "1+4+8": at most LV_BUCKETS_MAX numbers from 1 to `most`. 0: it is something else. */
static uint32_t parse_numbers(const char *text, uint64_t most, uint64_t numbers[LV_BUCKETS_MAX]) {
    for (uint32_t count = 0; count < LV_BUCKETS_MAX;) {
        char *end;
        numbers[count] = strtoull(text, &end, 10);
        if (end == text || numbers[count] == 0 || numbers[count] > most) return 0;
        count++;
        if (*end == '\0') return count;
        if (*end != '+') return 0;
        text = end + 1;
    }
    return 0;
}

static bool parse_buckets(const char *text, lv_buckets *buckets) {
    uint64_t rows[LV_BUCKETS_MAX];
    buckets->count = parse_numbers(text, BUCKET_ROWS_MAX, rows);
    for (uint32_t i = 0; i < buckets->count; i++) {
        if (i > 0 && rows[i] <= rows[i - 1]) return false;
        buckets->rows[i] = (uint32_t)rows[i];
    }
    return buckets->count > 0;
}

static bool take_mib(test_device *d, const char *text) {
    uint64_t mib;
    const lv_area_options options = {.touch = true};
    return lv_parse_u64(text, 1, 1024, &mib) && !d->taken.data &&
           lv_area_open(&d->taken, NULL, LV_MEM_DEVICE, (size_t)mib << 20, &options, "memory of its own", NULL) ==
               LEVER_OK;
}

static bool apply_word(test_device *d, const char *word) {
    lv_device_facts *facts = &d->base.facts;
    if (strncmp(word, "fail=", 5) == 0) return lv_parse_u64(word + 5, 1, UINT32_MAX, &d->fail_at);
    if (strncmp(word, "takes=", 6) == 0) return take_mib(d, word + 6);
    if (strncmp(word, "align=", 6) == 0) {
        return lv_parse_u64(word + 6, LV_DEVICE_TEST_ALIGNMENT, LV_DEVICE_ALIGNMENT_MAX, &facts->alignment) &&
               (facts->alignment & (facts->alignment - 1)) == 0;
    }
    if (strncmp(word, "buckets=", 8) == 0) return parse_buckets(word + 8, &facts->buckets);
    if (strncmp(word, "costs=", 6) == 0) {
        d->costs_count = parse_numbers(word + 6, COST_NS_MAX, d->costs_ns);
        return d->costs_count > 0;
    }
    if (strcmp(word, "small") == 0) facts->buffer_bytes_max = SMALL_BUFFER_BYTES;
    d->wrong |= strcmp(word, "wrong") == 0;
    d->once |= strcmp(word, "once") == 0;
    d->slow |= strcmp(word, "slow") == 0;
    d->floats |= strcmp(word, "floats") == 0;
    facts->measures = d->slow;
    facts->same_bits = !d->floats;
    return strcmp(word, "small") == 0 || strcmp(word, "wrong") == 0 || strcmp(word, "once") == 0 ||
           strcmp(word, "slow") == 0 || strcmp(word, "floats") == 0;
}

static lever_status apply_name(test_device *d, const char *name, lever_error *error) {
    const char *next = name + strlen("test");
    while (*next != '\0') {
        char word[WORD_BYTES];
        const size_t length = strcspn(next + 1, ",");
        snprintf(word, sizeof(word), "%.*s", length < sizeof(word) ? (int)length : 0, next + 1);
        if (!apply_word(d, word)) {
            return lv_fail(
                error, LEVER_E_ARGUMENT,
                "the device '%s': '%s' is not known; allowed are fail=N, wrong, once, small, slow, floats, takes=N, "
                "align=N, buckets=N+N+... and costs=N+N+..., with commas between",
                name, word);
        }
        next += 1 + length;
    }
    d->priced = d->base.facts.buckets;
    d->base.facts.tells = d->costs_count > 0;
    if (d->costs_count == 0 || d->costs_count == d->priced.count) return LEVER_OK;
    return lv_fail(error, LEVER_E_ARGUMENT,
                   "the device '%s': %u costs are given for %u buckets; give one for each of them", name,
                   d->costs_count, d->priced.count);
}

lever_status lv_device_test_open(lv_device **out, const char *name, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_DEVICE, 1, sizeof(test_device), "a device", error));
    test_device *d = memory;
    d->base = (lv_device){
        .ops = &test_ops,
        .facts = {.name = "test",
                  .description = "an accelerator made of the CPU, for tests",
                  .buckets = {.rows = {1, 4, 8, 16, 32, 64}, .count = 6},
                  .buffer_bytes_max = LV_DEVICE_TEST_BUFFER_BYTES,
                  .alignment = LV_DEVICE_TEST_ALIGNMENT,
                  .same_bits = true},
        .ledger = ledger,
    };
    d->kernels = lv_kernels_best();
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    lever_status status = apply_name(d, name, error);
    if (status == LEVER_OK) status = lv_thread_start(&d->thread, ledger, run_thread, d, "lever-device", error);
    if (status != LEVER_OK) {
        test_close(&d->base);
        return status;
    }
    *out = &d->base;
    return LEVER_OK;
}
