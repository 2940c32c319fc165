/* device_ggml.c - products as graphs of one node on a backend of ggml's.
 *
 * A buffer of weights keeps a tensor for each part, until it is cleared: backends may attach what they know about a
 * tensor to it. Rows and results are tensors for the moment. Runs are waited for at once: not every backend keeps what
 * it was given until it has computed.
 *
 * A backend in a file (ggml_backend_load) must be of the ggml that lever was built with: ggml compares a version, and
 * refuses. Servers of ggml's RPC backend are devices of a file with the server's address behind it. */
#include "compute/device_ggml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "compute/device_server.h"
#include "ggml-backend.h"
#include "model/ggml_log.h"

enum { PARTS_MAX = 64, RUN_TENSORS = 8, NAME_BYTES = 1024, NAMES_BYTES = 256 };

typedef struct {
    lv_device_buffer base;
    ggml_backend_buffer_t buffer;
    struct ggml_context *context; /* of the parts */
    void *context_memory;
    struct {
        uint64_t offset;
        struct ggml_tensor *tensor;
    } parts[PARTS_MAX];
    uint32_t parts_count; /* uploaded since the last clear */
} ggml_buffer;

typedef struct {
    lv_device base;
    ggml_backend_dev_t device;
    ggml_backend_t backend;
    struct ggml_context *context; /* of one run, or one copy */
    void *context_memory;
    lv_area bounce; /* the largest matrix that was prepared, out of its tiles */
} ggml_device;

static ggml_device *device_of(lv_device *device) {
    return (ggml_device *)device;
}

static ggml_buffer *buffer_of(lv_device_buffer *buffer) {
    return (ggml_buffer *)buffer;
}

static size_t context_bytes(uint32_t tensors) {
    return tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(RUN_TENSORS, false) + 1024;
}

static lever_status open_context(struct ggml_context **context, void **memory, uint32_t tensors, lv_ledger *ledger,
                                 lever_error *error) {
    const size_t bytes = context_bytes(tensors);
    LV_TRY(lv_alloc_checked(memory, ledger, LV_MEM_DEVICE, 1, bytes, "tensors of a device", error));
    *context = ggml_init((struct ggml_init_params){.mem_size = bytes, .mem_buffer = *memory, .no_alloc = true});
    if (*context) return LEVER_OK;
    lv_free(*memory);
    *memory = NULL;
    return lv_fail(error, LEVER_E_MEMORY, "cannot make a ggml context of %zu bytes", bytes);
}

static struct ggml_tensor *new_matrix(struct ggml_context *context, const lv_device_matrix *matrix) {
    return ggml_new_tensor_2d(context, (enum ggml_type)matrix->type, (int64_t)matrix->row_elements,
                              (int64_t)matrix->rows_count);
}

/* --- What it can run --------------------------------------------------------------------------------------------- */

static bool ggml_supports(const lv_device *device, const lv_device_matrix *matrix) {
    const ggml_device *d = (const ggml_device *)device;
    ggml_reset(d->context);
    struct ggml_tensor *rows = ggml_new_tensor_2d(d->context, GGML_TYPE_F32, (int64_t)matrix->row_elements,
                                                  device->facts.buckets.rows[device->facts.buckets.count - 1]);
    return ggml_backend_dev_supports_op(d->device, ggml_mul_mat(d->context, new_matrix(d->context, matrix), rows));
}

static uint64_t ggml_part_bytes(lv_device *device, const lv_device_matrix *matrix) {
    const ggml_device *d = device_of(device);
    ggml_reset(d->context);
    return lv_device_align(device, ggml_backend_buft_get_alloc_size(ggml_backend_dev_buffer_type(d->device),
                                                                    new_matrix(d->context, matrix)));
}

/* --- Buffers ----------------------------------------------------------------------------------------------------- */

static void ggml_buffer_close_(lv_device_buffer *base) {
    ggml_buffer *buffer = buffer_of(base);
    if (buffer->buffer) {
        ggml_backend_buffer_free(buffer->buffer);
        lv_ledger_release(base->device->ledger, LV_MEM_DEVICE, base->bytes);
    }
    if (buffer->context) ggml_free(buffer->context);
    lv_free(buffer->context_memory);
    lv_free(buffer);
}

