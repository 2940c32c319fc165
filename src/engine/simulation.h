/* simulation.h - a phone in place of this machine: real models, tokens and decisions, but its costs and its time.
 *
 * An lv_phone is what an engine simulates: profile, and the sizes of target and draft, which may be other ones than
 * those of the models that give the tokens. An lv_simulation is a session's virtual clock. It stands between a cycle
 * and its two models: each forward, pass and head is really computed, and then takes the time that it would on the
 * phone, reading and drafting beside it. The costs that the policy is given come from the profile as well and are
 * frozen, so nothing depends on this machine's time, and every run has the same cycles and the same times.
 * docs/PHONES.md.
 *
 * A phone is const once it is open. A simulation belongs to its session's thread; the draft's thread calls
 * lv_simulation_forward between ahead_begin and ahead_end. */
#ifndef LV_ENGINE_SIMULATION_H
#define LV_ENGINE_SIMULATION_H

#include "base/clock.h"
#include "base/spans.h"
#include "engine/draft_model.h"
#include "phone/pipeline.h"
#include "spec/cycle.h"

typedef struct {
    lv_phone_profile profile;
    lv_phone_shape target, draft;
    lever_phone_npu npu;                  /* what it computes */
    double pinned_share;                  /* of the target's layers, that stays in its memory */
    uint32_t pinned_layers, model_layers; /* of these that are in memory; and how many the real target has */
} lv_phone;

/* Fills the profile: `wanted` as in lv_phone_profile_load. */
lever_status lv_phone_open(lv_phone **phone, const char *wanted, lv_ledger *ledger, lever_error *error);
void lv_phone_close(lv_phone **phone);

/* The sizes: `shapes` is "TARGET" or "TARGET,DRAFT" (lv_phone_shape_find); what it does not name is as the model is.
 * `draft` may be NULL. */
lever_status lv_phone_set_models(lv_phone *phone, const lv_model *target, const lv_model *draft, const char *shapes,
                                 lever_error *error);

typedef struct lv_simulation lv_simulation;

/* What the phone does when is recorded in `spans`, by the virtual clock; they may be NULL. */
lever_status lv_simulation_open(lv_simulation **simulation, const lv_phone *phone, lv_spans *spans, lv_ledger *ledger,
                                lever_error *error);
void lv_simulation_close(lv_simulation **simulation);

const lv_clock *lv_simulation_clock(const lv_simulation *simulation);

/* What the policy is to know before a cycle in which a row attends to `context` tokens. Of what the costs hold only the
 * record of drafting ahead is kept, and that before the first cycle is another machine's. */
void lv_simulation_begin_cycle(lv_simulation *simulation, size_t context, lv_costs *costs);

/* The two sides of a cycle, with the phone's time. The inner ones must live as long. */
lv_target lv_simulation_target(lv_simulation *simulation, const lv_target *inner);
lv_drafter lv_simulation_drafter(lv_simulation *simulation, const lv_drafter *inner);

/* Seconds of a forward of the draft over `rows`, `head_rows` of which go through its head: ONE is beside a pass. */
double lv_simulation_forward(void *simulation, uint32_t rows, uint32_t head_rows, lv_split split);

/* A pass over `rows` of a prompt, and the logits of `head_rows` of them; then the draft's share of the prompt, of which
 * it wants no logits, and which was computed beside all passes since `begin_ns`. */
void lv_simulation_prompt(lv_simulation *simulation, size_t rows, size_t context, size_t head_rows);
void lv_simulation_draft_prompt(lv_simulation *simulation, size_t rows, uint64_t begin_ns);

/* From here on statistics are counted. */
void lv_simulation_begin_answer(lv_simulation *simulation);
/* Puts the phone's figures in place of this machine's: bytes, stages, padding, energy, heat. */
void lv_simulation_fill(lv_simulation *simulation, lever_statistics *statistics);

#endif
