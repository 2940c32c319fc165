/* bench.c - `lever bench`: strategies x prompts x budgets x temperatures x lengths, side by side.
 *
 * The order of things: what was asked for is checked, then a process of its own enters the control group, if any; there
 * checksums are taken (they fill the page cache), the caches dropped, and everything is measured. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/text.h"
#include "bench_machine.h"
#include "bench_run.h"
#include "bench_table.h"
#include "command.h"
#include "interrupt.h"
#include "terminal.h"

enum { DEFAULT_CONTEXT = 2048, DEFAULT_EACH = 2, DEFAULT_SEED = 1 };

typedef struct {
    cli_options options; /* as given, with the defaults of this command */
    bench_setup setup;
    char out[PATH_BYTES];
    progress bar;
    uint64_t hashed_bytes, hash_bytes;
    char (*ids)[SHA256_TEXT_BYTES]; /* of the cases, while rows are read */
    bool trace_has_row;             /* the last lines of a trace that is gone on with */
} command;

/* --- Before anything is measured --- */

static void take_context(void *user, const char *key, const char *value) {
    uint64_t tokens;
    if (strcmp(key, "context_train") == 0 && lv_parse_u64(value, 1, UINT32_MAX, &tokens)) *(uint64_t *)user = tokens;
}

/* What was not asked for is no more than the model was trained for. What is wrong with its file is told later. */
static uint32_t default_context(const char *model) {
    uint64_t trained = UINT32_MAX;
    (void)lever_inspect(model, false, take_context, &trained, NULL, NULL, NULL);
    return trained < DEFAULT_CONTEXT ? (uint32_t)trained : DEFAULT_CONTEXT;
}

static int check_options(command *c, uint64_t *cgroup_bytes) {
    bench_setup *setup = &c->setup;
    const cli_bench_options *wanted = &c->options.bench;
    char message[BENCH_MESSAGE_BYTES];
    int code = EXIT_DONE;
    if (wanted->out != NULL && wanted->resume != NULL) return fail_usage("--out and --resume exclude each other");
    if (wanted->cgroup_ram != NULL && (!lv_parse_size(wanted->cgroup_ram, cgroup_bytes) || *cgroup_bytes == 0)) {
        return fail_usage("--cgroup-ram is '%.100s'; allowed: a size such as 900M or 1.5G", wanted->cgroup_ram);
    }
    if (!talk_engine_options(&c->options, &setup->paths, &setup->engine, &code)) return code;
    if (c->options.context_tokens == 0) {
        c->options.context_tokens = setup->engine.context_tokens = default_context(setup->paths.model);
    }
    struct stat target = {0};
    (void)stat(setup->paths.model, &target); /* a model that is missing is told when it is opened */
    if (!bench_lists_parse(&setup->lists, &c->options, (uint64_t)target.st_size, message))
        return fail_usage("%s", message);
    size_t each = wanted->each;
    if (each == 0 && wanted->prompts == NULL) each = DEFAULT_EACH;
    if (!bench_prompts_load(&setup->prompts, wanted->prompts, message, sizeof message)) {
        return fail_with(LEVER_E_FORMAT, message);
    }
    if (!bench_prompts_choose(&setup->prompts, wanted->tasks, each, message, sizeof message)) {
        return fail_usage("%s", message);
    }
    setup->cases = bench_cases_make(&setup->lists, setup->prompts.count, &setup->cases_count);
    setup->results = calloc(setup->cases_count + 1, sizeof *setup->results);
    if (setup->cases == NULL || setup->results == NULL) return fail_with(LEVER_E_MEMORY, "no memory for so many cases");
    return EXIT_DONE;
}

static void add_hashed(void *user, uint64_t bytes) {
    command *c = user;
    c->hashed_bytes += bytes;
    progress_update(&c->bar, c->hashed_bytes, c->hash_bytes);
}

static int take_checksums(command *c) {
    bench_setup *setup = &c->setup;
    const char *paths[] = {"/proc/self/exe", setup->paths.model, setup->engine.draft_path};
    char *texts[] = {setup->program_sha256, setup->target_sha256, setup->draft_sha256};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct stat status;
        if (paths[i] != NULL && stat(paths[i], &status) == 0) c->hash_bytes += (uint64_t)status.st_size;
    }
    int code = EXIT_DONE;
    progress_open(&c->bar, "Checksums", UNIT_BYTES, &c->options);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0] && code == EXIT_DONE; i++) {
        if (paths[i] == NULL || bench_checksum(paths[i], texts[i], add_hashed, c)) continue;
        char message[PATH_BYTES + 64];
        snprintf(message, sizeof message, "%s cannot be read: %s", paths[i], strerror(errno));
        code = fail_with(LEVER_E_FORMAT, message);
    }
    progress_close(&c->bar);
    return code;
}

static void drop_caches(const command *c) {
    const char *const paths[] = {c->setup.paths.model, c->setup.engine.draft_path};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (paths[i] == NULL) continue;
        limits_drop_cache(paths[i]);
        const uint64_t left = limits_cached_bytes(paths[i]);
        char size[32];
        if (left == 0) continue;
        note(&c->options, "the cache is not cold: %s of %s stay in memory (does another process have it open?)",
             lv_format_size(left, size, sizeof size), paths[i]);
    }
}

/* --- Rows that are there --- */

