/* test_logits.c - the logits of every tiny model against libllama's own, teacher-forced.
 *
 * Both round activations to eight bits, and attention adds up in other orders, so the numbers agree but for that noise.
 * Measured on the tiny models: a relative root mean square difference below 0.01; a wrong rope, bias or norm gives more
 * than 0.3. */
#include <math.h>
#include <stdlib.h>

#include "llama.h"
#include "support/check.h"
#include "support/engines.h"

enum { TOKENS_COUNT = 96 };

static const double difference_max = 0.1;

static void silent(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

/* Logits of libllama after each token: rows of its vocabulary, to be freed. */
static float *reference_logits(const char *path, const int32_t *tokens, size_t *vocabulary) {
    struct llama_model_params model_params = llama_model_default_params();
    struct llama_model *model = llama_model_load_from_file(path, model_params);
    if (!model) fail_msg("libllama cannot load %s", path);
    struct llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx = 256;
    context_params.n_batch = 256;
    context_params.n_threads = context_params.n_threads_batch = 2;
    struct llama_context *context = llama_init_from_model(model, context_params);
    assert_non_null(context);
    *vocabulary = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    float *rows = calloc(*vocabulary * TOKENS_COUNT, sizeof(float));
    assert_non_null(rows);
    for (int32_t i = 0; i < TOKENS_COUNT; i++) {
        int32_t token = tokens[i];
        assert_int_equal(llama_decode(context, llama_batch_get_one(&token, 1)), 0);
        memcpy(rows + (size_t)i * *vocabulary, llama_get_logits_ith(context, -1), *vocabulary * sizeof(float));
    }
    llama_free(context);
    llama_model_free(model);
    return rows;
}

static double relative_difference(const float *got, const float *wanted, size_t count) {
    double squares = 0, norm = 0, mean = 0;
    for (size_t i = 0; i < count; i++) mean += (double)wanted[i] / (double)count;
    for (size_t i = 0; i < count; i++) {
        const double difference = (double)got[i] - (double)wanted[i], size = (double)wanted[i] - mean;
        squares += difference * difference;
        norm += size * size;
    }
    return sqrt(squares / (norm > 0 ? norm : 1));
}

static void test_against_libllama(void **state) {
    (void)state;
    llama_log_set(silent, NULL);
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t p = 0; p < paths.count; p++) {
        lever_engine_options options;
        lv_test_options(&options, paths.path[p]);
        options.target_ram_percent = 0;
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = lv_test_session(engine);
        int32_t tokens[TOKENS_COUNT];
        lv_test_tokens(engine, 3, tokens, TOKENS_COUNT);
        size_t vocabulary = 0;
        float *wanted = reference_logits(paths.path[p], tokens, &vocabulary);
        assert_int_equal(vocabulary, lv_test_vocabulary(engine));
        float *got = lv_test_score(engine, session, tokens, TOKENS_COUNT);
        double worst = 0;
        for (size_t i = 0; i < TOKENS_COUNT; i++) {
            const double difference = relative_difference(got + i * vocabulary, wanted + i * vocabulary, vocabulary);
            if (!(difference <= worst)) worst = difference;
        }
        print_message("%s: largest relative difference %.5f\n", paths.path[p], worst);
        if (!(worst <= difference_max)) fail_msg("%s: logits differ from libllama's by %.4f", paths.path[p], worst);
        free(got);
        free(wanted);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_libllama)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
