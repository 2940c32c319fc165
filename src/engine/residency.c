/* residency.c - weights of the draft for blocks of the target, and back. The order keeps the sum within the budget at
 * every moment: what leaves goes first. Coming back waits for the pass that runs, since leases keep blocks. */
#include "engine/residency.h"

enum {
    CYCLES_LEAST = 8,     /* of an answer, before it is judged: its first tokens are the hardest to guess */
    SKIPPED_DOUBLINGS = 4 /* answers without the draft: 1, 3, 7, 15 */
};

/* The draft leaves where it gives less than this share of what is expected of the target alone. That is a guess from
 * rates, which plain passes were measured to fall short of by a fifth, since two threads that compute and two that read
 * share the cores; and a text that goes on repeats itself, so that it is easier to guess later. */
static const double margin = 0.65;

lever_status lv_residency_open(lever_engine *engine, lever_error *error) {
    if (!engine->draft) return LEVER_OK;
    const lv_draft_model_options options = {
        .threads = engine->threads,
        .device = engine->accelerator.draft_lost ? NULL : engine->accelerator.draft,
        .device_always = engine->accelerator.draft_always,
        .huge_pages = engine->options.huge_pages,
        .verify = engine->options.verify_checksums,
        .log = &engine->log,
        .progress = engine->options.progress,
        .progress_user = engine->options.progress_user,
    };
    const uint64_t before = lv_ledger_used(engine->ledger);
    LV_TRY(lv_draft_model_open_weights(engine->draft, &options, engine->ledger, error));
    const uint64_t now = lv_ledger_used(engine->ledger);
    if (engine->residency.weight_bytes == 0) engine->residency.weight_bytes = now - before;
    return LEVER_OK;
}

/* --- Coming and going -------------------------------------------------------------------------------------------- */

/* What was given up: the target's blocks have it. */
static uint64_t absent_bytes(const lever_engine *engine) {
    return (engine->residency.away ? engine->residency.weight_bytes : 0) + engine->residency.resting_bytes;
}

static void send_away(lever_engine *engine) {
    engine->residency.away = true;
    lv_draft_model_close_weights(engine->draft);
    lv_budget_repin(engine, absent_bytes(engine), 0);
}

static bool bring_back(lever_engine *engine) {
    lever_error error;
    pthread_mutex_lock(&engine->pass_lock);
    lever_status status = LEVER_E_BUDGET;
    if (lv_budget_repin(engine, engine->residency.resting_bytes, engine->residency.weight_bytes)) {
        status = lv_residency_open(engine, &error);
        engine->residency.away = false;
        if (status != LEVER_OK) {
            lv_log_write(&engine->log, LEVER_LOG_INFO, "the draft model stays out: %s", error.message);
            send_away(engine);
        }
    }
    pthread_mutex_unlock(&engine->pass_lock);
    return status == LEVER_OK;
}

/* Keeps free what a session gave up: for itself, or for another one when it ends. False: there is not as much. */
static bool free_resting(lever_engine *engine, uint64_t bytes) {
    engine->residency.resting_bytes -= bytes;
    return lv_budget_repin(engine, absent_bytes(engine), bytes);
}

static bool wake(lever_engine *engine, lv_speculation *speculation) {
    const uint64_t bytes = lv_speculation_resting_bytes(speculation);
    if (bytes == 0) return true;
    lever_error error;
    lever_status status = LEVER_E_BUDGET;
    pthread_mutex_lock(&engine->pass_lock);
    if (free_resting(engine, bytes)) {
        status = lv_speculation_wake(speculation, &error);
        if (status != LEVER_OK) lv_log_write(&engine->log, LEVER_LOG_INFO, "no draft for now: %s", error.message);
    }
    if (status != LEVER_OK) {
        engine->residency.resting_bytes += bytes;
        if (engine->residency.users == 0) send_away(engine);
    }
    pthread_mutex_unlock(&engine->pass_lock);
    return status == LEVER_OK;
}

bool lv_residency_enter(lever_engine *engine, lv_speculation *speculation, lv_residency_use use) {
    if (!engine->draft) return false;
    pthread_mutex_lock(&engine->residency.lock);
    bool here = !engine->residency.away;
    if (!here && engine->residency.skip_left == 0) here = bring_back(engine);
    if (here) here = wake(engine, speculation);
    if (!here && engine->residency.skip_left == 0) engine->residency.skip_left = 1;
    if (!here && use == LV_RESIDENCY_ANSWER) engine->residency.skip_left--;
    if (here) engine->residency.users++;
    pthread_mutex_unlock(&engine->residency.lock);
    return here;
}

void lv_residency_leave(lever_engine *engine, bool paid) {
    pthread_mutex_lock(&engine->residency.lock);
    engine->residency.users--;
    if (paid) engine->residency.drops_in_row = 0;
    pthread_mutex_unlock(&engine->residency.lock);
}

bool lv_residency_drop(lever_engine *engine, lv_speculation *speculation) {
    pthread_mutex_lock(&engine->residency.lock);
    const bool alone = engine->residency.users == 1;
    if (alone) {
        engine->residency.users = 0;
        if (engine->residency.drops_in_row < SKIPPED_DOUBLINGS) engine->residency.drops_in_row++;
        engine->residency.skip_left = (1u << engine->residency.drops_in_row) - 1;
        if (lv_forward_device_failed(engine->draft->forward)) engine->accelerator.draft_lost = true;
        lv_speculation_rest(speculation);
        engine->residency.resting_bytes += lv_speculation_resting_bytes(speculation);
        send_away(engine);
    }
    pthread_mutex_unlock(&engine->residency.lock);
    return alone;
}

void lv_residency_forget(lever_engine *engine, lv_speculation *speculation) {
    const uint64_t bytes = speculation ? lv_speculation_resting_bytes(speculation) : 0;
    if (bytes == 0) return;
    pthread_mutex_lock(&engine->residency.lock);
    pthread_mutex_lock(&engine->pass_lock);
    free_resting(engine, bytes);
    pthread_mutex_unlock(&engine->pass_lock);
    pthread_mutex_unlock(&engine->residency.lock);
}

/* --- Judging ----------------------------------------------------------------------------------------------------- */

bool lv_residency_is_better_without(const lever_engine *engine, const lv_speculation *speculation,
                                    const lv_residency_progress *progress, double *tokens_per_second) {
    const lever_plan *table = &engine->plan.table;
    const bool may =
        !engine->options.draft_forced && engine->options.target_ram_percent < 0 && !engine->costs.costs.frozen;
    if (!may || table->pass_read_bytes == 0 || progress->cycles < CYCLES_LEAST || progress->seconds <= 0) return false;
    const uint64_t given_up = engine->residency.weight_bytes + lv_speculation_memory_bytes(speculation);
    const lv_plan_rates rates = {
        .read_bytes = table->pass_read_bytes > given_up ? table->pass_read_bytes - given_up : 0,
        .layer_bytes = table->layer_bytes,
        .head_bytes = table->head_bytes,
        .io_bytes_per_second = progress->reading_seconds > 0 ? (double)progress->bytes_read / progress->reading_seconds
                                                             : table->io_bytes_per_second,
        .memory_bytes_per_second = table->memory_bytes_per_second,
    };
    *tokens_per_second = lv_plan_speed_plain(&rates);
    return (double)progress->tokens / progress->seconds < margin * *tokens_per_second;
}
