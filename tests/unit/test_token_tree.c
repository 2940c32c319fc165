/* The token tree against a naive one, over random sequences of what may be done to it. */
#include "spec/tree.h"

#include <math.h>
#include <stdlib.h>

#include "support/check.h"

enum { NAIVE_MAX = 600, SEQUENCES = 60, STEPS = 400, TOKENS = 6 };

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static const lv_feature plain_feature = {.source = LV_SOURCE_DRAFT, .rank = 2, .depth = 77, .estimate = .5f};

static lv_tree open_tree(void) {
    lv_tree tree;
    lever_error error;
    CHECK_OK(lv_tree_open(&tree, NULL, &error));
    return tree;
}

/* --- The naive tree: nodes in the order in which they came, that are never moved ---------------------------------- */

typedef struct {
    int32_t token;
    int parent; /* -1: the root */
    float a;
    bool gone, expanded;
} naive_node;

typedef struct {
    naive_node nodes[NAIVE_MAX];
    uint32_t count;
    int root;
    uint32_t at[NAIVE_MAX]; /* where it is in the tree that is tested */
} naive;

static uint32_t naive_depth(const naive *n, int node) {
    uint32_t depth = 0;
    for (; node != n->root; node = n->nodes[node].parent) depth++;
    return depth;
}

static double naive_w(const naive *n, int node) {
    double w = 1;
    for (; node != n->root; node = n->nodes[node].parent) w *= (double)n->nodes[node].a;
    return w;
}

static bool naive_is_below(const naive *n, int node, int root) {
    while (node != root && node >= 0) node = n->nodes[node].parent;
    return node == root;
}

/* Numbers of what is there, in order: the tree keeps that order. */
static void naive_place(naive *n) {
    uint32_t index = 0;
    for (uint32_t i = 0; i < n->count; i++) n->at[i] = n->nodes[i].gone ? LV_TREE_NONE : index++;
}

static int naive_child(const naive *n, int parent, int32_t token) {
    for (uint32_t i = 0; i < n->count; i++) {
        if (!n->nodes[i].gone && n->nodes[i].parent == parent && n->nodes[i].token == token && (int)i != n->root)
            return (int)i;
    }
    return -1;
}

static int naive_draw(const naive *n, uint32_t *random) {
    for (;;) {
        const uint32_t i = draw(random, n->count);
        if (!n->nodes[i].gone) return (int)i;
    }
}

static void check_ranked(lv_tree *tree, uint32_t depth_max) {
    uint32_t count, wanted = 0;
    const uint32_t *ranked = lv_tree_ranked(tree, depth_max, &count);
    for (uint32_t i = 1; i < tree->nodes_count; i++) wanted += tree->nodes[i].feature.depth <= depth_max;
    assert_int_equal(count, wanted);
    for (uint32_t i = 0; i < count; i++) {
        const lv_node *node = &tree->nodes[ranked[i]];
        assert_true(ranked[i] >= 1 && node->feature.depth <= depth_max);
        if (i == 0) continue;
        const lv_node *before = &tree->nodes[ranked[i - 1]];
        assert_true(before->w > node->w || (before->w == node->w && ranked[i - 1] < ranked[i]));
    }
}

static void check_same(const naive *n, lv_tree *tree) {
    uint32_t count = 0;
    assert_true(lv_tree_is_sound(tree));
    for (uint32_t i = 0; i < n->count; i++) {
        if (n->nodes[i].gone) continue;
        count++;
        const lv_node *node = &tree->nodes[n->at[i]];
        const double w = naive_w(n, (int)i);
        assert_int_equal(node->token, n->nodes[i].token);
        assert_int_equal(node->parent, (int)i == n->root ? LV_TREE_NONE : n->at[n->nodes[i].parent]);
        assert_int_equal(node->feature.depth, naive_depth(n, (int)i));
        assert_int_equal(node->expanded, n->nodes[i].expanded);
        assert_true(fabs((double)node->w - w) <= 1e-5 * w + 1e-30);
        if ((int)i != n->root) assert_true(node->a == n->nodes[i].a);
        uint32_t path[LV_TREE_DEPTH_MAX];
        uint32_t depth = lv_tree_path(tree, n->at[i], path);
        assert_int_equal(depth, naive_depth(n, (int)i));
        for (int up = (int)i; depth > 0; up = n->nodes[up].parent) assert_int_equal(path[--depth], n->at[up]);
    }
    assert_int_equal(tree->nodes_count, count);
    check_ranked(tree, LV_TREE_DEPTH_MAX);
    check_ranked(tree, 2);
}

