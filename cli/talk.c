/* talk.c - see talk.h. */
#include "talk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"
#include "interrupt.h"
#include "statistics.h"
#include "terminal.h"

/* The draft that is given, or belongs to the model. Plain decoding wants none: its memory is better pinned. */
static const char *choose_draft(const cli_options *options, talk_paths *paths) {
    if (options->no_draft) return NULL;
    if (options->strategy == LEVER_STRATEGY_AR && !options->force_draft) return NULL;
    if (options->draft != NULL) return options->draft;
    return models_find_draft(paths->model, paths->draft) ? paths->draft : NULL;
}

bool talk_engine_options(const cli_options *options, talk_paths *paths, lever_engine_options *engine, int *exit_code) {
    char message[PATH_BYTES + 256];
    if (!models_find(options->model, paths->model, message, sizeof message)) {
        *exit_code = fail_with(LEVER_E_FORMAT, message);
        return false;
    }
    lever_engine_options_init(engine);
    engine->model_path = paths->model;
    engine->draft_path = choose_draft(options, paths);
    engine->draft_forced = options->force_draft;
    engine->costs_path = options->costs;
    engine->predictor_path = options->predictor;
    engine->no_predictor = options->no_prune;
    engine->learn = options->learn;
    if (models_shared_folder(paths->predictors)) engine->predictor_dir = paths->predictors;
    engine->phone = options->phone;
    engine->phone_as = options->phone_as;
    engine->phone_npu = (lever_phone_npu)options->phone_npu;
    engine->watch_memory = options->watch_memory;
    engine->device = options->device;
    engine->device_use = (lever_device_use)options->device_use;
    engine->ram_bytes = options->ram_bytes;
    engine->ram_unlimited = options->ram_unlimited;
    engine->target_ram_percent = options->target_ram_percent;
    engine->cache = (lever_cache)options->cache;
    engine->context_tokens = options->context_tokens;
    engine->threads = options->threads;
    engine->lanes = options->lanes;
    engine->trace_spans = options->trace != NULL && options->trace_format == TRACE_CHROME;
    /* Where it cannot be made, what is there is still read. */
    const bool has_cache = models_make_cache_folder("", paths->cache) || models_cache_path("", paths->cache);
    if (has_cache) engine->cache_dir = paths->cache;
    if (options->no_direct) engine->direct_io = false;
    engine->disk_bytes_per_second = (uint64_t)options->disk_mbps * 1000000;
    engine->log = show_log;
    engine->log_user = (void *)(uintptr_t)options; /* show_log does not change it */
    return true;
}

static int open_trace(talk *opened) {
    const char *path = opened->options->trace;
    if (path == NULL) return EXIT_DONE;
    opened->trace = fopen(path, "we");
    if (opened->trace != NULL && opened->options->trace_format == TRACE_CHROME) fputs("[", opened->trace);
    if (opened->trace != NULL) return EXIT_DONE;
    char message[PATH_BYTES + 256];
    snprintf(message, sizeof message, "cannot write the trace %s: %s", path, strerror(errno));
    return fail_with(LEVER_E_IO, message);
}

/* Makes room for `count` tokens. */
static bool token_list_reserve(token_list *tokens, size_t count) {
    if (count <= tokens->capacity) return true;
    const size_t capacity = count + count / 2;
    int32_t *grown = realloc(tokens->data, capacity * sizeof *grown);
    if (grown == NULL) return false;
    tokens->data = grown;
    tokens->capacity = capacity;
    return true;
}

