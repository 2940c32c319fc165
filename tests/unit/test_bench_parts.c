/* The parts of `lever bench` that measure nothing: lists, order, prompts, rows, the arithmetic of the table, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/bench_caches.h"
#include "cli/bench_cases.h"
#include "cli/bench_prompts.h"
#include "cli/bench_rows.h"
#include "cli/bench_table.h"
#include "cli/bench_trace.h"
#include "cli/limits.h"
#include "support/scratch.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static char message[BENCH_MESSAGE_BYTES];

/* --- Lists --- */

static void words_become_arms_and_budgets(void **state) {
    (void)state;
    cli_options options = {
        .bench = {.strategies =
                      "ar,chain:5,edge,lever+no-ahead+fixed:16,lever+head:path+longrun,lever+paper,lever+no-prune,"
                      "lever+prune-forced+prune-cap:0,ar+lru",
                  .budgets = "900M,50%,none",
                  .temperatures = "0,0.8",
                  .lengths = "32,1024"}};
    bench_lists lists;
    assert_true(bench_lists_parse(&lists, &options, 0, message));
    assert_int_equal(lists.arms_count, 9);
    assert_false(lists.arms[0].drafts);
    assert_int_equal(lists.arms[1].how.strategy, LEVER_STRATEGY_CHAIN);
    assert_int_equal(lists.arms[1].how.chain_length, 5);
    assert_int_equal(lists.arms[2].how.strategy, LEVER_STRATEGY_EDGE);
    assert_true(lists.arms[3].how.no_ahead && lists.arms[3].drafts && !lists.arms[3].how.no_lookup);
    assert_int_equal(lists.arms[3].how.tree_nodes, 16);
    assert_int_equal(lists.arms[4].how.head, LEVER_HEAD_PATH);
    assert_int_equal(lists.arms[4].how.stop_rule, LEVER_STOP_LONGRUN);
    assert_true(lists.arms[5].how.no_ahead && lists.arms[5].how.no_lookup);
    assert_true(lists.arms[6].how.no_prune && !lists.arms[5].how.no_prune);
    assert_true(lists.arms[7].how.prune_forced);
    assert_int_equal(lists.arms[7].how.prune_cap, 0);
    assert_int_equal(lists.arms[7].cache, LEVER_CACHE_PIN);
    assert_true(lists.arms[8].cache == LEVER_CACHE_LRU && !lists.arms[8].drafts);
    assert_int_equal(lists.budgets[0].bytes, 900u << 20);
    assert_int_equal(lists.budgets[0].percent, -1);
    assert_int_equal(lists.budgets[1].percent, 50);
    assert_int_equal(lists.budgets[2].bytes, 0);
    assert_int_equal(lists.budgets[2].percent, -1);
    assert_int_equal(lists.lengths[1], 1024);
    assert_int_equal(lists.repetitions, 1);
}

static void the_default_budget_is_less_than_the_target(void **state) {
    (void)state;
    const cli_options options = {0};
    bench_lists lists;
    assert_true(bench_lists_parse(&lists, &options, (uint64_t)1000 << 20, message));
    assert_int_equal(lists.budgets[0].bytes, 876u << 20);
    assert_int_equal(lists.arms_count, 4);
    assert_true(bench_lists_parse(&lists, &options, 0, message)); /* a file that is missing is told later */
}

