/* test_pruned.c - pruning on a generated pair: the text is that of plain decoding whatever goes; a pruner that knows
 * loses nothing; predictors that cannot be used are a warning; training makes one that can, and goes on where it
 * stopped. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/samples_file.h"
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

static void open_pair(world *w, lever_engine_options *options, const char *predictor, const char *cache_dir) {
    memset(w, 0, sizeof(*w));
    options->predictor_path = predictor;
    options->cache_dir = cache_dir;
    options->log = take_line;
    options->log_user = w;
    w->engine = lv_test_open(options);
    w->session = lv_test_session(w->engine);
}

/* Two threads draft ahead; they take long where other programs run, so they do little. */
static void open_world(world *w, const char *predictor, const char *cache_dir, uint8_t threads) {
    const pair_way way = {.level = {[PAIR_BUDGET] = 2, [PAIR_THREADS] = (uint8_t)(threads - 1), [PAIR_COSTS] = 1}};
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    open_pair(w, &options, predictor, cache_dir);
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

/* --- Going on ---------------------------------------------------------------------------------------------------- */

static const char *const other_prompts[] = {"one", "two words", "something else", "and more of it", "the last"};

/* A folder of its own in the scratch folder, for a cache. */
static const char *cache_folder(const char *name, char *path, size_t capacity) {
    char file[64];
    snprintf(file, sizeof(file), "%s/empty", name);
    scratch_write(file, "", 0, path, capacity);
    *strrchr(path, '/') = '\0';
    return path;
}

typedef struct {
    uint8_t bytes[FILE_BYTES_MAX];
    size_t count;
    uint64_t samples_count;
} trained;

static void train(const lever_train_options *options, trained *to) {
    lever_train_result result;
    CHECK_OK(lever_train(options, &result, &error));
    to->count = read_file(result.path, to->bytes);
    to->samples_count = result.learned_samples + result.held_out_samples;
}

static void check_same(const trained *got, const trained *wanted, const char *what) {
    if (got->samples_count != wanted->samples_count) {
        fail_msg("%s: %u samples instead of %u", what, (unsigned)got->samples_count, (unsigned)wanted->samples_count);
    }
    assert_int_equal(got->count, wanted->count);
    if (memcmp(got->bytes, wanted->bytes, got->count) != 0) fail_msg("%s: another predictor", what);
}

/* Whatever stands in the file, the predictor is that of the texts that were given, in their order. */
static void test_texts_are_told_apart(void **state) {
    (void)state;
    static const char *const turned[] = {"two words", "one", "and three words", "four words are here"};
    static trained wanted, got;
    char kept[512], fresh[512];
    const struct {
        const char *what;
        const char *const *prompts;
        size_t count;
        uint32_t answer_tokens;
    } runs[] = {
        {"the first two are the same", other_prompts, 5, 24},
        {"another order", turned, 4, 24},
        {"longer answers", prompts, 4, 31},
        {"nothing in common", other_prompts + 2, 3, 31},
        {"fewer", prompts, 2, 31},
    };
    lever_train_options options;
    cache_folder("kept", kept, sizeof(kept));
    fill_training(&options, kept);
    options.keep_samples = true;
    train(&options, &got);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "fresh-%zu", i);
        options.prompts = runs[i].prompts;
        options.prompts_count = runs[i].count;
        options.answer_tokens = runs[i].answer_tokens;
        options.cache_dir = kept;
        train(&options, &got);
        options.cache_dir = cache_folder(name, fresh, sizeof(fresh));
        train(&options, &wanted);
        check_same(&got, &wanted, runs[i].what);
    }
}

