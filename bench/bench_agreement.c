/* bench_agreement - how often lever and libllama find the same token likeliest.
 *
 *     bench_agreement -m MODEL --text FILE [--positions N] [--window N] [--threads N] [--json]
 *
 * Both are given the same tokens of a real text (teacher forcing), window by window, and the likeliest token behind
 * each position is compared; of equal logits the lowest id counts. The models are never in memory together: lever's
 * answers are kept as ids and gaps, then libllama's are compared as they come. Each disagreement is listed with the gap
 * between libllama's first and second token: a small one says that rounding decided, a large one that something is
 * wrong.
 *
 * libllama is the one that lever is built with; it computes as it likes (flash attention, repacked weights). To show
 * how much of a disagreement is rounding, it is also compared with itself, without flash attention. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

#include "base/text.h"
#include "lever.h"

enum { BATCH_TOKENS = 128 };

typedef struct {
    const char *model_path, *text_path;
    uint64_t positions_count, window_tokens, threads;
    bool json;
} options;

/* The first two of a position. */
typedef struct {
    int32_t first, second;
    float gap;
} leaders;

typedef struct {
    size_t position; /* in the whole text */
    leaders lever, llama;
    float behind; /* by how much libllama puts lever's token behind its own */
} disagreement;

typedef struct {
    char *text;
    size_t text_bytes;
    int32_t *tokens;
    size_t tokens_count, vocabulary_count;
    leaders *lever; /* one for each token */
    int32_t *llama; /* the likeliest only */
    disagreement *disagreements;
    size_t disagreements_count;
    size_t itself_count; /* positions at which libllama agrees with itself */
    char kernels[64];
} comparison;

static _Noreturn void fail(const char *what, const char *detail) {
    fprintf(stderr, "bench_agreement: %s%s%s\n", what, detail[0] != '\0' ? ": " : "", detail);
    exit(1);
}

static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) fail("out of memory", "");
    return memory;
}

static void read_text(comparison *c, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("the text cannot be read", path);
    const long bytes = ftell(file);
    if (bytes < 0 || fseek(file, 0, SEEK_SET) != 0) fail("the text cannot be read", path);
    c->text_bytes = (size_t)bytes;
    c->text = allocate(c->text_bytes + 1, 1);
    if (fread(c->text, 1, c->text_bytes, file) != c->text_bytes) fail("the text cannot be read", path);
    fclose(file);
}

static leaders find_leaders(const float *logits, size_t count) {
    leaders found = {.first = 0, .second = 1};
    if (logits[1] > logits[0]) found = (leaders){.first = 1, .second = 0};
    for (size_t i = 2; i < count; i++) {
        if (logits[i] > logits[found.first]) {
            found.second = found.first;
            found.first = (int32_t)i;
        } else if (logits[i] > logits[found.second]) {
            found.second = (int32_t)i;
        }
    }
    found.gap = logits[found.first] - logits[found.second];
    return found;
}

static size_t window_at(const comparison *c, const options *o, size_t begin) {
    const size_t rest = c->tokens_count - begin;
    return rest < o->window_tokens ? rest : (size_t)o->window_tokens;
}

/* --- lever -------------------------------------------------------------------------------------------------------- */

typedef struct {
    comparison *comparison;
    size_t begin, seen;
} window;

static bool keep_leaders(void *user, size_t position, const float *logits) {
    window *w = user;
    w->comparison->lever[w->begin + position] = find_leaders(logits, w->comparison->vocabulary_count);
    w->seen++;
    return true;
}

static void tokenize(comparison *c, const options *o, const lever_engine *engine) {
    lever_error error;
    c->tokens = allocate(c->text_bytes + 1, sizeof *c->tokens);
    if (lever_tokenize(engine, c->text, c->text_bytes, true, false, c->tokens, c->text_bytes + 1, &c->tokens_count,
                       &error) != LEVER_OK) {
        fail("tokenizing", error.message);
    }
    if (c->tokens_count > o->positions_count) c->tokens_count = (size_t)o->positions_count;
    c->lever = allocate(c->tokens_count, sizeof *c->lever);
}

