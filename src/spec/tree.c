/* tree.c - nodes in one array; children as lists through it, in the order in which they came. */
#include "spec/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

size_t lv_tree_bytes(void) {
    return LV_TREE_NODES_MAX * (sizeof(lv_node) + sizeof(uint32_t));
}

lever_status lv_tree_open(lv_tree *tree, lv_ledger *ledger, lever_error *error) {
    void *memory = NULL;
    memset(tree, 0, sizeof(*tree));
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, lv_tree_bytes(), "a token tree", error));
    tree->nodes = memory;
    tree->order = (uint32_t *)(tree->nodes + LV_TREE_NODES_MAX);
    lv_tree_reset(tree, 0);
    return LEVER_OK;
}

void lv_tree_close(lv_tree *tree) {
    lv_free(tree->nodes);
    memset(tree, 0, sizeof(*tree));
}

void lv_tree_reset(lv_tree *tree, int32_t root_token) {
    tree->nodes[LV_TREE_ROOT] = (lv_node){
        .token = root_token,
        .parent = LV_TREE_NONE,
        .first_child = LV_TREE_NONE,
        .next_sibling = LV_TREE_NONE,
        .a = 1,
        .drafted = 1,
        .w = 1,
        .slot = LV_TREE_NONE,
        .row = LV_TREE_NONE,
    };
    tree->nodes_count = 1;
}

/* A parent that became likelier makes all below it so. */
static void raise(lv_tree *tree, uint32_t node, float a) {
    lv_node *nodes = tree->nodes;
    nodes[node].a = nodes[node].drafted = a;
    nodes[node].w = nodes[nodes[node].parent].w * a;
    if (nodes[node].first_child == LV_TREE_NONE) return;
    for (uint32_t i = node + 1; i < tree->nodes_count; i++) {
        if (nodes[i].parent >= node) nodes[i].w = nodes[nodes[i].parent].w * nodes[i].a;
    }
}

uint32_t lv_tree_add(lv_tree *tree, uint32_t parent, int32_t token, const lv_feature *feature, float a) {
    assert(parent < tree->nodes_count && a > 0 && a < 1);
    lv_node *nodes = tree->nodes;
    uint32_t last = LV_TREE_NONE;
    for (uint32_t child = nodes[parent].first_child; child != LV_TREE_NONE; child = nodes[child].next_sibling) {
        if (nodes[child].token == token) {
            if (a > nodes[child].drafted) raise(tree, child, a);
            return child;
        }
        last = child;
    }
    const uint32_t depth = (uint32_t)nodes[parent].feature.depth + 1;
    if (tree->nodes_count == LV_TREE_NODES_MAX || depth > LV_TREE_DEPTH_MAX) return LV_TREE_NONE;
    const uint32_t index = tree->nodes_count++;
    nodes[index] = (lv_node){
        .token = token,
        .parent = parent,
        .first_child = LV_TREE_NONE,
        .next_sibling = LV_TREE_NONE,
        .a = a,
        .drafted = a,
        .w = nodes[parent].w * a,
        .feature = *feature,
        .slot = LV_TREE_NONE,
        .row = LV_TREE_NONE,
    };
    nodes[index].feature.depth = (uint16_t)depth;
    if (last == LV_TREE_NONE) {
        nodes[parent].first_child = index;
    } else {
        nodes[last].next_sibling = index;
    }
    return index;
}

uint32_t lv_tree_child(const lv_tree *tree, uint32_t parent, int32_t token) {
    uint32_t child = tree->nodes[parent].first_child;
    while (child != LV_TREE_NONE && tree->nodes[child].token != token) child = tree->nodes[child].next_sibling;
    return child;
}

static bool ranks_before(const lv_node *nodes, uint32_t a, uint32_t b) {
    if (nodes[a].w != nodes[b].w) return nodes[a].w > nodes[b].w;
    return a < b;
}

/* Moves order[at] down the heap whose root is the node that ranks last. */
static void sift(const lv_node *nodes, uint32_t *order, uint32_t count, uint32_t at) {
    const uint32_t moving = order[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && ranks_before(nodes, order[child], order[child + 1])) child++;
        if (!ranks_before(nodes, moving, order[child])) break;
        order[at] = order[child];
        at = child;
    }
    order[at] = moving;
}

