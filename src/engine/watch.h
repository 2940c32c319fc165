/* watch.h - a budget that follows what the system has: less when memory becomes short, more when it is back.
 *
 * The policy is a pure function of what was read; a thread of its own looks a few times a second and changes the
 * engine's budget (lv_budget_follow), which gives up pinned blocks, and the draft where these are not enough. Never
 * more than the budget that the engine was opened with or that the caller of the library set since, never less than
 * what cannot be given up. */
#ifndef LV_ENGINE_WATCH_H
#define LV_ENGINE_WATCH_H

#include "base/system.h"
#include "base/thread.h"
#include "lever.h"

/* What was seen since the last look. */
typedef struct {
    uint64_t usable_bytes, total_bytes;
    double stalled_share; /* of the time: somebody waited for memory; 0: nothing or unknown */
    bool throttled;       /* the cgroup reached its high mark */
} lv_watch_reading;

typedef struct {
    uint64_t used_bytes;  /* by the ledger */
    uint64_t idle_bytes;  /* set aside and not used: for sessions to come */
    uint64_t least_bytes; /* what cannot be given up, these included */
    uint64_t most_bytes;  /* as the caller set it; UINT64_MAX: none */
    uint32_t calm_looks;  /* so far */
} lv_watch_state;

/* The limit that should be in force, and keeps count of calm; `limit_bytes` is the one that is. */
uint64_t lv_watch_next(lv_watch_state *state, const lv_watch_reading *reading, uint64_t limit_bytes);

typedef struct lv_watch lv_watch;

lever_status lv_watch_open(lv_watch **watch, lever_engine *engine, lv_ledger *ledger, lever_error *error);
void lv_watch_close(lv_watch **watch); /* before anything of the engine is closed */

#endif
