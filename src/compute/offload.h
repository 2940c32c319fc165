/* offload.h - the products of a forward pass on a device.
 *
 * Owns the device's buffers: some blocks of weights, rows of activations, rows of results. A block that is wanted is
 * leased like for the CPU, uploaded, and given back: the slot of the ring is the bounce buffer through which weights
 * reach a device that flash cannot be read into. As many blocks stay on the device as it has buffers: with one for each
 * block nothing is uploaded twice, which is how a draft is held; with two, one is filled while the other is used.
 *
 * Norms, rope, attention, head and embedding stay on the CPU. Called by the thread that builds graphs. */
#ifndef LV_COMPUTE_OFFLOAD_H
#define LV_COMPUTE_OFFLOAD_H

#include <stdatomic.h>

#include "compute/device.h"
#include "compute/placement.h"
#include "compute/weights.h"

typedef struct lv_offload lv_offload;

enum {
    LV_OFFLOAD_BLOCKS = 2,      /* on the device, of a model that streams */
    LV_OFFLOAD_ROWS_MAX = 64,   /* of one product: what the buffers are made for */
    LV_OFFLOAD_ALL = UINT16_MAX /* blocks: each has its own buffer */
};

typedef struct {
    lv_device *device; /* borrowed */
    const lv_weights *weights;
    uint32_t blocks;   /* LV_OFFLOAD_BLOCKS or LV_OFFLOAD_ALL */
    uint32_t rows_max; /* at most LV_OFFLOAD_ROWS_MAX */
    bool always;       /* see lv_placement */
    const lv_log *log;
    lv_ledger *ledger;
} lv_offload_options;

/* What it takes, by the ledger: LV_MEM_DEVICE, the tables included. */
uint64_t lv_offload_bytes(lv_device *device, const lv_weights *weights, uint32_t blocks);
/* The largest buffer among them. */
uint64_t lv_offload_buffer_bytes(lv_device *device, const lv_weights *weights);

lever_status lv_offload_open(lv_offload **offload, const lv_offload_options *options, lever_error *error);
void lv_offload_close(lv_offload **offload);

/* True once the device has failed: it is not used again. Any thread. */
bool lv_offload_failed(const lv_offload *offload);

#endif
