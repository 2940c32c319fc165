/* bench_kernels - our kernels against ggml's fastest path for the type, in one process.
 *
 *     bench_kernels [--type T] [--shape RxK] [--batch N,...] [--threads N] [--rounds N]
 *                   [--megabytes N] [--set NAME] [--cpu-time] [--json]
 *
 * One measurement is a pass over as many different matrices as do not fit into the processor's caches, so that weights
 * come from memory, as they do in a model; from huge pages, for all. Four paths take turns, pass by pass: ours on
 * packed tiles, ours in place, ggml on plain rows (which includes its llamafile and tiled paths) and ggml on its
 * repacked layout, where it has one. Each includes rounding the activations. A row gives the median time of each, and
 * the medians, over the rounds, of the ratios to the faster of ggml's two. On a busy machine the ratios are to be
 * trusted, not the times.
 *
 * --cpu-time counts the seconds of the processor, not those of the clock: with one thread, it sees through other
 * programs that want the processor too.
 *
 * --set takes another instruction set than the best ("avx2", "portable").
 *
 * Any type with any shape; without both, those of the models of the default pair that match. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "compute/kernels/kernel.h"

enum { THREADS_MAX = 64, BATCH_COUNT_MAX = 32, ROUNDS_MAX = 1001, HUGE_PAGE = 2 << 20 };

typedef enum { PACKED, IN_PLACE, GGML_PLAIN, GGML_REPACKED, PATHS_COUNT } path;
static const char *const path_names[PATHS_COUNT] = {"packed", "in_place", "ggml_plain", "ggml_repacked"};

typedef struct {
    int32_t type;
    size_t rows_count, row_elements;
} shape;

static const shape default_shapes[] = {
    {GGML_TYPE_Q4_0, 8960, 1536}, {GGML_TYPE_Q4_0, 1536, 8960}, {GGML_TYPE_Q4_0, 1536, 1536},
    {GGML_TYPE_Q4_0, 256, 1536},  {GGML_TYPE_Q4_0, 4864, 896},  {GGML_TYPE_Q4_0, 896, 4864},
    {GGML_TYPE_Q8_0, 8960, 1536}, {GGML_TYPE_Q8_0, 1536, 8960}, {GGML_TYPE_Q8_0, 4864, 896},
    {GGML_TYPE_Q5_0, 8960, 1536}, {GGML_TYPE_Q5_0, 4864, 896},  {GGML_TYPE_Q5_0, 896, 4864},
    {GGML_TYPE_Q4_K, 8960, 1536}, {GGML_TYPE_Q4_K, 1536, 8960}, {GGML_TYPE_Q4_K, 1536, 1536},
    {GGML_TYPE_Q6_K, 8960, 1536}, {GGML_TYPE_Q6_K, 1536, 8960}, {GGML_TYPE_Q6_K, 151936, 1536},
};

typedef struct {
    size_t batches[BATCH_COUNT_MAX];
    size_t batches_count, threads_count, rounds_count, megabytes;
    clockid_t clock;
    const lv_kernels *kernels;
    bool json;
} options;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "bench_kernels: %s\n", what);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes) != 0) fail("out of memory");
    memset(memory, 0, bytes);
    return memory;
}

/* Memory for weights: in huge pages, as lever keeps them, so that a pass is not spent on looking up addresses. */
static void want_huge_pages(void *memory, size_t bytes) {
    const uintptr_t begin = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    const uintptr_t end = ((uintptr_t)memory + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* else with small ones: all paths alike */
}

static void *allocate_weights(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, HUGE_PAGE, bytes) != 0) fail("out of memory");
    want_huge_pages(memory, bytes);
    memset(memory, 0, bytes);
    return memory;
}

