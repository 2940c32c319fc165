/* bench_run.c - see bench_run.h. */
#include "bench_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/system.h"
#include "base/text.h"
#include "bench_machine.h"
#include "interrupt.h"
#include "statistics.h"
#include "terminal.h"

enum { WARM_UP_TOKENS = 8, LEARNING_TOKENS = 64, LABEL_BYTES = 48, PAIR_BYTES = 256 };

/* The engine that is open, or the reason why it is not. */
typedef struct {
    talk opened;
    bool tried; /* with what follows */
    size_t budget;
    bool drafts;
    lever_cache cache;
    lever_status status;
    lever_error error;
} workplace;

typedef struct {
    bench_setup *setup;
    workplace place;
    progress bar;
    uint64_t started_ns;
    double seconds[BENCH_LIST_MAX]; /* that the answers of each arm took so far, opening included */
    size_t answers[BENCH_LIST_MAX];
    double remaining_seconds; /* expected */
    size_t left;
    bool learned[BENCH_LIST_MAX][BENCH_LIST_MAX]; /* by arm and budget: it has answered something before */

    const bench_case *now; /* the answer that is being measured */
    char id[SHA256_TEXT_BYTES];
    sha256 tokens_hash;
    uint64_t tokens_count;
} bench;

static double seconds_now(void) {
    return lv_seconds(lv_clock_now_ns(&lv_clock_real));
}

/* --- What a row is of --- */

static void add_texts(sha256 *hash, const char *const *texts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *text = texts[i] != NULL ? texts[i] : "";
        sha256_update(hash, text, strlen(text) + 1);
    }
}

/* What the arms of a round have in common: program, both models, whatever decides how fast an answer comes (the path of
 * a file stands for what is in it), case, prompt and repetition. */
static void begin_hash(sha256 *hash, const bench_setup *setup, const bench_case *c) {
    const cli_options *o = setup->options;
    const bench_prompt *prompt = &setup->prompts.data[c->prompt];
    char name[BENCH_NAME_BYTES], settings[512];
    bench_case_name(&setup->lists, c, name);
    sha256_init(hash);
    const char *const texts[] = {
        setup->program_sha256,
        setup->target_sha256,
        setup->draft_sha256,
        name,
        prompt->id,
        prompt->text,
        o->costs,
        o->predictor,
        o->device,
    };
    add_texts(hash, texts, sizeof texts / sizeof texts[0]);
    const int length = snprintf(settings, sizeof settings,
                                "%" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %g %g %" PRIu32 " %" PRIu32
                                " %" PRIu32 " %d %d %d %d %d",
                                c->repetition, setup->held->memory_bytes, setup->engine.disk_bytes_per_second, o->seed,
                                o->top_k, (double)o->top_p, (double)o->min_p, o->context_tokens, o->threads, o->lanes,
                                (int)o->device_use, o->ignore_end, o->force_draft, o->no_direct, o->watch_memory);
    sha256_update(hash, settings, (size_t)length);
}

void bench_case_id(const bench_setup *setup, const bench_case *c, char id[SHA256_TEXT_BYTES]) {
    const char *const arm[] = {setup->lists.arms[c->arm].name};
    sha256 hash;
    begin_hash(&hash, setup, c);
    add_texts(&hash, arm, 1);
    sha256_finish(&hash, id);
}

/* The same for all arms of a round, and for no other round of any run. */
static void name_pair(const bench_setup *setup, const bench_case *c, char pair[PAIR_BYTES]) {
    char name[BENCH_NAME_BYTES], text[SHA256_TEXT_BYTES];
    sha256 hash;
    begin_hash(&hash, setup, c);
    sha256_finish(&hash, text);
    bench_case_name(&setup->lists, c, name);
    snprintf(pair, PAIR_BYTES, "bench/%s/%.128s#%" PRIu32 "@%.12s", name, setup->prompts.data[c->prompt].id,
             c->repetition, text);
}

/* --- Engines --- */

