/* pipeline.c - two servers that wait for each other, layer by layer. */
#include "phone/pipeline.h"

#include <math.h>

void lv_phone_pipeline_init(lv_phone_pipeline *pl, const lv_phone_profile *profile, const lv_phone_shape *shape,
                            uint32_t pinned_count, double now) {
    *pl = (lv_phone_pipeline){
        .layers_count = (uint32_t)shape->layers_count,
        .pinned_count = pinned_count,
        .ring_count = (uint32_t)profile->ring_layers,
        .reader_end = now,
    };
    if (pl->pinned_count > pl->layers_count) pl->pinned_count = pl->layers_count;
    for (uint32_t i = 0; i < pl->ring_count; i++) pl->freed[i] = now;
}

static bool is_pinned(const lv_phone_pipeline *pl, uint32_t layer) {
    const uint64_t pinned = pl->pinned_count, layers = pl->layers_count;
    return layer * pinned / layers != (layer + 1) * pinned / layers;
}

static bool streams(const lv_phone_pipeline *pl) {
    return pl->pinned_count < pl->layers_count;
}

static double read_rate(const lv_phone_profile *profile, const lv_phone_shape *shape) {
    return lv_phone_read_rate(profile, shape->layer_bytes * shape->layers_count);
}

double lv_phone_pipeline_read(const lv_phone_pipeline *pl, const lv_phone_profile *profile,
                              const lv_phone_shape *shape) {
    const double bytes = shape->layer_bytes * (double)(pl->layers_count - pl->pinned_count);
    return bytes / read_rate(profile, shape);
}

static lv_phone_load load_of(const lv_phone_pipeline *pl, const lv_phone_profile *profile, const lv_phone_shape *shape,
                             double speed, double context) {
    return (lv_phone_load){
        .flash_rate = streams(pl) ? read_rate(profile, shape) : 0,
        .speed = speed,
        .context = context,
    };
}

/* A processor that is shared does two things at once at half the speed each. */
#define SHARED_SLOWDOWN 2.0

static double slowdown(const lv_phone_pipeline *pl, bool drafts_beside) {
    return pl->is_shared && drafts_beside ? SHARED_SLOWDOWN : 1;
}

double lv_phone_pipeline_compute(const lv_phone_pipeline *pl, const lv_phone_profile *profile,
                                 const lv_phone_shape *shape, double rows, double speed, double context,
                                 bool drafts_beside) {
    lv_phone_load load = load_of(pl, profile, shape, speed, context);
    if (drafts_beside && !pl->is_shared) load.cpu_rate = lv_phone_cpu_rate(profile, speed);
    const double layer = pl->on_cores ? lv_phone_cpu_layer(profile, shape, rows, &load)
                                      : lv_phone_npu_layer_of_shape(profile, shape, rows, &load);
    return pl->layers_count * layer * slowdown(pl, drafts_beside);
}

/* The next read into the next slot. */
static void read_layer(lv_phone_pipeline *pl, double seconds, lv_phone_layer_times *times) {
    times->read_begin = fmax(pl->reader_end, pl->freed[pl->ring_next]);
    times->read_end = pl->reader_end = times->read_begin + seconds;
}

static void give_back(lv_phone_pipeline *pl, double now) {
    pl->freed[pl->ring_next] = now;
    pl->ring_next = (pl->ring_next + 1) % pl->ring_count;
}

lv_phone_pass_times lv_phone_pipeline_pass(lv_phone_pipeline *pl, const lv_phone_profile *profile,
                                           const lv_phone_shape *shape, const lv_phone_pass *pass) {
    const lv_phone_load alone = load_of(pl, profile, shape, pass->speed, pass->context);
    lv_phone_load beside = alone;
    if (!pl->is_shared) beside.cpu_rate = lv_phone_cpu_rate(profile, pass->speed);
    const double read_seconds = shape->layer_bytes / read_rate(profile, shape);
    const double drafting_end = pass->begin + pass->drafting_seconds;
    lv_phone_pass_times times = {.end = pass->begin};
    for (uint32_t layer = 0; layer < pl->layers_count; layer++) {
        lv_phone_layer_times one = {.layer = layer, .is_read = !is_pinned(pl, layer), .begin = times.end};
        const double rows = pass->cut_layer > 0 && layer >= pass->cut_layer ? pass->cut_rows : pass->rows;
        if (one.is_read) {
            read_layer(pl, read_seconds, &one);
            one.begin = fmax(one.begin, one.read_end);
            times.reader_seconds += read_seconds;
            times.bytes_read += shape->layer_bytes;
        }
        const bool drafts = one.begin < drafting_end;
        const lv_phone_load *load = drafts ? &beside : &alone;
        const double seconds = pl->on_cores ? lv_phone_cpu_layer(profile, shape, rows, load)
                                            : lv_phone_npu_layer(profile, shape, rows, load);
        times.wait_seconds += one.begin - times.end;
        times.compute_seconds += seconds;
        if (!pl->on_cores) times.padded_rows += lv_phone_padded_rows(profile, rows) - rows;
        times.end = one.end = one.begin + seconds * slowdown(pl, drafts);
        if (one.is_read) give_back(pl, times.end);
        if (pass->on_layer) pass->on_layer(pass->user, &one);
    }
    return times;
}
