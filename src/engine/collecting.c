/* collecting.c - both models over a text, and the file that their samples go into (samples_file.h).
 *
 * When collecting goes on, blocks of the file are taken in their order as long as they are of the texts that are asked
 * for; where one is not, or is not whole, the file is cut off. A text that is taken from the file gives its tokens to
 * the draft's head, as it did when it was collected: the candidates behind it are the same.
 *
 * Rows of candidates are numbered by token in the file; loading numbers them by their place in the table of rows. That
 * table can be large, so it goes into a file without a name until both models are closed.
 *
 * Depth, which a text does not have, is what drafting a chain would have given: it grows while the target says what was
 * proposed. */
#include "engine/collecting.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/memory.h"
#include "spec/candidates.h"
#include "spec/sampler.h"

enum { LABEL_ROWS = 8, DEPTH_MOST = 24, PATH_BYTES = 4200 };

struct lv_collecting {
    lever_engine *engine;
    const char *path;
    FILE *file;
    lv_samples_heading heading;
    bool goes_on;       /* there may be blocks to take behind where the file stands */
    uint64_t text_hash; /* of the text that is asked for */
    uint32_t texts_count;
    size_t samples_count; /* of these texts */
    lv_kv target_kv, draft_kv;
    lv_candidates *candidates;
    lv_calibration calibration;
    lv_logits_tokens head_tokens;
    int32_t *head_table;
    float *target_logits, *draft_logits; /* LABEL_ROWS x vocabulary; LV_DRAFTING_WIDTH_MAX x rows of the head */
    lv_samples_parts parts;              /* of one text */
    int32_t *labels;
    lv_candidate *found; /* of one text: LV_TREE_CHILDREN_MAX a position */
    uint8_t *found_count;
};

/* --- The file ---------------------------------------------------------------------------------------------------- */

/* From here on the file is written. */
static lever_status cut_off(lv_collecting *c, long end, lever_error *error) {
    c->goes_on = false;
    if (end >= 0 && fseek(c->file, end, SEEK_SET) == 0 && ftruncate(fileno(c->file), end) == 0) return LEVER_OK;
    return lv_samples_fail(c->path, "gone on with", error);
}

