/* answer.c - see answer.h.
 *
 * Stop strings are repaired like the text is, so that both are valid UTF-8: a match can then begin and end only between
 * characters, and what is held back never cuts one. Each stop string has the automaton of Knuth, Morris and Pratt: its
 * state is how many of its bytes the end of the text matches. The longest state of all is what must be held back.
 *
 * The buffer begins with the held bytes of the pushes before; new text is appended, given out from the front, and the
 * rest is moved to the front with the next push (the caller still looks at what it was given until then). */
#include "engine/answer.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

#define CARRY_BYTES_MAX ((size_t)3)         /* a character of four bytes without its last */
#define REPAIRED_BYTES_PER_BYTE ((size_t)3) /* U+FFFD in the place of one byte */

typedef struct {
    char *bytes;
    uint16_t *fallback; /* [i]: length of the longest border of the first i + 1 bytes */
    size_t bytes_count;
    size_t matched; /* state of the automaton */
} stop_string;

struct lv_answer {
    stop_string stops[LV_ANSWER_STOPS_MAX];
    size_t stops_count;
    char *raw; /* the carry, behind it the token; not repaired yet */
    size_t carry_bytes;
    size_t token_bytes_max;
    char *text; /* held bytes, then new ones */
    size_t text_capacity;
    size_t text_bytes;
    size_t given_bytes; /* at the front of `text`, given to the caller by the last call */
    bool ended;
};

static lever_status stop_prepare(stop_string *stop, const char *text, size_t text_bytes, lv_ledger *ledger,
                                 lever_error *error) {
    const size_t repaired_bytes = lv_utf8_repair(text, text_bytes, NULL, 0);
    void *memory = NULL;
    LV_TRY(
        lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, repaired_bytes, sizeof(uint16_t) + 1, "stop string", error));
    stop->fallback = memory;
    stop->bytes = (char *)(stop->fallback + repaired_bytes);
    stop->bytes_count = lv_utf8_repair(text, text_bytes, stop->bytes, repaired_bytes);

    size_t border = 0;
    for (size_t i = 1; i < stop->bytes_count; i++) {
        while (border > 0 && stop->bytes[i] != stop->bytes[border]) border = stop->fallback[border - 1];
        if (stop->bytes[i] == stop->bytes[border]) border++;
        stop->fallback[i] = (uint16_t)border;
    }
    return LEVER_OK;
}

/* One byte on; true when the stop string is complete. */
static bool stop_advance(stop_string *stop, char byte) {
    while (stop->matched > 0 && stop->bytes[stop->matched] != byte) stop->matched = stop->fallback[stop->matched - 1];
    if (stop->bytes[stop->matched] == byte) stop->matched++;
    return stop->matched == stop->bytes_count;
}

/* Runs the automata over the text from `from` on. True when a stop string is complete: *keep is then where it begins,
 * else from where the text must be held back. */
static bool stops_scan(lv_answer *answer, size_t from, size_t *keep) {
    for (size_t i = from; i < answer->text_bytes; i++) {
        size_t longest = 0;
        for (size_t s = 0; s < answer->stops_count; s++) {
            if (stop_advance(&answer->stops[s], answer->text[i]) && answer->stops[s].bytes_count > longest) {
                longest = answer->stops[s].bytes_count;
            }
        }
        if (longest > 0) {
            *keep = i + 1 - longest;
            return true;
        }
    }
    size_t held = 0;
    for (size_t s = 0; s < answer->stops_count; s++) {
        if (answer->stops[s].matched > held) held = answer->stops[s].matched;
    }
    *keep = answer->text_bytes - held;
    return false;
}

/* How many bytes at the end of `bytes` are the beginning of a character that may still become whole. */
static size_t unfinished_bytes(const char *bytes, size_t bytes_count) {
    for (size_t tail = CARRY_BYTES_MAX; tail > 0; tail--) {
        if (tail <= bytes_count && lv_utf8_incomplete(bytes + bytes_count - tail, tail)) return tail;
    }
    return 0;
}

