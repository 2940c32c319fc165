/* answer.h - the bytes of tokens become the text of an answer.
 *
 * Owns what cannot be given out yet: the first bytes of a character that is not whole, and text that may turn out to be
 * the beginning of a stop string. What it gives out is whole UTF-8 characters, invalid bytes as U+FFFD, and never any
 * part of a stop string that was completed. The answer ends at the first byte that completes a stop string (the longest
 * one, when several end there), so that the text does not depend on where tokens begin and end.
 *
 *     token bytes -> [carry: unfinished character] -> [held: beginning of a stop string] -> text
 *
 * Used by a session, on its thread. All memory is taken at opening. */
#ifndef LV_ENGINE_ANSWER_H
#define LV_ENGINE_ANSWER_H

#include "base/memory.h"

#define LV_ANSWER_STOPS_MAX ((size_t)16)
#define LV_ANSWER_STOP_BYTES_MAX ((size_t)4096)

typedef struct lv_answer lv_answer;

/* Text that became certain; borrowed until the next call on the answer. */
typedef struct {
    const char *data;
    size_t bytes;
} lv_answer_text;

/* Copies `stops`; empty ones are ignored. `token_bytes_max`: the most that one push brings. LEVER_E_ARGUMENT when there
 * are too many stops, or one is NULL or too long. Booked as LV_MEM_SESSION. */
lever_status lv_answer_open(lv_answer **answer, const char *const *stops, size_t stops_count, size_t token_bytes_max,
                            lv_ledger *ledger, lever_error *error);
void lv_answer_close(lv_answer **answer);

/* Takes the bytes of one token and sets `text` to what became certain (often nothing). Returns true when a stop string
 * was completed: `text` is then the last of the answer, and nothing more may be pushed. */
bool lv_answer_push(lv_answer *answer, const char *bytes, size_t bytes_count, lv_answer_text *text);

/* The answer ended without a stop string: `text` is what was held back, an unfinished character as U+FFFD. Returns true
 * when that completed a stop string after all. */
bool lv_answer_finish(lv_answer *answer, lv_answer_text *text);

#endif
