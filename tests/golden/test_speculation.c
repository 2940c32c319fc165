/* test_speculation.c - speculation changes how fast tokens come, never which: on a generated pair, in every way of
 * drafting and verifying, through conversations, endings and cancellations, the answer is that of the target alone. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/engine_state.h"
#include "spec/tree.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"
#include "support/scratch.h"

enum { ANSWER = 60, WAYS_LEAST = 48, CONTEXT = 256, TRACE_NODES_MAX = 3072, CANCELLATIONS = 6 };

/* Frozen costs, nothing pinned: much is drafted. With two threads also ahead; but they wait for each other at every
 * barrier, which takes long beside other tests. */
static const pair_way calm_way = {.level = {[PAIR_COSTS] = 1}};
static const pair_way busy_way = {.level = {[PAIR_THREADS] = 1, [PAIR_COSTS] = 1}};

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static lever_engine *open_plain(void) {
    lever_engine_options options;
    lv_test_options(&options, PAIR_TARGET);
    return lv_test_open(&options);
}

static lever_engine *open_pair(const pair_way *way) {
    lever_engine_options options;
    pairs_engine_options(&options, way);
    return lv_test_open(&options);
}

static void prompt(lever_session *session, const int32_t *tokens, size_t count) {
    lever_error error;
    CHECK_OK(lever_session_prompt(session, tokens, count, &error));
}

static void generate(lever_session *session, const lever_generate_options *options, pair_answer *to) {
    lever_error error;
    CHECK_OK(pairs_generate(session, options, to, &error));
}

/* --- Every way --------------------------------------------------------------------------------------------------- */

typedef struct {
    int32_t prompts[PAIR_PROMPTS][PAIR_PROMPT];
    pair_answer answers[PAIR_PROMPTS][PAIR_SAMPLINGS];
} plain_answers;

