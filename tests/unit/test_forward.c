/* link: --wrap=lv_graph_set_single,--wrap=lv_graph_run,--wrap=ggml_threadpool_pause */
/* Who computes: as many threads as the caller says, layers and head, with the same bits. They rest while a model that
 * streams waits for flash, be it streamed from the beginning or since a change of what is pinned. */
#include <stdlib.h>

#include "compute/forward_state.h"
#include "ggml-cpu.h"
#include "support/check.h"
#include "support/parts.h"

enum { TOKENS_COUNT = 5 };

static const int32_t tokens[TOKENS_COUNT] = {7, 300, 7, 41, 2};

static bool single;
static uint32_t single_runs, all_runs; /* graphs with nodes */

void __real_lv_graph_set_single(lv_graph *graph, bool value);
void __wrap_lv_graph_set_single(lv_graph *graph, bool value);
void __wrap_lv_graph_set_single(lv_graph *graph, bool value) {
    single = value;
    __real_lv_graph_set_single(graph, value);
}

lever_status __real_lv_graph_run(lv_graph *graph, lever_error *error);
lever_status __wrap_lv_graph_run(lv_graph *graph, lever_error *error);
lever_status __wrap_lv_graph_run(lv_graph *graph, lever_error *error) {
    if (lv_graph_nodes_count(graph) > 0) (*(single ? &single_runs : &all_runs))++;
    return __real_lv_graph_run(graph, error);
}

static uint32_t rests; /* of threads after a run */

void __real_ggml_threadpool_pause(struct ggml_threadpool *pool);
void __wrap_ggml_threadpool_pause(struct ggml_threadpool *pool);
void __wrap_ggml_threadpool_pause(struct ggml_threadpool *pool) {
    rests++;
    __real_ggml_threadpool_pause(pool);
}

typedef enum { NOBODY, ONE, ALL } who;

static who who_computed(void) {
    assert_false(single_runs > 0 && all_runs > 0);
    const who found = single_runs > 0 ? ONE : all_runs > 0 ? ALL : NOBODY;
    single_runs = all_runs = 0;
    return found;
}

/* Says which blocks are to be pinned: all of them, or none. What comes is pinned in the next pass. */
static void pin_all(const parts *p, bool pinned) {
    const uint32_t count = p->weights->layout->blocks_count;
    bool *blocks = malloc(count * sizeof(*blocks));
    assert_non_null(blocks);
    memset(blocks, pinned, count * sizeof(*blocks));
    lv_store_set_pinned(p->store, blocks);
    free(blocks);
}

static void test_who_computes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        lv_compute_threads threads;
        bool streams, chosen_single; /* what a pass before has led to */
        who layers, head;
    } cases[] = {
        {"auto, resident", LV_COMPUTE_AUTO, false, false, ALL, ALL},
        {"auto, resident again", LV_COMPUTE_AUTO, false, true, ALL, ALL},
        {"one", LV_COMPUTE_ONE, false, false, ONE, ONE},
        {"all", LV_COMPUTE_ALL, false, false, ALL, ALL},
        {"auto, streamed", LV_COMPUTE_AUTO, true, false, ALL, ALL},
        {"auto, waiting for flash", LV_COMPUTE_AUTO, true, true, ONE, ALL},
        {"one, streamed", LV_COMPUTE_ONE, true, false, ONE, ONE},
        {"all, waiting for flash", LV_COMPUTE_ALL, true, true, ALL, ALL},
    };
    lever_error error;
    parts p;
    parts_open(&p, LEVER_TINY_DIR "/qwen2-q4_k_m.gguf", true);
    lv_draft_head *head = NULL;
    CHECK_OK(lv_draft_head_open(&head, p.model->output, p.store,
                                &(lv_draft_head_shape){p.model->hparams.vocabulary, 0, false}, NULL, NULL, &error));
    const size_t count = lv_draft_head_rows_count(head), vocabulary = p.model->hparams.vocabulary;
    float *wanted = NULL, *logits = calloc(count, sizeof(float));
    assert_non_null(logits);
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        lv_forward_options options = parts_forward_options(&p);
        options.threads = 2;
        if (cases[i / 2].streams) pin_all(&p, false); /* and so it stays */
        options.draft_head = i % 2 ? head : NULL;
        lv_forward *forward = NULL;
        CHECK_OK(lv_forward_open(&forward, &options, &error));
        forward->threads.single = cases[i / 2].chosen_single;
        lv_forward_set_threads(forward, cases[i / 2].threads);
        (void)who_computed();
        parts_run(&p, forward, tokens, TOKENS_COUNT);
        if (who_computed() != cases[i / 2].layers) fail_msg("%s: the layers", cases[i / 2].name);
        CHECK_OK(lv_forward_logits(forward, &(uint32_t){TOKENS_COUNT - 1}, 1, logits, &error));
        if (who_computed() != cases[i / 2].head) fail_msg("%s: the head", cases[i / 2].name);
        lv_forward_close(&forward);

        if (!wanted) {
            wanted = malloc(vocabulary * sizeof(float));
            assert_non_null(wanted);
            memcpy(wanted, logits, vocabulary * sizeof(float));
        }
        assert_memory_equal(logits, wanted, vocabulary * sizeof(float));
    }
    free(wanted);
    free(logits);
    lv_draft_head_close(&head);
    parts_close(&p);
}

/* What is pinned changes in the life of one forward pass. */
static void test_threads_follow_what_is_pinned(void **state) {
    (void)state;
    lever_error error;
    parts p;
    parts_open(&p, LEVER_TINY_DIR "/qwen2-q4_k_m.gguf", true);
    float *logits = calloc(p.model->hparams.vocabulary, sizeof(float));
    assert_non_null(logits);
    for (uint32_t shares = 0; shares < 2; shares++) {
        lv_forward_options options = parts_forward_options(&p);
        options.threads = 2;
        options.shares = shares; /* its threads sleep in any case */
        lv_forward *forward = NULL;
        CHECK_OK(lv_forward_open(&forward, &options, &error));
        static const struct {
            bool pinned, streams;
        } steps[] = {{true, false}, {false, true}, {false, true}, {true, true}, {true, false}};
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            pin_all(&p, steps[i].pinned);
            forward->threads.single = false;
            rests = 0;
            (void)who_computed();
            parts_run(&p, forward, tokens, TOKENS_COUNT);
            CHECK_OK(lv_forward_logits(forward, &(uint32_t){TOKENS_COUNT - 1}, 1, logits, &error));
            const uint32_t runs = all_runs;
            assert_int_equal(who_computed(), ALL);
            assert_int_equal(rests, steps[i].streams && !shares ? runs : 0);
            if (!steps[i].streams || steps[i].pinned) continue;
            /* As after a pass that waited for flash all the time: one thread alone wakes nobody. */
            forward->threads.single = true;
            parts_run(&p, forward, tokens, TOKENS_COUNT);
            assert_int_equal(who_computed(), ONE);
        }
        lv_forward_close(&forward);
    }
    free(logits);
    parts_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_computes),
                                       cmocka_unit_test(test_threads_follow_what_is_pinned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
