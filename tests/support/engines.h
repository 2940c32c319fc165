/* engines.h - engines over tiny models, for tests of whole passes.
 *
 * Every function fails the running test, with the library's message, when it cannot do its work. */
#ifndef LV_TESTS_ENGINES_H
#define LV_TESTS_ENGINES_H

#include "lever.h"

enum { LV_TEST_PATHS_MAX = 64, LV_TEST_PATH_BYTES = 512 };

typedef struct {
    char path[LV_TEST_PATHS_MAX][LV_TEST_PATH_BYTES];
    size_t count;
} lv_test_paths;

/* The models in a folder that can be opened by themselves, sorted by name: *.gguf without the later parts of split
 * sets. */
void lv_test_list_models(const char *folder, lv_test_paths *paths);

/* Options for tests: one thread, no budget, a context of 256 tokens. */
void lv_test_options(lever_engine_options *options, const char *path);

lever_engine *lv_test_open(const lever_engine_options *options);
lever_session *lv_test_session(lever_engine *engine);

/* `count` tokens drawn from the vocabulary, the same for the same seed. */
void lv_test_tokens(const lever_engine *engine, uint32_t seed, int32_t *tokens, size_t count);

/* Logits after each of the tokens, computed in one score: count x vocabulary floats, to be freed. */
float *lv_test_score(const lever_engine *engine, lever_session *session, const int32_t *tokens, size_t count);

/* The number of logits of a row, as the session gives them. */
size_t lv_test_vocabulary(const lever_engine *engine);

#endif