/* From an engine that knows nothing of a draft. */
static plain_answers *make_plain_answers(void) {
    plain_answers *plain = calloc(1, sizeof(*plain));
    assert_non_null(plain);
    lever_engine *engine = open_plain();
    lever_session *session = lv_test_session(engine);
    for (uint32_t p = 0; p < PAIR_PROMPTS; p++) {
        pairs_prompt(engine, p, plain->prompts[p]);
        for (uint32_t s = 0; s < PAIR_SAMPLINGS; s++) {
            lever_generate_options options;
            pairs_sampling(&options, s, ANSWER);
            options.strategy = LEVER_STRATEGY_AR;
            prompt(session, plain->prompts[p], PAIR_PROMPT);
            generate(session, &options, &plain->answers[p][s]);
            assert_int_equal(plain->answers[p][s].count, ANSWER);
        }
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
    return plain;
}

static void test_every_way_gives_the_same_text(void **state) {
    (void)state;
    plain_answers *plain = make_plain_answers();
    pair_way ways[PAIR_WAYS_MAX];
    const uint32_t count = pairs_covering(ways, WAYS_LEAST, PAIR_WAYS_MAX);
    uint64_t accepted = 0, drafted_ahead = 0, hit = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t p = i % PAIR_PROMPTS;
        const pair_answer *wanted = &plain->answers[p][ways[i].level[PAIR_SAMPLING]];
        lever_engine *engine = open_pair(&ways[i]);
        lever_session *session = lv_test_session(engine);
        lever_generate_options options;
        pair_answer got = {0};
        pairs_generate_options(&options, &ways[i], ANSWER);
        prompt(session, plain->prompts[p], PAIR_PROMPT);
        generate(session, &options, &got);
        pairs_check_same(&got, wanted, pairs_describe(&ways[i]));
        assert_int_equal(got.statistics.strategy, options.strategy);
        assert_true(got.statistics.cycles <= ANSWER);
        accepted += got.statistics.nodes_accepted;
        drafted_ahead += got.statistics.draft_hidden_seconds > 0;
        hit += got.statistics.ahead_hit_rate > 0;
        /* The draft stays out of plain decoding on the same session. */
        prompt(session, plain->prompts[p], PAIR_PROMPT);
        options.strategy = LEVER_STRATEGY_AR;
        generate(session, &options, &got);
        pairs_check_same(&got, wanted, "plain, beside a draft");
        assert_int_equal(got.statistics.nodes_drafted, 0);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
    /* Else this would be a test of plain decoding. */
    assert_true(accepted > count * ANSWER / 4);
    assert_true(drafted_ahead > 1 && hit > 1);
    free(plain);
}

enum { LOOKED_UP_NODES = 8 };

/* Without a draft the same, in fewer passes where the text repeats itself; unless look-ups are not wanted. */
static void test_looking_up_without_a_draft(void **state) {
    (void)state;
    plain_answers *plain = make_plain_answers();
    lever_engine *engine = open_plain();
    lever_session *session = lv_test_session(engine);
    uint64_t cycles = 0;
    for (uint32_t i = 0; i < PAIR_PROMPTS * PAIR_SAMPLINGS; i++) {
        const uint32_t p = i % PAIR_PROMPTS, s = i / PAIR_PROMPTS;
        lever_generate_options options;
        pair_answer got = {0};
        pairs_sampling(&options, s, ANSWER);
        prompt(session, plain->prompts[p], PAIR_PROMPT);
        generate(session, &options, &got);
        pairs_check_same(&got, &plain->answers[p][s], "looked up, without a draft");
        assert_int_equal(got.statistics.strategy, LEVER_STRATEGY_LEVER);
        assert_true(got.statistics.draft_seconds <= 0);
        /* By cost, rows of a model as small as this one may seem too dear on a busy machine; as many as these are
         * taken in any case. */
        options.tree_nodes = LOOKED_UP_NODES;
        prompt(session, plain->prompts[p], PAIR_PROMPT);
        generate(session, &options, &got);
        pairs_check_same(&got, &plain->answers[p][s], "looked up, a fixed number");
        cycles += got.statistics.cycles;
        options.tree_nodes = 0;
        options.no_lookup = true;
        prompt(session, plain->prompts[p], PAIR_PROMPT);
        generate(session, &options, &got);
        pairs_check_same(&got, &plain->answers[p][s], "plain");
        assert_int_equal(got.statistics.strategy, LEVER_STRATEGY_AR);
        assert_int_equal(got.statistics.nodes_accepted, 0);
    }
    assert_true(cycles < (uint64_t)PAIR_PROMPTS * PAIR_SAMPLINGS * ANSWER * 9 / 10);
    lever_session_close(&session);
    lever_engine_close(&engine);
    free(plain);
}

/* --- Traces ------------------------------------------------------------------------------------------------------ */

typedef struct {
    unsigned index, depth, rank;
    int parent, token, source;
    double a;
    bool expanded, verified;
} trace_node;

typedef struct {
    trace_node nodes[TRACE_NODES_MAX];
    unsigned nodes_count;
    unsigned path[LV_TREE_DEPTH_MAX], path_count;
    unsigned nodes_verified, expanded_ahead;
    int token;
} trace_cycle;

static const char *after(const char *line, const char *what) {
    const char *found = strstr(line, what);
    if (!found) fail_msg("no %s in the trace: %.200s", what, line);
    return found + strlen(what);
}

static void parse_trace(const char *line, trace_cycle *cycle) {
    memset(cycle, 0, sizeof(*cycle));
    cycle->nodes_verified = (unsigned)strtoul(after(line, "\"nodes_verified\":"), NULL, 10);
    cycle->expanded_ahead = (unsigned)strtoul(after(line, "\"expanded_ahead\":"), NULL, 10);
    cycle->token = (int)strtol(after(line, "\"token\":"), NULL, 10);
    const char *at = after(line, "\"path\":[");
    while (*at != ']') {
        char *end;
        cycle->path[cycle->path_count++] = (unsigned)strtoul(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    at = after(line, "\"nodes\":[");
    while (*at == '{') {
        trace_node *node = &cycle->nodes[cycle->nodes_count++];
        char expanded[8], verified[8];
        int length = 0;
        const int fields = sscanf(at,
                                  "{\"i\":%u,\"parent\":%d,\"token\":%d,\"depth\":%u,\"source\":%d,\"rank\":%u,"
                                  "\"estimate\":%*f,\"a\":%lf,\"w\":%*f,\"expanded\":%7[a-z],\"verified\":%7[a-z]}%n",
                                  &node->index, &node->parent, &node->token, &node->depth, &node->source, &node->rank,
                                  &node->a, expanded, verified, &length);
        assert_int_equal(fields, 9);
        assert_true(length > 0);
        node->expanded = strcmp(expanded, "true") == 0;
        node->verified = strcmp(verified, "true") == 0;
        at += length;
        if (*at == ',') at++;
    }
    assert_string_equal(at, "]}");
}

/* The draft's first child of a node, if it was verified. */
static const trace_node *first_child(const trace_cycle *cycle, unsigned parent) {
    for (unsigned i = 0; i < cycle->nodes_count; i++) {
        const trace_node *node = &cycle->nodes[i];
        if (node->parent == (int)parent && node->source == LV_SOURCE_DRAFT && node->rank == 0 && node->verified)
            return node;
    }
    return NULL;
}

typedef struct {
    uint64_t cycles, first_children, accepted; /* of nodes on the accepted path, and of the root */
    uint64_t paths_cut;                        /* cycles whose path of first children was not accepted to its end */
} acceptance;

static void watch_acceptance(void *user, const char *line) {
    acceptance *sums = user;
    trace_cycle *cycle = malloc(sizeof(*cycle));
    assert_non_null(cycle);
    parse_trace(line, cycle);
    sums->cycles++;
    unsigned parent = 0;
    const trace_node *child;
    for (unsigned at = 0; (child = first_child(cycle, parent)) != NULL; at++, parent = child->index) {
        sums->first_children++;
        if (at == cycle->path_count || cycle->path[at] != child->index) {
            sums->paths_cut++;
            break;
        }
        sums->accepted++;
    }
    free(cycle);
}

/* What is generated is that of the target alone, in any case. */
static acceptance watch_answers(const char *draft, lever_strategy strategy, uint32_t sampling) {
    lever_engine_options engine_options;
    pairs_engine_options(&engine_options, &calm_way);
    engine_options.draft_path = draft;
    lever_engine *engine = lv_test_open(&engine_options);
    lever_session *session = lv_test_session(engine);
    acceptance sums = {0};
    for (uint32_t p = 0; p < PAIR_PROMPTS; p++) {
        int32_t tokens[PAIR_PROMPT];
        pairs_prompt(engine, p, tokens);
        lever_generate_options options;
        pairs_sampling(&options, sampling, ANSWER);
        options.strategy = strategy;
        options.no_lookup = true;
        options.trace = watch_acceptance;
        options.trace_user = &sums;
        pair_answer got = {0}, plain = {0};
        prompt(session, tokens, PAIR_PROMPT);
        generate(session, &options, &got);
        options.strategy = LEVER_STRATEGY_AR;
        options.trace = NULL;
        prompt(session, tokens, PAIR_PROMPT);
        generate(session, &options, &plain);
        pairs_check_same(&got, &plain, "an answer that is watched");
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
    return sums;
}

/* The pair is one on which speculation is often right and often wrong: else it would not test much. */
static void test_the_pair_is_a_pair(void **state) {
    (void)state;
    for (uint32_t sampling = 0; sampling < PAIR_SAMPLINGS; sampling++) {
        const acceptance sums = watch_answers(PAIR_DRAFT, LEVER_STRATEGY_LEVER, sampling);
        const double share = (double)sums.accepted / (double)sums.first_children;
        print_message("sampling %u: %.3f of the first children are accepted\n", sampling, share);
        if (!(share >= 0.3 && share <= 0.9)) fail_msg("%.3f of the first children are accepted", share);
    }
}

/* A draft that is the target knows its token: whatever was verified of the path of first children is accepted. (It
 * looks no further than exp(-14) of the likeliest token; with this seed no token beyond that draws enough noise.) */
static void test_own_file_is_accepted_whole(void **state) {
    (void)state;
    static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_CHAIN, LEVER_STRATEGY_EDGE};
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        for (uint32_t sampling = 0; sampling < PAIR_SAMPLINGS; sampling++) {
            const acceptance sums = watch_answers(PAIR_TARGET, strategies[i], sampling);
            assert_true(sums.first_children > 2 * sums.cycles);
            if (sums.paths_cut > 0)
                fail_msg("%s, sampling %u: %d of %d paths were cut", lever_strategy_text(strategies[i]), sampling,
                         (int)sums.paths_cut, (int)sums.cycles);
        }
    }
}

/* --- Conversations ----------------------------------------------------------------------------------------------- */

typedef struct {
    lever_session *plain, *pair;
    uint32_t state;
} conversation;

static void check_tokens(const conversation *c, const char *what) {
    size_t count, wanted_count;
    const int32_t *tokens = lever_session_tokens(c->pair, &count);
    const int32_t *wanted = lever_session_tokens(c->plain, &wanted_count);
    if (count != wanted_count || memcmp(tokens, wanted, count * sizeof(*tokens)) != 0)
        fail_msg("%s: %zu tokens, and %zu wanted, or others", what, count, wanted_count);
}

/* Both get the beginning of what they hold, and something new. */
static void next_prompt(conversation *c, const lever_engine *engine) {
    int32_t tokens[CONTEXT];
    size_t held;
    const int32_t *old = lever_session_tokens(c->plain, &held);
    memcpy(tokens, old, held * sizeof(*tokens));
    size_t kept = draw(&c->state, 3) == 0 ? draw(&c->state, (uint32_t)held + 1) : held;
    if (kept > CONTEXT - 50) kept = CONTEXT / 3;
    const size_t count = kept + 1 + draw(&c->state, 24);
    lv_test_tokens(engine, draw(&c->state, 1000), tokens + kept, count - kept);
    prompt(c->plain, tokens, count);
    prompt(c->pair, tokens, count);
}

static void next_rewind(conversation *c) {
    size_t held;
    lever_error error;
    lever_session_tokens(c->plain, &held);
    const size_t count = held - draw(&c->state, (uint32_t)(held < 30 ? held : 30));
    CHECK_OK(lever_session_rewind(c->plain, count, &error));
    CHECK_OK(lever_session_rewind(c->pair, count, &error));
}

static void next_answer(conversation *c) {
    pair_way way;
    for (uint32_t f = 0; f < PAIR_FACTORS; f++) way.level[f] = (uint8_t)draw(&c->state, pairs_levels(f));
    lever_generate_options options;
    pairs_generate_options(&options, &way, 1 + draw(&c->state, 40));
    if (draw(&c->state, 6) == 0) options.strategy = LEVER_STRATEGY_AR;
    pair_answer got = {0}, wanted = {0};
    if (draw(&c->state, 4) == 0) got.stop_after = wanted.stop_after = 1 + draw(&c->state, 10);
    generate(c->pair, &options, &got);
    options.strategy = LEVER_STRATEGY_AR;
    generate(c->plain, &options, &wanted);
    pairs_check_same(&got, &wanted, pairs_describe(&way));
}

static void test_conversations(void **state) {
    (void)state;
    lever_engine *plain = open_plain();
    for (uint8_t level = 0; level < 4; level++) {
        pair_way way = {0};
        way.level[PAIR_COSTS] = level & 1;
        way.level[PAIR_THREADS] = level >> 1;
        lever_engine *pair = open_pair(&way);
        conversation c = {.plain = lv_test_session(plain), .pair = lv_test_session(pair), .state = 100u + level};
        next_prompt(&c, plain);
        for (uint32_t step = 0; step < 60; step++) {
            const uint32_t kind = draw(&c.state, 5);
            if (kind == 0) next_prompt(&c, plain);
            if (kind == 1) next_rewind(&c);
            if (kind >= 2) next_answer(&c);
            check_tokens(&c, "a conversation");
        }
        lever_session_close(&c.plain);
        lever_session_close(&c.pair);
        lever_engine_close(&pair);
    }
    lever_engine_close(&plain);
}

/* --- Endings ----------------------------------------------------------------------------------------------------- */

typedef struct {
    lever_engine *plain_engine, *pair_engine;
    conversation c;
} two_engines;

static two_engines open_both(const pair_way *way) {
    two_engines both = {.plain_engine = open_plain(), .pair_engine = open_pair(way)};
    both.c.plain = lv_test_session(both.plain_engine);
    both.c.pair = lv_test_session(both.pair_engine);
    return both;
}

static void close_both(two_engines *both) {
    lever_session_close(&both->c.plain);
    lever_session_close(&both->c.pair);
    lever_engine_close(&both->plain_engine);
    lever_engine_close(&both->pair_engine);
}

/* The same answer from both, by each strategy. `wanted` is that of the target alone. */
static void check_answer(two_engines *both, const int32_t *tokens, size_t count, lever_generate_options *options,
                         pair_answer *wanted, const char *what) {
    options->strategy = LEVER_STRATEGY_AR;
    prompt(both->c.plain, tokens, count);
    generate(both->c.plain, options, wanted);
    for (lever_strategy strategy = LEVER_STRATEGY_LEVER; strategy <= LEVER_STRATEGY_EDGE; strategy++) {
        pair_answer got = {.stop_after = wanted->stop_after};
        options->strategy = strategy;
        prompt(both->c.pair, tokens, count);
        generate(both->c.pair, options, &got);
        pairs_check_same(&got, wanted, what);
        check_tokens(&both->c, what);
    }
}

static void test_stop_texts(void **state) {
    (void)state;
    two_engines both = open_both(&calm_way);
    uint32_t stopped = 0;
    for (uint32_t p = 0; p < PAIR_PROMPTS; p++) {
        int32_t tokens[PAIR_PROMPT];
        pair_answer whole = {0}, cut = {0};
        lever_generate_options options;
        pairs_prompt(both.plain_engine, p, tokens);
        pairs_sampling(&options, p % PAIR_SAMPLINGS, ANSWER);
        check_answer(&both, tokens, PAIR_PROMPT, &options, &whole, "no stop text");
        for (size_t at = 1; at + 6 < whole.bytes; at += whole.bytes / 4) {
            char stop[6] = {0};
            memcpy(stop, whole.text + at, 1 + at % 5);
            const char *stops[] = {stop, "never to be seen"};
            options.stops = stops;
            options.stops_count = 2;
            check_answer(&both, tokens, PAIR_PROMPT, &options, &cut, "a stop text");
            stopped += cut.finish == LEVER_FINISH_STOP;
        }
    }
    assert_true(stopped > 3);
    close_both(&both);
}

static void test_end_tokens(void **state) {
    (void)state;
    two_engines both = open_both(&calm_way);
    uint32_t ended = 0;
    for (uint32_t seed = 0; seed < 8; seed++) {
        int32_t tokens[PAIR_PROMPT];
        pair_answer answer = {0};
        lever_generate_options options;
        pairs_prompt(both.plain_engine, seed, tokens);
        pairs_sampling(&options, 2, 120);
        options.temperature = 4;
        options.top_p = 1;
        options.seed = seed;
        options.ignore_end = false;
        check_answer(&both, tokens, PAIR_PROMPT, &options, &answer, "an end token");
        ended += answer.finish == LEVER_FINISH_STOP;
    }
    assert_true(ended > 0);
    close_both(&both);
}

static void test_few_tokens(void **state) {
    (void)state;
    two_engines both = open_both(&calm_way);
    int32_t tokens[PAIR_PROMPT];
    pairs_prompt(both.plain_engine, 0, tokens);
    for (uint32_t most = 1; most <= 5; most++) {
        for (uint32_t sampling = 0; sampling < PAIR_SAMPLINGS; sampling++) {
            lever_generate_options options;
            pair_answer answer = {0};
            pairs_sampling(&options, sampling, most);
            check_answer(&both, tokens, PAIR_PROMPT, &options, &answer, "few tokens");
            assert_int_equal(answer.count, most);
            answer.stop_after = 2;
            check_answer(&both, tokens, PAIR_PROMPT, &options, &answer, "a receiver that wants no more");
        }
    }
    close_both(&both);
}

static void test_context_nearly_full(void **state) {
    (void)state;
    two_engines both = open_both(&calm_way);
    int32_t tokens[CONTEXT];
    lv_test_tokens(both.plain_engine, 5, tokens, CONTEXT);
    static const size_t counts[] = {200, 249, 250, 251, 252, 253, 254, 255, 256};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint32_t sampling = 0; sampling < PAIR_SAMPLINGS; sampling++) {
            lever_generate_options options;
            pair_answer answer = {0};
            pairs_sampling(&options, sampling, 0);
            options.penalty_tokens = -1;
            check_answer(&both, tokens, counts[i], &options, &answer, "a context that is nearly full");
            assert_int_equal(answer.count, CONTEXT - counts[i]);
            assert_int_equal(answer.finish, LEVER_FINISH_LENGTH);
        }
    }
    close_both(&both);
}

