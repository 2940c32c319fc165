/* trace.c - numbers only, so nothing needs escaping. */
#include "engine/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { NODE_BYTES_MAX = 224 };

typedef struct {
    char *text;
    size_t capacity, used;
} line_writer;

static void put(line_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(line_writer *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(w->text + w->used, w->capacity - w->used, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < w->capacity - w->used) w->used += (size_t)length;
}

static bool is_kept(const lv_tree *tree, uint32_t index) {
    const lv_node *node = &tree->nodes[index];
    return index == LV_TREE_ROOT || node->expanded || node->row != LV_TREE_NONE;
}

static void put_node(line_writer *w, const lv_tree *tree, uint32_t index, bool first) {
    const lv_node *node = &tree->nodes[index];
    put(w, "%s{\"i\":%u,\"parent\":%d,\"token\":%d,\"depth\":%u,\"source\":%d,\"rank\":%u", first ? "" : ",", index,
        node->parent == LV_TREE_NONE ? -1 : (int)node->parent, (int)node->token, node->feature.depth,
        (int)node->feature.source, node->feature.rank);
    put(w, ",\"estimate\":%.4f,\"a\":%.4f,\"w\":%.5f,\"expanded\":%s,\"verified\":%s%s}",
        (double)node->feature.estimate, (double)node->a, (double)node->w, node->expanded ? "true" : "false",
        node->row != LV_TREE_NONE || index == LV_TREE_ROOT ? "true" : "false", node->pruned ? ",\"pruned\":true" : "");
}

/* [node, row of the pass or -1 for a shadow candidate, what the draft made of it, what the predictor makes of it] */
static void put_scores(line_writer *w, const lv_cycle *cycle, const lv_cycle_result *result) {
    const lv_pruning_view *view = &cycle->pruning.view;
    put(w, ",\"pruned\":%u,\"lost\":%u,\"scores\":[", result->pruned_count, result->lost_count);
    for (uint32_t c = 0; result->scored && c < view->candidates_first[view->rows_count]; c++) {
        const bool shadow = view->candidates[c].row == LV_PRUNING_SHADOW;
        put(w, "%s[%u,%d,%.5f,%.5f]", c ? "," : "", view->candidates[c].node,
            shadow ? -1 : (int)view->candidates[c].row, (double)view->candidates[c].a,
            (double)view->candidates[c].share);
    }
    put(w, "]");
}

void lv_trace_line(char *line, size_t capacity, const lv_cycle *cycle, const lv_cycle_result *r, uint64_t number) {
    const lv_tree *tree = &cycle->tree;
    line_writer w = {line, capacity, 0};
    put(&w, "{\"cycle\":%" PRIu64 ",\"strategy\":\"%s\",\"nodes_verified\":%u,\"tokens_expected\":%.3f", number,
        lever_strategy_text(cycle->drafting.strategy), r->choice.nodes_count, r->choice.tokens);
    put(&w, ",\"tokens\":%u,\"token\":%d,\"seconds_expected\":%.6f,\"seconds\":%.6f", r->path_count + 1, (int)r->token,
        r->choice.seconds, r->seconds);
    put(&w, ",\"draft_seconds\":%.6f,\"pass_seconds\":%.6f,\"head_seconds\":%.6f,\"head_rows\":%u", r->draft_seconds,
        r->pass_seconds, r->head_seconds, r->head_rows);
    put(&w, ",\"forwards\":%u,\"expanded\":%u,\"expanded_ahead\":%u,\"ahead\":%s,\"path\":[", r->forwards_count,
        r->expanded_count, r->expanded_ahead_count, r->ahead ? "true" : "false");
    for (uint32_t i = 0; i < r->path_count; i++) put(&w, "%s%u", i ? "," : "", r->path[i]);
    put(&w, "]");
    put_scores(&w, cycle, r);
    put(&w, ",\"nodes\":[");
    uint32_t kept = 0; /* that are to come and must not be left out */
    for (uint32_t i = 0; i < tree->nodes_count; i++) kept += is_kept(tree, i);
    bool first = true;
    for (uint32_t i = 0; i < tree->nodes_count; i++) {
        const bool keeps = is_kept(tree, i);
        kept -= keeps;
        if (w.capacity - w.used < NODE_BYTES_MAX * (1 + (keeps ? 0 : (size_t)kept))) continue;
        put_node(&w, tree, i, first);
        first = false;
    }
    put(&w, "]}");
}