static void wrong_words_are_named(void **state) {
    (void)state;
    static const struct {
        const char *strategies, *budgets, *temperatures, *lengths, *said;
    } cases[] = {
        {.strategies = "lever,leaver", .said = "'leaver'"},
        {.strategies = "lever,,ar", .said = "''"},
        {.strategies = "lever+no-head", .said = "'lever+no-head'"},
        {.strategies = "lever+no-aheads", .said = "'lever+no-aheads'"},
        {.strategies = "lever+lru:1", .said = "'lever+lru:1'"},
        {.strategies = "lever+prune-cap:101", .said = "'lever+prune-cap:101'"},
        {.strategies = "chain:0", .said = "'chain:0'"},
        {.strategies = "lever+fixed:64", .said = "'lever+fixed:64'"},
        {.strategies = "ar,lever,ar", .said = "'ar' twice"},
        {.budgets = "0", .said = "'0'"},
        {.budgets = "101%", .said = "'101%'"},
        {.budgets = "%", .said = "'%'"},
        {.temperatures = "-1", .said = "'-1'"},
        {.temperatures = "nan", .said = "'nan'"},
        {.lengths = "1", .said = "'1'"},
        {.lengths = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", .said = "--lengths"},
        {.lengths = "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18", .said = "at most 16"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const cli_options options = {.bench = {.strategies = cases[i].strategies,
                                               .budgets = cases[i].budgets,
                                               .temperatures = cases[i].temperatures,
                                               .lengths = cases[i].lengths}};
        bench_lists lists;
        assert_false(bench_lists_parse(&lists, &options, 1 << 30, message));
        if (strstr(message, cases[i].said) == NULL) fail_msg("case %zu: %s", i, message);
    }
}

static void arms_of_a_round_stand_together_and_take_turns(void **state) {
    (void)state;
    const cli_options options = {.bench = {.strategies = "lever,chain,ar",
                                           .budgets = "1G,2G",
                                           .temperatures = "0,1",
                                           .lengths = "8,16",
                                           .repetitions = 2}};
    bench_lists lists;
    size_t count;
    assert_true(bench_lists_parse(&lists, &options, 0, message));
    bench_case *cases = bench_cases_make(&lists, 5, &count);
    assert_non_null(cases);
    assert_int_equal(count, 3 * 2 * 2 * 2 * 5 * 2);
    unsigned char seen[3][2][2][2][5][2] = {0};
    for (size_t i = 0; i < count; i++) {
        const bench_case *c = &cases[i];
        assert_int_equal(c->round, i / 3);
        assert_int_equal(c->arm, c->round % 2 == 0 ? i % 3 : 2 - i % 3);
        assert_int_equal(seen[c->arm][c->budget][c->temperature][c->length][c->prompt][c->repetition]++, 0);
        const bench_case *first = &cases[i - i % 3];
        assert_true(c->prompt == first->prompt && c->budget == first->budget && c->length == first->length);
    }
    char name[BENCH_NAME_BYTES];
    bench_case_name(&lists, &cases[count - 1], name);
    assert_string_equal(name, "2G/t1/n16");
    free(cases);
}

/* --- Prompts --- */

static const char *write_file(const char *name, const char *text) {
    static char path[4096];
    return scratch_write(name, text, strlen(text), path, sizeof path);
}

static void the_own_prompts_cover_every_task(void **state) {
    (void)state;
    static const char *const tasks[] = {"code", "maths", "dialogue", "summary", "editing"};
    bench_prompts prompts;
    assert_true(bench_prompts_load(&prompts, NULL, message, sizeof message));
    assert_true(bench_prompts_choose(&prompts, NULL, 2, message, sizeof message));
    assert_int_equal(prompts.count, 2 * COUNT_OF(tasks));
    for (size_t i = 0; i < prompts.count; i++) assert_string_equal(prompts.data[i].task, tasks[i / 2]);
    bench_prompts_fini(&prompts);
}

static void prompts_of_a_file(void **state) {
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s",
             write_file("stories.jsonl",
                        "{\"id\": \"one\", \"prompt\": \"Tell\", \"category\": \"x\"}\n\n"
                        "{\"prompt\": \"Say\", \"task\": \"speech\", \"follow_up\": [1, {\"prompt\": 2}]}"));
    bench_prompts prompts;
    assert_true(bench_prompts_load(&prompts, path, message, sizeof message));
    assert_int_equal(prompts.count, 2);
    assert_string_equal(prompts.data[0].task, "stories");
    assert_string_equal(prompts.data[1].task, "speech");
    assert_string_equal(prompts.data[1].id, "stories/3");
    assert_string_equal(prompts.data[1].text, "Say");
    assert_false(bench_prompts_choose(&prompts, "speech,poems", 0, message, sizeof message));
    assert_non_null(strstr(message, "'poems'; there are stories"));
    bench_prompts_fini(&prompts);
}

static void bad_lines_are_named(void **state) {
    (void)state;
    bench_prompts prompts;
    const char *path =
        write_file("bad.jsonl", "{\"prompt\": \"right\"}\nrubbish\n{\"prompt\": 3}\n{\"prompt\": \"\"}\n{\"pr");
    assert_false(bench_prompts_load(&prompts, path, message, sizeof message));
    bench_prompts_fini(&prompts);
    assert_non_null(strstr(message, "bad.jsonl:2: not a JSON object"));
    assert_non_null(strstr(message, "bad.jsonl:3: no \"prompt\""));
    assert_non_null(strstr(message, "bad.jsonl:4: no \"prompt\""));
    assert_non_null(strstr(message, "bad.jsonl:5: a string that does not end"));
    assert_null(strstr(message, "bad.jsonl:1:"));
    assert_false(bench_prompts_load(&prompts, "/nowhere/x.jsonl", message, sizeof message));
    bench_prompts_fini(&prompts);
    assert_false(bench_prompts_load(&prompts, write_file("empty.jsonl", "\n"), message, sizeof message));
    bench_prompts_fini(&prompts);
    assert_non_null(strstr(message, "no prompt in"));
}

/* --- Rows --- */

typedef struct {
    size_t count;
    char last_id[32];
    bench_result last;
} rows_seen;

static void see_row(void *user, const char *id, const bench_result *result) {
    rows_seen *seen = user;
    seen->count++;
    snprintf(seen->last_id, sizeof seen->last_id, "%s", id);
    seen->last = *result;
}

#define ROW(id, status)                                                                                                \
    "{\"schema\": 2, \"id\": \"" id "\", \"status\": \"" status "\", \"reason\": \"r\", \"values\": {\"seconds\": 3, " \
    "\"decode_tokens_per_second\": 7.5, \"tokens_sha256\": \"ab\"}}\n"

static void a_killed_run_is_gone_on_with(void **state) {
    (void)state;
    const char *path = write_file("rows.jsonl", ROW("a", "ok") ROW("b", "failed") "{\"schema\": 2, \"id\": \"c");
    bench_rows rows;
    rows_seen seen = {0};
    assert_true(bench_rows_open(&rows, path, true, see_row, &seen, message, sizeof message));
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.last_id, "b");
    assert_int_equal(seen.last.status, BENCH_FAILED);
    assert_string_equal(seen.last.reason, "r");
    assert_true(seen.last.decode_tokens_per_second == 7.5);
    json row;
    json_init(&row);
    json_object_open(&row, NULL);
    json_unsigned(&row, "schema", BENCH_SCHEMA);
    json_text(&row, "id", "c");
    json_object_close(&row);
    assert_true(bench_rows_append(&rows, &row));
    json_fini(&row);
    assert_true(bench_rows_close(&rows));
    seen = (rows_seen){0};
    assert_true(bench_rows_open(&rows, path, true, see_row, &seen, message, sizeof message));
    assert_int_equal(seen.count, 3);
    assert_string_equal(seen.last_id, "c");
    bench_rows second;
    assert_false(bench_rows_open(&second, path, true, see_row, &seen, message, sizeof message));
    assert_non_null(strstr(message, "is being written by another lever bench"));
    (void)bench_rows_close(&second);
    assert_true(bench_rows_close(&rows));
    assert_false(bench_rows_open(&rows, path, false, see_row, &seen, message, sizeof message));
    assert_non_null(strstr(message, "--resume"));
}

