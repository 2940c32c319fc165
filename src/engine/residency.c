/* residency.c - weights of the draft for blocks of the target, and back. The order keeps the sum within the budget at
 * every moment: what leaves goes first. Coming back waits for the pass that runs, since leases keep blocks. */
#include "engine/residency.h"

enum {
    CYCLES_LEAST = 5,     /* of an answer, before it is judged */
    SKIPPED_DOUBLINGS = 4 /* answers without the draft: 1, 3, 7, 15 */
};

/* The target alone must be expected to be faster by this: what is expected is a guess from rates. */
static const double margin = 0.8;

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

static bool bring_back(lever_engine *engine) {
    lever_error error;
    pthread_mutex_lock(&engine->pass_lock);
    lever_status status = LEVER_E_BUDGET;
    if (lv_budget_repin(engine, 0, engine->residency.weight_bytes)) {
        status = lv_residency_open(engine, &error);
        if (status != LEVER_OK) {
            lv_log_write(&engine->log, LEVER_LOG_INFO, "the draft model stays out: %s", error.message);
            lv_draft_model_close_weights(engine->draft);
            lv_budget_repin(engine, engine->residency.weight_bytes, 0);
        }
    }
    pthread_mutex_unlock(&engine->pass_lock);
    engine->residency.away = status != LEVER_OK;
    return status == LEVER_OK;
}

bool lv_residency_enter(lever_engine *engine, lv_residency_use use) {
    if (!engine->draft) return false;
    pthread_mutex_lock(&engine->residency.lock);
    bool here = !engine->residency.away;
    if (!here && engine->residency.skip_left == 0) {
        here = bring_back(engine);
        if (!here) engine->residency.skip_left = 1;
    }
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

bool lv_residency_drop(lever_engine *engine) {
    pthread_mutex_lock(&engine->residency.lock);
    const bool alone = engine->residency.users == 1;
    if (alone) {
        engine->residency.users = 0;
        engine->residency.away = true;
        if (engine->residency.drops_in_row < SKIPPED_DOUBLINGS) engine->residency.drops_in_row++;
        engine->residency.skip_left = (1u << engine->residency.drops_in_row) - 1;
        if (lv_forward_device_failed(engine->draft->forward)) engine->accelerator.draft_lost = true;
        lv_draft_model_close_weights(engine->draft);
        lv_budget_repin(engine, engine->residency.weight_bytes, 0);
    }
    pthread_mutex_unlock(&engine->residency.lock);
    return alone;
}

/* --- Judging ----------------------------------------------------------------------------------------------------- */

bool lv_residency_is_better_without(const lever_engine *engine, const lv_residency_progress *progress,
                                    double *tokens_per_second) {
    const lever_plan *table = &engine->plan.table;
    const bool may =
        !engine->options.draft_forced && engine->options.target_ram_percent < 0 && !engine->costs.costs.frozen;
    if (!may || table->pass_read_bytes == 0 || progress->cycles < CYCLES_LEAST || progress->seconds <= 0) return false;
    const uint64_t weights = engine->residency.weight_bytes;
    const lv_plan_rates rates = {
        .read_bytes = table->pass_read_bytes > weights ? table->pass_read_bytes - weights : 0,
        .layer_bytes = table->layer_bytes,
        .head_bytes = table->head_bytes,
        .io_bytes_per_second = progress->reading_seconds > 0 ? (double)progress->bytes_read / progress->reading_seconds
                                                             : table->io_bytes_per_second,
        .memory_bytes_per_second = table->memory_bytes_per_second,
    };
    *tokens_per_second = lv_plan_speed_plain(&rates);
    return (double)progress->tokens / progress->seconds < margin * *tokens_per_second;
}