static lever_status ggml_buffer_open(lv_device *device, uint64_t bytes, lv_device_buffer **out, lever_error *error) {
    *out = NULL;
    const ggml_device *d = device_of(device);
    if (bytes == 0 || bytes > device->facts.buffer_bytes_max) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "device %s: a buffer of %" PRIu64 " bytes was asked for; the most is %" PRIu64,
                       device->facts.name, bytes, device->facts.buffer_bytes_max);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, device->ledger, LV_MEM_DEVICE, 1, sizeof(ggml_buffer), "a buffer of a device",
                            error));
    ggml_buffer *buffer = memory;
    buffer->base = (lv_device_buffer){.device = device, .bytes = bytes};
    lever_status status = open_context(&buffer->context, &buffer->context_memory, PARTS_MAX, device->ledger, error);
    if (status == LEVER_OK) status = lv_ledger_reserve(device->ledger, LV_MEM_DEVICE, bytes, error);
    if (status == LEVER_OK) {
        buffer->buffer = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(d->device), (size_t)bytes);
        if (!buffer->buffer) {
            lv_ledger_release(device->ledger, LV_MEM_DEVICE, bytes);
            status = lv_fail(error, LEVER_E_MEMORY, "device %s refused a buffer of %" PRIu64 " bytes",
                             device->facts.name, bytes);
        }
    }
    if (status != LEVER_OK) {
        ggml_buffer_close_(&buffer->base);
        return status;
    }
    *out = &buffer->base;
    return LEVER_OK;
}

static lever_status place(ggml_buffer *buffer, struct ggml_tensor *tensor, uint64_t offset, lever_error *error) {
    const char *name = buffer->base.device->facts.name;
    const uint64_t bytes = ggml_backend_buffer_get_alloc_size(buffer->buffer, tensor);
    if (offset % buffer->base.device->facts.alignment != 0 || offset > buffer->base.bytes ||
        bytes > buffer->base.bytes - offset) {
        return lv_fail(error, LEVER_E_ARGUMENT, "device %s: %" PRIu64 " bytes at %" PRIu64 " do not fit a buffer", name,
                       bytes, offset);
    }
    uint8_t *begin = ggml_backend_buffer_get_base(buffer->buffer);
    if (ggml_backend_tensor_alloc(buffer->buffer, tensor, begin + offset) == GGML_STATUS_SUCCESS) return LEVER_OK;
    return lv_fail(error, LEVER_E_IO, "device %s does not take a tensor", name);
}

static lever_status ggml_clear(lv_device_buffer *base, lever_error *error) {
    (void)error;
    ggml_buffer *buffer = buffer_of(base);
    ggml_reset(buffer->context);
    ggml_backend_buffer_reset(buffer->buffer);
    buffer->parts_count = 0;
    return LEVER_OK;
}

static lever_status unpack(ggml_device *d, const lv_device_matrix *matrix, const uint8_t *tiles, size_t bytes,
                           lever_error *error) {
    if (bytes > d->bounce.bytes) {
        return lv_fail(error, LEVER_E_ARGUMENT, "device %s: these weights were not prepared", d->base.facts.name);
    }
    const size_t tile_bytes = (size_t)(bytes / matrix->rows_count * LV_TILE_ROWS);
    for (size_t at = 0; at < bytes; at += tile_bytes) {
        lv_tile_unpack(matrix->type, (size_t)matrix->row_elements, tiles + at, d->bounce.data + at);
    }
    return LEVER_OK;
}

