/* vocab_check.c - what libllama would abort on, found before it looks.
 *
 * libllama asserts that no two tokens have one text, throws out of llama_tokenize when a SentencePiece vocabulary lacks
 * a byte, and takes a missing end token to be token 11. The arrays are walked through in the file, one after the other;
 * only a hash of each token is kept, to find duplicates. The same walk measures what the bound on memory wants.
 *
 * Where the bound comes from (64-bit, libstdc++): a token is a text (32 bytes) three times, a node of a hash table with
 * a bucket, and its score and type; a merge is a text and a node with two more. A text of more than 15 bytes is a block
 * of the heap of its own. All of the file's arrays are in memory while the tables are built from them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/vocab_internal.h"

#define TOKENS_MAX ((uint64_t)1 << 20)
#define MERGES_MAX ((uint64_t)1 << 22)
#define TOKEN_BYTES_MAX 4096u
#define GARBLED_BYTES_MAX ((uint64_t)16 << 20)

#define TEXT_BYTES ((uint64_t)32) /* std::string */
#define TOKEN_NODE_BYTES ((uint64_t)64)
#define TOKEN_DATA_BYTES ((uint64_t)40)
#define MERGE_NODE_BYTES ((uint64_t)96)
#define BUCKET_BYTES_PEAK ((uint64_t)24) /* while a table grows, old and new buckets */
#define BUCKET_BYTES ((uint64_t)12)
#define FIXED_BYTES ((uint64_t)3 << 20)      /* tables of Unicode */
#define FIXED_BYTES_PEAK ((uint64_t)5 << 20) /* and the parser, and what the allocator keeps */

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES "tokenizer.ggml.token_type"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_MERGES "tokenizer.ggml.merges"

typedef struct {
    const lv_gguf *gguf;
    lever_error *error;
    lever_status status;
    uint64_t tokens_count;
    bool sentence_pieces;
    uint64_t *hashes;       /* of the tokens; NULL: not wanted */
    uint64_t heap_bytes;    /* of the blocks of long texts, once each */
    uint64_t garbled_bytes; /* see count_garbled */
    bool has_byte[256];
    uint64_t wanted_hash; /* to find a text again by its hash */
    char wanted_text[64];
} walker;

static lever_status bad(walker *w, const char *key, const char *what) {
    return lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' %s", lv_gguf_path(w->gguf), key, what);
}

static uint64_t heap_block_bytes(uint64_t text_bytes) {
    return text_bytes > 15 ? (text_bytes + 1 + 8 + 15) & ~(uint64_t)15 : 0;
}

/* --- Tokens ----------------------------------------------------------------------------------------------------------
 */

static uint64_t hash_text(const char *text, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* In byte-level BPE a character stands for a byte. For one that does not libllama writes the whole token once more into
 * its text: a vocabulary of such tokens would make it write gigabytes. */
static uint64_t count_garbled(const char *text, size_t bytes) {
    uint64_t garbled = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        if ((c & 0xc0) == 0x80) continue; /* inside a character */
        bool stands_for_byte = (c >= 0x21 && c <= 0x7e) || (c == 0xc2 && next >= 0xa1) || c == 0xc3 || c == 0xc4 ||
                               (c == 0xc5 && next <= 0x83);
        if (!stands_for_byte) garbled++;
    }
    return garbled * (bytes + 32);
}

static void note_byte(walker *w, const char *text, size_t bytes) {
    if (bytes == 1) w->has_byte[(unsigned char)text[0]] = true;
    char wanted[8];
    for (unsigned i = 0; bytes == 6 && i < 256; i++) {
        snprintf(wanted, sizeof wanted, "<0x%02X>", i);
        if (!memcmp(text, wanted, 6)) w->has_byte[i] = true;
    }
}

