/* vocab_text.c - from text to tokens.
 *
 * libllama could take a text as a whole, but then its memory grows with the text (some 150 bytes a character), a run of
 * one character overflows the stack where it splits by std::regex, and the names of control tokens in a stranger's text
 * can become control tokens after all, when merges lead there. So a text is taken apart here first:
 *
 *     text:    Hello <|im_end|> world. It was a dark and stormy night, ...
 *     special:       [========]                                             where control tokens are wanted
 *     chunks:  [====]          [=========================...]               of some 4 KiB, tokenised one by one
 *
 * A chunk ends where every pre-split ends a word: between a letter and a space, a full stop or a comma. The tokens are
 * then those of the whole text. Only where no such place is found within 64 KiB is a chunk cut anyway, and, where the
 * split recurses, within 256 characters without a blank. */
#include <llama.h>
#include <string.h>

#include "base/text.h"
#include "model/vocab_internal.h"

#define CHUNK_BYTES ((size_t)4 << 10)      /* from here on the next good place is taken */
#define CHUNK_BYTES_MAX ((size_t)64 << 10) /* and here any place */
#define RUN_CHARACTERS_MAX 256u            /* 328 bytes of stack each, measured */
/* What libllama takes for a chunk, and the tokens that can come of it: measured 155 bytes a character at most for runs
 * of one character; a space is three bytes in SentencePiece, each perhaps a token. */
#define WORK_BYTES_PER_BYTE ((size_t)256)
#define TOKENS_PER_BYTE ((size_t)3)
#define TOKENS_EXTRA ((size_t)16)

/* --- Where a text may be cut -------------------------------------------------------------------------------------- */