static lever_status answer_unmeasured(const bench *b, size_t prompt, const lever_generate_options *how,
                                      lever_error *error) {
    const lever_message message = {"user", b->setup->prompts.data[prompt].text};
    token_list tokens = {0};
    talk *opened = (talk *)(uintptr_t)&b->place.opened;
    lever_status status = talk_tokenize_chat(opened, &message, 1, &tokens, error);
    if (status == LEVER_E_TEMPLATE) {
        status = talk_tokenize_raw(opened, message.content, strlen(message.content), &tokens, error);
    }
    if (status == LEVER_OK) status = lever_session_prompt(opened->session, tokens.data, tokens.count, error);
    lever_finish finish;
    if (status == LEVER_OK) status = lever_session_generate(opened->session, how, NULL, NULL, &finish, error);
    free(tokens.data);
    return status;
}

static lever_status warm_up(const bench *b, lever_error *error) {
    lever_generate_options how;
    lever_generate_options_init(&how);
    how.tokens_max = WARM_UP_TOKENS;
    how.temperature = 0;
    how.strategy = LEVER_STRATEGY_CHAIN; /* with a draft that stays, whatever it is worth */
    how.ignore_end = true;
    return answer_unmeasured(b, 0, &how, error);
}

/* A pair is used more than once: before its first answer an arm learns what the machine costs, from another prompt
 * where there is one. Its engine is not used again, which may have sent the draft away. */
static lever_status learn(const bench *b, const bench_case *c, lever_error *error) {
    lever_generate_options how = b->setup->lists.arms[c->arm].how;
    how.tokens_max = LEARNING_TOKENS;
    how.temperature = 0;
    how.ignore_end = true;
    return answer_unmeasured(b, (c->prompt + 1) % b->setup->prompts.count, &how, error);
}

/* The peaks of memory begin anew with each engine, where the kernel lets us: that of another budget would stand. */
static void close_engine(workplace *place, limits *held) {
    lever_session_close(&place->opened.session);
    lever_engine_close(&place->opened.engine);
    place->tried = false;
    lv_system_trim_heap();
    limits_restart_peak(held);
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL) return;
    (void)fputs("5", file);
    (void)fclose(file);
}

static void open_place(bench *b, const bench_case *c) {
    const bench_setup *setup = b->setup;
    const bench_budget *budget = &setup->lists.budgets[c->budget];
    const bench_arm *arm = &setup->lists.arms[c->arm];
    workplace *place = &b->place;
    close_engine(place, setup->held);
    *place = (workplace){.tried = true, .budget = c->budget, .drafts = arm->drafts, .cache = arm->cache};
    place->opened.options = setup->options;

    lever_engine_options options = setup->engine;
    char cache[PATH_BYTES];
    options.cache_dir = bench_caches_of(&setup->caches, c->arm, c->budget, cache) ? cache : NULL;
    if (!arm->drafts) options.draft_path = NULL;
    options.cache = arm->cache;
    options.ram_bytes = budget->bytes;
    options.ram_unlimited = budget->bytes == 0 && budget->percent < 0;
    options.target_ram_percent = budget->percent;
    options.draft_forced = setup->options->force_draft || budget->percent >= 0;
    place->status = lever_engine_open(&place->opened.engine, &options, &place->error);
    if (place->status != LEVER_OK) return;
    lever_session_options session;
    lever_session_options_init(&session);
    place->status = lever_session_open(&place->opened.session, place->opened.engine, &session, &place->error);
    if (place->status != LEVER_OK) return;
    lever_engine_get_info(place->opened.engine, &place->opened.info);
    lever_engine_get_plan(place->opened.engine, &place->opened.plan);
}

/* What was tried in vain is not tried again for each answer. */
static void open_engine(bench *b, const bench_case *c) {
    const bench_setup *setup = b->setup;
    workplace *place = &b->place;
    const bench_arm *arm = &setup->lists.arms[c->arm];
    const bool in_vain = place->tried && place->status != LEVER_OK;
    const bool again = place->budget == c->budget && place->drafts == arm->drafts && place->cache == arm->cache;
    if (in_vain && again) return;
    bool *learned = &b->learned[c->arm][c->budget];
    if (arm->drafts && !*learned && setup->caches.folder[0] != '\0') {
        open_place(b, c);
        interrupt_watch(place->opened.session);
        if (place->status == LEVER_OK) place->status = learn(b, c, &place->error);
        interrupt_watch(NULL);
        if (place->status != LEVER_OK) return;
        *learned = true;
    }
    open_place(b, c);
    if (place->status != LEVER_OK) return;
    if (place->opened.plan.draft_reason[0] != '\0') {
        note(setup->options, "budget %s: %s", setup->lists.budgets[c->budget].name, place->opened.plan.draft_reason);
    }
    interrupt_watch(place->opened.session);
    place->status = warm_up(b, &place->error);
    interrupt_watch(NULL);
}