/* Where a run ends is counted as if it had never been interrupted; a file that holds more is no reason for more. */
static void test_the_end_is_counted_alike(void **state) {
    (void)state;
    static trained few, many, got;
    char folder[512], path[512];
    lever_train_options options;
    fill_training(&options, cache_folder("counted", folder, sizeof(folder)));
    const char *const texts[] = {
        scratch_write("counted.txt", "some words of a text that goes on for a while", 45, path, sizeof(path))};
    options.texts = texts;
    options.texts_count = 1;
    options.keep_samples = true;
    options.tokens_max = 2 * (options.answer_tokens + 1); /* a sample stands in front of each answer too */
    train(&options, &few);
    assert_int_equal(few.samples_count, options.tokens_max);
    train(&options, &got);
    check_same(&got, &few, "again");
    options.tokens_max = 100000;
    train(&options, &many);
    assert_true(many.samples_count > 4 * few.samples_count);
    options.tokens_max = 2 * (options.answer_tokens + 1);
    train(&options, &got);
    check_same(&got, &few, "fewer than there are");
    options.tokens_max = 100000;
    train(&options, &got);
    check_same(&got, &many, "all again");
    /* Answers that end before they have to. */
    static const char *const short_ones[] = {"the same text", "the same text", "one", "two words", "and three words"};
    options.prompts = short_ones;
    options.prompts_count = sizeof(short_ones) / sizeof(*short_ones);
    options.answer_tokens = 200;
    options.tokens_max = 150;
    train(&options, &few);
    assert_int_not_equal(few.samples_count % (options.answer_tokens + 1), 0);
    train(&options, &got);
    check_same(&got, &few, "short answers");
}

/* --- Samples that were made by hand ------------------------------------------------------------------------------ */

typedef struct {
    lv_samples_heading heading;
    lv_samples_block block;
    lv_samples_parts parts;
    char path[4200];
} samples_world;

/* Trains on one prompt, and reads the heading and the one block that it leaves. */
static void open_samples(samples_world *w, lever_train_options *options) {
    lever_train_result result;
    memset(w, 0, sizeof(*w));
    options->keep_samples = true;
    CHECK_OK(lever_train(options, &result, &error));
    snprintf(w->path, sizeof(w->path), "%s.samples", result.path);
    FILE *file = fopen(w->path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(&w->heading, sizeof(w->heading), 1, file), 1);
    CHECK_OK(lv_samples_parts_open(&w->parts, &w->heading, NULL, &error));
    assert_true(lv_samples_read(file, &w->heading, &w->block, &w->parts));
    fclose(file);
}

static void write_samples(samples_world *w, uint32_t times) {
    FILE *file = fopen(w->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&w->heading, sizeof(w->heading), 1, file), 1);
    for (uint32_t i = 0; i < times; i++) {
        CHECK_OK(lv_samples_append(w->path, file, &w->heading, &w->block, &w->parts, &error));
    }
    fclose(file);
}

static void test_samples_that_cannot_be(void **state) {
    (void)state;
    char folder[512];
    samples_world w;
    lever_train_options options;
    fill_training(&options, cache_folder("hostile", folder, sizeof(folder)));
    options.prompts_count = 1;
    open_samples(&w, &options);
    lv_sample *sample = &w.parts.samples[w.block.samples_count / 2];
    const lv_sample sound = *sample;
    assert_true(sound.candidates_count > 2);
    for (uint32_t n = 0; n < 6; n++) {
        *sample = sound;
        if (n == 0) sample->candidates_count = LV_TRAINING_CANDIDATES_MAX + 1;
        if (n == 1) sample->candidates_count = sample->label = UINT8_MAX;
        if (n == 2) sample->label = (uint8_t)(sample->candidates_count + 1);
        if (n == 3) sample->candidates[1].row = w.heading.vocabulary;
        if (n == 4) sample->candidates[2].row = UINT32_MAX;
        if (n == 5) sample->candidates[0].features[0] = NAN;
        write_samples(&w, 1);
        CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_FORMAT, "a sample that cannot be");
        assert_non_null(strstr(error.message, w.path));
    }
    *sample = sound;
    write_samples(&w, 1);
    CHECK_OK(lever_train(&options, NULL, &error));
    lv_samples_parts_close(&w.parts);
}

/* A budget by which both models open, found by what the messages name as the least that would do; not much more. */
static uint64_t least_bytes(const lever_train_options *options) {
    lever_train_options tried = *options;
    tried.ram_bytes = 1;
    while (lever_train(&tried, NULL, &error) != LEVER_OK) {
        const char *at = strstr(error.message, "the least that would do is");
        if (!at) fail_msg("%s", error.message);
        tried.ram_bytes = strtoull(strchr(at, '(') + 1, NULL, 10) + (1u << 20); /* the process itself may grow */
    }
    return tried.ram_bytes;
}

