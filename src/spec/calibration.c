/* calibration.c - how far the hits of a bin differ from what the estimates promised.
 *
 * The candidates of one bin have different estimates, and a raw mean would make them all alike. What is learned is
 * therefore the difference between hits and estimates, and the difference is what is applied:
 *
 *     a(u) = estimate + sum of (hit - estimate) / (trials + PRIOR_TRIALS)
 *
 * It rises with the estimate; without trials it is the estimate; and where all estimates of a bin are the same, it is
 * the mean of hits and of PRIOR_TRIALS observations at the estimate. A counter needs no third number for it: a hit is
 * counted as if its candidate had the estimate in the middle of the bin, which adds (middle - estimate) to each
 * observation. So `hits` of a counter may pass its bounds by half of the bin's width per trial; the counters by rank
 * are plain ones.
 *
 * Bins are narrow at both ends, where most candidates are and where a small difference is a large factor. Depth has few
 * bins: given that the parent matched it says next to nothing.
 *
 * Text holds whole numbers, thousandths of an observation, because a decimal point depends on the locale. */
#include "spec/calibration.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Observations that the estimate, or a rank's share, counts for. */
#define PRIOR_TRIALS 20.0f

/* A counter with more trials is halved: what was learned some hundred observations ago may be another kind of text. */
#define TRIALS_MOST 400.0f

/* Nothing is certain, nor impossible. */
#define APPLIED_LEAST 0.0005f
#define APPLIED_MOST 0.9995f

#define UNITS_PER_TRIAL 1000.0

enum { COUNTERS_COUNT = LV_SOURCES_COUNT * LV_RANK_BINS * LV_DEPTH_BINS * LV_MARGIN_BINS * LV_ESTIMATE_BINS };

static const char heading[] = "lever calibration 1\n";

static const float estimate_edges[LV_ESTIMATE_BINS + 1] = {0, .03f, .1f, .2f, .35f, .5f, .65f, .8f, .9f, .97f, 1};
static const float margin_edges[LV_MARGIN_BINS + 1] = {0, .1f, .4f, 1};
static const uint16_t depth_first[LV_DEPTH_BINS] = {1, 2, 5};
static const uint8_t rank_first[LV_RANK_BINS] = {0, 1, 2, 4};

static const float rank_shares[LV_RANKS_COUNT] = {.88f, .06f, .03f, .012f, .006f, .004f, .003f, .002f};

/* --- Where a candidate is counted --- */

/* NaN and what is negative become 0. */
static float probability(float value) {
    return value > 0 ? fminf(value, 1) : 0;
}

static size_t bin_of(float value, const float *edges, size_t bins_count) {
    size_t bin = 0;
    while (bin + 1 < bins_count && value >= edges[bin + 1]) bin++;
    return bin;
}

static size_t depth_bin(uint16_t depth) {
    size_t bin = LV_DEPTH_BINS - 1;
    while (bin > 0 && depth < depth_first[bin]) bin--;
    return bin;
}

static size_t rank_bin(uint8_t rank) {
    size_t bin = LV_RANK_BINS - 1;
    while (bin > 0 && rank < rank_first[bin]) bin--;
    return bin;
}

static size_t rank_index(uint8_t rank) {
    return rank < LV_RANKS_COUNT ? rank : LV_RANKS_COUNT - 1;
}

static float middle_of(size_t estimate_bin) {
    return (estimate_edges[estimate_bin] + estimate_edges[estimate_bin + 1]) / 2;
}

typedef struct {
    size_t source, rank, depth, margin, estimate;
} place;

static place place_of(const lv_feature *feature) {
    return (place){.source = (size_t)feature->source,
                   .rank = rank_bin(feature->rank),
                   .depth = depth_bin(feature->depth),
                   .margin = bin_of(probability(feature->margin), margin_edges, LV_MARGIN_BINS),
                   .estimate = bin_of(probability(feature->estimate), estimate_edges, LV_ESTIMATE_BINS)};
}

/* --- Learning and applying --- */

void lv_calibration_init(lv_calibration *calibration) {
    memset(calibration, 0, sizeof(*calibration));
}

float lv_calibration_apply(const lv_calibration *calibration, const lv_feature *feature) {
    const place at = place_of(feature);
    const lv_counter *counter = &calibration->counters[at.source][at.rank][at.depth][at.margin][at.estimate];
    const float surplus = counter->hits - middle_of(at.estimate) * counter->trials;
    const float applied = probability(feature->estimate) + surplus / (counter->trials + PRIOR_TRIALS);
    return fminf(fmaxf(applied, APPLIED_LEAST), APPLIED_MOST);
}

static void count(lv_counter *counter, float hit) {
    counter->hits += hit;
    counter->trials += 1;
    if (counter->trials > TRIALS_MOST) {
        counter->hits /= 2;
        counter->trials /= 2;
    }
}

void lv_calibration_learn(lv_calibration *calibration, const lv_feature *feature, bool matched) {
    if (calibration->frozen) return;
    const place at = place_of(feature);
    const float hit = matched ? 1 : 0;
    count(&calibration->counters[at.source][at.rank][at.depth][at.margin][at.estimate],
          hit + middle_of(at.estimate) - probability(feature->estimate));
    count(&calibration->by_rank[at.source][rank_index(feature->rank)], hit);
}

float lv_calibration_rank_share(const lv_calibration *calibration, uint8_t rank) {
    const size_t index = rank_index(rank);
    const lv_counter *counter = &calibration->by_rank[LV_SOURCE_DRAFT][index];
    return (counter->hits + PRIOR_TRIALS * rank_shares[index]) / (counter->trials + PRIOR_TRIALS);
}

