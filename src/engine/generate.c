/* generate.c - an answer: cycles of drafting and verifying until it ends. Plain decoding is the same path with an empty
 * tree. */
#include <string.h>

#include "base/energy.h"
#include "base/memory.h"
#include "engine/answer.h"
#include "engine/residency.h"
#include "engine/trace.h"
#include "engine/verification.h"

enum {
    PIECE_BYTES_MAX = 1024,
    SPAN_BYTES_MAX = 256,
    PRUNE_CAP_DEFAULT = 50,
    ENERGY_CYCLES = 16, /* from one reading to the next: counters begin anew after minutes */
};

/* A cycle that takes more than so many usual ones was interrupted: it is judged as if it had taken these. */
#define CYCLE_SECONDS_MOST 4.0

void lever_generate_options_init(lever_generate_options *options) {
    memset(options, 0, sizeof(*options));
    options->temperature = 0.7f;
    options->top_p = 0.95f;
    options->repeat_penalty = 1.0f;
    options->penalty_tokens = 64;
    options->prune_cap = -1;
}

const char *lever_strategy_text(lever_strategy strategy) {
    switch (strategy) {
    case LEVER_STRATEGY_LEVER:
        return "lever";
    case LEVER_STRATEGY_AR:
        return "ar";
    case LEVER_STRATEGY_CHAIN:
        return "chain";
    case LEVER_STRATEGY_EDGE:
        return "edge";
    }
    return "unknown";
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
    lv_store_counters store;
    lv_forward_counters forward;
} counters_snapshot;

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

    lv_verification *verification;
    lv_target target;
    lv_drafter drafter;
    bool drafts;                       /* there is a draft, and the strategy uses it */
    bool drafted;                      /* and it was used at first, but may have left since */
    counters_snapshot before;          /* the answer */
    lv_residency_progress first_cycle; /* how far the answer was behind it; no cycles: it is not over */
    uint64_t timed_cycles;             /* those behind the first one, and what they took */
    double timed_seconds;
    bool pays; /* the draft, when it was last judged */
    bool tree_is_valid;
    char *trace; /* a line, "" when there is none; NULL: none is wanted */
    uint64_t ahead_cycles, ahead_hits, prune_lost;
    lv_energy energy; /* as last read */
    double joules;    /* up to then */
    bool energy_lost; /* a reading failed: the sum would be a part */
} generation;

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
        g->first_token_ns = lv_clock_now_ns(session->clock);
        session->statistics.first_token_seconds = lv_session_seconds_since(session, session->prompt_begin_ns);
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

/* --- Cycles ------------------------------------------------------------------------------------------------------ */

/* How deep a tree may be: what the context and the answer's limit leave for it. */
static uint32_t depth_left(const generation *g) {
    const lever_session *session = g->session;
    uint64_t left = session->context_tokens - session->tokens_count;
    if (g->options->tokens_max) {
        const uint64_t tokens = g->options->tokens_max - session->statistics.completion_tokens;
        if (tokens - 1 < left) left = tokens - 1;
    }
    return left < LV_TREE_DEPTH_MAX ? (uint32_t)left : LV_TREE_DEPTH_MAX;
}

/* Gives out what was recorded so far. */
static void give_spans(const generation *g) {
    lever_engine *engine = g->session->engine;
    char line[SPAN_BYTES_MAX];
    lv_span span;
    if (!g->options->spans) return;
    while (lv_spans_take(engine->timeline, &span)) {
        lv_span_write(&span, engine->spans_origin_ns, line, sizeof(line));
        g->options->spans(g->options->spans_user, line);
    }
}

/* The names of the threads, once an answer. A phone has one that reads. */
static void give_tracks(const generation *g) {
    const lever_engine *engine = g->session->engine;
    char line[SPAN_BYTES_MAX];
    if (!g->options->spans || !engine->timeline) return;
    const uint32_t lanes = engine->phone ? 1 : engine->lanes;
    for (uint32_t track = 0; track < LV_TRACK_LANE + lanes; track++) {
        if (track != LV_TRACK_MAIN && track != LV_TRACK_DRAFT && track < LV_TRACK_LANE) continue;
        lv_track_write(track, line, sizeof(line));
        g->options->spans(g->options->spans_user, line);
    }
}

