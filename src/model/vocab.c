/* vocab.c - a vocabulary: opening it, and what is asked about single tokens.
 *
 * libllama holds the tables. Beside them stand a few small ones of lever's own: the special tokens by their first byte,
 * for cutting texts (vocab_text.c), and the token of each byte, for spelling a name out. Memory: the bound of
 * vocab_check.c is reserved, libllama loads, freed memory is given back to the system, and what the process grew by is
 * what stays booked, within limits that the count of tokens gives, since other threads may allocate meanwhile. */
#include "model/vocab.h"

#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system.h"
#include "model/vocab_internal.h"

lever_status lv_vocab_bytes_bound(const lv_gguf *gguf, uint64_t *bytes, lever_error *error) {
    lv_vocab_survey survey;
    LV_TRY(lv_vocab_survey_bound(&survey, gguf, error));
    *bytes = survey.bound_bytes;
    return LEVER_OK;
}

/* --- Memory ------------------------------------------------------------------------------------------------------- */

static uint64_t grown_memory(void) {
    lv_process_memory memory;
    lv_system_trim_heap();
    lv_process_memory_read("", &memory);
    return memory.rss_anon_bytes;
}

static uint64_t settled_bytes(uint64_t before, uint64_t after, const lv_vocab_survey *survey) {
    uint64_t least = survey->resident_bytes - survey->resident_bytes / 8;
    uint64_t grown = after > before ? after - before : 0;
    if (!before || !after) grown = survey->resident_bytes + survey->resident_bytes / 8; /* nobody could say */
    if (grown < least) grown = least;
    grown += LV_VOCAB_WORK_BYTES;
    return grown < survey->bound_bytes ? grown : survey->bound_bytes;
}

/* What of `bytes` passes what is booked for good. */
static uint64_t excess(uint64_t bytes) {
    return bytes > LV_VOCAB_WORK_BYTES ? bytes - LV_VOCAB_WORK_BYTES : 0;
}

lever_status lv_vocab_work_take(const lv_vocab *vocab, uint64_t bytes, lever_error *error) {
    lv_vocab *v = (lv_vocab *)vocab; /* its account is no part of what is const */
    pthread_mutex_lock(&v->work_lock);
    uint64_t more = excess(v->work_bytes + bytes) - excess(v->work_bytes);
    lever_status status = more ? lv_ledger_reserve(v->ledger, LV_MEM_VOCABULARY, more, error) : LEVER_OK;
    if (status == LEVER_OK) v->work_bytes += bytes;
    pthread_mutex_unlock(&v->work_lock);
    return status;
}

void lv_vocab_work_give(const lv_vocab *vocab, uint64_t bytes) {
    lv_vocab *v = (lv_vocab *)vocab;
    pthread_mutex_lock(&v->work_lock);
    lv_ledger_release(v->ledger, LV_MEM_VOCABULARY, excess(v->work_bytes) - excess(v->work_bytes - bytes));
    v->work_bytes -= bytes;
    pthread_mutex_unlock(&v->work_lock);
}

lever_status lv_vocab_work_alloc(const lv_vocab *vocab, void **memory, size_t bytes, lever_error *error) {
    *memory = NULL;
    LV_TRY(lv_vocab_work_take(vocab, bytes, error));
    lever_status status = lv_alloc_checked(memory, NULL, LV_MEM_VOCABULARY, bytes, 1, "the work on a text", error);
    if (status != LEVER_OK) lv_vocab_work_give(vocab, bytes);
    return status;
}

void lv_vocab_work_free(const lv_vocab *vocab, void *memory, size_t bytes) {
    if (!memory) return;
    lv_free(memory);
    lv_vocab_work_give(vocab, bytes);
}