static void step_add(naive *n, lv_tree *tree, uint32_t *random) {
    const int parent = naive_draw(n, random);
    const int32_t token = (int32_t)draw(random, TOKENS);
    const float a = .02f + .01f * (float)draw(random, 96);
    const int there = naive_child(n, parent, token);
    assert_int_equal(lv_tree_child(tree, n->at[parent], token), there < 0 ? LV_TREE_NONE : n->at[there]);
    const uint32_t index = lv_tree_add(tree, n->at[parent], token, &plain_feature, a);
    if (there >= 0) {
        if (a > n->nodes[there].a) n->nodes[there].a = a;
        assert_int_equal(index, n->at[there]);
        return;
    }
    n->nodes[n->count] = (naive_node){.token = token, .parent = parent, .a = a};
    n->count++;
    naive_place(n);
    assert_int_equal(index, n->at[n->count - 1]);
    assert_int_equal(tree->nodes[index].feature.rank, 2);
}

static void step_expand(naive *n, lv_tree *tree, uint32_t *random) {
    const int node = naive_draw(n, random);
    if (node != n->root && !n->nodes[n->nodes[node].parent].expanded) return;
    n->nodes[node].expanded = true;
    tree->nodes[n->at[node]].expanded = true;
}

static void step_reroot(naive *n, lv_tree *tree, uint32_t *random) {
    const int root = naive_draw(n, random);
    lv_tree_reroot(tree, n->at[root]);
    for (uint32_t i = 0; i < n->count; i++) n->nodes[i].gone = n->nodes[i].gone || !naive_is_below(n, (int)i, root);
    n->root = root;
    naive_place(n);
}

static void test_against_a_naive_tree(void **state) {
    (void)state;
    lv_tree tree = open_tree();
    naive *n = malloc(sizeof(*n));
    assert_non_null(n);
    for (uint32_t sequence = 0; sequence < SEQUENCES; sequence++) {
        uint32_t random = sequence;
        *n = (naive){.count = 1};
        n->nodes[0] = (naive_node){.token = 9, .parent = -1, .a = 1};
        naive_place(n);
        lv_tree_reset(&tree, 9);
        for (uint32_t step = 0; step < STEPS; step++) {
            const uint32_t kind = draw(&random, 64);
            if (kind == 0)
                step_reroot(n, &tree, &random);
            else if (kind < 12)
                step_expand(n, &tree, &random);
            else
                step_add(n, &tree, &random);
            if (step % 8 == 0 || kind == 0) check_same(n, &tree);
        }
    }
    free(n);
    lv_tree_close(&tree);
}

/* --- Limits ------------------------------------------------------------------------------------------------------ */

static void test_depth_ends(void **state) {
    (void)state;
    lv_tree tree = open_tree();
    lv_tree_reset(&tree, 5);
    uint32_t node = LV_TREE_ROOT;
    for (uint32_t depth = 1; depth <= LV_TREE_DEPTH_MAX; depth++) {
        node = lv_tree_add(&tree, node, 1, &plain_feature, .5f);
        assert_int_equal(node, depth);
    }
    assert_int_equal(lv_tree_add(&tree, node, 1, &plain_feature, .5f), LV_TREE_NONE);
    uint32_t path[LV_TREE_DEPTH_MAX];
    assert_int_equal(lv_tree_path(&tree, node, path), LV_TREE_DEPTH_MAX);
    assert_true(lv_tree_is_sound(&tree)); /* though W is no longer a normal number */
    lv_tree_reroot(&tree, 1);
    assert_int_equal(lv_tree_add(&tree, node - 1, 1, &plain_feature, .5f), node);
    assert_true(lv_tree_is_sound(&tree));
    lv_tree_close(&tree);
}