/* Another file of samples is written anew; what is none was not ours to write to. */
static lever_status begin_file(lv_collecting *c, lever_error *error) {
    lv_samples_heading heading = {0};
    if (flock(fileno(c->file), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return lv_fail(error, LEVER_E_IO, "%s is being written by another training; wait for its end", c->path);
    }
    const size_t bytes = fread(&heading, 1, sizeof(heading), c->file);
    if (ferror(c->file)) return lv_samples_fail(c->path, "read", error);
    if (bytes > 0 && heading.magic != LV_SAMPLES_MAGIC) {
        return lv_fail(error, LEVER_E_FORMAT,
                       "%s is there and is not a file of samples, which would be written over it: move it, or give the "
                       "predictor another name",
                       c->path);
    }
    c->goes_on = bytes == sizeof(heading) && memcmp(&heading, &c->heading, sizeof(heading)) == 0;
    if (c->goes_on) return LEVER_OK;
    LV_TRY(cut_off(c, 0, error));
    return fwrite(&c->heading, sizeof(c->heading), 1, c->file) == 1 ? LEVER_OK
                                                                    : lv_samples_fail(c->path, "written", error);
}

static uint64_t hash_of_text(const lv_collecting_text *text) {
    const uint64_t numbers[3] = {text->tokens_count, text->first, text->answer_tokens};
    const uint64_t hash = lv_samples_hash(LV_SAMPLES_HASH_FIRST, numbers, sizeof(numbers));
    return lv_samples_hash(hash, text->tokens, text->tokens_count * sizeof(*text->tokens));
}

lever_status lv_collecting_find(lv_collecting *c, const lv_collecting_text *text, bool *found, uint32_t *samples_count,
                                lever_error *error) {
    lv_samples_block block;
    c->text_hash = hash_of_text(text);
    *found = false;
    *samples_count = 0;
    if (!c->goes_on) return LEVER_OK;
    const long begin = ftell(c->file);
    const bool whole = lv_samples_read(c->file, &c->heading, &block, &c->parts);
    if (!whole || block.text_hash != c->text_hash) {
        if (whole) {
            lv_log_write(&c->engine->log, LEVER_LOG_INFO, "%s: holds other texts behind the first %u, which go",
                         c->path, c->texts_count);
        }
        return cut_off(c, begin, error);
    }
    LV_TRY(lv_samples_check(c->path, &c->heading, &block, &c->parts, error));
    LV_TRY(lv_draft_head_add(c->engine->draft->head, c->parts.tokens, block.tokens_count, error));
    c->texts_count++;
    c->samples_count += block.samples_count;
    *found = true;
    *samples_count = block.samples_count;
    return LEVER_OK;
}

static lever_status append(lv_collecting *c, uint32_t tokens_count, uint32_t samples_count, lever_error *error) {
    lv_samples_block block = {.samples_count = samples_count, .tokens_count = tokens_count, .text_hash = c->text_hash};
    LV_TRY(lv_samples_append(c->path, c->file, &c->heading, &block, &c->parts, error));
    c->texts_count++;
    c->samples_count += samples_count;
    return LEVER_OK;
}

/* --- Opening ----------------------------------------------------------------------------------------------------- */

static lv_kv_shape cache_shape(const lv_model *model) {
    const lv_hparams *h = &model->hparams;
    return (lv_kv_shape){.layers_count = h->layers_count,
                         .slots_count = LV_SAMPLES_TOKENS_MAX,
                         .kv_heads_count = h->kv_heads_count,
                         .head_dim = h->head_dim};
}

static lever_status open_kv(lv_kv *kv, const lv_model *model, lv_ledger *ledger, lever_error *error) {
    const lv_kv_shape shape = cache_shape(model);
    return lv_kv_open(kv, ledger, &shape, error);
}

static uint64_t kv_bytes(const lv_model *model) {
    const lv_kv_shape shape = cache_shape(model);
    return lv_area_booked_bytes((size_t)lv_kv_bytes(&shape));
}

/* As open_memory takes it, and gather_rows behind. */
uint64_t lv_collecting_bytes(const lv_model *target, const lv_model *draft) {
    const uint64_t rows = LV_SAMPLES_TOKENS_MAX, head_rows = lv_draft_model_head_rows(draft);
    const uint64_t width = target->hparams.embedding, vocabulary = target->hparams.vocabulary;
    const uint64_t gathering = vocabulary / 8 + 1 + width * (sizeof(float) + sizeof(uint16_t));
    return sizeof(lv_collecting) + kv_bytes(target) + kv_bytes(draft) + head_rows * sizeof(int32_t) +
           LABEL_ROWS * vocabulary * sizeof(float) + LV_DRAFTING_WIDTH_MAX * head_rows * sizeof(float) +
           lv_samples_parts_bytes((uint32_t)width, LV_SAMPLES_LAYERS_MAX) + rows * (sizeof(int32_t) + 1) +
           rows * LV_TREE_CHILDREN_MAX * sizeof(lv_candidate) + lv_candidates_bytes((uint32_t)head_rows) + gathering;
}

static lever_status open_array(void *out, lv_ledger *ledger, size_t count, size_t bytes, lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, count, bytes, "collecting samples", error));
    memcpy(out, &memory, sizeof(memory));
    return LEVER_OK;
}

static lever_status open_memory(lv_collecting *c, lever_error *error) {
    lever_engine *engine = c->engine;
    lv_ledger *ledger = engine->ledger;
    const size_t rows = LV_SAMPLES_TOKENS_MAX, head_rows = lv_draft_head_rows_count(engine->draft->head);
    LV_TRY(open_kv(&c->target_kv, engine->model, ledger, error));
    LV_TRY(open_kv(&c->draft_kv, engine->draft->model, ledger, error));
    LV_TRY(open_array(&c->head_table, ledger, head_rows, sizeof(int32_t), error));
    LV_TRY(open_array(&c->target_logits, ledger, LABEL_ROWS * (size_t)engine->model->hparams.vocabulary, sizeof(float),
                      error));
    LV_TRY(open_array(&c->draft_logits, ledger, LV_DRAFTING_WIDTH_MAX * head_rows, sizeof(float), error));
    LV_TRY(lv_samples_parts_open(&c->parts, &c->heading, ledger, error));
    LV_TRY(open_array(&c->labels, ledger, rows, sizeof(int32_t), error));
    LV_TRY(open_array(&c->found, ledger, rows * LV_TREE_CHILDREN_MAX, sizeof(lv_candidate), error));
    LV_TRY(open_array(&c->found_count, ledger, rows, 1, error));
    return lv_candidates_open(&c->candidates, (uint32_t)head_rows, ledger, error);
}

