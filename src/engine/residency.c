/* residency.c - weights of the draft for blocks of the target, and back. The order keeps the sum within the budget at
 * every moment: what leaves goes first.
 *
 * Who is about to take memory is promised it first, under the pass lock: no block is leased then, so what is unpinned
 * is back with the system when the promise stands. The memory is taken, and the weights are read, without any lock,
 * while passes of other sessions go on. That is sound because weights and caches are no leases of the target's store;
 * because passes pin only blocks that are marked, and whoever marks blocks anew leaves what is promised free; and
 * because nobody looks at the draft before `coming` has ended, whose call is the only one that reads, and counts as a
 * user, so that nothing is sent away meanwhile. A budget that is changed at that moment leaves the promise free, as far
 * as there is room for it. One that is cut below it, or a session that opens, has the memory all the same: then the
 * ledger refuses, as it may refuse at any time, or what was taken is given back, and what was given up stays so. */
#include "engine/residency.h"

#include <math.h>

enum {
    CYCLES_LEAST = 8,        /* of an answer, before it is judged: its first tokens are the hardest to guess */
    SKIPPED_DOUBLINGS = 4,   /* answers without the draft: 1, 3, 7, 15 */
    OPENING_BYTES = 2 << 20, /* besides the weights, while they are read: lanes, a buffer for rows of the head */
};

/* The draft leaves where it gives less than this share of what is expected of the target alone. That is a guess, which
 * plain passes were measured to fall short of by a fifth, since two threads that compute and two that read share the
 * cores; and a text that goes on repeats itself, so that it is easier to guess later. */
static const double margin = 0.65;

/* There was no memory for it. While the engine opens nobody has heard of it yet. */
static void lose_device(lever_engine *engine, bool opening) {
    pthread_mutex_lock(&engine->residency.lock);
    if (opening) {
        lv_device_close(&engine->accelerator.draft);
    } else {
        engine->accelerator.draft_lost = true;
    }
    pthread_mutex_unlock(&engine->residency.lock);
}

lever_status lv_residency_open(lever_engine *engine, const atomic_bool *cancel, lever_error *error) {
    if (!engine->draft) return LEVER_OK;
    const lv_draft_model_options options = {
        .threads = engine->threads,
        .device = engine->accelerator.draft_lost ? NULL : engine->accelerator.draft,
        .device_always = engine->accelerator.draft_always,
        .device_required = engine->options.device_use != LEVER_DEVICE_AUTO,
        .huge_pages = engine->options.huge_pages,
        .verify = engine->options.verify_checksums,
        .log = &engine->log,
        .progress = engine->options.progress,
        .progress_user = engine->options.progress_user,
        .cancel = cancel,
    };
    /* Norms and biases stay when the rest leaves. */
    const uint64_t staying = engine->draft->weights->vectors ? 0 : lv_weights_vector_bytes(engine->draft->model);
    const uint64_t before = lv_ledger_used(engine->ledger) + staying;
    LV_TRY(lv_draft_model_open_weights(engine->draft, &options, engine->ledger, error));
    const uint64_t now = lv_ledger_used(engine->ledger);
    const bool first = engine->residency.weight_bytes == 0;
    if (first) engine->residency.weight_bytes = now - before;
    if (options.device && !lv_forward_has_device(engine->draft->forward)) lose_device(engine, first);
    return LEVER_OK;
}

/* --- Coming and going -------------------------------------------------------------------------------------------- */

/* Pins what is left beside the draft, and what was promised. Blocks have what was given up. False, with nothing
 * changed: there is not as much. The residency's lock is held here and below, where nothing else is said. */
static bool repin(lever_engine *engine) {
    const bool absent = engine->residency.away && !engine->residency.coming;
    const uint64_t given_up = (absent ? engine->residency.weight_bytes : 0) + engine->residency.resting_bytes;
    return lv_budget_repin(engine, given_up, engine->residency.promised_bytes);
}

static void send_away(lever_engine *engine) {
    engine->residency.away = true;
    lv_draft_model_close_weights(engine->draft);
}

static void back_off(lever_engine *engine) {
    if (engine->residency.drops_in_row < SKIPPED_DOUBLINGS) engine->residency.drops_in_row++;
    engine->residency.skip_left = (1u << engine->residency.drops_in_row) - 1;
}

/* What a call is about to take: its session's cache, and the weights, if it is the one that reads them. */
typedef struct {
    uint64_t cache_bytes, weight_bytes;
} wanted;

static void end_promise(lever_engine *engine, const wanted *w, bool taken) {
    engine->residency.promised_bytes -= w->cache_bytes + w->weight_bytes;
    if (!taken) engine->residency.resting_bytes += w->cache_bytes;
}