/* --- One answer --- */

static void show_progress(bench *b) {
    const double elapsed = lv_seconds(lv_clock_now_ns(&lv_clock_real) - b->started_ns);
    progress_update(&b->bar, (uint64_t)(elapsed * 1e3), (uint64_t)((elapsed + b->remaining_seconds) * 1e3));
}

/* The checksum is that of the ids as Python's json module writes a list of them: "[1, 2]". */
static bool take_token(void *user, int32_t token, const char *text, size_t text_bytes) {
    (void)text;
    (void)text_bytes;
    bench *b = user;
    char number[24];
    if (token >= 0) {
        const int length = snprintf(number, sizeof number, "%s%" PRId32, b->tokens_count > 0 ? ", " : "[", token);
        sha256_update(&b->tokens_hash, number, (size_t)length);
        b->tokens_count++;
    }
    show_progress(b);
    return true;
}

static void write_trace(void *user, const char *line) {
    bench *b = user;
    bench_trace_line(&b->setup->trace, line);
}

static lever_generate_options how_of(bench *b) {
    const bench_setup *setup = b->setup;
    const cli_options *options = setup->options;
    lever_generate_options how = setup->lists.arms[b->now->arm].how;
    how.tokens_max = setup->lists.lengths[b->now->length];
    how.temperature = setup->lists.temperatures[b->now->temperature];
    how.top_k = options->top_k;
    how.top_p = options->top_p;
    how.min_p = options->min_p;
    how.seed = options->seed;
    how.ignore_end = options->ignore_end;
    how.trace = setup->trace.file != NULL ? write_trace : NULL;
    how.trace_user = b;
    return how;
}

static lever_status answer(bench *b, lever_finish *finish, lever_error *error) {
    talk *opened = &b->place.opened;
    const char *text = b->setup->prompts.data[b->now->prompt].text;
    const lever_message message = {"user", text};
    token_list tokens = {0};
    lever_status status = talk_tokenize_chat(opened, &message, 1, &tokens, error);
    if (status == LEVER_E_TEMPLATE) status = talk_tokenize_raw(opened, text, strlen(text), &tokens, error);
    if (status == LEVER_OK) status = lever_session_rewind(opened->session, 0, error);
    interrupt_watch(opened->session);
    if (status == LEVER_OK) status = lever_session_prompt(opened->session, tokens.data, tokens.count, error);
    if (status == LEVER_OK) {
        const lever_generate_options how = how_of(b);
        status = lever_session_generate(opened->session, &how, take_token, b, finish, error);
    }
    interrupt_watch(NULL);
    free(tokens.data);
    return status;
}

/* --- Rows --- */

static void write_model(json *out, const char *path, const char *checksum) {
    struct stat status;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    json_object_open(out, NULL);
    json_text(out, "name", name);
    json_text(out, "file", name);
    json_unsigned(out, "bytes", stat(path, &status) == 0 ? (uint64_t)status.st_size : 0);
    json_text(out, "sha256", checksum);
    json_object_close(out);
}

static void write_what(json *out, const bench *b) {
    const bench_setup *setup = b->setup;
    const bench_case *c = b->now;
    const bench_arm *arm = &setup->lists.arms[c->arm];
    const bench_budget *budget = &setup->lists.budgets[c->budget];
    const bench_prompt *prompt = &setup->prompts.data[c->prompt];
    char name[BENCH_NAME_BYTES], pair[PAIR_BYTES], when[40];
    const time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
    bench_case_name(&setup->lists, c, name);
    name_pair(setup, c, pair);
    json_unsigned(out, "schema", BENCH_SCHEMA);
    json_text(out, "time", when);
    json_text(out, "id", b->id);
    json_text(out, "benchmark", "bench");
    json_text(out, "case", name);
    json_text(out, "arm", arm->name);
    json_text(out, "pair", pair);
    json_unsigned(out, "repetition", c->repetition);
    json_object_open(out, "factors");
    json_text(out, "strategy", arm->name);
    json_text(out, "task", prompt->task);
    json_text(out, "prompt", prompt->id);
    json_text(out, "budget", budget->name);
    json_unsigned(out, "budget_bytes", budget->bytes);
    json_number(out, "temperature", (double)setup->lists.temperatures[c->temperature]);
    json_unsigned(out, "length", setup->lists.lengths[c->length]);
    json_number(out, "disk_mbps", (double)setup->engine.disk_bytes_per_second / 1e6);
    json_object_close(out);
    json_object_open(out, "program");
    json_text(out, "name", "lever");
    json_text(out, "version", lever_version());
    json_text(out, "sha256", setup->program_sha256);
    json_object_close(out);
    json_array_open(out, "models");
    write_model(out, setup->paths.model, setup->target_sha256);
    if (arm->drafts && setup->engine.draft_path != NULL)
        write_model(out, setup->engine.draft_path, setup->draft_sha256);
    json_array_close(out);
}

