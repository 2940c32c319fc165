/* session.c - one conversation: which tokens it holds, and how they come to be.
 *
 * Three numbers say where a session stands. tokens_count: the tokens that it holds. computed_count: how many of them
 * have keys and values in the cache. logits_count: the number of tokens that the logits follow, 0 for none. Whatever is
 * done moves them forward only after a pass has succeeded, so that an error or a cancellation leaves a session that can
 * go on. Rewinding is just a smaller count: cache slots behind it are overwritten later. */
#include <string.h>

#include "base/memory.h"
#include "base/system.h"
#include "engine/answer.h"
#include "engine/engine_state.h"
#include "spec/sampler.h"

enum { PIECE_BYTES_MAX = 1024, SCORE_ROWS_MAX = 8 };

/* Set aside when a session opens, so that an answer never finds the budget spent: stop texts and what is held back. */
static const uint64_t answer_bytes = LV_PLAN_ANSWER_BYTES;

struct lever_session {
    lever_engine *engine;
    bool answer_is_booked;
    uint32_t context_tokens;
    lv_kv kv;
    int32_t *tokens;
    size_t tokens_count, computed_count, logits_count;
    float *logits;
    lv_sampler *sampler;
    atomic_bool cancelled;
    uint64_t prompt_begin_ns;
    lever_statistics statistics;
};

static double seconds_since(uint64_t begin_ns) {
    return lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
}

/* --- Opening and closing ----------------------------------------------------------------------------------------- */

void lever_session_options_init(lever_session_options *options) {
    memset(options, 0, sizeof(*options));
}

static lever_status open_memory(lever_session *session, lever_error *error) {
    lever_engine *engine = session->engine;
    const lv_hparams *h = &engine->model->hparams;
    const lv_kv_shape shape = {.layers_count = h->layers_count,
                               .slots_count = lv_plan_cache_slots(session->context_tokens),
                               .kv_heads_count = h->kv_heads_count,
                               .head_dim = h->head_dim};
    LV_TRY(lv_kv_open(&session->kv, engine->ledger, &shape, error));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_SESSION, session->context_tokens, sizeof(int32_t),
                            "a session's tokens", error));
    session->tokens = memory;
    memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_LOGITS, h->vocabulary, sizeof(float), "logits", error));
    session->logits = memory;
    LV_TRY(lv_ledger_reserve(engine->ledger, LV_MEM_SESSION, answer_bytes, error));
    session->answer_is_booked = true;
    return lv_sampler_open(&session->sampler, (int32_t)h->vocabulary, engine->ledger, error);
}

lever_status lever_session_open(lever_session **out, lever_engine *engine, const lever_session_options *options,
                                lever_error *error) {
    lv_error_clear(error);
    if (!out || !engine) return lv_fail(error, LEVER_E_ARGUMENT, "lever_session_open: the engine is NULL");
    *out = NULL;
    const uint32_t most = engine->plan.context_tokens;
    uint32_t context = options ? options->context_tokens : 0;
    if (context == 0) context = most;
    if (context > most) {
        return lv_fail(
            error, LEVER_E_CONTEXT,
            "a session of %u tokens was asked for, but the engine was planned for %u; open the engine with a "
            "larger context",
            context, most);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_SESSION, 1, sizeof(lever_session), "a session", error));
    lever_session *session = memory;
    session->engine = engine;
    session->context_tokens = context;
    atomic_init(&session->cancelled, false);
    const lever_status status = open_memory(session, error);
    atomic_fetch_add(&engine->sessions_count, 1);
    if (status != LEVER_OK) {
        lever_session_close(&session);
        return status;
    }
    *out = session;
    return LEVER_OK;
}

void lever_session_close(lever_session **out) {
    if (!out || !*out) return;
    lever_session *session = *out;
    lv_sampler_close(&session->sampler);
    if (session->answer_is_booked) lv_ledger_release(session->engine->ledger, LV_MEM_SESSION, answer_bytes);
    lv_free(session->logits);
    lv_free(session->tokens);
    lv_kv_close(&session->kv);
    atomic_fetch_sub(&session->engine->sessions_count, 1);
    lv_free(session);
    *out = NULL;
}

/* --- Passes ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const int32_t *tokens; /* all of the session's; those from `first` on are computed */
    size_t first, count;
    bool want_last;       /* logits of the last row, into the session */
    lever_logits_fn each; /* or of every row, to this function */
    void *each_user;
    uint64_t progress_total; /* rows times layers; 0: do not report */
    uint64_t progress_done;
} pass_request;

