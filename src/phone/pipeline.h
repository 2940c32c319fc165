/* pipeline.h - passes of the target in virtual time: one reader, one who computes, a ring of layers between them.
 *
 * The reader reads the streamed layers in the order of use, around from the last to the first, and rests only while the
 * ring is full; so what it reads while nothing is computed (drafting, head) is there when the next pass begins. A layer
 * is computed when the one before is done and it has arrived; pinned layers always have. The NPU computes them, or, on
 * a phone without one, the cores. All times are seconds of one virtual clock. One thread at a time. */
#ifndef LV_PHONE_PIPELINE_H
#define LV_PHONE_PIPELINE_H

#include "phone/timing.h"

typedef struct {
    uint32_t layers_count, pinned_count; /* pinned layers are spread evenly */
    bool on_cores;                       /* they compute the layers; else the NPU does */
    bool is_shared; /* drafting beside a pass is by the processor that has the layers: each then has half of it */
    uint32_t ring_count, ring_next;
    double reader_end;               /* of the last read */
    double freed[LV_PHONE_RING_MAX]; /* when each slot was last given back */
} lv_phone_pipeline;

/* The ring is empty, and reading begins at `now`. */
void lv_phone_pipeline_init(lv_phone_pipeline *pipeline, const lv_phone_profile *profile, const lv_phone_shape *shape,
                            uint32_t pinned_count, double now);

/* When the stages of a layer went on. */
typedef struct {
    uint32_t layer;
    bool is_read;                /* else it is pinned */
    double read_begin, read_end; /* which may lie before the pass */
    double begin, end;           /* of computing it */
} lv_phone_layer_times;

typedef struct {
    double begin;
    double rows;
    uint32_t cut_layer; /* from this layer on only `cut_rows` are computed; 0: all of them everywhere */
    double cut_rows;
    double drafting_seconds; /* from the beginning on, there is drafting beside the pass */
    double speed, context;   /* as in lv_phone_load */
    /* Is told of each layer, in their order; NULL: nobody is. */
    void (*on_layer)(void *user, const lv_phone_layer_times *times);
    void *user;
} lv_phone_pass;

typedef struct {
    double end;
    double compute_seconds; /* of the processor that has the layers; what it drafts beside them is left out */
    double wait_seconds, reader_seconds, bytes_read;
    double padded_rows; /* rows of all layers that the NPU computed beyond those that were wanted, by layers */
} lv_phone_pass_times;

lv_phone_pass_times lv_phone_pipeline_pass(lv_phone_pipeline *pipeline, const lv_phone_profile *profile,
                                           const lv_phone_shape *shape, const lv_phone_pass *pass);

/* What the layers of a pass over a batch shape of `rows` take when they are all there, while reading goes on if any is
 * streamed. */
double lv_phone_pipeline_compute(const lv_phone_pipeline *pipeline, const lv_phone_profile *profile,
                                 const lv_phone_shape *shape, double rows, double speed, double context,
                                 bool drafts_beside);
/* Seconds of reading what a pass streams. */
double lv_phone_pipeline_read(const lv_phone_pipeline *pipeline, const lv_phone_profile *profile,
                              const lv_phone_shape *shape);

#endif
