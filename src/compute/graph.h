/* graph.h - one ggml graph at a time, built in memory that never grows, computed by threads that stay.
 *
 * Owns ggml's context memory, its work buffer, the records of custom operations and the thread pool. Everything is
 * allocated at opening, for graphs of at most nodes_max nodes; begin forgets the previous graph. Results are placed by
 * the caller: a node's data pointer is set before it is added, so ggml allocates nothing. Nodes run in the order in
 * which they were added, with a barrier after each. One thread at a time. */
#ifndef LV_COMPUTE_GRAPH_H
#define LV_COMPUTE_GRAPH_H

#include "base/memory.h"
#include "ggml.h"

typedef struct lv_graph lv_graph;

typedef struct {
    uint32_t nodes_max;
    size_t work_bytes;    /* what operations of ggml want at most */
    size_t records_bytes; /* for records of custom operations of one graph */
    uint32_t threads;
    uint32_t poll; /* 0: threads sleep between graphs; 50: they spin for some milliseconds first */
    lv_ledger *ledger;
} lv_graph_options;

lever_status lv_graph_open(lv_graph **graph, const lv_graph_options *options, lever_error *error);
void lv_graph_close(lv_graph **graph);

/* What a graph of these sizes takes in all (for the plan). */
size_t lv_graph_bytes(uint32_t nodes_max, size_t work_bytes, size_t records_bytes);

void lv_graph_begin(lv_graph *graph);
struct ggml_context *lv_graph_context(lv_graph *graph);
uint32_t lv_graph_nodes_count(const lv_graph *graph);
bool lv_graph_is_full(const lv_graph *graph, uint32_t nodes_wanted);

/* A tensor over the caller's memory: [elements, rows], contiguous. */
struct ggml_tensor *lv_graph_tensor(lv_graph *graph, enum ggml_type type, int64_t elements, int64_t rows,
                                    const void *data);

/* Sets where the node's result goes and appends it. Returns the node. */
struct ggml_tensor *lv_graph_add(lv_graph *graph, struct ggml_tensor *node, void *data);

/* A record for a custom operation, valid until the next begin; zeroed. Never NULL within the sizes given at opening. */
void *lv_graph_record(lv_graph *graph, size_t bytes);

/* One thread's share of a step: `ith` of `nth`. */
typedef void (*lv_graph_step_fn)(int ith, int nth, void *record);

/* Appends a step that all threads run together. Like every node it comes after all that was appended before it. */
void lv_graph_add_step(lv_graph *graph, lv_graph_step_fn run, void *record);

/* How many of the threads compute from the next run on: 1, or all. A single one wakes nobody. */
void lv_graph_set_single(lv_graph *graph, bool single);

/* Whether the threads sleep as soon as a run is over, from the next one on, whatever `poll` says. */
void lv_graph_set_rests(lv_graph *graph, bool rests);

/* Computes what was added; nothing added is fine. Afterwards the graph is empty again. */
lever_status lv_graph_run(lv_graph *graph, lever_error *error);

uint64_t lv_graph_compute_ns(const lv_graph *graph); /* spent in lv_graph_run since opening */

#endif
