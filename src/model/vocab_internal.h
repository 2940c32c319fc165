/* vocab_internal.h - what vocab*.c and chat.c share, and nobody else.
 *
 * A SURVEY is what is known of a file's tokenizer before libllama sees it: checked, and measured for the bound on
 * memory. A SINK collects tokens for a caller who gave room for some of them. */
#ifndef LV_MODEL_VOCAB_INTERNAL_H
#define LV_MODEL_VOCAB_INTERNAL_H

#include <pthread.h>

#include "model/vocab.h"

struct llama_model;
struct llama_vocab;

typedef struct {
    bool sentence_pieces;        /* tokenizer "llama"; else byte-level BPE, "gpt2" */
    bool space_prefix;           /* SentencePiece: a text begins with a space of its own */
    const char *pre;             /* tokenizer.ggml.pre; NULL: none */
    bool names_begin, names_end; /* the file says which tokens these are */
    uint32_t tokens_count;
    uint64_t file_bytes;     /* of the skeleton for libllama */
    uint64_t bound_bytes;    /* libllama's peak while loading, the skeleton included, and LV_VOCAB_WORK_BYTES */
    uint64_t resident_bytes; /* what libllama keeps, estimated */
} lv_vocab_survey;

/* Checks everything that libllama would abort on, or take wrongly. `log` may be NULL. */
lever_status lv_vocab_survey_read(lv_vocab_survey *survey, const lv_gguf *gguf, lv_ledger *ledger, const lv_log *log,
                                  lever_error *error);
/* Only what the bound wants: cheaper, and without the checks that need memory. */
lever_status lv_vocab_survey_bound(lv_vocab_survey *survey, const lv_gguf *gguf, lever_error *error);

/* The bytes of what libllama is given, and loading it. With `without_pre` the key tokenizer.ggml.pre is left out.
 * *unknown_pre is set when loading failed because libllama does not know its value. */
uint64_t lv_vocab_skeleton_bytes(const lv_gguf *gguf);
lever_status lv_vocab_load(struct llama_model **model, const lv_gguf *gguf, bool without_pre, bool *unknown_pre,
                           const lv_log *log, lever_error *error);

/* A token that stands in a text by its name. */
typedef struct {
    const char *text;
    uint32_t text_bytes;
    int32_t token;
    bool user_defined;              /* found in any text; else only where control tokens are wanted */
    bool strips_left, strips_right; /* takes the blanks beside it away */
} lv_vocab_special;

struct lv_vocab {
    struct llama_model *model;
    const struct llama_vocab *llama;
    lv_ledger *ledger;
    uint64_t booked_bytes;     /* what libllama keeps, and LV_VOCAB_WORK_BYTES */
    pthread_mutex_t work_lock; /* guards work_bytes and its booking */
    uint64_t work_bytes;       /* in use now, by all threads */
    bool sentence_pieces, space_prefix;
    bool recursive_split; /* libllama's pre-split recurses once a character */
    int32_t tokens_count;
    int32_t begin_token;        /* -1: none wanted */
    int32_t plain_token;        /* libllama takes it for a control token, the file does not; -1: none */
    int32_t not_end_token;      /* libllama takes it for an end token for want of a key; -1: none */
    char *chat_template;        /* NULL: none */
    lv_vocab_special *specials; /* by first byte, the longest first */
    uint32_t specials_count;
    uint32_t specials_first[257]; /* of each first byte */
    int32_t byte_tokens[256];     /* -1: none */
};

/* Memory for the work on texts. This much is booked as long as the vocabulary is open, so that an ordinary text needs
 * nothing from a ledger that is full; what passes it is reserved while it is in use. */
#define LV_VOCAB_WORK_BYTES ((uint64_t)2 << 20)
lever_status lv_vocab_work_take(const lv_vocab *vocab, uint64_t bytes, lever_error *error);
void lv_vocab_work_give(const lv_vocab *vocab, uint64_t bytes);
/* Zeroed memory out of it, and back. NULL is accepted. */
lever_status lv_vocab_work_alloc(const lv_vocab *vocab, void **memory, size_t bytes, lever_error *error);
void lv_vocab_work_free(const lv_vocab *vocab, void *memory, size_t bytes);

typedef struct {
    int32_t *tokens;
    size_t capacity, count;
} lv_token_sink;

static inline void lv_token_sink_add(lv_token_sink *sink, int32_t token) {
    if (sink->count < sink->capacity) sink->tokens[sink->count] = token;
    sink->count++;
}

/* LEVER_E_ARGUMENT when there was not room for all. */
lever_status lv_token_sink_check(const lv_token_sink *sink, size_t *count, lever_error *error);

/* The special token whose name `text` begins with; NULL: none. */
const lv_vocab_special *lv_vocab_match(const lv_vocab *vocab, const char *text, size_t bytes, bool control);

/* Appends the tokens of a text that is valid UTF-8. Without `control`, names of control tokens and of the `forbidden`
 * user-defined ones are spelled out. */
typedef struct {
    bool control;
    const int32_t *forbidden;
    size_t forbidden_count;
} lv_vocab_rules;
lever_status lv_vocab_append(const lv_vocab *vocab, const lv_vocab_rules *rules, const char *text, size_t bytes,
                             lv_token_sink *sink, lever_error *error);

/* A copy of a text with invalid UTF-8 replaced, to be given to lv_vocab_work_free with copy_bytes + 1; *copy is NULL
 * when the text is valid as it is. */
lever_status lv_vocab_repair(const lv_vocab *vocab, const char *text, size_t bytes, char **copy, size_t *copy_bytes,
                             lever_error *error);

#endif
