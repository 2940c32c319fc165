/* lookup.c - one walk from the end of the text to its beginning.
 *
 * Every earlier token that equals the last one could be the end of a run; how far it agrees is counted backwards. A run
 * may overlap the end of the text, as it does where the text repeats itself. The walk ends at the first run of full
 * length, so that a text that repeats itself all along, in which every place would be compared in full, is the
 * quickest. */
#include "spec/lookup.h"

/* Tokens that agree before `begin` and before the end of the text. */
static uint32_t agreement(const int32_t *text, size_t count, size_t begin) {
    uint32_t length = 0;
    while (length < LV_LOOKUP_MATCH_MOST && length < begin && text[begin - 1 - length] == text[count - 1 - length]) {
        length++;
    }
    return length;
}

lv_lookup_match lv_lookup_find(const int32_t *text, size_t count) {
    lv_lookup_match best = {0};
    if (count <= LV_LOOKUP_MATCH_LEAST) return best;
    for (size_t begin = count - 1; begin >= LV_LOOKUP_MATCH_LEAST; begin--) {
        const uint32_t length = agreement(text, count, begin);
        if (length < LV_LOOKUP_MATCH_LEAST || length <= best.match_length) continue;
        best = (lv_lookup_match){.begin = begin, .count = count - begin, .match_length = length};
        if (length == LV_LOOKUP_MATCH_MOST) break;
    }
    return best;
}

float lv_lookup_estimate(uint32_t match_length) {
    /* A run of 4 was measured a hair below one of 3, which is noise: longer is never worse. */
    static const struct {
        uint32_t match_length;
        float estimate;
    } measured[] = {{16, .97f}, {10, .86f}, {7, .79f}, {5, .67f}, {LV_LOOKUP_MATCH_LEAST, .58f}};
    for (size_t i = 0; i < sizeof(measured) / sizeof(*measured); i++) {
        if (match_length >= measured[i].match_length) return measured[i].estimate;
    }
    return 0;
}