/* --- Cancelling -------------------------------------------------------------------------------------------------- */

typedef struct {
    lever_session *session;
    atomic_bool stop;
    atomic_int left; /* cancellations of this round: without an end to them a slow machine would never get on */
} canceller;

static void *cancel_at_random(void *user) {
    canceller *c = user;
    uint32_t state = 3;
    while (!atomic_load(&c->stop)) {
        const struct timespec pause = {.tv_nsec = (long)draw(&state, 8000000)};
        nanosleep(&pause, NULL);
        if (atomic_load(&c->left) <= 0) continue;
        lever_session_cancel(c->session);
        atomic_fetch_sub(&c->left, 1);
    }
    return NULL;
}

/* Goes on until the answer is whole, however often it is cancelled. */
static uint32_t generate_in_pieces(lever_session *session, lever_generate_options *options, pair_answer *whole) {
    uint32_t cancelled = 0;
    whole->count = 0;
    while (whole->count < ANSWER) {
        pair_answer piece = {0};
        lever_error error;
        options->tokens_max = ANSWER - (uint32_t)whole->count;
        const lever_status status = pairs_generate(session, options, &piece, &error);
        if (status == LEVER_E_CANCELLED) {
            cancelled++;
        } else if (status != LEVER_OK) {
            fail_msg("%s", error.message);
        }
        memcpy(whole->ids + whole->count, piece.ids, piece.count * sizeof(piece.ids[0]));
        whole->count += piece.count;
    }
    return cancelled;
}