static void run_lever(comparison *c, const options *o) {
    lever_error error;
    lever_engine_options engine_options;
    lever_engine_options_init(&engine_options);
    engine_options.model_path = o->model_path;
    engine_options.ram_unlimited = true;
    engine_options.target_ram_percent = 100;
    engine_options.context_tokens = (uint32_t)o->window_tokens;
    engine_options.threads = (uint32_t)o->threads;
    lever_engine *engine = NULL;
    if (lever_engine_open(&engine, &engine_options, &error) != LEVER_OK) fail("opening", error.message);
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    c->vocabulary_count = (size_t)info.vocabulary_tokens;
    snprintf(c->kernels, sizeof c->kernels, "%s", info.kernels);
    tokenize(c, o, engine);

    lever_session *session = NULL;
    if (lever_session_open(&session, engine, NULL, &error) != LEVER_OK) fail("opening a session", error.message);
    for (size_t begin = 0; begin < c->tokens_count; begin += o->window_tokens) {
        window w = {.comparison = c, .begin = begin};
        const size_t count = window_at(c, o, begin);
        if (lever_session_rewind(session, 0, &error) != LEVER_OK) fail("rewinding", error.message);
        if (lever_session_score(session, c->tokens + begin, count, keep_leaders, &w, &error) != LEVER_OK) {
            fail("scoring", error.message);
        }
        if (w.seen != count) fail("scoring", "not every position was reported");
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* --- libllama ----------------------------------------------------------------------------------------------------- */

static void drop_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
}

typedef void (*compare_fn)(comparison *c, size_t position, const float *logits);

static void compare_with_lever(comparison *c, size_t position, const float *logits) {
    const leaders llama = find_leaders(logits, c->vocabulary_count);
    const leaders lever = c->lever[position];
    c->llama[position] = llama.first;
    if (llama.first == lever.first) return;
    c->disagreements[c->disagreements_count++] = (disagreement){
        .position = position,
        .lever = lever,
        .llama = llama,
        .behind = logits[llama.first] - logits[lever.first],
    };
}

static void compare_with_itself(comparison *c, size_t position, const float *logits) {
    c->itself_count += find_leaders(logits, c->vocabulary_count).first == c->llama[position];
}

/* One window, in batches small enough that their logits fit into memory. */
static void decode_window(comparison *c, struct llama_context *context, size_t begin, size_t count,
                          compare_fn compare) {
    struct llama_batch batch = llama_batch_init(BATCH_TOKENS, 0, 1);
    llama_memory_clear(llama_get_memory(context), true);
    for (size_t done = 0; done < count; done += (size_t)batch.n_tokens) {
        const size_t rest = count - done;
        batch.n_tokens = (int32_t)(rest < BATCH_TOKENS ? rest : BATCH_TOKENS);
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            batch.token[i] = c->tokens[begin + done + (size_t)i];
            batch.pos[i] = (llama_pos)done + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch) != 0) fail("libllama could not compute", "");
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            compare(c, begin + done + (size_t)i, llama_get_logits_ith(context, i));
        }
    }
    llama_batch_free(batch);
}

static void decode_text(comparison *c, const options *o, struct llama_model *model, bool flash, compare_fn compare) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)o->window_tokens;
    params.n_batch = params.n_ubatch = BATCH_TOKENS;
    params.n_threads = params.n_threads_batch = (int32_t)o->threads;
    params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(model, params);
    if (context == NULL) fail("libllama cannot open a context", "");
    for (size_t begin = 0; begin < c->tokens_count; begin += o->window_tokens) {
        decode_window(c, context, begin, window_at(c, o, begin), compare);
    }
    llama_free(context);
}

static void run_llama(comparison *c, const options *o) {
    llama_log_set(drop_log, NULL);
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(o->model_path, params);
    if (model == NULL) fail("libllama cannot open the model", o->model_path);
    if ((size_t)llama_vocab_n_tokens(llama_model_get_vocab(model)) != c->vocabulary_count) {
        fail("libllama counts other tokens in the vocabulary", "");
    }
    c->llama = allocate(c->tokens_count, sizeof *c->llama);
    c->disagreements = allocate(c->tokens_count, sizeof *c->disagreements);
    decode_text(c, o, model, true, compare_with_lever);
    decode_text(c, o, model, false, compare_with_itself);
    llama_model_free(model);
}

