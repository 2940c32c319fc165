/* bench_logits - are the logits of two models the same, to the last bit?
 *
 *     bench_logits A B --text FILE [--positions N] [--ram SIZE] [--threads N]
 *
 * Both score the same tokens of a text, one model after the other, so that they are never in memory together; of each
 * position's logits a hash is kept. For models that must agree exactly: a deepened one with its original, a packed one
 * with the GGUF it was made of. Exit code 0: all equal; 1: not, naming the first position that differs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lever.h"

enum { TEXT_BYTES_MAX = 1 << 20, MODELS_COUNT = 2 };

typedef struct {
    const char *paths[MODELS_COUNT], *text_path;
    uint64_t positions_count, threads, ram_bytes;
} options;

typedef struct {
    uint64_t *hashes;
    size_t count, vocabulary_count;
} scores;

static _Noreturn void fail(const char *what, const char *detail) {
    fprintf(stderr, "bench_logits: %s%s%s\n", what, detail[0] != '\0' ? ": " : "", detail);
    exit(1);
}

static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) fail("out of memory", "");
    return memory;
}

static char *read_text(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail("the text cannot be read", path);
    char *text = allocate(TEXT_BYTES_MAX, 1);
    *bytes = fread(text, 1, TEXT_BYTES_MAX, file);
    fclose(file);
    return text;
}

/* FNV-1a over the bits of the logits: a zero of the other sign is a difference. */
static bool keep_hash(void *user, size_t position, const float *logits) {
    scores *kept = user;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < kept->vocabulary_count; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    kept->hashes[position] = hash;
    kept->count++;
    return true;
}

static void score(scores *kept, const char *path, const options *o, const char *text, size_t text_bytes) {
    lever_engine_options engine_options;
    lever_engine_options_init(&engine_options);
    engine_options.model_path = path;
    engine_options.threads = (uint32_t)o->threads;
    engine_options.ram_bytes = o->ram_bytes;
    engine_options.ram_unlimited = o->ram_bytes == 0;
    engine_options.target_ram_percent = o->ram_bytes == 0 ? 0 : -1;
    engine_options.context_tokens = (uint32_t)o->positions_count + 16;
    lever_engine *engine = NULL;
    lever_session *session = NULL;
    lever_error error;
    if (lever_engine_open(&engine, &engine_options, &error) != LEVER_OK) fail(path, error.message);
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    kept->vocabulary_count = (size_t)info.vocabulary_tokens;

    int32_t *tokens = allocate(text_bytes + 1, sizeof *tokens);
    size_t count;
    if (lever_tokenize(engine, text, text_bytes, true, false, tokens, text_bytes + 1, &count, &error) != LEVER_OK) {
        fail(path, error.message);
    }
    if (count > o->positions_count) count = (size_t)o->positions_count;
    kept->hashes = allocate(count, sizeof *kept->hashes);
    lever_session_options session_options;
    lever_session_options_init(&session_options);
    if (lever_session_open(&session, engine, &session_options, &error) != LEVER_OK ||
        lever_session_score(session, tokens, count, keep_hash, kept, &error) != LEVER_OK) {
        fail(path, error.message);
    }
    free(tokens);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void parse(options *o, int argc, char **argv) {
    int paths_count = 0;
    *o = (options){.positions_count = 64};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool right = true;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (paths_count == MODELS_COUNT) fail("two models are compared, not more", argv[i]);
            o->paths[paths_count++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--text") == 0) {
            o->text_path = next;
        } else if (strcmp(argv[i], "--positions") == 0) {
            right = lv_parse_u64(next, 1, 65536, &o->positions_count);
        } else if (strcmp(argv[i], "--threads") == 0) {
            right = lv_parse_u64(next, 1, 1024, &o->threads);
        } else if (strcmp(argv[i], "--ram") == 0) {
            right = next != NULL && lv_parse_size(next, &o->ram_bytes);
        } else {
            fail("unknown option", argv[i]);
        }
        if (next == NULL || !right) fail("no value, or one out of range", argv[i]);
        i++;
    }
    if (paths_count != MODELS_COUNT || o->text_path == NULL) {
        fail("usage: bench_logits A B --text FILE [--positions N] [--ram SIZE] [--threads N]", "");
    }
}

int main(int argc, char **argv) {
    options o;
    parse(&o, argc, argv);
    size_t text_bytes;
    char *text = read_text(o.text_path, &text_bytes);
    scores kept[MODELS_COUNT] = {0};
    for (int i = 0; i < MODELS_COUNT; i++) score(&kept[i], o.paths[i], &o, text, text_bytes);
    free(text);

    int code = 0;
    if (kept[0].count != kept[1].count || kept[0].vocabulary_count != kept[1].vocabulary_count) {
        fprintf(stderr, "bench_logits: %zu positions of %zu logits against %zu of %zu\n", kept[0].count,
                kept[0].vocabulary_count, kept[1].count, kept[1].vocabulary_count);
        code = 1;
    }
    for (size_t i = 0; code == 0 && i < kept[0].count; i++) {
        if (kept[0].hashes[i] == kept[1].hashes[i]) continue;
        fprintf(stderr, "bench_logits: the logits at position %zu differ\n", i);
        code = 1;
    }
    if (code == 0) printf("the logits of %zu positions are equal to the last bit\n", kept[0].count);
    for (int i = 0; i < MODELS_COUNT; i++) free(kept[i].hashes);
    return code;
}