lever_status lv_collecting_open(lv_collecting **out, lever_engine *engine, const char *path, const uint32_t *layers,
                                uint32_t layers_count, lever_error *error) {
    lv_collecting *c = NULL;
    *out = NULL;
    LV_TRY(open_array(&c, engine->ledger, 1, sizeof(*c), error));
    c->engine = engine;
    c->path = path;
    lv_calibration_init(&c->calibration);
    c->heading = (lv_samples_heading){.magic = LV_SAMPLES_MAGIC,
                                      .width = engine->model->hparams.embedding,
                                      .vocabulary = engine->model->hparams.vocabulary,
                                      .layers_count = layers_count,
                                      .sample_bytes = sizeof(lv_sample),
                                      .block_bytes = sizeof(lv_samples_block),
                                      .target_hash = lv_weights_fingerprint(engine->weights),
                                      .draft_hash = lv_weights_fingerprint(engine->draft->weights)};
    memcpy(c->heading.layers, layers, layers_count * sizeof(*layers));
    lever_status status = open_memory(c, error);
    if (status == LEVER_OK) {
        c->file = fopen(path, "r+be");
        if (!c->file) c->file = fopen(path, "w+be");
        status = c->file ? begin_file(c, error) : lv_samples_fail(path, "written", error);
    }
    if (status != LEVER_OK) lv_collecting_close(&c);
    *out = c;
    return status;
}

void lv_collecting_close(lv_collecting **out) {
    if (!out || !*out) return;
    lv_collecting *c = *out;
    if (c->file) (void)fclose(c->file); /* what was written was flushed */
    lv_candidates_close(&c->candidates);
    lv_free(c->found_count);
    lv_free(c->found);
    lv_free(c->labels);
    lv_samples_parts_close(&c->parts);
    lv_free(c->draft_logits);
    lv_free(c->target_logits);
    lv_free(c->head_table);
    lv_kv_close(&c->draft_kv);
    lv_kv_close(&c->target_kv);
    lv_free(c);
    *out = NULL;
}

/* --- The target -------------------------------------------------------------------------------------------------- */

static lv_row row_of(lv_kv *kv, int32_t token, size_t position) {
    const uint32_t slot = (uint32_t)position;
    return (lv_row){token, slot, slot, kv, {.kv = kv, .prefix_count = slot + 1}};
}

/* Divided by its largest, so that halfs hold it: the predictor looks at directions alone. */
static void keep_hidden(const float *hidden, size_t width, uint16_t *halfs) {
    float most = 1e-20f;
    for (size_t i = 0; i < width; i++) most = fmaxf(most, fabsf(hidden[i]));
    for (size_t i = 0; i < width; i++) halfs[i] = lv_half_of(hidden[i] / most);
}

static lever_status label_rows(lv_collecting *c, size_t first, size_t count, lever_error *error) {
    const uint32_t vocabulary = c->engine->model->hparams.vocabulary;
    for (size_t i = 0; i < count; i += LABEL_ROWS) {
        uint32_t rows[LABEL_ROWS];
        const size_t left = count - i, taken = left < LABEL_ROWS ? left : LABEL_ROWS;
        for (size_t r = 0; r < taken; r++) rows[r] = (uint32_t)(i + r);
        LV_TRY(lv_forward_logits(c->engine->forward, rows, taken, c->target_logits, error));
        for (size_t r = 0; r < taken; r++) {
            c->labels[first + i + r] = lv_argmax(c->target_logits + r * vocabulary, (int32_t)vocabulary);
        }
    }
    return LEVER_OK;
}

/* Hidden states of the rows [first, first + count) of the text at each layer, and what the target says behind them.
 * Samples begin at position `sample_first`, of which there are samples_count. */
static lever_status run_target(lv_collecting *c, const int32_t *tokens, size_t first, size_t count, size_t sample_first,
                               size_t samples_count, lever_error *error) {
    lever_engine *engine = c->engine;
    const size_t width = c->heading.width;
    uint32_t layer = 0;
    for (size_t i = 0; i < count; i++) engine->rows[i] = row_of(&c->target_kv, tokens[first + i], first + i);
    const lv_pass pass = {.rows = engine->rows, .rows_count = count};
    lv_store_set_head_wanted(engine->store, true);
    lv_forward_set_threads(engine->forward, LV_COMPUTE_AUTO);
    LV_TRY(lv_forward_begin(engine->forward, &pass, error));
    for (uint32_t l = 0; l < c->heading.layers_count; l++) {
        LV_TRY(lv_forward_layers(engine->forward, layer, c->heading.layers[l] - layer, error));
        layer = c->heading.layers[l];
        for (size_t i = 0; i < count; i++) {
            if (first + i < sample_first || first + i >= sample_first + samples_count) continue;
            const size_t at = l * samples_count + (first + i - sample_first);
            keep_hidden(lv_forward_hidden(engine->forward, i), width, c->parts.hidden + at * width);
        }
    }
    LV_TRY(lv_forward_layers(engine->forward, layer, engine->model->hparams.layers_count - layer, error));
    return label_rows(c, first, count, error);
}

