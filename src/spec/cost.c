/* cost.c - eleven points a curve, moved by factors.
 *
 * A measurement says by which factor the curve is wrong at its rows. The two points around it take this factor, by
 * their share of the distance and by how much is known of them already; a point that is measured for the first time
 * takes it whole. Points that were never measured are carried along by the factors of the nearest measured ones to
 * either side, so that they keep the shape of the prior, and after one measurement the whole curve is right in scale.
 *
 * Costs are monotone: where a point would cost less than one to its left, both get their mean, weighted by samples
 * (isotonic regression by pooling). The curve is not cut at a point that happened to be slow.
 *
 * A machine that has become slower or faster, for good or for a while, shows at every number of rows, and only some are
 * measured: a curve of which a part is right lets a policy flee to where it is wrong. So measurements that differ much
 * from what is well known are counted as surprises, by the curve as it was before the first of them; three in a row
 * that agree are no outliers, and the whole curve moves by the least that they say.
 *
 * Reading is simpler, one number: a pass that waited for blocks took as long as reading did, less what the ring held
 * at its start. A pass that did not wait says that reading takes no longer than something was being read, which is less
 * than the pass where computing is what takes longer. Where it has become less, that is what lets trees shrink.
 *
 * Text holds nanoseconds as whole numbers, because a decimal point depends on the locale. */
#include "spec/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const char heading[] = "lever costs 2\n";

static const uint32_t point_rows[LV_COST_POINTS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96};

/* Of one row. Weights are read from memory once for all rows; from about 8 rows on arithmetic costs more than that. */
static const double layers_shape[LV_COST_POINTS] = {1, 1.05, 1.15, 1.6, 2.2, 3.0, 4.7, 6.4, 9.5, 12.5, 18.5};
static const double head_shape[LV_COST_POINTS] = {1, 1.05, 1.1, 1.25, 1.6, 2.0, 3, 4, 6, 8, 12};
#define ONE_THREAD_FACTOR 1.8

/* The least share that a new measurement has in a point: about the last dozen count. */
#define GAIN_LEAST 0.125
#define IO_GAIN 0.2

/* Nothing is faster than the machine can: what took less than this share of the expected says that the machine had been
 * busy before, and counts more. */
#define FASTER 0.7
#define GAIN_FASTER 0.5

/* More than OUTLIER times the expected is taken for OUTLIER_TAKEN times: the machine did something else meanwhile. When
 * it goes on, a few measurements get there. */
#define OUTLIER 4.0
#define OUTLIER_TAKEN 2.0

/* A surprise is off by more than this factor, either way, where points with such a share were measured before. Behind a
 * change they count as if they had been measured a few times. */
#define SURPRISE 1.5
#define SAY_LEAST 0.25
enum { SURPRISES_BELIEVED = 3, SAMPLES_LEFT = 3 };

/* Reading was what a pass waited for when waiting took this share of it. Less comes from an empty ring at its start. */
#define WAIT_SHARE_LEAST 0.1

/* What a point that was never measured weighs against one that was, when both are pooled. */
#define PRIOR_WEIGHT 1e-9

#define SECONDS_LEAST 1e-9
#define SAMPLES_MOST 1000000u

/* --- Curves --- */

/* Rows that are not at a point: between `low` and low + 1, `share` of the way to the latter. */
typedef struct {
    size_t low;
    double share;
} position;

/* Of 1 row to what the last point stands for. */
static position position_of(uint32_t rows) {
    size_t low = 0;
    while (low + 2 < LV_COST_POINTS && rows > point_rows[low + 1]) low++;
    const double step = (double)point_rows[low + 1] - (double)point_rows[low];
    return (position){low, ((double)rows - (double)point_rows[low]) / step};
}

double lv_cost_curve_at(const lv_cost_curve *curve, uint32_t rows) {
    if (rows == 0) return 0;
    const size_t last = LV_COST_POINTS - 1;
    /* So far out every prior is proportional to the rows. */
    if (rows > point_rows[last]) return curve->seconds[last] * rows / point_rows[last];
    const position at = position_of(rows);
    /* Neither rounding nor the form of the sum may make more rows cheaper. */
    const double low = curve->seconds[at.low], high = curve->seconds[at.low + 1];
    return fmin(low + (high - low) * at.share, high);
}

uint32_t lv_cost_point_rows(size_t point) {
    return point_rows[point];
}

static bool is_surprising(double factor) {
    return factor >= SURPRISE || factor <= 1 / SURPRISE;
}