static void prompt_despite(lever_session *session, const int32_t *tokens) {
    lever_error error;
    lever_status status;
    do {
        status = lever_session_prompt(session, tokens, PAIR_PROMPT, &error);
    } while (status == LEVER_E_CANCELLED);
    if (status != LEVER_OK) fail_msg("%s", error.message);
}

static void test_cancelling(void **state) {
    (void)state;
    plain_answers *plain = make_plain_answers();
    lever_engine *engine = open_pair(&busy_way);
    canceller c = {.session = lv_test_session(engine)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_at_random, &c), 0);
    uint32_t cancelled = 0, random = 5;
    for (uint32_t round = 0; round < 16 || (cancelled == 0 && round < 1000); round++) {
        const uint32_t p = round % PAIR_PROMPTS;
        pair_way way;
        for (uint32_t f = 0; f < PAIR_FACTORS; f++) way.level[f] = (uint8_t)draw(&random, pairs_levels(f));
        const pair_answer *wanted = &plain->answers[p][way.level[PAIR_SAMPLING]];
        lever_generate_options options;
        pair_answer got = {0};
        pairs_generate_options(&options, &way, ANSWER);
        atomic_store(&c.left, CANCELLATIONS);
        prompt_despite(c.session, plain->prompts[p]);
        cancelled += generate_in_pieces(c.session, &options, &got);
        if (memcmp(got.ids, wanted->ids, sizeof(got.ids[0]) * ANSWER) != 0)
            fail_msg("round %u, after %u cancellations: %s", round, cancelled, pairs_describe(&way));
    }
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    assert_true(cancelled > 0);
    lever_session_close(&c.session);
    lever_engine_close(&engine);
    free(plain);
}

