/* test_pruned.c - pruning on a generated pair: the text is that of plain decoding whatever goes; a pruner that knows
 * loses nothing; predictors that cannot be used are a warning; training makes one that can, and goes on where it
 * stopped. */
#include <stdlib.h>
#include <unistd.h>

#include "engine/session_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"
#include "support/scratch.h"

enum { ANSWER = 80, PROMPTS = 3, FILE_BYTES_MAX = 1 << 16 };

static lever_error error;

typedef struct {
    lever_engine *engine;
    lever_session *session;
    char warnings[4096];
} world;

static void take_line(void *user, lever_log_level level, const char *line) {
    world *w = user;
    if (level != LEVER_LOG_WARNING || strlen(w->warnings) + strlen(line) + 2 > sizeof(w->warnings)) return;
    strcat(strcat(w->warnings, line), "\n");
}

/* Two threads draft ahead; they take long where other programs run, so they do little. */
static void open_world(world *w, const char *predictor, const char *cache_dir, uint8_t threads) {
    const pair_way way = {.level = {[PAIR_BUDGET] = 2, [PAIR_THREADS] = (uint8_t)(threads - 1), [PAIR_COSTS] = 1}};
    lever_engine_options options;
    memset(w, 0, sizeof(*w));
    pairs_engine_options(&options, &way);
    options.predictor_path = predictor;
    options.cache_dir = cache_dir;
    options.log = take_line;
    options.log_user = w;
    w->engine = lv_test_open(&options);
    w->session = lv_test_session(w->engine);
}

static void close_world(world *w) {
    lever_session_close(&w->session);
    lever_engine_close(&w->engine);
}

static void answer(world *w, uint32_t number, const lever_generate_options *options, pair_answer *to) {
    int32_t tokens[PAIR_PROMPT];
    memset(to, 0, sizeof(*to));
    pairs_prompt(w->engine, number, tokens);
    CHECK_OK(lever_session_prompt(w->session, tokens, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(w->session, options, to, &error));
}

static void test_text_does_not_depend_on_what_goes(void **state) {
    (void)state;
    static const int32_t caps[] = {0, 10, 50, 100};
    world w;
    pair_answer wanted, got;
    uint64_t pruned = 0, lost = 0;
    open_world(&w, pairs_predictor_path(), NULL, 1);
    for (uint32_t n = 0; n < PROMPTS * PAIR_SAMPLINGS * 4; n++) {
        lever_generate_options options;
        const uint32_t number = n % PROMPTS, sampling = n / PROMPTS % PAIR_SAMPLINGS;
        const int32_t cap = caps[n / PROMPTS / PAIR_SAMPLINGS % 4];
        pairs_sampling(&options, sampling, ANSWER);
        options.strategy = LEVER_STRATEGY_AR;
        answer(&w, number, &options, &wanted);
        options.strategy = LEVER_STRATEGY_LEVER;
        options.prune_cap = cap;
        options.prune_forced = true;
        answer(&w, number, &options, &got);
        pairs_check_same(&got, &wanted, "forced pruning");
        assert_true(got.statistics.cycles_scored > 0);
        if (cap == 0) assert_true(got.statistics.nodes_pruned == 0 && got.statistics.prune_recall >= 1);
        if (cap == 100) assert_true(got.statistics.nodes_pruned > got.statistics.cycles);
        const uint64_t rows = got.statistics.nodes_verified * w.engine->model->hparams.layers_count;
        const uint64_t behind = got.statistics.nodes_pruned * (w.engine->model->hparams.layers_count - 1);
        assert_int_equal(got.statistics.layer_rows, rows - behind);
        pruned += got.statistics.nodes_pruned;
        lost += got.statistics.prune_recall < 1;
        options.no_prune = true;
        answer(&w, number, &options, &got);
        pairs_check_same(&got, &wanted, "no pruning");
        assert_true(got.statistics.cycles_scored == 0 && got.statistics.nodes_pruned == 0);
    }
    assert_true(pruned > 100 && lost > 0);
    close_world(&w);
}

/* Scores come when they come; with frozen costs every run has the same cycles all the same. */
static void test_frozen_costs_give_the_same_cycles(void **state) {
    (void)state;
    world w;
    pair_answer first, second;
    lever_generate_options options;
    open_world(&w, pairs_predictor_path(), NULL, 2);
    for (uint32_t n = 0; n < PROMPTS; n++) {
        pairs_sampling(&options, n, ANSWER / 3);
        answer(&w, n, &options, &first);
        close_world(&w);
        open_world(&w, pairs_predictor_path(), NULL, 2);
        answer(&w, n, &options, &second);
        pairs_check_same(&second, &first, "again");
        assert_int_equal(second.statistics.nodes_verified, first.statistics.nodes_verified);
        assert_int_equal(second.statistics.nodes_pruned, first.statistics.nodes_pruned);
        assert_int_equal(second.statistics.nodes_drafted, first.statistics.nodes_drafted);
        close_world(&w);
        open_world(&w, pairs_predictor_path(), NULL, 2);
    }
    close_world(&w);
}

static void test_who_knows_loses_nothing(void **state) {
    (void)state;
    world w;
    pair_answer wanted, got;
    lever_generate_options options;
    open_world(&w, pairs_predictor_path(), NULL, 1);
    for (uint32_t n = 0; n < PROMPTS; n++) {
        pairs_sampling(&options, n, ANSWER);
        options.no_prune = true;
        options.no_ahead = options.no_lookup = true;
        options.tree_nodes = 12;
        answer(&w, n, &options, &wanted);
        options.no_prune = false;
        options.prune_cap = 100;
        options.prune_forced = true;
        options.known_tokens = wanted.ids;
        options.known_tokens_count = wanted.count;
        answer(&w, n, &options, &got);
        pairs_check_same(&got, &wanted, "knowing");
        assert_true(got.statistics.nodes_pruned > got.statistics.cycles);
        assert_true(got.statistics.prune_recall >= 1);
        assert_int_equal(got.statistics.cycles, wanted.statistics.cycles);
    }
    close_world(&w);
}

/* --- Files ------------------------------------------------------------------------------------------------------- */

static size_t read_file(const char *path, uint8_t *bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, FILE_BYTES_MAX, file);
    fclose(file);
    return count;
}

