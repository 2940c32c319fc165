/* ahead.h - what drafting ahead saves: the drafting of the next cycle that is done already when it begins.
 *
 * Drafting ahead takes a thread from the target, which can then verify fewer nodes in the time that reading takes. What
 * that costs is known from the tree at hand (cost.h); what it saves is the difference between the drafting that follows
 * a cycle without it and a cycle with it. It is large where the draft is nearly always right, and small where the next
 * root is anybody's guess, so it is kept by level: how many tokens the last cycles gave. It is counted in steps of the
 * draft (lv_costs_draft_step), which stay what they are when the machine becomes slower. Cycles of both ways also do
 * not quite keep what is expected of them: threads, draft and reader get into each other's way, and the better of two
 * expectations is more often too high than too low. Both ways are tried again now and then. Pure functions of the
 * struct, which is kept with the costs of the pair. */
#ifndef LV_SPEC_AHEAD_H
#define LV_SPEC_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LV_AHEAD_LEVELS = 4,           /* below 4, 8 and 16 tokens a cycle, and above */
    LV_AHEAD_RETRY_CYCLES = 24,    /* of a level, before the way that was not taken is tried again */
    LV_AHEAD_CYCLES_MAX = 1 << 20, /* counted */
    LV_AHEAD_KEPT_MOST = 4,        /* what a cycle gave over what was expected of it counts up to this */
};

/* Drafting behind cycles of one way at one level. */
typedef struct {
    double steps; /* a mean, the newest ones weigh more */
    uint32_t cycles;
} lv_ahead_drafted;

typedef struct {
    struct {
        lv_ahead_drafted drafted[2]; /* not ahead, and ahead */
        uint32_t age[2];             /* cycles since each was taken; not kept in a file */
    } levels[LV_AHEAD_LEVELS];
    bool is_due[2]; /* each: the machine has changed since it was taken; not kept in a file */
    /* Cycles of each way: what they gave over what was expected of them. 0: none yet, which is taken for 1. */
    double kept[2];
} lv_ahead_record;

/* The level of a mean of tokens a cycle. */
uint32_t lv_ahead_level(double tokens);

/* Steps that drafting ahead saves at this level, as far as is known: hopefully all of it, when it was not tried. */
double lv_ahead_saved(const lv_ahead_record *record, uint32_t level);

/* The tokens a second that were computed for a cycle, less what cycles of this way failed to keep of that. */
double lv_ahead_rate(const lv_ahead_record *record, bool ahead, double rate);

/* The machine has become faster, as another way showed: this one is to be tried next. */
void lv_ahead_set_due(lv_ahead_record *record, bool ahead);

/* Which way the cycle takes: `better` as was computed from lv_ahead_saved, or the other one where it is due. */
bool lv_ahead_choose(lv_ahead_record *record, uint32_t level, bool better);

/* A cycle is over: tokens a second over those expected. */
void lv_ahead_keep(lv_ahead_record *record, bool ahead, double share);

/* The drafting that a cycle began with, behind one of this level. */
void lv_ahead_learn(lv_ahead_record *record, uint32_t level, bool ahead, double drafted_steps);

#endif
