/* costs_file.h - costs and calibration of a pair on this machine: shared by the sessions of an engine, kept between
 * runs.
 *
 * A text file in the user's cache folder, one for each pair, budget class, speed that the disk is slowed down to, and
 * number of threads, replaced atomically;
 * one that is missing or damaged is as good as none. A file that the caller names freezes the costs: nothing is learned
 * and nothing is written, so that every run has the same cycles. What a pass streams may change while the engine runs:
 * the costs then go on under the class that they are of now. Any thread. */
#ifndef LV_ENGINE_COSTS_FILE_H
#define LV_ENGINE_COSTS_FILE_H

#include <pthread.h>

#include "base/ledger.h"
#include "spec/calibration.h"
#include "spec/cost.h"

/* All that the name of a file is made of but what its passes stream. */
typedef struct {
    const char *folder, *device; /* NULL: none; of a share its own */
    uint64_t models_hash, disk_bytes_per_second;
    uint32_t threads;
} lv_costs_place;

typedef struct {
    pthread_mutex_t lock;
    lv_costs costs;
    lv_calibration calibration;
    bool learned; /* something came back since loading */
    char *path;   /* where to save; NULL: nowhere */
    lv_costs_place place;
    uint64_t pass_read_bytes; /* what passes stream whose costs these are */
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

/* Whether passes that stream so much have other costs: the class is another one, or one of them streams nothing. */
bool lv_costs_class_differs(uint64_t pass_read_bytes, uint64_t other_bytes);

typedef struct {
    uint64_t pass_read_bytes, ring_bytes;
    double bytes_per_second; /* of reading, where nothing was measured */
} lv_costs_reading;

/* The costs become those of passes that stream so much: what was learned of others is saved, and what was kept of these
 * is loaded; else computing takes what it took, and reading follows the bytes. Candidates are worth what they were. */
void lv_costs_share_follow(lv_costs_share *share, const lv_costs_reading *reading);

void lv_costs_share_take(lv_costs_share *share, lv_costs *costs, lv_calibration *calibration);
/* What was measured while passes streamed `pass_read_bytes`; the costs are left out where the share has gone on. */
void lv_costs_share_give(lv_costs_share *share, const lv_costs *costs, const lv_calibration *calibration,
                         uint64_t pass_read_bytes);

/* For reports: what one file holds. LEVER_E_IO or LEVER_E_FORMAT says what is wrong with it. */
lever_status lv_costs_file_read(const char *path, lv_costs *costs, lv_calibration *calibration, lever_error *error);

/* For reports: the newest file that was kept for these models and threads, whatever the budget. The options'
 * pass_read_bytes bounds what a pass may have streamed; *pass_read_bytes is what it did, to the class. False: nothing
 * was kept that can be read. */
bool lv_costs_file_newest(const lv_costs_share_options *options, lv_costs *costs, lv_calibration *calibration,
                          uint64_t *pass_read_bytes);

#endif
