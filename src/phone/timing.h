/* timing.h - what single pieces of work take on a phone: the formulas of docs/PHONES.md.
 *
 * Seconds, bytes, watts, joules, degrees Celsius. Pure functions of profile and shape; any thread. */
#ifndef LV_PHONE_TIMING_H
#define LV_PHONE_TIMING_H

#include "phone/phone_profile.h"
#include "phone/shape.h"

/* What else goes on while something is computed. */
typedef struct {
    double flash_rate; /* bytes/s that are read from flash; 0: none */
    double cpu_rate;   /* bytes/s that the CPU takes from memory beside the NPU */
    double speed;      /* share of the full speed that heat leaves */
    double context;    /* tokens that a row attends to; 0: attention is left out */
} lv_phone_load;

#define LV_PHONE_IDLE ((lv_phone_load){.speed = 1})

/* --- Flash --- */

/* Bytes a second of reads of `block` bytes, `queue` of them under way, issued by `lanes` threads, over a range. */
double lv_phone_flash_rate(const lv_phone_profile *profile, double block, double queue, double lanes, double range);
/* The same as the profile says that the target is read. */
double lv_phone_read_rate(const lv_phone_profile *profile, double range);

/* --- Computing --- */

/* The rows that the NPU computes for these: the smallest batch shape that holds them, in whole tiles. */
double lv_phone_padded_rows(const lv_phone_profile *profile, double rows);

/* One layer. On the NPU its weights are there when it begins; a crossing is part of it. */
double lv_phone_npu_layer(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                          const lv_phone_load *load);
/* The same where `rows` is a batch shape itself, of whole tiles but not padded to another one: what a table of shapes
 * is filled with. */
double lv_phone_npu_layer_of_shape(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                                   const lv_phone_load *load);
double lv_phone_cpu_layer(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                          const lv_phone_load *load);
/* No rows take no time. */
double lv_phone_head(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                     const lv_phone_load *load);

/* A forward of a model that is in memory, and who computed its layers. The head has rows of its own: those of a prompt,
 * or of text that is caught up with, have none. */
typedef struct {
    double seconds, npu_seconds, cpu_seconds;
} lv_phone_forward;

lv_phone_forward lv_phone_forward_cpu(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                                      double head_rows, const lv_phone_load *load);
lv_phone_forward lv_phone_forward_npu(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                                      double head_rows, const lv_phone_load *load);
/* By whom it is faster: narrow ones on the CPU, wide ones on the NPU. */
lv_phone_forward lv_phone_forward_best(const lv_phone_profile *profile, const lv_phone_shape *shape, double rows,
                                       double head_rows, const lv_phone_load *load);

/* Bytes a second that the cores take from memory while they compute. */
double lv_phone_cpu_rate(const lv_phone_profile *profile, double speed);

/* --- Energy and heat --- */

typedef struct {
    double seconds, npu_seconds, cpu_seconds, reader_seconds, bytes_read;
} lv_phone_work;

void lv_phone_work_add(lv_phone_work *sum, const lv_phone_work *more);
double lv_phone_joules(const lv_phone_profile *profile, const lv_phone_work *work);

/* The share of its full speed at a temperature. */
double lv_phone_speed_at(const lv_phone_profile *profile, double temperature);
/* The temperature after some seconds in which it took `watts`, had it not been slowed down. */
double lv_phone_warm(const lv_phone_profile *profile, double temperature, double watts, double seconds);

#endif