const uint32_t *lv_tree_ranked(lv_tree *tree, uint32_t depth_max, uint32_t *count_out) {
    uint32_t *order = tree->order, count = 0;
    for (uint32_t i = 1; i < tree->nodes_count; i++) {
        if (tree->nodes[i].feature.depth <= depth_max) order[count++] = i;
    }
    for (uint32_t i = count / 2; i-- > 0;) sift(tree->nodes, order, count, i);
    for (uint32_t left = count; left > 1;) {
        const uint32_t last = order[0];
        order[0] = order[--left];
        sift(tree->nodes, order, left, 0);
        order[left] = last;
    }
    *count_out = count;
    return order;
}

void lv_tree_reroot(lv_tree *tree, uint32_t root) {
    assert(root < tree->nodes_count);
    lv_node *nodes = tree->nodes;
    uint32_t *moved = tree->order; /* by old index: the new one */
    const uint16_t depth = nodes[root].feature.depth;
    uint32_t kept = 0;
    for (uint32_t i = root; i < tree->nodes_count; i++) {
        const bool stays = i == root || (nodes[i].parent >= root && moved[nodes[i].parent] != LV_TREE_NONE);
        moved[i] = stays ? kept++ : LV_TREE_NONE;
    }
    for (uint32_t i = root; i < tree->nodes_count; i++) {
        if (moved[i] == LV_TREE_NONE) continue;
        lv_node node = nodes[i];
        node.first_child = node.next_sibling = LV_TREE_NONE;
        node.feature.depth = (uint16_t)(node.feature.depth - depth);
        if (i == root) {
            node.parent = LV_TREE_NONE;
            node.a = node.drafted = node.w = 1;
        } else {
            node.parent = moved[node.parent];
            node.w = nodes[node.parent].w * node.a;
        }
        nodes[moved[i]] = node;
    }
    tree->nodes_count = kept;
    /* Children in the order of their indices: from the last to the first, each in front. */
    for (uint32_t i = kept; i-- > 1;) {
        nodes[i].next_sibling = nodes[nodes[i].parent].first_child;
        nodes[nodes[i].parent].first_child = i;
    }
}

uint32_t lv_tree_path(const lv_tree *tree, uint32_t node, uint32_t path[LV_TREE_DEPTH_MAX]) {
    const uint32_t depth = tree->nodes[node].feature.depth;
    for (uint32_t d = depth; d-- > 0;) {
        path[d] = node;
        node = tree->nodes[node].parent;
    }
    return depth;
}

uint32_t lv_tree_best_child(const lv_tree *tree, uint32_t node, bool in_pass) {
    uint32_t best = LV_TREE_NONE;
    for (uint32_t c = tree->nodes[node].first_child; c != LV_TREE_NONE; c = tree->nodes[c].next_sibling) {
        if (in_pass && tree->nodes[c].row == LV_TREE_NONE) continue;
        if (best == LV_TREE_NONE || tree->nodes[c].a > tree->nodes[best].a) best = c;
    }
    return best;
}

bool lv_tree_is_sound(const lv_tree *tree) {
    const lv_node *nodes = tree->nodes;
    if (tree->nodes_count == 0 || nodes[0].parent != LV_TREE_NONE || nodes[0].feature.depth != 0) return false;
    uint32_t listed = 1;
    for (uint32_t i = 0; i < tree->nodes_count; i++) {
        if (i > 0) {
            if (nodes[i].parent >= i) return false;
            const lv_node *parent = &nodes[nodes[i].parent];
            if (nodes[i].feature.depth != parent->feature.depth + 1) return false;
            if (!(nodes[i].w <= parent->w) || !(nodes[i].w >= 0)) return false;
            if (nodes[i].expanded && !parent->expanded) return false;
        }
        for (uint32_t c = nodes[i].first_child; c != LV_TREE_NONE; c = nodes[c].next_sibling) {
            if (c >= tree->nodes_count || nodes[c].parent != i) return false;
            for (uint32_t d = nodes[c].next_sibling; d != LV_TREE_NONE; d = nodes[d].next_sibling) {
                if (nodes[d].token == nodes[c].token) return false;
            }
            listed++;
        }
    }
    return listed == tree->nodes_count;
}