/* --- Caches ------------------------------------------------------------------------------------------------------ */

/* After an answer the target's cache is that of a session which read the same tokens as a prompt: the logits that
 * follow have the same bits. */
static void test_cache_is_as_rebuilt(void **state) {
    (void)state;
    two_engines both = open_both(&busy_way);
    const size_t vocabulary = lv_test_vocabulary(both.plain_engine);
    for (uint32_t p = 0; p < 2 * PAIR_PROMPTS; p++) {
        int32_t tokens[PAIR_PROMPT];
        pairs_prompt(both.plain_engine, p, tokens);
        lever_generate_options options;
        pair_answer got = {0};
        pairs_sampling(&options, p % PAIR_SAMPLINGS, ANSWER);
        options.strategy = p % 3 == 2 ? LEVER_STRATEGY_EDGE : LEVER_STRATEGY_LEVER;
        prompt(both.c.pair, tokens, PAIR_PROMPT);
        generate(both.c.pair, &options, &got);
        assert_true(got.statistics.nodes_accepted > 5);
        size_t count;
        int32_t held[CONTEXT];
        const int32_t *now = lever_session_tokens(both.c.pair, &count);
        assert_int_equal(count, PAIR_PROMPT + ANSWER);
        memcpy(held, now, count * sizeof(*held));
        lever_error error;
        CHECK_OK(lever_session_rewind(both.c.plain, 0, &error));
        prompt(both.c.plain, held, count);
        prompt(both.c.pair, held, count);
        lever_statistics statistics;
        lever_session_get_statistics(both.c.pair, &statistics);
        assert_int_equal(statistics.prompt_tokens_reused, count - 1);
        assert_memory_equal(lever_session_logits(both.c.pair), lever_session_logits(both.c.plain),
                            vocabulary * sizeof(float));
    }
    close_both(&both);
}

