/* engine_state.h - what engine.c, session.c and budget.c share. Not for others.
 *
 * Locks. `pass_lock` is held for one pass over the layers and guards forward, rows and the store's leases.
 * `budget_lock` guards the budget's numbers and is never held while waiting. Order: pass_lock, then the residency's,
 * then budget_lock. */
#ifndef LV_ENGINE_ENGINE_STATE_H
#define LV_ENGINE_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/accelerator.h"
#include "engine/costs_file.h"
#include "engine/draft_model.h"
#include "engine/plan.h"
#include "engine/predictor_file.h"
#include "engine/profile.h"
#include "engine/simulation.h"
#include "model/vocab.h"

/* Memory that whoever opens an engine wants beside it, of the same budget. */
typedef uint64_t (*lv_reserve_fn)(const lv_model *target, const lv_model *draft);

struct lever_engine {
    lever_engine_options options; /* strings are not kept */
    lv_reserve_fn reserve;        /* NULL: none is wanted */
    lv_log log;
    lv_ledger *ledger;
    lv_pacer *pacer; /* of all files; NULL: the disk is as fast as it is */
    lv_gguf *gguf;
    lv_model *model;
    lv_weights *weights;
    lv_vocab *vocab;
    lv_store *store;
    lv_forward *forward;
    const lv_kernels *kernels;
    lv_plan_choice plan;
    uint32_t threads, lanes;
    double open_seconds;
    atomic_uint sessions_count;
    uint64_t session_bytes; /* what the plan sets aside for each of sessions_max */

    pthread_mutex_t pass_lock;
    lv_row *rows; /* plan.rows_max: the rows of the pass that is running */

    lv_draft_model *draft; /* NULL: none, or left out by the plan */
    lv_accelerator accelerator;
    char device_name[64];
    lv_costs_share costs;
    lv_predictor *predictor; /* NULL: none; used and replaced by who holds pass_lock */
    char *predictor_path;    /* where it is kept when it was refined; NULL: nowhere */
    lv_phone *phone;         /* NULL: no other machine is simulated */
    lv_spans *timeline;      /* what is recorded for the caller; NULL: nothing is */
    lv_spans *spans;         /* the same, for what this machine's clock tells; NULL: nothing, or time is a phone's */
    uint64_t spans_origin_ns;

    struct {
        pthread_mutex_t lock;    /* never held while reading, or while waiting for a pass */
        uint64_t weight_bytes;   /* what its weights take */
        uint64_t resting_bytes;  /* that sessions gave up: their draft caches */
        uint64_t promised_bytes; /* that calls are about to take, and no block may have */
        uint32_t users;          /* calls that are computing with it, or about to */
        uint32_t drops_in_row;   /* how often it left since an answer was judged, and better with it */
        uint32_t skip_left;      /* answers without it, before it is read again */
        bool away;               /* its weights are */
        bool coming;             /* away still, but a call reads them */
    } residency;                 /* of the draft (residency.h) */

    pthread_mutex_t transform_lock; /* guards transform_scratch: lanes and the consumer turn blocks into tiles */
    void *transform_scratch;

    struct lv_watch *watch; /* NULL: the budget stays as it is */

    pthread_mutex_t budget_lock;
    bool *pinned;             /* by block: what is to be pinned */
    uint64_t pin_bytes;       /* for which they were chosen, the head's included */
    uint64_t planned_bytes;   /* what the plan takes beside them */
    uint64_t given_up_bytes;  /* of this, what the draft left to them for now */
    uint64_t promised_end;    /* what calls are about to take of it again, and what the draft had then: it shrinks as it
                                 comes */
    uint64_t budget_most;     /* as the caller of the library set it last; the watch stays within */
    uint64_t budget_pending;  /* a lower limit that the ledger could not take yet; 0: none */
    atomic_bool budget_waits; /* budget_pending != 0, to be seen without the lock */
    atomic_bool draft_unwanted; /* it waits for what the draft has: all blocks together were not enough */
};

/* Gathers the sizes of the plan: everything but the budget is read from the file. Used by plan and open. */
typedef struct {
    lv_ledger *ledger;
    lv_pacer *pacer; /* borrowed */
    lv_gguf *gguf;
    lv_model *model;
    lv_weights *weights;
    lv_draft_model *draft; /* its files; NULL: none was given */
    lv_accelerator accelerator;
    lv_profile disk; /* what doctor found, no faster than the options say; all zero: nothing known */
} lv_engine_files;

/* engine.c: lever_engine_open with a plan that leaves what `reserve` says free in the engine's ledger. */
lever_status lv_engine_open_reserving(lever_engine **engine, const lever_engine_options *options, lv_reserve_fn reserve,
                                      lever_error *error);

/* budget.c: the limit in force for these options, and whether it is the default share. */
uint64_t lv_budget_of(const lever_engine_options *options, bool *is_default);
typedef struct {
    uint64_t limit_bytes; /* in force, or about to be */
    uint64_t most_bytes;  /* as the caller of the library set it last; UINT64_MAX: none */
    uint64_t used_bytes;
    uint64_t least_bytes; /* not for pinned blocks: what is in use, and what is set aside for sessions to come */
    uint64_t idle_bytes;  /* of this, not in use */
    uint64_t draft_bytes; /* of this, what the draft gives up when it has to */
} lv_budget;
void lv_budget_get(lever_engine *engine, lv_budget *budget); /* any thread */
/* Changes the limit, but not above what the caller of the library allows: for the watch. One that is kept only without
 * the draft comes into force when the draft has left. False: that much is in use. */
bool lv_budget_follow(lever_engine *engine, uint64_t limit_bytes);
/* Called between blocks of a pass: takes a waiting lower limit into force as soon as the memory is back. */
void lv_budget_on_block(void *engine);
/* Pins what the budget allows when the draft has given up `more_bytes` of what the plan set aside for it, and
 * `promised_bytes` stay free for who is about to take them, also when the budget changes. False, with nothing changed:
 * there is not as much. */
bool lv_budget_repin(lever_engine *engine, uint64_t more_bytes, uint64_t promised_bytes);
/* So much is promised from now on, without pinning anew. */
void lv_budget_promise(lever_engine *engine, uint64_t promised_bytes);
/* Whether a lower limit that waits can come into force when all pinned blocks have gone. Else what was taken under the
 * old one is to be given back. */
bool lv_budget_holds(lever_engine *engine);

#endif