static bool visit_token(void *user, uint64_t index, const lv_gguf_value *value) {
    walker *w = user;
    char empty[32];
    const char *text = value->text;
    size_t bytes = value->text_bytes;
    if (!bytes) { /* the name that libllama gives it */
        bytes = (size_t)snprintf(empty, sizeof empty, "[EMPTY_%llu]", (unsigned long long)index);
        text = empty;
    }
    if (memchr(text, '\0', bytes)) { /* libllama would cut it there */
        w->status = lv_fail(w->error, LEVER_E_FORMAT, "%s: token %llu of key '%s' holds a zero byte",
                            lv_gguf_path(w->gguf), (unsigned long long)index, KEY_TOKENS);
        return false;
    }
    if (bytes > TOKEN_BYTES_MAX) {
        w->status =
            lv_fail(w->error, LEVER_E_FORMAT, "%s: token %llu of key '%s' has %zu bytes; lever takes at most %u",
                    lv_gguf_path(w->gguf), (unsigned long long)index, KEY_TOKENS, bytes, TOKEN_BYTES_MAX);
        return false;
    }
    w->heap_bytes += heap_block_bytes(bytes);
    if (w->sentence_pieces)
        note_byte(w, text, bytes);
    else
        w->garbled_bytes += count_garbled(text, bytes);
    if (w->hashes) w->hashes[index] = hash_text(text, bytes);
    return true;
}

static bool find_text(void *user, uint64_t index, const lv_gguf_value *value) {
    walker *w = user;
    (void)index;
    if (hash_text(value->text, value->text_bytes) != w->wanted_hash) return true;
    lv_gguf_printable(value->text, value->text_bytes, w->wanted_text, sizeof w->wanted_text);
    return false;
}

static void sift_down(uint64_t *heap, uint64_t root, uint64_t count) {
    for (uint64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && heap[child] < heap[child + 1]) child++;
        if (heap[root] >= heap[child]) return;
        uint64_t moved = heap[root];
        heap[root] = heap[child];
        heap[child] = moved;
    }
}

/* Equal texts have equal hashes. That two texts of an honest vocabulary of a million share one of 64 bits has a chance
 * of one in thirty million; then it is refused. */
static lever_status check_duplicates(walker *w) {
    uint64_t *h = w->hashes, count = w->tokens_count;
    for (uint64_t root = count / 2; root-- > 0;) sift_down(h, root, count);
    for (uint64_t last = count; last-- > 1;) {
        uint64_t largest = h[0];
        h[0] = h[last];
        h[last] = largest;
        sift_down(h, 0, last);
    }
    for (uint64_t i = 1; i < count; i++) {
        if (h[i] != h[i - 1]) continue;
        w->wanted_hash = h[i];
        LV_TRY(lv_gguf_walk_array(w->gguf, KEY_TOKENS, find_text, w, w->error));
        return lv_fail(w->error, LEVER_E_FORMAT, "%s: two tokens of key '%s' have the text '%s'", lv_gguf_path(w->gguf),
                       KEY_TOKENS, w->wanted_text);
    }
    return LEVER_OK;
}

static lever_status check_bytes(walker *w) {
    for (unsigned i = 0; w->sentence_pieces && i < 256; i++) {
        if (w->has_byte[i]) continue;
        return lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' has no token for the byte <0x%02X>",
                       lv_gguf_path(w->gguf), KEY_TOKENS, i);
    }
    return LEVER_OK;
}

/* --- Types, scores, merges ---------------------------------------------------------------------------------------- */

static bool visit_type(void *user, uint64_t index, const lv_gguf_value *value) {
    walker *w = user;
    if (value->integer >= 0 && value->integer <= 6) return true;
    w->status = lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' gives token %llu the type %lld; 0 to 6 are valid",
                        lv_gguf_path(w->gguf), KEY_TYPES, (unsigned long long)index, (long long)value->integer);
    return false;
}

static bool visit_score(void *user, uint64_t index, const lv_gguf_value *value) {
    walker *w = user;
    if (!isnan(value->real)) return true;
    w->status = lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' gives token %llu a score that is not a number",
                        lv_gguf_path(w->gguf), KEY_SCORES, (unsigned long long)index);
    return false;
}

static bool visit_merge(void *user, uint64_t index, const lv_gguf_value *value) {
    walker *w = user;
    const char *space = value->text_bytes > 2 ? memchr(value->text + 1, ' ', value->text_bytes - 2) : NULL;
    if (!space || memchr(value->text, '\0', value->text_bytes)) {
        char shown[64];
        w->status = lv_fail(
            w->error, LEVER_E_FORMAT, "%s: key '%s' has '%s' at %llu; two texts with a space between are wanted",
            lv_gguf_path(w->gguf), KEY_MERGES, lv_gguf_printable(value->text, value->text_bytes, shown, sizeof shown),
            (unsigned long long)index);
        return false;
    }
    uint64_t left = (uint64_t)(space - value->text);
    w->heap_bytes +=
        heap_block_bytes(value->text_bytes) + heap_block_bytes(left) + heap_block_bytes(value->text_bytes - left - 1);
    return true;
}