static void check_warned(const char *path, const char *text) {
    world w;
    pair_answer got;
    lever_generate_options options;
    open_world(&w, path, NULL, 1);
    if (!strstr(w.warnings, text) || !strstr(w.warnings, "without pruning")) {
        fail_msg("the warning '%s' lacks '%s'", w.warnings, text);
    }
    pairs_sampling(&options, 0, ANSWER);
    answer(&w, 0, &options, &got);
    assert_true(got.count == ANSWER && got.statistics.cycles_scored == 0);
    close_world(&w);
}

static void test_files_that_cannot_be_used(void **state) {
    (void)state;
    static uint8_t file[FILE_BYTES_MAX];
    char path[512];
    const size_t bytes = read_file(pairs_predictor_path(), file);
    check_warned("/nowhere/x.predictor", "cannot be read");
    check_warned(PAIR_TARGET, "is not a predictor");
    file[bytes / 2] ^= 1;
    check_warned(scratch_write("damaged.predictor", file, bytes, path, sizeof(path)), "damaged");
    file[bytes / 2] ^= 1;
    check_warned(scratch_write("short.predictor", file, bytes - 1, path, sizeof(path)), "damaged");
    file[8] = 9;
    check_warned(scratch_write("newer.predictor", file, bytes, path, sizeof(path)), "version 9");
    /* Sound, but for other models. */
    lv_predictor *predictor = NULL;
    file[8] = 1;
    CHECK_OK(lv_predictor_read(&predictor, file, bytes, "x", NULL, &error));
    predictor->shape.draft_hash ^= 1;
    lv_predictor_write(predictor, file);
    lv_predictor_close(&predictor);
    check_warned(scratch_write("foreign.predictor", file, bytes, path, sizeof(path)), "for other models");
}

/* --- Training ---------------------------------------------------------------------------------------------------- */

static const char *const prompts[] = {"one",     "two words", "and three words", "four words are here",
                                      "a fifth", "6",         "seven",           "eight is enough"};

static void fill_training(lever_train_options *options, const char *cache_dir) {
    lever_train_options_init(options);
    options->model_path = PAIR_TARGET;
    options->draft_path = PAIR_DRAFT;
    options->cache_dir = cache_dir;
    options->prompts = prompts;
    options->prompts_count = sizeof(prompts) / sizeof(*prompts);
    options->answer_tokens = 24;
    options->ram_bytes = 1u << 30;
    options->threads = 1;
    options->rank = 4;
}

