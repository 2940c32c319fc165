/* pack.c - rewriting a model once into the layout that streams and computes fastest.
 *
 *     | keys, table | norms, biases, embeddings | layer 0: q k v o gate up down | layer 1 ... | head |
 *                     rows                        tiles where a kernel exists                  tiles
 *
 * A tied embedding is head and look-up table at once. It is stored once, in tiles: the head is what takes time, and to
 * look a row up means to read the 16 rows of its tile.
 *
 * The work is cut into runs of whole chunks of one tensor, about 2 MiB each. Workers take runs in order; each reads its
 * run with one request, converts, rewrites and sums it chunk by chunk, and writes. So reading, computing and writing
 * overlap without a queue between them, and the memory in use is a few MiB a worker, whatever the model's size. The
 * calling thread waits, tells the progress, and writes the header before and the checksums after. */
#include "engine/pack.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "base/thread.h"
#include "compute/convert.h"
#include "compute/kernels/kernel.h"
#include "flash/checks.h"

#define MATRICES_OF_LAYER 7u
#define RUN_BYTES ((uint64_t)2 << 20)
#define WORKERS_MIN 2u /* one reads while the other writes */
#define WORKERS_MAX 8u

/* --- What becomes of each tensor ---------------------------------------------------------------------------------- */

static void add_tensor(lv_pack_plan *plan, const lv_tensor *tensor, int32_t type, bool tiles) {
    if (tensor == NULL) return;
    lv_tensor out = *tensor;
    out.type = type;
    out.row_bytes = type == tensor->type ? tensor->row_bytes : lv_convert_row_bytes(type, tensor->dims[0]);
    out.bytes = out.row_bytes * out.rows_count;
    out.file_index = 0;
    tiles = tiles && tensor->dims_count == 2 && out.rows_count % LV_TILE_ROWS == 0 &&
            lv_kernel_supports(type, tensor->dims[0]);
    out.layout = tiles ? LV_LAYOUT_TILES : LV_LAYOUT_ROWS;
    plan->tensors[plan->tensors_count++] = (lv_packed_tensor){.out = out, .source = tensor};
}

static void add_layer_matrix(lv_pack_plan *plan, const lv_tensor *tensor, int32_t type) {
    bool fits =
        type != LV_TYPE_KEEP && lv_convert_reads(tensor->type) && lv_convert_row_bytes(type, tensor->dims[0]) > 0;
    if (type != LV_TYPE_KEEP && !fits) {
        plan->kept_count++;
        plan->kept_example = tensor;
    }
    if (fits) plan->converted_count++;
    add_tensor(plan, tensor, fits ? type : tensor->type, true);
}

static bool is_matrix_of_layer(const lv_layer *layer, const lv_tensor *tensor) {
    return tensor == layer->attn_q || tensor == layer->attn_k || tensor == layer->attn_v ||
           tensor == layer->attn_output || tensor == layer->ffn_gate || tensor == layer->ffn_up ||
           tensor == layer->ffn_down;
}

lever_status lv_pack_plan_make(lv_pack_plan *plan, const lv_gguf *gguf, const lv_model *model, int32_t type,
                               lever_error *error) {
    *plan = (lv_pack_plan){0};
    uint32_t count = lv_gguf_tensors_count(gguf);
    void *memory = NULL;
    LV_TRY(
        lv_alloc_checked(&memory, NULL, LV_MEM_METADATA, count, sizeof(lv_packed_tensor), "the tensor table", error));
    plan->tensors = memory;

    for (uint32_t i = 0; i < count; i++) {
        const lv_tensor *tensor = lv_gguf_tensor(gguf, i);
        bool later = tensor == model->output;
        for (uint32_t l = 0; l < model->hparams.layers_count && !later; l++)
            later = is_matrix_of_layer(&model->layers[l], tensor);
        if (!later) add_tensor(plan, tensor, tensor->type, false);
    }
    for (uint32_t l = 0; l < model->hparams.layers_count; l++) {
        const lv_layer *layer = &model->layers[l];
        const lv_tensor *const in_order[MATRICES_OF_LAYER] = {layer->attn_q,      layer->attn_k,   layer->attn_v,
                                                              layer->attn_output, layer->ffn_gate, layer->ffn_up,
                                                              layer->ffn_down};
        for (size_t i = 0; i < MATRICES_OF_LAYER; i++) add_layer_matrix(plan, in_order[i], type);
    }
    add_tensor(plan, model->output, model->output->type, true);
    if (plan->tensors_count != count) {
        lv_free(plan->tensors);
        return lv_fail(error, LEVER_E_FORMAT, "'%s' uses one tensor in two places", lv_gguf_path(gguf));
    }
    return LEVER_OK;
}

