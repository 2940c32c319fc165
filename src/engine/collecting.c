/* collecting.c - the file: a heading, then a block for each text.
 *
 *     heading   magic, hashes of both models, width, layers                       (stored_heading)
 *     block     count of samples and checksum, then the samples, then for each layer their hidden states as halfs
 *
 * It is read by the machine that wrote it, within days: numbers lie as the machine has them. A block that is not whole
 * ends the file; it is cut off when collecting goes on. Rows of candidates are numbered by token here; loading numbers
 * them by their place in the table of rows.
 *
 * Depth, which a text does not have, is what drafting a chain would have given: it grows while the target says what was
 * proposed. */
#include "engine/collecting.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "spec/candidates.h"
#include "spec/sampler.h"

enum { MAGIC = 0x4c56534d, LABEL_ROWS = 8, DEPTH_MOST = 24 };

typedef struct {
    uint32_t magic, width, layers_count, sample_bytes;
    uint64_t target_hash, draft_hash;
    uint32_t layers[LV_COLLECTING_LAYERS_MAX];
} stored_heading;

typedef struct {
    uint32_t magic, samples_count;
    uint64_t checksum;
} stored_block;

struct lv_collecting {
    lever_engine *engine;
    FILE *file;
    stored_heading heading;
    uint32_t texts_count;
    size_t samples_count; /* in the file */
    lv_kv target_kv, draft_kv;
    lv_candidates *candidates;
    lv_calibration calibration;
    lv_logits_tokens head_tokens;
    int32_t *head_table;
    float *target_logits, *draft_logits; /* LABEL_ROWS x vocabulary; LV_DRAFTING_WIDTH_MAX x rows of the head */
    lv_sample *samples;                  /* of one text */
    int32_t *labels;
    uint16_t *hidden;    /* of one text: [layer][sample][width] */
    lv_candidate *found; /* of one text: LV_TREE_CHILDREN_MAX a position */
    uint8_t *found_count;
};

/* --- The file ---------------------------------------------------------------------------------------------------- */