static void test_full(void **state) {
    (void)state;
    lv_tree tree = open_tree();
    lv_tree_reset(&tree, 5);
    for (uint32_t i = 1; i < LV_TREE_NODES_MAX; i++) {
        assert_int_equal(lv_tree_add(&tree, (i - 1) / 8, (int32_t)i, &plain_feature, .3f), i);
    }
    assert_int_equal(lv_tree_add(&tree, LV_TREE_ROOT, -7, &plain_feature, .3f), LV_TREE_NONE);
    assert_int_equal(lv_tree_add(&tree, LV_TREE_ROOT, 1, &plain_feature, .6f), 1); /* what is there can be raised */
    assert_true(lv_tree_is_sound(&tree));
    check_ranked(&tree, LV_TREE_DEPTH_MAX);
    lv_tree_reroot(&tree, 2);
    assert_true(lv_tree_is_sound(&tree) && tree.nodes_count < LV_TREE_NODES_MAX / 4);
    assert_int_not_equal(lv_tree_add(&tree, LV_TREE_ROOT, -7, &plain_feature, .3f), LV_TREE_NONE);
    lv_tree_close(&tree);
}

static void test_best_child(void **state) {
    (void)state;
    lv_tree tree = open_tree();
    lv_tree_reset(&tree, 5);
    assert_int_equal(lv_tree_best_child(&tree, LV_TREE_ROOT, false), LV_TREE_NONE);
    const uint32_t low = lv_tree_add(&tree, LV_TREE_ROOT, 1, &plain_feature, .2f);
    const uint32_t high = lv_tree_add(&tree, LV_TREE_ROOT, 2, &plain_feature, .5f);
    const uint32_t same = lv_tree_add(&tree, LV_TREE_ROOT, 3, &plain_feature, .5f);
    assert_int_equal(lv_tree_best_child(&tree, LV_TREE_ROOT, false), high);
    assert_int_equal(lv_tree_best_child(&tree, LV_TREE_ROOT, true), LV_TREE_NONE);
    tree.nodes[low].row = 1;
    assert_int_equal(lv_tree_best_child(&tree, LV_TREE_ROOT, true), low);
    tree.nodes[same].row = 2;
    assert_int_equal(lv_tree_best_child(&tree, LV_TREE_ROOT, true), same);
    lv_tree_close(&tree);
}

/* Each promise, broken once. */
static void test_soundness(void **state) {
    (void)state;
    lv_tree tree = open_tree();
    for (uint32_t kind = 0; kind < 8; kind++) {
        lv_tree_reset(&tree, 5);
        tree.nodes[LV_TREE_ROOT].expanded = true;
        const uint32_t a = lv_tree_add(&tree, LV_TREE_ROOT, 1, &plain_feature, .5f);
        const uint32_t b = lv_tree_add(&tree, a, 2, &plain_feature, .5f);
        const uint32_t c = lv_tree_add(&tree, a, 3, &plain_feature, .5f);
        assert_true(lv_tree_is_sound(&tree));
        if (kind == 0) tree.nodes[b].w = .6f;
        if (kind == 1) tree.nodes[b].w = NAN;
        if (kind == 2) tree.nodes[b].parent = c;
        if (kind == 3) tree.nodes[b].feature.depth = 3;
        if (kind == 4) tree.nodes[c].token = 2;
        if (kind == 5) tree.nodes[b].expanded = true;
        if (kind == 6) tree.nodes[b].next_sibling = LV_TREE_NONE;
        if (kind == 7) tree.nodes_count = 0;
        assert_false(lv_tree_is_sound(&tree));
    }
    lv_tree_close(&tree);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_naive_tree), cmocka_unit_test(test_depth_ends), cmocka_unit_test(test_full),
        cmocka_unit_test(test_best_child),           cmocka_unit_test(test_soundness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