/* --- The draft --------------------------------------------------------------------------------------------------- */

static void copy_head_tokens(lv_collecting *c) {
    const lv_draft_head *head = c->engine->draft->head;
    const uint32_t rows = lv_draft_head_rows_count(head), known = (uint32_t)lv_vocab_tokens_count(c->engine->vocab);
    uint32_t first = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const int32_t token = lv_draft_head_token(head, row);
        c->head_table[row] = token >= 0 && (uint32_t)token < known ? token : -1;
    }
    while (first < rows && c->head_table[first] == (int32_t)first) first++;
    c->head_tokens = (lv_logits_tokens){rows, first, c->head_table + first};
}

/* The candidates behind the rows [first, first + count). */
static lever_status run_draft(lv_collecting *c, const int32_t *tokens, size_t first, size_t count, lever_error *error) {
    static const lv_sampling greedy = {.top_p = 1, .repeat_penalty = 1};
    lv_draft_model *draft = c->engine->draft;
    const size_t head_rows = lv_draft_head_rows_count(draft->head);
    for (size_t i = 0; i < count; i++) draft->rows[i] = row_of(&c->draft_kv, tokens[first + i], first + i);
    const lv_pass pass = {.rows = draft->rows, .rows_count = count};
    lv_forward_set_threads(draft->forward, LV_COMPUTE_ALL);
    LV_TRY(lv_forward_begin(draft->forward, &pass, error));
    LV_TRY(lv_forward_layers(draft->forward, 0, draft->model->hparams.layers_count, error));
    for (size_t i = 0; i < count; i += LV_DRAFTING_WIDTH_MAX) {
        uint32_t rows[LV_DRAFTING_WIDTH_MAX];
        const size_t left = count - i, taken = left < LV_DRAFTING_WIDTH_MAX ? left : LV_DRAFTING_WIDTH_MAX;
        for (size_t r = 0; r < taken; r++) rows[r] = (uint32_t)(i + r);
        LV_TRY(lv_forward_logits(draft->forward, rows, taken, c->draft_logits, error));
        for (size_t r = 0; r < taken; r++) {
            const size_t at = first + i + r;
            c->found_count[at] = (uint8_t)lv_candidates_pick(
                c->candidates, &greedy, c->draft_logits + r * head_rows, &c->head_tokens, tokens, at + 1, at + 1,
                LV_TREE_CHILDREN_MAX, c->found + at * LV_TREE_CHILDREN_MAX);
        }
    }
    return LEVER_OK;
}

/* --- Samples ----------------------------------------------------------------------------------------------------- */

/* As lv_candidates_add makes nodes of them. Returns whether the label was among them. */
static bool fill_sample(lv_collecting *c, size_t position, uint16_t depth, lv_sample *sample) {
    const lv_candidate *found = c->found + position * LV_TREE_CHILDREN_MAX;
    const uint32_t count = c->found_count[position];
    memset(sample, 0, sizeof(*sample));
    sample->text = c->texts_count;
    sample->candidates_count = sample->label = (uint8_t)count;
    for (uint32_t i = 0; i < count; i++) {
        const lv_feature feature = {
            .rank = (uint8_t)i,
            .depth = depth,
            .estimate = found[i].estimate,
            .margin = found[i].estimate - (i + 1 < count ? found[i + 1].estimate : 0),
        };
        sample->candidates[i].row = (uint32_t)found[i].token;
        lv_predictor_features(&feature, lv_calibration_apply(&c->calibration, &feature),
                              sample->candidates[i].features);
        if (found[i].token == c->labels[position]) sample->label = (uint8_t)i;
    }
    return sample->label < count;
}

