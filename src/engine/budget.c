/* budget.c - the memory budget: where it comes from, and how it changes while the engine runs.
 *
 * A lower budget first unpins: the store gives back what is not leased at once, the rest when its lease ends, which is
 * within one block's time. The ledger takes the lower limit as soon as that much is free. A higher budget is in force
 * at once, and the store pins blocks as they pass by.
 *
 * Pinned blocks get what is left beside all that the plan set aside, whether it is in use already or not: the same
 * budget given anew pins the same blocks, and a session that opens later finds its memory. Only who asks for less than
 * the plan goes below that, down to what is in use.
 *
 * A draft that comes back was promised its memory (residency.h), which is in use bit by bit. A change meanwhile leaves
 * the promise out of what may be pinned. A budget that has no room for it is obeyed all the same: the ledger refuses
 * the draft, or, where the limit still waited for a lease, the draft asks lv_budget_holds and goes. */
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

/* --- What is left for pinned blocks ------------------------------------------------------------------------------ */

/* What is in use beside the pinned blocks. Lanes pin meanwhile: the sum less what is pinned would be of two moments. */
static uint64_t in_use_bytes(const lever_engine *engine) {
    uint64_t bytes = 0;
    for (int category = 0; category < LV_MEM_CATEGORIES_COUNT; category++) {
        if (category == LV_MEM_PINNED || category == LV_MEM_HEAD) continue;
        bytes += lv_ledger_used_by(engine->ledger, (lv_category)category);
    }
    return bytes;
}

/* What the draft's weights take, while they are here. */
static uint64_t draft_bytes(const lever_engine *engine) {
    return lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT);
}

/* What was promised and is not in use yet. Of what a draft takes, nearly all is booked as its own. */
static uint64_t promised_bytes(const lever_engine *engine) {
    const uint64_t taken = draft_bytes(engine);
    return engine->promised_end > taken ? engine->promised_end - taken : 0;
}

/* What pinned blocks leave to all else: what is in use or promised and what the sessions take that may still be opened,
 * but no less than the plan set aside, without what the draft gave up. */
static uint64_t reserved_bytes(const lever_engine *engine) {
    const uint32_t open = atomic_load(&engine->sessions_count), most = engine->options.sessions_max;
    const uint64_t to_come = open < most ? (most - open) * engine->session_bytes : 0;
    const uint64_t promised = promised_bytes(engine); /* before what is in use: what is taken meanwhile counts twice */
    const uint64_t now = in_use_bytes(engine) + promised + to_come, given_up = engine->given_up_bytes;
    const uint64_t planned = engine->planned_bytes > given_up ? engine->planned_bytes - given_up : 0;
    return now > planned ? now : planned;
}

static uint64_t left_below(const lever_engine *engine, uint64_t limit) {
    const uint64_t reserved = reserved_bytes(engine);
    return limit > reserved ? limit - reserved : 0;
}

/* Has the blocks pinned that `left` bytes hold: the head first, since it is of one piece. A share that was asked for is
 * not passed, whatever is free; of layers that a cache holds no block is pinned. */
static void pin(lever_engine *engine, uint64_t left) {
    const lv_layout *layout = engine->weights->layout;
    const uint64_t head = lv_plan_head_bytes(layout);
    const bool head_pinned = left >= head;
    uint64_t layers = head_pinned ? left - head : left;
    const bool bounded = engine->options.target_ram_percent >= 0 || engine->options.cache == LEVER_CACHE_LRU;
    if (bounded && layers > engine->plan.pin_bytes) layers = engine->plan.pin_bytes;
    lv_plan_pins(layout, head_pinned, layers, engine->pinned);
    engine->pin_bytes = left;
    lv_store_set_pinned(engine->store, engine->pinned);
}

/* --- Changing ---------------------------------------------------------------------------------------------------- */

/* Where something else was taken since the blocks were chosen, they make room for it: else the lower limit might never
 * come into force. */
static void try_pending_limit(lever_engine *engine) {
    const uint64_t limit = engine->budget_pending;
    if (limit == 0) return;
    lever_status status = lv_ledger_set_limit(engine->ledger, limit, NULL);
    const uint64_t left = left_below(engine, limit);
    if (status != LEVER_OK && left < engine->pin_bytes) {
        pin(engine, left);
        status = lv_ledger_set_limit(engine->ledger, limit, NULL);
    }
    if (status == LEVER_OK) {
        engine->budget_pending = 0;
        atomic_store(&engine->draft_unwanted, false);
    }
    atomic_store(&engine->budget_waits, engine->budget_pending != 0);
}