static double seconds_now(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- What is multiplied ------------------------------------------------------------------------------------------- */

typedef struct {
    shape shape;
    size_t matrices_count, matrix_bytes, batch_max, threads_count;
    clockid_t clock;
    const lv_kernels *kernels;
    uint8_t *rows, *tiles; /* matrices_count of each */
    float *activations;    /* batch_max rows */
    float *out;
    uint8_t *rounded; /* batch_max rows */
    size_t rounded_stride;

    ggml_backend_t backend;
    struct ggml_threadpool *pool;
    ggml_backend_buffer_t plain_buffer, repacked_buffer; /* the latter NULL where ggml has no such layout */
    struct ggml_context *weights;                        /* matrices_count plain tensors, then as many repacked */
} problem;

static float random_float(void) {
    return (float)rand() / (float)RAND_MAX * 2.0f - 1.0f;
}

static void make_weights(problem *p) {
    const size_t row_bytes = p->matrix_bytes / p->shape.rows_count;
    const size_t sample_rows = p->shape.rows_count < 256 ? p->shape.rows_count : 256;
    float *floats = allocate(sample_rows * p->shape.row_elements * sizeof(float));
    for (size_t i = 0; i < sample_rows * p->shape.row_elements; i++) floats[i] = random_float();
    ggml_quantize_chunk((enum ggml_type)p->shape.type, floats, p->rows, 0, (int64_t)sample_rows,
                        (int64_t)p->shape.row_elements, NULL);
    free(floats);

    /* Quantising is slow: the other rows are copies of the first 256, which costs a product the same. */
    for (size_t r = sample_rows; r < p->matrices_count * p->shape.rows_count; r++)
        memcpy(p->rows + r * row_bytes, p->rows + r % sample_rows * row_bytes, row_bytes);
    for (size_t r = 0; r < p->matrices_count * p->shape.rows_count; r += LV_TILE_ROWS)
        lv_tile_pack(p->shape.type, p->shape.row_elements, p->rows + r * row_bytes, p->tiles + r * row_bytes);
}

static ggml_backend_buffer_type_t repack_buffer_type(void) {
    ggml_backend_dev_t device = ggml_backend_get_device(ggml_backend_cpu_init());
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    void *address = ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts");
    if (address == NULL) return NULL;
    ggml_backend_dev_get_extra_bufts_t get;
    memcpy(&get, &address, sizeof(get));
    for (ggml_backend_buffer_type_t *type = get(device); type != NULL && *type != NULL; type++)
        if (strcmp(ggml_backend_buft_name(*type), "CPU_REPACK") == 0) return *type;
    return NULL;
}

static struct ggml_tensor *new_matrix(problem *p) {
    return ggml_new_tensor_2d(p->weights, (enum ggml_type)p->shape.type, (int64_t)p->shape.row_elements,
                              (int64_t)p->shape.rows_count);
}

static void make_ggml_weights(problem *p) {
    const struct ggml_init_params params = {.mem_size = (2 * p->matrices_count + 1) * ggml_tensor_overhead(),
                                            .no_alloc = true};
    p->weights = ggml_init(params);
    p->plain_buffer = ggml_backend_cpu_buffer_from_ptr(p->rows, p->matrices_count * p->matrix_bytes);
    for (size_t m = 0; m < p->matrices_count; m++)
        if (ggml_backend_tensor_alloc(p->plain_buffer, new_matrix(p), p->rows + m * p->matrix_bytes) != 0)
            fail("ggml refuses the plain weights");

    ggml_backend_buffer_type_t type = repack_buffer_type();
    if (type == NULL) return;
    const size_t padded = (p->matrix_bytes + 255) / 256 * 256;
    p->repacked_buffer = ggml_backend_buft_alloc_buffer(type, p->matrices_count * padded + 256);
    uint8_t *base = ggml_backend_buffer_get_base(p->repacked_buffer);
    want_huge_pages(base, ggml_backend_buffer_get_size(p->repacked_buffer));
    for (size_t m = 0; m < p->matrices_count; m++) {
        struct ggml_tensor *matrix = new_matrix(p);
        if (ggml_backend_tensor_alloc(p->repacked_buffer, matrix, base + m * padded) != 0 || matrix->extra == NULL) {
            ggml_backend_buffer_free(p->repacked_buffer);
            p->repacked_buffer = NULL;
            return;
        }
        ggml_backend_tensor_set(matrix, p->rows + m * p->matrix_bytes, 0, p->matrix_bytes);
    }
}

static void problem_open(problem *p, shape s, const options *o) {
    *p = (problem){.shape = s, .threads_count = o->threads_count, .clock = o->clock, .kernels = o->kernels};
    p->matrix_bytes = s.rows_count * ggml_row_size((enum ggml_type)s.type, (int64_t)s.row_elements);
    p->matrices_count = (o->megabytes << 20) / p->matrix_bytes + 1;
    for (size_t i = 0; i < o->batches_count; i++)
        p->batch_max = o->batches[i] > p->batch_max ? o->batches[i] : p->batch_max;
    p->rows = allocate_weights(p->matrices_count * p->matrix_bytes);
    p->tiles = allocate_weights(p->matrices_count * p->matrix_bytes);
    p->activations = allocate(p->batch_max * s.row_elements * sizeof(float));
    for (size_t i = 0; i < p->batch_max * s.row_elements; i++) p->activations[i] = random_float();
    p->out = allocate(p->batch_max * s.rows_count * sizeof(float));
    p->rounded_stride = lv_activation_row_bytes(lv_kernel_activation(s.type), s.row_elements);
    p->rounded = allocate(p->batch_max * p->rounded_stride);
    make_weights(p);

    p->backend = ggml_backend_cpu_init();
    struct ggml_threadpool_params params = ggml_threadpool_params_default((int)o->threads_count);
    params.poll = 100;
    p->pool = ggml_threadpool_new(&params);
    ggml_backend_cpu_set_n_threads(p->backend, (int)o->threads_count);
    ggml_backend_cpu_set_threadpool(p->backend, p->pool);
    make_ggml_weights(p);
}

static void problem_close(problem *p) {
    ggml_backend_free(p->backend);
    ggml_threadpool_free(p->pool);
    ggml_backend_buffer_free(p->plain_buffer);
    if (p->repacked_buffer != NULL) ggml_backend_buffer_free(p->repacked_buffer);
    ggml_free(p->weights);
    free(p->rows);
    free(p->tiles);
    free(p->activations);
    free(p->out);
    free(p->rounded);
}

/* --- Our passes --------------------------------------------------------------------------------------------------- */

typedef struct {
    const problem *problem;
    lv_weight_layout layout;
    size_t batch_count;
    const lv_kernels *kernels;
    atomic_size_t arrived, round_next, tile_next;
} our_pass;

/* Threads wait busily, as ggml's do between its operations, but not for ever: the other may have been put aside. */
static void meet(our_pass *pass, size_t *meetings) {
    const size_t all = ++*meetings * pass->problem->threads_count;
    if (atomic_fetch_add(&pass->arrived, 1) + 1 == all) return;
    for (size_t turns = 0; atomic_load_explicit(&pass->arrived, memory_order_acquire) < all; turns++)
        if (turns > 100000) sched_yield();
}

static void *our_thread(void *argument) {
    our_pass *pass = argument;
    const problem *p = pass->problem;
    const lv_activation_format format = lv_kernel_activation(p->shape.type);
    const size_t groups_count = p->shape.row_elements / (format == LV_ACTIVATION_32 ? 32 : 256);
    const size_t pieces = pass->batch_count;
    const size_t tiles_count = (p->shape.rows_count + LV_TILE_ROWS - 1) / LV_TILE_ROWS;
    size_t run = tiles_count / (8 * p->threads_count);
    run = run < 1 ? 1 : run > 16 ? 16 : run;
    void *scratch = allocate(lv_kernel_scratch_bytes(p->shape.row_elements));
    size_t meetings = 0;

    for (size_t m = 0; m < p->matrices_count; m++) {
        const lv_product product = {
            .type = p->shape.type,
            .layout = pass->layout,
            .weights = (pass->layout == LV_LAYOUT_ROWS ? p->rows : p->tiles) + m * p->matrix_bytes,
            .rows_count = p->shape.rows_count,
            .row_elements = p->shape.row_elements,
            .activations = p->rounded,
            .activation_stride = p->rounded_stride,
            .batch_count = pass->batch_count,
            .out = p->out,
            .out_stride = p->shape.rows_count,
        };
        size_t i;
        while ((i = atomic_fetch_add(&pass->round_next, 1) - m * (pieces + p->threads_count)) < pieces)
            lv_activation_round(pass->kernels, format, p->activations + i * p->shape.row_elements,
                                p->shape.row_elements, p->rounded + i * p->rounded_stride, 0, groups_count);
        meet(pass, &meetings);
        const size_t runs_count = (tiles_count + run - 1) / run;
        while ((i = atomic_fetch_add(&pass->tile_next, 1) - m * (runs_count + p->threads_count)) < runs_count) {
            const size_t count = i + 1 < runs_count ? run : tiles_count - i * run;
            lv_product_run(pass->kernels, &product, i * run, count, scratch);
        }
        meet(pass, &meetings);
    }
    free(scratch);
    return NULL;
}

static double run_ours(const problem *p, lv_weight_layout layout, size_t batch_count) {
    ggml_threadpool_pause(p->pool); /* or its threads would go on waiting busily */
    our_pass pass = {.problem = p, .layout = layout, .batch_count = batch_count, .kernels = p->kernels};
    pthread_t threads[THREADS_MAX];
    const double begin = seconds_now(p->clock);
    for (size_t t = 1; t < p->threads_count; t++)
        if (pthread_create(&threads[t], NULL, our_thread, &pass) != 0) fail("no thread");
    our_thread(&pass);
    for (size_t t = 1; t < p->threads_count; t++) pthread_join(threads[t], NULL);
    return seconds_now(p->clock) - begin;
}

/* --- ggml's passes ------------------------------------------------------------------------------------------------ */

typedef struct {
    struct ggml_context *context;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t buffer;
} ggml_pass;

static void ggml_pass_open(ggml_pass *g, const problem *p, bool repacked, size_t batch_count) {
    const size_t nodes = p->matrices_count + 2;
    const struct ggml_init_params params = {.mem_size = (nodes + 1) * ggml_tensor_overhead() +
                                                        ggml_graph_overhead_custom(2 * nodes, false) + 4096,
                                            .no_alloc = true};
    g->context = ggml_init(params);
    g->graph = ggml_new_graph_custom(g->context, 2 * nodes, false);
    g->buffer =
        ggml_backend_alloc_buffer(p->backend, (batch_count * (p->shape.row_elements + p->shape.rows_count)) * 4 + 4096);
    uint8_t *base = ggml_backend_buffer_get_base(g->buffer);
    struct ggml_tensor *x =
        ggml_new_tensor_2d(g->context, GGML_TYPE_F32, (int64_t)p->shape.row_elements, (int64_t)batch_count);
    ggml_backend_tensor_alloc(g->buffer, x, base);
    ggml_backend_tensor_set(x, p->activations, 0, ggml_nbytes(x));
    uint8_t *out = base + (ggml_nbytes(x) + 255) / 256 * 256;

    struct ggml_tensor *weights = ggml_get_first_tensor(p->weights);
    for (size_t m = 0; repacked && m < p->matrices_count; m++) weights = ggml_get_next_tensor(p->weights, weights);
    for (size_t m = 0; m < p->matrices_count; m++, weights = ggml_get_next_tensor(p->weights, weights)) {
        struct ggml_tensor *product = ggml_mul_mat(g->context, weights, x);
        ggml_backend_tensor_alloc(g->buffer, product, out);
        ggml_build_forward_expand(g->graph, product);
    }
}

static void ggml_pass_close(ggml_pass *g) {
    ggml_backend_buffer_free(g->buffer);
    ggml_free(g->context);
}

static double run_ggml(const problem *p, const ggml_pass *g) {
    ggml_threadpool_resume(p->pool);
    const double begin = seconds_now(p->clock);
    if (ggml_backend_graph_compute(p->backend, g->graph) != GGML_STATUS_SUCCESS) fail("ggml could not compute");
    return seconds_now(p->clock) - begin;
}

/* --- Rows --------------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *values, size_t count) {
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, count * sizeof(double));
    qsort(sorted, count, sizeof(double), compare_doubles);
    return sorted[count / 2];
}

static double median_ratio(const double *above, const double *below, size_t count) {
    double ratios[ROUNDS_MAX];
    for (size_t i = 0; i < count; i++) ratios[i] = above[i] / below[i];
    return median(ratios, count);
}

static void drop_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
}

/* The largest difference of the last matrix's results to ggml's, relative to the largest of them. */
static double difference(const problem *p, const ggml_pass *g, size_t batch_count) {
    struct ggml_tensor *result = ggml_graph_node(g->graph, -1);
    const float *theirs = result->data;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < batch_count * p->shape.rows_count; i++) {
        largest = fmax(largest, fabs((double)theirs[i]));
        worst = fmax(worst, fabs((double)theirs[i] - (double)p->out[i]));
    }
    return worst / largest;
}

