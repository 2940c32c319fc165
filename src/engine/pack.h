/* pack.h - what packing makes of the tensors of a model; lever_pack (lever.h) carries it out.
 *
 * Pure functions on the tables of an open model; any thread. */
#ifndef LV_ENGINE_PACK_H
#define LV_ENGINE_PACK_H

#include "engine/pack_file.h"
#include "model/model.h"

#define LV_TYPE_KEEP (-1)

typedef struct {
    lv_packed_tensor *tensors; /* in the order of the file; lv_free */
    uint32_t tensors_count;
    uint32_t converted_count, kept_count; /* matrices of layers that get the type asked for, and that cannot */
    const lv_tensor *kept_example;        /* one of the latter, or NULL */
} lv_pack_plan;

/* Every tensor once: what is small or looked up first, then each layer in the order of use, the head last. `type`:
 * LV_TYPE_KEEP, or what the matrices of the layers become where their rows fit. */
lever_status lv_pack_plan_make(lv_pack_plan *plan, const lv_gguf *gguf, const lv_model *model, int32_t type,
                               lever_error *error);

#endif
