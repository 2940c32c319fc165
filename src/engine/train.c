/* train.c - lever_train: texts, samples, and the predictor that learns from them.
 *
 * Both models are open while text is written and gone through, and closed before anything is learned, so that the two
 * halves never need memory at once. The first half lives in the engine's ledger, whose plan reserves what collecting
 * takes; the second in a ledger of its own, with the same budget less what the process still holds.
 *
 * Prompts come first, then files, both in their order. The file of samples knows its texts, so that a run that goes on
 * does the same as one that was never interrupted, and a run on other texts never learns from those of another. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/system.h"
#include "base/text.h"
#include "engine/collecting.h"
#include "spec/training.h"

enum {
    PATH_BYTES = 4096,
    CHUNK_TOKENS = 384, /* of a file: one text */
    ANSWER_TOKENS_DEFAULT = 110,
    TOKENS_DEFAULT = 40000,
    RANK_DEFAULT = 8,
    PIECE_BYTES = 32 << 10, /* of a file: what is turned into tokens at once */
    EPOCHS_MAX = 16,
};

typedef struct {
    const lever_train_options *options;
    lever_train_result *result;
    lv_log log;
    uint64_t budget_bytes; /* of the process, as it came to be in force */
    lv_ledger *ledger;     /* of learning */
    lever_engine *engine;
    lever_session *session;
    lv_collecting *collecting;
    lv_collected collected;
    uint32_t layers[LV_SAMPLES_LAYERS_MAX], layers_count, layers_all;
    lv_predictor_shape shape;
    char samples_path[PATH_BYTES];
    int32_t *tokens; /* of one text: LV_SAMPLES_TOKENS_MAX */
    char *piece;     /* of a file */
    int32_t *piece_tokens;
    uint64_t tokens_seen;
    lv_predictor *best;
    uint32_t rounds_done;
} trainer;

void lever_train_options_init(lever_train_options *options) {
    memset(options, 0, sizeof(*options));
    options->answer_tokens = ANSWER_TOKENS_DEFAULT;
    options->tokens_max = TOKENS_DEFAULT;
    options->seed = 1;
}

static lever_status check_options(const lever_train_options *o, lever_error *error) {
    if (!o->model_path || !o->draft_path) {
        return lv_fail(error, LEVER_E_ARGUMENT, "a predictor is trained for a pair: give model_path and draft_path");
    }
    if ((o->prompts_count > 0 && !o->prompts) || (o->texts_count > 0 && !o->texts)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "%zu prompts and %zu files of text are counted, but %s is NULL",
                       o->prompts_count, o->texts_count, o->prompts_count > 0 && !o->prompts ? "prompts" : "texts");
    }
    if (o->prompts_count == 0 && o->texts_count == 0) {
        return lv_fail(error, LEVER_E_ARGUMENT, "there is nothing to train on: give prompts or files of text");
    }
    if (!o->output_path && !o->cache_dir) {
        return lv_fail(error, LEVER_E_ARGUMENT, "there is no cache folder to keep the predictor in; give output_path");
    }
    struct stat output;
    if (o->output_path && !o->output_path[0]) {
        return lv_fail(error, LEVER_E_ARGUMENT, "output_path is empty; name a file for the predictor, or give NULL");
    }
    if (o->output_path && stat(o->output_path, &output) == 0 && !S_ISREG(output.st_mode)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "%s is there and is not a file; name a file for the predictor",
                       o->output_path);
    }
    if (o->rank > LV_PREDICTOR_RANK_MAX || o->answer_tokens > LV_SAMPLES_TOKENS_MAX / 2 || !(o->miss_weight >= 0) ||
        !isfinite(o->miss_weight)) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "rank %u (at most %d), answers of %u tokens (at most %d), miss_weight %g: one is out of range",
                       o->rank, LV_PREDICTOR_RANK_MAX, o->answer_tokens, LV_SAMPLES_TOKENS_MAX / 2,
                       (double)o->miss_weight);
    }
    return LEVER_OK;
}

/* --- Opening ----------------------------------------------------------------------------------------------------- */

enum { PIECE_TOKENS = PIECE_BYTES + 16 };

static uint64_t texts_bytes(void) {
    return PIECE_BYTES + (PIECE_TOKENS + LV_SAMPLES_TOKENS_MAX) * sizeof(int32_t);
}

