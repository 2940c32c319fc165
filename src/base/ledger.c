/* ledger.c - sums under one mutex, readable without it.
 *
 * Reserving must compare and add as one step, also against a change of the limit, hence a mutex. The numbers are atomic
 * as well, so that statistics and plans read them through a const pointer without waiting. */
#include "base/ledger.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/os_memory.h"
#include "base/text.h"

struct lv_ledger {
    pthread_mutex_t mutex; /* held while any number below changes */
    _Atomic uint64_t limit;
    _Atomic uint64_t used;
    _Atomic uint64_t peak;
    _Atomic uint64_t used_by[LV_MEM_CATEGORIES_COUNT];
};

lv_ledger *lv_ledger_create(uint64_t limit_bytes) {
    lv_ledger *ledger = lv_os_calloc(sizeof *ledger);
    if (!ledger) return NULL;
    if (pthread_mutex_init(&ledger->mutex, NULL) != 0) {
        lv_os_free(ledger);
        return NULL;
    }
    ledger->limit = limit_bytes;
    return ledger;
}

void lv_ledger_free(lv_ledger *ledger) {
    if (!ledger) return;
    assert(ledger->used == ledger->used_by[LV_MEM_PROGRAM]);
    pthread_mutex_destroy(&ledger->mutex);
    lv_os_free(ledger);
}

/* The mutex is held. Sums saturate: no caller books 2^64 bytes but by mistake, and a wrapped sum would grant all. */
static void add(lv_ledger *ledger, lv_category category, uint64_t bytes) {
    uint64_t used = ledger->used;
    uint64_t used_by = ledger->used_by[category];
    ledger->used = bytes > UINT64_MAX - used ? UINT64_MAX : used + bytes;
    ledger->used_by[category] = bytes > UINT64_MAX - used_by ? UINT64_MAX : used_by + bytes;
    if (ledger->used > ledger->peak) ledger->peak = ledger->used;
}

lever_status lv_ledger_reserve(lv_ledger *ledger, lv_category category, uint64_t bytes, lever_error *error) {
    if (!ledger) return LEVER_OK;
    pthread_mutex_lock(&ledger->mutex);
    uint64_t used = ledger->used;
    uint64_t limit = ledger->limit;
    bool granted = used <= limit && bytes <= limit - used;
    if (granted) add(ledger, category, bytes);
    pthread_mutex_unlock(&ledger->mutex);
    if (granted) return LEVER_OK;

    char wanted_text[32], used_text[32], limit_text[32];
    return lv_fail(error, LEVER_E_BUDGET,
                   "%s: %s do not fit the memory budget: %s of %s are in use. Raise the budget, or ask for less "
                   "(a smaller context, fewer sessions).",
                   lv_category_name(category), lv_format_size(bytes, wanted_text, sizeof wanted_text),
                   lv_format_size(used, used_text, sizeof used_text),
                   lv_format_size(limit, limit_text, sizeof limit_text));
}

void lv_ledger_release(lv_ledger *ledger, lv_category category, uint64_t bytes) {
    if (!ledger) return;
    pthread_mutex_lock(&ledger->mutex);
    assert(ledger->used_by[category] >= bytes);
    ledger->used -= bytes;
    ledger->used_by[category] -= bytes;
    pthread_mutex_unlock(&ledger->mutex);
}

void lv_ledger_book(lv_ledger *ledger, lv_category category, uint64_t bytes) {
    if (!ledger) return;
    pthread_mutex_lock(&ledger->mutex);
    add(ledger, category, bytes);
    pthread_mutex_unlock(&ledger->mutex);
}

lever_status lv_ledger_set_limit(lv_ledger *ledger, uint64_t limit_bytes, lever_error *error) {
    if (!ledger) return LEVER_OK;
    pthread_mutex_lock(&ledger->mutex);
    uint64_t used = ledger->used;
    bool granted = used <= limit_bytes;
    if (granted) ledger->limit = limit_bytes;
    pthread_mutex_unlock(&ledger->mutex);
    if (granted) return LEVER_OK;

    char used_text[32], limit_text[32];
    return lv_fail(error, LEVER_E_BUDGET, "The memory budget cannot become %s: %s are in use.",
                   lv_format_size(limit_bytes, limit_text, sizeof limit_text),
                   lv_format_size(used, used_text, sizeof used_text));
}

uint64_t lv_ledger_limit(const lv_ledger *ledger) {
    return ledger ? atomic_load(&ledger->limit) : LV_LEDGER_UNLIMITED;
}

uint64_t lv_ledger_used(const lv_ledger *ledger) {
    return ledger ? atomic_load(&ledger->used) : 0;
}

uint64_t lv_ledger_used_by(const lv_ledger *ledger, lv_category category) {
    return ledger ? atomic_load(&ledger->used_by[category]) : 0;
}

uint64_t lv_ledger_peak(const lv_ledger *ledger) {
    return ledger ? atomic_load(&ledger->peak) : 0;
}

uint64_t lv_ledger_free_bytes(const lv_ledger *ledger) {
    uint64_t limit = lv_ledger_limit(ledger);
    uint64_t used = lv_ledger_used(ledger);
    return used < limit ? limit - used : 0;
}

const char *lv_category_name(lv_category category) {
    static const char *const names[LV_MEM_CATEGORIES_COUNT] = {
#define CATEGORY_NAME(name, text) [name] = text,
        LV_LEDGER_CATEGORIES(CATEGORY_NAME)
#undef CATEGORY_NAME
    };
    return (unsigned)category < LV_MEM_CATEGORIES_COUNT ? names[category] : "unknown";
}