lever_status lv_collecting_add(lv_collecting *c, const int32_t *tokens, size_t tokens_count, size_t first,
                               lever_error *error) {
    lever_engine *engine = c->engine;
    if (tokens_count > LV_SAMPLES_TOKENS_MAX) tokens_count = LV_SAMPLES_TOKENS_MAX;
    const size_t samples_count = tokens_count > first ? tokens_count - first : 0;
    memcpy(c->parts.tokens, tokens, tokens_count * sizeof(*tokens));
    LV_TRY(lv_draft_head_add(engine->draft->head, tokens, tokens_count, error));
    copy_head_tokens(c);
    for (size_t at = 0; at < tokens_count;) {
        const size_t left = tokens_count - at, most = engine->plan.rows_max;
        const size_t count = left < most ? left : most;
        LV_TRY(run_target(c, tokens, at, count, first, samples_count, error));
        at += count;
    }
    for (size_t at = 0; at < tokens_count;) {
        const size_t left = tokens_count - at, count = left < LV_DRAFT_ROWS_MAX ? left : LV_DRAFT_ROWS_MAX;
        LV_TRY(run_draft(c, tokens, at, count, error));
        at += count;
    }
    uint16_t depth = 1;
    for (size_t i = 0; i < samples_count; i++) {
        const bool found = fill_sample(c, first + i, depth, &c->parts.samples[i]);
        depth = found && depth < DEPTH_MOST ? (uint16_t)(depth + 1) : 1;
    }
    return append(c, (uint32_t)tokens_count, (uint32_t)samples_count, error);
}

/* --- Loading ----------------------------------------------------------------------------------------------------- */

typedef struct {
    lv_collecting *c;
    lv_collected *to;
    uint8_t *seen; /* by token, a bit each */
    float *row;
    uint16_t *halfs;
} row_gatherer;

static lever_status gather_row(row_gatherer *g, uint32_t token, lever_error *error) {
    const size_t width = g->c->heading.width;
    if (g->seen[token / 8] >> token % 8 & 1) return LEVER_OK;
    g->seen[token / 8] |= (uint8_t)(1u << token % 8);
    LV_TRY(lv_forward_embedding(g->c->engine->forward, (int32_t)token, g->row, error));
    keep_hidden(g->row, width, g->halfs);
    if (fwrite(&token, sizeof(token), 1, g->to->rows_file) != 1 ||
        fwrite(g->halfs, sizeof(*g->halfs), width, g->to->rows_file) != width) {
        return lv_fail(error, LEVER_E_IO, "%s: rows of the embedding table cannot be written beside it (%s)",
                       g->c->path, strerror(errno));
    }
    g->to->samples.rows_count++;
    return LEVER_OK;
}

static lever_status gather_block(void *user, const lv_samples_heading *heading, const lv_samples_block *block,
                                 const lv_samples_parts *parts, lever_error *error) {
    (void)heading;
    for (uint32_t s = 0; s < block->samples_count; s++) {
        for (uint32_t i = 0; i < parts->samples[s].candidates_count; i++) {
            LV_TRY(gather_row(user, parts->samples[s].candidates[i].row, error));
        }
    }
    return LEVER_OK;
}

static lever_status gather_rows(row_gatherer *g, lever_error *error) {
    lv_collecting *c = g->c;
    lv_ledger *ledger = c->engine->ledger;
    const lv_samples_reader reader = {
        c->path, c->file, c->texts_count, c->heading.width, c->heading.vocabulary, c->heading.layers_count};
    lv_samples_parts_close(&c->parts); /* reading takes as much */
    c->parts = (lv_samples_parts){0};
    LV_TRY(open_array(&g->seen, ledger, c->heading.vocabulary / 8 + 1, 1, error));
    LV_TRY(open_array(&g->row, ledger, c->heading.width, sizeof(*g->row), error));
    LV_TRY(open_array(&g->halfs, ledger, c->heading.width, sizeof(*g->halfs), error));
    return lv_samples_each(&reader, gather_block, g, ledger, error);
}

lever_status lv_collecting_finish(lv_collecting *c, lv_collected *to, lever_error *error) {
    row_gatherer g = {.c = c, .to = to};
    char path[PATH_BYTES];
    *to = (lv_collected){.path = c->path,
                         .texts_count = c->texts_count,
                         .width = c->heading.width,
                         .vocabulary = c->heading.vocabulary,
                         .layers_count = c->heading.layers_count};
    to->samples.samples_count = c->samples_count;
    const int length = snprintf(path, sizeof(path), "%s.rows", c->path);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the path of the predictor is too long");
    }
    to->rows_file = fopen(path, "w+be");
    if (!to->rows_file) return lv_samples_fail(path, "written", error);
    (void)unlink(path); /* it goes when it is closed, however this ends */
    const lever_status status = gather_rows(&g, error);
    lv_free(g.halfs);
    lv_free(g.row);
    lv_free(g.seen);
    if (status == LEVER_OK && fflush(to->rows_file) != 0) return lv_samples_fail(path, "written", error);
    return status;
}