/* The least budget holds both models and what collecting takes; many samples do not fit it, and that is said. */
static void test_training_keeps_its_budget(void **state) {
    (void)state;
    enum { TIMES = 120 };
    static const char *same[TIMES];
    char folder[512];
    samples_world w;
    lever_train_options options;
    lever_train_result result;
    for (size_t i = 0; i < TIMES; i++) same[i] = "the same text";
    fill_training(&options, cache_folder("budget", folder, sizeof(folder)));
    options.prompts = same;
    options.prompts_count = 1;
    options.ram_bytes = least_bytes(&options);
    open_samples(&w, &options);
    w.block.samples_count = LV_SAMPLES_TOKENS_MAX;
    for (uint32_t i = 1; i < LV_SAMPLES_TOKENS_MAX; i++) w.parts.samples[i] = w.parts.samples[0];
    write_samples(&w, TIMES);
    options.prompts_count = TIMES;
    options.tokens_max = UINT32_MAX;
    CHECK_FAILS(lever_train(&options, NULL, &error), LEVER_E_BUDGET, "learning from 61440 samples");
    assert_int_equal(access(w.path, F_OK), 0);
    const char *fewer = strstr(error.message, "-n ");
    assert_non_null(fewer);
    options.tokens_max = (uint32_t)strtoul(fewer + 3, NULL, 10) / 2; /* the process itself may have grown */
    assert_true(options.tokens_max > LV_SAMPLES_TOKENS_MAX);
    CHECK_OK(lever_train(&options, &result, &error));
    assert_true(result.learned_samples + result.held_out_samples < options.tokens_max + LV_SAMPLES_TOKENS_MAX);
    assert_true(result.rss_peak > 0 && result.collect_seconds + result.learn_seconds > 0);
    lv_samples_parts_close(&w.parts);
}

/* --- Learning ---------------------------------------------------------------------------------------------------- */

/* Costs by which rows are dear and reading is free: by them alone, what the predictor finds unlikely goes. */
static const char *dear_rows_path(void) {
    static char path[512];
    static char text[64 << 10];
    lv_costs costs;
    lv_calibration calibration;
    lv_costs_init(&costs, 2e-3, 1e-4, 2e-4, 0, 0);
    lv_calibration_init(&calibration);
    size_t bytes = lv_costs_write(&costs, text, sizeof(text));
    bytes += lv_calibration_write(&calibration, text + bytes, sizeof(text) - bytes);
    assert_true(bytes < sizeof(text));
    return scratch_write("dear.costs", text, bytes, path, sizeof(path));
}

/* The pair's predictor whose scores mean nothing, which promises to lose nothing. */
static const char *promising_path(void) {
    static uint8_t file[FILE_BYTES_MAX];
    static char path[512];
    const size_t bytes = read_file(pairs_predictor_path(), file);
    lv_predictor *predictor = NULL;
    CHECK_OK(lv_predictor_read(&predictor, file, bytes, "x", NULL, &error));
    predictor->recall = 1;
    lv_predictor_write(predictor, file);
    lv_predictor_close(&predictor);
    return scratch_write("promising.predictor", file, bytes, path, sizeof(path));
}

static void open_learning(world *w, const char *predictor, const char *cache_dir, const char *costs, bool learn) {
    static const pair_way way = {.level = {[PAIR_BUDGET] = 2, [PAIR_COSTS] = 1}};
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    if (costs) options.costs_path = costs;
    options.learn = learn;
    open_pair(w, &options, predictor, cache_dir);
}

/* Answers refine the predictor; what they say does not change. What was learned is found again. */
static void test_learning_keeps_the_text(void **state) {
    (void)state;
    static uint8_t learned[FILE_BYTES_MAX], found[FILE_BYTES_MAX];
    char folder[512];
    pair_answer wanted, got;
    world w;
    uint64_t scored = 0;
    open_learning(&w, pairs_predictor_path(), cache_folder("learned", folder, sizeof(folder)), NULL, true);
    for (uint32_t n = 0; n < 12; n++) {
        lever_generate_options generate;
        pairs_sampling(&generate, n % PAIR_SAMPLINGS, ANSWER);
        generate.strategy = LEVER_STRATEGY_AR;
        answer(&w, n % PROMPTS, &generate, &wanted);
        generate.strategy = LEVER_STRATEGY_LEVER;
        answer(&w, n % PROMPTS, &generate, &got);
        pairs_check_same(&got, &wanted, "while learning");
        assert_int_equal(lv_learning_samples_count(w.session->learning), 0);
        assert_true(got.statistics.cycles_scored > 0);
        scored += got.statistics.cycles_scored;
    }
    assert_true(scored > 12);
    assert_true(w.engine->predictor->version > 0); /* it was better, and was taken */
    const size_t bytes = lv_predictor_file_bytes(&w.engine->predictor->shape);
    assert_true(bytes <= FILE_BYTES_MAX);
    lv_predictor_write(w.engine->predictor, learned);
    close_world(&w);
    assert_int_equal(read_file(pairs_predictor_path(), found), bytes);
    assert_memory_not_equal(found, learned, bytes);
    open_learning(&w, NULL, folder, NULL, false);
    assert_non_null(w.engine->predictor);
    lv_predictor_write(w.engine->predictor, found);
    assert_memory_equal(found, learned, bytes);
    close_world(&w);
}