/* Logits of every row, a few at a time. *stop when the receiver wants no more. */
static lever_status give_each(lever_session *session, const pass_request *request, float *buffer, bool *stop,
                              lever_error *error) {
    lever_engine *engine = session->engine;
    const size_t vocabulary = engine->model->hparams.vocabulary;
    for (size_t i = 0; i < request->count && !*stop; i += SCORE_ROWS_MAX) {
        uint32_t rows[SCORE_ROWS_MAX];
        const size_t left = request->count - i;
        const size_t count = left < SCORE_ROWS_MAX ? left : SCORE_ROWS_MAX;
        for (size_t r = 0; r < count; r++) rows[r] = (uint32_t)(i + r);
        LV_TRY(lv_forward_logits(engine->forward, rows, count, buffer, error));
        for (size_t r = 0; r < count && !*stop; r++) {
            *stop = !request->each(request->each_user, request->first + i + r, buffer + r * vocabulary);
        }
    }
    return LEVER_OK;
}

static lever_status pass_locked(lever_session *session, const pass_request *request, float *buffer, bool *stop,
                                lever_error *error) {
    lever_engine *engine = session->engine;
    for (size_t i = 0; i < request->count; i++) {
        const uint32_t slot = (uint32_t)(request->first + i);
        engine->rows[i] = (lv_row){
            .token = request->tokens[slot],
            .position = slot,
            .slot = slot,
            .kv = &session->kv,
            .path = {.kv = &session->kv, .prefix_count = slot + 1},
        };
    }
    const bool report = request->progress_total > 0;
    const lv_pass pass = {
        .rows = engine->rows,
        .rows_count = request->count,
        .cancel = &session->cancelled,
        .progress = report ? engine->options.progress : NULL,
        .progress_user = engine->options.progress_user,
        .progress_done = request->progress_done,
        .progress_total = request->progress_total,
    };
    lv_store_set_head_wanted(engine->store, request->want_last || request->each != NULL);
    LV_TRY(lv_forward_begin(engine->forward, &pass, error));
    LV_TRY(lv_forward_layers(engine->forward, 0, engine->model->hparams.layers_count, error));
    if (request->each) return give_each(session, request, buffer, stop, error);
    if (request->want_last) {
        const uint32_t last = (uint32_t)request->count - 1;
        return lv_forward_logits(engine->forward, &last, 1, session->logits, error);
    }
    return LEVER_OK;
}

/* One pass over the layers. On success the session's numbers move on. */
static lever_status run_pass(lever_session *session, const pass_request *request, float *buffer, bool *stop,
                             lever_error *error) {
    lever_engine *engine = session->engine;
    if (request->want_last) session->logits_count = 0;
    pthread_mutex_lock(&engine->pass_lock);
    const lever_status status = pass_locked(session, request, buffer, stop, error);
    pthread_mutex_unlock(&engine->pass_lock);
    lv_budget_on_block(engine);
    if (status != LEVER_OK) return status;
    session->computed_count = request->first + request->count;
    if (request->want_last) session->logits_count = session->computed_count;
    return LEVER_OK;
}

/* A cancellation is obeyed once. */
static lever_status end_call(lever_session *session, lever_status status) {
    if (status == LEVER_E_CANCELLED) atomic_store(&session->cancelled, false);
    return status;
}

void lever_session_cancel(lever_session *session) {
    if (!session) return;
    atomic_store(&session->cancelled, true);
    lv_store_cancel_wait(session->engine->store);
}

/* --- Prompt ------------------------------------------------------------------------------------------------------ */

static size_t common_prefix(const lever_session *session, const int32_t *tokens, size_t tokens_count) {
    size_t common = 0;
    while (common < tokens_count && common < session->computed_count && session->tokens[common] == tokens[common]) {
        common++;
    }
    return common;
}

static lever_status check_prompt(const lever_session *session, const int32_t *tokens, size_t tokens_count,
                                 lever_error *error) {
    if (tokens_count == 0 || !tokens) return lv_fail(error, LEVER_E_ARGUMENT, "the prompt has no tokens");
    if (tokens_count > session->context_tokens) {
        return lv_fail(error, LEVER_E_CONTEXT,
                       "the prompt has %zu tokens, the context holds %u; shorten the prompt or give a larger context",
                       tokens_count, session->context_tokens);
    }
    const uint32_t vocabulary = session->engine->model->hparams.vocabulary;
    for (size_t i = 0; i < tokens_count; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocabulary) {
            return lv_fail(error, LEVER_E_ARGUMENT, "token %d at position %zu is not in the vocabulary of %u tokens",
                           tokens[i], i, vocabulary);
        }
    }
    return LEVER_OK;
}