/* --- Workers ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const lv_gguf *gguf;
    lv_pack_file *file;
    size_t source_bytes, chunk_bytes, tile_bytes, floats_bytes; /* of a worker's buffers */

    pthread_mutex_t lock;    /* protects what follows */
    pthread_cond_t advanced; /* the calling thread waits for progress, the end, or a failure */
    uint32_t tensor;         /* of the next run */
    uint64_t row;
    uint64_t bytes_done; /* written */
    uint32_t working;
    lever_error error;
} job;

typedef struct {
    const lv_packed_tensor *tensor;
    uint64_t row_first, rows_count;
} run;

/* A worker's memory: one area, cut into parts that begin at whole pages. */
typedef struct {
    lv_area area;
    uint8_t *source; /* the run as it was read */
    uint8_t *chunk;  /* as it is written */
    uint8_t *tile;   /* 16 converted rows, before they are interleaved */
    float *floats;   /* the same as floats */
} workspace;

static uint64_t rows_of_run(const lv_packed_tensor *tensor) {
    uint64_t chunk_rows = lv_chunk_rows(&tensor->out);
    uint64_t chunks = RUN_BYTES / (chunk_rows * tensor->source->row_bytes);
    return (chunks > 0 ? chunks : 1) * chunk_rows;
}

static bool take_run(job *j, run *taken) {
    pthread_mutex_lock(&j->lock);
    bool any = j->error.status == LEVER_OK && j->tensor < j->file->tensors_count;
    if (any) {
        const lv_packed_tensor *tensor = &j->file->tensors[j->tensor];
        uint64_t left = tensor->out.rows_count - j->row, rows = rows_of_run(tensor);
        *taken = (run){tensor, j->row, rows < left ? rows : left};
        j->row += taken->rows_count;
        if (j->row == tensor->out.rows_count) {
            j->row = 0;
            j->tensor++;
        }
    }
    pthread_mutex_unlock(&j->lock);
    return any;
}

static size_t whole_pages(uint64_t bytes) {
    return (size_t)((bytes + LV_FILE_ALIGN - 1) / LV_FILE_ALIGN * LV_FILE_ALIGN);
}

static void size_buffers(job *j) {
    for (uint32_t i = 0; i < j->file->tensors_count; i++) {
        const lv_packed_tensor *tensor = &j->file->tensors[i];
        uint64_t rows = tensor->out.rows_count, chunk_rows = lv_chunk_rows(&tensor->out),
                 run_rows = rows_of_run(tensor);
        if (chunk_rows > rows) chunk_rows = rows;
        if (run_rows > rows) run_rows = rows;
        size_t source = lv_file_superset_bytes(LV_FILE_ALIGN - 1, (size_t)(run_rows * tensor->source->row_bytes));
        size_t chunk = whole_pages(chunk_rows * tensor->out.row_bytes);
        if (source > j->source_bytes) j->source_bytes = source;
        if (chunk > j->chunk_bytes) j->chunk_bytes = chunk;
        if (tensor->out.type == tensor->source->type) continue;
        size_t tile = whole_pages(LV_TILE_ROWS * tensor->out.row_bytes);
        size_t floats = whole_pages(LV_TILE_ROWS * tensor->out.dims[0] * sizeof(float));
        if (tile > j->tile_bytes) j->tile_bytes = tile;
        if (floats > j->floats_bytes) j->floats_bytes = floats;
    }
}

static lever_status open_workspace(const job *j, workspace *space, lever_error *error) {
    size_t bytes = j->source_bytes + j->chunk_bytes + j->tile_bytes + j->floats_bytes;
    lv_area_options options = {.huge_pages = true, .touch = true};
    LV_TRY(lv_area_open(&space->area, NULL, LV_MEM_WORKSPACE, bytes, &options, "packing", error));
    space->source = space->area.data;
    space->chunk = space->source + j->source_bytes;
    space->tile = space->chunk + j->chunk_bytes;
    space->floats = (float *)(void *)(space->tile + j->tile_bytes);
    return LEVER_OK;
}

/* `rows`: up to 16 rows as they were read. */
static void rewrite_rows(const lv_packed_tensor *tensor, const uint8_t *rows, uint64_t rows_count, uint8_t *to,
                         const workspace *space) {
    const lv_tensor *out = &tensor->out;
    bool tiles = out->layout == LV_LAYOUT_TILES;
    if (out->type != tensor->source->type) {
        uint8_t *converted = tiles ? space->tile : to;
        lv_convert_rows(tensor->source->type, rows, out->type, converted, out->dims[0], rows_count, space->floats);
        rows = converted;
    }
    if (tiles) {
        lv_tile_pack(out->type, (size_t)out->dims[0], rows, to);
    } else if (rows != to) {
        memcpy(to, rows, (size_t)(rows_count * out->row_bytes));
    }
}