/* --- Costs ------------------------------------------------------------------------------------------------------- */

typedef struct {
    char *text;
    size_t bytes, capacity;
} trace_log;

/* Keeps a line without what the clock says. */
static void log_trace(void *user, const char *line) {
    static const char *const clocks[] = {
        "\"seconds\":", "\"draft_seconds\":", "\"pass_seconds\":", "\"head_seconds\":"};
    trace_log *log = user;
    const size_t bytes = strlen(line);
    if (log->bytes + bytes + 2 > log->capacity) {
        log->capacity = 2 * (log->capacity + bytes + 2);
        log->text = realloc(log->text, log->capacity);
        assert_non_null(log->text);
    }
    char *to = log->text + log->bytes;
    memcpy(to, line, bytes + 1);
    for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
        char *digit = strstr(to, clocks[i]);
        if (!digit) fail_msg("no %s in the trace", clocks[i]);
        for (digit += strlen(clocks[i]); *digit != ',' && *digit != '}'; digit++) *digit = '-';
    }
    log->bytes += bytes;
    log->text[log->bytes++] = '\n';
    log->text[log->bytes] = '\0';
}

static trace_log logged_run(const pair_way *way) {
    lever_engine *engine = open_pair(way);
    lever_session *session = lv_test_session(engine);
    trace_log log = {0};
    for (uint32_t p = 0; p < PAIR_PROMPTS; p++) {
        int32_t tokens[PAIR_PROMPT];
        lever_generate_options options;
        pair_answer got = {0};
        pairs_prompt(engine, p, tokens);
        pairs_generate_options(&options, way, ANSWER);
        options.trace = log_trace;
        options.trace_user = &log;
        prompt(session, tokens, PAIR_PROMPT);
        generate(session, &options, &got);
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
    return log;
}

static void test_frozen_costs_give_the_same_cycles(void **state) {
    (void)state;
    uint64_t expanded_ahead = 0;
    for (uint8_t i = 0; i < 12; i++) {
        pair_way way = busy_way;
        way.level[PAIR_STRATEGY] = i % 3;
        way.level[PAIR_STOP_RULE] = i / 3 % 2;
        way.level[PAIR_SAMPLING] = i / 6 ? 2 : 0;
        trace_log first = logged_run(&way), second = logged_run(&way);
        assert_true(first.bytes > 1000);
        if (first.bytes != second.bytes || memcmp(first.text, second.text, first.bytes) != 0) {
            size_t at = 0;
            while (first.text[at] == second.text[at]) at++;
            fail_msg("%s: two runs differ at '%.60s'", pairs_describe(&way), first.text + (at > 30 ? at - 30 : 0));
        }
        for (const char *line = first.text; (line = strstr(line, "\"expanded_ahead\":")) != NULL; line++)
            expanded_ahead += strtoul(line + strlen("\"expanded_ahead\":"), NULL, 10);
        free(first.text);
        free(second.text);
    }
    assert_true(expanded_ahead > 10);
}

/* Opens with a cache folder, checks whether costs were found there, and answers once. */
static void use_costs(const char *folder, bool known) {
    lever_engine_options options;
    const pair_way way = {0};
    pairs_engine_options(&options, &way);
    options.cache_dir = folder;
    lever_engine *engine = lv_test_open(&options);
    assert_int_equal(engine->costs.costs.draft[LV_SPLIT_ALL].samples[0] > 0, known);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PAIR_PROMPT];
    lever_generate_options generate_options;
    pair_answer got = {0};
    pairs_prompt(engine, 0, tokens);
    pairs_sampling(&generate_options, 0, ANSWER);
    generate_options.strategy = LEVER_STRATEGY_CHAIN;
    prompt(session, tokens, PAIR_PROMPT);
    generate(session, &generate_options, &got);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void damage(const char *path, long keep, const char *with) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, keep, SEEK_SET), 0);
    assert_true(fputs(with, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_costs_are_kept(void **state) {
    (void)state;
    char inside[512], folder[512], path[1024];
    /* A folder of its own, since there is to be nothing else in it. */
    scratch_write("cache/now", "", 0, inside, sizeof(inside));
    assert_int_equal(remove(inside), 0);
    scratch_path("cache", folder, sizeof(folder));
    use_costs(folder, false);
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    use_costs(folder, true);
    damage(path, 10, "nonsense");
    use_costs(folder, false);
    use_costs(folder, true);
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    /* What the user names must be there, and whole. */
    lever_engine_options options;
    lever_engine *engine = NULL;
    lever_error error;
    pairs_engine_options(&options, &busy_way);
    options.costs_path = path;
    engine = lv_test_open(&options);
    lever_engine_close(&engine);
    damage(path, 10, "nonsense");
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_FORMAT, path);
    options.costs_path = "/no/such/costs";
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_IO, "/no/such/costs");
    assert_null(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_pair_is_a_pair),
        cmocka_unit_test(test_every_way_gives_the_same_text),
        cmocka_unit_test(test_looking_up_without_a_draft),
        cmocka_unit_test(test_own_file_is_accepted_whole),
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_end_tokens),
        cmocka_unit_test(test_few_tokens),
        cmocka_unit_test(test_context_nearly_full),
        cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_cache_is_as_rebuilt),
        cmocka_unit_test(test_frozen_costs_give_the_same_cycles),
        cmocka_unit_test(test_costs_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
