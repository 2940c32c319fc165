/* graph.c - steps of ours in one program, products of ggml's as nodes beside it.
 *
 * Steps that follow each other make one node of ggml's: its threads go through the list together, with a barrier of
 * ours after each step. ggml's own barrier spins until all threads are there; on a machine that runs something else
 * as well, the thread that is waited for may sit behind that, and a pass takes many times as long. Ours spins for some
 * microseconds, then sleeps, so that the processor is given to who is late.
 *
 * ggml's context and graph are rebuilt in place for each run: ggml_reset forgets the tensors, and a new graph
 * object is laid into the same memory. That costs some ten microseconds for a layer, so no graph is kept.
 *
 * ggml runs nodes in order with a barrier between, and a program is a node like any other: a ggml_custom_4d of no
 * elements of its own. What a step reads and writes stands in its record. */
#include "compute/graph.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "compute/barrier.h"
#include "ggml-cpu.h"

typedef struct {
    lv_graph_step_fn run;
    void *record;
} step;

/* Steps that follow each other. */
typedef struct {
    const step *steps;
    uint32_t steps_count;
    lv_barrier *barrier;
} program;

struct lv_graph {
    lv_ledger *ledger;
    step *steps;
    uint32_t steps_count, program_first; /* of the program that is being appended to */
    lv_barrier barrier;
    void *context_memory;
    size_t context_bytes;
    uint8_t *work;
    size_t work_bytes;
    uint8_t *records;
    size_t records_bytes, records_used;
    uint32_t nodes_max;
    uint32_t threads;
    struct ggml_context *context;
    struct ggml_cgraph *nodes;
    struct ggml_threadpool *pool;   /* all threads */
    struct ggml_threadpool *single; /* the calling thread alone */
    bool use_single, rests;
    _Atomic uint64_t compute_ns; /* read by any thread */
};

/* A node of ours makes at most this many tensor objects: its result, and views and weights that feed it. */
enum { TENSORS_PER_NODE = 4 };

static size_t context_bytes_for(uint32_t nodes_max) {
    return (size_t)nodes_max * TENSORS_PER_NODE * (ggml_tensor_overhead() + 64) +
           ggml_graph_overhead_custom((size_t)nodes_max * TENSORS_PER_NODE, false) + 4096;
}

size_t lv_graph_bytes(uint32_t nodes_max, size_t work_bytes, size_t records_bytes) {
    return context_bytes_for(nodes_max) + nodes_max * sizeof(step) + work_bytes + records_bytes + sizeof(lv_graph);
}

static struct ggml_threadpool *new_pool(uint32_t threads, uint32_t poll) {
    struct ggml_threadpool_params params;
    ggml_threadpool_params_init(&params, (int)threads);
    params.poll = poll;
    return ggml_threadpool_new(&params);
}

static lever_status open_pools(lv_graph *graph, const lv_graph_options *options, lever_error *error) {
    graph->pool = new_pool(options->threads, options->poll);
    graph->single = new_pool(1, 0);
    if (!graph->pool || !graph->single) {
        return lv_fail(error, LEVER_E_MEMORY, "cannot start %u compute threads: the system refused; use fewer threads",
                       options->threads);
    }
    return LEVER_OK;
}

lever_status lv_graph_open(lv_graph **out, const lv_graph_options *options, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, options->ledger, LV_MEM_GRAPH, 1, sizeof(lv_graph), "a graph", error));
    lv_graph *graph = memory;
    graph->ledger = options->ledger;
    graph->nodes_max = options->nodes_max;
    graph->threads = options->threads;
    graph->work_bytes = options->work_bytes;
    graph->records_bytes = options->records_bytes;
    graph->context_bytes = context_bytes_for(options->nodes_max);

    lever_status status = lv_alloc_checked(&graph->context_memory, options->ledger, LV_MEM_GRAPH, 1,
                                           graph->context_bytes, "graph nodes", error);
    if (status != LEVER_OK) goto failed;
    memory = NULL;
    status = lv_alloc_checked(&memory, options->ledger, LV_MEM_GRAPH, 1, graph->work_bytes + 64, "graph work", error);
    if (status != LEVER_OK) goto failed;
    graph->work = memory;
    memory = NULL;
    status = lv_alloc_checked(&memory, options->ledger, LV_MEM_GRAPH, 1, graph->records_bytes, "graph records", error);
    if (status != LEVER_OK) goto failed;
    graph->records = memory;
    status = lv_alloc_checked(&memory, options->ledger, LV_MEM_GRAPH, options->nodes_max, sizeof(step), "graph steps",
                              error);
    if (status != LEVER_OK) goto failed;
    graph->steps = memory;

    ggml_cpu_init();
    struct ggml_init_params params = {
        .mem_size = graph->context_bytes, .mem_buffer = graph->context_memory, .no_alloc = true};
    graph->context = ggml_init(params);
    if (!graph->context) {
        status = lv_fail(error, LEVER_E_MEMORY, "cannot make a ggml context of %zu bytes", graph->context_bytes);
        goto failed;
    }
    status = open_pools(graph, options, error);
    if (status != LEVER_OK) goto failed;
    lv_graph_begin(graph);
    *out = graph;
    return LEVER_OK;

failed:
    lv_graph_close(&graph);
    return status;
}