static lever_status rewrite_run(const job *j, const run *r, const workspace *space, lever_error *error) {
    const lv_tensor *source = r->tensor->source, *out = &r->tensor->out;
    size_t skip = 0;
    LV_TRY(lv_file_read_superset(lv_gguf_file(j->gguf, source->file_index), space->source,
                                 source->offset + r->row_first * source->row_bytes,
                                 (size_t)(r->rows_count * source->row_bytes), &skip, error));
    const uint8_t *rows = space->source + skip;
    const uint64_t chunk_rows = lv_chunk_rows(out), end = r->row_first + r->rows_count;
    assert(chunk_rows > 0);
    for (uint64_t first = r->row_first; first < end; first += chunk_rows) {
        uint64_t count = end - first < chunk_rows ? end - first : chunk_rows;
        for (uint64_t row = 0; row < count; row += LV_TILE_ROWS) {
            uint64_t step = count - row < LV_TILE_ROWS ? count - row : LV_TILE_ROWS;
            rewrite_rows(r->tensor, rows, step, space->chunk + row * out->row_bytes, space);
            rows += step * source->row_bytes;
        }
        size_t bytes = (size_t)(count * out->row_bytes);
        j->file->sums[r->tensor->chunk_first + first / chunk_rows] = lv_checksum(space->chunk, bytes);
        LV_TRY(lv_pack_file_write(j->file, space->chunk, out->offset + first * out->row_bytes, bytes, error));
    }
    return LEVER_OK;
}

static void *work(void *user) {
    job *j = user;
    run taken;
    workspace space = {0};
    lever_error error = {0};
    lever_status status = open_workspace(j, &space, &error);
    while (status == LEVER_OK && take_run(j, &taken)) {
        status = rewrite_run(j, &taken, &space, &error);
        pthread_mutex_lock(&j->lock);
        j->bytes_done += taken.rows_count * taken.tensor->out.row_bytes;
        pthread_cond_signal(&j->advanced);
        pthread_mutex_unlock(&j->lock);
    }
    lv_area_close(&space.area);

    pthread_mutex_lock(&j->lock);
    if (status != LEVER_OK && j->error.status == LEVER_OK) j->error = error;
    j->working--;
    pthread_cond_signal(&j->advanced);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* Waits for the workers and tells the progress. */
static void watch(job *j, const lever_pack_options *options, uint64_t bytes_total) {
    uint64_t told = 0;
    pthread_mutex_lock(&j->lock);
    while (j->working > 0) {
        pthread_cond_wait(&j->advanced, &j->lock);
        uint64_t done = j->bytes_done;
        if (options->progress == NULL || done == told) continue;
        pthread_mutex_unlock(&j->lock);
        options->progress(options->progress_user, LEVER_STAGE_PACK, done, bytes_total);
        told = done;
        pthread_mutex_lock(&j->lock);
    }
    pthread_mutex_unlock(&j->lock);
}

static uint64_t bytes_of(const lv_packed_tensor *tensors, uint32_t tensors_count) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tensors_count; i++) bytes += tensors[i].out.bytes;
    return bytes;
}

static lever_status rewrite_all(const lv_gguf *gguf, lv_pack_file *file, const lever_pack_options *options,
                                lever_error *error) {
    job j = {.gguf = gguf, .file = file, .lock = PTHREAD_MUTEX_INITIALIZER, .advanced = PTHREAD_COND_INITIALIZER};
    size_buffers(&j);
    const uint64_t bytes_total = bytes_of(file->tensors, file->tensors_count);

    uint32_t workers = lv_cpu_fast_count("/sys");
    if (workers < WORKERS_MIN) workers = WORKERS_MIN;
    if (workers > WORKERS_MAX) workers = WORKERS_MAX;
    lv_thread threads[WORKERS_MAX] = {0};
    j.working = workers;
    for (uint32_t i = 0; i < workers; i++) {
        lever_error failure = {0};
        if (lv_thread_start(&threads[i], NULL, work, &j, "lever-pack", &failure) == LEVER_OK) continue;
        pthread_mutex_lock(&j.lock);
        if (j.error.status == LEVER_OK) j.error = failure;
        j.working--;
        pthread_mutex_unlock(&j.lock);
    }
    watch(&j, options, bytes_total);
    for (uint32_t i = 0; i < workers; i++) lv_thread_join(&threads[i]);

    if (j.error.status != LEVER_OK && error != NULL) *error = j.error;
    return j.error.status;
}

/* --- The whole ---------------------------------------------------------------------------------------------------- */

void lever_pack_options_init(lever_pack_options *options) {
    *options = (lever_pack_options){0};
}