/* Token ids, apart from each other by anything that is no digit. */
static int read_oracle(talk *opened) {
    const char *path = opened->options->oracle;
    if (path == NULL) return EXIT_DONE;
    char message[PATH_BYTES + 256];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(message, sizeof message, "cannot read the tokens of %s: %s", path, strerror(errno));
        return fail_with(LEVER_E_IO, message);
    }
    int token = 0;
    bool fits = true;
    errno = 0;
    while (fits && fscanf(file, "%*[^0-9]") != EOF && fscanf(file, "%9d", &token) == 1) {
        fits = token_list_reserve(&opened->known, opened->known.count + 1);
        if (fits) opened->known.data[opened->known.count++] = token;
    }
    const int failure = ferror(file) != 0 ? errno : 0;
    fclose(file);
    if (!fits) return fail_with(LEVER_E_MEMORY, "no memory for the tokens of --oracle");
    if (failure == 0 && opened->known.count > 0) return EXIT_DONE;
    if (failure == 0) {
        snprintf(message, sizeof message, "%s holds no token ids; --oracle wants those of the answer", path);
        return fail_with(LEVER_E_FORMAT, message);
    }
    snprintf(message, sizeof message, "cannot read the tokens of %s: %s", path, strerror(failure));
    return fail_with(LEVER_E_IO, message);
}

/* Why there is no draft although there could be one; the log says it too, where it is shown. */
static void tell_about_the_draft(const talk *opened) {
    if (opened->plan.draft_reason[0] == '\0' || opened->options->log_level <= SHOW_INFO) return;
    note(opened->options, "%s", opened->plan.draft_reason);
}

int talk_open(talk *opened, const cli_options *options) {
    *opened = (talk){.options = options, .seed = options->seed_given ? options->seed : lv_seed_draw()};
    lever_engine_options engine_options;
    int exit_code = EXIT_DONE;
    if (!talk_engine_options(options, &opened->paths, &engine_options, &exit_code)) return exit_code;
    exit_code = open_trace(opened);
    if (exit_code == EXIT_DONE) exit_code = read_oracle(opened);
    if (exit_code != EXIT_DONE) return exit_code;
    progress_open(&opened->bar, "", UNIT_BYTES, options);
    engine_options.progress = progress_of_stage;
    engine_options.progress_user = &opened->bar;

    lever_error error = {0};
    lever_status status = lever_engine_open(&opened->engine, &engine_options, &error);
    if (status == LEVER_OK) {
        lever_session_options session_options;
        lever_session_options_init(&session_options);
        status = lever_session_open(&opened->session, opened->engine, &session_options, &error);
    }
    progress_close(&opened->bar);
    if (status != LEVER_OK) return fail_with(status, error.message);
    lever_engine_get_info(opened->engine, &opened->info);
    lever_engine_get_plan(opened->engine, &opened->plan);
    tell_about_the_draft(opened);
    return EXIT_DONE;
}

static void put_trace(talk *opened, const char *text) {
    if (fputs(text, opened->trace) == EOF && opened->trace_error == 0) opened->trace_error = errno;
}

static int close_trace(talk *opened, int code) {
    if (opened->trace == NULL) return code;
    if (opened->options->trace_format == TRACE_CHROME) put_trace(opened, "\n]\n");
    if (fclose(opened->trace) != 0 && opened->trace_error == 0) opened->trace_error = errno;
    opened->trace = NULL;
    if (opened->trace_error == 0) return code;
    char message[PATH_BYTES + 256];
    snprintf(message, sizeof message, "the trace %s is not complete: %s", opened->options->trace,
             strerror(opened->trace_error));
    const int failed = fail_with(LEVER_E_IO, message);
    return code == EXIT_DONE ? failed : code;
}

int talk_close(talk *opened, int code) {
    progress_close(&opened->bar);
    lever_session_close(&opened->session);
    lever_engine_close(&opened->engine);
    free(opened->known.data);
    opened->known = (token_list){0};
    return close_trace(opened, code);
}

static lever_status out_of_memory(lever_error *error) {
    return lv_fail(error, LEVER_E_MEMORY, "no memory for the tokens and the text");
}

lever_status talk_tokenize_raw(talk *opened, const char *text, size_t bytes, token_list *tokens, lever_error *error) {
    for (;;) {
        const lever_status status = lever_tokenize(opened->engine, text, bytes, true, true, tokens->data,
                                                   tokens->capacity, &tokens->count, error);
        if (status != LEVER_E_ARGUMENT || tokens->count <= tokens->capacity) return status;
        if (!token_list_reserve(tokens, tokens->count)) return out_of_memory(error);
    }
}