/* What the engine's plan leaves free. */
static uint64_t reserved_bytes(const lv_model *target, const lv_model *draft) {
    return lv_collecting_bytes(target, draft) + texts_bytes();
}

static lever_status open_engine(trainer *t, lever_error *error) {
    const lever_train_options *o = t->options;
    lever_engine_options options;
    lever_engine_options_init(&options);
    options.model_path = o->model_path;
    options.draft_path = o->draft_path;
    options.draft_forced = true;
    options.no_predictor = true;
    options.cache_dir = o->cache_dir;
    options.ram_bytes = o->ram_bytes;
    options.threads = o->threads;
    options.context_tokens = LV_SAMPLES_TOKENS_MAX;
    options.log = o->log;
    options.log_user = o->log_user;
    options.progress = o->progress;
    options.progress_user = o->progress_user;
    LV_TRY(lv_engine_open_reserving(&t->engine, &options, reserved_bytes, error));
    t->budget_bytes = lv_ledger_limit(t->engine->ledger);
    t->layers_all = t->engine->model->hparams.layers_count;
    if (o->layer >= t->layers_all) {
        return lv_fail(error, LEVER_E_ARGUMENT, "layer %u: the model has %u; give one of 1 to %u, or 0", o->layer,
                       t->layers_all, t->layers_all - 1);
    }
    t->shape = (lv_predictor_shape){
        .target_hash = lv_weights_fingerprint(t->engine->weights),
        .draft_hash = lv_weights_fingerprint(t->engine->draft->weights),
        .layers_count = t->layers_all,
        .width = t->engine->model->hparams.embedding,
        .rank = o->rank ? o->rank : RANK_DEFAULT,
    };
    lever_session_options session;
    lever_session_options_init(&session);
    return lever_session_open(&t->session, t->engine, &session, error);
}

static void close_engine(trainer *t) {
    lv_collecting_close(&t->collecting);
    lv_free(t->piece_tokens);
    lv_free(t->piece);
    lv_free(t->tokens);
    lever_session_close(&t->session);
    lever_engine_close(&t->engine);
}

/* A third, a half, two thirds and three quarters of the way: what goes earlier saves more, what is seen later is surer.
 */
static void choose_layers(trainer *t) {
    const uint32_t wanted[] = {t->layers_all / 3, t->layers_all / 2, t->layers_all * 2 / 3, t->layers_all * 3 / 4};
    if (t->options->layer) {
        t->layers[t->layers_count++] = t->options->layer;
        return;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        const uint32_t layer = wanted[i] > 0 ? wanted[i] : 1;
        if (layer >= t->layers_all || (t->layers_count > 0 && layer <= t->layers[t->layers_count - 1])) continue;
        t->layers[t->layers_count++] = layer;
    }
}

static lever_status find_paths(trainer *t, lever_error *error) {
    char *path = t->result->path;
    if (t->options->output_path) {
        const int length = snprintf(path, sizeof(t->result->path), "%s", t->options->output_path);
        if (length < 0 || (size_t)length >= sizeof(t->result->path)) {
            return lv_fail(error, LEVER_E_ARGUMENT, "the path of the predictor is too long");
        }
    } else {
        const lv_predictor_place place = {
            .cache_dir = t->options->cache_dir, .target = t->engine->weights, .draft = t->engine->draft->weights};
        LV_TRY(lv_predictor_file_path(&place, path, sizeof(t->result->path), error));
    }
    const int length = snprintf(t->samples_path, sizeof(t->samples_path), "%s.samples", path);
    if (length < 0 || (size_t)length >= sizeof(t->samples_path)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the path of the predictor is too long");
    }
    return LEVER_OK;
}

/* --- Texts ------------------------------------------------------------------------------------------------------- */

static bool is_enough(const trainer *t) {
    return t->tokens_seen >= t->options->tokens_max;
}

static void count_samples(trainer *t, uint64_t count) {
    const uint64_t most = t->options->tokens_max;
    t->tokens_seen += count;
    if (t->options->progress) {
        t->options->progress(t->options->progress_user, LEVER_STAGE_COLLECT,
                             t->tokens_seen < most ? t->tokens_seen : most, most);
    }
}