/* False, with nothing changed: there is not as much. Takes both locks. */
static bool promise(lever_engine *engine, const wanted *w) {
    pthread_mutex_lock(&engine->pass_lock);
    pthread_mutex_lock(&engine->residency.lock);
    engine->residency.resting_bytes -= w->cache_bytes;
    engine->residency.promised_bytes += w->cache_bytes + w->weight_bytes;
    const bool granted = repin(engine);
    if (!granted) end_promise(engine, w, false);
    pthread_mutex_unlock(&engine->residency.lock);
    pthread_mutex_unlock(&engine->pass_lock);
    return granted;
}

/* The same with what opening wants besides, where there is as much. */
static bool promise_most(lever_engine *engine, wanted *w) {
    if (w->weight_bytes > 0) {
        w->weight_bytes += OPENING_BYTES;
        if (promise(engine, w)) return true;
        w->weight_bytes -= OPENING_BYTES;
    }
    return promise(engine, w);
}

/* The call has what it wanted, or goes on without the draft. Weights that nobody uses are of no use here. They are
 * tried ever more seldom, unless nothing was read in vain or somebody said so. */
static void settle(lever_engine *engine, const wanted *w, bool granted, bool comes, lever_status status) {
    if (granted) end_promise(engine, w, status == LEVER_OK);
    if (comes) engine->residency.away = engine->residency.coming = false;
    if (status != LEVER_OK && --engine->residency.users == 0) {
        send_away(engine);
        if (status != LEVER_E_CANCELLED && (granted || !comes)) back_off(engine);
    }
    if (!repin(engine)) lv_budget_promise(engine, engine->residency.promised_bytes);
}

/* Reads the weights, if it is this call that does so, and takes the session's cache. A cut of the budget may have
 * waited for a lease meanwhile, and what was taken under the old one be in its way for good: then it goes again. */
static lever_status take_memory(lever_engine *engine, lv_speculation *speculation, const wanted *w, bool comes,
                                lever_error *error) {
    if (comes) LV_TRY(lv_residency_open(engine, lv_speculation_get_options(speculation)->cancel, error));
    if (w->cache_bytes > 0) LV_TRY(lv_speculation_wake(speculation, error));
    if (lv_budget_holds(engine)) return LEVER_OK;
    if (w->cache_bytes > 0) lv_speculation_rest(speculation);
    return lv_fail(error, LEVER_E_BUDGET, "the memory budget was lowered while it was read");
}

/* By who counts as a user already; `comes`: who reads the weights. Without a lock. */
static bool take(lever_engine *engine, lv_speculation *speculation, bool comes) {
    wanted w = {.cache_bytes = lv_speculation_resting_bytes(speculation),
                .weight_bytes = comes ? engine->residency.weight_bytes : 0};
    if (!comes && w.cache_bytes == 0) return true;
    lever_error error;
    lever_status status = LEVER_E_BUDGET;
    const bool granted = promise_most(engine, &w);
    if (granted) status = take_memory(engine, speculation, &w, comes, &error);
    pthread_mutex_lock(&engine->residency.lock);
    settle(engine, &w, granted, comes, status);
    pthread_mutex_unlock(&engine->residency.lock);
    if (granted && status != LEVER_OK && status != LEVER_E_CANCELLED) {
        lv_log_write(&engine->log, LEVER_LOG_INFO, "the draft model stays out: %s", error.message);
    }
    return status == LEVER_OK;
}

/* Nobody computes with it, and a lower budget waits for what it has. That says nothing of its worth: it comes back with
 * the next answer for which there is room. */
static void make_way(lever_engine *engine) {
    const bool is_idle = engine->residency.users == 0 && !engine->residency.away && !engine->residency.coming;
    if (!is_idle || !atomic_load(&engine->draft_unwanted)) return;
    if (lv_forward_device_failed(engine->draft->forward)) engine->accelerator.draft_lost = true;
    send_away(engine);
    repin(engine);
}

bool lv_residency_enter(lever_engine *engine, lv_speculation *speculation, lv_residency_use use) {
    if (!engine->draft || atomic_load(&engine->draft_unwanted)) return false;
    pthread_mutex_lock(&engine->residency.lock);
    const bool comes = engine->residency.away && !engine->residency.coming && engine->residency.skip_left == 0;
    const bool here = !engine->residency.away || comes;
    if (comes) engine->residency.coming = true;
    if (here) engine->residency.users++;
    if (!here && !engine->residency.coming && use == LV_RESIDENCY_ANSWER) engine->residency.skip_left--;
    pthread_mutex_unlock(&engine->residency.lock);
    return here && take(engine, speculation, comes);
}

void lv_residency_leave(lever_engine *engine, bool paid) {
    pthread_mutex_lock(&engine->residency.lock);
    engine->residency.users--;
    if (paid) engine->residency.drops_in_row = 0;
    make_way(engine);
    pthread_mutex_unlock(&engine->residency.lock);
}