lever_status talk_tokenize_chat(talk *opened, const lever_message *messages, size_t count, token_list *tokens,
                                lever_error *error) {
    for (;;) {
        const lever_status status = lever_chat_tokenize(opened->engine, messages, count, true, tokens->data,
                                                        tokens->capacity, &tokens->count, error);
        if (status != LEVER_E_ARGUMENT || tokens->count <= tokens->capacity) return status;
        if (!token_list_reserve(tokens, tokens->count)) return out_of_memory(error);
    }
}

static bool take_token(void *user, int32_t token, const char *text, size_t text_bytes) {
    reply *answer = user;
    if (token >= 0) {
        if (!token_list_reserve(&answer->tokens, answer->tokens.count + 1)) answer->memory_failed = true;
        if (!answer->memory_failed) answer->tokens.data[answer->tokens.count++] = token;
    }
    if (answer->bytes + text_bytes + 1 > answer->capacity) {
        const size_t capacity = (answer->bytes + text_bytes + 1) * 2;
        char *grown = realloc(answer->text, capacity);
        if (grown == NULL) {
            answer->memory_failed = true;
            return false;
        }
        answer->text = grown;
        answer->capacity = capacity;
    }
    if (text_bytes > 0) memcpy(answer->text + answer->bytes, text, text_bytes);
    answer->bytes += text_bytes;
    answer->text[answer->bytes] = '\0';
    if (answer->streaming && text_bytes > 0) {
        progress_make_room();
        answer->write_failed = !put_data(text, text_bytes, &answer->closed);
    }
    return !answer->write_failed && !answer->memory_failed;
}

static void write_trace(void *user, const char *line) {
    talk *opened = user;
    put_trace(opened, line);
    put_trace(opened, "\n");
}

/* An element of an array that open_trace began. */
static void write_span(void *user, const char *line) {
    talk *opened = user;
    put_trace(opened, opened->trace_has_spans ? ",\n" : "\n");
    put_trace(opened, line);
    opened->trace_has_spans = true;
}

static void fill_generate_options(lever_generate_options *generate, talk *opened, uint64_t seed) {
    const cli_options *options = opened->options;
    lever_generate_options_init(generate);
    generate->tokens_max = options->tokens_max;
    generate->temperature = options->temperature;
    generate->top_k = options->top_k;
    generate->top_p = options->top_p;
    generate->min_p = options->min_p;
    generate->repeat_penalty = options->repeat_penalty;
    generate->presence_penalty = options->presence_penalty;
    generate->frequency_penalty = options->frequency_penalty;
    generate->seed = seed;
    generate->stops = options->stops;
    generate->stops_count = options->stops_count;
    generate->strategy = (lever_strategy)options->strategy;
    generate->chain_length = options->chain_length;
    generate->tree_nodes = options->tree_nodes;
    generate->head = (lever_head_mode)options->head;
    generate->stop_rule = options->paper ? LEVER_STOP_OWN : (lever_stop_rule)options->stop_rule;
    generate->no_ahead = options->no_ahead || options->paper;
    generate->no_lookup = options->no_lookup || options->paper;
    generate->no_prune = options->no_prune;
    generate->prune_cap = options->prune_cap;
    generate->prune_forced = options->prune_forced;
    generate->known_tokens = opened->known.data;
    generate->known_tokens_count = opened->known.count;
    const bool spans = options->trace_format == TRACE_CHROME;
    generate->trace = opened->trace != NULL && !spans ? write_trace : NULL;
    generate->trace_user = opened;
    generate->spans = opened->trace != NULL && spans ? write_span : NULL;
    generate->spans_user = opened;
}