/* Whether a measurement that is off by `factor` says the same as the ones before. */
static bool goes_on(const lv_cost_surprise *surprise, double factor) {
    return surprise->count > 0 && is_surprising(factor) && (factor > 1) == (surprise->factor > 1);
}

/* Counts a measurement. True: it is the last one of a change by surprise->factor. */
static bool is_change(lv_cost_surprise *surprise, double factor) {
    if (!goes_on(surprise, factor)) {
        *surprise = (lv_cost_surprise){factor, is_surprising(factor) ? 1 : 0};
        return false;
    }
    surprise->factor = factor > 1 ? fmin(factor, surprise->factor) : fmax(factor, surprise->factor);
    if (++surprise->count < SURPRISES_BELIEVED) return false;
    surprise->count = 0;
    return true;
}

static double taken_factor(double seconds, double expected) {
    const double factor = seconds / expected;
    return factor > OUTLIER ? OUTLIER_TAKEN : factor;
}

/* Moves one of the points around a measurement, which is a sample of the nearer one only. Returns the factor by which
 * it moved. */
static double move_point(lv_cost_curve *curve, size_t point, double share, double factor) {
    uint32_t *samples = &curve->samples[point];
    double gain = 1;
    if (*samples > 0) gain = share * fmax(1.0 / ((double)*samples + 1), factor < FASTER ? GAIN_FASTER : GAIN_LEAST);
    if (share >= 0.5 && *samples < SAMPLES_MOST) (*samples)++;
    const double moved = 1 + gain * (factor - 1);
    curve->seconds[point] *= moved;
    return moved;
}

/* Points that were never measured follow the measured ones to their left and right, by how near they are; `moved` holds
 * the factors of these. */
static void carry_unmeasured(lv_cost_curve *curve, const double *moved) {
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        if (curve->samples[i] > 0) continue;
        size_t left = i, right = i;
        while (left > 0 && curve->samples[left] == 0) left--;
        while (right + 1 < LV_COST_POINTS && curve->samples[right] == 0) right++;
        const bool has_left = curve->samples[left] > 0, has_right = curve->samples[right] > 0;
        double factor = has_left ? moved[left] : moved[right];
        if (has_left && has_right) {
            factor += (moved[right] - moved[left]) * (double)(i - left) / (double)(right - left);
        }
        curve->seconds[i] *= factor;
    }
}

static void make_monotone(lv_cost_curve *curve) {
    double mean[LV_COST_POINTS], weight[LV_COST_POINTS];
    size_t points_count[LV_COST_POINTS], pools = 0;
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        mean[pools] = curve->seconds[i];
        weight[pools] = curve->samples[i] > 0 ? fmin(curve->samples[i], 1 / GAIN_LEAST) : PRIOR_WEIGHT;
        points_count[pools++] = 1;
        for (; pools > 1 && mean[pools - 2] > mean[pools - 1]; pools--) {
            const double sum = weight[pools - 2] + weight[pools - 1];
            mean[pools - 2] = (mean[pools - 2] * weight[pools - 2] + mean[pools - 1] * weight[pools - 1]) / sum;
            weight[pools - 2] = sum;
            points_count[pools - 2] += points_count[pools - 1];
        }
    }
    for (size_t pool = 0, i = 0; pool < pools; pool++) {
        for (size_t end = i + points_count[pool]; i < end; i++) curve->seconds[i] = mean[pool];
    }
}

static void scale_curve(lv_cost_curve *curve, const double *from, double factor) {
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        curve->seconds[i] = fmax(from[i] * factor, SECONDS_LEAST);
        if (curve->samples[i] > SAMPLES_LEFT) curve->samples[i] = SAMPLES_LEFT;
    }
}

/* Both points were measured, as far as they have a say. */
static bool is_known(const lv_cost_curve *curve, position at) {
    const bool low = curve->samples[at.low] > 0 || at.share > 1 - SAY_LEAST;
    return low && (curve->samples[at.low + 1] > 0 || at.share < SAY_LEAST);
}

/* In front of what the measurement moves. True: the whole curve is to move by surprise.factor. Where it was never
 * measured the prior may be wrong as well, so that is no surprise by itself. But it may be what others of late were,
 * since a policy looks elsewhere at once. */
static bool is_curve_change(lv_cost_curve *curve, position at, uint32_t rows, double seconds) {
    lv_cost_surprise *surprise = &curve->surprise;
    lv_cost_curve before = *curve;
    if (surprise->count > 0) memcpy(before.seconds, curve->before, sizeof(before.seconds));
    const double factor = seconds / lv_cost_curve_at(&before, rows);
    if (!is_known(curve, at) && !curve->is_doubted && !goes_on(surprise, factor)) return false;
    const bool changed = is_change(surprise, factor);
    if (surprise->count == 0) curve->is_doubted = false;
    if (surprise->count == 1) memcpy(curve->before, curve->seconds, sizeof(curve->before));
    return changed;
}