static lever_status ggml_upload(lv_device_buffer *base, uint64_t offset, const lv_device_matrix *matrix,
                                lv_weight_layout layout, const void *weights, lever_error *error) {
    ggml_buffer *buffer = buffer_of(base);
    ggml_device *d = device_of(base->device);
    if (buffer->parts_count == PARTS_MAX) {
        return lv_fail(error, LEVER_E_ARGUMENT, "device %s: a buffer holds too many matrices", d->base.facts.name);
    }
    struct ggml_tensor *tensor = new_matrix(buffer->context, matrix);
    LV_TRY(place(buffer, tensor, offset, error));
    if (layout == LV_LAYOUT_TILES) {
        LV_TRY(unpack(d, matrix, weights, ggml_nbytes(tensor), error));
        weights = d->bounce.data;
    }
    ggml_backend_tensor_set(tensor, weights, 0, ggml_nbytes(tensor));
    buffer->parts[buffer->parts_count].offset = offset;
    buffer->parts[buffer->parts_count++].tensor = tensor;
    return LEVER_OK;
}

static lever_status floats_at(lv_device_buffer *base, uint64_t offset, size_t count, struct ggml_tensor **tensor,
                              lever_error *error) {
    const ggml_device *d = device_of(base->device);
    ggml_reset(d->context);
    *tensor = ggml_new_tensor_1d(d->context, GGML_TYPE_F32, (int64_t)count);
    return place(buffer_of(base), *tensor, offset, error);
}

static lever_status ggml_write(lv_device_buffer *base, uint64_t offset, const float *values, size_t count,
                               lever_error *error) {
    struct ggml_tensor *tensor;
    LV_TRY(floats_at(base, offset, count, &tensor, error));
    ggml_backend_tensor_set(tensor, values, 0, count * sizeof(*values));
    return LEVER_OK;
}

static lever_status ggml_read(lv_device_buffer *base, uint64_t offset, float *values, size_t count,
                              lever_error *error) {
    struct ggml_tensor *tensor;
    LV_TRY(floats_at(base, offset, count, &tensor, error));
    ggml_backend_tensor_get(tensor, values, 0, count * sizeof(*values));
    return LEVER_OK;
}

/* --- Runs -------------------------------------------------------------------------------------------------------- */

/* Weights that are in tiles come to ggml as rows. */
static size_t bounce_bytes(const lv_device_matrix *matrix) {
    if (!lv_kernel_supports(matrix->type, matrix->row_elements) || matrix->rows_count % LV_TILE_ROWS != 0) return 0;
    return ggml_row_size((enum ggml_type)matrix->type, (int64_t)matrix->row_elements) * (size_t)matrix->rows_count;
}

static uint64_t ggml_prepare_bytes(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket) {
    (void)device;
    (void)bucket;
    return lv_area_booked_bytes(bounce_bytes(matrix));
}

static lever_status ggml_prepare(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket,
                                 lever_error *error) {
    (void)bucket;
    ggml_device *d = device_of(device);
    if (!ggml_supports(device, matrix)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "device %s does not run this product", device->facts.name);
    }
    const size_t bytes = bounce_bytes(matrix);
    if (bytes <= d->bounce.bytes) return LEVER_OK;
    lv_area_close(&d->bounce);
    const lv_area_options options = {.huge_pages = true, .touch = true};
    return lv_area_open(&d->bounce, device->ledger, LV_MEM_DEVICE, bytes, &options, "a bounce buffer", error);
}

static lever_status ggml_run(lv_device *device, const lv_device_product *p, uint64_t *ticket, lever_error *error) {
    ggml_device *d = device_of(device);
    const ggml_buffer *buffer = buffer_of(p->weights);
    struct ggml_tensor *weights = NULL;
    for (uint32_t i = 0; i < buffer->parts_count; i++) {
        if (buffer->parts[i].offset == p->weights_offset) weights = buffer->parts[i].tensor;
    }
    if (!weights || weights->ne[0] != (int64_t)p->matrix.row_elements ||
        weights->ne[1] != (int64_t)p->matrix.rows_count) {
        return lv_fail(error, LEVER_E_ARGUMENT, "device %s: no such weights were uploaded there", device->facts.name);
    }
    ggml_reset(d->context);
    struct ggml_tensor *in =
        ggml_new_tensor_2d(d->context, GGML_TYPE_F32, (int64_t)p->matrix.row_elements, (int64_t)p->bucket);
    struct ggml_tensor *out = ggml_mul_mat(d->context, weights, in);
    LV_TRY(place(buffer_of(p->in), in, p->in_offset, error));
    LV_TRY(place(buffer_of(p->out), out, p->out_offset, error));
    struct ggml_cgraph *graph = ggml_new_graph_custom(d->context, RUN_TENSORS, false);
    ggml_build_forward_expand(graph, out);
    const enum ggml_status status = ggml_backend_graph_compute(d->backend, graph);
    if (status != GGML_STATUS_SUCCESS) {
        return lv_fail(error, LEVER_E_IO, "device %s: a run has failed: %s", device->facts.name,
                       ggml_status_to_string(status));
    }
    *ticket = 1;
    return LEVER_OK;
}

