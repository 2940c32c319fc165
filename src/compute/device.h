/* device.h - something beside the CPU that multiplies: what it can run, its buffers, and how it is driven.
 *
 * A device sees products only: a matrix of weights, rows of activations, rows of results, all in buffers of its own
 * that the host cannot look into. Which products those are, and when, is decided in offload.h; what is not a product of
 * a layer stays on the CPU, and so does everything where no device is used: the CPU is the device that computes in
 * place, and it has no lv_device.
 *
 *     prepare -+-> buffer_open -> upload (weights, part by part) --.
 *              '-> buffer_open -> write (rows of activations) -----+-> run -> ticket -> wait -> read (rows of results)
 *
 * Runs are computed in the order in which they are given; nothing they use may be touched before their ticket was
 * waited for. Every function that fails says which rule was broken, or what the device reported; a device that failed
 * once is not used again. A handle belongs to one thread at a time; the forward passes of target and draft open one
 * each. */
#ifndef LV_COMPUTE_DEVICE_H
#define LV_COMPUTE_DEVICE_H

#include "base/buckets.h"
#include "base/log.h"
#include "compute/kernels/kernel.h"

typedef struct lv_device lv_device;
typedef struct lv_device_buffer lv_device_buffer;

/* A run of rows of a matrix. */
typedef struct {
    int32_t type; /* enum ggml_type */
    uint64_t row_elements, rows_count;
} lv_device_matrix;

typedef struct {
    char name[64]; /* as lv_device_open takes it */
    char description[128];
    lv_buckets buckets;        /* rows of activations of one run; never empty */
    uint64_t buffer_bytes_max; /* of one buffer */
    uint64_t alignment;        /* of offsets in a buffer; a power of two, at most LV_DEVICE_ALIGNMENT_MAX */
    bool same_bits;            /* results are those of the CPU to the last bit */
    bool measures;             /* what it takes says something: not so of one that is made of the CPU for tests */
    bool tells;                /* it tells itself what its runs took: that counts, and not the clock */
} lv_device_facts;

#define LV_DEVICE_ALIGNMENT_MAX ((uint64_t)4096)

/* in: bucket rows of row_elements floats. out: bucket rows of rows_count floats. */
typedef struct {
    lv_device_matrix matrix;
    uint32_t bucket;
    lv_device_buffer *weights, *in, *out;
    uint64_t weights_offset, in_offset, out_offset;
} lv_device_product;

typedef struct {
    bool (*supports)(const lv_device *device, const lv_device_matrix *matrix);
    uint64_t (*part_bytes)(lv_device *device, const lv_device_matrix *matrix);
    uint64_t (*prepare_bytes)(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket);
    lever_status (*buffer_open)(lv_device *device, uint64_t bytes, lv_device_buffer **buffer, lever_error *error);
    void (*buffer_close)(lv_device_buffer *buffer);
    lever_status (*clear)(lv_device_buffer *buffer, lever_error *error);
    lever_status (*upload)(lv_device_buffer *buffer, uint64_t offset, const lv_device_matrix *matrix,
                           lv_weight_layout layout, const void *weights, lever_error *error);
    lever_status (*write)(lv_device_buffer *buffer, uint64_t offset, const float *values, size_t count,
                          lever_error *error);
    lever_status (*read)(lv_device_buffer *buffer, uint64_t offset, float *values, size_t count, lever_error *error);
    lever_status (*prepare)(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket, lever_error *error);
    lever_status (*run)(lv_device *device, const lv_device_product *product, uint64_t *ticket, lever_error *error);
    lever_status (*wait)(lv_device *device, uint64_t ticket, lever_error *error);
    uint64_t (*spent_ns)(const lv_device *device); /* of one that tells */
    void (*close)(lv_device *device);
} lv_device_ops;

/* The first member of every device's own struct. */
struct lv_device {
    const lv_device_ops *ops;
    lv_device_facts facts;
    lv_ledger *ledger;
};

/* The first member of every device's own buffers. */
struct lv_device_buffer {
    lv_device *device;
    uint64_t bytes;
};