void lv_residency_yield(lever_engine *engine, lv_speculation *speculation) {
    pthread_mutex_lock(&engine->residency.lock);
    engine->residency.users--;
    lv_speculation_rest(speculation);
    engine->residency.resting_bytes += lv_speculation_resting_bytes(speculation);
    repin(engine); /* which may be enough */
    make_way(engine);
    pthread_mutex_unlock(&engine->residency.lock);
}

void lv_residency_give_way(lever_engine *engine) {
    pthread_mutex_lock(&engine->residency.lock);
    make_way(engine);
    pthread_mutex_unlock(&engine->residency.lock);
}

bool lv_residency_drop(lever_engine *engine, lv_speculation *speculation) {
    pthread_mutex_lock(&engine->residency.lock);
    const bool alone = engine->residency.users == 1;
    if (alone) {
        engine->residency.users = 0;
        back_off(engine);
        if (lv_forward_device_failed(engine->draft->forward)) engine->accelerator.draft_lost = true;
        lv_speculation_rest(speculation);
        engine->residency.resting_bytes += lv_speculation_resting_bytes(speculation);
        send_away(engine);
        repin(engine);
    }
    pthread_mutex_unlock(&engine->residency.lock);
    return alone;
}

void lv_residency_forget(lever_engine *engine, lv_speculation *speculation) {
    const uint64_t bytes = speculation ? lv_speculation_resting_bytes(speculation) : 0;
    if (bytes == 0) return;
    pthread_mutex_lock(&engine->pass_lock);
    pthread_mutex_lock(&engine->residency.lock);
    engine->residency.resting_bytes -= bytes;
    engine->residency.promised_bytes += bytes;
    repin(engine);
    engine->residency.promised_bytes -= bytes;
    lv_budget_promise(engine, engine->residency.promised_bytes);
    pthread_mutex_unlock(&engine->residency.lock);
    pthread_mutex_unlock(&engine->pass_lock);
}

/* --- Judging ----------------------------------------------------------------------------------------------------- */

uint64_t lv_residency_streamed_bytes(const lever_engine *engine) {
    const lv_layout *layout = engine->weights->layout;
    if (engine->options.cache == LEVER_CACHE_LRU && engine->plan.table.pass_read_bytes == 0) return 0;
    const uint64_t head = lv_ledger_used_by(engine->ledger, LV_MEM_HEAD); /* in whole pages */
    lv_store_counters store;
    lv_store_get_counters(engine->store, &store);
    return layout->layer_bytes - store.pinned_bytes + (layout->head_bytes > head ? layout->head_bytes - head : 0);
}

bool lv_residency_is_judged(const lever_engine *engine, const lv_residency_progress *progress) {
    const bool may =
        !engine->options.draft_forced && engine->options.target_ram_percent < 0 && !engine->costs.costs.frozen;
    return may && progress->streamed_bytes > 0 && progress->cycles >= CYCLES_LEAST && progress->seconds > 0;
}

/* Of a plain pass, as it was measured. Where passes with all threads were not, one thread says how long it takes at
 * the least: no number of threads does better than share its work. */
static double layer_seconds(const lever_engine *engine, const lv_costs *costs) {
    const double all = lv_cost_curve_at(&costs->layers[LV_SPLIT_ALL], 1);
    if (engine->threads == 1) return all;
    return fmax(all, lv_cost_curve_at(&costs->layers[LV_SPLIT_ONE], 1) / engine->threads);
}

bool lv_residency_is_better_without(const lever_engine *engine, const lv_speculation *speculation,
                                    const lv_residency_progress *progress, double *tokens_per_second) {
    const lever_plan *table = &engine->plan.table;
    if (!lv_residency_is_judged(engine, progress)) return false;
    const bool pins = engine->options.cache == LEVER_CACHE_PIN;
    const uint64_t given_up = pins ? engine->residency.weight_bytes + lv_speculation_memory_bytes(speculation) : 0;
    const uint64_t streamed = progress->streamed_bytes, read_bytes = streamed > given_up ? streamed - given_up : 0;
    const double io =
        lv_plan_rate_or(progress->reading_seconds > 0 ? (double)progress->bytes_read / progress->reading_seconds
                                                      : table->io_bytes_per_second,
                        LV_PLAN_IO_ASSUMED);
    const lv_costs *costs = lv_speculation_get_options(speculation)->costs;
    const double pass = fmax((double)read_bytes / io, layer_seconds(engine, costs));
    *tokens_per_second = 1 / (pass + lv_cost_curve_at(&costs->head, 1));
    return (double)progress->tokens / progress->seconds < margin * *tokens_per_second;
}