static void test_training_makes_one_that_is_found(void **state) {
    (void)state;
    static uint8_t whole[FILE_BYTES_MAX], again[FILE_BYTES_MAX];
    char path[512], samples[4200], folder[512];
    lever_train_options options;
    lever_train_result result;
    const char *cache = scratch_folder();
    snprintf(folder, sizeof(folder), "%s", cache);
    fill_training(&options, folder);
    options.keep_samples = true;
    CHECK_OK(lever_train(&options, &result, &error));
    assert_true(result.learned_samples > 100 && result.held_out_samples > 10 && result.recall > 0);
    assert_true(result.loss <= result.draft_loss + 1e-3);
    const size_t bytes = read_file(result.path, whole);
    assert_int_equal(bytes, result.file_bytes);
    world w;
    pair_answer got;
    lever_generate_options generate;
    open_world(&w, NULL, folder, 1);
    pairs_sampling(&generate, 0, ANSWER);
    generate.prune_forced = true; /* it is asked whether it pays or not */
    answer(&w, 0, &generate, &got);
    assert_true(got.statistics.cycles_scored > 0);
    close_world(&w);
    /* A run that was killed in the middle of a text goes on to the same predictor. */
    snprintf(samples, sizeof(samples), "%s.samples", result.path);
    FILE *file = fopen(samples, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_int_equal(ftruncate(fileno(file), ftell(file) * 2 / 3), 0);
    fclose(file);
    options.keep_samples = false;
    CHECK_OK(lever_train(&options, &result, &error));
    assert_int_equal(read_file(result.path, again), bytes);
    assert_memory_equal(again, whole, bytes);
    assert_int_equal(access(samples, F_OK), -1);
    /* Files of text do as well. */
    const char *const texts[] = {
        scratch_write("text.txt", "a text of some words, some words and words", 42, path, sizeof(path))};
    options.prompts_count = 0;
    options.texts = texts;
    options.texts_count = 1;
    CHECK_OK(lever_train(&options, &result, &error));
    assert_true(result.learned_samples > 5);
}

/* Answers refine the predictor; what they say does not change. */
static void test_learning_keeps_the_text(void **state) {
    (void)state;
    static const pair_way way = {.level = {[PAIR_BUDGET] = 2, [PAIR_COSTS] = 1}};
    lever_engine_options options;
    pair_answer wanted, got;
    world w = {0};
    pairs_engine_options(&options, &way);
    options.predictor_path = pairs_predictor_path();
    options.cache_dir = scratch_folder();
    options.learn = true;
    w.engine = lv_test_open(&options);
    w.session = lv_test_session(w.engine);
    for (uint32_t n = 0; n < 12; n++) {
        lever_generate_options generate;
        pairs_sampling(&generate, n % PAIR_SAMPLINGS, ANSWER);
        generate.strategy = LEVER_STRATEGY_AR;
        answer(&w, n % PROMPTS, &generate, &wanted);
        generate.strategy = LEVER_STRATEGY_LEVER;
        answer(&w, n % PROMPTS, &generate, &got);
        pairs_check_same(&got, &wanted, "while learning");
        assert_int_equal(lv_learning_samples_count(w.session->learning), 0);
    }
    close_world(&w);
}

static void test_training_refuses(void **state) {
    (void)state;
    lever_train_options options;
    fill_training(&options, NULL);
    CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_ARGUMENT, "no cache folder");
    options.output_path = "/nowhere/at/all.predictor";
    CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_IO, "/nowhere/at/all.predictor");
    options.prompts_count = 0;
    CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_ARGUMENT, "nothing to train on");
    options.draft_path = NULL;
    CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_ARGUMENT, "for a pair");
    fill_training(&options, NULL);
    options.output_path = "x.predictor";
    options.layer = 100;
    CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_ARGUMENT, "layer 100");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_does_not_depend_on_what_goes),
        cmocka_unit_test(test_frozen_costs_give_the_same_cycles),
        cmocka_unit_test(test_who_knows_loses_nothing),
        cmocka_unit_test(test_files_that_cannot_be_used),
        cmocka_unit_test(test_training_makes_one_that_is_found),
        cmocka_unit_test(test_learning_keeps_the_text),
        cmocka_unit_test(test_training_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