void lv_budget_on_block(void *user) {
    lever_engine *engine = user;
    if (!atomic_load_explicit(&engine->budget_waits, memory_order_relaxed)) return;
    pthread_mutex_lock(&engine->budget_lock);
    try_pending_limit(engine);
    pthread_mutex_unlock(&engine->budget_lock);
}

/* The limit in force, or the lower one that waits. `budget_lock` is held. */
static uint64_t wanted_limit(const lever_engine *engine) {
    return engine->budget_pending ? engine->budget_pending : lv_ledger_limit(engine->ledger);
}

static void set_promised(lever_engine *engine, uint64_t bytes) {
    engine->promised_end = bytes > 0 ? bytes + draft_bytes(engine) : 0;
}

bool lv_budget_repin(lever_engine *engine, uint64_t more_bytes, uint64_t promised) {
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t limit = wanted_limit(engine);
    const bool fits = in_use_bytes(engine) + promised <= limit;
    if (fits) {
        engine->given_up_bytes = more_bytes;
        set_promised(engine, promised);
        pin(engine, left_below(engine, limit));
        try_pending_limit(engine);
    }
    pthread_mutex_unlock(&engine->budget_lock);
    return fits;
}

void lv_budget_promise(lever_engine *engine, uint64_t bytes) {
    pthread_mutex_lock(&engine->budget_lock);
    set_promised(engine, bytes);
    pthread_mutex_unlock(&engine->budget_lock);
}

bool lv_budget_holds(lever_engine *engine) {
    pthread_mutex_lock(&engine->budget_lock);
    const bool holds = engine->budget_pending == 0 || in_use_bytes(engine) <= engine->budget_pending;
    pthread_mutex_unlock(&engine->budget_lock);
    return holds;
}

void lv_budget_get(lever_engine *engine, lv_budget *budget) {
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t in_use = in_use_bytes(engine);
    *budget = (lv_budget){
        .limit_bytes = wanted_limit(engine),
        .most_bytes = engine->budget_most,
        .used_bytes = lv_ledger_used(engine->ledger),
        .least_bytes = reserved_bytes(engine),
        .draft_bytes = draft_bytes(engine),
    };
    budget->idle_bytes = budget->least_bytes > in_use ? budget->least_bytes - in_use : 0;
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

/* `budget_lock` is held. `draft_may_go`: the limit may be one that is kept only without it. */
static lever_status change(lever_engine *engine, uint64_t limit, bool draft_may_go, lever_error *error) {
    const uint64_t in_use = in_use_bytes(engine), draft = draft_may_go ? draft_bytes(engine) : 0;
    const uint64_t fixed = in_use > draft ? in_use - draft : 0;
    if (limit < fixed) return refuse(limit, fixed, error);
    lever_status status = LEVER_OK;
    atomic_store(&engine->draft_unwanted, limit < in_use);
    engine->budget_pending = 0;
    if (limit >= lv_ledger_limit(engine->ledger)) {
        status = lv_ledger_set_limit(engine->ledger, limit, error);
        pin(engine, left_below(engine, limit));
    } else {
        pin(engine, left_below(engine, limit));
        engine->budget_pending = limit;
        try_pending_limit(engine);
    }
    engine->plan.table.budget_bytes = limit;
    engine->plan.table.budget_is_default = false;
    atomic_store(&engine->budget_waits, engine->budget_pending != 0);
    return status;
}

bool lv_budget_follow(lever_engine *engine, uint64_t limit_bytes) {
    pthread_mutex_lock(&engine->budget_lock);
    const uint64_t most = engine->budget_most;
    const lever_status status = change(engine, limit_bytes < most ? limit_bytes : most, true, NULL);
    pthread_mutex_unlock(&engine->budget_lock);
    return status == LEVER_OK;
}

lever_status lever_engine_set_budget(lever_engine *engine, uint64_t ram_bytes, lever_error *error) {
    lv_error_clear(error);
    if (!engine) return lv_fail(error, LEVER_E_ARGUMENT, "lever_engine_set_budget: the engine is NULL");
    const uint64_t limit = ram_bytes ? ram_bytes : LV_LEDGER_UNLIMITED;
    pthread_mutex_lock(&engine->budget_lock);
    const lever_status status = change(engine, limit, false, error);
    if (status == LEVER_OK) engine->budget_most = limit;
    pthread_mutex_unlock(&engine->budget_lock);
    return status;
}