/* "test" and its variants (device_test.h), or a device that the linked ggml knows ("Vulkan0"), or one of a ggml backend
 * in a file ("/path/libggml-x.so", "/path/libggml-x.so:NAME"). LEVER_E_ARGUMENT names those that there are. The log
 * hears of each step that is a driver's before it is taken: the last line names one that never returns. */
lever_status lv_device_open(lv_device **device, const char *name, lv_ledger *ledger, const lv_log *log,
                            lever_error *error);
void lv_device_close(lv_device **device); /* its buffers are closed before; NULL is accepted */

/* True for NULL and for the names of the CPU: computing in place, without a device. */
bool lv_device_is_cpu(const char *name);

/* Calls for each device that there is, the CPU first. Opens nothing that takes memory for long. */
typedef void (*lv_device_visit_fn)(void *user, const char *name, const char *description);
void lv_device_list(lv_device_visit_fn visit, void *user);

static inline bool lv_device_supports(const lv_device *d, const lv_device_matrix *matrix) {
    return d->ops->supports(d, matrix);
}
/* What uploaded weights take in a buffer, from an aligned offset on. */
static inline uint64_t lv_device_part_bytes(lv_device *d, const lv_device_matrix *matrix) {
    return d->ops->part_bytes(d, matrix);
}
/* What lv_device_prepare takes for a shape, as the ledger books it; of several shapes the most counts, not the sum. */
static inline uint64_t lv_device_prepare_bytes(lv_device *d, const lv_device_matrix *matrix, uint32_t bucket) {
    return d->ops->prepare_bytes(d, matrix, bucket);
}
/* Booked as LV_MEM_DEVICE. */
static inline lever_status lv_device_buffer_open(lv_device *d, uint64_t bytes, lv_device_buffer **buffer,
                                                 lever_error *error) {
    return d->ops->buffer_open(d, bytes, buffer, error);
}
void lv_device_buffer_close(lv_device_buffer **buffer);
/* Forgets what was uploaded, so that other weights can take its place. */
static inline lever_status lv_device_clear(lv_device_buffer *b, lever_error *error) {
    return b->device->ops->clear(b, error);
}
/* Copies, and turns into what the device wants; the source is free again afterwards. */
static inline lever_status lv_device_upload(lv_device_buffer *b, uint64_t offset, const lv_device_matrix *matrix,
                                            lv_weight_layout layout, const void *weights, lever_error *error) {
    return b->device->ops->upload(b, offset, matrix, layout, weights, error);
}
static inline lever_status lv_device_write(lv_device_buffer *b, uint64_t offset, const float *values, size_t count,
                                           lever_error *error) {
    return b->device->ops->write(b, offset, values, count, error);
}
static inline lever_status lv_device_read(lv_device_buffer *b, uint64_t offset, float *values, size_t count,
                                          lever_error *error) {
    return b->device->ops->read(b, offset, values, count, error);
}
/* Once for each shape of a matrix and bucket, before such weights are uploaded; may take long, and memory, so that
 * nothing else does. */
static inline lever_status lv_device_prepare(lv_device *d, const lv_device_matrix *matrix, uint32_t bucket,
                                             lever_error *error) {
    return d->ops->prepare(d, matrix, bucket, error);
}
/* Returns without waiting where the device can. */
static inline lever_status lv_device_run(lv_device *d, const lv_device_product *product, uint64_t *ticket,
                                         lever_error *error) {
    return d->ops->run(d, product, ticket, error);
}
/* For this run and all before it; 0: nothing. */
static inline lever_status lv_device_wait(lv_device *d, uint64_t ticket, lever_error *error) {
    return d->ops->wait(d, ticket, error);
}
/* What all runs so far took, as the device tells; 0 of one that does not. */
static inline uint64_t lv_device_spent_ns(const lv_device *d) {
    return d->facts.tells ? d->ops->spent_ns(d) : 0;
}

static inline uint64_t lv_device_align(const lv_device *d, uint64_t bytes) {
    return (bytes + d->facts.alignment - 1) / d->facts.alignment * d->facts.alignment;
}

#endif