double lv_cost_curve_learn(lv_cost_curve *curve, uint32_t rows, double seconds) {
    if (rows == 0 || !isfinite(seconds) || seconds <= 0) return 1;
    seconds = fmax(seconds, SECONDS_LEAST);
    const double factor = taken_factor(seconds, lv_cost_curve_at(curve, rows));
    const uint32_t rows_last = point_rows[LV_COST_POINTS - 1];
    const position at = position_of(rows < rows_last ? rows : rows_last);
    if (is_curve_change(curve, at, rows, seconds)) {
        scale_curve(curve, curve->before, curve->surprise.factor);
        return curve->surprise.factor;
    }
    double moved[LV_COST_POINTS];
    for (size_t i = 0; i < LV_COST_POINTS; i++) moved[i] = 1;
    for (size_t side = 0; side < 2; side++) {
        const size_t point = at.low + side;
        const double share = side ? at.share : 1 - at.share;
        if (curve->samples[point] > 0 || share >= 0.5) moved[point] = move_point(curve, point, share, factor);
    }
    carry_unmeasured(curve, moved);
    make_monotone(curve);
    return 1;
}

/* --- All costs --- */

static void init_curve(lv_cost_curve *curve, const double *shape, double row_seconds) {
    memset(curve, 0, sizeof(*curve));
    for (size_t i = 0; i < LV_COST_POINTS; i++) curve->seconds[i] = fmax(row_seconds, SECONDS_LEAST) * shape[i];
}

void lv_costs_init(lv_costs *costs, double target_row_seconds, double draft_row_seconds, double head_row_seconds,
                   double io_seconds, double ring_seconds) {
    memset(costs, 0, sizeof(*costs));
    for (size_t split = 0; split < LV_SPLITS_COUNT; split++) {
        const double factor = split == LV_SPLIT_ONE ? ONE_THREAD_FACTOR : 1;
        init_curve(&costs->layers[split], layers_shape, target_row_seconds * factor);
        init_curve(&costs->draft[split], layers_shape, draft_row_seconds * factor);
    }
    init_curve(&costs->head, head_shape, head_row_seconds);
    costs->io_seconds = io_seconds;
    costs->ring_seconds = ring_seconds;
}

double lv_costs_pruned_pass(const lv_costs *costs, lv_split split, uint32_t rows, uint32_t rows_after, double before,
                            double idle_seconds) {
    if (rows == 0) return 0;
    const double ahead = fmin(fmax(idle_seconds, 0), costs->ring_seconds);
    const double all = lv_cost_curve_at(&costs->layers[split], lv_buckets_padded(&costs->buckets, rows));
    const uint32_t after = lv_buckets_padded(&costs->buckets, rows_after);
    const double fewer = rows_after < rows ? lv_cost_curve_at(&costs->layers[split], after) : all;
    return fmax(before * all + (1 - before) * fewer, costs->io_seconds - ahead);
}

double lv_costs_pass(const lv_costs *costs, lv_split split, uint32_t rows, double idle_seconds) {
    return lv_costs_pruned_pass(costs, split, rows, rows, 1, idle_seconds);
}

static void move_io(lv_costs *costs, double seconds, double ring_seconds, double factor) {
    costs->io_seconds = seconds * factor;
    costs->ring_seconds = ring_seconds * factor;
}

/* What the ring holds takes as many bytes as before: its time follows that of all. */
static void learn_io(lv_costs *costs, const lv_pass_seconds *took) {
    const bool was_waiting = took->wait >= WAIT_SHARE_LEAST * took->pass;
    double seconds = took->pass + fmin(took->idle, costs->ring_seconds);
    if (!was_waiting) seconds = fmin(seconds, took->read);
    if (costs->io_seconds <= 0) {
        /* Blocks that were pinned are streamed now. */
        if (was_waiting) costs->io_seconds = seconds;
        return;
    }
    if (!was_waiting && seconds >= costs->io_seconds) return;
    const bool is_first = costs->io_before.surprise.count == 0;
    const double known = is_first ? costs->io_seconds : costs->io_before.seconds;
    const bool changed = is_change(&costs->io_before.surprise, seconds / known);
    if (changed) {
        move_io(costs, costs->io_before.seconds, costs->io_before.ring_seconds, costs->io_before.surprise.factor);
        return;
    }
    if (costs->io_before.surprise.count == 1) {
        costs->io_before.seconds = costs->io_seconds;
        costs->io_before.ring_seconds = costs->ring_seconds;
    }
    move_io(costs, costs->io_seconds, costs->ring_seconds,
            1 + IO_GAIN * (taken_factor(seconds, costs->io_seconds) - 1));
}