uint64_t lv_collected_bytes(const lv_collected *c) {
    return (c->samples.samples_count + 1) * lv_collected_sample_bytes(c) + c->vocabulary * (uint64_t)sizeof(uint32_t) +
           (c->samples.rows_count + 1) * (uint64_t)c->width * sizeof(uint16_t) +
           lv_samples_parts_bytes(c->width, c->layers_count);
}

uint64_t lv_collected_sample_bytes(const lv_collected *c) {
    return sizeof(lv_sample) + (uint64_t)c->width * sizeof(uint16_t);
}

lever_status lv_collected_open(lv_collected *c, lv_ledger *ledger, lever_error *error) {
    const size_t width = c->width;
    LV_TRY(open_array(&c->numbers, ledger, c->vocabulary, sizeof(*c->numbers), error));
    LV_TRY(open_array(&c->rows_memory, ledger, (c->samples.rows_count + 1) * width, sizeof(uint16_t), error));
    c->samples.rows = c->rows_memory;
    rewind(c->rows_file);
    for (size_t i = 0; i < c->samples.rows_count; i++) {
        uint32_t token;
        if (!lv_samples_read_items(c->rows_file, &token, sizeof(token), 1) || token >= c->vocabulary ||
            !lv_samples_read_items(c->rows_file, (uint16_t *)c->rows_memory + i * width, sizeof(uint16_t), width)) {
            return lv_fail(error, LEVER_E_IO, "%s: rows of the embedding table that were kept beside it cannot be read",
                           c->path);
        }
        c->numbers[token] = (uint32_t)i + 1;
    }
    return LEVER_OK;
}

typedef struct {
    lv_collected *to;
    uint32_t index;
    size_t count;
} loader;

static lever_status load_block(void *user, const lv_samples_heading *heading, const lv_samples_block *block,
                               const lv_samples_parts *parts, lever_error *error) {
    loader *l = user;
    lv_collected *c = l->to;
    const size_t width = heading->width, count = block->samples_count;
    lv_sample *to = (lv_sample *)c->samples_memory + l->count;
    bool known = count <= c->samples.samples_count - l->count;
    if (known) {
        memcpy(to, parts->samples, count * sizeof(*to));
        memcpy((uint16_t *)c->hidden_memory + l->count * width, parts->hidden + l->index * count * width,
               count * width * sizeof(uint16_t));
    }
    for (size_t s = 0; known && s < count; s++) {
        for (uint32_t i = 0; i < to[s].candidates_count; i++) {
            const uint32_t number = c->numbers[to[s].candidates[i].row];
            known = known && number > 0;
            to[s].candidates[i].row = number - 1;
        }
    }
    l->count += count;
    if (known) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT, "%s: was changed after it was collected; collect anew", c->path);
}

lever_status lv_collected_load(lv_collected *c, uint32_t index, lv_ledger *ledger, lever_error *error) {
    loader l = {.to = c, .index = index};
    const size_t count = c->samples.samples_count + 1;
    lv_samples_reader reader = {c->path, NULL, c->texts_count, c->width, c->vocabulary, c->layers_count};
    lv_free(c->samples_memory);
    lv_free(c->hidden_memory);
    c->samples_memory = c->hidden_memory = NULL;
    LV_TRY(open_array(&c->samples_memory, ledger, count, sizeof(lv_sample), error));
    LV_TRY(open_array(&c->hidden_memory, ledger, count * c->width, sizeof(uint16_t), error));
    c->samples.samples = c->samples_memory;
    c->samples.hidden = c->hidden_memory;
    reader.file = fopen(c->path, "rbe");
    if (!reader.file) return lv_samples_fail(c->path, "read", error);
    const lever_status status = lv_samples_each(&reader, load_block, &l, ledger, error);
    (void)fclose(reader.file);
    return status;
}

void lv_collected_free(lv_collected *c) {
    if (c->rows_file) (void)fclose(c->rows_file);
    lv_free(c->samples_memory);
    lv_free(c->hidden_memory);
    lv_free(c->rows_memory);
    lv_free(c->numbers);
    memset(c, 0, sizeof(*c));
}
