/* hparams.h - the numbers of a model, read from its keys and checked.
 *
 * Called by model.c alone while binding; owns nothing. A key that would change the result in a way that lever does not
 * compute is refused by name. */
#ifndef LV_MODEL_HPARAMS_H
#define LV_MODEL_HPARAMS_H

#include "model/model.h"

/* Fills everything but `vocabulary`, which the embedding matrix knows. */
lever_status lv_hparams_read(lv_hparams *hparams, const lv_gguf *gguf, lever_error *error);

const char *lv_arch_name(lv_arch arch);

#endif
