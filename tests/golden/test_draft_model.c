/* test_draft_model.c - a draft beside its target: the pair opens under a budget that is never passed, a stranger is
 * refused by name, and what the draft computes is what the same file computes as a model of its own, bit by bit. */
#include <stdlib.h>

#include "engine/engine_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/sanitizer.h"

enum { PROMPT = 20 };

static const char target_path[] = LEVER_TINY_DIR "/qwen2-q4_k_m.gguf";
static const char draft_path[] = LEVER_TINY_DIR "/qwen3-mixed.gguf"; /* another architecture, the same vocabulary */
static const char split_path[] = LEVER_TINY_DIR "/qwen2-split-q8_0-00001-of-00003.gguf";
static const char stranger_path[] = LEVER_TINY_DIR "/llama-sentencepiece-q4_k.gguf";

static void pair_options(lever_engine_options *options, const char *draft) {
    lv_test_options(options, target_path);
    options->draft_path = draft;
    options->draft_forced = true; /* tiny models are too fast for a draft to pay */
}

static bool has_draft(const lever_engine *engine) {
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    return info.draft;
}

/* Layers and head are booked as the draft's, to the byte, and what it is said to take covers them and the rest. */
static void check_bytes(const lever_engine *engine) {
    const lv_draft_model *draft = engine->draft;
    const lv_layout *layout = draft->weights->layout;
    uint64_t weights = lv_draft_head_bytes(draft->model->output, &lv_draft_model_head_shape);
    for (uint32_t b = 0; b < layout->blocks_count; b++) weights += lv_block_memory_bytes(&layout->blocks[b]);
    assert_int_equal(lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT), weights);
    const lv_forward_bytes forward =
        lv_forward_estimate(draft->model, LV_DRAFT_ROWS_MAX, LV_DRAFT_BATCH_ROWS, LV_DRAFTING_WIDTH_MAX,
                            engine->threads, LV_DRAFT_EMBEDDING_ROWS);
    assert_true(lv_draft_model_bytes(draft, engine->threads) >= weights + lv_plan_store_bytes(layout) +
                                                                    forward.workspace_bytes + forward.graph_bytes +
                                                                    forward.embedding_bytes + draft->metadata_bytes);
}

static void test_pairs_open(void **state) {
    (void)state;
    static const char *const drafts[] = {draft_path, split_path, target_path};
    for (size_t i = 0; i < sizeof(drafts) / sizeof(drafts[0]); i++) {
        lever_engine_options options;
        pair_options(&options, drafts[i]);
        lever_engine *engine = lv_test_open(&options);
        lever_plan plan;
        lever_engine_get_plan(engine, &plan);
        assert_true(has_draft(engine) && plan.draft_used);
        assert_string_equal(plan.draft_reason, "");
        check_bytes(engine);
        assert_true(lv_draft_model_bytes(engine->draft, engine->threads) < plan.draft_bytes);
        lever_engine_close(&engine);
    }
}

/* What the draft is planned to take is what it takes: no more, and not much less. */
static void test_plan_is_kept(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    lever_engine_options options;
    pair_options(&options, draft_path);
    options.context_tokens = 128;
    lever_engine *engine = lv_test_open(&options);
    const uint64_t with = lv_ledger_used(engine->ledger);
    lever_plan plan;
    lever_engine_get_plan(engine, &plan);
    lever_engine_close(&engine);
    assert_true(with <= plan.total_bytes);
    assert_true(plan.draft_bytes > 0 && plan.draft_bytes < plan.total_bytes);

    options.draft_path = NULL;
    engine = lv_test_open(&options);
    assert_false(has_draft(engine));
    assert_true(lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT) == 0);
    const uint64_t without = lv_ledger_used(engine->ledger);
    lever_engine_close(&engine);
    assert_true(with > without);
}

/* From what holds the target alone upwards: the pair is refused until it fits, and then never takes more. */
static void test_no_budget_is_passed(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    lever_engine_options options;
    lever_plan plan;
    lever_error error;
    pair_options(&options, draft_path);
    options.context_tokens = 128;
    CHECK_OK(lever_engine_plan(&options, &plan, &error));
    options.ram_unlimited = false;
    uint32_t opened = 0, refused = 0;
    for (uint64_t budget = plan.least_bytes; budget <= plan.total_bytes + (4u << 20); budget += 3u << 20) {
        options.ram_bytes = budget;
        lever_engine *engine = NULL;
        const lever_status status = lever_engine_open(&engine, &options, &error);
        if (status != LEVER_OK) {
            assert_int_equal(status, LEVER_E_BUDGET);
            assert_int_equal(opened, 0);
            refused++;
            continue;
        }
        assert_true(has_draft(engine));
        lever_session *session = lv_test_session(engine);
        lever_statistics statistics;
        lever_session_get_statistics(session, &statistics);
        assert_true(statistics.ram_peak <= budget);
        lever_session_close(&session);
        lever_engine_close(&engine);
        opened++;
    }
    assert_true(opened > 0 && refused > 0);
}

