/* session.c - one conversation: opening, prompts, scores, rewinding. Answers are in generate.c. */
#include <string.h>

#include "base/memory.h"
#include "base/system.h"
#include "engine/costs_file.h"
#include "engine/residency.h"
#include "engine/session_state.h"

enum { SCORE_ROWS_MAX = 8 };

/* Set aside when a session opens, so that an answer never finds the budget spent: stop texts and what is held back. */
static const uint64_t answer_bytes = LV_PLAN_ANSWER_BYTES;

/* --- Opening and closing ----------------------------------------------------------------------------------------- */

void lever_session_options_init(lever_session_options *options) {
    memset(options, 0, sizeof(*options));
}

/* Another session may be putting refined values into the predictor. */
static lever_status open_learning(lever_session *session, lever_error *error) {
    lever_engine *engine = session->engine;
    pthread_mutex_lock(&engine->pass_lock);
    const lever_status status = lv_learning_open(&session->learning, engine->predictor, engine->ledger, error);
    pthread_mutex_unlock(&engine->pass_lock);
    return status;
}

void lv_session_take_costs(lever_session *session) {
    lever_engine *engine = session->engine;
    const lever_plan *table = &engine->plan.table;
    const lv_costs_reading reading = {
        .pass_read_bytes = lv_residency_streamed_bytes(engine),
        .ring_bytes = table->ring_bytes,
        .bytes_per_second = lv_plan_rate_or(table->io_bytes_per_second, LV_PLAN_IO_ASSUMED),
    };
    lv_costs_share_follow(&engine->costs, &reading);
    lv_costs_share_take(&engine->costs, &session->cycle.costs, &session->cycle.calibration);
    session->cycle.costs.buckets = lv_session_buckets(session);
    session->costs_read_bytes = reading.pass_read_bytes;
}

void lv_session_give_costs(lever_session *session) {
    const lv_cycle *cycle = &session->cycle;
    lv_costs_share_give(&session->engine->costs, &cycle->costs, &cycle->calibration, session->costs_read_bytes);
}

bool lv_session_follow_costs(lever_session *session, bool give) {
    lever_engine *engine = session->engine;
    if (session->simulation || session->cycle.costs.frozen) return false;
    if (!lv_costs_class_differs(lv_residency_streamed_bytes(engine), session->costs_read_bytes)) return false;
    if (give) lv_session_give_costs(session);
    lv_session_take_costs(session);
    return true;
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
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_LOGITS, h->vocabulary, sizeof(float), "logits", error));
    session->logits = memory;
    LV_TRY(lv_ledger_reserve(engine->ledger, LV_MEM_SESSION, answer_bytes, error));
    session->answer_is_booked = true;
    LV_TRY(lv_sampler_open(&session->sampler, (int32_t)h->vocabulary, engine->ledger, error));
    LV_TRY(lv_cycle_open(&session->cycle, engine->ledger, error));
    lv_session_take_costs(session);
    if (engine->phone) {
        LV_TRY(lv_simulation_open(&session->simulation, engine->phone, engine->timeline, engine->ledger, error));
        lv_simulation_begin_cycle(session->simulation, 0, &session->cycle.costs);
        session->clock = lv_simulation_clock(session->simulation);
    }
    if (!engine->draft) return LEVER_OK;
    if (engine->predictor) {
        LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_SESSION, LV_PREDICTOR_CANDIDATES_MAX,
                                h->embedding * sizeof(float), "embedding rows of candidates", error));
        session->candidate_rows = memory;
        if (engine->options.learn) LV_TRY(open_learning(session, error));
    }
    const lv_speculation_options options = {
        .draft = engine->draft,
        .context_tokens = session->context_tokens,
        .vocabulary = (uint32_t)lv_vocab_tokens_count(engine->vocab),
        .logits_columns = h->vocabulary,
        .threads = engine->threads,
        .cancel = &session->cancelled,
        .costs = &session->cycle.costs,
        .calibration = &session->cycle.calibration,
        .forward_seconds = session->simulation ? lv_simulation_forward : NULL,
        .forward_user = session->simulation,
        .spans = engine->spans,
        .ledger = engine->ledger,
    };
    return lv_speculation_open(&session->speculation, &options, error);
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
    session->clock = &lv_clock_real;
    atomic_init(&session->cancelled, false);
    atomic_init(&session->in_call, false);
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
    lv_residency_forget(session->engine, session->speculation);
    /* Before its memory is free: a change of the budget meanwhile leaves this much to the next session. */
    atomic_fetch_sub(&session->engine->sessions_count, 1);
    lv_speculation_close(&session->speculation);
    lv_simulation_close(&session->simulation);
    lv_cycle_close(&session->cycle);
    lv_learning_close(&session->learning);
    lv_free(session->candidate_rows);
    lv_sampler_close(&session->sampler);
    if (session->answer_is_booked) lv_ledger_release(session->engine->ledger, LV_MEM_SESSION, answer_bytes);
    lv_free(session->logits);
    lv_free(session->tokens);
    lv_kv_close(&session->kv);
    lv_free(session);
    *out = NULL;
}

