/* spans.h - what happened when, on which thread: stretches of time for a trace.
 *
 * Owns a list of fixed size; who records appends to it under a lock of its own, who writes the trace takes out what is
 * there. What does not fit is counted and lost: a trace never slows or stops what it looks at. Recording into a NULL
 * list is a test of a pointer. Any thread. */
#ifndef LV_BASE_SPANS_H
#define LV_BASE_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ledger.h"

typedef struct lv_spans lv_spans;

/* A row of the picture: a thread that does one thing at a time. */
typedef enum { LV_TRACK_MAIN = 1, LV_TRACK_DRAFT = 2, LV_TRACK_LANE = 8 } lv_track; /* lane i: LV_TRACK_LANE + i */

typedef struct {
    const char *name; /* static text: letters and spaces */
    uint32_t track;
    uint32_t number; /* what the name is about: layer, block, rows */
    uint64_t begin_ns, end_ns;
} lv_span;

enum { LV_SPANS_MAX = 16384 };

lever_status lv_spans_open(lv_spans **spans, lv_ledger *ledger, lever_error *error);
void lv_spans_close(lv_spans **spans);

/* Now, for begin_ns: 0 when nothing is recorded. */
uint64_t lv_spans_begin(const lv_spans *spans);
/* A span of any clock. */
void lv_spans_add(lv_spans *spans, const lv_span *span);
/* From begin_ns until now. */
void lv_spans_end(lv_spans *spans, uint32_t track, const char *name, uint32_t number, uint64_t begin_ns);

/* Takes out the oldest span; false when there is none. */
bool lv_spans_take(lv_spans *spans, lv_span *span);
uint64_t lv_spans_lost(lv_spans *spans); /* so far */

/* An event of the Chrome trace format, as one line of JSON without a newline; of the time since `origin_ns`. Returns
 * the bytes wanted, like snprintf. */
size_t lv_span_write(const lv_span *span, uint64_t origin_ns, char *text, size_t capacity);
/* The name of a track, likewise. */
size_t lv_track_write(uint32_t track, char *text, size_t capacity);

#endif