/* Makes the session hold the tokens, of which the first `common` are computed; `buffer` and `each` as for a score. */
static lever_status compute_from(lever_session *session, const int32_t *tokens, size_t tokens_count, size_t common,
                                 float *buffer, lever_logits_fn each, void *user, lever_error *error) {
    lever_engine *engine = session->engine;
    const uint64_t layers = engine->model->hparams.layers_count;
    const uint64_t total = (tokens_count - common) * layers;
    lever_status status = LEVER_OK;
    bool stop = false;
    memmove(session->tokens, tokens, tokens_count * sizeof(*tokens));
    session->tokens_count = session->computed_count = common;
    while (session->computed_count < tokens_count && status == LEVER_OK && !stop) {
        const size_t left = tokens_count - session->computed_count;
        const size_t count = left < engine->plan.rows_max ? left : engine->plan.rows_max;
        const pass_request request = {
            .tokens = session->tokens,
            .first = session->computed_count,
            .count = count,
            .want_last = !each && count == left,
            .each = each,
            .each_user = user,
            .progress_total = total,
            .progress_done = (session->computed_count - common) * layers,
        };
        status = run_pass(session, &request, buffer, &stop, error);
        if (status == LEVER_OK) session->statistics.prefill_passes++;
    }
    session->tokens_count = session->computed_count;
    return status;
}

lever_status lever_session_prompt(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                  lever_error *error) {
    lv_error_clear(error);
    LV_TRY(check_prompt(session, tokens, tokens_count, error));
    memset(&session->statistics, 0, sizeof(session->statistics));
    session->prompt_begin_ns = lv_clock_now_ns(&lv_clock_real);
    size_t common = common_prefix(session, tokens, tokens_count);
    session->statistics.prompt_tokens = tokens_count;
    if (common == tokens_count && session->logits_count == tokens_count) {
        session->tokens_count = session->computed_count = tokens_count;
        session->statistics.prompt_tokens_reused = tokens_count;
        return LEVER_OK;
    }
    /* The last token is computed in any case: its logits are wanted. */
    if (common == tokens_count) common--;
    session->statistics.prompt_tokens_reused = common;
    session->logits_count = 0;
    const lever_status status = compute_from(session, tokens, tokens_count, common, NULL, NULL, NULL, error);
    session->statistics.prefill_seconds = seconds_since(session->prompt_begin_ns);
    return end_call(session, status);
}

lever_status lever_session_score(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                 lever_logits_fn on_logits, void *user, lever_error *error) {
    lv_error_clear(error);
    LV_TRY(check_prompt(session, tokens, tokens_count, error));
    if (!on_logits) return lv_fail(error, LEVER_E_ARGUMENT, "lever_session_score: no function for the logits");
    memset(&session->statistics, 0, sizeof(session->statistics));
    const size_t vocabulary = session->engine->model->hparams.vocabulary;
    float *buffer = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, session->engine->ledger, LV_MEM_LOGITS, SCORE_ROWS_MAX * vocabulary, sizeof(float),
                            "logits of several rows", error));
    buffer = memory;
    session->logits_count = 0;
    const lever_status status = compute_from(session, tokens, tokens_count, 0, buffer, on_logits, user, error);
    lv_free(buffer);
    return end_call(session, status);
}

lever_status lever_session_rewind(lever_session *session, size_t tokens_count, lever_error *error) {
    lv_error_clear(error);
    if (tokens_count > session->tokens_count) {
        return lv_fail(error, LEVER_E_ARGUMENT, "cannot rewind to %zu tokens: the session holds %zu", tokens_count,
                       session->tokens_count);
    }
    session->tokens_count = tokens_count;
    if (session->computed_count > tokens_count) session->computed_count = tokens_count;
    if (session->logits_count != tokens_count) session->logits_count = 0;
    return LEVER_OK;
}

const int32_t *lever_session_tokens(const lever_session *session, size_t *count) {
    *count = session->tokens_count;
    return session->tokens;
}

const float *lever_session_logits(const lever_session *session) {
    if (session->logits_count == 0 || session->logits_count != session->tokens_count) return NULL;
    return session->logits;
}

