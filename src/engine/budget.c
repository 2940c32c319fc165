/* budget.c - the memory budget: where it comes from, and how it changes while the engine runs.
 *
 * A lower budget first unpins: the store gives back what is not leased at once, the rest when its lease ends, which is
 * within one block's time. The ledger takes the lower limit as soon as that much is free. A higher budget is in force
 * at once, and the store pins blocks as they pass by. */
#include <string.h>

#include "base/memory.h"
#include "base/system.h"
#include "base/text.h"
#include "engine/engine_state.h"

/* Without a budget given: this share of what the system, or the cgroup, has free. */
enum { DEFAULT_SHARE_PERCENT = 60 };

uint64_t lv_budget_of(const lever_engine_options *options, bool *is_default) {
    *is_default = false;
    if (options->ram_unlimited) return LV_LEDGER_UNLIMITED;
    if (options->ram_bytes) return options->ram_bytes;
    *is_default = true;
    lv_system_memory memory;
    lv_system_memory_read("", &memory);
    return memory.usable_bytes / 100 * DEFAULT_SHARE_PERCENT;
}

static void try_pending_limit(lever_engine *engine) {
    if (engine->budget_pending == 0) return;
    if (lv_ledger_set_limit(engine->ledger, engine->budget_pending, NULL) == LEVER_OK) engine->budget_pending = 0;
    atomic_store(&engine->budget_waits, engine->budget_pending != 0);
}

void lv_budget_on_block(void *user) {
    lever_engine *engine = user;
    if (!atomic_load_explicit(&engine->budget_waits, memory_order_relaxed)) return;
    pthread_mutex_lock(&engine->budget_lock);
    try_pending_limit(engine);
    pthread_mutex_unlock(&engine->budget_lock);
}

static lever_status refuse(uint64_t bytes, uint64_t fixed, lever_error *error) {
    char wanted[32], least[32];
    lv_format_size(bytes, wanted, sizeof(wanted));
    lv_format_size(fixed, least, sizeof(least));
    return lv_fail(error, LEVER_E_BUDGET,
                   "a budget of %s is below the %s that the open engine cannot give up (caches, ring, vocabulary); "
                   "close sessions, or open the engine anew with the smaller budget",
                   wanted, least);
}

/* What is in use beside the pinned blocks. Lanes pin meanwhile: the sum less what is pinned would be of two moments. */
static uint64_t fixed_bytes(const lever_engine *engine) {
    uint64_t bytes = 0;
    for (int category = 0; category < LV_MEM_CATEGORIES_COUNT; category++) {
        if (category == LV_MEM_PINNED || category == LV_MEM_HEAD) continue;
        bytes += lv_ledger_used_by(engine->ledger, (lv_category)category);
    }
    return bytes;
}

/* Which blocks are pinned when `left` bytes are there for them: the head first, since it is of one piece. */
static void choose_pins(lever_engine *engine, uint64_t left) {
    const lv_layout *layout = engine->weights->layout;
    const uint64_t head = lv_plan_head_bytes(layout);
    const bool head_pinned = left >= head;
    lv_plan_pins(layout, head_pinned, head_pinned ? left - head : left, engine->pinned);
}

/* The limit in force, or the lower one that waits. `budget_lock` is held. */
static uint64_t wanted_limit(const lever_engine *engine) {
    return engine->budget_pending ? engine->budget_pending : lv_ledger_limit(engine->ledger);
}

bool lv_budget_repin(lever_engine *engine, uint64_t more_bytes, uint64_t kept_bytes) {
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t limit = wanted_limit(engine), taken = fixed_bytes(engine) + kept_bytes;
    if (limit >= taken) {
        const uint64_t left = limit - taken;
        choose_pins(engine,
                    left < more_bytes || left - more_bytes < engine->pin_bytes ? left : engine->pin_bytes + more_bytes);
        lv_store_set_pinned(engine->store, engine->pinned);
        try_pending_limit(engine);
    }
    pthread_mutex_unlock(&engine->budget_lock);
    return limit >= taken;
}

uint64_t lv_budget_wanted(lever_engine *engine) {
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t limit = wanted_limit(engine);
    pthread_mutex_unlock(&engine->budget_lock);
    return limit;
}

uint64_t lv_budget_least(lever_engine *engine) {
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t bytes = fixed_bytes(engine);
    pthread_mutex_unlock(&engine->budget_lock);
    return bytes;
}

lever_status lever_engine_set_budget(lever_engine *engine, uint64_t ram_bytes, lever_error *error) {
    lv_error_clear(error);
    if (!engine) return lv_fail(error, LEVER_E_ARGUMENT, "lever_engine_set_budget: the engine is NULL");
    const uint64_t limit = ram_bytes ? ram_bytes : LV_LEDGER_UNLIMITED;
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t fixed = fixed_bytes(engine);
    lever_status status = LEVER_OK;
    if (limit < fixed) {
        status = refuse(limit, fixed, error);
    } else {
        engine->pin_bytes = limit - fixed;
        choose_pins(engine, engine->pin_bytes);
        engine->budget_pending = 0;
        if (limit >= lv_ledger_limit(engine->ledger)) {
            status = lv_ledger_set_limit(engine->ledger, limit, error);
            lv_store_set_pinned(engine->store, engine->pinned);
        } else {
            lv_store_set_pinned(engine->store, engine->pinned);
            engine->budget_pending = limit;
            try_pending_limit(engine);
        }
        engine->plan.table.budget_bytes = limit;
        engine->plan.table.budget_is_default = false;
    }
    atomic_store(&engine->budget_waits, engine->budget_pending != 0);
    pthread_mutex_unlock(&engine->budget_lock);
    return status;
}
