/* models.h - real models, for tests that want one.
 *
 * Looked for in the folder that LEVER_TEST_MODELS names, else where `lever pull` puts them (~/.cache/lever/models). */
#ifndef LV_TESTS_MODELS_H
#define LV_TESTS_MODELS_H

#define MODEL_QWEN_1_5B "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
#define MODEL_QWEN_0_5B "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
#define MODEL_SMOLLM2 "smollm2-135m-instruct-q4_1.gguf"

/* The path of a model, or NULL when it is not there: the test then skips. Valid until the next call. */
const char *model_path(const char *name);

/* For programs that want nothing but real models: leaves with exit code 77 when one of the names (the last is NULL) is
 * not there. */
void models_or_exit(const char *const *names);

#endif
