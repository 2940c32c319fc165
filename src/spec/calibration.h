/* calibration.h - from what a candidate looks like to the probability that it is accepted.
 *
 * Every candidate of an accepted node is labelled when the target's token is known, in the tree or not: so counters by
 * source, rank, depth, margin and estimate learn a(u) = P(u matches | its parent matched) without selection bias. A
 * counter starts as the estimate itself with the weight of some observations and forgets slowly, so that a new pair
 * begins with the draft's own probability, which is a good one at temperature 0. Pure functions of the struct; one
 * thread at a time. */
#ifndef LV_SPEC_CALIBRATION_H
#define LV_SPEC_CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    LV_SOURCE_DRAFT = 0,    /* from the draft's logits */
    LV_SOURCE_LOOKUP = 1,   /* continues a run of tokens that stood in the text before */
    LV_SOURCE_REJECTED = 2, /* from a branch of the last cycle that was not accepted */
    LV_SOURCES_COUNT = 3
} lv_source;

enum { LV_RANKS_COUNT = 8 };

typedef struct {
    lv_source source;
    uint8_t rank;   /* among its siblings of the same source, 0 the first */
    uint16_t depth; /* below the root, 1 the first */
    float estimate; /* of the source: the draft's probability; of a look-up, by match length (0..1) */
    float margin;   /* estimate less that of the next sibling; of the last one, its estimate */
} lv_feature;

enum { LV_ESTIMATE_BINS = 10, LV_MARGIN_BINS = 3, LV_DEPTH_BINS = 3, LV_RANK_BINS = 4 };

typedef struct {
    float hits, trials;
} lv_counter;

typedef struct {
    lv_counter counters[LV_SOURCES_COUNT][LV_RANK_BINS][LV_DEPTH_BINS][LV_MARGIN_BINS][LV_ESTIMATE_BINS];
    lv_counter by_rank[LV_SOURCES_COUNT][LV_RANKS_COUNT]; /* of all candidates of that rank */
    bool frozen;
} lv_calibration;

void lv_calibration_init(lv_calibration *calibration);

/* In (0, 1), increasing with the estimate within a bin. */
float lv_calibration_apply(const lv_calibration *calibration, const lv_feature *feature);

void lv_calibration_learn(lv_calibration *calibration, const lv_feature *feature, bool matched);

/* The mean a(u) of the draft's candidate of this rank: what the children of a node that is not expanded yet will be
 * worth. Starts as .88, .06, .03, .012, ... */
float lv_calibration_rank_share(const lv_calibration *calibration, uint8_t rank);

/* As lv_costs_write and lv_costs_read. Only counters that were used are written. */
size_t lv_calibration_write(const lv_calibration *calibration, char *text, size_t capacity);
bool lv_calibration_read(lv_calibration *calibration, const char *text);

#endif