static lever_status ggml_wait(lv_device *device, uint64_t ticket, lever_error *error) {
    (void)device;
    (void)ticket;
    (void)error;
    return LEVER_OK;
}

/* --- Finding, opening and closing -------------------------------------------------------------------------------- */

static void ggml_close(lv_device *device) {
    ggml_device *d = device_of(device);
    if (d->backend) ggml_backend_free(d->backend);
    if (d->context) ggml_free(d->context);
    lv_free(d->context_memory);
    lv_area_close(&d->bounce);
    lv_free(d);
}

static const lv_device_ops ggml_ops = {
    .supports = ggml_supports,
    .part_bytes = ggml_part_bytes,
    .prepare_bytes = ggml_prepare_bytes,
    .buffer_open = ggml_buffer_open,
    .buffer_close = ggml_buffer_close_,
    .clear = ggml_clear,
    .upload = ggml_upload,
    .write = ggml_write,
    .read = ggml_read,
    .prepare = ggml_prepare,
    .run = ggml_run,
    .wait = ggml_wait,
    .close = ggml_close,
};

typedef ggml_backend_reg_t (*add_server_fn)(const char *endpoint);

/* The backend in the file, or those devices of it that the server in `suffix` has; *suffix is then NULL. */
static lever_status load_backend(ggml_backend_reg_t *backend, const char *path, const char **suffix, const lv_log *log,
                                 lever_error *error) {
    lv_log_write(log, LEVER_LOG_DEBUG, "loading a backend: %s", path);
    lv_ggml_listener listener = {.log = log, .source = "ggml"};
    lv_ggml_listen(&listener);
    *backend = ggml_backend_load(path);
    lv_ggml_listen(NULL);
    if (!*backend) {
        return lv_fail(error, LEVER_E_ARGUMENT, "no backend of ggml can be loaded from it; %s",
                       listener.error[0] ? listener.error : "ggml does not say why");
    }
    /* A pointer to a function, which C does not convert from one to data. */
    void *address = ggml_backend_reg_get_proc_address(*backend, "ggml_backend_rpc_add_server");
    if (!address) return LEVER_OK;
    if (!*suffix) return lv_fail(error, LEVER_E_ARGUMENT, "its devices are a server's: %s:HOST:PORT", path);
    LV_TRY(lv_device_server_check(*suffix, LV_DEVICE_SERVER_WAIT_MS, error));
    add_server_fn add_server;
    memcpy(&add_server, &address, sizeof(add_server));
    lv_log_write(log, LEVER_LOG_DEBUG, "asking the server %s, which serves one client at a time", *suffix);
    *backend = add_server(*suffix);
    if (!*backend) return lv_fail(error, LEVER_E_ARGUMENT, "the server %s has no device", *suffix);
    *suffix = NULL;
    return LEVER_OK;
}

