#include "support/pairs.h"

#include <stdlib.h>

#include "engine/engine_state.h"
#include "spec/calibration.h"
#include "spec/cost.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/scratch.h"

enum { COSTS_BYTES = 64 << 10, TRIES = 40 };

static const uint8_t levels[PAIR_FACTORS] = {
    [PAIR_STRATEGY] = 3, [PAIR_TREE] = 4,    [PAIR_HEAD] = 4,  [PAIR_BUDGET] = 3,    [PAIR_LOOKUP] = 2,
    [PAIR_AHEAD] = 2,    [PAIR_THREADS] = 2, [PAIR_COSTS] = 2, [PAIR_STOP_RULE] = 2, [PAIR_SAMPLING] = PAIR_SAMPLINGS,
    [PAIR_PRUNING] = 4,
};

static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_CHAIN, LEVER_STRATEGY_EDGE};
static const uint32_t trees[] = {0, 1, 5, 40};
static const int budgets[] = {0, 50, 100};

uint32_t pairs_levels(pair_factor factor) {
    return levels[factor];
}

/* --- Covering ---------------------------------------------------------------------------------------------------- */

typedef struct {
    bool met[PAIR_FACTORS][PAIR_FACTORS][4][4];
    uint32_t left; /* pairs of levels that have not met */
} meetings;

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static uint32_t count_new(const meetings *m, const pair_way *way) {
    uint32_t count = 0;
    for (uint32_t a = 0; a < PAIR_FACTORS; a++) {
        for (uint32_t b = a + 1; b < PAIR_FACTORS; b++) count += !m->met[a][b][way->level[a]][way->level[b]];
    }
    return count;
}

static void meet(meetings *m, const pair_way *way) {
    m->left -= count_new(m, way);
    for (uint32_t a = 0; a < PAIR_FACTORS; a++) {
        for (uint32_t b = a + 1; b < PAIR_FACTORS; b++) m->met[a][b][way->level[a]][way->level[b]] = true;
    }
}

uint32_t pairs_covering(pair_way *ways, uint32_t least, uint32_t capacity) {
    meetings m = {0};
    uint32_t count = 0, state = 7;
    for (uint32_t a = 0; a < PAIR_FACTORS; a++) {
        for (uint32_t b = a + 1; b < PAIR_FACTORS; b++) m.left += (uint32_t)levels[a] * levels[b];
    }
    while (count < capacity && (m.left > 0 || count < least)) {
        uint32_t most = 0;
        for (uint32_t i = 0; i < TRIES; i++) {
            pair_way way;
            for (uint32_t f = 0; f < PAIR_FACTORS; f++) way.level[f] = (uint8_t)draw(&state, levels[f]);
            const uint32_t news = count_new(&m, &way);
            if (i > 0 && news <= most) continue;
            most = news;
            ways[count] = way;
        }
        meet(&m, &ways[count++]);
    }
    assert_int_equal(m.left, 0);
    return count;
}

const char *pairs_describe(const pair_way *way) {
    static const char *const names[PAIR_FACTORS] = {
        [PAIR_STRATEGY] = "strategy",   [PAIR_TREE] = "tree",         [PAIR_HEAD] = "head",
        [PAIR_BUDGET] = "budget",       [PAIR_LOOKUP] = "no look-up", [PAIR_AHEAD] = "no ahead",
        [PAIR_SAMPLING] = "sampling",   [PAIR_THREADS] = "threads",   [PAIR_COSTS] = "costs",
        [PAIR_STOP_RULE] = "stop rule", [PAIR_PRUNING] = "pruning",
    };
    static char text[256];
    size_t used = 0;
    for (uint32_t f = 0; f < PAIR_FACTORS && used < sizeof(text); f++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %u", f ? ", " : "", names[f], way->level[f]);
    }
    return text;
}

/* --- Options ----------------------------------------------------------------------------------------------------- */

const char *pairs_costs_path(void) {
    static char path[512];
    if (path[0]) return path;
    lv_costs costs;
    lv_calibration calibration;
    /* Reading takes as long as a dozen forwards of the draft with one thread. */
    lv_costs_init(&costs, 2e-4, 1e-3, 2e-4, .025, .005);
    lv_calibration_init(&calibration);
    char *text = calloc(1, COSTS_BYTES);
    assert_non_null(text);
    size_t bytes = lv_costs_write(&costs, text, COSTS_BYTES);
    bytes += lv_calibration_write(&calibration, text + bytes, COSTS_BYTES - bytes);
    assert_true(bytes < COSTS_BYTES);
    scratch_write("frozen.costs", text, bytes, path, sizeof(path));
    free(text);
    return path;
}