/* Appends the bytes to the text, scans it and says what the caller gets. */
static bool text_append(lv_answer *answer, const char *bytes, size_t bytes_count, lv_answer_text *text) {
    memmove(answer->text, answer->text + answer->given_bytes, answer->text_bytes - answer->given_bytes);
    answer->text_bytes -= answer->given_bytes;

    const size_t scanned = answer->text_bytes;
    answer->text_bytes += lv_utf8_repair(bytes, bytes_count, answer->text + scanned, answer->text_capacity - scanned);
    assert(answer->text_bytes <= answer->text_capacity);

    answer->ended = stops_scan(answer, scanned, &answer->given_bytes);
    *text = (lv_answer_text){answer->text, answer->given_bytes};
    return answer->ended;
}

lever_status lv_answer_open(lv_answer **answer, const char *const *stops, size_t stops_count, size_t token_bytes_max,
                            lv_ledger *ledger, lever_error *error) {
    *answer = NULL;
    if (stops_count > LV_ANSWER_STOPS_MAX) {
        return lv_fail(error, LEVER_E_ARGUMENT, "%zu stop strings were given; at most %zu are possible", stops_count,
                       LV_ANSWER_STOPS_MAX);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, sizeof(lv_answer), "answer", error));
    lv_answer *opened = memory;
    lever_status status = LEVER_OK;
    size_t held_bytes_max = 0;
    for (size_t i = 0; i < stops_count; i++) {
        const size_t bytes = stops[i] == NULL ? 0 : strnlen(stops[i], LV_ANSWER_STOP_BYTES_MAX + 1);
        if (stops[i] == NULL || bytes > LV_ANSWER_STOP_BYTES_MAX) {
            status = lv_fail(error, LEVER_E_ARGUMENT, "stop string %zu is %s; each may have at most %zu bytes", i + 1,
                             stops[i] == NULL ? "missing" : "too long", LV_ANSWER_STOP_BYTES_MAX);
            goto done;
        }
        if (bytes == 0) continue;
        stop_string *stop = &opened->stops[opened->stops_count];
        status = stop_prepare(stop, stops[i], bytes, ledger, error);
        if (status != LEVER_OK) goto done;
        opened->stops_count++;
        if (stop->bytes_count > held_bytes_max) held_bytes_max = stop->bytes_count;
    }

    opened->token_bytes_max = token_bytes_max;
    const size_t raw_bytes = CARRY_BYTES_MAX + token_bytes_max;
    status = lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, raw_bytes, 1, "answer", error);
    if (status != LEVER_OK) goto done;
    opened->raw = memory;

    opened->text_capacity = held_bytes_max + REPAIRED_BYTES_PER_BYTE * raw_bytes;
    status = lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, opened->text_capacity, 1, "answer", error);
    if (status != LEVER_OK) goto done;
    opened->text = memory;

    *answer = opened;
    opened = NULL;

done:
    lv_answer_close(&opened);
    return status;
}

void lv_answer_close(lv_answer **answer) {
    if (answer == NULL || *answer == NULL) return;
    lv_answer *closing = *answer;
    for (size_t i = 0; i < closing->stops_count; i++) lv_free(closing->stops[i].fallback);
    lv_free(closing->raw);
    lv_free(closing->text);
    lv_free(closing);
    *answer = NULL;
}

bool lv_answer_push(lv_answer *answer, const char *bytes, size_t bytes_count, lv_answer_text *text) {
    assert(bytes_count <= answer->token_bytes_max && !answer->ended);
    if (bytes_count > 0) memcpy(answer->raw + answer->carry_bytes, bytes, bytes_count);
    const size_t raw_bytes = answer->carry_bytes + bytes_count;
    answer->carry_bytes = unfinished_bytes(answer->raw, raw_bytes);
    const size_t whole_bytes = raw_bytes - answer->carry_bytes;
    const bool stopped = text_append(answer, answer->raw, whole_bytes, text);
    memmove(answer->raw, answer->raw + whole_bytes, answer->carry_bytes);
    return stopped;
}

bool lv_answer_finish(lv_answer *answer, lv_answer_text *text) {
    const size_t carry_bytes = answer->carry_bytes;
    answer->carry_bytes = 0;
    const bool stopped = text_append(answer, answer->raw, carry_bytes, text);
    if (!stopped) {
        answer->given_bytes = answer->text_bytes;
        text->bytes = answer->text_bytes;
    }
    return stopped;
}
