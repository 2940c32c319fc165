/* costs_file.h - costs and calibration of a pair on this machine: shared by the sessions of an engine, kept between
 * runs.
 *
 * A text file in the user's cache folder, one for each pair, budget class, speed that the disk is slowed down to, and
 * number of threads, replaced atomically;
 * one that is missing or damaged is as good as none. A file that the caller names freezes the costs: nothing is learned
 * and nothing is written, so that every run has the same cycles. Any thread. */
#ifndef LV_ENGINE_COSTS_FILE_H
#define LV_ENGINE_COSTS_FILE_H

#include <pthread.h>

#include "base/ledger.h"
#include "spec/calibration.h"
#include "spec/cost.h"

typedef struct {
    pthread_mutex_t lock;
    lv_costs costs;
    lv_calibration calibration;
    bool learned; /* something came back since loading */
    char *path;   /* where to save; NULL: nowhere */
    lv_ledger *ledger;
} lv_costs_share;

typedef struct {
    const char *folder;                   /* may be NULL: nothing is kept */
    const char *frozen_path;              /* may be NULL */
    const char *target_path, *draft_path; /* the draft's may be NULL */
    uint64_t pass_read_bytes;             /* what a pass streams: other costs for another budget */
    uint64_t disk_bytes_per_second;       /* 0: it is as fast as it is */
    uint32_t threads;
    const char *device; /* NULL: the CPU alone */
} lv_costs_share_options;

/* `prior` is what holds when no file is found. A named file that cannot be read or is damaged is LEVER_E_IO or
 * LEVER_E_FORMAT. The share is open afterwards in any case: close it. */
lever_status lv_costs_share_open(lv_costs_share *share, const lv_costs_share_options *options, const lv_costs *prior,
                                 lv_ledger *ledger, lever_error *error);
/* Saves what was learned; a failure to do so is not worth an error. */
void lv_costs_share_close(lv_costs_share *share);

void lv_costs_share_take(lv_costs_share *share, lv_costs *costs, lv_calibration *calibration);
void lv_costs_share_give(lv_costs_share *share, const lv_costs *costs, const lv_calibration *calibration);

/* For reports: what one file holds. LEVER_E_IO or LEVER_E_FORMAT says what is wrong with it. */
lever_status lv_costs_file_read(const char *path, lv_costs *costs, lv_calibration *calibration, lever_error *error);

/* For reports: the newest file that was kept for these models and threads, whatever the budget. The options'
 * pass_read_bytes bounds what a pass may have streamed; *pass_read_bytes is what it did, to the class. False: nothing
 * was kept that can be read. */
bool lv_costs_file_newest(const lv_costs_share_options *options, lv_costs *costs, lv_calibration *calibration,
                          uint64_t *pass_read_bytes);

#endif