/* Counts the text as it was counted when it was collected. */
static lever_status find_text(trainer *t, const lv_collecting_text *text, bool *found, lever_error *error) {
    uint32_t samples_count;
    LV_TRY(lv_collecting_find(t->collecting, text, found, &samples_count, error));
    if (*found) count_samples(t, samples_count);
    return LEVER_OK;
}

static lever_status add_text(trainer *t, const int32_t *tokens, size_t count, size_t first, lever_error *error) {
    LV_TRY(lv_collecting_add(t->collecting, tokens, count, first, error));
    count_samples(t, count - first);
    return LEVER_OK;
}

static lever_status add_prompt(trainer *t, const char *prompt, lever_error *error) {
    const lever_message message = {"user", prompt};
    const size_t most = LV_SAMPLES_TOKENS_MAX - t->options->answer_tokens;
    size_t count = 0;
    bool found;
    lever_status status = lever_chat_tokenize(t->engine, &message, 1, true, t->tokens, most, &count, error);
    if (status == LEVER_E_TEMPLATE) {
        status = lever_tokenize(t->engine, prompt, strlen(prompt), true, false, t->tokens, most, &count, error);
    }
    if (status == LEVER_E_ARGUMENT && count > most) return LEVER_OK; /* too long for a text: left out */
    if (status != LEVER_OK || count == 0) return status;
    const lv_collecting_text text = {t->tokens, count, count - 1, t->options->answer_tokens};
    LV_TRY(find_text(t, &text, &found, error));
    if (found) return LEVER_OK;
    lever_generate_options generate;
    lever_generate_options_init(&generate);
    generate.temperature = 0;
    generate.tokens_max = t->options->answer_tokens;
    LV_TRY(lever_session_prompt(t->session, t->tokens, count, error));
    LV_TRY(lever_session_generate(t->session, &generate, NULL, NULL, NULL, error));
    size_t all = 0;
    const int32_t *tokens = lever_session_tokens(t->session, &all);
    if (all > LV_SAMPLES_TOKENS_MAX) all = LV_SAMPLES_TOKENS_MAX;
    memcpy(t->tokens, tokens, all * sizeof(*tokens));
    return add_text(t, t->tokens, all, count - 1, error);
}

static lever_status add_chunks(trainer *t, const int32_t *tokens, size_t count, lever_error *error) {
    for (size_t at = 0; at + 1 < count && !is_enough(t); at += CHUNK_TOKENS) {
        const size_t left = count - at, taken = left < CHUNK_TOKENS ? left : CHUNK_TOKENS;
        const lv_collecting_text text = {tokens + at, taken, 0, 0};
        bool found;
        LV_TRY(find_text(t, &text, &found, error));
        if (!found) LV_TRY(add_text(t, tokens + at, taken, 0, error));
    }
    return LEVER_OK;
}

/* Where a piece ends that is followed by more: behind a line, or, in a longer one, before a whole character. */
static size_t piece_end(const char *text, size_t bytes) {
    size_t end = bytes;
    while (end > 0 && text[end - 1] != '\n') end--;
    if (end > 0) return end;
    for (end = bytes - 1; end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80;) end--;
    return end > 0 ? end : bytes;
}

static lever_status open_piece(trainer *t, lever_error *error) {
    void *text = NULL, *tokens = NULL;
    lv_ledger *ledger = t->engine->ledger;
    if (t->piece) return LEVER_OK;
    LV_TRY(lv_alloc_checked(&text, ledger, LV_MEM_SESSION, 1, PIECE_BYTES, "a piece of text", error));
    t->piece = text;
    LV_TRY(lv_alloc_checked(&tokens, ledger, LV_MEM_SESSION, PIECE_TOKENS, sizeof(int32_t), "its tokens", error));
    t->piece_tokens = tokens;
    return LEVER_OK;
}

/* A piece at a time: a file may be larger than memory. */
static lever_status add_pieces(trainer *t, const char *path, FILE *file, lever_error *error) {
    size_t kept = 0, count = 0;
    LV_TRY(open_piece(t, error));
    for (bool last = false; !last && !is_enough(t);) {
        const size_t bytes = kept + fread(t->piece + kept, 1, PIECE_BYTES - kept, file);
        if (ferror(file)) return lv_fail(error, LEVER_E_IO, "%s: cannot be read (%s)", path, strerror(errno));
        last = bytes < PIECE_BYTES;
        const size_t end = last ? bytes : piece_end(t->piece, bytes);
        LV_TRY(lever_tokenize(t->engine, t->piece, end, false, false, t->piece_tokens, PIECE_TOKENS, &count, error));
        LV_TRY(add_chunks(t, t->piece_tokens, count, error));
        kept = bytes - end;
        memmove(t->piece, t->piece + end, kept);
    }
    return LEVER_OK;
}