typedef struct {
    double seconds[PATHS_COUNT][ROUNDS_MAX];
    double differences[PATHS_COUNT];
} samples;

static void print_row(const problem *p, const options *o, size_t batch_count, const samples *s) {
    double medians[PATHS_COUNT];
    for (int i = 0; i < PATHS_COUNT; i++) medians[i] = median(s->seconds[i], o->rounds_count);
    const bool has_repacked = p->repacked_buffer != NULL;
    const path peer = has_repacked && medians[GGML_REPACKED] < medians[GGML_PLAIN] ? GGML_REPACKED : GGML_PLAIN;
    const double packed = median_ratio(s->seconds[peer], s->seconds[PACKED], o->rounds_count);
    const double in_place = median_ratio(s->seconds[peer], s->seconds[IN_PLACE], o->rounds_count);
    const double operations =
        2e-9 * (double)(p->shape.rows_count * p->shape.row_elements * batch_count * p->matrices_count);
    const char *type = ggml_type_name((enum ggml_type)p->shape.type);

    if (!o->json) {
        printf("%-5s %6zux%-5zu %4zu  GOPS: packed %5.0f  in place %5.0f  ggml plain %5.0f  repacked %5.0f   "
               "ratio: packed %.2f  in place %.2f   (%.1f GB/s, difference %.1g)\n",
               type, p->shape.rows_count, p->shape.row_elements, batch_count, operations / medians[PACKED],
               operations / medians[IN_PLACE], operations / medians[GGML_PLAIN],
               has_repacked ? operations / medians[GGML_REPACKED] : 0.0, packed, in_place,
               1e-9 * (double)(p->matrix_bytes * p->matrices_count) / medians[PACKED], s->differences[peer]);
        fflush(stdout);
        return;
    }
    printf("{\"bench\":\"kernels\",\"type\":\"%s\",\"rows\":%zu,\"elements\":%zu,\"batch\":%zu,\"threads\":%zu,"
           "\"matrices\":%zu,\"set\":\"%s\",\"peer\":\"%s\",\"ratio_packed\":%.4f,\"ratio_in_place\":%.4f",
           type, p->shape.rows_count, p->shape.row_elements, batch_count, p->threads_count, p->matrices_count,
           lv_kernels_name(p->kernels), path_names[peer], packed, in_place);
    for (int i = 0; i < PATHS_COUNT; i++) {
        if (i == GGML_REPACKED && !has_repacked) continue;
        printf(",\"%s\":{\"gops\":%.1f,\"seconds\":[", path_names[i], operations / medians[i]);
        for (size_t r = 0; r < o->rounds_count; r++) printf("%s%.6f", r == 0 ? "" : ",", s->seconds[i][r]);
        printf("]}");
    }
    printf(",\"difference\":%.3g}\n", s->differences[peer]);
    fflush(stdout);
}

