/* accelerator.h - the devices of an engine: which is opened for what, after it was tried.
 *
 * Target and draft have a handle each, since their passes may run at the same time. Opened after the files, before the
 * plan, which sets memory aside for their buffers. */
#ifndef LV_ENGINE_ACCELERATOR_H
#define LV_ENGINE_ACCELERATOR_H

#include "compute/device.h"
#include "engine/draft_model.h"

typedef struct {
    lv_device *target, *draft;        /* NULL: the CPU */
    bool draft_lost;                  /* it has failed: a draft that comes back is the CPU's */
    bool target_always, draft_always; /* for every pass, not just where it is faster */
    uint64_t own_bytes;               /* what libraries and drivers took for themselves, booked as LV_MEM_DEVICE */
    lv_ledger *ledger;
} lv_accelerator;

typedef struct {
    const char *name; /* NULL or "cpu": none */
    lever_device_use use;
    const lv_weights *target;
    const lv_draft_model *draft; /* may be NULL */
    uint32_t threads;
    double io_bytes_per_second;
    const lv_log *log;
    lv_ledger *ledger;
} lv_accelerator_options;

/* LEVER_E_ARGUMENT, with the reason, when the device cannot be used as it was asked for. One for which memory is
 * missing is left out, and the log says why, unless `use` says what it is for: then it is LEVER_E_BUDGET or
 * LEVER_E_MEMORY. */
lever_status lv_accelerator_open(lv_accelerator *accelerator, const lv_accelerator_options *options,
                                 lever_error *error);
/* The plan has no room for it, for this reason: true where it was left out, and the plan may be made anew; false where
 * there is none, or `use` says what it is for. No forward pass uses it. */
bool lv_accelerator_leave_out(lv_accelerator *accelerator, const lv_accelerator_options *options, const char *reason);
/* Forward passes that use them are closed before. */
void lv_accelerator_close(lv_accelerator *accelerator);

/* What their buffers take; of a device that was opened. 0 for none. That of the target includes own_bytes. */
uint64_t lv_accelerator_target_bytes(const lv_accelerator *accelerator, const lv_weights *target);
uint64_t lv_accelerator_draft_bytes(const lv_accelerator *accelerator, const lv_draft_model *draft);

#endif
