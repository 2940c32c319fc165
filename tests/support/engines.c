#include "support/engines.h"

#include <dirent.h>
#include <stdlib.h>

#include "support/check.h"

static int compare_paths(const void *a, const void *b) {
    return strcmp(a, b);
}

static bool is_model(const char *name) {
    const size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 5, ".gguf") != 0) return false;
    const char *part = strstr(name, "-of-");
    return !part || (part - name >= 5 && strncmp(part - 5, "00001", 5) == 0);
}

void lv_test_list_models(const char *folder, lv_test_paths *paths) {
    paths->count = 0;
    DIR *dir = opendir(folder);
    if (!dir) fail_msg("no folder %s: tests/tiny/make_tiny_models.py makes it", folder);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && paths->count < LV_TEST_PATHS_MAX) {
        if (!is_model(entry->d_name)) continue;
        const int length = snprintf(paths->path[paths->count], LV_TEST_PATH_BYTES, "%s/%s", folder, entry->d_name);
        assert_true(length < LV_TEST_PATH_BYTES);
        paths->count++;
    }
    closedir(dir);
    assert_true(paths->count > 0);
    qsort(paths->path, paths->count, LV_TEST_PATH_BYTES, compare_paths);
}

void lv_test_options(lever_engine_options *options, const char *path) {
    lever_engine_options_init(options);
    options->model_path = path;
    options->ram_unlimited = true;
    options->context_tokens = 256;
    options->threads = 1; /* more would spin at each barrier, which takes long beside other tests */
}

lever_engine *lv_test_open(const lever_engine_options *options) {
    lever_engine *engine = NULL;
    lever_error error;
    if (lever_engine_open(&engine, options, &error) != LEVER_OK) fail_msg("%s: %s", options->model_path, error.message);
    return engine;
}

lever_session *lv_test_session(lever_engine *engine) {
    lever_session *session = NULL;
    lever_error error;
    CHECK_OK(lever_session_open(&session, engine, NULL, &error));
    return session;
}

size_t lv_test_vocabulary(const lever_engine *engine) {
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    return (size_t)info.vocabulary_tokens;
}

void lv_test_tokens(const lever_engine *engine, uint32_t seed, int32_t *tokens, size_t count) {
    const uint32_t vocabulary = (uint32_t)lv_test_vocabulary(engine);
    uint32_t state = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((state >> 8) % vocabulary);
    }
}

typedef struct {
    float *rows;
    size_t vocabulary, next;
} collector;

static bool collect(void *user, size_t position, const float *logits) {
    collector *to = user;
    assert_int_equal(position, to->next);
    memcpy(to->rows + position * to->vocabulary, logits, to->vocabulary * sizeof(float));
    to->next++;
    return true;
}

float *lv_test_score(const lever_engine *engine, lever_session *session, const int32_t *tokens, size_t count) {
    lever_error error;
    collector to = {.vocabulary = lv_test_vocabulary(engine)};
    to.rows = calloc(count * to.vocabulary, sizeof(float));
    assert_non_null(to.rows);
    CHECK_OK(lever_session_score(session, tokens, count, collect, &to, &error));
    assert_int_equal(to.next, count);
    return to.rows;
}