static void watch_cycle(void *user, const lv_cycle *cycle, const lv_cycle_result *result) {
    generation *g = user;
    if (g->trace) lv_trace_line(g->trace, LV_TRACE_BYTES, cycle, result, g->session->statistics.cycles);
}

/* Behind the cycle, which holds the pass lock. */
static void give_trace(const generation *g) {
    if (!g->trace || !g->trace[0]) return;
    g->options->trace(g->options->trace_user, g->trace);
    g->trace[0] = '\0';
}

/* What the draft is judged by: the session's own cycles, and not what happens between them or what they wait for. */
static void time_cycle(generation *g, const lv_cycle_result *result) {
    if (g->first_cycle.cycles == 0) return;
    double seconds = result->seconds - lv_seconds(g->verification->turn_ns);
    if (g->timed_cycles > 0) {
        const double most = CYCLE_SECONDS_MOST * g->timed_seconds / (double)g->timed_cycles;
        if (seconds > most) seconds = most;
    }
    g->timed_cycles++;
    g->timed_seconds += seconds;
}

static void count_cycle(generation *g, const lv_cycle_result *result) {
    lever_statistics *s = &g->session->statistics;
    time_cycle(g, result);
    s->nodes_drafted += result->expanded_count + result->expanded_ahead_count;
    s->nodes_accepted += result->path_count;
    g->ahead_cycles += result->ahead;
    g->ahead_hits += result->ahead && result->hit;
    s->nodes_pruned += result->pruned_count;
    s->cycles_scored += result->scored;
    g->prune_lost += result->lost_count;
    if (!result->milder) return;
    const uint32_t level = g->session->cycle.pruning.watch.level;
    lv_log_write(&g->session->engine->log, LEVER_LOG_WARNING,
                 "the pruning predictor finds less of this text than of what it was trained on: %s; 'lever train' or "
                 "--learn adapts it",
                 level < LV_PRUNING_LEVELS ? "pruning becomes milder" : "pruning ends");
}

static lv_residency_progress progress_of(const generation *g) {
    const lever_session *session = g->session;
    lv_store_counters store;
    lv_store_get_counters(session->engine->store, &store);
    return (lv_residency_progress){
        .tokens = session->statistics.completion_tokens,
        .cycles = session->statistics.cycles,
        .seconds = g->timed_seconds,
        .bytes_read = store.bytes_read,
        .reading_seconds = lv_seconds(store.busy_ns),
        .streamed_bytes = lv_residency_streamed_bytes(session->engine),
    };
}

static void go_on_plainly(generation *g) {
    lever_session *session = g->session;
    g->drafts = g->tree_is_valid = false;
    session->cycle.pruning.predictor = NULL; /* it looks at what the draft proposed */
    session->cycle.drafting.prune_before = 0;
    session->statistics.draft_dropped = true;
}

/* Whatever the draft is worth: memory is short, and the pinned blocks were not enough. */
static bool make_way(generation *g) {
    lever_session *session = g->session;
    lever_engine *engine = session->engine;
    if (!atomic_load(&engine->draft_unwanted)) return false;
    lv_session_give_costs(session);
    lv_residency_yield(engine, session->speculation);
    go_on_plainly(g);
    lv_log_write(&engine->log, LEVER_LOG_INFO, "the draft model leaves for this answer: memory is short");
    return true;
}

/* Goes on plainly where the target alone is expected to be faster with the draft's memory. The first cycle says little:
 * in it the draft catches up with the prompt, once. */