static void fill_dear(lever_generate_options *options, uint32_t number) {
    pairs_sampling(options, number % PAIR_SAMPLINGS, ANSWER);
    options->tree_nodes = 40;
    options->prune_cap = 100;
}

/* A predictor that does not keep its promise prunes less and less, then not at all, and each time it is said. */
static void test_a_broken_promise(void **state) {
    (void)state;
    pair_answer got;
    world w;
    lever_generate_options options;
    open_learning(&w, promising_path(), NULL, dear_rows_path(), false);
    for (uint32_t n = 0; !strstr(w.warnings, "pruning ends"); n++) {
        assert_true(n < 60);
        fill_dear(&options, n);
        answer(&w, n % PROMPTS, &options, &got);
    }
    const char *first = strstr(w.warnings, "pruning becomes milder");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "pruning becomes milder"));
    assert_true(first < strstr(w.warnings, "pruning ends"));
    fill_dear(&options, 1);
    answer(&w, 1, &options, &got);
    assert_true(got.statistics.cycles_scored == 0 && got.statistics.nodes_pruned == 0);
    close_world(&w);
}

/* Where learning has made another one of it, pruning begins anew. */
static void test_learning_ends_the_penalty(void **state) {
    (void)state;
    char folder[512];
    pair_answer got;
    world w;
    lever_generate_options options;
    open_learning(&w, promising_path(), cache_folder("penalty", folder, sizeof(folder)), dear_rows_path(), true);
    w.session->cycle.pruning.watch.level = LV_PRUNING_LEVELS;
    for (uint32_t n = 0; w.engine->predictor->version == 0; n++) {
        assert_true(n < 60);
        fill_dear(&options, n);
        answer(&w, n % PROMPTS, &options, &got);
        assert_true(got.statistics.cycles_scored > 0 && got.statistics.nodes_pruned == 0);
    }
    fill_dear(&options, 0);
    options.tokens_max = ANSWER / 2;
    answer(&w, 0, &options, &got);
    assert_true(got.statistics.nodes_pruned > 0);
    close_world(&w);
}

/* Each session has memory of its own to learn with, and the plan knows it. */
static void test_sessions_that_learn_are_planned(void **state) {
    (void)state;
    static const pair_way way = {.level = {[PAIR_BUDGET] = 2, [PAIR_PRUNING] = 1}};
    uint64_t bytes[2][2]; /* by sessions, by whether they learn */
    for (uint32_t n = 0; n < 4; n++) {
        lever_engine_options options;
        lever_plan plan;
        pairs_engine_options(&options, &way);
        options.sessions_max = n / 2 ? 5 : 1;
        options.learn = n % 2;
        CHECK_OK(lever_engine_plan(&options, &plan, &error));
        bytes[n / 2][n % 2] = plan.draft_bytes; /* not all of the plan: the process itself grows between two */
    }
    assert_true(bytes[0][1] - bytes[0][0] > 100 << 10);
    assert_int_equal(bytes[1][1] - bytes[1][0], 5 * (bytes[0][1] - bytes[0][0]));
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
        cmocka_unit_test(test_texts_are_told_apart),
        cmocka_unit_test(test_the_end_is_counted_alike),
        cmocka_unit_test(test_samples_that_cannot_be),
        cmocka_unit_test(test_training_keeps_its_budget),
        cmocka_unit_test(test_learning_keeps_the_text),
        cmocka_unit_test(test_a_broken_promise),
        cmocka_unit_test(test_learning_ends_the_penalty),
        cmocka_unit_test(test_sessions_that_learn_are_planned),
        cmocka_unit_test(test_training_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