/* --- Report ------------------------------------------------------------------------------------------------------- */

static void print_report(const comparison *c, const options *o) {
    const size_t agreed = c->tokens_count - c->disagreements_count;
    const double percent = 100.0 * (double)agreed / (double)c->tokens_count;
    const double itself_percent = 100.0 * (double)c->itself_count / (double)c->tokens_count;
    if (!o->json) {
        printf("%zu of %zu positions agree (%.2f %%; libllama with itself %.2f %%), kernels %s, windows of %" PRIu64
               " tokens\n",
               agreed, c->tokens_count, percent, itself_percent, c->kernels, o->window_tokens);
        for (size_t i = 0; i < c->disagreements_count; i++) {
            const disagreement *d = &c->disagreements[i];
            printf("  position %5zu: lever %6d (ahead by %.3f), libllama %6d (ahead by %.3f), behind by %.3f\n",
                   d->position, d->lever.first, (double)d->lever.gap, d->llama.first, (double)d->llama.gap,
                   (double)d->behind);
        }
        return;
    }
    printf("{\"positions\":%zu,\"agreed\":%zu,\"percent\":%.3f,\"itself_percent\":%.3f,\"window_tokens\":%" PRIu64
           ",\"kernels\":\"%s\","
           "\"disagreements\":[",
           c->tokens_count, agreed, percent, itself_percent, o->window_tokens, c->kernels);
    for (size_t i = 0; i < c->disagreements_count; i++) {
        const disagreement *d = &c->disagreements[i];
        printf("%s{\"position\":%zu,\"lever\":%d,\"libllama\":%d,\"libllama_second\":%d,\"libllama_gap\":%.4f,"
               "\"lever_gap\":%.4f,\"behind\":%.4f}",
               i == 0 ? "" : ",", d->position, d->lever.first, d->llama.first, d->llama.second, (double)d->llama.gap,
               (double)d->lever.gap, (double)d->behind);
    }
    printf("]}\n");
}

/* --- Command line ------------------------------------------------------------------------------------------------- */

static void parse(options *o, int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        const char *option = arguments[i];
        if (strcmp(option, "--json") == 0) {
            o->json = true;
            continue;
        }
        const char *value = i + 1 < count ? arguments[++i] : NULL;
        bool known = value != NULL;
        if (known && strcmp(option, "-m") == 0) {
            o->model_path = value;
        } else if (known && strcmp(option, "--text") == 0) {
            o->text_path = value;
        } else if (known && strcmp(option, "--positions") == 0) {
            known = lv_parse_u64(value, 1, 10000000, &o->positions_count);
        } else if (known && strcmp(option, "--window") == 0) {
            known = lv_parse_u64(value, 16, 1000000, &o->window_tokens);
        } else if (known && strcmp(option, "--threads") == 0) {
            known = lv_parse_u64(value, 1, 1024, &o->threads);
        } else {
            known = false;
        }
        if (!known) fail("unknown option or wrong value; the head of the source lists them", option);
    }
    if (o->model_path == NULL || o->text_path == NULL) fail("-m MODEL and --text FILE are needed", "");
}

int main(int count, char **arguments) {
    options o = {.positions_count = 2000, .window_tokens = 1000, .threads = 2};
    parse(&o, count, arguments);
    comparison c = {0};
    read_text(&c, o.text_path);
    run_lever(&c, &o);
    if (c.tokens_count < o.positions_count) {
        fprintf(stderr, "bench_agreement: the text has only %zu tokens\n", c.tokens_count);
    }
    run_llama(&c, &o);
    print_report(&c, &o);
    free(c.disagreements);
    free(c.llama);
    free(c.lever);
    free(c.tokens);
    free(c.text);
    return 0;
}
