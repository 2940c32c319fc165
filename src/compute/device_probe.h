/* device_probe.h - what a device may be used for, found out before it is.
 *
 * A device STREAMS weights when it runs every matrix of the layers, its buffers hold a block, other weights can be
 * loaded into the same buffer again and again, the results are right each time, and uploading and running cost no more
 * than reading the weights or computing on the CPU. One that is only fit to keep what was loaded once HOLDS a model
 * that is in memory, the draft. One that cannot run this model, or not fast enough, is UNSUITED to it, and may still do
 * for another one. One that fails, gives wrong results or takes very long to try is REFUSED for every model. The reason
 * is told in words. */
#ifndef LV_COMPUTE_DEVICE_PROBE_H
#define LV_COMPUTE_DEVICE_PROBE_H

#include "base/clock.h"
#include "compute/device.h"
#include "compute/weights.h"

/* Calls of a driver cannot be interrupted: this is looked at after each of them. */
#define LV_DEVICE_PROBE_SECONDS_MAX 20.0

typedef enum { LV_DEVICE_STREAMS, LV_DEVICE_HOLDS, LV_DEVICE_UNSUITED, LV_DEVICE_REFUSED } lv_device_verdict;

typedef struct {
    const lv_weights *weights; /* whose shapes are tried, with weights that are made up */
    const lv_kernels *kernels;
    uint32_t threads;           /* of the CPU that it is compared with */
    double io_bytes_per_second; /* 0: unknown; reading is then not taken into account */
    bool forced;                /* what it costs does not matter */
    const lv_clock *clock;
    const lv_log *log; /* hears of each step before it is taken: the last line names one that never returns */
} lv_device_probe_options;

typedef struct {
    lv_device_verdict verdict;
    char reason[1024]; /* why not more than that; "" when it streams */
} lv_device_findings;

/* Buckets in which a row has other bits than in the largest are taken from the device's list, so that a row's bits do
 * not depend on what it is computed with. Fails for want of memory only. */
lever_status lv_device_probe(lv_device *device, const lv_device_probe_options *options, lv_device_findings *findings,
                             lever_error *error);

#endif