/* Passes of a split may be faster now. */
static void doubt(lv_costs *costs, lv_split split) {
    costs->layers[split].is_doubted = true;
    lv_ahead_set_due(&costs->ahead, split == LV_SPLIT_ONE);
}

void lv_costs_learn_layers(lv_costs *costs, lv_split split, uint32_t rows, double seconds) {
    if (costs->frozen) return;
    const double factor = lv_cost_curve_learn(&costs->layers[split], lv_buckets_padded(&costs->buckets, rows), seconds);
    if (factor < 1) doubt(costs, split == LV_SPLIT_ONE ? LV_SPLIT_ALL : LV_SPLIT_ONE);
}

void lv_costs_learn_draft(lv_costs *costs, lv_split split, uint32_t rows, double seconds) {
    if (costs->frozen) return;
    const double factor = lv_cost_curve_learn(&costs->draft[split], rows, seconds);
    lv_cost_curve *other = &costs->draft[split == LV_SPLIT_ONE ? LV_SPLIT_ALL : LV_SPLIT_ONE];
    if (factor < 1) scale_curve(other, other->seconds, factor);
}

void lv_costs_learn_head(lv_costs *costs, lv_split split, uint32_t rows, double seconds) {
    if (costs->frozen) return;
    const double factor = lv_cost_curve_learn(&costs->head, rows, seconds);
    if (factor < 1 && split == LV_SPLIT_ONE) doubt(costs, LV_SPLIT_ALL);
}

void lv_costs_learn_pass(lv_costs *costs, lv_split split, uint32_t rows, const lv_pass_seconds *took) {
    const double all = took->pass + took->compute + took->wait + took->idle;
    if (costs->frozen || rows == 0 || !isfinite(all) || took->pass <= 0 || took->wait < 0 || took->idle < 0 ||
        !(took->read >= 0))
        return;
    lv_costs_learn_layers(costs, split, rows, took->compute);
    learn_io(costs, took);
}

lv_split lv_costs_draft_split(const lv_costs *costs) {
    const lv_cost_curve *one = &costs->draft[LV_SPLIT_ONE], *all = &costs->draft[LV_SPLIT_ALL];
    if (one->samples[0] == 0 || all->samples[0] == 0) return LV_SPLIT_ALL;
    return lv_cost_curve_at(one, 1) < lv_cost_curve_at(all, 1) ? LV_SPLIT_ONE : LV_SPLIT_ALL;
}

double lv_costs_draft_step(const lv_costs *costs) {
    return lv_cost_curve_at(&costs->draft[lv_costs_draft_split(costs)], 1);
}

/* --- Text ---
 *
 *     lever costs 2
 *     layers-one <rows> <nanoseconds> <samples>     for each point; then layers-all, draft-one, draft-all, head
 *     io <nanoseconds>
 *     ring <nanoseconds>
 *     ahead <level> <0 or 1> <nanoseconds> <cycles>     drafting behind cycles not ahead and ahead, for each level
 *     kept <0 or 1> <millionths>                        what cycles not ahead and ahead gave of what was expected
 *
 * Costs and calibration of a pair are kept in one file: each reader takes its own section, under its heading. */

enum { CURVES_COUNT = 5, MILLIONTHS = 1000000 };

static const char *const curve_names[CURVES_COUNT] = {"layers-one", "layers-all", "draft-one", "draft-all", "head"};

static lv_cost_curve *curve_of(lv_costs *costs, size_t index) {
    lv_cost_curve *const curves[CURVES_COUNT] = {&costs->layers[LV_SPLIT_ONE], &costs->layers[LV_SPLIT_ALL],
                                                 &costs->draft[LV_SPLIT_ONE], &costs->draft[LV_SPLIT_ALL],
                                                 &costs->head};
    return curves[index];
}

/* 18 digits at most, which is what is read. */
static int64_t nanoseconds(double seconds) {
    return llround(fmin(seconds * 1e9, 9e17));
}