static void consider_dropping(generation *g) {
    lever_session *session = g->session;
    lever_engine *engine = session->engine;
    if (session->cycle.drafting.strategy != LEVER_STRATEGY_LEVER || g->ended || is_at_limit(g)) return;
    lv_residency_progress progress = progress_of(g);
    const lv_residency_progress *first = &g->first_cycle;
    if (first->cycles == 0) {
        g->first_cycle = progress;
        return;
    }
    progress.tokens -= first->tokens;
    progress.cycles -= first->cycles;
    progress.bytes_read -= first->bytes_read;
    progress.reading_seconds -= first->reading_seconds;
    double expected;
    const bool worse = lv_residency_is_better_without(engine, session->speculation, &progress, &expected);
    g->pays = !worse && lv_residency_is_judged(engine, &progress);
    if (!worse) return;
    /* What was learned is kept as it is: plain passes that read less say nothing about the pair. */
    lv_session_give_costs(session);
    if (!lv_residency_drop(engine, session->speculation)) return;
    go_on_plainly(g);
    lv_log_write(
        &engine->log, LEVER_LOG_INFO,
        "the draft model leaves for this answer: %.1f tokens/s with it, %.1f expected of the target alone with "
        "its memory",
        (double)progress.tokens / progress.seconds, expected);
}

static void add_energy(generation *g) {
    lv_energy now;
    lv_energy_read("", &now);
    if (now.zones_count != g->energy.zones_count) g->energy_lost = true;
    g->joules += lv_energy_between(&g->energy, &now);
    g->energy = now;
}

/* What passes without a draft show, where there could be one, is not what its costs are about. */
static bool learns_of_pair(const generation *g) {
    const lever_session *session = g->session;
    return g->drafts || (!session->speculation && session->cycle.drafting.strategy != LEVER_STRATEGY_AR);
}

static lever_status run_cycle(generation *g, lever_error *error) {
    lever_session *session = g->session;
    lv_cycle *cycle = &session->cycle;
    while (session->computed_count + 1 < session->tokens_count) {
        const size_t left = session->tokens_count - 1 - session->computed_count;
        const size_t most = session->engine->plan.rows_max;
        LV_TRY(lv_session_compute(session, session->computed_count, left < most ? left : most, error));
        session->statistics.cycles++;
    }
    if (!g->tree_is_valid) {
        lv_tree_reset(&cycle->tree, session->tokens[session->tokens_count - 1]);
        if (g->drafts) {
            LV_TRY(lv_speculation_begin(session->speculation, session->tokens, session->tokens_count, &g->sampling,
                                        cycle->drafting.children, error));
        }
    }
    g->tree_is_valid = false;
    if (learns_of_pair(g)) (void)lv_session_follow_costs(session, true);
    cycle->drafting.head_rows_max = lv_verification_head_rows_max(session);
    cycle->drafting.depth_max = cycle->drafting.strategy == LEVER_STRATEGY_AR ? 0 : depth_left(g);
    if (session->simulation) lv_simulation_begin_cycle(session->simulation, session->tokens_count, &cycle->costs);
    session->logits_count = 0;
    lv_cycle_result result;
    const uint64_t begin_ns = lv_clock_now_ns(session->clock);
    const lever_status status = lv_cycle_run(cycle, g->drafts ? &g->drafter : NULL, &g->target, session->tokens,
                                             session->tokens_count, watch_cycle, g, &result, error);
    lv_verification_end(g->verification);
    const lv_span span = {"cycle", LV_TRACK_MAIN, (uint32_t)session->statistics.cycles, begin_ns,
                          lv_clock_now_ns(session->clock)};
    lv_spans_add(session->engine->timeline, &span);
    give_spans(g);
    give_trace(g);
    if (status != LEVER_OK) return status;
    g->tree_is_valid = true;
    count_cycle(g, &result);
    for (uint32_t i = 0; i < result.path_count && !g->ended && !is_at_limit(g); i++)
        take_token(g, result.path_tokens[i]);
    if (!g->ended && !is_at_limit(g)) take_token(g, result.token);
    if (session->computed_count > session->tokens_count) session->computed_count = session->tokens_count;
    if (g->ended) lv_speculation_truncate(session->speculation, session->tokens_count);
    if (session->statistics.cycles % ENERGY_CYCLES == 0) add_energy(g);
    if (g->drafts && !make_way(g)) consider_dropping(g);
    return LEVER_OK;
}