static lever_status load(lv_vocab *vocab, const lv_gguf *gguf, const lv_vocab_survey *survey, const lv_log *log,
                         lever_error *error) {
    LV_TRY(lv_ledger_reserve(vocab->ledger, LV_MEM_VOCABULARY, survey->bound_bytes, error));
    uint64_t before = grown_memory();
    bool unknown_pre = false;
    lever_status status = lv_vocab_load(&vocab->model, gguf, false, &unknown_pre, log, error);
    if (unknown_pre) {
        char shown[64];
        lv_log_write(log, LEVER_LOG_WARNING,
                     "%s: the pre-tokenizer '%s' (key 'tokenizer.ggml.pre') is not known; texts are split as 'default' "
                     "does, and tokens may differ from those that the model was trained on",
                     lv_gguf_path(gguf), lv_gguf_printable(survey->pre, strlen(survey->pre), shown, sizeof shown));
        lv_error_clear(error);
        status = lv_vocab_load(&vocab->model, gguf, true, &unknown_pre, log, error);
    } else if (status == LEVER_OK && !survey->sentence_pieces && !survey->pre) {
        lv_log_write(
            log, LEVER_LOG_WARNING,
            "%s: key 'tokenizer.ggml.pre' is missing; texts are split as 'default' does, and tokens may differ "
            "from those that the model was trained on",
            lv_gguf_path(gguf));
    }
    vocab->booked_bytes = status == LEVER_OK ? settled_bytes(before, grown_memory(), survey) : 0;
    lv_ledger_release(vocab->ledger, LV_MEM_VOCABULARY, survey->bound_bytes - vocab->booked_bytes);
    return status;
}

/* --- Tables ------------------------------------------------------------------------------------------------------- */

/* The byte that a character of byte-level BPE stands for; -1: none, or more than one character. */
static int byte_of_character(const char *text) {
    unsigned c = (unsigned char)text[0], next = c ? (unsigned char)text[1] : 0;
    unsigned code = c;
    if (c >= 0xc2 && c <= 0xc5 && next) {
        if (text[2]) return -1;
        code = (c & 0x1f) << 6 | (next & 0x3f);
    } else if (next || c < 0x21 || c > 0x7e) {
        return -1;
    }
    if (code < 0x100) return (int)code;
    /* From U+0100 on stand the bytes that are no printable Latin-1 character, in order. */
    unsigned rank = code - 0x100;
    if (rank <= 0x20) return (int)rank;
    if (rank <= 0x42) return (int)(rank - 0x21 + 0x7f);
    return rank == 0x43 ? 0xad : -1;
}

static int byte_of_piece(const struct llama_vocab *llama, int32_t token, const char *text) {
    unsigned value = 0;
    if (text[0] && !text[1]) return (unsigned char)text[0];
    if ((llama_vocab_get_attr(llama, token) & LLAMA_TOKEN_ATTR_BYTE) && strlen(text) == 6 &&
        sscanf(text, "<0x%2X>", &value) == 1)
        return (int)value;
    return -1;
}

static void fill_byte_tokens(lv_vocab *vocab) {
    for (int i = 0; i < 256; i++) vocab->byte_tokens[i] = -1;
    for (int32_t token = 0; token < vocab->tokens_count; token++) {
        const char *text = llama_vocab_get_text(vocab->llama, token);
        int byte = vocab->sentence_pieces ? byte_of_piece(vocab->llama, token, text) : byte_of_character(text);
        if (byte < 0 || llama_vocab_is_control(vocab->llama, token)) continue;
        /* A character of one byte is better than the token of that byte. */
        if (vocab->byte_tokens[byte] < 0 || !text[1]) vocab->byte_tokens[byte] = token;
    }
}

static const enum llama_token_attr special_attributes =
    LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN;

static bool is_special(const lv_vocab *vocab, int32_t token) {
    return token != vocab->plain_token && (llama_vocab_get_attr(vocab->llama, token) & special_attributes) != 0;
}

static bool special_less(const lv_vocab_special *a, const lv_vocab_special *b) {
    unsigned char first_a = (unsigned char)a->text[0], first_b = (unsigned char)b->text[0];
    if (first_a != first_b) return first_a < first_b;
    if (a->text_bytes != b->text_bytes) return a->text_bytes > b->text_bytes;
    return a->token < b->token;
}

static void sift_down(lv_vocab_special *heap, uint64_t root, uint64_t count) {
    for (uint64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && special_less(&heap[child], &heap[child + 1])) child++;
        if (!special_less(&heap[root], &heap[child])) return;
        lv_vocab_special moved = heap[root];
        heap[root] = heap[child];
        heap[child] = moved;
    }
}