static void read_file(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t length = fread(text, 1, bytes - 1, file);
    text[length] = '\0';
    fclose(file);
}

static void other_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {ROW("a", "ok") "rubbish\n" ROW("b", "ok"), ":2: not a JSON object"},
        {"{\"schema\": 1}\n", ":1: a row of another schema"},
        {"a line of a diary, without an end", ":1: not a row"},
        {ROW("a", "ok") "\n{\"name\": 1", ":3: not a row"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bench_rows rows;
        rows_seen seen = {0};
        char path[4096], text[4096];
        snprintf(path, sizeof path, "%s", write_file("other.jsonl", cases[i].text));
        assert_false(bench_rows_open(&rows, path, true, see_row, &seen, message, sizeof message));
        assert_non_null(strstr(message, cases[i].said));
        (void)bench_rows_close(&rows);
        read_file(path, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

/* --- The trace --- */

#define CYCLE(id, n) "{\"row\": \"" id "\", \"trace\": {\"cycle\":" #n "}}\n"

static void a_trace_has_the_answers_that_have_rows(void **state) {
    (void)state;
    char path[4096], text[4096];
    snprintf(path, sizeof path, "%s", write_file("trace.jsonl", ""));
    bench_trace trace;
    assert_true(bench_trace_open(&trace, path, false, message, sizeof message));
    bench_trace_settle(&trace, false);
    static const char *const ids[] = {"a", "b", "c"};
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        bench_trace_begin(&trace, ids[i]);
        bench_trace_line(&trace, "{\"cycle\":1}");
        bench_trace_line(&trace, "{\"cycle\":2}");
        bench_trace_end(&trace, i != 1);
    }
    assert_true(bench_trace_close(&trace));
    read_file(path, text, sizeof text);
    assert_string_equal(text, CYCLE("a", 1) CYCLE("a", 2) CYCLE("c", 1) CYCLE("c", 2));
}

static void the_end_of_a_trace_is_put_right(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool has_row;
        const char *id, *left;
    } cases[] = {
        {CYCLE("a", 1) CYCLE("b", 1) CYCLE("b", 2) "{\"row\": \"b\", \"tra", false, "b", CYCLE("a", 1)},
        {CYCLE("a", 1) CYCLE("b", 1) CYCLE("b", 2), true, "b", CYCLE("a", 1) CYCLE("b", 1) CYCLE("b", 2)},
        {CYCLE("a", 1) "{\"row\": \"b\", \"tra", true, "a", CYCLE("a", 1)},
        {"{\"row", false, "", ""},
        {"", false, "", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char path[4096], text[4096], wanted[4096];
        bench_trace trace;
        snprintf(path, sizeof path, "%s", write_file("left.jsonl", cases[i].text));
        assert_true(bench_trace_open(&trace, path, true, message, sizeof message));
        assert_string_equal(trace.last_id, cases[i].id);
        bench_trace_settle(&trace, cases[i].has_row);
        bench_trace_begin(&trace, "new");
        bench_trace_line(&trace, "{\"cycle\":1}");
        bench_trace_end(&trace, true);
        assert_true(bench_trace_close(&trace));
        read_file(path, text, sizeof text);
        snprintf(wanted, sizeof wanted, "%s%s", cases[i].left, CYCLE("new", 1));
        assert_string_equal(text, wanted);
    }
    static const char *const others[] = {"dear diary\n", "dear diary", "{\"rows"};
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        char path[4096], text[4096];
        bench_trace trace;
        snprintf(path, sizeof path, "%s", write_file("diary", others[i]));
        assert_false(bench_trace_open(&trace, path, true, message, sizeof message));
        assert_non_null(strstr(message, "diary:1: not a line of a trace"));
        (void)bench_trace_close(&trace);
        read_file(path, text, sizeof text);
        assert_string_equal(text, others[i]);
    }
}