static lever_status generate_tokens(generation *g, lever_error *error) {
    lever_session *session = g->session;
    if (session->tokens_count == 0) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the session holds no tokens; call lever_session_prompt first");
    }
    while (!g->ended) {
        if (is_at_limit(g)) {
            g->finish = LEVER_FINISH_LENGTH;
            break;
        }
        const float *logits = lever_session_logits(session);
        if (!logits) {
            LV_TRY(run_cycle(g, error));
            continue;
        }
        if (atomic_load(&session->cancelled)) return lv_fail(error, LEVER_E_CANCELLED, "cancelled");
        take_token(g, lv_sampler_pick(session->sampler, &g->sampling, logits, session->tokens, session->tokens_count,
                                      session->tokens_count));
    }
    return LEVER_OK;
}

/* --- Policy ------------------------------------------------------------------------------------------------------ */

static void set_pruning(generation *g) {
    const lever_generate_options *o = g->options;
    lv_cycle_pruning *p = &g->session->cycle.pruning;
    p->predictor = g->drafts && !o->no_prune && g->session->candidate_rows ? g->session->engine->predictor : NULL;
    p->cap = (float)(o->prune_cap < 0 ? PRUNE_CAP_DEFAULT : o->prune_cap) / 100;
    p->forced = o->prune_forced;
    p->learning = p->predictor ? g->session->learning : NULL;
    p->known = o->known_tokens;
    p->known_first = g->session->tokens_count;
    p->known_count = o->known_tokens_count;
    if (!p->predictor || p->cap <= 0) return;
    const lv_predictor_shape *shape = &p->predictor->shape;
    g->session->cycle.drafting.prune_before = (double)shape->layer / (double)shape->layers_count;
}

/* A tree that is as large as it may be leaves no row of a run empty. */
static uint32_t nodes_that_fill(const lv_buckets *buckets, uint32_t nodes_max) {
    const uint32_t rows = lv_buckets_below(buckets, nodes_max + 2);
    return rows > 0 ? rows - 1 : nodes_max;
}

/* Without a draft a tree can still hold what is looked up. */
static lever_strategy strategy_of(const generation *g) {
    const bool looks_up = g->options->strategy == LEVER_STRATEGY_LEVER && !g->options->no_lookup;
    return g->drafts || looks_up ? g->options->strategy : LEVER_STRATEGY_AR;
}

static void set_policy(generation *g) {
    lever_session *session = g->session;
    const lever_generate_options *o = g->options;
    lv_cycle *cycle = &session->cycle;
    const bool wants_draft = session->speculation && o->strategy != LEVER_STRATEGY_AR;
    g->drafts = wants_draft && lv_residency_enter(session->engine, session->speculation, LV_RESIDENCY_ANSWER);
    g->drafted = g->drafts;
    session->statistics.draft_away = wants_draft && !g->drafts;
    const double rate = cycle->drafting.rate;
    lv_drafting_init(&cycle->drafting, strategy_of(g));
    /* Other sessions may have learned since, and plain answers learn of other passes. */
    if (!session->simulation && cycle->drafting.strategy != LEVER_STRATEGY_AR) {
        lv_session_take_costs(session);
    }
    cycle->drafting.rate = rate;
    cycle->drafting.stop_rule = o->stop_rule;
    cycle->costs.buckets = lv_session_buckets(session);
    cycle->drafting.nodes_max = lv_verification_nodes_max(session);
    cycle->drafting.nodes_fixed = o->tree_nodes;
    if (!o->tree_nodes) {
        cycle->drafting.nodes_max = nodes_that_fill(&cycle->costs.buckets, cycle->drafting.nodes_max);
    }
    if (o->chain_length) cycle->drafting.chain_length = o->chain_length;
    cycle->head = o->head;
    cycle->ahead = !o->no_ahead;
    cycle->lookup = !o->no_lookup;
    set_pruning(g);
    session->statistics.strategy = cycle->drafting.strategy;
    g->target = lv_verification_target(g->verification);
    if (g->drafts) g->drafter = lv_speculation_drafter(session->speculation);
    if (!session->simulation) return;
    g->target = lv_simulation_target(session->simulation, &g->target);
    if (g->drafts) g->drafter = lv_simulation_drafter(session->simulation, &g->drafter);
}