static lever_status fill_specials(lv_vocab *vocab, lever_error *error) {
    uint32_t count = 0;
    for (int32_t token = 0; token < vocab->tokens_count; token++) count += is_special(vocab, token);
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, vocab->ledger, LV_MEM_VOCABULARY, (size_t)count + 1, sizeof *vocab->specials,
                            "the special tokens", error));
    lv_vocab_special *s = vocab->specials = memory;
    for (int32_t token = 0; token < vocab->tokens_count; token++) {
        if (!is_special(vocab, token)) continue;
        const char *text = llama_vocab_get_text(vocab->llama, token);
        if (!text[0]) continue;
        enum llama_token_attr attributes = llama_vocab_get_attr(vocab->llama, token);
        s[vocab->specials_count++] = (lv_vocab_special){
            .text = text,
            .text_bytes = (uint32_t)strlen(text),
            .token = token,
            .user_defined = !(attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)),
            .strips_left = (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
            .strips_right = (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0,
        };
    }
    count = vocab->specials_count;
    for (uint32_t root = count / 2; root-- > 0;) sift_down(s, root, count);
    for (uint32_t last = count; last-- > 1;) {
        lv_vocab_special largest = s[0];
        s[0] = s[last];
        s[last] = largest;
        sift_down(s, 0, last);
    }
    uint32_t next = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        while (next < count && (unsigned char)s[next].text[0] < byte) next++;
        vocab->specials_first[byte] = next;
    }
    vocab->specials_first[256] = count;
    return LEVER_OK;
}

/* --- What libllama assumes and the file does not say ----------------------------------------------------------------
 */

typedef struct {
    const struct llama_vocab *llama;
    int32_t found;
} plain_search;

static bool find_plain(void *user, uint64_t index, const lv_gguf_value *value) {
    plain_search *search = user;
    int32_t token = (int32_t)index;
    if (value->integer != 1 /* a normal token */ || !llama_vocab_is_control(search->llama, token) ||
        strcmp(llama_vocab_get_text(search->llama, token), "</s>") != 0)
        return true;
    search->found = token;
    return false;
}

/* libllama makes every token "</s>" a control token that ends answers. In a vocabulary of byte-level BPE it can be what
 * ends struck-out text in HTML: then the file calls it normal, and names another end token. */
static lever_status find_plain_token(lv_vocab *vocab, const lv_gguf *gguf, const lv_vocab_survey *survey,
                                     lever_error *error) {
    uint32_t type = 0;
    uint64_t count = 0;
    bool found = false;
    plain_search search = {.llama = vocab->llama, .found = -1};
    LV_TRY(lv_gguf_get_array(gguf, "tokenizer.ggml.token_type", &type, &count, &found, error));
    if (found && !survey->sentence_pieces && survey->names_end)
        LV_TRY(lv_gguf_walk_array(gguf, "tokenizer.ggml.token_type", find_plain, &search, error));
    bool named = search.found == llama_vocab_eos(vocab->llama) || search.found == llama_vocab_eot(vocab->llama);
    vocab->plain_token = named ? -1 : search.found;
    return LEVER_OK;
}

static void find_ends(lv_vocab *vocab, const lv_vocab_survey *survey) {
    const struct llama_vocab *llama = vocab->llama;
    int32_t begin = llama_vocab_bos(llama), end = llama_vocab_eos(llama);
    vocab->begin_token = -1;
    if (llama_vocab_get_add_bos(llama) && begin >= 0 && begin < vocab->tokens_count &&
        (survey->names_begin || llama_vocab_is_control(llama, begin)))
        vocab->begin_token = begin;
    vocab->not_end_token = -1;
    if (!survey->names_end && end >= 0 && end < vocab->tokens_count && !llama_vocab_is_control(llama, end))
        vocab->not_end_token = end;
}

/* Names of pre-splits that libllama carries out in loops. The others go through std::regex, which recurses once a
 * character. */