/* --- Caches --- */

static void each_arm_has_a_cache_of_its_own(void **state) {
    (void)state;
    char home[4096], users[4096], path[4200], one[4096], other[4096], again[4096];
    write_file("home/lever/disk-8-0.profile", "profile");
    write_file("home/lever/pair-1.predictor", "predictor");
    write_file("home/lever/pair-1.costs", "costs");
    write_file("home/lever/bench-arms-lost00/0-0/pair-1.costs", "of a run that was killed");
    scratch_path("home", home, sizeof home);
    scratch_path("home/lever", users, sizeof users);
    setenv("XDG_CACHE_HOME", home, 1);
    bench_caches caches, beside;
    assert_true(bench_caches_open(&caches));
    snprintf(path, sizeof path, "%s/bench-arms-lost00", users);
    assert_int_equal(access(path, F_OK), -1);
    assert_true(bench_caches_of(&caches, 0, 1, one) && bench_caches_of(&caches, 1, 0, other));
    assert_string_not_equal(one, other);
    static const struct {
        const char *name;
        bool there;
    } files[] = {{"disk-8-0.profile", true}, {"pair-1.predictor", true}, {"pair-1.costs", false}};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/%s", one, files[i].name);
        assert_int_equal(access(path, R_OK) == 0, files[i].there);
    }
    snprintf(path, sizeof path, "%s/pair-1.costs", one);
    FILE *learned = fopen(path, "w");
    assert_non_null(learned);
    fclose(learned);
    assert_true(bench_caches_open(&beside)); /* another run at the same time leaves it alone */
    bench_caches_close(&beside);
    assert_true(bench_caches_of(&caches, 0, 1, again));
    assert_string_equal(again, one);
    assert_int_equal(access(path, F_OK), 0);
    bench_caches_close(&caches);
    assert_int_equal(access(one, F_OK), -1);
    snprintf(path, sizeof path, "%s/disk-8-0.profile", users);
    assert_int_equal(access(path, R_OK), 0);
    unsetenv("XDG_CACHE_HOME");
}

/* --- The table --- */

static void medians(void **state) {
    (void)state;
    double odd[] = {9, 1, 5}, even[] = {4, 1, 3, 2};
    assert_true(bench_median(odd, 3) == 5);
    assert_true(bench_median(even, 4) == 2.5);
    assert_true(bench_median(NULL, 0) == 0);
}