static void write_limit(json *out, const char *key, uint64_t value) {
    if (value > 0) {
        json_unsigned(out, key, value);
    } else {
        json_text(out, key, NULL);
    }
}

static void write_circumstances(json *out, const bench *b, uint64_t cached_bytes, double load) {
    const bench_setup *setup = b->setup;
    char hash[SHA256_TEXT_BYTES];
    sha256 prompt_hash;
    const char *text = setup->prompts.data[b->now->prompt].text;
    sha256_init(&prompt_hash);
    sha256_update(&prompt_hash, text, strlen(text));
    sha256_finish(&prompt_hash, hash);
    bench_command_write(out);
    json_text(out, "stdin_sha256", hash);
    json_object_open(out, "limits");
    write_limit(out, "cgroup_bytes", setup->held->memory_bytes);
    write_limit(out, "read_bytes_per_second", setup->engine.disk_bytes_per_second);
    json_text(out, "read_limited_by", setup->engine.disk_bytes_per_second > 0 ? "lever" : NULL);
    json_text(out, "timeout_seconds", NULL);
    json_text(out, "refused", setup->held->refused[0] != '\0' ? setup->held->refused : NULL);
    json_object_close(out);
    json_text(out, "cache", cached_bytes == 0 ? "cold" : "warm");
    json_unsigned(out, "cached_bytes", cached_bytes);
    json_number(out, "load_average", load);
    json_object_open(out, "exit");
    json_unsigned(out, "code", 0);
    json_bool(out, "timed_out", false);
    json_unsigned(out, "oom_kills", 0);
    json_object_close(out);
}

/* Fills the result and writes the row. */
static bool write_row(bench *b, bench_result *result, lever_finish finish, double seconds, uint64_t cached_bytes,
                      double load) {
    lever_statistics s = {0};
    json out;
    json_init(&out);
    json_object_open(&out, NULL);
    write_what(&out, b);
    write_circumstances(&out, b, cached_bytes, load);
    json_text(&out, "status", result->status == BENCH_OK ? "ok" : "failed");
    json_text(&out, "reason", result->reason);
    json_object_open(&out, "values");
    json_number(&out, "seconds", seconds);
    if (result->status == BENCH_OK) {
        lever_session_get_statistics(b->place.opened.session, &s);
        statistics_write(&out, &s, b->place.opened.info.open_seconds, b->place.opened.plan.layers_count);
        json_text(&out, "finish_reason", lever_finish_text(finish));
        json_unsigned(&out, "seed", b->setup->options->seed);
        json_bool(&out, "draft_used", b->place.opened.plan.draft_used);
        json_text(&out, "draft_reason", b->place.opened.plan.draft_reason);
        json_text(&out, "tokens_sha256", result->tokens_sha256);
        json_number(&out, "decode_tokens_per_second", result->decode_tokens_per_second);
        json_number(&out, "decode_bytes_per_second",
                    s.decode_seconds > 0 ? (double)s.bytes_read / s.decode_seconds : 0);
        json_number(&out, "prefill_tokens_per_second",
                    s.prefill_seconds > 0 ? (double)s.prompt_tokens / s.prefill_seconds : 0);
        const uint64_t peak = limits_memory_peak(b->setup->held);
        if (peak > 0) json_unsigned(&out, "cgroup_peak_bytes", peak);
    }
    json_object_close(&out);
    bench_machine_write(&out, b->setup->paths.model);
    json_object_close(&out);
    const bool written = bench_rows_append(&b->setup->rows, &out);
    json_fini(&out);
    return written;
}