static void measure(const problem *p, const options *o, size_t batch_count) {
    static samples s;
    ggml_pass plain = {0}, repacked = {0};
    ggml_pass_open(&plain, p, false, batch_count);
    if (p->repacked_buffer != NULL) ggml_pass_open(&repacked, p, true, batch_count);

    for (size_t r = 0; r < o->rounds_count + 1; r++) { /* the first warms up and is overwritten */
        const size_t i = r == 0 ? 0 : r - 1;
        s.seconds[PACKED][i] = run_ours(p, LV_LAYOUT_TILES, batch_count);
        s.seconds[GGML_PLAIN][i] = run_ggml(p, &plain);
        s.seconds[IN_PLACE][i] = run_ours(p, LV_LAYOUT_ROWS, batch_count);
        s.seconds[GGML_REPACKED][i] = p->repacked_buffer != NULL ? run_ggml(p, &repacked) : 0;
    }
    s.differences[GGML_PLAIN] = difference(p, &plain, batch_count);
    s.differences[GGML_REPACKED] = p->repacked_buffer != NULL ? difference(p, &repacked, batch_count) : 0;
    print_row(p, o, batch_count, &s);

    ggml_pass_close(&plain);
    if (p->repacked_buffer != NULL) ggml_pass_close(&repacked);
}

