/* predictor_file.h - the predictor of a pair of models: where its file lies, reading and replacing it.
 *
 * Found in this order: the file that was named; `pair-<hash>.predictor` in the cache folder, where training and
 * learning keep it; the same name in the folder of those that came with the program. A predictor that cannot be used,
 * because it is damaged, of another version or for other models, is a warning and none: the text does not depend on it.
 * Any thread. */
#ifndef LV_ENGINE_PREDICTOR_FILE_H
#define LV_ENGINE_PREDICTOR_FILE_H

#include "base/log.h"
#include "compute/weights.h"
#include "spec/predictor.h"

typedef struct {
    const char *named_path;             /* may be NULL */
    const char *cache_dir, *shared_dir; /* may be NULL */
    const lv_weights *target, *draft;   /* their small tensors have been read */
} lv_predictor_place;

/* NULL when there is none that can be used; the log says why where a file was there. */
lv_predictor *lv_predictor_file_load(const lv_predictor_place *place, const lv_log *log, lv_ledger *ledger);

/* One file, for whatever models it is. LEVER_E_IO or LEVER_E_FORMAT says what is wrong with it. */
lever_status lv_predictor_file_read(lv_predictor **predictor, const char *path, lv_ledger *ledger, lever_error *error);

/* What a pair of models is called in the names of files. */
uint64_t lv_predictor_pair_hash(uint64_t target_hash, uint64_t draft_hash);

/* Where the pair's own file is kept; LEVER_E_ARGUMENT without a cache folder. */
lever_status lv_predictor_file_path(const lv_predictor_place *place, char *path, size_t capacity, lever_error *error);

lever_status lv_predictor_file_save(const lv_predictor *predictor, const char *path, lv_ledger *ledger,
                                    lever_error *error);

/* For the plan: what a predictor for this model may take, and what each session takes beside it. */
uint64_t lv_predictor_file_memory(const lv_model *target);
uint64_t lv_predictor_session_memory(const lv_model *target, bool learns);

#endif