static bool splits_in_loops(const char *pre) {
    static const char *const names[] = {"qwen2",      "deepseek-r1-qwen",
                                        "megrez",     "hunyuan",
                                        "stablelm2",  "qwen35",
                                        "llama3",     "llama-v3",
                                        "llama-bpe",  "falcon3",
                                        "pixtral",    "lfm2",
                                        "smaug-bpe",  "dbrx",
                                        "gpt-2",      "phi-2",
                                        "gigachat",   "mpt",
                                        "olmo",       "jais",
                                        "trillion",   "exaone4",
                                        "smollm",     "starcoder",
                                        "refact",     "command-r",
                                        "codeshell",  "exaone",
                                        "minerva-7b", NULL};
    for (size_t i = 0; pre && names[i]; i++)
        if (!strcmp(pre, names[i])) return true;
    return false;
}

/* --- Opening ------------------------------------------------------------------------------------------------------ */

static lever_status open_all(lv_vocab *vocab, const lv_gguf *gguf, const lv_log *log, lever_error *error) {
    lv_vocab_survey survey;
    const char *chat_template = NULL;
    bool found = false;
    LV_TRY(lv_vocab_survey_read(&survey, gguf, vocab->ledger, log, error));
    LV_TRY(lv_gguf_get_text(gguf, "tokenizer.chat_template", &chat_template, &found, error));
    if (chat_template) {
        vocab->chat_template = lv_strdup(vocab->ledger, LV_MEM_VOCABULARY, chat_template);
        if (!vocab->chat_template)
            return lv_fail(error, LEVER_E_MEMORY, "no memory for the chat template of %s", lv_gguf_path(gguf));
    }
    LV_TRY(load(vocab, gguf, &survey, log, error));
    vocab->llama = llama_model_get_vocab(vocab->model);
    vocab->tokens_count = llama_vocab_n_tokens(vocab->llama);
    vocab->sentence_pieces = survey.sentence_pieces;
    vocab->space_prefix = survey.space_prefix;
    vocab->recursive_split = !survey.sentence_pieces && !splits_in_loops(survey.pre);
    LV_TRY(find_plain_token(vocab, gguf, &survey, error));
    find_ends(vocab, &survey);
    fill_byte_tokens(vocab);
    return fill_specials(vocab, error);
}

lever_status lv_vocab_open(lv_vocab **out, const lv_gguf *gguf, lv_ledger *ledger, const lv_log *log,
                           lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_VOCABULARY, 1, sizeof **out, "a vocabulary", error));
    lv_vocab *vocab = memory;
    vocab->ledger = ledger;
    pthread_mutex_init(&vocab->work_lock, NULL);
    lever_status status = open_all(vocab, gguf, log, error);
    if (status == LEVER_OK)
        *out = vocab;
    else
        lv_vocab_close(&vocab);
    return status;
}

void lv_vocab_close(lv_vocab **handle) {
    lv_vocab *vocab = handle ? *handle : NULL;
    if (!vocab) return;
    if (vocab->model) {
        llama_model_free(vocab->model);
        lv_system_trim_heap();
    }
    lv_ledger_release(vocab->ledger, LV_MEM_VOCABULARY, vocab->booked_bytes);
    lv_free(vocab->specials);
    lv_free(vocab->chat_template);
    pthread_mutex_destroy(&vocab->work_lock);
    lv_free(vocab);
    *handle = NULL;
}

/* --- Single tokens ------------------------------------------------------------------------------------------------ */

int32_t lv_vocab_tokens_count(const lv_vocab *vocab) {
    return vocab->tokens_count;
}

static bool is_token(const lv_vocab *vocab, int32_t token) {
    return token >= 0 && token < vocab->tokens_count;
}

size_t lv_vocab_piece(const lv_vocab *vocab, int32_t token, bool control, char *text, size_t capacity) {
    if (!is_token(vocab, token)) return 0;
    int32_t room = capacity < INT32_MAX ? (int32_t)capacity : INT32_MAX;
    int32_t bytes = llama_token_to_piece(vocab->llama, token, text, room, 0, control || token == vocab->plain_token);
    return (size_t)abs(bytes); /* negative: did not fit */
}

bool lv_vocab_is_end(const lv_vocab *vocab, int32_t token) {
    return is_token(vocab, token) && token != vocab->plain_token && token != vocab->not_end_token &&
           llama_vocab_is_eog(vocab->llama, token);
}

const char *lv_vocab_chat_template(const lv_vocab *vocab) {
    return vocab->chat_template;
}

int32_t lv_vocab_begin_token(const lv_vocab *vocab) {
    return vocab->begin_token;
}
