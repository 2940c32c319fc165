/* spans.c - a ring of spans under a mutex: a few thousand a second, each some tens of nanoseconds. */
#include "base/spans.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"

struct lv_spans {
    pthread_mutex_t lock; /* protects all below */
    uint64_t added, taken, lost;
    lv_span all[LV_SPANS_MAX];
};

lever_status lv_spans_open(lv_spans **out, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof(lv_spans), "a trace", error));
    lv_spans *spans = memory;
    pthread_mutex_init(&spans->lock, NULL);
    *out = spans;
    return LEVER_OK;
}

void lv_spans_close(lv_spans **spans) {
    if (!spans || !*spans) return;
    pthread_mutex_destroy(&(*spans)->lock);
    lv_free(*spans);
    *spans = NULL;
}

uint64_t lv_spans_begin(const lv_spans *spans) {
    return spans ? lv_clock_now_ns(&lv_clock_real) : 0;
}

void lv_spans_add(lv_spans *spans, const lv_span *span) {
    if (!spans) return;
    pthread_mutex_lock(&spans->lock);
    if (spans->added - spans->taken == LV_SPANS_MAX) {
        spans->lost++;
    } else {
        spans->all[spans->added++ % LV_SPANS_MAX] = *span;
    }
    pthread_mutex_unlock(&spans->lock);
}

void lv_spans_end(lv_spans *spans, uint32_t track, const char *name, uint32_t number, uint64_t begin_ns) {
    if (!spans) return;
    const lv_span span = {name, track, number, begin_ns, lv_clock_now_ns(&lv_clock_real)};
    lv_spans_add(spans, &span);
}

bool lv_spans_take(lv_spans *spans, lv_span *span) {
    if (!spans) return false;
    pthread_mutex_lock(&spans->lock);
    const bool found = spans->taken < spans->added;
    if (found) *span = spans->all[spans->taken++ % LV_SPANS_MAX];
    pthread_mutex_unlock(&spans->lock);
    return found;
}

uint64_t lv_spans_lost(lv_spans *spans) {
    pthread_mutex_lock(&spans->lock);
    const uint64_t lost = spans->lost;
    pthread_mutex_unlock(&spans->lock);
    return lost;
}

/* --- Text -------------------------------------------------------------------------------------------------------- */

size_t lv_span_write(const lv_span *span, uint64_t origin_ns, char *text, size_t capacity) {
    const uint64_t begin = span->begin_ns > origin_ns ? span->begin_ns - origin_ns : 0;
    const uint64_t end = span->end_ns > origin_ns ? span->end_ns - origin_ns : 0;
    const uint64_t length = end - begin;
    const int bytes = snprintf(text, capacity,
                               "{\"name\":\"%s %" PRIu32 "\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32
                               ",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u}",
                               span->name, span->number, span->name, span->track, begin / 1000,
                               (unsigned)(begin % 1000), length / 1000, (unsigned)(length % 1000));
    return bytes > 0 ? (size_t)bytes : 0;
}

size_t lv_track_write(uint32_t track, char *text, size_t capacity) {
    char name[32];
    if (track >= LV_TRACK_LANE) {
        snprintf(name, sizeof(name), "lane %" PRIu32 " (reads)", track - LV_TRACK_LANE);
    } else {
        snprintf(name, sizeof(name), "%s", track == LV_TRACK_DRAFT ? "draft ahead" : "target");
    }
    const int bytes =
        snprintf(text, capacity,
                 "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32 ",\"args\":{\"name\":\"%s\"}}",
                 track, name);
    return bytes > 0 ? (size_t)bytes : 0;
}