static void fill_result(bench *b, bench_result *result, lever_status status, const lever_error *error) {
    lever_statistics s;
    *result = (bench_result){.status = BENCH_FAILED};
    if (status != LEVER_OK) {
        snprintf(result->reason, sizeof result->reason, "%.*s", BENCH_REASON_BYTES - 1, error->message);
        return;
    }
    sha256_update(&b->tokens_hash, "]", 1);
    sha256_finish(&b->tokens_hash, result->tokens_sha256);
    lever_session_get_statistics(b->place.opened.session, &s);
    if (s.completion_tokens < 2 || s.decode_seconds <= 0) {
        snprintf(result->reason, sizeof result->reason, "the answer has only %" PRIu64 " tokens", s.completion_tokens);
        return;
    }
    result->status = BENCH_OK;
    result->decode_tokens_per_second = (double)(s.completion_tokens - 1) / s.decode_seconds;
    result->tokens_per_cycle = s.cycles > 0 ? (double)s.completion_tokens / (double)s.cycles : 0;
    result->bytes_per_token = (double)s.bytes_read / (double)s.completion_tokens;
}

/* --- All of them --- */

/* What the rest will take, from what the arms took so far. */
static void expect(bench *b) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < b->setup->lists.arms_count; i++) {
        sum += b->seconds[i];
        count += b->answers[i];
    }
    const double mean = count > 0 ? sum / (double)count : 0;
    b->remaining_seconds = 0;
    b->left = 0;
    for (size_t i = 0; i < b->setup->cases_count; i++) {
        const size_t arm = b->setup->cases[i].arm;
        if (b->setup->results[i].status == BENCH_OK) continue;
        b->remaining_seconds += b->answers[arm] > 0 ? b->seconds[arm] / (double)b->answers[arm] : mean;
        b->left++;
    }
}

static lever_status measure(bench *b, size_t index, bool *written) {
    const bench_case *c = &b->setup->cases[index];
    bench_result *result = &b->setup->results[index];
    b->now = c;
    bench_case_id(b->setup, c, b->id);
    b->tokens_count = 0;
    sha256_init(&b->tokens_hash);
    snprintf(b->bar.label, LABEL_BYTES, "%zu/%zu %.20s %.18s", b->setup->cases_count - b->left + 1,
             b->setup->cases_count, b->setup->lists.arms[c->arm].name, b->setup->prompts.data[c->prompt].id);
    show_progress(b);

    const double begin = seconds_now();
    open_engine(b, c);
    lever_status status = b->place.status;
    lever_error error = b->place.error;
    lever_finish finish = LEVER_FINISH_LENGTH;
    const double load = bench_load_average(), opened = seconds_now();
    const uint64_t cached_bytes = limits_cached_bytes(b->setup->paths.model);
    bench_trace_begin(&b->setup->trace, b->id);
    if (status == LEVER_OK) status = answer(b, &finish, &error);
    if (status != LEVER_E_CANCELLED) fill_result(b, result, status, &error);
    bench_trace_end(&b->setup->trace, result->status == BENCH_OK);
    if (status == LEVER_E_CANCELLED) return status;
    result->seconds = seconds_now() - opened;
    *written = write_row(b, result, finish, result->seconds, cached_bytes, load);
    b->seconds[c->arm] += seconds_now() - begin;
    b->answers[c->arm]++;
    return status;
}

int bench_run(bench_setup *setup) {
    bench b = {.setup = setup, .started_ns = lv_clock_now_ns(&lv_clock_real)};
    progress_open(&b.bar, "", UNIT_PARTS, setup->options);
    int code = EXIT_DONE;
    bool written = true;
    for (size_t i = 0; i < setup->cases_count && written && code != EXIT_INTERRUPTED; i++) {
        if (setup->results[i].status == BENCH_OK) continue;
        expect(&b);
        const lever_status status = measure(&b, i, &written);
        if (status == LEVER_E_CANCELLED || code == EXIT_DONE) code = exit_code_of(status);
    }
    progress_close(&b.bar);
    close_engine(&b.place, setup->held);
    if (!written)
        code = fail_with(LEVER_E_IO, "writing the rows failed; what was written is whole but for the last line");
    return code;
}
