/* learning.c - see learning.h. The same Adam as in training, with a smaller rate: what is there was learned from more
 * than one answer shows. */
#include "spec/learning.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { SAMPLES_MAX = 512, BATCH = 16, JUDGED_LEAST = 256 };

static const float rate = 2e-4f, first_share = 0.9f, second_share = 0.999f;
static const double better = 0.995, worse = 1.02; /* of the predictor's loss */

typedef struct {
    uint8_t candidates_count, label;
    struct {
        int32_t token;
        float features[LV_PREDICTOR_FEATURES];
    } candidates[LV_PREDICTOR_CANDIDATES_MAX];
} kept_sample;

struct lv_learning {
    lv_predictor *refined;
    size_t values_count;
    kept_sample *samples; /* SAMPLES_MAX */
    uint32_t samples_count;
    uint16_t *hidden;      /* halfs: SAMPLES_MAX x width */
    uint16_t *pass_hidden; /* halfs: LV_PRUNING_ROWS_MAX x width */
    float *row;            /* width */
    float *gradient, *mean, *square;
    uint32_t steps, judged;
    uint32_t version;          /* of the predictor that was judged */
    double loss, refined_loss; /* sums over what was judged */
};

static size_t floats_of(const lv_predictor_shape *shape) {
    return 3 * lv_predictor_values_count(shape) + shape->width;
}

static size_t halfs_of(const lv_predictor_shape *shape) {
    return (SAMPLES_MAX + (size_t)LV_PRUNING_ROWS_MAX) * shape->width;
}

static size_t own_bytes(const lv_predictor_shape *shape) {
    return sizeof(lv_learning) + SAMPLES_MAX * sizeof(kept_sample) + floats_of(shape) * sizeof(float) +
           halfs_of(shape) * sizeof(uint16_t);
}

size_t lv_learning_bytes(const lv_predictor_shape *shape) {
    return own_bytes(shape) + lv_predictor_bytes(shape);
}

lever_status lv_learning_open(lv_learning **out, const lv_predictor *predictor, lv_ledger *ledger, lever_error *error) {
    const lv_predictor_shape *shape = &predictor->shape;
    void *memory = NULL;
    *out = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, own_bytes(shape), "refining the predictor", error));
    lv_learning *l = memory;
    l->values_count = lv_predictor_values_count(shape);
    l->samples = (kept_sample *)(l + 1);
    l->gradient = (float *)(l->samples + SAMPLES_MAX);
    l->mean = l->gradient + l->values_count;
    l->square = l->mean + l->values_count;
    l->row = l->square + l->values_count;
    l->hidden = (uint16_t *)(l->row + shape->width);
    l->pass_hidden = l->hidden + (size_t)SAMPLES_MAX * shape->width;
    const lever_status status = lv_predictor_open(&l->refined, shape, 0, ledger, error);
    if (status != LEVER_OK) {
        lv_learning_close(&l);
        return status;
    }
    memcpy(l->refined->values, predictor->values, l->values_count * sizeof(float));
    l->version = atomic_load(&predictor->version);
    *out = l;
    return LEVER_OK;
}

void lv_learning_close(lv_learning **out) {
    if (!out || !*out) return;
    lv_predictor_close(&(*out)->refined);
    lv_free(*out);
    *out = NULL;
}

/* Divided by its largest, so that halfs hold it: the predictor looks at directions alone. */
void lv_learning_keep(lv_learning *l, const lv_pruning_view *view, const lv_pruning_source *source) {
    const size_t width = l->refined->shape.width;
    for (uint32_t row = 0; row < view->rows_count; row++) {
        const float *hidden = source->hidden(source->user, row);
        float most = 1e-20f;
        for (size_t i = 0; i < width; i++) most = fmaxf(most, fabsf(hidden[i]));
        for (size_t i = 0; i < width; i++) l->pass_hidden[row * width + i] = lv_half_of(hidden[i] / most);
    }
}