/* Unforced, a budget that cannot hold both holds the target alone. */
static void test_left_out(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    lever_engine_options options;
    lever_plan plan;
    lever_error error;
    pair_options(&options, draft_path);
    options.draft_forced = false;
    options.context_tokens = 128;
    CHECK_OK(lever_engine_plan(&options, &plan, &error));
    options.ram_unlimited = false;
    options.ram_bytes = plan.least_bytes;
    lever_engine *engine = lv_test_open(&options);
    assert_false(has_draft(engine));
    lever_engine_get_plan(engine, &plan);
    assert_false(plan.draft_used);
    assert_non_null(strstr(plan.draft_reason, "cannot hold it"));
    assert_int_equal(lv_ledger_used_by(engine->ledger, LV_MEM_DRAFT), 0);
    lever_engine_close(&engine);
}

static void test_stranger_is_refused(void **state) {
    (void)state;
    lever_engine_options options;
    lever_engine *engine = NULL;
    lever_error error;
    pair_options(&options, stranger_path);
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_FORMAT, "first in token ");
    static const char *const told[] = {"llama-sentencepiece-q4_k.gguf", "qwen2-q4_k_m.gguf", "in the draft",
                                       "in the target", "-d"};
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) assert_non_null(strstr(error.message, told[i]));
    assert_null(engine);

    pair_options(&options, LEVER_TINY_DIR "/no-such-file.gguf");
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_FORMAT, "the draft model: ");
    options.draft_path = "";
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_ARGUMENT, "draft_path");
}

/* Logits of each prefix of `tokens`, computed by the draft: the vocabulary is small, so that its head has all rows. */
static float *draft_logits(lv_draft_model *draft, lv_ledger *ledger, const int32_t *tokens, size_t vocabulary) {
    lever_error error;
    lv_kv kv = {0};
    const lv_hparams *h = &draft->model->hparams;
    const lv_kv_shape shape = {.layers_count = h->layers_count,
                               .slots_count = PROMPT,
                               .kv_heads_count = h->kv_heads_count,
                               .head_dim = h->head_dim};
    CHECK_OK(lv_kv_open(&kv, ledger, &shape, &error));
    uint32_t wanted[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++) {
        wanted[i] = i;
        draft->rows[i] = (lv_row){
            .token = tokens[i], .position = i, .slot = i, .kv = &kv, .path = {.kv = &kv, .prefix_count = i + 1}};
    }
    const lv_pass pass = {.rows = draft->rows, .rows_count = PROMPT};
    CHECK_OK(lv_forward_begin(draft->forward, &pass, &error));
    CHECK_OK(lv_forward_layers(draft->forward, 0, h->layers_count, &error));
    const size_t count = lv_forward_logits_count(draft->forward);
    assert_true(count >= vocabulary);
    float *all = calloc(PROMPT * count, sizeof(float));
    assert_non_null(all);
    CHECK_OK(lv_forward_logits(draft->forward, wanted, PROMPT, all, &error));
    for (size_t i = 0; i < PROMPT; i++) memmove(all + i * vocabulary, all + i * count, vocabulary * sizeof(float));
    lv_kv_close(&kv);
    return all;
}

static void test_draft_computes_as_a_model(void **state) {
    (void)state;
    lever_engine_options options;
    lv_test_options(&options, draft_path);
    lever_engine *alone = lv_test_open(&options);
    lever_session *session = lv_test_session(alone);
    const size_t vocabulary = lv_test_vocabulary(alone);
    int32_t tokens[PROMPT];
    lv_test_tokens(alone, 7, tokens, PROMPT);
    float *wanted = lv_test_score(alone, session, tokens, PROMPT);
    lever_session_close(&session);
    lever_engine_close(&alone);

    pair_options(&options, draft_path);
    lever_engine *engine = lv_test_open(&options);
    assert_non_null(engine->draft);
    assert_int_equal(lv_draft_head_rows_count(engine->draft->head), lv_draft_model_head_rows(engine->draft->model));
    float *found = draft_logits(engine->draft, engine->ledger, tokens, vocabulary);
    assert_memory_equal(found, wanted, PROMPT * vocabulary * sizeof(float));
    lever_engine_close(&engine);
    free(found);
    free(wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_open),          cmocka_unit_test(test_plan_is_kept),
        cmocka_unit_test(test_no_budget_is_passed), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_stranger_is_refused), cmocka_unit_test(test_draft_computes_as_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
