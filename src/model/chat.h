/* chat.h - a conversation as tokens, by the model's chat template.
 *
 * libllama renders the template with unique markers in the place of contents; the result is split at the markers. Only
 * what the template itself wrote can become control tokens; a control token's name in a stranger's text stays text. For
 * texts without such names the tokens are those of the rendered whole. Contents are trimmed where the template trims
 * them. Owns nothing; any thread. */
#ifndef LV_MODEL_CHAT_H
#define LV_MODEL_CHAT_H

#include "model/vocab.h"

/* Roles are "system", "user" and "assistant". With `answer`, the start of the assistant's turn follows; when the last
 * message is the assistant's, it is left open instead, to be continued.
 *
 * LEVER_E_TEMPLATE when the vocabulary has no template, or one that libllama does not know (the message shows how it
 * begins and advises a raw prompt), when the template has no place for a message, or wants user and assistant to take
 * turns and they do not. */
lever_status lv_chat_tokenize(const lv_vocab *vocab, const lever_message *messages, size_t messages_count, bool answer,
                              int32_t *tokens, size_t capacity, size_t *count, lever_error *error);

#endif