/* --- Passes ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const int32_t *tokens; /* all of the session's; those from `first` on are computed */
    size_t first, count;
    lv_compute_threads threads;
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
    const size_t most = buffer == session->logits ? 1 : SCORE_ROWS_MAX;
    for (size_t i = 0; i < request->count && !*stop; i += most) {
        uint32_t rows[SCORE_ROWS_MAX];
        const size_t left = request->count - i;
        const size_t count = left < most ? left : most;
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
    lv_forward_set_threads(engine->forward, request->threads);
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
    if (session->simulation) {
        const size_t head_rows = request->each ? request->count : (request->want_last ? 1 : 0);
        lv_simulation_prompt(session->simulation, request->count, request->first + request->count, head_rows);
    }
    session->computed_count = request->first + request->count;
    if (request->want_last) session->logits_count = session->computed_count;
    return LEVER_OK;
}

lever_status lv_session_compute(lever_session *session, size_t first, size_t count, lever_error *error) {
    const pass_request request = {.tokens = session->tokens, .first = first, .count = count};
    bool stop = false;
    return run_pass(session, &request, NULL, &stop, error);
}

lever_status lv_session_begin_call(lever_session *session, const char *function, lever_error *error) {
    lv_error_clear(error);
    if (!session) return lv_fail(error, LEVER_E_ARGUMENT, "%s: the session is NULL", function);
    if (!atomic_exchange(&session->in_call, true)) return LEVER_OK;
    return lv_fail(error, LEVER_E_ARGUMENT, "%s: another call is at work on the session; wait until it has returned",
                   function);
}

lever_status lv_session_end_call(lever_session *session, lever_status status) {
    atomic_store(&session->in_call, false);
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

/* Whether the draft's prefill runs beside the target's: when reading is the bottleneck with one thread as well. */
static bool drafts_beside(lever_session *session, size_t rows_count) {
    const lever_engine *engine = session->engine;
    if (session->simulation) return session->speculation != NULL;
    if (!session->speculation || engine->threads < 2 || rows_count > engine->plan.batch_rows) return false;
    const lv_costs *costs = &session->cycle.costs;
    (void)lv_session_follow_costs(session, false);
    return lv_cost_curve_at(&costs->layers[LV_SPLIT_ONE], (uint32_t)rows_count) < costs->io_seconds;
}

/* Makes the session hold the tokens, of which the first `common` are computed; `buffer` and `each` as for a score. */
static lever_status compute_from(lever_session *session, const int32_t *tokens, size_t tokens_count, size_t common,
                                 float *buffer, lever_logits_fn each, void *user, lever_error *error) {
    lever_engine *engine = session->engine;
    const uint64_t layers = engine->model->hparams.layers_count;
    const uint64_t total = (tokens_count - common) * layers;
    lever_status status = LEVER_OK;
    bool stop = false;
    const bool beside = !each && drafts_beside(session, tokens_count - common) &&
                        lv_residency_enter(engine, session->speculation, LV_RESIDENCY_PROMPT);
    const uint64_t begin_ns = lv_clock_now_ns(session->clock);
    memmove(session->tokens, tokens, tokens_count * sizeof(*tokens));
    session->tokens_count = session->computed_count = common;
    lv_speculation_truncate(session->speculation, common);
    if (beside) lv_speculation_begin_prefill(session->speculation, session->tokens, tokens_count);
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
            .threads = beside ? LV_COMPUTE_ONE : LV_COMPUTE_AUTO,
        };
        status = run_pass(session, &request, buffer, &stop, error);
        if (status == LEVER_OK) session->statistics.prefill_passes++;
    }
    session->tokens_count = session->computed_count;
    if (beside) {
        const lever_status ended = lv_speculation_end_prefill(session->speculation, status == LEVER_OK ? error : NULL);
        if (status == LEVER_OK) status = ended;
        /* The draft leaves out the last token, which it computes with the first forward. */
        if (session->simulation) lv_simulation_draft_prompt(session->simulation, tokens_count - 1 - common, begin_ns);
        lv_speculation_truncate(session->speculation, session->tokens_count);
        lv_residency_leave(engine, false);
    }
    return status;
}