static void measure_shape(shape s, const options *o) {
    if (s.rows_count % LV_TILE_ROWS != 0 || !lv_kernel_supports(s.type, s.row_elements))
        fail("no kernel for such rows");
    problem p;
    problem_open(&p, s, o);
    for (size_t b = 0; b < o->batches_count; b++) measure(&p, o, o->batches[b]);
    problem_close(&p);
}

/* --- Command line ------------------------------------------------------------------------------------------------- */

static size_t parse_count(const char *text, const char *option) {
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end != 0 || value == 0) {
        fprintf(stderr, "bench_kernels: %s wants a number above 0, not '%s'\n", option, text);
        exit(2);
    }
    return value;
}

static void parse_batches(options *o, char *text) {
    o->batches_count = 0;
    char *rest = NULL;
    for (char *part = strtok_r(text, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        if (o->batches_count == BATCH_COUNT_MAX) fail("too many batches");
        o->batches[o->batches_count++] = parse_count(part, "--batch");
    }
}

static int32_t parse_type(const char *text) {
    for (int32_t type = 0; type < GGML_TYPE_COUNT; type++) {
        const char *name = ggml_type_name((enum ggml_type)type);
        if (name != NULL && strcasecmp(name, text) == 0 && lv_kernel_supports(type, 256)) return type;
    }
    fprintf(stderr, "bench_kernels: no kernel for type '%s'\n", text);
    exit(2);
}

static const lv_kernels *parse_set(const char *text) {
    for (size_t i = 0; lv_kernels_at(i) != NULL; i++)
        if (strcmp(lv_kernels_name(lv_kernels_at(i)), text) == 0) return lv_kernels_at(i);
    fprintf(stderr, "bench_kernels: this processor has no set '%s'\n", text);
    exit(2);
}

int main(int count, char **arguments) {
    options o = {.batches = {1, 4, 8, 16, 32},
                 .batches_count = 5,
                 .threads_count = 2,
                 .rounds_count = 7,
                 .clock = CLOCK_MONOTONIC,
                 .kernels = lv_kernels_best(),
                 .megabytes = 160};
    shape wanted = {.type = -1};
    for (int i = 1; i < count; i++) {
        const char *option = arguments[i];
        if (strcmp(option, "--json") == 0) {
            o.json = true;
            continue;
        }
        if (strcmp(option, "--cpu-time") == 0) {
            o.clock = CLOCK_PROCESS_CPUTIME_ID;
            continue;
        }
        char *value = i + 1 < count ? arguments[++i] : NULL;
        if (value == NULL) fail("an option or its value is missing; the head of the source lists them");
        if (strcmp(option, "--type") == 0)
            wanted.type = parse_type(value);
        else if (strcmp(option, "--set") == 0)
            o.kernels = parse_set(value);
        else if (strcmp(option, "--batch") == 0)
            parse_batches(&o, value);
        else if (strcmp(option, "--threads") == 0)
            o.threads_count = parse_count(value, option);
        else if (strcmp(option, "--rounds") == 0)
            o.rounds_count = parse_count(value, option);
        else if (strcmp(option, "--megabytes") == 0)
            o.megabytes = parse_count(value, option);
        else if (strcmp(option, "--shape") != 0 ||
                 sscanf(value, "%zux%zu", &wanted.rows_count, &wanted.row_elements) != 2)
            fail("unknown option or shape; the head of the source lists them");
    }
    if (o.threads_count > THREADS_MAX || o.rounds_count > ROUNDS_MAX) fail("too many threads or rounds");

    ggml_log_set(drop_log, NULL); /* one line for each repacked tensor */
    if (wanted.type >= 0 && wanted.rows_count != 0) {
        measure_shape(wanted, &o);
        return 0;
    }
    for (size_t i = 0; i < sizeof(default_shapes) / sizeof(default_shapes[0]); i++) {
        const shape s = default_shapes[i];
        const bool same_shape = s.rows_count == wanted.rows_count && s.row_elements == wanted.row_elements;
        if ((wanted.type < 0 || s.type == wanted.type) && (wanted.rows_count == 0 || same_shape)) measure_shape(s, &o);
    }
    return 0;
}