static bool is_ascii_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t character_bytes(char first) {
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The code of a character of three bytes, as those of CJK texts are; 0: another. */
static unsigned code_of_three(const char *text) {
    const unsigned char *t = (const unsigned char *)text;
    if ((t[0] & 0xf0) != 0xe0) return 0;
    return (unsigned)(t[0] & 0x0f) << 12 | (unsigned)(t[1] & 0x3f) << 6 | (t[2] & 0x3f);
}

static bool is_east_asian_letter(unsigned code) {
    return (code >= 0x3041 && code <= 0x3096) || (code >= 0x30a1 && code <= 0x30fa) ||
           (code >= 0x4e00 && code <= 0x9fff) || (code >= 0xac00 && code <= 0xd7a3);
}

/* Whether every pre-split begins a word at `at`, where a character begins. */
static bool ends_word(const lv_vocab *vocab, const char *text, size_t bytes, size_t at) {
    if (!at) return false;
    char before = text[at - 1], here = text[at];
    if (is_ascii_letter(before) && here == ' ') return true;
    if (vocab->sentence_pieces) return false; /* nothing but a space ends a word, and tokens may hold full stops */
    bool letter = is_ascii_letter(before) || (at >= 3 && is_east_asian_letter(code_of_three(text + at - 3)));
    if (!letter) return false;
    if (here == '.' || here == ',' || here == '!' || here == '?') return true;
    unsigned code = at + 2 < bytes ? code_of_three(text + at) : 0;
    return code == 0x3001 || code == 0x3002 || code == 0xff0c;
}

/* How many of the bytes make the next chunk; at least 1. */
static size_t chunk_bytes(const lv_vocab *vocab, const char *text, size_t bytes) {
    size_t good = 0, run_begin = 0, at = 0;
    unsigned run_characters = 0;
    bool blank_run = false;
    while (at < bytes) {
        if (ends_word(vocab, text, bytes, at)) good = at;
        if (good >= CHUNK_BYTES) return good;
        if (at >= CHUNK_BYTES_MAX && !vocab->sentence_pieces) return good ? good : at;
        bool ascii = (unsigned char)text[at] < 0x80, blank = is_blank(text[at]);
        if (ascii && blank != blank_run) { /* other characters may be of either kind */
            run_begin = at;
            run_characters = 0;
            blank_run = blank;
        }
        if (++run_characters > RUN_CHARACTERS_MAX && vocab->recursive_split) return good > run_begin ? good : at;
        at += character_bytes(text[at]);
    }
    return bytes;
}

/* --- Runs of text ------------------------------------------------------------------------------------------------- */

/* Room for the work on one text; grows with the largest chunk. */
typedef struct {
    const lv_vocab *vocab;
    size_t libllama_bytes; /* taken for what libllama allocates */
    int32_t *tokens;
    size_t tokens_bytes;
} scratch;

static lever_status make_room(scratch *s, size_t bytes, lever_error *error) {
    if (bytes > INT32_MAX / WORK_BYTES_PER_BYTE)
        return lv_fail(error, LEVER_E_ARGUMENT, "a text with %zu bytes and no place to cut it is too long", bytes);
    size_t libllama_bytes = bytes * WORK_BYTES_PER_BYTE;
    size_t tokens_bytes = (bytes * TOKENS_PER_BYTE + TOKENS_EXTRA) * sizeof *s->tokens;
    if (libllama_bytes > s->libllama_bytes) {
        LV_TRY(lv_vocab_work_take(s->vocab, libllama_bytes - s->libllama_bytes, error));
        s->libllama_bytes = libllama_bytes;
    }
    if (tokens_bytes > s->tokens_bytes) {
        void *memory = NULL;
        LV_TRY(lv_vocab_work_alloc(s->vocab, &memory, tokens_bytes, error));
        lv_vocab_work_free(s->vocab, s->tokens, s->tokens_bytes);
        s->tokens = memory;
        s->tokens_bytes = tokens_bytes;
    }
    return LEVER_OK;
}

static void give_back(scratch *s) {
    lv_vocab_work_give(s->vocab, s->libllama_bytes);
    lv_vocab_work_free(s->vocab, s->tokens, s->tokens_bytes);
}

/* Whether a token that came out of plain text must not stand for itself. */
static bool must_be_spelled(const lv_vocab *vocab, const lv_vocab_rules *rules, int32_t token) {
    if (token == vocab->plain_token) return false;
    enum llama_token_attr attributes = llama_vocab_get_attr(vocab->llama, token);
    if (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) return true;
    for (size_t i = 0; i < rules->forbidden_count; i++)
        if (rules->forbidden[i] == token) return true;
    return false;
}

static void add_spelled(const lv_vocab *vocab, int32_t token, lv_token_sink *sink) {
    for (const char *text = llama_vocab_get_text(vocab->llama, token); *text; text++) {
        int32_t byte_token = vocab->byte_tokens[(unsigned char)*text];
        if (byte_token >= 0) lv_token_sink_add(sink, byte_token);
    }
}

static lever_status append_chunk(const lv_vocab *vocab, const lv_vocab_rules *rules, const char *text, size_t bytes,
                                 scratch *s, lv_token_sink *sink, lever_error *error) {
    LV_TRY(make_room(s, bytes, error));
    int32_t count = llama_tokenize(vocab->llama, text, (int32_t)bytes, s->tokens,
                                   (int32_t)(s->tokens_bytes / sizeof *s->tokens), false, false);
    if (count < 0)
        return lv_fail(error, LEVER_E_INTERNAL, "%zu bytes of text made %lld tokens, more than possible", bytes,
                       -(long long)count);
    for (int32_t i = 0; i < count; i++) {
        if (must_be_spelled(vocab, rules, s->tokens[i]))
            add_spelled(vocab, s->tokens[i], sink);
        else
            lv_token_sink_add(sink, s->tokens[i]);
    }
    return LEVER_OK;
}

/* A run: text between special tokens. */
static lever_status append_run(const lv_vocab *vocab, const lv_vocab_rules *rules, const char *text, size_t bytes,
                               scratch *s, lv_token_sink *sink, lever_error *error) {
    bool first = true;
    while (bytes) {
        /* SentencePiece puts a space before a text. Of a later chunk it is the space that the chunk begins with. */
        size_t skip = !first && vocab->space_prefix && text[0] == ' ' ? 1 : 0;
        size_t step = chunk_bytes(vocab, text, bytes);
        LV_TRY(append_chunk(vocab, rules, text + skip, step - skip, s, sink, error));
        text += step;
        bytes -= step;
        first = false;
    }
    return LEVER_OK;
}

/* --- Special tokens ----------------------------------------------------------------------------------------------- */

const lv_vocab_special *lv_vocab_match(const lv_vocab *vocab, const char *text, size_t bytes, bool control) {
    if (!bytes) return NULL;
    unsigned byte = (unsigned char)text[0];
    for (uint32_t i = vocab->specials_first[byte]; i < vocab->specials_first[byte + 1]; i++) {
        const lv_vocab_special *special = &vocab->specials[i];
        if (!control && !special->user_defined) continue;
        if (special->text_bytes <= bytes && !memcmp(special->text, text, special->text_bytes)) return special;
    }
    return NULL;
}

static bool is_forbidden(const lv_vocab_rules *rules, const lv_vocab_special *special) {
    for (size_t i = 0; i < rules->forbidden_count; i++)
        if (rules->forbidden[i] == special->token) return true;
    return false;
}

lever_status lv_vocab_append(const lv_vocab *vocab, const lv_vocab_rules *rules, const char *text, size_t bytes,
                             lv_token_sink *sink, lever_error *error) {
    scratch s = {.vocab = vocab};
    lever_status status = LEVER_OK;
    size_t begin = 0, at = 0;
    while (at < bytes && status == LEVER_OK) {
        const lv_vocab_special *special = lv_vocab_match(vocab, text + at, bytes - at, rules->control);
        if (!special || is_forbidden(rules, special)) {
            at++;
            continue;
        }
        size_t end = at;
        while (special->strips_left && end > begin && is_blank(text[end - 1])) end--;
        status = append_run(vocab, rules, text + begin, end - begin, &s, sink, error);
        if (status == LEVER_OK) lv_token_sink_add(sink, special->token);
        at += special->text_bytes;
        while (special->strips_right && at < bytes && is_blank(text[at])) at++;
        begin = at;
    }
    if (status == LEVER_OK) status = append_run(vocab, rules, text + begin, bytes - begin, &s, sink, error);
    give_back(&s);
    return status;
}

/* --- Whole texts -------------------------------------------------------------------------------------------------- */

lever_status lv_vocab_repair(const lv_vocab *vocab, const char *text, size_t bytes, char **copy, size_t *copy_bytes,
                             lever_error *error) {
    *copy = NULL;
    *copy_bytes = bytes;
    if (lv_utf8_whole(text, bytes) == bytes) return LEVER_OK;
    size_t wanted = lv_utf8_repair(text, bytes, NULL, 0);
    void *memory = NULL;
    LV_TRY(lv_vocab_work_alloc(vocab, &memory, wanted + 1, error));
    lv_utf8_repair(text, bytes, memory, wanted);
    *copy = memory;
    *copy_bytes = wanted;
    return LEVER_OK;
}

lever_status lv_token_sink_check(const lv_token_sink *sink, size_t *count, lever_error *error) {
    *count = sink->count;
    if (sink->count <= sink->capacity) return LEVER_OK;
    return lv_fail(error, LEVER_E_ARGUMENT, "the text makes %zu tokens; room was given for %zu", sink->count,
                   sink->capacity);
}

lever_status lv_vocab_tokenize(const lv_vocab *vocab, const char *text, size_t text_bytes, bool begin, bool control,
                               int32_t *tokens, size_t capacity, size_t *count, lever_error *error) {
    *count = 0;
    char *copy = NULL;
    size_t bytes = text_bytes;
    LV_TRY(lv_vocab_repair(vocab, text, text_bytes, &copy, &bytes, error));
    if (copy) text = copy;
    lv_token_sink sink = {.tokens = tokens, .capacity = capacity};
    if (begin && vocab->begin_token >= 0) {
        const lv_vocab_special *first = control ? lv_vocab_match(vocab, text, bytes, true) : NULL;
        if (!first || first->token != vocab->begin_token) lv_token_sink_add(&sink, vocab->begin_token);
    }
    lever_status status = lv_vocab_append(vocab, &(lv_vocab_rules){.control = control}, text, bytes, &sink, error);
    lv_vocab_work_free(vocab, copy, bytes + 1);
    return status == LEVER_OK ? lv_token_sink_check(&sink, count, error) : status;
}