static lever_status check_policy(const lever_generate_options *o, lever_error *error) {
    if ((unsigned)o->strategy > LEVER_STRATEGY_EDGE || (unsigned)o->head > LEVER_HEAD_ALL ||
        (unsigned)o->stop_rule > LEVER_STOP_LONGRUN) {
        return lv_fail(error, LEVER_E_ARGUMENT, "strategy %d, head %d, stop rule %d: one of them does not exist",
                       (int)o->strategy, (int)o->head, (int)o->stop_rule);
    }
    if ((o->stops_count > 0 && !o->stops) || (o->known_tokens_count > 0 && !o->known_tokens)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "%zu stop texts and %zu known tokens are counted, but %s is NULL",
                       o->stops_count, o->known_tokens_count,
                       o->stops_count > 0 && !o->stops ? "stops" : "known_tokens");
    }
    if (o->prune_cap < -1 || o->prune_cap > 100) {
        return lv_fail(error, LEVER_E_ARGUMENT, "a cap of %d %% on pruning; give 0 to 100, or -1 for the default",
                       (int)o->prune_cap);
    }
    if (o->chain_length > LV_DRAFTING_NODES_MAX || o->tree_nodes > LV_DRAFTING_NODES_MAX) {
        return lv_fail(error, LEVER_E_ARGUMENT, "a chain of %u and a tree of %u nodes were asked for; the most is %d",
                       o->chain_length, o->tree_nodes, LV_DRAFTING_NODES_MAX);
    }
    return LEVER_OK;
}

/* --- Statistics -------------------------------------------------------------------------------------------------- */

static void take_snapshot(lever_engine *engine, counters_snapshot *snapshot) {
    lv_store_get_counters(engine->store, &snapshot->store);
    lv_forward_get_counters(engine->forward, &snapshot->forward);
}

static void fill_statistics(generation *g) {
    lever_session *session = g->session;
    lever_statistics *s = &session->statistics;
    const counters_snapshot *before = &g->before;
    counters_snapshot now;
    take_snapshot(session->engine, &now);
    if (g->first_token_ns) s->decode_seconds = lv_session_seconds_since(session, g->first_token_ns);
    if (s->completion_tokens > 1 && s->decode_seconds > 0) {
        s->tokens_per_second = (double)(s->completion_tokens - 1) / s->decode_seconds;
    }
    if (g->drafted) {
        lv_speculation_counters drafting;
        lv_speculation_get_counters(session->speculation, &drafting);
        s->draft_seconds = drafting.seconds;
        s->draft_hidden_seconds = drafting.hidden_seconds;
    }
    const uint64_t steps = s->nodes_accepted + g->prune_lost;
    s->prune_recall = steps > 0 ? (double)s->nodes_accepted / (double)steps : 1;
    if (g->ahead_cycles) s->ahead_hit_rate = (double)g->ahead_hits / (double)g->ahead_cycles;
    s->device_layer_rows = now.forward.device_layer_rows - before->forward.device_layer_rows;
    s->padded_layer_rows = now.forward.padded_layer_rows - before->forward.padded_layer_rows;
    s->layer_rows = now.forward.layer_rows - before->forward.layer_rows;
    s->bytes_read = now.store.bytes_read - before->store.bytes_read;
    s->cache_hit_bytes = now.store.hit_bytes - before->store.hit_bytes;
    s->io_seconds = lv_seconds(now.store.busy_ns - before->store.busy_ns);
    s->compute_seconds = lv_seconds(now.forward.compute_ns - before->forward.compute_ns);
    s->head_seconds = lv_seconds(now.forward.head_ns - before->forward.head_ns);
    add_energy(g);
    s->energy_joules = g->energy_lost ? 0 : g->joules;
    if (session->simulation) lv_simulation_fill(session->simulation, s);
}