static void take_row(void *user, const char *id, const bench_result *result) {
    command *c = user;
    if (result->status == BENCH_OK && strcmp(id, c->setup.trace.last_id) == 0) c->trace_has_row = true;
    for (size_t i = 0; i < c->setup.cases_count; i++) {
        if (result->status == BENCH_OK && strcmp(id, c->ids[i]) == 0) c->setup.results[i] = *result;
    }
}

static bool open_rows(command *c, const char *path, bool resume, char *message, size_t message_bytes) {
    bench_setup *setup = &c->setup;
    if (resume) c->ids = calloc(setup->cases_count + 1, sizeof *c->ids);
    if (resume && c->ids == NULL) {
        snprintf(message, message_bytes, "no memory for so many cases");
        return false;
    }
    for (size_t i = 0; resume && i < setup->cases_count; i++) bench_case_id(setup, &setup->cases[i], c->ids[i]);
    const bool opened = bench_rows_open(&setup->rows, path, resume, take_row, c, message, message_bytes);
    free(c->ids);
    c->ids = NULL;
    return opened;
}

static int open_files(command *c) {
    bench_setup *setup = &c->setup;
    const char *resume = c->options.bench.resume;
    char message[PATH_BYTES + 256];
    const time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(c->out, sizeof c->out, "lever-bench-%Y%m%d-%H%M%S.jsonl", &parts);
    const char *path = resume != NULL ? resume : c->options.bench.out != NULL ? c->options.bench.out : c->out;
    /* A trace that is gone on with is read before the rows that say what of it stays; a new one begins when these can.
     */
    const char *trace = c->options.trace;
    if (trace != NULL && resume != NULL && !bench_trace_open(&setup->trace, trace, true, message, sizeof message)) {
        return fail_with(LEVER_E_IO, message);
    }
    if (!open_rows(c, path, resume != NULL, message, sizeof message)) {
        return fail_with(resume != NULL ? LEVER_E_FORMAT : LEVER_E_IO, message);
    }
    if (trace != NULL && resume == NULL && !bench_trace_open(&setup->trace, trace, false, message, sizeof message)) {
        return fail_with(LEVER_E_IO, message);
    }
    bench_trace_settle(&setup->trace, c->trace_has_row);
    return EXIT_DONE;
}

/* --- The whole of it --- */

/* The table is for standard output; what is wrong is for standard error too. */
static void tell_failures(const bench_setup *setup) {
    const bench_result *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < setup->cases_count; i++) {
        if (setup->results[i].status != BENCH_FAILED) continue;
        if (count++ == 0) first = &setup->results[i];
    }
    if (first == NULL) return;
    char message[BENCH_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%zu of %zu answers failed; the first: %s", count, setup->cases_count,
             first->reason);
    (void)fail_with(LEVER_E_INTERNAL, message);
}

static int show(const command *c, int code) {
    const bench_setup *setup = &c->setup;
    const bench_outcome outcome = {&setup->lists, &setup->prompts, setup->cases, setup->results, setup->cases_count};
    char message[BENCH_MESSAGE_BYTES];
    bench_table_print(stdout, &outcome);
    if (fflush(stdout) != 0) code = fail_with(LEVER_E_IO, "writing the table to standard output failed");
    const size_t differing = bench_count_differing(&outcome, message);
    tell_failures(setup);
    note(&c->options, "rows: %s", setup->rows.path);
    if (differing == 0) return code;
    fail_with(LEVER_E_INTERNAL, message);
    return EXIT_OTHER;
}

static int work(void *user, limits *held) {
    command *c = user;
    bench_setup *setup = &c->setup;
    setup->held = held;
    setup->options = &c->options;
    if (held->refused[0] != '\0') note(&c->options, "measured without a limit: %s", held->refused);
    interrupt_open();
    int code = take_checksums(c);
    if (code == EXIT_DONE) code = open_files(c);
    if (code != EXIT_DONE) goto done;
    drop_caches(c);
    code = show(c, bench_run(setup));

done:
    if (setup->rows.file != NULL && !bench_rows_close(&setup->rows)) {
        code = fail_with(LEVER_E_IO, "writing the rows failed");
    }
    if (!bench_trace_close(&setup->trace)) {
        char message[PATH_BYTES + 64];
        snprintf(message, sizeof message, "the trace %s is not complete: writing failed", c->options.trace);
        const int failed = fail_with(LEVER_E_IO, message);
        if (code == EXIT_DONE) code = failed;
    }
    return code;
}

int command_bench(const cli_options *options) {
    command c = {.options = *options};
    uint64_t cgroup_bytes = 0;
    char killed[256];
    if (!c.options.seed_given) c.options.seed = DEFAULT_SEED;
    int code = check_options(&c, &cgroup_bytes);
    if (code == EXIT_DONE) {
        /* Made and removed out here: under a limit the one that works may be killed. */
        if (!bench_caches_open(&c.setup.caches)) {
            note(&c.options,
                 "no cache folders for the arms could be made: %s; they keep nothing they learn, and doctor's "
                 "findings are not used",
                 strerror(errno));
        }
        code = limits_run(cgroup_bytes, work, &c, killed);
        if (killed[0] != '\0') {
            fail_usage("%s; the rows so far are kept, and --resume goes on with them", killed);
        }
        bench_caches_close(&c.setup.caches);
    }
    free(c.setup.cases);
    free(c.setup.results);
    bench_prompts_fini(&c.setup.prompts);
    return code;
}
