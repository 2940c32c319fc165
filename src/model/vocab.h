/* vocab.h - text to tokens and back, through libllama.
 *
 * Owns libllama's vocabulary, loaded from the keys of an lv_gguf alone (no tensor is read). What libllama allocates is
 * reserved in the ledger by an upper bound before loading and settled by measurement after it; what a text takes is
 * reserved while it is worked on. The file's tokenizer arrays are checked before libllama sees them: types, lengths,
 * ids in range, merges. Const after opening: any thread; the lv_gguf may be closed. vocab*.c and chat.c are the only
 * files that include llama.h. */
#ifndef LV_MODEL_VOCAB_H
#define LV_MODEL_VOCAB_H

#include "model/gguf.h"

typedef struct lv_vocab lv_vocab;

/* What loading may take at its peak, in bytes: for the plan. Reads through the tokenizer's arrays (some megabytes). */
lever_status lv_vocab_bytes_bound(const lv_gguf *gguf, uint64_t *bytes, lever_error *error);

lever_status lv_vocab_open(lv_vocab **vocab, const lv_gguf *gguf, lv_ledger *ledger, const lv_log *log,
                           lever_error *error);
void lv_vocab_close(lv_vocab **vocab);

int32_t lv_vocab_tokens_count(const lv_vocab *vocab);

/* Writes at most `capacity` tokens, sets *count to all; LEVER_E_ARGUMENT when these are more. With `control`, names of
 * control tokens in the text become these tokens. With `begin`, the model's start token stands in front where it wants
 * one, never twice. Invalid UTF-8 is read as U+FFFD. A text of any length, also a run of one character, works on a
 * small stack. */
lever_status lv_vocab_tokenize(const lv_vocab *vocab, const char *text, size_t text_bytes, bool begin, bool control,
                               int32_t *tokens, size_t capacity, size_t *count, lever_error *error);

/* Bytes of one token; see lever_token_text. */
size_t lv_vocab_piece(const lv_vocab *vocab, int32_t token, bool control, char *text, size_t capacity);

bool lv_vocab_is_end(const lv_vocab *vocab, int32_t token);
const char *lv_vocab_chat_template(const lv_vocab *vocab); /* NULL: none */

/* For chat.c: the start token where the model wants one in front, else -1. */
int32_t lv_vocab_begin_token(const lv_vocab *vocab);

#endif