/* --- Text ---
 *
 *     lever calibration 1
 *     counter <source> <rank bin> <depth bin> <margin bin> <estimate bin> <hits> <trials>
 *     rank <source> <rank> <hits> <trials>
 *     end <lines between the heading and this one>
 *
 * Costs and calibration of a pair are kept in one file: each reader takes its own section, under its heading. */

/* The place of the index-th counter, in the order of the array. */
static place place_at(size_t index) {
    place at;
    at.estimate = index % LV_ESTIMATE_BINS, index /= LV_ESTIMATE_BINS;
    at.margin = index % LV_MARGIN_BINS, index /= LV_MARGIN_BINS;
    at.depth = index % LV_DEPTH_BINS, index /= LV_DEPTH_BINS;
    at.rank = index % LV_RANK_BINS, index /= LV_RANK_BINS;
    at.source = index;
    return at;
}

static int64_t units(float observations) {
    return llround((double)observations * UNITS_PER_TRIAL);
}

size_t lv_calibration_write(const lv_calibration *calibration, char *text, size_t capacity) {
    size_t used = lv_text_append(text, capacity, 0, "%s", heading), lines_count = 0;
    for (size_t i = 0; i < COUNTERS_COUNT; i++) {
        const place at = place_at(i);
        const lv_counter *counter = &calibration->counters[at.source][at.rank][at.depth][at.margin][at.estimate];
        if (counter->trials <= 0) continue;
        used = lv_text_append(text, capacity, used, "counter %zu %zu %zu %zu %zu %" PRId64 " %" PRId64 "\n", at.source,
                              at.rank, at.depth, at.margin, at.estimate, units(counter->hits), units(counter->trials));
        lines_count++;
    }
    for (size_t source = 0; source < LV_SOURCES_COUNT; source++) {
        for (size_t rank = 0; rank < LV_RANKS_COUNT; rank++) {
            const lv_counter *counter = &calibration->by_rank[source][rank];
            if (counter->trials <= 0) continue;
            used = lv_text_append(text, capacity, used, "rank %zu %zu %" PRId64 " %" PRId64 "\n", source, rank,
                                  units(counter->hits), units(counter->trials));
            lines_count++;
        }
    }
    return lv_text_append(text, capacity, used, "end %zu\n", lines_count);
}

/* Each of these reads one line at *text and moves *text behind it; false, leaving *text alone, when the line is another
 * one or a number is out of range. Widths keep the numbers within their types. */

static bool pass_line(const char **text, int length) {
    if (length <= 0 || (*text)[length] != '\n') return false;
    *text += length + 1;
    return true;
}

/* `slack`: by how much a hit may pass 0..1, beside what was rounded. */
static bool is_sane(int64_t hits, int64_t trials, float slack) {
    const double room = (double)slack * (double)trials + 1;
    return trials > 0 && (double)trials <= (double)TRIALS_MOST * UNITS_PER_TRIAL && (double)hits >= -room &&
           (double)hits <= (double)trials + room;
}

static lv_counter counter_of(int64_t hits, int64_t trials) {
    return (lv_counter){.hits = (float)((double)hits / UNITS_PER_TRIAL),
                        .trials = (float)((double)trials / UNITS_PER_TRIAL)};
}

static bool read_counter(const char **text, lv_calibration *calibration) {
    unsigned source, rank, depth, margin, estimate;
    int64_t hits, trials;
    int length = 0;
    if (sscanf(*text, "counter %4u %4u %4u %4u %4u %12" SCNd64 " %12" SCNd64 "%n", &source, &rank, &depth, &margin,
               &estimate, &hits, &trials, &length) != 7 ||
        source >= LV_SOURCES_COUNT || rank >= LV_RANK_BINS || depth >= LV_DEPTH_BINS || margin >= LV_MARGIN_BINS ||
        estimate >= LV_ESTIMATE_BINS) {
        return false;
    }
    const float half_width = (estimate_edges[estimate + 1] - estimate_edges[estimate]) / 2;
    if (!is_sane(hits, trials, half_width) || !pass_line(text, length)) return false;
    calibration->counters[source][rank][depth][margin][estimate] = counter_of(hits, trials);
    return true;
}

static bool read_rank(const char **text, lv_calibration *calibration) {
    unsigned source, rank;
    int64_t hits, trials;
    int length = 0;
    if (sscanf(*text, "rank %4u %4u %12" SCNd64 " %12" SCNd64 "%n", &source, &rank, &hits, &trials, &length) != 4 ||
        source >= LV_SOURCES_COUNT || rank >= LV_RANKS_COUNT || !is_sane(hits, trials, 0) || !pass_line(text, length)) {
        return false;
    }
    calibration->by_rank[source][rank] = counter_of(hits, trials);
    return true;
}

bool lv_calibration_read(lv_calibration *calibration, const char *text) {
    text = lv_text_section(text, heading);
    if (!text) return false;
    lv_calibration read;
    lv_calibration_init(&read);
    unsigned lines_count = 0, lines_promised = 0;
    while (read_counter(&text, &read) || read_rank(&text, &read)) lines_count++;
    int length = 0;
    if (sscanf(text, "end %6u%n", &lines_promised, &length) != 1 || lines_promised != lines_count ||
        !pass_line(&text, length) || !lv_text_is_section_end(text)) {
        return false;
    }
    read.frozen = calibration->frozen;
    *calibration = read;
    return true;
}