/* --- Generate ---------------------------------------------------------------------------------------------------- */

void lever_generate_options_init(lever_generate_options *options) {
    memset(options, 0, sizeof(*options));
    options->temperature = 0.7f;
    options->top_p = 0.95f;
    options->repeat_penalty = 1.0f;
    options->penalty_tokens = 64;
}

const char *lever_finish_text(lever_finish finish) {
    switch (finish) {
    case LEVER_FINISH_STOP:
        return "stop";
    case LEVER_FINISH_LENGTH:
        return "length";
    case LEVER_FINISH_CANCELLED:
        return "cancelled";
    }
    return "unknown";
}

typedef struct {
    lever_session *session;
    const lever_generate_options *options;
    lv_sampling sampling;
    lv_answer *answer;
    lever_token_fn on_token;
    void *user;
    lever_finish finish;
    bool ended;
    uint64_t first_token_ns;
} generation;

/* Logits for the next token: computes the last token's when they are not there, and nothing when they are. */
static lever_status ensure_logits(lever_session *session, lever_error *error) {
    if (session->tokens_count == 0) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the session holds no tokens; call lever_session_prompt first");
    }
    if (lever_session_logits(session)) return LEVER_OK;
    size_t first = session->computed_count;
    if (first == session->tokens_count) first--;
    while (first < session->tokens_count) {
        const size_t left = session->tokens_count - first;
        const size_t count = left < session->engine->plan.rows_max ? left : session->engine->plan.rows_max;
        const pass_request request = {
            .tokens = session->tokens, .first = first, .count = count, .want_last = count == left};
        bool stop = false;
        LV_TRY(run_pass(session, &request, NULL, &stop, error));
        session->statistics.cycles++;
        first += count;
    }
    return LEVER_OK;
}

static void give_out(generation *g, int32_t token, const lv_answer_text *text) {
    if (!g->on_token) return;
    if (token < 0 && text->bytes == 0) return;
    if (!g->on_token(g->user, token, text->data, text->bytes) && !g->ended) {
        g->ended = true;
        g->finish = LEVER_FINISH_STOP;
    }
}

/* Appends the token that was picked and gives out what became certain. */
static void take_token(generation *g, int32_t token) {
    lever_session *session = g->session;
    if (!g->options->ignore_end && lv_vocab_is_end(session->engine->vocab, token)) {
        /* It stays in the session, so that a conversation's next turn finds its prefix. */
        session->tokens[session->tokens_count++] = token;
        g->ended = true;
        g->finish = LEVER_FINISH_STOP;
        return;
    }
    session->tokens[session->tokens_count++] = token;
    session->statistics.completion_tokens++;
    if (session->statistics.completion_tokens == 1) {
        g->first_token_ns = lv_clock_now_ns(&lv_clock_real);
        session->statistics.first_token_seconds = seconds_since(session->prompt_begin_ns);
    }
    char piece[PIECE_BYTES_MAX];
    const size_t bytes = lv_vocab_piece(session->engine->vocab, token, false, piece, sizeof(piece));
    lv_answer_text text;
    if (lv_answer_push(g->answer, piece, bytes < sizeof(piece) ? bytes : sizeof(piece), &text)) {
        g->ended = true;
        g->finish = LEVER_FINISH_STOP;
    }
    give_out(g, token, &text);
}

static bool is_at_limit(const generation *g) {
    const lever_session *session = g->session;
    if (g->options->tokens_max && session->statistics.completion_tokens >= g->options->tokens_max) return true;
    return session->tokens_count >= session->context_tokens;
}

static lever_status generate_tokens(generation *g, lever_error *error) {
    lever_session *session = g->session;
    while (!g->ended) {
        if (is_at_limit(g)) {
            g->finish = LEVER_FINISH_LENGTH;
            break;
        }
        LV_TRY(ensure_logits(session, error));
        if (atomic_load(&session->cancelled)) return lv_fail(error, LEVER_E_CANCELLED, "cancelled");
        const int32_t token = lv_sampler_pick(session->sampler, &g->sampling, session->logits, session->tokens,
                                              session->tokens_count, session->tokens_count);
        take_token(g, token);
    }
    return LEVER_OK;
}

typedef struct {
    lv_store_counters store;
    lv_forward_counters forward;
} counters_snapshot;