static lever_status add_file(trainer *t, const char *path, lever_error *error) {
    FILE *file = fopen(path, "re");
    if (!file) return lv_fail(error, LEVER_E_IO, "%s: cannot be read (%s); give a file of text", path, strerror(errno));
    const lever_status status = add_pieces(t, path, file, error);
    (void)fclose(file);
    return status;
}

static lever_status collect(trainer *t, lever_error *error) {
    const lever_train_options *o = t->options;
    void *memory = NULL;
    LV_TRY(open_engine(t, error));
    LV_TRY(find_paths(t, error));
    choose_layers(t);
    LV_TRY(lv_alloc_checked(&memory, t->engine->ledger, LV_MEM_SESSION, LV_SAMPLES_TOKENS_MAX, sizeof(int32_t),
                            "a text", error));
    t->tokens = memory;
    LV_TRY(lv_collecting_open(&t->collecting, t->engine, t->samples_path, t->layers, t->layers_count, error));
    for (size_t i = 0; i < o->prompts_count && !is_enough(t); i++) LV_TRY(add_prompt(t, o->prompts[i], error));
    for (size_t i = 0; i < o->texts_count && !is_enough(t); i++) LV_TRY(add_file(t, o->texts[i], error));
    return lv_collecting_finish(t->collecting, &t->collected, error);
}

/* --- Learning ---------------------------------------------------------------------------------------------------- */

static void tell_epoch(void *user, uint32_t epoch, uint32_t epochs_max) {
    const trainer *t = user;
    if (!t->options->progress) return;
    t->options->progress(t->options->progress_user, LEVER_STAGE_TRAIN, t->rounds_done + epoch,
                         (uint64_t)epochs_max * t->layers_count);
}

/* What a predictor behind this layer saves of the rows' layers. */
static double saves(const trainer *t, uint32_t layer, double prunable) {
    return prunable * (1 - (double)layer / (double)t->layers_all);
}

static void take_result(trainer *t, uint32_t layer, const lv_training_result *from) {
    lever_train_result *to = t->result;
    to->layer = layer;
    to->layers_count = t->layers_all;
    to->rank = t->shape.rank;
    to->learned_samples = from->learned_count;
    to->held_out_samples = from->held_out_count;
    to->draft_loss = from->draft_loss;
    to->loss = from->loss;
    to->draft_recall = from->draft_recall;
    to->recall = from->recall;
    to->prunable = from->prunable;
}

static lever_status learn_layer(trainer *t, uint32_t index, double *best_saving, lever_error *error) {
    lv_predictor *predictor = NULL;
    lv_training_options options;
    lv_training_result result;
    const uint32_t layer = t->layers[index];
    LV_TRY(lv_collected_load(&t->collected, index, t->ledger, error));
    t->shape.layer = layer;
    LV_TRY(lv_predictor_open(&predictor, &t->shape, t->options->seed, t->ledger, error));
    lv_training_options_init(&options);
    options.seed = t->options->seed;
    options.epochs_max = EPOCHS_MAX;
    if (t->options->miss_weight > 0) options.miss_weight = t->options->miss_weight;
    options.progress = tell_epoch;
    options.progress_user = t;
    const lever_status status = lv_training_run(predictor, &t->collected.samples, &options, &result, t->ledger, error);
    t->rounds_done += options.epochs_max;
    if (status == LEVER_OK) {
        const double saving = saves(t, layer, result.prunable);
        lv_log_write(
            &t->log, LEVER_LOG_INFO,
            "layer %u of %u: held-out loss %.4f (the draft alone %.4f) after %u rounds, recall at 40 %% pruned "
            "%.4f (%.4f), %.1f %% can go with a recall of 0.97, which saves %.1f %% of the rows' layers",
            layer, t->layers_all, result.loss, result.draft_loss, result.epochs, result.recall, result.draft_recall,
            100 * result.prunable, 100 * saving);
        if (!t->best || saving > *best_saving) {
            *best_saving = saving;
            lv_predictor *const other = t->best;
            t->best = predictor;
            predictor = other;
            take_result(t, layer, &result);
        }
    }
    lv_predictor_close(&predictor);
    return status;
}

