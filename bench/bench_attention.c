/* bench_attention.c - attention over paths against ggml_flash_attn_ext, as nodes of ggml graphs on the same threads.
 *
 *     bench_attention [THREADS [INSTRUCTION_SET]]
 *
 * One graph holds the attention of all layers, each with a cache of its own, as a pass over the model has: with few
 * rows the keys and values come from memory. Both sides run in turn; printed are medians. "rows n, keys k" means that
 * the last row sees k keys, the row before it one less, and so on: the end of a prompt, or a chain of nodes. A tree of
 * n nodes behind k keys, its nodes listed, is only lever's. "ns" is nanoseconds for a row, head and key on one thread.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "base/clock.h"
#include "compute/attention.h"

enum { ROUNDS = 7, LAYERS_MAX = 32 };

typedef struct {
    const char *name;
    uint32_t layers_count, heads_count, kv_heads_count, head_dim;
} model_shape;

static const model_shape models[] = {
    {"1.5B", 28, 12, 2, 128}, {"0.5B", 24, 14, 2, 64}, {"8B", 32, 32, 8, 128}, {"135M", 30, 9, 3, 64}};

static const struct {
    uint32_t rows_count, keys_count;
    bool tree;
} cases[] = {{1, 64, false},    {1, 500, false},  {1, 1500, false},   {8, 1500, false},
             {16, 1500, false}, {16, 1500, true}, {256, 1024, false}, {1000, 1000, false}};

typedef struct {
    lv_attention attention;
    const lv_attention_isa *isa;
    atomic_size_t next;
    uint8_t *scratch; /* of all threads */
} node;

static void attend(struct ggml_tensor *result, int ith, int nth, void *user) {
    (void)result;
    (void)nth;
    node *n = user;
    size_t tasks_count = lv_attention_tasks_count(&n->attention);
    for (size_t task; (task = atomic_fetch_add(&n->next, 1)) < tasks_count;) {
        lv_attention_run(n->isa, &n->attention, task, 1, n->scratch + (size_t)ith * lv_attention_scratch_bytes());
    }
}

static float draw_float(void) {
    return (float)(rand() % 2001 - 1000) / 1000.0f;
}

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        fprintf(stderr, "bench_attention: %zu bytes were refused.\n", bytes);
        exit(1);
    }
    return memory;
}

static void fill_kv(lv_kv *kv, const model_shape *m, uint32_t slots_count) {
    lv_kv_shape shape = {m->layers_count, slots_count, m->kv_heads_count, m->head_dim};
    lever_error error;
    if (lv_kv_open(kv, NULL, &shape, &error) != LEVER_OK) {
        fprintf(stderr, "bench_attention: %s\n", error.message);
        exit(1);
    }
    size_t count = (size_t)m->kv_heads_count * m->head_dim;
    float *row = take(count * sizeof(float));
    for (uint32_t slot = 0; slot < slots_count; slot++) {
        for (size_t i = 0; i < count; i++) row[i] = draw_float();
        for (uint32_t layer = 0; layer < m->layers_count; layer++) lv_kv_store(kv, layer, slot, row, row);
    }
    free(row);
}

/* A graph of all layers' attention, ggml's or ours. */
static struct ggml_cgraph *build_ours(struct ggml_context *context, const model_shape *m, uint32_t rows_count,
                                      node *nodes, int threads) {
    struct ggml_cgraph *graph = ggml_new_graph(context);
    for (uint32_t layer = 0; layer < m->layers_count; layer++) {
        struct ggml_tensor *out = ggml_custom_4d(context, GGML_TYPE_F32, (int64_t)m->head_dim * m->heads_count,
                                                 rows_count, 1, 1, NULL, 0, attend, threads, &nodes[layer]);
        nodes[layer].attention.out = out->data;
        ggml_build_forward_expand(graph, out);
    }
    return graph;
}

static struct ggml_cgraph *build_theirs(struct ggml_context *context, const model_shape *m, uint32_t rows_count,
                                        uint32_t keys_count, const float *q_data) {
    struct ggml_cgraph *graph = ggml_new_graph(context);
    struct ggml_tensor *mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, keys_count, rows_count);
    ggml_fp16_t *bits = mask->data;
    for (uint32_t r = 0; r < rows_count; r++) {
        for (uint32_t key = 0; key < keys_count; key++) {
            *bits++ = key + rows_count <= keys_count + r ? 0 : 0xfc00; /* minus infinity */
        }
    }
    struct ggml_tensor *q = ggml_new_tensor_3d(context, GGML_TYPE_F32, m->head_dim, m->heads_count, rows_count);
    memcpy(q->data, q_data, ggml_nbytes(q));
    q = ggml_permute(context, q, 0, 2, 1, 3);
    for (uint32_t layer = 0; layer < m->layers_count; layer++) {
        struct ggml_tensor *kv[2];
        for (int i = 0; i < 2; i++) {
            kv[i] = ggml_new_tensor_3d(context, GGML_TYPE_F16, m->head_dim, m->kv_heads_count, keys_count);
            ggml_fp16_t *halfs = kv[i]->data;
            for (int64_t e = 0; e < ggml_nelements(kv[i]); e++) halfs[e] = (ggml_fp16_t)(0x3400 + rand() % 2048);
            kv[i] = ggml_permute(context, kv[i], 0, 2, 1, 3);
        }
        struct ggml_tensor *out = ggml_flash_attn_ext(context, q, kv[0], kv[1], mask, 0.1f, 0.0f, 0.0f);
        ggml_build_forward_expand(graph, out);
    }
    return graph;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double compute_seconds(struct ggml_cgraph *graph, struct ggml_cplan *plan, node *nodes, uint32_t layers_count) {
    for (uint32_t layer = 0; layer < layers_count; layer++) atomic_store(&nodes[layer].next, 0);
    uint64_t before_ns = lv_clock_now_ns(&lv_clock_real);
    ggml_graph_compute(graph, plan);
    return (double)(lv_clock_now_ns(&lv_clock_real) - before_ns) * 1e-9;
}