/* A name that packing would write to: not there, or a file that is no part of the input. */
static lever_status check_written(const lv_gguf *gguf, const char *path, lever_error *error) {
    struct stat written, input;
    if (stat(path, &written) != 0) return LEVER_OK; /* not there, or told when it is created */
    if (!S_ISREG(written.st_mode))
        return lv_fail(error, LEVER_E_ARGUMENT, "'%s' is there and is not a file; name the packed file.", path);
    for (uint32_t i = 0; i < lv_gguf_files_count(gguf); i++) {
        if (stat(lv_file_path(lv_gguf_file(gguf, i)), &input) == 0 && input.st_dev == written.st_dev &&
            input.st_ino == written.st_ino)
            return lv_fail(error, LEVER_E_ARGUMENT, "'%s' is the input itself; give the packed file another name.",
                           path);
    }
    return LEVER_OK;
}

static lever_status check_output(const lv_gguf *gguf, const char *output_path, lever_error *error) {
    char *part_path = NULL;
    LV_TRY(check_written(gguf, output_path, error));
    LV_TRY(lv_pack_file_part_path(output_path, &part_path, error));
    const lever_status status = check_written(gguf, part_path, error);
    lv_free(part_path);
    return status;
}

static lever_status parse_type(const char *name, int32_t *type, lever_error *error) {
    *type = LV_TYPE_KEEP;
    if (name == NULL || lv_convert_type(name, type)) return LEVER_OK;
    return lv_fail(error, LEVER_E_ARGUMENT, "'%s' is not a type that matrices can be rewritten to. Known: %s.", name,
                   lv_convert_type_list());
}

static void describe_source(const lv_gguf *gguf, const char *type, char *text, size_t capacity) {
    const char *path = lv_gguf_path(gguf), *slash = strrchr(path, '/');
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < lv_gguf_files_count(gguf); i++) bytes += lv_file_bytes(lv_gguf_file(gguf, i));
    snprintf(text, capacity, "%s, %" PRIu64 " bytes, layers %s", slash != NULL ? slash + 1 : path, bytes,
             type != NULL ? type : "as they were");
    text[lv_utf8_whole(text, strlen(text))] = '\0';
}

static void tell_kept(const lv_log *log, const lv_pack_plan *plan, const char *type) {
    if (plan->kept_count == 0) return;
    char name[32];
    lv_log_write(log, LEVER_LOG_WARNING,
                 "%u of %u matrices keep their type: rows of %" PRIu64 " elements (%s, %s) cannot become %s.",
                 plan->kept_count, plan->kept_count + plan->converted_count, plan->kept_example->dims[0],
                 plan->kept_example->name, lv_gguf_tensor_type_name(plan->kept_example->type, name, sizeof name), type);
}

lever_status lever_pack(const char *input_path, const char *output_path, const lever_pack_options *given,
                        lever_error *error) {
    lever_pack_options options;
    lever_pack_options_init(&options);
    if (given != NULL) options = *given;
    lv_error_clear(error);
    if (input_path == NULL || output_path == NULL || *output_path == '\0')
        return lv_fail(error, LEVER_E_ARGUMENT, "Packing needs a model and the name of the packed file.");
    const lv_log log = {options.log, options.log_user};

    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    lv_pack_plan plan = {0};
    lv_pack_file file = {.descriptor = -1};
    int32_t type = LV_TYPE_KEEP;
    char source[256];

    lever_status status = parse_type(options.type, &type, error);
    if (status == LEVER_OK)
        status = lv_gguf_open(&gguf, input_path, &(lv_file_options){.direct = true, .log = &log}, error);
    if (status != LEVER_OK) goto done;
    if (lv_gguf_is_packed(gguf)) {
        status =
            lv_fail(error, LEVER_E_ARGUMENT, "'%s' is packed already. Pack from the GGUF it was made of.", input_path);
        goto done;
    }
    status = check_output(gguf, output_path, error);
    if (status == LEVER_OK) status = lv_model_bind(&model, gguf, NULL, error);
    if (status == LEVER_OK) status = lv_pack_plan_make(&plan, gguf, model, type, error);
    if (status != LEVER_OK) goto done;
    tell_kept(&log, &plan, options.type);

    describe_source(gguf, options.type, source, sizeof source);
    status = lv_pack_file_create(&file, output_path, error);
    if (status == LEVER_OK && options.progress != NULL) /* from here on there is a file to clean up */
        options.progress(options.progress_user, LEVER_STAGE_PACK, 0, bytes_of(plan.tensors, plan.tensors_count));
    if (status == LEVER_OK) status = lv_pack_file_begin(&file, gguf, plan.tensors, plan.tensors_count, source, error);
    if (status == LEVER_OK) status = rewrite_all(gguf, &file, &options, error);
    if (status == LEVER_OK) status = lv_pack_file_finish(&file, error);

done:
    lv_pack_file_close(&file);
    lv_free(plan.tensors);
    lv_model_free(&model);
    lv_gguf_close(&gguf);
    return status;
}