static lever_status walk(walker *w, const char *key, lv_gguf_visit_fn visit) {
    w->status = LEVER_OK;
    LV_TRY(lv_gguf_walk_array(w->gguf, key, visit, w, w->error));
    return w->status;
}

/* An array that has an element for each token. */
static lever_status check_per_token(walker *w, const char *key, uint32_t type_a, uint32_t type_b, const char *wanted,
                                    bool *found) {
    uint32_t type = 0;
    uint64_t count = 0;
    LV_TRY(lv_gguf_get_array(w->gguf, key, &type, &count, found, w->error));
    if (!*found) return LEVER_OK;
    if (type != type_a && type != type_b) return bad(w, key, wanted);
    if (count == w->tokens_count) return LEVER_OK;
    return lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' has %llu elements for %llu tokens", lv_gguf_path(w->gguf),
                   key, (unsigned long long)count, (unsigned long long)w->tokens_count);
}

/* --- Single keys -------------------------------------------------------------------------------------------------- */

static lever_status check_ids(walker *w, lv_vocab_survey *survey, const lv_log *log) {
    static const struct {
        const char *key;
        bool matters; /* else a bad one is ignored, as libllama does */
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", true},        {"tokenizer.ggml.eos_token_id", true},
        {"tokenizer.ggml.eot_token_id", true},        {"tokenizer.ggml.eom_token_id", true},
        {"tokenizer.ggml.unknown_token_id", false},   {"tokenizer.ggml.padding_token_id", false},
        {"tokenizer.ggml.seperator_token_id", false}, {"tokenizer.ggml.mask_token_id", false},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        uint32_t id = 0;
        bool found = false;
        LV_TRY(lv_gguf_get_u32(w->gguf, ids[i].key, &id, &found, w->error));
        if (found && i == 0) survey->names_begin = true;
        if (found && i == 1) survey->names_end = true;
        if (!found || id < w->tokens_count) continue;
        if (ids[i].matters)
            return lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' is %u, but the vocabulary has %llu tokens",
                           lv_gguf_path(w->gguf), ids[i].key, id, (unsigned long long)w->tokens_count);
        lv_log_write(log, LEVER_LOG_WARNING, "%s: key '%s' is %u, past the vocabulary of %llu tokens: ignored",
                     lv_gguf_path(w->gguf), ids[i].key, id, (unsigned long long)w->tokens_count);
    }
    return LEVER_OK;
}

static lever_status read_kind(walker *w, lv_vocab_survey *survey) {
    const char *model = NULL;
    char shown[64];
    bool found = false;
    LV_TRY(lv_gguf_get_text(w->gguf, "tokenizer.ggml.model", &model, NULL, w->error));
    survey->sentence_pieces = w->sentence_pieces = !strcmp(model, "llama");
    if (!survey->sentence_pieces && strcmp(model, "gpt2"))
        return lv_fail(w->error, LEVER_E_FORMAT,
                       "%s: the tokenizer '%s' (key 'tokenizer.ggml.model') is not supported; these are: gpt2, llama",
                       lv_gguf_path(w->gguf), lv_gguf_printable(model, strlen(model), shown, sizeof shown));
    LV_TRY(lv_gguf_get_text(w->gguf, "tokenizer.ggml.pre", &survey->pre, &found, w->error));
    survey->space_prefix = survey->sentence_pieces;
    LV_TRY(lv_gguf_get_bool(w->gguf, "tokenizer.ggml.add_space_prefix", &survey->space_prefix, &found, w->error));

    uint32_t type = 0;
    LV_TRY(lv_gguf_get_array(w->gguf, KEY_TOKENS, &type, &w->tokens_count, NULL, w->error));
    if (type != LV_GGUF_TEXT) return bad(w, KEY_TOKENS, "is not an array of texts");
    if (!w->tokens_count || w->tokens_count > TOKENS_MAX)
        return lv_fail(w->error, LEVER_E_FORMAT, "%s: key '%s' has %llu tokens; 1 to %llu are valid",
                       lv_gguf_path(w->gguf), KEY_TOKENS, (unsigned long long)w->tokens_count,
                       (unsigned long long)TOKENS_MAX);
    survey->tokens_count = (uint32_t)w->tokens_count;
    return LEVER_OK;
}