static void run_case(const model_shape *m, uint32_t rows_count, uint32_t keys_count, bool tree, int threads,
                     const lv_attention_isa *isa, struct ggml_threadpool *pool) {
    size_t row_floats = (size_t)m->head_dim * m->heads_count;
    size_t results_bytes = 2 * m->layers_count * rows_count * row_floats * sizeof(float);
    size_t kv_bytes = (size_t)m->layers_count * keys_count * m->kv_heads_count * m->head_dim * 2 * sizeof(ggml_fp16_t);
    struct ggml_init_params params = {.mem_size = results_bytes + kv_bytes + ((size_t)32 << 20)};
    struct ggml_context *context = ggml_init(params);
    lv_kv kv;
    fill_kv(&kv, m, keys_count + rows_count);
    float *q = take(rows_count * row_floats * sizeof(float));
    for (size_t i = 0; i < rows_count * row_floats; i++) q[i] = draw_float();
    uint8_t *scratch = take((size_t)threads * lv_attention_scratch_bytes());
    lv_path *rows = take(rows_count * sizeof *rows);
    uint32_t *paths = take(rows_count * rows_count * sizeof *paths);
    for (uint32_t r = 0; r < rows_count; r++) {
        rows[r] = (lv_path){.kv = &kv, .prefix_count = keys_count - rows_count + r + 1};
        if (!tree) continue;
        uint32_t *path = paths + r * rows_count; /* a binary tree in the order of its levels */
        uint32_t count = 0;
        for (uint32_t n = r + 1; n > 0; n /= 2) count++;
        for (uint32_t n = r + 1, i = count; n > 0; n /= 2) path[--i] = keys_count + n - 1;
        rows[r] = (lv_path){.kv = &kv, .prefix_count = keys_count, .path_count = count, .path = path};
    }
    static node nodes[LAYERS_MAX];
    for (uint32_t layer = 0; layer < m->layers_count; layer++) {
        nodes[layer] = (node){.isa = isa, .scratch = scratch};
        nodes[layer].attention = (lv_attention){.layer = layer,
                                                .heads_count = m->heads_count,
                                                .kv_heads_count = m->kv_heads_count,
                                                .head_dim = m->head_dim,
                                                .tasks_wanted = (uint32_t)threads,
                                                .scale = 0.1f,
                                                .q = q,
                                                .q_stride = row_floats,
                                                .out_stride = row_floats,
                                                .rows = rows,
                                                .rows_count = rows_count};
    }

    struct ggml_cgraph *graphs[2] = {build_ours(context, m, rows_count, nodes, threads), NULL};
    if (!tree) graphs[1] = build_theirs(context, m, rows_count, keys_count, q);
    double seconds[2][ROUNDS] = {{0}};
    for (int round = -1; round < ROUNDS; round++) { /* one to warm up */
        for (int side = 0; side < (tree ? 1 : 2); side++) {
            struct ggml_cplan plan = ggml_graph_plan(graphs[side], threads, pool);
            plan.work_data = take(plan.work_size + 64);
            double taken = compute_seconds(graphs[side], &plan, nodes, m->layers_count);
            if (round >= 0) seconds[side][round] = taken;
            free(plan.work_data);
        }
    }
    for (int side = 0; side < 2; side++) qsort(seconds[side], ROUNDS, sizeof(double), compare);

    double pairs = 0; /* of row, head and key, in all layers */
    for (uint32_t r = 0; r < rows_count; r++) pairs += (double)rows[r].prefix_count + rows[r].path_count;
    pairs *= (double)m->heads_count * m->layers_count;
    double ours = seconds[0][ROUNDS / 2], theirs = seconds[1][ROUNDS / 2];
    printf("%-5s %5u %5u %-5s %9.2f %6.2f %6.1f %9.2f %6.2f\n", m->name, rows_count, keys_count, tree ? "tree" : "",
           ours * 1e3, ours * threads * 1e9 / pairs, pairs * 4 * m->head_dim / ours * 1e-9, theirs * 1e3,
           theirs / ours);
    fflush(stdout);
    free(paths);
    free(rows);
    free(scratch);
    free(q);
    lv_kv_close(&kv);
    ggml_free(context);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    const lv_attention_isa *isa = lv_attention_isa_best();
    for (size_t i = 0; argc > 2 && lv_attention_isa_at(i) != NULL; i++) {
        if (strcmp(argv[2], lv_attention_isa_name(lv_attention_isa_at(i))) == 0) isa = lv_attention_isa_at(i);
    }
    if (threads < 1) {
        fprintf(stderr, "usage: bench_attention [THREADS [INSTRUCTION_SET]]\n");
        return 2;
    }
    ggml_cpu_init();
    struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    printf("%s, %d threads; milliseconds for all layers\n", lv_attention_isa_name(isa), threads);
    printf("model  rows  keys       lever ms     ns GFLOPS   ggml ms  ratio\n");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            run_case(&models[i], cases[c].rows_count, cases[c].keys_count, cases[c].tree, threads, isa, pool);
        }
    }
    ggml_threadpool_free(pool);
    return 0;
}