void lv_graph_close(lv_graph **out) {
    if (!out || !*out) return;
    lv_graph *graph = *out;
    if (graph->pool) ggml_threadpool_free(graph->pool);
    if (graph->single) ggml_threadpool_free(graph->single);
    if (graph->context) ggml_free(graph->context);
    lv_free(graph->steps);
    lv_free(graph->records);
    lv_free(graph->work);
    lv_free(graph->context_memory);
    lv_free(graph);
    *out = NULL;
}

void lv_graph_begin(lv_graph *graph) {
    ggml_reset(graph->context);
    graph->nodes = ggml_new_graph_custom(graph->context, (size_t)graph->nodes_max * TENSORS_PER_NODE, false);
    graph->records_used = 0;
    graph->steps_count = graph->program_first = 0;
}

struct ggml_context *lv_graph_context(lv_graph *graph) {
    return graph->context;
}

uint32_t lv_graph_nodes_count(const lv_graph *graph) {
    return (uint32_t)ggml_graph_n_nodes(graph->nodes) + graph->steps_count;
}

bool lv_graph_is_full(const lv_graph *graph, uint32_t nodes_wanted) {
    /* A quarter of the records is kept free: one group of nodes never needs more. */
    return lv_graph_nodes_count(graph) + nodes_wanted > graph->nodes_max ||
           graph->records_used > graph->records_bytes / 4 * 3;
}

struct ggml_tensor *lv_graph_tensor(lv_graph *graph, enum ggml_type type, int64_t elements, int64_t rows,
                                    const void *data) {
    struct ggml_tensor *tensor = ggml_new_tensor_2d(graph->context, type, elements, rows);
    /* ggml has one pointer type for what is read and what is written. */
    memcpy(&tensor->data, &data, sizeof(data));
    return tensor;
}

/* All threads of ggml's go through the list together. */
static void run_program(struct ggml_tensor *node, int ith, int nth, void *user) {
    (void)node;
    const program *all = user;
    for (uint32_t i = 0; i < all->steps_count; i++) {
        all->steps[i].run(ith, nth, all->steps[i].record);
        lv_barrier_wait(all->barrier, (uint32_t)nth);
    }
}

/* What was appended since the last node becomes one. */
static void close_program(lv_graph *graph) {
    if (graph->steps_count == graph->program_first) return;
    program *all = lv_graph_record(graph, sizeof(*all));
    *all = (program){graph->steps + graph->program_first, graph->steps_count - graph->program_first, &graph->barrier};
    graph->program_first = graph->steps_count;
    struct ggml_tensor *node =
        ggml_custom_4d(graph->context, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, run_program, GGML_N_TASKS_MAX, all);
    node->data = all;
    ggml_build_forward_expand(graph->nodes, node);
}

struct ggml_tensor *lv_graph_add(lv_graph *graph, struct ggml_tensor *node, void *data) {
    close_program(graph);
    node->data = data;
    ggml_build_forward_expand(graph->nodes, node);
    return node;
}

void *lv_graph_record(lv_graph *graph, size_t bytes) {
    const size_t rounded = (bytes + 63) / 64 * 64;
    assert(graph->records_used + rounded <= graph->records_bytes);
    void *record = graph->records + graph->records_used;
    graph->records_used += rounded;
    memset(record, 0, bytes);
    return record;
}

void lv_graph_add_step(lv_graph *graph, lv_graph_step_fn run, void *record) {
    assert(graph->steps_count < graph->nodes_max);
    graph->steps[graph->steps_count++] = (step){run, record};
}

void lv_graph_set_single(lv_graph *graph, bool single) {
    graph->use_single = single;
}

void lv_graph_set_rests(lv_graph *graph, bool rests) {
    graph->rests = rests;
}

lever_status lv_graph_run(lv_graph *graph, lever_error *error) {
    close_program(graph);
    if (ggml_graph_n_nodes(graph->nodes) == 0) return LEVER_OK;
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    struct ggml_cplan plan = ggml_graph_plan(graph->nodes, graph->use_single ? 1 : (int)graph->threads,
                                             graph->use_single ? graph->single : graph->pool);
    if (plan.work_size > graph->work_bytes) {
        const size_t wanted = plan.work_size;
        lv_graph_begin(graph);
        return lv_fail(error, LEVER_E_INTERNAL, "a graph wants %zu bytes of work memory, %zu were set aside", wanted,
                       graph->work_bytes);
    }
    plan.work_data = (uint8_t *)(((uintptr_t)graph->work + 63) / 64 * 64);
    const enum ggml_status status = ggml_graph_compute(graph->nodes, &plan);
    if (graph->rests && !graph->use_single) ggml_threadpool_pause(graph->pool); /* the next run wakes it */
    lv_graph_begin(graph);
    atomic_fetch_add_explicit(&graph->compute_ns, lv_clock_now_ns(&lv_clock_real) - begin_ns, memory_order_relaxed);
    if (status != GGML_STATUS_SUCCESS) {
        return lv_fail(error, LEVER_E_INTERNAL, "ggml could not compute a graph: %s", ggml_status_to_string(status));
    }
    return LEVER_OK;
}

uint64_t lv_graph_compute_ns(const lv_graph *graph) {
    return atomic_load_explicit(&graph->compute_ns, memory_order_relaxed);
}
