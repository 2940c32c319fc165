/* chat.h - a conversation as tokens, by the model's chat template.
 *
 * libllama renders the template with unique markers in the place of contents; the result is split at the markers, the
 * pieces of the template are tokenised with control tokens, the contents without, trimmed as the template trims them.
 * So a control token's name in a stranger's text stays text. Owns nothing; any thread. */
#ifndef LV_MODEL_CHAT_H
#define LV_MODEL_CHAT_H

#include "model/vocab.h"

/* LEVER_E_TEMPLATE when the vocabulary has no template, or one that libllama does not know: the message names it (its
 * first characters) and advises a raw prompt. Roles that the template cannot place are LEVER_E_TEMPLATE too. */
lever_status lv_chat_tokenize(const lv_vocab *vocab, const lever_message *messages, size_t messages_count, bool answer,
                              int32_t *tokens, size_t capacity, size_t *count, lever_error *error);

#endif
