/* Traces: JSON in any case, what stands in it, and what goes first when the room is short. */
#include "engine/trace.h"

#include <ctype.h>
#include <stdlib.h>

#include "support/check.h"

/* --- Whether a text is JSON --------------------------------------------------------------------------------------- */

static const char *skip_value(const char *at);

static const char *skip_list(const char *at, char end, bool named) {
    at++;
    while (*at != end) {
        if (named) {
            if (*at != '"') return NULL;
            at = strchr(at + 1, '"');
            if (!at || at[1] != ':') return NULL;
            at += 2;
        }
        at = skip_value(at);
        if (!at || (*at != ',' && *at != end)) return NULL;
        if (*at == ',' && *++at == end) return NULL;
    }
    return at + 1;
}

static const char *skip_value(const char *at) {
    if (*at == '{') return skip_list(at, '}', true);
    if (*at == '[') return skip_list(at, ']', false);
    if (strncmp(at, "true", 4) == 0) return at + 4;
    if (strncmp(at, "false", 5) == 0) return at + 5;
    if (*at == '"') {
        const char *end = strchr(at + 1, '"');
        return end ? end + 1 : NULL;
    }
    char *end;
    if (*at != '-' && !isdigit((unsigned char)*at)) return NULL;
    (void)strtod(at, &end);
    return end;
}

static bool is_json(const char *line) {
    const char *end = line[0] == '{' ? skip_value(line) : NULL;
    return end && *end == '\0';
}

static uint32_t count_of(const char *line, const char *what) {
    uint32_t count = 0;
    while ((line = strstr(line, what)) != NULL) {
        count++;
        line++;
    }
    return count;
}

/* --- A cycle ----------------------------------------------------------------------------------------------------- */

static lv_cycle open_cycle(void) {
    lv_cycle cycle;
    lever_error error;
    CHECK_OK(lv_cycle_open(&cycle, NULL, &error));
    lv_tree_reset(&cycle.tree, 42);
    return cycle;
}

static uint32_t add(lv_cycle *cycle, uint32_t parent, int32_t token) {
    const lv_feature feature = {.source = LV_SOURCE_DRAFT, .rank = 1, .estimate = .25f};
    return lv_tree_add(&cycle->tree, parent, token, &feature, .5f);
}

static void test_a_small_cycle(void **state) {
    (void)state;
    lv_cycle cycle = open_cycle();
    cycle.tree.nodes[0].expanded = true;
    const uint32_t first = add(&cycle, 0, 151935), second = add(&cycle, first, 7);
    cycle.tree.nodes[first].row = 1;
    lv_cycle_result result = {.path = {first}, .path_tokens = {151935}, .path_count = 1, .token = 7};
    result.choice = (lv_drafting_choice){.nodes = {first}, .nodes_count = 1, .tokens = 1.5, .seconds = .25};
    result.ahead = true;
    result.seconds = .125;
    result.head_rows = 2;
    char line[4096];
    lv_trace_line(line, sizeof(line), &cycle, &result, 12);
    assert_true(is_json(line));
    static const char *const wanted[] = {"{\"cycle\":12,",
                                         "\"strategy\":\"lever\"",
                                         "\"nodes_verified\":1,",
                                         "\"tokens_expected\":1.500",
                                         "\"tokens\":2,",
                                         "\"token\":7,",
                                         "\"seconds\":0.125000",
                                         "\"head_rows\":2",
                                         "\"ahead\":true",
                                         "\"path\":[1]",
                                         "\"token\":151935,\"depth\":1",
                                         "\"a\":0.5000,\"w\":0.25000,\"expanded\":false,\"verified\":false}"};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (!strstr(line, wanted[i])) fail_msg("no %s in %s", wanted[i], line);
    }
    assert_int_equal(count_of(line, "\"i\":"), 3);
    assert_int_equal(count_of(line, "\"verified\":true"), 2);
    assert_int_equal(second, 2);
    lv_cycle_close(&cycle);
}

/* As large as a cycle can be: what was verified or expanded is all there, wherever it stands. */
static void test_the_largest_cycle(void **state) {
    (void)state;
    lv_cycle cycle = open_cycle();
    lv_cycle_result result = {.path_count = LV_TREE_DEPTH_MAX};
    for (uint32_t i = 0; i < LV_TREE_DEPTH_MAX; i++) result.path[i] = LV_TREE_NODES_MAX - 1 - i;
    result.choice.nodes_count = LV_DRAFTING_NODES_MAX;
    for (uint32_t i = 1; i < LV_TREE_NODES_MAX; i++) assert_int_equal(add(&cycle, (i - 1) / 8, INT32_MAX - (int)i), i);
    for (uint32_t i = 0; i < LV_DRAFTING_NODES_MAX; i++) cycle.tree.nodes[LV_TREE_NODES_MAX - 1 - i].row = i + 1;
    for (uint32_t i = 0; i < 320; i++) cycle.tree.nodes[i * 9].expanded = true;
    char *line = malloc(LV_TRACE_BYTES);
    assert_non_null(line);
    lv_trace_line(line, LV_TRACE_BYTES, &cycle, &result, UINT64_MAX);
    assert_true(is_json(line));
    assert_int_equal(count_of(line, "\"verified\":true"), LV_DRAFTING_NODES_MAX + 1);
    assert_int_equal(count_of(line, "\"expanded\":true"), 320);
    assert_true(count_of(line, "\"i\":") > 500); /* and the room is used */
    free(line);
    lv_cycle_close(&cycle);
}

static void test_any_room(void **state) {
    (void)state;
    lv_cycle cycle = open_cycle();
    lv_cycle_result result = {.path_count = 3, .path = {1, 2, 3}};
    for (uint32_t i = 1; i < 40; i++) {
        add(&cycle, i - 1, (int)i);
        if (i % 2) cycle.tree.nodes[i].row = i;
    }
    uint32_t nodes = 0;
    for (size_t capacity = 1024; capacity < 12000; capacity += 7) {
        char *line = malloc(capacity); /* so that a byte too many is seen */
        assert_non_null(line);
        lv_trace_line(line, capacity, &cycle, &result, 1);
        assert_true(strlen(line) < capacity && is_json(line));
        const uint32_t now = count_of(line, "\"i\":");
        assert_true(now >= nodes);
        nodes = now;
        free(line);
    }
    assert_int_equal(nodes, 40);
    lv_cycle_close(&cycle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_cycle),
        cmocka_unit_test(test_the_largest_cycle),
        cmocka_unit_test(test_any_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