/* "FILE" or "FILE:NAME": the first device of the backend in the file, the one of this name, or the server there. */
static lever_status find_in_file(ggml_backend_dev_t *device, const char *name, const lv_log *log, lever_error *error) {
    char path[NAME_BYTES], names[NAMES_BYTES] = "";
    snprintf(path, sizeof(path), "%s", name);
    char *end = strstr(path, ".so:");
    const char *suffix = end ? end + 4 : NULL;
    if (end) end[3] = '\0';
    ggml_backend_reg_t backend = NULL;
    LV_TRY(load_backend(&backend, path, &suffix, log, error));
    for (size_t i = 0; i < ggml_backend_reg_dev_count(backend); i++) {
        *device = ggml_backend_reg_dev_get(backend, i);
        const char *has = ggml_backend_dev_name(*device);
        if (!suffix || strcmp(has, suffix) == 0) return LEVER_OK;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", has);
    }
    if (names[0]) return lv_fail(error, LEVER_E_ARGUMENT, "its backend has no device %s; it has: %s", suffix, names);
    return lv_fail(error, LEVER_E_ARGUMENT, "its backend finds no device on this machine");
}

bool lv_device_ggml_may_be(const char *name) {
    return strchr(name, '/') || ggml_backend_dev_by_name(name);
}

static lever_status find(ggml_backend_dev_t *device, const char *name, const lv_log *log, lever_error *error) {
    if (strchr(name, '/')) return find_in_file(device, name, log, error);
    *device = ggml_backend_dev_by_name(name);
    return *device ? LEVER_OK : lv_fail(error, LEVER_E_ARGUMENT, "it is not there");
}

/* ggml's CPU backend would wake four threads for each product, beside those of lever's. */
static void use_one_thread(const ggml_device *d) {
    if (ggml_backend_dev_type(d->device) != GGML_BACKEND_DEVICE_TYPE_CPU) return;
    void *address =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(d->device), "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t set_threads;
    memcpy(&set_threads, &address, sizeof(set_threads));
    if (address) set_threads(d->backend, 1);
}

static void fill_facts(ggml_device *d) {
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(d->device);
    lv_device_facts *facts = &d->base.facts;
    *facts = (lv_device_facts){
        .buckets = {.rows = {1, 8, 16, 32, 64}, .count = 5},
        .buffer_bytes_max = ggml_backend_buft_get_max_size(type),
        .alignment = ggml_backend_buft_get_alignment(type),
        .measures = true,
    };
    snprintf(facts->name, sizeof(facts->name), "%s", ggml_backend_dev_name(d->device));
    snprintf(facts->description, sizeof(facts->description), "%s", ggml_backend_dev_description(d->device));
    /* A line of the cache, even where a backend asks for less. */
    if (facts->alignment < 64) facts->alignment = 64;
}

lever_status lv_device_ggml_open(lv_device **out, const char *name, lv_ledger *ledger, const lv_log *log,
                                 lever_error *error) {
    *out = NULL;
    ggml_backend_dev_t device = NULL;
    const lever_status found = find(&device, name, log, error);
    if (found != LEVER_OK) {
        lv_error_prefix(error, "the device '%s': ", name);
        return found;
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_DEVICE, 1, sizeof(ggml_device), "a device", error));
    ggml_device *d = memory;
    d->base = (lv_device){.ops = &ggml_ops, .ledger = ledger};
    d->device = device;
    fill_facts(d);
    lever_status status = open_context(&d->context, &d->context_memory, RUN_TENSORS, ledger, error);
    if (status == LEVER_OK) {
        lv_log_write(log, LEVER_LOG_DEBUG, "device %s: starting it", name);
        d->backend = ggml_backend_dev_init(device, NULL);
        if (!d->backend) status = lv_fail(error, LEVER_E_IO, "the device %s cannot be started", name);
    }
    if (status == LEVER_OK) use_one_thread(d);
    if (status == LEVER_OK && d->base.facts.alignment > LV_DEVICE_ALIGNMENT_MAX) {
        status = lv_fail(error, LEVER_E_ARGUMENT, "the device %s wants offsets that are multiples of %" PRIu64, name,
                         d->base.facts.alignment);
    }
    if (status != LEVER_OK) {
        ggml_close(&d->base);
        return status;
    }
    *out = &d->base;
    return LEVER_OK;
}

void lv_device_ggml_list(lv_device_visit_fn visit, void *user) {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        visit(user, ggml_backend_dev_name(device), ggml_backend_dev_description(device));
    }
}