void lv_learning_label(lv_learning *l, const lv_pruning_view *view, uint32_t row, int32_t token) {
    const size_t width = l->refined->shape.width;
    const uint32_t first = view->candidates_first[row];
    uint32_t count = view->candidates_first[row + 1] - first;
    assert(row < view->rows_count);
    if (count > LV_PREDICTOR_CANDIDATES_MAX) count = LV_PREDICTOR_CANDIDATES_MAX;
    if (count == 0 || l->samples_count == SAMPLES_MAX) return;
    kept_sample *sample = &l->samples[l->samples_count];
    sample->candidates_count = sample->label = (uint8_t)count;
    for (uint32_t c = 0; c < count; c++) {
        sample->candidates[c].token = view->candidates[first + c].token;
        memcpy(sample->candidates[c].features, view->candidates[first + c].features,
               sizeof(sample->candidates[c].features));
        if (sample->candidates[c].token == token) sample->label = (uint8_t)c;
    }
    memcpy(l->hidden + l->samples_count * width, l->pass_hidden + row * width, width * sizeof(uint16_t));
    l->samples_count++;
}

uint32_t lv_learning_samples_count(const lv_learning *l) {
    return l->samples_count;
}

static void step(lv_learning *l, float batch) {
    l->steps++;
    const float correction = sqrtf(1 - powf(second_share, (float)l->steps)) / (1 - powf(first_share, (float)l->steps));
    for (size_t i = l->refined->shape.width; i < l->values_count; i++) { /* scale stays */
        const float gradient = l->gradient[i] / batch;
        l->mean[i] = first_share * l->mean[i] + (1 - first_share) * gradient;
        l->square[i] = second_share * l->square[i] + (1 - second_share) * gradient * gradient;
        l->refined->values[i] -= rate * correction * l->mean[i] / (sqrtf(l->square[i]) + 1e-8f);
        l->gradient[i] = 0;
    }
}

static lever_status learn_sample(lv_learning *l, lv_predictor *predictor, uint32_t index,
                                 const lv_pruning_source *source, lever_error *error) {
    const kept_sample *sample = &l->samples[index];
    const size_t width = predictor->shape.width;
    lv_predictor_candidate asked[LV_PREDICTOR_CANDIDATES_MAX];
    float shares[LV_PREDICTOR_CANDIDATES_MAX + 1];
    const uint32_t count = sample->candidates_count;
    for (uint32_t c = 0; c < count; c++) {
        memcpy(asked[c].features, sample->candidates[c].features, sizeof(asked[c].features));
        LV_TRY(source->embedding(source->user, sample->candidates[c].token, source->rows + c * width, error));
        asked[c].row = source->rows + c * width;
        asked[c].token = -1; /* the values change all the time */
    }
    for (size_t i = 0; i < width; i++) l->row[i] = lv_float_of(l->hidden[index * width + i]);
    lv_predictor_score(predictor, l->row, asked, count, shares, &shares[count]);
    l->loss -= log((double)shares[sample->label]);
    l->refined_loss += lv_predictor_backward(l->refined, l->row, asked, count, sample->label, 1, l->gradient);
    l->judged++;
    return LEVER_OK;
}

static void judge_anew(lv_learning *l) {
    l->judged = 0;
    l->loss = l->refined_loss = 0;
}

static void begin_anew(lv_learning *l) {
    judge_anew(l);
    l->steps = 0;
    memset(l->mean, 0, l->values_count * sizeof(float));
    memset(l->square, 0, l->values_count * sizeof(float));
}

lever_status lv_learning_refine(lv_learning *l, lv_predictor *predictor, const lv_pruning_source *source, bool *adopted,
                                lever_error *error) {
    lever_status status = LEVER_OK;
    const size_t bytes = l->values_count * sizeof(float);
    uint32_t batch = 0;
    *adopted = false;
    /* Another session's copy may have taken its place: what was judged was of values that are gone. */
    if (l->version != atomic_load(&predictor->version)) judge_anew(l);
    l->version = atomic_load(&predictor->version);
    for (uint32_t i = 0; i < l->samples_count && status == LEVER_OK; i++) {
        status = learn_sample(l, predictor, i, source, error);
        if (++batch < BATCH && i + 1 < l->samples_count) continue;
        step(l, (float)batch);
        batch = 0;
    }
    l->samples_count = 0;
    if (status != LEVER_OK || l->judged < JUDGED_LEAST) return status;
    if (l->refined_loss < better * l->loss) {
        memcpy(predictor->values, l->refined->values, bytes);
        lv_predictor_forget(predictor);
        l->version = atomic_fetch_add(&predictor->version, 1) + 1;
        *adopted = true;
        begin_anew(l);
    } else if (l->refined_loss > worse * l->loss) {
        memcpy(l->refined->values, predictor->values, bytes);
        begin_anew(l);
    }
    return LEVER_OK;
}