static uint64_t checksum_of(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

static size_t hidden_halfs(const stored_heading *h, size_t samples_count) {
    return (size_t)h->layers_count * samples_count * h->width;
}

/* Reads one block behind its head into the memory given; false when it is not whole. */
static bool read_block(FILE *file, const stored_heading *heading, stored_block *block, lv_sample *samples,
                       uint16_t *hidden) {
    if (fread(block, sizeof(*block), 1, file) != 1 || block->magic != MAGIC ||
        block->samples_count > LV_COLLECTING_TOKENS_MAX) {
        return false;
    }
    const size_t halfs = hidden_halfs(heading, block->samples_count);
    if (fread(samples, sizeof(*samples), block->samples_count, file) != block->samples_count) return false;
    if (fread(hidden, sizeof(*hidden), halfs, file) != halfs) return false;
    uint64_t checksum = checksum_of(0xcbf29ce484222325u, samples, block->samples_count * sizeof(*samples));
    checksum = checksum_of(checksum, hidden, halfs * sizeof(*hidden));
    return checksum == block->checksum;
}

static lever_status fail_file(const char *path, const char *what, lever_error *error) {
    return lv_fail(error, LEVER_E_IO, "%s: cannot be %s (%s)", path, what, strerror(errno));
}

/* Goes through the blocks and cuts off what is not whole. */
static lever_status go_on(lv_collecting *c, const char *path, lever_error *error) {
    stored_heading heading;
    stored_block block;
    long end = 0;
    if (fread(&heading, sizeof(heading), 1, c->file) == 1 && memcmp(&heading, &c->heading, sizeof(heading)) == 0) {
        end = ftell(c->file);
        while (read_block(c->file, &heading, &block, c->samples, c->hidden)) {
            c->texts_count++;
            c->samples_count += block.samples_count;
            end = ftell(c->file);
        }
    }
    if (end < 0 || ftruncate(fileno(c->file), end) != 0 || fseek(c->file, end, SEEK_SET) != 0) {
        return fail_file(path, "gone on with", error);
    }
    if (end > 0) return LEVER_OK;
    return fwrite(&c->heading, sizeof(c->heading), 1, c->file) == 1 ? LEVER_OK : fail_file(path, "written", error);
}

static lever_status append(lv_collecting *c, uint32_t count, lever_error *error) {
    const size_t halfs = hidden_halfs(&c->heading, count);
    stored_block block = {.magic = MAGIC, .samples_count = count};
    block.checksum = checksum_of(0xcbf29ce484222325u, c->samples, count * sizeof(*c->samples));
    block.checksum = checksum_of(block.checksum, c->hidden, halfs * sizeof(*c->hidden));
    const bool written = fwrite(&block, sizeof(block), 1, c->file) == 1 &&
                         fwrite(c->samples, sizeof(*c->samples), count, c->file) == count &&
                         fwrite(c->hidden, sizeof(*c->hidden), halfs, c->file) == halfs && fflush(c->file) == 0;
    if (!written) return fail_file("the file of samples", "written", error);
    c->texts_count++;
    c->samples_count += count;
    return LEVER_OK;
}

/* --- Opening ----------------------------------------------------------------------------------------------------- */

static lever_status open_kv(lv_kv *kv, const lv_model *model, lv_ledger *ledger, lever_error *error) {
    const lv_hparams *h = &model->hparams;
    const lv_kv_shape shape = {.layers_count = h->layers_count,
                               .slots_count = LV_COLLECTING_TOKENS_MAX,
                               .kv_heads_count = h->kv_heads_count,
                               .head_dim = h->head_dim};
    return lv_kv_open(kv, ledger, &shape, error);
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
    const size_t rows = LV_COLLECTING_TOKENS_MAX, head_rows = lv_draft_head_rows_count(engine->draft->head);
    LV_TRY(open_kv(&c->target_kv, engine->model, ledger, error));
    LV_TRY(open_kv(&c->draft_kv, engine->draft->model, ledger, error));
    LV_TRY(open_array(&c->head_table, ledger, head_rows, sizeof(int32_t), error));
    LV_TRY(open_array(&c->target_logits, ledger, LABEL_ROWS * (size_t)engine->model->hparams.vocabulary, sizeof(float),
                      error));
    LV_TRY(open_array(&c->draft_logits, ledger, LV_DRAFTING_WIDTH_MAX * head_rows, sizeof(float), error));
    LV_TRY(open_array(&c->samples, ledger, rows, sizeof(lv_sample), error));
    LV_TRY(open_array(&c->labels, ledger, rows, sizeof(int32_t), error));
    LV_TRY(open_array(&c->hidden, ledger, hidden_halfs(&c->heading, rows), sizeof(uint16_t), error));
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
    lv_calibration_init(&c->calibration);
    c->heading = (stored_heading){.magic = MAGIC,
                                  .width = engine->model->hparams.embedding,
                                  .layers_count = layers_count,
                                  .sample_bytes = sizeof(lv_sample),
                                  .target_hash = lv_weights_fingerprint(engine->weights),
                                  .draft_hash = lv_weights_fingerprint(engine->draft->weights)};
    memcpy(c->heading.layers, layers, layers_count * sizeof(*layers));
    lever_status status = open_memory(c, error);
    if (status == LEVER_OK) {
        c->file = fopen(path, "r+be");
        if (!c->file) c->file = fopen(path, "w+be");
        status = c->file ? go_on(c, path, error) : fail_file(path, "written", error);
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
    lv_free(c->hidden);
    lv_free(c->labels);
    lv_free(c->samples);
    lv_free(c->draft_logits);
    lv_free(c->target_logits);
    lv_free(c->head_table);
    lv_kv_close(&c->draft_kv);
    lv_kv_close(&c->target_kv);
    lv_free(c);
    *out = NULL;
}

uint32_t lv_collecting_texts_count(const lv_collecting *c) {
    return c->texts_count;
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
            keep_hidden(lv_forward_hidden(engine->forward, i), width, c->hidden + at * width);
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
    if (tokens_count > LV_COLLECTING_TOKENS_MAX) tokens_count = LV_COLLECTING_TOKENS_MAX;
    const size_t samples_count = tokens_count > first ? tokens_count - first : 0;
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
        const bool found = fill_sample(c, first + i, depth, &c->samples[i]);
        depth = found && depth < DEPTH_MOST ? (uint16_t)(depth + 1) : 1;
    }
    return append(c, (uint32_t)samples_count, error);
}

/* --- Loading ----------------------------------------------------------------------------------------------------- */

/* Goes through all blocks of a file; the function sees each. */
typedef lever_status (*block_fn)(void *user, const stored_heading *heading, uint32_t samples_count,
                                 const lv_sample *samples, const uint16_t *hidden, lever_error *error);

static lever_status for_each_block(const char *path, FILE *file, block_fn fn, void *user, lv_ledger *ledger,
                                   lever_error *error) {
    stored_heading heading;
    stored_block block;
    void *samples = NULL, *hidden = NULL;
    rewind(file);
    if (fread(&heading, sizeof(heading), 1, file) != 1 || heading.magic != MAGIC ||
        heading.sample_bytes != sizeof(lv_sample) || heading.layers_count > LV_COLLECTING_LAYERS_MAX ||
        heading.width > LV_PREDICTOR_WIDTH_MAX) {
        return lv_fail(error, LEVER_E_FORMAT, "%s: is not a file of samples; collect anew", path);
    }
    lever_status status = open_array(&samples, ledger, LV_COLLECTING_TOKENS_MAX, sizeof(lv_sample), error);
    if (status == LEVER_OK) {
        status = open_array(&hidden, ledger, hidden_halfs(&heading, LV_COLLECTING_TOKENS_MAX), sizeof(uint16_t), error);
    }
    while (status == LEVER_OK && read_block(file, &heading, &block, samples, hidden)) {
        status = fn(user, &heading, block.samples_count, samples, hidden, error);
    }
    lv_free(samples);
    lv_free(hidden);
    return status;
}

typedef struct {
    lv_collecting *c;
    lv_collected *to;
    uint32_t *numbers; /* by token: 1 + its row; 0: none */
    float *row;
    size_t capacity;
    lv_ledger *ledger;
} row_gatherer;

static lever_status gather_row(row_gatherer *g, uint32_t token, lever_error *error) {
    const size_t width = g->c->heading.width, at = g->to->samples.rows_count;
    if (g->numbers[token]) return LEVER_OK;
    if (at == g->capacity) {
        void *grown = lv_realloc(g->to->rows_memory, g->capacity * 2 * width, sizeof(uint16_t));
        if (!grown) return lv_fail(error, LEVER_E_BUDGET, "no memory for %zu embedding rows", g->capacity * 2);
        g->to->rows_memory = grown;
        g->capacity *= 2;
    }
    LV_TRY(lv_forward_embedding(g->c->engine->forward, (int32_t)token, g->row, error));
    keep_hidden(g->row, width, (uint16_t *)g->to->rows_memory + at * width);
    g->numbers[token] = (uint32_t)++g->to->samples.rows_count;
    return LEVER_OK;
}

static lever_status gather_rows(void *user, const stored_heading *heading, uint32_t samples_count,
                                const lv_sample *samples, const uint16_t *hidden, lever_error *error) {
    row_gatherer *g = user;
    (void)heading;
    (void)hidden;
    for (uint32_t s = 0; s < samples_count; s++) {
        for (uint32_t i = 0; i < samples[s].candidates_count; i++) {
            LV_TRY(gather_row(g, samples[s].candidates[i].row, error));
        }
    }
    return LEVER_OK;
}

lever_status lv_collecting_rows(lv_collecting *c, lv_collected *to, lv_ledger *ledger, lever_error *error) {
    row_gatherer g = {.c = c, .to = to, .ledger = ledger, .capacity = 1024};
    const size_t width = c->heading.width, vocabulary = c->engine->model->hparams.vocabulary;
    memset(to, 0, sizeof(*to));
    lever_status status = open_array(&to->rows_memory, ledger, g.capacity * width, sizeof(uint16_t), error);
    if (status == LEVER_OK) status = open_array(&g.numbers, ledger, vocabulary, sizeof(uint32_t), error);
    if (status == LEVER_OK) status = open_array(&g.row, ledger, width, sizeof(float), error);
    if (status == LEVER_OK) status = for_each_block("the file of samples", c->file, gather_rows, &g, ledger, error);
    lv_free(g.row);
    to->samples.rows = to->rows_memory;
    to->numbers = g.numbers;
    return status;
}

typedef struct {
    lv_collected *to;
    uint32_t index;
    size_t count, capacity;
} loader;

static lever_status count_block(void *user, const stored_heading *heading, uint32_t samples_count,
                                const lv_sample *samples, const uint16_t *hidden, lever_error *error) {
    (void)heading;
    (void)samples;
    (void)hidden;
    (void)error;
    ((loader *)user)->capacity += samples_count;
    return LEVER_OK;
}

static lever_status load_block(void *user, const stored_heading *heading, uint32_t samples_count,
                               const lv_sample *samples, const uint16_t *hidden, lever_error *error) {
    loader *l = user;
    (void)error;
    const size_t width = heading->width;
    lv_sample *to = (lv_sample *)l->to->samples_memory + l->count;
    memcpy(to, samples, samples_count * sizeof(*to));
    memcpy((uint16_t *)l->to->hidden_memory + l->count * width, hidden + (size_t)l->index * samples_count * width,
           samples_count * width * sizeof(*hidden));
    for (uint32_t s = 0; s < samples_count; s++) {
        for (uint32_t i = 0; i < to[s].candidates_count; i++) {
            to[s].candidates[i].row = l->to->numbers[to[s].candidates[i].row] - 1;
        }
    }
    l->count += samples_count;
    return LEVER_OK;
}

lever_status lv_collected_load(lv_collected *to, const char *path, uint32_t width, uint32_t index, lv_ledger *ledger,
                               lever_error *error) {
    loader l = {.to = to, .index = index};
    FILE *file = fopen(path, "rbe");
    if (!file) return fail_file(path, "read", error);
    lv_free(to->samples_memory);
    lv_free(to->hidden_memory);
    to->samples_memory = to->hidden_memory = NULL;
    lever_status status = for_each_block(path, file, count_block, &l, ledger, error);
    if (status == LEVER_OK) status = open_array(&to->samples_memory, ledger, l.capacity + 1, sizeof(lv_sample), error);
    if (status == LEVER_OK) {
        status = open_array(&to->hidden_memory, ledger, (l.capacity + 1) * width, sizeof(uint16_t), error);
    }
    if (status == LEVER_OK) status = for_each_block(path, file, load_block, &l, ledger, error);
    (void)fclose(file);
    to->samples.samples = to->samples_memory;
    to->samples.samples_count = l.count;
    to->samples.hidden = to->hidden_memory;
    return status;
}

void lv_collected_free(lv_collected *c) {
    lv_free(c->samples_memory);
    lv_free(c->hidden_memory);
    lv_free(c->rows_memory);
    lv_free(c->numbers);
    memset(c, 0, sizeof(*c));
}
