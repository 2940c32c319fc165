/* ahead.c - two running means at each level. */
#include "spec/ahead.h"

#include <assert.h>
#include <math.h>

static const double newest_share = 0.1;
/* Tokens of a cycle spread widely around what was expected: the memory has to be long. */
static const double newest_kept_share = 0.01;

static const double level_tokens[LV_AHEAD_LEVELS - 1] = {4, 8, 16};

uint32_t lv_ahead_level(double tokens) {
    uint32_t level = 0;
    while (level < LV_AHEAD_LEVELS - 1 && tokens >= level_tokens[level]) level++;
    return level;
}

double lv_ahead_saved(const lv_ahead_record *record, uint32_t level) {
    assert(level < LV_AHEAD_LEVELS);
    const lv_ahead_drafted *behind = record->levels[level].drafted;
    return behind[0].cycles > 0 ? fmax(0, behind[0].steps - behind[1].steps) : 0;
}

double lv_ahead_rate(const lv_ahead_record *record, bool ahead, double rate) {
    const double kept = record->kept[ahead ? 1 : 0];
    return kept > 0 ? rate * kept : rate;
}

void lv_ahead_keep(lv_ahead_record *record, bool ahead, double share) {
    double *kept = &record->kept[ahead ? 1 : 0];
    if (!(share > 0)) return;
    if (*kept <= 0) *kept = 1;
    *kept += newest_kept_share * (fmin(share, LV_AHEAD_KEPT_MOST) - *kept);
}

void lv_ahead_set_due(lv_ahead_record *record, bool ahead) {
    record->is_due[ahead ? 1 : 0] = true;
}

bool lv_ahead_choose(lv_ahead_record *record, uint32_t level, bool better) {
    assert(level < LV_AHEAD_LEVELS);
    uint32_t *age = record->levels[level].age;
    const bool due = ++age[!better] >= LV_AHEAD_RETRY_CYCLES || record->is_due[!better];
    const bool ahead = due ? !better : better;
    age[ahead] = 0;
    record->is_due[ahead] = false;
    return ahead;
}

void lv_ahead_learn(lv_ahead_record *record, uint32_t level, bool ahead, double drafted_steps) {
    assert(level < LV_AHEAD_LEVELS);
    if (!(drafted_steps >= 0)) return;
    lv_ahead_drafted *behind = &record->levels[level].drafted[ahead ? 1 : 0];
    if (behind->cycles < LV_AHEAD_CYCLES_MAX) behind->cycles++;
    /* At first a plain mean: the first one alone is no better than chance. */
    behind->steps += fmax(newest_share, 1.0 / behind->cycles) * (drafted_steps - behind->steps);
}