const char *pairs_predictor_path(void) {
    static char path[512];
    if (path[0]) return path;
    lever_engine_options options;
    lever_error error;
    lv_test_options(&options, PAIR_TARGET);
    options.draft_path = PAIR_DRAFT;
    options.draft_forced = true;
    lever_engine *engine = lv_test_open(&options);
    const lv_predictor_shape shape = {
        .target_hash = lv_weights_fingerprint(engine->weights),
        .draft_hash = lv_weights_fingerprint(engine->draft->weights),
        .layer = 1,
        .layers_count = engine->model->hparams.layers_count,
        .width = engine->model->hparams.embedding,
        .rank = 4,
    };
    lever_engine_close(&engine);
    lv_predictor *predictor = NULL;
    CHECK_OK(lv_predictor_open(&predictor, &shape, 3, NULL, &error));
    predictor->recall = 0.5f; /* it is to prune on, however bad it is */
    for (size_t i = 0; i < shape.rank * shape.width; i++) predictor->b[i] = predictor->a[i] * 8;
    uint8_t *file = malloc(lv_predictor_file_bytes(&shape));
    assert_non_null(file);
    lv_predictor_write(predictor, file);
    scratch_write("pair.predictor", file, lv_predictor_file_bytes(&shape), path, sizeof(path));
    free(file);
    lv_predictor_close(&predictor);
    return path;
}

void pairs_engine_options(lever_engine_options *options, const pair_way *way) {
    lv_test_options(options, PAIR_TARGET);
    options->draft_path = PAIR_DRAFT;
    options->draft_forced = true;
    options->block_bytes = 64u << 10;
    options->target_ram_percent = budgets[way->level[PAIR_BUDGET]];
    options->threads = 1u + way->level[PAIR_THREADS];
    options->costs_path = way->level[PAIR_COSTS] ? pairs_costs_path() : NULL;
    options->predictor_path = way->level[PAIR_PRUNING] ? pairs_predictor_path() : NULL;
}

void pairs_large_options(lever_engine_options *options, const pair_way *way) {
    pairs_engine_options(options, way);
    options->model_path = PAIR_LARGE;
    options->target_ram_percent = -1;
    options->block_bytes = 256u << 10;
}

void pairs_sampling(lever_generate_options *options, uint32_t sampling, uint32_t tokens_max) {
    lever_generate_options_init(options);
    options->tokens_max = tokens_max;
    options->seed = 23;
    options->ignore_end = true;
    options->top_p = 1;
    options->temperature = 0;
    if (sampling == 1) options->temperature = 0.8f;
    if (sampling == 2) {
        options->temperature = 1.3f;
        options->top_p = 0.9f;
    }
    if (sampling >= 2) {
        options->repeat_penalty = 1.2f;
        options->presence_penalty = 0.3f;
        options->frequency_penalty = 0.1f;
        options->penalty_tokens = 32;
    }
}

void pairs_generate_options(lever_generate_options *options, const pair_way *way, uint32_t tokens_max) {
    pairs_sampling(options, way->level[PAIR_SAMPLING], tokens_max);
    options->strategy = strategies[way->level[PAIR_STRATEGY]];
    if (options->strategy == LEVER_STRATEGY_LEVER) options->tree_nodes = trees[way->level[PAIR_TREE]];
    if (options->strategy == LEVER_STRATEGY_CHAIN) options->chain_length = trees[way->level[PAIR_TREE]];
    options->head = (lever_head_mode)way->level[PAIR_HEAD];
    options->stop_rule = (lever_stop_rule)way->level[PAIR_STOP_RULE];
    options->no_lookup = way->level[PAIR_LOOKUP] == 1;
    options->no_ahead = way->level[PAIR_AHEAD] == 1;
    options->prune_forced = way->level[PAIR_PRUNING] > 1;
    options->prune_cap = way->level[PAIR_PRUNING] == 3 ? 100 : -1;
}

void pairs_prompt(const lever_engine *engine, uint32_t prompt, int32_t *tokens) {
    const size_t repeated = PAIR_PROMPT / 3;
    lv_test_tokens(engine, 60 + prompt, tokens, PAIR_PROMPT);
    memcpy(tokens + PAIR_PROMPT - repeated, tokens, repeated * sizeof(*tokens));
}

/* --- Answers ----------------------------------------------------------------------------------------------------- */

static bool take(void *user, int32_t token, const char *text, size_t bytes) {
    pair_answer *to = user;
    assert_true(to->count < PAIR_ANSWER_MAX && to->bytes + bytes < sizeof(to->text));
    if (token >= 0) to->ids[to->count++] = token;
    memcpy(to->text + to->bytes, text, bytes);
    to->bytes += bytes;
    return to->stop_after == 0 || to->count < to->stop_after;
}

lever_status pairs_generate(lever_session *session, const lever_generate_options *options, pair_answer *to,
                            lever_error *error) {
    to->count = to->bytes = 0;
    const lever_status status = lever_session_generate(session, options, take, to, &to->finish, error);
    lever_session_get_statistics(session, &to->statistics);
    return status;
}

void pairs_check_same(const pair_answer *got, const pair_answer *wanted, const char *what) {
    for (size_t i = 0; i < got->count && i < wanted->count; i++) {
        if (got->ids[i] != wanted->ids[i])
            fail_msg("%s: token %zu is %d instead of %d", what, i, (int)got->ids[i], (int)wanted->ids[i]);
    }
    if (got->count != wanted->count) fail_msg("%s: %zu tokens instead of %zu", what, got->count, wanted->count);
    if (got->bytes != wanted->bytes || memcmp(got->text, wanted->text, got->bytes) != 0)
        fail_msg("%s: the same tokens, but another text", what);
    if (got->finish != wanted->finish)
        fail_msg("%s: ended by '%s' instead of '%s'", what, lever_finish_text(got->finish),
                 lever_finish_text(wanted->finish));
}