/* Two tasks of two prompts, two arms: ratios of 2 and 4 for the first task, 1 and 1 for the second. */
static void make_outcome(bench_outcome *o, bench_lists *lists, bench_prompts *prompts, bench_result *results) {
    static bench_prompt data[] = {{.id = (char *)(uintptr_t) "p0", .task = (char *)(uintptr_t) "code"},
                                  {.id = (char *)(uintptr_t) "p1", .task = (char *)(uintptr_t) "code"},
                                  {.id = (char *)(uintptr_t) "p2", .task = (char *)(uintptr_t) "maths"},
                                  {.id = (char *)(uintptr_t) "p3", .task = (char *)(uintptr_t) "maths"}};
    static const double lever_rates[] = {20, 40, 10, 10};
    const cli_options options = {.bench = {.strategies = "lever,ar", .budgets = "1G"}};
    assert_true(bench_lists_parse(lists, &options, 0, message));
    *prompts = (bench_prompts){.data = data, .count = COUNT_OF(data)};
    *o = (bench_outcome){.lists = lists, .prompts = prompts, .results = results};
    o->cases = bench_cases_make(lists, prompts->count, &o->count);
    assert_non_null(o->cases);
    for (size_t i = 0; i < o->count; i++) {
        const bench_case *c = &o->cases[i];
        results[i] = (bench_result){.status = BENCH_OK, .tokens_per_cycle = 2, .bytes_per_token = 1 << 20};
        results[i].decode_tokens_per_second = c->arm == 0 ? lever_rates[c->prompt] : 10;
        snprintf(results[i].tokens_sha256, sizeof results[i].tokens_sha256, "text %zu", c->prompt);
    }
}

static void print_into(char *text, size_t bytes, const bench_outcome *outcome) {
    FILE *file = fmemopen(text, bytes, "w");
    assert_non_null(file);
    bench_table_print(file, outcome);
    fclose(file);
}

static void the_table_takes_ratios_within_a_round(void **state) {
    (void)state;
    bench_outcome outcome;
    bench_lists lists;
    bench_prompts prompts;
    bench_result results[8];
    char text[4096] = "";
    make_outcome(&outcome, &lists, &prompts, results);
    print_into(text, sizeof text, &outcome);
    assert_non_null(strstr(text, "30.00 (20.00-40.00)"));
    assert_non_null(strstr(text, "  2.00          2.00  1.00 MiB")); /* the mean of 3 and 1 */
    /* One that failed counts nowhere, and its partner in no ratio. */
    for (size_t i = 0; i < outcome.count; i++) {
        if (outcome.cases[i].arm == 0 && outcome.cases[i].prompt == 1) results[i].status = BENCH_FAILED;
    }
    memset(text, 0, sizeof text);
    print_into(text, sizeof text, &outcome);
    assert_non_null(strstr(text, "20.00 "));
    assert_null(strstr(text, "40.00"));
    assert_non_null(strstr(text, "  1.50          2.00")); /* of 2 and 1 */
    free((void *)(uintptr_t)outcome.cases);
}

static void an_arm_without_values_says_why(void **state) {
    (void)state;
    bench_outcome outcome;
    bench_lists lists;
    bench_prompts prompts;
    bench_result results[8];
    char text[4096] = "";
    make_outcome(&outcome, &lists, &prompts, results);
    for (size_t i = 0; i < outcome.count; i++) {
        if (outcome.cases[i].arm == 0)
            results[i] = (bench_result){.status = BENCH_FAILED, .reason = "the moon was full"};
    }
    print_into(text, sizeof text, &outcome);
    assert_non_null(strstr(text, "the moon was full"));
    free((void *)(uintptr_t)outcome.cases);
}

static void different_texts_are_found(void **state) {
    (void)state;
    bench_outcome outcome;
    bench_lists lists;
    bench_prompts prompts;
    bench_result results[8];
    make_outcome(&outcome, &lists, &prompts, results);
    assert_int_equal(bench_count_differing(&outcome, message), 0);
    strcpy(results[5].tokens_sha256, "another");
    assert_int_equal(bench_count_differing(&outcome, message), 1);
    assert_non_null(strstr(message, "p2"));
    results[5].status = BENCH_FAILED;
    assert_int_equal(bench_count_differing(&outcome, message), 0);
    free((void *)(uintptr_t)outcome.cases);
}

/* --- Limits --- */