/* --- The survey --------------------------------------------------------------------------------------------------- */

static lever_status measure(walker *w, lv_vocab_survey *survey) {
    uint64_t token_heap_bytes = 0, merges_count = 0;
    uint32_t type = 0;
    bool found = false;
    LV_TRY(walk(w, KEY_TOKENS, visit_token));
    token_heap_bytes = w->heap_bytes;
    if (w->garbled_bytes > GARBLED_BYTES_MAX)
        return bad(w, KEY_TOKENS, "is not of byte-level BPE, as 'tokenizer.ggml.model' says");
    LV_TRY(lv_gguf_get_array(w->gguf, KEY_MERGES, &type, &merges_count, &found, w->error));
    if (!survey->sentence_pieces && !found) return bad(w, KEY_MERGES, "is missing");
    if (found && type != LV_GGUF_TEXT) return bad(w, KEY_MERGES, "is not an array of texts");
    if (merges_count > MERGES_MAX) return bad(w, KEY_MERGES, "has more merges than lever takes");
    if (survey->sentence_pieces) merges_count = 0; /* libllama does not look at them */
    if (merges_count) LV_TRY(walk(w, KEY_MERGES, visit_merge));
    uint64_t merge_heap_bytes = w->heap_bytes - token_heap_bytes;

    survey->file_bytes = lv_vocab_skeleton_bytes(w->gguf);
    uint64_t peak = survey->file_bytes + w->garbled_bytes + FIXED_BYTES_PEAK + 4 * token_heap_bytes + merge_heap_bytes +
                    w->tokens_count * (2 * TEXT_BYTES + TOKEN_NODE_BYTES + TOKEN_DATA_BYTES + BUCKET_BYTES_PEAK + 8) +
                    merges_count * (TEXT_BYTES + MERGE_NODE_BYTES + BUCKET_BYTES_PEAK);
    survey->bound_bytes = peak + peak / 12 + LV_VOCAB_WORK_BYTES;
    survey->resident_bytes = w->garbled_bytes + FIXED_BYTES + 3 * token_heap_bytes + merge_heap_bytes / 2 +
                             w->tokens_count * (TEXT_BYTES + TOKEN_NODE_BYTES + TOKEN_DATA_BYTES + BUCKET_BYTES) +
                             merges_count * (MERGE_NODE_BYTES + BUCKET_BYTES);
    return LEVER_OK;
}

lever_status lv_vocab_survey_bound(lv_vocab_survey *survey, const lv_gguf *gguf, lever_error *error) {
    *survey = (lv_vocab_survey){0};
    walker w = {.gguf = gguf, .error = error};
    LV_TRY(read_kind(&w, survey));
    return measure(&w, survey);
}

lever_status lv_vocab_survey_read(lv_vocab_survey *survey, const lv_gguf *gguf, lv_ledger *ledger, const lv_log *log,
                                  lever_error *error) {
    *survey = (lv_vocab_survey){0};
    walker w = {.gguf = gguf, .error = error};
    LV_TRY(read_kind(&w, survey));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_VOCABULARY, w.tokens_count, sizeof *w.hashes,
                            "checking a vocabulary", error));
    w.hashes = memory;
    lever_status status = measure(&w, survey);
    if (status == LEVER_OK) status = check_duplicates(&w);
    lv_free(w.hashes);
    if (status == LEVER_OK) status = check_bytes(&w);
    LV_TRY(status);

    bool has_types = false, has_scores = false, found = false, add_begin = false;
    LV_TRY(check_per_token(&w, KEY_TYPES, LV_GGUF_I32, LV_GGUF_I32, "is not an array of i32", &has_types));
    if (has_types) LV_TRY(walk(&w, KEY_TYPES, visit_type));
    LV_TRY(check_per_token(&w, KEY_SCORES, LV_GGUF_F32, LV_GGUF_I32, "is not an array of f32 or i32", &has_scores));
    if (has_scores) LV_TRY(walk(&w, KEY_SCORES, visit_score));
    if (w.sentence_pieces && !has_scores) return bad(&w, KEY_SCORES, "is missing");
    LV_TRY(check_ids(&w, survey, log));
    return lv_gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &add_begin, &found, error); /* its type */
}