/* What learning takes beside samples and rows: the best predictor so far, the one that learns, and a file of it. */
static uint64_t predictors_bytes(const trainer *t) {
    return 2 * (uint64_t)lv_predictor_bytes(&t->shape) + lv_predictor_file_bytes(&t->shape);
}

static lever_status refuse_samples(const trainer *t, uint64_t wanted, uint64_t left, lever_error *error) {
    char wants[32], budget[32], has[32], enough[32], fewer[64] = "";
    const size_t count = t->collected.samples.samples_count;
    const uint64_t each = lv_collected_sample_bytes(&t->collected) +
                          (lv_training_bytes(&t->shape, count) - lv_training_bytes(&t->shape, 0)) / (count ? count : 1);
    const uint64_t missing = wanted - left, too_many = missing / each + 1;
    if (too_many < count) {
        snprintf(fewer, sizeof(fewer), ", or fewer tokens with -n %llu", (unsigned long long)(count - too_many));
    }
    return lv_fail(
        error, LEVER_E_BUDGET,
        "learning from %zu samples takes %s, but the budget of %s leaves %s beside the program: give --ram %s "
        "or more%s; what was collected is kept in %s",
        count, lv_format_size(wanted, wants, sizeof(wants)), lv_format_size(t->budget_bytes, budget, sizeof(budget)),
        lv_format_size(left, has, sizeof(has)),
        lv_format_size(t->budget_bytes + missing + ((uint64_t)1 << 20), enough, sizeof(enough)), fewer,
        t->samples_path);
}

/* The budget is that of the process: what it holds when the engine is gone counts, and what its heap adds. */
static lever_status open_ledger(trainer *t, lever_error *error) {
    lv_process_memory memory;
    t->ledger = lv_ledger_create(t->budget_bytes);
    if (!t->ledger) return lv_fail(error, LEVER_E_MEMORY, "the system refused memory for the ledger");
    lv_system_trim_heap();
    lv_process_memory_read("", &memory);
    lv_ledger_book(t->ledger, LV_MEM_PROGRAM, memory.rss_bytes + lv_plan_slack_bytes());
    const uint64_t wanted = lv_collected_bytes(&t->collected) + predictors_bytes(t) +
                            lv_training_bytes(&t->shape, t->collected.samples.samples_count);
    const uint64_t left = lv_ledger_free_bytes(t->ledger);
    return wanted <= left ? LEVER_OK : refuse_samples(t, wanted, left, error);
}

static lever_status learn(trainer *t, lever_error *error) {
    double best_saving = 0;
    LV_TRY(open_ledger(t, error));
    LV_TRY(lv_collected_open(&t->collected, t->ledger, error));
    for (uint32_t i = 0; i < t->layers_count; i++) LV_TRY(learn_layer(t, i, &best_saving, error));
    t->result->file_bytes = lv_predictor_file_bytes(&t->best->shape);
    LV_TRY(lv_predictor_file_save(t->best, t->result->path, t->ledger, error));
    if (!t->options->keep_samples) (void)unlink(t->samples_path);
    return LEVER_OK;
}

lever_status lever_train(const lever_train_options *options, lever_train_result *result, lever_error *error) {
    lv_error_clear(error);
    lever_train_result ignored;
    if (!options) return lv_fail(error, LEVER_E_ARGUMENT, "the options of training are NULL");
    LV_TRY(check_options(options, error));
    trainer t = {.options = options, .result = result ? result : &ignored, .log = {options->log, options->log_user}};
    memset(t.result, 0, sizeof(*t.result));
    uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    lever_status status = collect(&t, error);
    close_engine(&t);
    t.result->collect_seconds = lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
    begin_ns = lv_clock_now_ns(&lv_clock_real);
    if (status == LEVER_OK) status = learn(&t, error);
    t.result->learn_seconds = lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
    lv_predictor_close(&t.best);
    lv_collected_free(&t.collected);
    lv_ledger_free(t.ledger);
    lv_process_memory memory;
    lv_process_memory_read("", &memory);
    t.result->rss_peak = memory.rss_peak_bytes;
    return status;
}
