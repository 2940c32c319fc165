/* method.c - a table of methods, and one cycle of each. */
#include "phone/method.h"

#include <math.h>
#include <string.h>

#include "phone/pipeline.h"

static const lv_phone_method methods[] = {
    {.name = "ar", .rows = 1, .head_rows = 1, .head_walks = true, .tokens = 1},
    {.name = "chain", .steps = 5, .rows = 6, .head_rows = 6, .tokens = 2.12},
    {.name = "edge", .steps = 9, .rows = 20, .head_rows = 20, .tokens = 2.75},
    {.name = "lever",
     .steps = 3,
     .wide_steps = 4,
     .wide_rows = 8,
     .rows = 32,
     .head_rows = 4,
     .head_walks = true,
     .tokens = 3.45},
};

const lv_phone_method *lv_phone_method_find(const char *name) {
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(methods[i].name, name) == 0) return &methods[i];
    }
    return NULL;
}

lv_phone_method_times lv_phone_method_run(const lv_phone_method *m, const lv_phone_profile *profile,
                                          const lv_phone_shape *target, const lv_phone_shape *draft,
                                          double pinned_share) {
    const lv_phone_load idle = LV_PHONE_IDLE;
    const lv_phone_forward narrow = lv_phone_forward_cpu(profile, draft, 1, 1, &idle);
    const lv_phone_forward wide = lv_phone_forward_npu(profile, draft, m->wide_rows, m->wide_rows, &idle);
    lv_phone_method_times times = {.draft_seconds = m->steps * narrow.seconds + m->wide_steps * wide.seconds};
    lv_phone_pipeline pipeline;
    const uint32_t pinned = (uint32_t)lround(pinned_share * target->layers_count);
    lv_phone_pipeline_init(&pipeline, profile, target, pinned, 0);
    const lv_phone_pass pass = {.rows = m->rows, .speed = 1};
    const lv_phone_pass_times passed = lv_phone_pipeline_pass(&pipeline, profile, target, &pass);
    times.pass_seconds = passed.end;
    times.head_seconds = m->head_walks ? m->head_rows * lv_phone_head(profile, target, 1, &idle)
                                       : lv_phone_head(profile, target, m->head_rows, &idle);
    const double cycle = times.draft_seconds + times.pass_seconds + times.head_seconds;
    const lv_phone_work work = {
        .seconds = cycle,
        .npu_seconds = passed.compute_seconds + m->wide_steps * wide.npu_seconds,
        .cpu_seconds = m->steps * narrow.cpu_seconds + m->wide_steps * wide.cpu_seconds + times.head_seconds,
        .reader_seconds = passed.reader_seconds,
        .bytes_read = passed.bytes_read,
    };
    times.seconds = cycle / m->tokens;
    times.joules = lv_phone_joules(profile, &work) / m->tokens;
    return times;
}