size_t lv_costs_write(const lv_costs *costs, char *text, size_t capacity) {
    lv_costs copy = *costs;
    const double step = lv_costs_draft_step(costs);
    size_t used = lv_text_append(text, capacity, 0, "%s", heading);
    for (size_t c = 0; c < CURVES_COUNT; c++) {
        const lv_cost_curve *curve = curve_of(&copy, c);
        for (size_t i = 0; i < LV_COST_POINTS; i++) {
            used =
                lv_text_append(text, capacity, used, "%s %" PRIu32 " %" PRId64 " %" PRIu32 "\n", curve_names[c],
                               point_rows[i], nanoseconds(fmax(curve->seconds[i], SECONDS_LEAST)), curve->samples[i]);
        }
    }
    used = lv_text_append(text, capacity, used, "io %" PRId64 "\nring %" PRId64 "\n", nanoseconds(costs->io_seconds),
                          nanoseconds(costs->ring_seconds));
    for (unsigned i = 0; i < 2 * LV_AHEAD_LEVELS; i++) {
        const lv_ahead_drafted *behind = &costs->ahead.levels[i / 2].drafted[i % 2];
        used = lv_text_append(text, capacity, used, "ahead %u %u %" PRId64 " %" PRIu32 "\n", i / 2, i % 2,
                              nanoseconds(behind->steps * step), behind->cycles);
    }
    for (unsigned i = 0; i < 2; i++) {
        const int64_t kept = (int64_t)llround(costs->ahead.kept[i] * MILLIONTHS);
        used = lv_text_append(text, capacity, used, "kept %u %" PRId64 "\n", i, kept);
    }
    return used;
}

/* Reads one point's line at *text and moves *text behind it. */
static bool read_point(const char **text, const char *name, size_t point, lv_cost_curve *curve) {
    char word[16] = "";
    unsigned rows = 0, samples = 0;
    int64_t value = 0;
    int length = 0;
    if (sscanf(*text, "%15s %4u %18" SCNd64 " %8u%n", word, &rows, &value, &samples, &length) != 4) return false;
    if (strcmp(word, name) != 0 || rows != point_rows[point] || value <= 0 || samples > SAMPLES_MOST) return false;
    if ((*text)[length] != '\n') return false;
    curve->seconds[point] = (double)value / 1e9;
    curve->samples[point] = samples;
    *text += length + 1;
    return point == 0 || curve->seconds[point] >= curve->seconds[point - 1];
}

/* As read_point. A way that was never tried has no time. */
static bool read_ahead(const char **text, unsigned index, double step, lv_ahead_record *record) {
    unsigned level = 0, ahead = 0, cycles = 0;
    int64_t value = 0;
    int length = 0;
    if (sscanf(*text, "ahead %1u %1u %18" SCNd64 " %8u%n", &level, &ahead, &value, &cycles, &length) != 4) return false;
    if (level != index / 2 || ahead != index % 2 || cycles > LV_AHEAD_CYCLES_MAX || (*text)[length] != '\n')
        return false;
    if (value < 0 || (cycles == 0 && value != 0)) return false;
    record->levels[level].drafted[ahead] = (lv_ahead_drafted){.steps = (double)value / 1e9 / step, .cycles = cycles};
    *text += length + 1;
    return true;
}

static bool read_kept(const char **text, unsigned index, lv_ahead_record *record) {
    unsigned ahead = 0, value = 0;
    int length = 0;
    if (sscanf(*text, "kept %1u %8u%n", &ahead, &value, &length) != 2) return false;
    if (ahead != index || value > LV_AHEAD_KEPT_MOST * MILLIONTHS || (*text)[length] != '\n') return false;
    record->kept[ahead] = (double)value / MILLIONTHS;
    *text += length + 1;
    return true;
}

bool lv_costs_read(lv_costs *costs, const char *text) {
    text = lv_text_section(text, heading);
    if (!text) return false;
    lv_costs read = {.frozen = costs->frozen, .buckets = costs->buckets};
    for (size_t c = 0; c < CURVES_COUNT; c++) {
        for (size_t i = 0; i < LV_COST_POINTS; i++) {
            if (!read_point(&text, curve_names[c], i, curve_of(&read, c))) return false;
        }
    }
    int64_t io = -1, ring = -1;
    int length = 0;
    if (sscanf(text, "io %18" SCNd64 " ring %18" SCNd64 "%n", &io, &ring, &length) != 2 || io < 0 || ring < 0 ||
        text[length] != '\n') {
        return false;
    }
    text += length + 1;
    for (unsigned i = 0; i < 2 * LV_AHEAD_LEVELS; i++) {
        if (!read_ahead(&text, i, lv_costs_draft_step(&read), &read.ahead)) return false;
    }
    if (!read_kept(&text, 0, &read.ahead) || !read_kept(&text, 1, &read.ahead)) return false;
    if (!lv_text_is_section_end(text)) return false;
    read.io_seconds = (double)io / 1e9;
    read.ring_seconds = (double)ring / 1e9;
    *costs = read;
    return true;
}
