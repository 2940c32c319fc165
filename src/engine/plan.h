/* plan.h - what goes where under a memory budget: a pure function of sizes.
 *
 * Owns nothing, reads nothing, knows no clock: the engine gathers the sizes, the plan chooses context, ring, rows of a
 * pass, head and pinned blocks, and says what each takes. The same function answers `lever plan` and opens the engine,
 * so what was promised is what is taken. Any thread. */
#ifndef LV_ENGINE_PLAN_H
#define LV_ENGINE_PLAN_H

#include "compute/forward.h"

/* A draft model that could be in memory beside the target. */
typedef struct {
    const lv_model *model;  /* NULL: none was given */
    uint64_t bytes;         /* all but what each session takes */
    uint64_t session_bytes; /* what each session takes for the predictor, beside lv_plan_draft_session_bytes */
    uint64_t step_bytes;    /* read of memory by one step */
    uint64_t device_bytes;  /* of its buffers on a device */
    uint64_t compare_bytes; /* its tables, and its vocabulary while it is compared with the target's */
    bool forced;            /* kept where leaving it out is predicted to be faster */
} lv_plan_draft;

typedef struct {
    const lv_model *model;
    const lv_layout *layout;
    uint64_t program_bytes;         /* what the process took before lever, and code still to be touched */
    uint64_t vocabulary_bytes;      /* now: measured, or the upper bound when it is not loaded */
    uint64_t vocabulary_peak_bytes; /* while loading */
    uint64_t metadata_bytes;
    uint64_t device_bytes;  /* buffers of the target on a device */
    uint64_t reserve_bytes; /* kept free for who opens the engine */
    uint64_t budget_bytes;  /* LV_LEDGER_UNLIMITED: none */
    bool budget_is_default;
    int target_ram_percent;  /* -1: as the plan decides */
    lever_cache cache;       /* LRU: the ring gets what would be pinned of the layers */
    uint32_t context_tokens; /* 0: 4096 or what fits */
    uint32_t sessions_max;
    uint32_t threads, lanes;
    uint64_t ring_bytes;                                 /* 0: as the plan decides */
    double io_bytes_per_second, memory_bytes_per_second; /* 0: unknown */
    lv_plan_draft draft;
} lv_plan_input;

typedef struct {
    lever_plan table;
    uint32_t context_tokens;
    uint32_t slots_count; /* of the ring */
    uint32_t rows_max, batch_rows, logits_rows, leases_max, embedding_rows;
    bool head_pinned;
    uint64_t pin_bytes; /* what the layers' pinned blocks may take in memory */
} lv_plan_choice;

/* LEVER_E_BUDGET, with the numbers and what to change, when it does not fit; `choice` is filled all the same.
 *
 * With a draft two plans are made, with and without it, and the one that is predicted to be faster is taken (a tie
 * keeps the draft); table.draft_used and draft_reason say which, and why. The draft is kept unasked when it is forced,
 * or when target_ram_percent is given: what would be pinned instead is then decided already. A draft that does not fit
 * is left out as well, unless it is forced. */
lever_status lv_plan_choose(const lv_plan_input *input, lv_plan_choice *choice, lever_error *error);

/* The same where the system gives the process `room_bytes` at most: when the plan would take more, the budget in
 * `input` becomes that, and the plan is made anew. */
lever_status lv_plan_choose_within(lv_plan_input *input, uint64_t room_bytes, lv_plan_choice *choice,
                                   lever_error *error);

/* Marks the blocks that a choice pins: pinned[blocks_count]. Returns what they take in memory. */
uint64_t lv_plan_pins(const lv_layout *layout, bool head_pinned, uint64_t pin_bytes, bool *pinned);

/* Of a session, for the text of an answer: 16 stop texts of 4 KiB and their tables. */
#define LV_PLAN_ANSWER_BYTES ((uint64_t)256 << 10)

/* What one session takes: cache, logits, sampler, tokens, tree. */
uint64_t lv_plan_session_bytes(const lv_model *model, uint32_t context_tokens);

/* What one session takes besides when a draft is there: the draft's cache, its logits and candidates, and logits of
 * LV_HEAD_ROWS_MAX rows of the target. */
uint64_t lv_plan_draft_session_bytes(const lv_model *target, const lv_model *draft, uint32_t context_tokens);

/* Rates where doctor has measured none, in bytes a second; and what a step of a draft takes beside reading its weights.
 */
#define LV_PLAN_IO_ASSUMED 2.0e9
#define LV_PLAN_MEMORY_ASSUMED 20.0e9
#define LV_PLAN_STEP_SECONDS 1.0e-3
static inline double lv_plan_rate_or(double rate, double assumed) {
    return rate > 0 ? rate : assumed;
}

/* Decoded tokens a second that are expected of a pass that reads `read_bytes` and computes `layer_bytes` and
 * `head_bytes`: plainly, and with a draft whose step reads `step_bytes` of memory. Rates that are 0 are assumed. */
typedef struct {
    uint64_t read_bytes, layer_bytes, head_bytes, step_bytes;
    double io_bytes_per_second, memory_bytes_per_second;
} lv_plan_rates;
double lv_plan_speed_plain(const lv_plan_rates *rates);
double lv_plan_speed_with_draft(const lv_plan_rates *rates);

/* What the head takes when it is pinned. */
uint64_t lv_plan_head_bytes(const lv_layout *layout);
/* What a store takes beside blocks: tables of slots, pins and checksums, a chunk to check. */
uint64_t lv_plan_store_bytes(const lv_layout *layout);
/* What the stacks of lanes and of computing threads take. */
uint64_t lv_plan_stack_bytes(uint32_t lanes, uint32_t threads);

/* What is set aside for what the system's allocator and page rounding add to the booked bytes. */
uint64_t lv_plan_slack_bytes(void);

/* Slots of a session's cache: its context and room for the nodes of a tree. */
uint32_t lv_plan_cache_slots(uint32_t context_tokens);

#endif