lever_status talk_answer(talk *opened, const token_list *prompt, uint64_t seed, reply *answer, lever_error *error) {
    interrupt_watch(opened->session);
    lever_status status = lever_session_prompt(opened->session, prompt->data, prompt->count, error);
    if (status == LEVER_E_CANCELLED && !interrupt_happened()) { /* a Ctrl-C that came when the last answer was over */
        status = lever_session_prompt(opened->session, prompt->data, prompt->count, error);
    }
    progress_close(&opened->bar);
    if (status == LEVER_OK) {
        lever_generate_options generate;
        fill_generate_options(&generate, opened, seed);
        status = lever_session_generate(opened->session, &generate, take_token, answer, &answer->finish, error);
    }
    interrupt_watch(NULL);
    if (status == LEVER_E_CANCELLED) answer->finish = LEVER_FINISH_CANCELLED;
    lever_session_get_statistics(opened->session, &answer->statistics);
    if (status == LEVER_OK && answer->memory_failed) status = out_of_memory(error);
    return status;
}

void reply_fini(reply *answer) {
    free(answer->text);
    free(answer->tokens.data);
    *answer = (reply){0};
}

/* ", 5.1 tokens a cycle, 80 % of drafting hidden", where a draft was at work; or the first part, where a look-up was.
 */
static void describe_cycles(const talk *opened, const lever_statistics *s, char *text, size_t capacity) {
    text[0] = '\0';
    if (s->strategy == LEVER_STRATEGY_AR || s->cycles == 0) return;
    if (!opened->info.draft && s->nodes_accepted == 0) return;
    const int used =
        snprintf(text, capacity, ", %.1f tokens a cycle", (double)s->completion_tokens / (double)s->cycles);
    if (s->draft_seconds <= 0 || used < 0 || (size_t)used >= capacity) return;
    snprintf(text + used, capacity - (size_t)used, ", %.0f %% of drafting hidden",
             100.0 * s->draft_hidden_seconds / s->draft_seconds);
}

/* Why an answer is written without the draft, or its end is. */
static const char *describe_draft(const lever_statistics *s) {
    if (s->draft_dropped) return ", the draft left: its memory is better spent otherwise";
    return s->draft_away ? ", the draft is away for now: it left in an answer before" : "";
}

/* "simulated on OnePlus 12 (Snapdragon 8 Gen 3), root, 1.71 J a token: ": whose seconds the line tells. */
static void describe_phone(const talk *opened, const lever_statistics *s, char *text, size_t capacity) {
    text[0] = '\0';
    if (opened->info.phone == NULL) return;
    snprintf(text, capacity, "simulated on %s%s%s, %.2f J a token: ", opened->info.phone,
             opened->info.phone_section[0] != '\0' ? ", " : "", opened->info.phone_section,
             statistics_energy_per_token(s));
}

void talk_show_statistics(const talk *opened, const reply *answer, uint64_t seed) {
    const lever_statistics *s = &answer->statistics;
    char peak[32], budget[48] = "", per_token[64] = "", rate[32] = "", cycles[96], phone[256];
    if (s->ram_budget != UINT64_MAX) {
        char size[32];
        snprintf(budget, sizeof budget, " of %s", lv_format_size(s->ram_budget, size, sizeof size));
    }
    if (s->completion_tokens > 0 && s->bytes_read > 0) {
        char size[32];
        snprintf(per_token, sizeof per_token, ", %s read a token",
                 lv_format_size(s->bytes_read / s->completion_tokens, size, sizeof size));
    }
    if (s->tokens_per_second > 0) snprintf(rate, sizeof rate, " at %.2f tok/s", s->tokens_per_second);
    describe_cycles(opened, s, cycles, sizeof cycles);
    describe_phone(opened, s, phone, sizeof phone);
    note(opened->options,
         "%s%" PRIu64 " tokens%s%s%s%s; prompt %" PRIu64 " tokens (%" PRIu64 " kept) in %.1f s; memory %s%s; seed "
         "%" PRIu64 "; %s",
         phone, s->completion_tokens, rate, cycles, describe_draft(s), per_token, s->prompt_tokens,
         s->prompt_tokens_reused, s->prefill_seconds,
         lv_format_size(s->rss_peak > 0 ? s->rss_peak : s->ram_peak, peak, sizeof peak), budget, seed,
         lever_finish_text(answer->finish));
}