/* --- Learning ---------------------------------------------------------------------------------------------------- */

/* The answer is out: what it showed refines the predictor, of all sessions. A failure is not worth an error. */
static void learn_answer(generation *g) {
    lever_session *session = g->session;
    lever_engine *engine = session->engine;
    bool adopted = false;
    lever_error error;
    if (!session->learning || lv_learning_samples_count(session->learning) == 0) return;
    const lv_pruning_source source = lv_verification_source(session);
    pthread_mutex_lock(&engine->pass_lock);
    lever_status status = lv_learning_refine(session->learning, engine->predictor, &source, &adopted, &error);
    if (adopted && engine->predictor_path) {
        status = lv_predictor_file_save(engine->predictor, engine->predictor_path, engine->ledger, &error);
    }
    pthread_mutex_unlock(&engine->pass_lock);
    if (status != LEVER_OK) lv_log_write(&engine->log, LEVER_LOG_WARNING, "%s", error.message);
    if (adopted) lv_log_write(&engine->log, LEVER_LOG_INFO, "the pruning predictor was refined");
}

/* --- The call ---------------------------------------------------------------------------------------------------- */

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
    if (old.completion_tokens > 0) session->prompt_begin_ns = lv_clock_now_ns(session->clock);
}

static void end_drafting(generation *g, bool paid) {
    lever_session *session = g->session;
    if (learns_of_pair(g)) lv_session_give_costs(session);
    if (g->drafts) lv_residency_leave(session->engine, paid);
}

/* What an answer needs beside the session's memory is booked with the session (LV_PLAN_ANSWER_BYTES). */
static lever_status open_parts(generation *g, lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_SESSION, 1, sizeof(lv_verification), "an answer", error));
    g->verification = memory;
    lv_verification_begin(g->verification, g->session, &g->sampling);
    if (g->options->trace) {
        LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_SESSION, 1, LV_TRACE_BYTES, "a trace", error));
        g->trace = memory;
    }
    return lv_answer_open(&g->answer, g->options->stops, g->options->stops_count, PIECE_BYTES_MAX, NULL, error);
}

static lever_status generate(lever_session *session, const lever_generate_options *options, lever_token_fn on_token,
                             void *user, lever_finish *finish, lever_error *error) {
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
    LV_TRY(check_policy(g.options, error));
    lever_status status = open_parts(&g, error);
    if (status != LEVER_OK) goto done;
    clear_generation_statistics(session);
    set_policy(&g);
    take_snapshot(session->engine, &g.before);
    lv_energy_read("", &g.energy);
    if (session->simulation) lv_simulation_begin_answer(session->simulation);
    give_tracks(&g);
    status = generate_tokens(&g, error);
    give_spans(&g);
    if (!g.ended || status != LEVER_OK) {
        lv_answer_text text;
        const bool stopped = lv_answer_finish(g.answer, &text);
        give_out(&g, -1, &text);
        if (stopped && status == LEVER_OK) g.finish = LEVER_FINISH_STOP;
    }
    fill_statistics(&g);
    learn_answer(&g);
    end_drafting(&g, status == LEVER_OK && g.pays);
    if (finish) *finish = g.finish;

done:
    lv_answer_close(&g.answer);
    lv_free(g.trace);
    lv_free(g.verification);
    return status;
}

lever_status lever_session_generate(lever_session *session, const lever_generate_options *options,
                                    lever_token_fn on_token, void *user, lever_finish *finish, lever_error *error) {
    LV_TRY(lv_session_begin_call(session, "lever_session_generate", error));
    return lv_session_end_call(session, generate(session, options, on_token, user, finish, error));
}
