/* cost.h - what a cycle costs, measured while running (design: costs are measured, never assumed).
 *
 * Pure functions of the struct: no clock, no memory of its own. Curves are staircases over a few numbers of rows, kept
 * monotone; between two measured points the cost is interpolated, beyond the last one it goes on with the slope of the
 * prior. An exponentially weighted mean follows the machine: other load, a slower disk, less memory. Where several
 * measurements in a row say that it has changed, it is believed at once. Frozen costs do not learn; only the record of
 * drafting ahead follows the cycles of an answer, by what was expected of them. One thread at a time. */
#ifndef LV_SPEC_COST_H
#define LV_SPEC_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buckets.h"
#include "spec/ahead.h"

/* Who computes: one thread (the other is the draft's), or all of them. */
typedef enum { LV_SPLIT_ONE = 0, LV_SPLIT_ALL = 1, LV_SPLITS_COUNT = 2 } lv_split;

enum { LV_COST_POINTS = 11 };

/* Measurements in a row that say, all of them, that the machine is faster, or slower, than was thought. */
typedef struct {
    double factor; /* of the one that says the least */
    uint32_t count;
} lv_cost_surprise;

typedef struct {
    double seconds[LV_COST_POINTS]; /* at 1, 2, 4, 8, 12, 16, 24, 32, 48, 64 and 96 rows */
    uint32_t samples[LV_COST_POINTS];
    /* Not kept in a file. */
    lv_cost_surprise surprise;
    double before[LV_COST_POINTS]; /* seconds as they were in front of the first surprise */
    bool is_doubted;               /* something else said that the machine has changed */
} lv_cost_curve;

/* Seconds for `rows` (0 costs nothing). Never decreases with rows. */
double lv_cost_curve_at(const lv_cost_curve *curve, uint32_t rows);

/* The number of rows that a point stands for. */
uint32_t lv_cost_point_rows(size_t point);

/* Takes one measurement. The nearest points move by their share of the distance; points never measured keep the prior's
 * shape, scaled by what the measured ones say. A single outlier (more than four times the expected) moves a curve at
 * most to twice its value. The third measurement in a row that says that the machine has changed moves the whole curve.
 * Returns the factor of that; 1: it did not. */
double lv_cost_curve_learn(lv_cost_curve *curve, uint32_t rows, double seconds);

typedef struct {
    lv_cost_curve layers[LV_SPLITS_COUNT]; /* all layers of the target, computing only */
    lv_cost_curve draft[LV_SPLITS_COUNT];  /* one forward of the draft, its head included */
    lv_cost_curve head;                    /* the target's head, all threads */
    double io_seconds;                     /* reading what one pass streams, the reader never at rest */
    double ring_seconds;                   /* of this, what the ring holds already when the reader was not stopped */
    struct {                               /* as those of a curve */
        lv_cost_surprise surprise;
        double seconds, ring_seconds;
    } io_before;
    lv_ahead_record ahead; /* what drafting ahead saves, and what was kept of what was promised */
    bool frozen;
    lv_buckets buckets; /* a pass computes these numbers of rows only; what is learned and asked for is padded */
} lv_costs;

/* A prior from sizes and rates: seconds that one row of the target, of the draft and of the head take when memory is
 * the limit. io_seconds and ring_seconds as known. */
void lv_costs_init(lv_costs *costs, double target_row_seconds, double draft_row_seconds, double head_row_seconds,
                   double io_seconds, double ring_seconds);

/* The pass over `rows` after `idle_seconds` in which the reader could fill the ring (drafting, head): reading and
 * computing overlap. */
double lv_costs_pass(const lv_costs *costs, lv_split split, uint32_t rows, double idle_seconds);

/* The same when only `rows_after` of the rows go on behind the share `before` of the layers (pruning.h). */
double lv_costs_pruned_pass(const lv_costs *costs, lv_split split, uint32_t rows, uint32_t rows_after, double before,
                            double idle_seconds);

/* What a pass took, in seconds. */
typedef struct {
    double pass, compute;
    double wait; /* for blocks */
    double idle; /* in front of it, as above */
    double read; /* in which something was being read since the pass before it; infinite: not known */
} lv_pass_seconds;

void lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took);

/* Takes what all layers took, or a forward of the draft. What makes passes of one split faster is a reason to try one
 * of the other; forwards of the draft, which are short, are hoped to be faster then. */
void lv_costs_learn_layers(lv_costs *costs, lv_split split, uint32_t rows, double seconds);
void lv_costs_learn_draft(lv_costs *costs, lv_split split, uint32_t rows, double seconds);
/* And what the head took, behind a pass of this split. All threads compute it: where they became faster, and only one
 * had the layers, it is a reason to try all of them. */
void lv_costs_learn_head(lv_costs *costs, lv_split split, uint32_t rows, double seconds);

/* Who drafts in front of a pass: all threads, unless one alone was measured to be faster. On a busy machine they wait
 * for each other. */
lv_split lv_costs_draft_split(const lv_costs *costs);
/* A forward over one row there: the unit of costs->ahead. */
double lv_costs_draft_step(const lv_costs *costs);

/* Text of "name value..." lines with a heading that names the version; the caller keeps it in a file. Returns the
 * bytes wanted, like snprintf. Buckets belong to a device, not to the text. */
size_t lv_costs_write(const lv_costs *costs, char *text, size_t capacity);
/* False, leaving *costs alone, when the text is not one, is damaged, or holds a value that is not finite and positive
 * (io may be 0). `frozen` and `buckets` are not read. */
bool lv_costs_read(lv_costs *costs, const char *text);

#endif