static lever_status hold_prompt(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                lever_error *error) {
    LV_TRY(check_prompt(session, tokens, tokens_count, error));
    memset(&session->statistics, 0, sizeof(session->statistics));
    session->prompt_begin_ns = lv_clock_now_ns(session->clock);
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
    session->statistics.prefill_seconds = lv_session_seconds_since(session, session->prompt_begin_ns);
    return status;
}

lever_status lever_session_prompt(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                  lever_error *error) {
    LV_TRY(lv_session_begin_call(session, "lever_session_prompt", error));
    return lv_session_end_call(session, hold_prompt(session, tokens, tokens_count, error));
}

static lever_status score(lever_session *session, const int32_t *tokens, size_t tokens_count, lever_logits_fn on_logits,
                          void *user, lever_error *error) {
    LV_TRY(check_prompt(session, tokens, tokens_count, error));
    if (!on_logits) return lv_fail(error, LEVER_E_ARGUMENT, "lever_session_score: no function for the logits");
    memset(&session->statistics, 0, sizeof(session->statistics));
    const size_t vocabulary = session->engine->model->hparams.vocabulary;
    /* Several rows at a time are faster; where the budget has no room for them, one goes after the other. */
    float *several = lv_alloc(session->engine->ledger, LV_MEM_LOGITS, SCORE_ROWS_MAX * vocabulary, sizeof(float));
    session->logits_count = 0;
    const lever_status status =
        compute_from(session, tokens, tokens_count, 0, several ? several : session->logits, on_logits, user, error);
    lv_free(several);
    return status;
}

lever_status lever_session_score(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                 lever_logits_fn on_logits, void *user, lever_error *error) {
    LV_TRY(lv_session_begin_call(session, "lever_session_score", error));
    return lv_session_end_call(session, score(session, tokens, tokens_count, on_logits, user, error));
}

static lever_status rewind_to(lever_session *session, size_t tokens_count, lever_error *error) {
    if (tokens_count > session->tokens_count) {
        return lv_fail(error, LEVER_E_ARGUMENT, "cannot rewind to %zu tokens: the session holds %zu", tokens_count,
                       session->tokens_count);
    }
    session->tokens_count = tokens_count;
    lv_speculation_truncate(session->speculation, tokens_count);
    if (session->computed_count > tokens_count) session->computed_count = tokens_count;
    if (session->logits_count != tokens_count) session->logits_count = 0;
    return LEVER_OK;
}

lever_status lever_session_rewind(lever_session *session, size_t tokens_count, lever_error *error) {
    LV_TRY(lv_session_begin_call(session, "lever_session_rewind", error));
    return lv_session_end_call(session, rewind_to(session, tokens_count, error));
}

const int32_t *lever_session_tokens(const lever_session *session, size_t *count) {
    *count = session->tokens_count;
    return session->tokens;
}

const float *lever_session_logits(const lever_session *session) {
    if (session->logits_count == 0 || session->logits_count != session->tokens_count) return NULL;
    return session->logits;
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
    statistics->cache = engine->options.cache;
    statistics->ring_bytes = store.ring_bytes;
}