static void a_system_without_control_groups_says_so(void **state) {
    (void)state;
    char root[4096];
    write_file("bare/proc/self/mounts", "proc /proc proc rw 0 0\ncgroup /cg/cpu cgroup rw,cpu 0 0\n");
    scratch_path("bare", root, sizeof root);
    limits held;
    limits_open(&held, 1 << 20, root);
    assert_int_equal(held.version, 0);
    assert_int_equal(held.memory_bytes, 0);
    assert_non_null(strstr(held.refused, "memory: this system has no control groups"));
    limits_close(&held);
}

/* In a folder that stands in for the kernel: only the names and texts are tested. */
static void a_group_is_made_limited_and_removed(void **state) {
    (void)state;
    char root[4096], path[3 * 4096];
    write_file("v2/proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
    write_file("v2/cg/cgroup.controllers", "cpu memory io\n");
    write_file("v2/cg/cgroup.subtree_control", "memory\n");
    scratch_path("v2", root, sizeof root);
    limits held;
    limits_open(&held, 123456, root);
    assert_int_equal(held.version, 2);
    assert_int_equal(held.memory_bytes, 123456);
    snprintf(path, sizeof path, "%s%s/memory.max", root, held.folder);
    FILE *file = fopen(path, "r");
    char text[32] = "";
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "123456");
    assert_int_equal(unlink(path), 0);
    /* A peak since the group was made is that of another arm, and is not told. */
    snprintf(path, sizeof path, "v2%s/memory.peak", held.folder);
    write_file(path, "777\n");
    assert_int_equal(limits_memory_peak(&held), 0);
    limits_restart_peak(&held);
    write_file(path, "5000\n");
    assert_int_equal(limits_memory_peak(&held), 5000);
    snprintf(path, sizeof path, "%s%s/memory.peak", root, held.folder);
    assert_int_equal(unlink(path), 0);
    limits_close(&held);
    snprintf(path, sizeof path, "%s%s", root, held.folder);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_kernel_that_does_not_count_peaks_anew_tells_none(void **state) {
    (void)state;
    limits held = {.root = "", .version = 2, .peak_file = -1};
    scratch_path("v2/nowhere", held.folder, sizeof held.folder);
    limits_restart_peak(&held);
    assert_int_equal(limits_memory_peak(&held), 0);
    held.version = 1;
    limits_restart_peak(&held);
    assert_int_equal(limits_memory_peak(&held), 0);
    snprintf(held.folder, sizeof held.folder, "%s", "");
    char root[4096];
    write_file("v1/memory.max_usage_in_bytes", "777\n");
    scratch_path("v1", root, sizeof root);
    held.root = root;
    assert_int_equal(limits_memory_peak(&held), 0); /* that since the beginning */
    limits_restart_peak(&held);
    assert_int_equal(limits_memory_peak(&held), 0); /* it was put to nothing, and nobody counts here */
    write_file("v1/memory.max_usage_in_bytes", "888\n");
    assert_int_equal(limits_memory_peak(&held), 888);
}

static int code_seven(void *user, limits *held) {
    assert_int_equal(held->version, 0);
    (*(int *)user)++;
    return 7;
}

static void without_a_wish_it_runs_here(void **state) {
    (void)state;
    int calls = 0;
    char killed[256];
    assert_int_equal(limits_run(0, code_seven, &calls, killed), 7);
    assert_int_equal(calls, 1);
    assert_string_equal(killed, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_arms_and_budgets),
        cmocka_unit_test(the_default_budget_is_less_than_the_target),
        cmocka_unit_test(wrong_words_are_named),
        cmocka_unit_test(arms_of_a_round_stand_together_and_take_turns),
        cmocka_unit_test(the_own_prompts_cover_every_task),
        cmocka_unit_test(prompts_of_a_file),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(a_killed_run_is_gone_on_with),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(a_trace_has_the_answers_that_have_rows),
        cmocka_unit_test(the_end_of_a_trace_is_put_right),
        cmocka_unit_test(each_arm_has_a_cache_of_its_own),
        cmocka_unit_test(medians),
        cmocka_unit_test(the_table_takes_ratios_within_a_round),
        cmocka_unit_test(an_arm_without_values_says_why),
        cmocka_unit_test(different_texts_are_found),
        cmocka_unit_test(a_system_without_control_groups_says_so),
        cmocka_unit_test(a_group_is_made_limited_and_removed),
        cmocka_unit_test(a_kernel_that_does_not_count_peaks_anew_tells_none),
        cmocka_unit_test(without_a_wish_it_runs_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