static void take_snapshot(lever_engine *engine, counters_snapshot *snapshot) {
    lv_store_get_counters(engine->store, &snapshot->store);
    lv_forward_get_counters(engine->forward, &snapshot->forward);
}

static void fill_statistics(generation *g, const counters_snapshot *before) {
    lever_session *session = g->session;
    lever_statistics *s = &session->statistics;
    counters_snapshot now;
    take_snapshot(session->engine, &now);
    if (g->first_token_ns) s->decode_seconds = seconds_since(g->first_token_ns);
    if (s->completion_tokens > 1 && s->decode_seconds > 0) {
        s->tokens_per_second = (double)(s->completion_tokens - 1) / s->decode_seconds;
    }
    s->nodes_verified = s->cycles;
    s->layer_rows = now.forward.layer_rows - before->forward.layer_rows;
    s->bytes_read = now.store.bytes_read - before->store.bytes_read;
    s->io_seconds = lv_seconds(now.store.busy_ns - before->store.busy_ns);
    s->compute_seconds = lv_seconds(now.forward.compute_ns - before->forward.compute_ns);
    s->head_seconds = lv_seconds(now.forward.head_ns - before->forward.head_ns);
}

static lv_sampling sampling_of(const lever_generate_options *options) {
    return (lv_sampling){
        .temperature = options->temperature,
        .top_k = options->top_k,
        .top_p = options->top_p,
        .min_p = options->min_p,
        .repeat_penalty = options->repeat_penalty,
        .presence_penalty = options->presence_penalty,
        .frequency_penalty = options->frequency_penalty,
        .penalty_tokens = options->penalty_tokens,
        .seed = options->seed,
    };
}

static void clear_generation_statistics(lever_session *session) {
    const lever_statistics old = session->statistics;
    session->statistics = (lever_statistics){
        .prompt_tokens = old.prompt_tokens,
        .prompt_tokens_reused = old.prompt_tokens_reused,
        .prefill_passes = old.prefill_passes,
        .prefill_seconds = old.prefill_seconds,
    };
    /* A second answer without a new prompt counts its first token from here. */
    if (old.completion_tokens > 0) session->prompt_begin_ns = lv_clock_now_ns(&lv_clock_real);
}

lever_status lever_session_generate(lever_session *session, const lever_generate_options *options,
                                    lever_token_fn on_token, void *user, lever_finish *finish, lever_error *error) {
    lv_error_clear(error);
    lever_generate_options defaults;
    lever_generate_options_init(&defaults);
    generation g = {.session = session,
                    .options = options ? options : &defaults,
                    .on_token = on_token,
                    .user = user,
                    .finish = LEVER_FINISH_CANCELLED};
    if (finish) *finish = g.finish;
    g.sampling = sampling_of(g.options);
    LV_TRY(lv_sampling_check(&g.sampling, error));
    /* Booked by the session already. */
    LV_TRY(lv_answer_open(&g.answer, g.options->stops, g.options->stops_count, PIECE_BYTES_MAX, NULL, error));
    clear_generation_statistics(session);
    counters_snapshot before;
    take_snapshot(session->engine, &before);
    const lever_status status = generate_tokens(&g, error);
    if (!g.ended || status != LEVER_OK) {
        lv_answer_text text;
        const bool stopped = lv_answer_finish(g.answer, &text);
        give_out(&g, -1, &text);
        if (stopped && status == LEVER_OK) g.finish = LEVER_FINISH_STOP;
    }
    fill_statistics(&g, &before);
    lv_answer_close(&g.answer);
    if (finish) *finish = g.finish;
    return end_call(session, status);
}

/* --- Statistics -------------------------------------------------------------------------------------------------- */

void lever_session_get_statistics(const lever_session *session, lever_statistics *statistics) {
    const lever_engine *engine = session->engine;
    *statistics = session->statistics;
    lv_store_counters store;
    lv_store_get_counters(engine->store, &store);
    lv_process_memory memory;
    lv_process_memory_read("", &memory);
    statistics->ram_budget = lv_ledger_limit(engine->ledger);
    statistics->ram_used = lv_ledger_used(engine->ledger);
    statistics->ram_peak = lv_ledger_peak(engine->ledger);
    statistics->rss_peak = memory.rss_peak_bytes;
    statistics->rss_now = memory.rss_bytes;
    statistics->huge_page_bytes = memory.huge_page_bytes;
    statistics->target_bytes_pinned = store.pinned_bytes;
    statistics->ring_bytes = store.ring_bytes;
}
