/* test_plan.c - the memory plan as a table: what a budget buys, and that it is never passed. The model is made of
 * numbers alone: 28 layers of 1536, like the default target. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan.h"
#include "ggml.h"
#include "support/check.h"

enum { LAYERS = 28, WIDTH = 1536, INNER = 8960, KV = 256, VOCABULARY = 151936 };

typedef struct {
    lv_tensor tensors[LAYERS * LV_ROLES_COUNT + 2];
    lv_layer layers[LAYERS];
    lv_layout_item items[LAYERS * LV_ROLES_COUNT + 1];
    lv_tensor norm;
    lv_model model;
    lv_layout *layout;
} world;

static lv_tensor matrix(int32_t type, uint64_t elements, uint64_t rows, uint64_t *offset) {
    const uint64_t row_bytes = ggml_row_size((enum ggml_type)type, (int64_t)elements);
    const lv_tensor tensor = {.name = "matrix",
                              .type = type,
                              .dims_count = 2,
                              .dims = {elements, rows, 1, 1},
                              .row_bytes = row_bytes,
                              .rows_count = rows,
                              .bytes = row_bytes * rows,
                              .offset = *offset,
                              .layout = LV_LAYOUT_TILES};
    *offset += (tensor.bytes + 4095) / 4096 * 4096;
    return tensor;
}

static int open_world(void **state) {
    world *w = calloc(1, sizeof(*w));
    if (!w) return -1;
    uint64_t offset = 4096;
    static const uint64_t shapes[LV_ROLES_COUNT][2] = {{WIDTH, WIDTH}, {WIDTH, KV},    {WIDTH, KV},   {WIDTH, WIDTH},
                                                       {WIDTH, INNER}, {WIDTH, INNER}, {INNER, WIDTH}};
    size_t t = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        const lv_tensor **roles[LV_ROLES_COUNT] = {
            &w->layers[l].attn_q,   &w->layers[l].attn_k, &w->layers[l].attn_v,  &w->layers[l].attn_output,
            &w->layers[l].ffn_gate, &w->layers[l].ffn_up, &w->layers[l].ffn_down};
        for (uint32_t r = 0; r < LV_ROLES_COUNT; r++, t++) {
            w->tensors[t] = matrix(GGML_TYPE_Q4_0, shapes[r][0], shapes[r][1], &offset);
            *roles[r] = &w->tensors[t];
            w->items[t] =
                (lv_layout_item){&w->tensors[t], l, r <= LV_ROLE_OUTPUT ? LV_GROUP_ATTENTION : LV_GROUP_FEED_FORWARD};
        }
    }
    w->tensors[t] = matrix(GGML_TYPE_Q6_K, WIDTH, VOCABULARY, &offset);
    w->items[t] = (lv_layout_item){&w->tensors[t], LV_LAYER_HEAD, 0};
    w->tensors[t + 1] = matrix(GGML_TYPE_Q4_0, WIDTH, VOCABULARY, &offset);
    w->model = (lv_model){.hparams = {.layers_count = LAYERS,
                                      .embedding = WIDTH,
                                      .heads_count = 12,
                                      .kv_heads_count = 2,
                                      .head_dim = 128,
                                      .feed_forward = INNER,
                                      .vocabulary = VOCABULARY,
                                      .context_train = 32768},
                          .layers = w->layers,
                          .token_embd = &w->tensors[t + 1],
                          .output = &w->tensors[t]};
    lever_error error;
    CHECK_OK(lv_layout_build(&w->layout, w->items, LAYERS * LV_ROLES_COUNT + 1, LV_BLOCK_BYTES_DEFAULT, NULL, &error));
    *state = w;
    return 0;
}

static int close_world(void **state) {
    world *w = *state;
    lv_layout_free(&w->layout);
    free(w);
    return 0;
}

static lv_plan_input input_of(const world *w, uint64_t budget) {
    return (lv_plan_input){.model = &w->model,
                           .layout = w->layout,
                           .program_bytes = 16u << 20,
                           .vocabulary_bytes = 50u << 20,
                           .vocabulary_peak_bytes = 80u << 20,
                           .metadata_bytes = 2u << 20,
                           .budget_bytes = budget,
                           .target_ram_percent = -1,
                           .sessions_max = 1,
                           .threads = 2,
                           .lanes = 2};
}

static void test_no_budget_is_passed(void **state) {
    const world *w = *state;
    lv_plan_choice choice;
    lever_error error;
    const lv_plan_input first = input_of(w, 1);
    CHECK_FAILS(lv_plan_choose(&first, &choice, &error), LEVER_E_BUDGET, "least");
    const uint64_t least = choice.table.least_bytes, all = choice.table.all_bytes;
    assert_true(least > (100u << 20) && least < (400u << 20));
    uint64_t pinned = 0;
    uint32_t context = 0;
    for (uint64_t budget = least; budget < all + (64u << 20); budget += 5u << 20) {
        const lv_plan_input in = input_of(w, budget);
        CHECK_OK(lv_plan_choose(&in, &choice, &error));
        const lever_plan *t = &choice.table;
        assert_true(t->total_bytes <= budget);
        assert_true(choice.slots_count >= 2 && choice.leases_max >= 1);
        assert_true(choice.context_tokens >= context);
        assert_true(t->pass_read_bytes + t->pinned_bytes + (t->head_pinned ? t->head_bytes : 0) ==
                    t->layer_bytes + t->head_bytes);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < t->rows_count; i++) sum += t->rows[i].bytes;
        assert_int_equal(sum, t->total_bytes);
        bool *pins = calloc(w->layout->blocks_count, sizeof(bool));
        assert_non_null(pins);
        const uint64_t taken = lv_plan_pins(w->layout, choice.head_pinned, choice.pin_bytes, pins);
        assert_true(taken <= budget - (sum - choice.pin_bytes - (t->head_pinned ? t->head_bytes : 0)) + (1u << 20));
        free(pins);
        context = choice.context_tokens;
        pinned = t->pinned_bytes;
    }
    assert_int_equal(pinned, w->layout->layer_bytes);
    assert_int_equal(choice.table.pass_read_bytes, 0);
    assert_int_equal(context, 4096);
    assert_true(choice.rows_max >= 512);
}

/* What the system has not got is not planned with, however large the budget. */
static void test_a_budget_above_what_is_free(void **state) {
    const world *w = *state;
    lv_plan_choice choice, wanted;
    lever_error error;
    static const uint64_t budgets[] = {700u << 20, LV_LEDGER_UNLIMITED};
    for (size_t i = 0; i < 2; i++) {
        lv_plan_input in = input_of(w, budgets[i]);
        CHECK_OK(lv_plan_choose(&in, &wanted, &error));
        CHECK_OK(lv_plan_choose_within(&in, wanted.table.total_bytes, &choice, &error));
        assert_memory_equal(&choice, &wanted, sizeof(choice));
        assert_true(in.budget_bytes == budgets[i]);

        lv_plan_input least = input_of(w, 400u << 20);
        CHECK_OK(lv_plan_choose(&least, &wanted, &error));
        CHECK_OK(lv_plan_choose_within(&in, 400u << 20, &choice, &error));
        assert_memory_equal(&choice, &wanted, sizeof(choice));
        assert_true(in.budget_bytes == 400u << 20);

        in = input_of(w, budgets[i]);
        CHECK_FAILS(lv_plan_choose_within(&in, 50u << 20, &choice, &error), LEVER_E_BUDGET, "has less memory free");
        assert_true(choice.table.least_bytes > (100u << 20));
    }
}

static void test_all_bytes_pins_all(void **state) {
    const world *w = *state;
    lv_plan_choice choice;
    lever_error error;
    const lv_plan_input any = input_of(w, LV_LEDGER_UNLIMITED);
    CHECK_OK(lv_plan_choose(&any, &choice, &error));
    const lv_plan_input in = input_of(w, choice.table.all_bytes);
    CHECK_OK(lv_plan_choose(&in, &choice, &error));
    assert_int_equal(choice.table.pass_read_bytes, 0);
}

static void test_share_of_the_layers(void **state) {
    const world *w = *state;
    lv_plan_choice choice;
    lever_error error;
    for (int percent = 0; percent <= 100; percent += 25) {
        lv_plan_input in = input_of(w, LV_LEDGER_UNLIMITED);
        in.target_ram_percent = percent;
        CHECK_OK(lv_plan_choose(&in, &choice, &error));
        assert_true(choice.head_pinned);
        const double share = 100.0 * (double)choice.table.pinned_bytes / (double)w->layout->layer_bytes;
        assert_true(share >= percent - 1 && share <= percent + 1);
    }
    lv_plan_input in = input_of(w, 600u << 20);
    in.target_ram_percent = 90;
    CHECK_FAILS(lv_plan_choose(&in, &choice, &error), LEVER_E_BUDGET, "90 %");
    /* Nothing pinned: the ring is an eighth of the layers at most, and a prompt of 1000 tokens takes two passes. */
    in = input_of(w, LV_LEDGER_UNLIMITED);
    in.target_ram_percent = 0;
    CHECK_OK(lv_plan_choose(&in, &choice, &error));
    assert_true(choice.table.ring_bytes <= w->layout->layer_bytes / 8);
    assert_true(choice.rows_max >= 512);
}

/* A cache of the blocks used last: the ring has what the layers would have, all else is as it was. */
static void test_cache_of_what_was_used_last(void **state) {
    const world *w = *state;
    const uint64_t slot = w->layout->slot_bytes;
    lv_plan_choice pins, cache;
    lever_error error;
    lv_plan_input in = input_of(w, LV_LEDGER_UNLIMITED);
    in.cache = LEVER_CACHE_LRU;
    CHECK_OK(lv_plan_choose(&in, &cache, &error));
    const uint64_t least = cache.table.least_bytes, all = cache.table.all_bytes;
    for (uint64_t budget = least; budget < all + (64u << 20); budget += 5u << 20) {
        in = input_of(w, budget);
        CHECK_OK(lv_plan_choose(&in, &pins, &error));
        in.cache = LEVER_CACHE_LRU;
        CHECK_OK(lv_plan_choose(&in, &cache, &error));
        const lever_plan *t = &cache.table;
        assert_int_equal(t->cache, LEVER_CACHE_LRU);
        assert_true(t->total_bytes <= budget);
        assert_true(cache.pin_bytes == 0 && t->pinned_bytes == 0 && t->head_pinned == pins.head_pinned);
        assert_int_equal(t->ring_bytes, cache.slots_count * slot);
        assert_true(cache.rows_max == pins.rows_max && cache.context_tokens == pins.context_tokens);
        assert_int_equal(cache.leases_max, pins.leases_max);
        const bool fits = cache.slots_count >= w->layout->head_block_first && t->head_pinned;
        assert_int_equal(t->pass_read_bytes, fits ? 0 : t->layer_bytes + (t->head_pinned ? 0 : t->head_bytes));
        if (!fits) assert_true(t->total_bytes + slot + (1u << 20) > pins.table.total_bytes);
    }
    assert_int_equal(cache.table.pass_read_bytes, 0);
    assert_int_equal(cache.slots_count, w->layout->head_block_first);
    in = input_of(w, all);
    in.cache = LEVER_CACHE_LRU;
    CHECK_OK(lv_plan_choose(&in, &cache, &error));
    assert_int_equal(cache.table.pass_read_bytes, 0);
    in.target_ram_percent = 50;
    in.budget_bytes = LV_LEDGER_UNLIMITED;
    CHECK_OK(lv_plan_choose(&in, &cache, &error));
    in.target_ram_percent = 0;
    CHECK_OK(lv_plan_choose(&in, &pins, &error));
    const uint64_t more = cache.table.ring_bytes - pins.table.ring_bytes, half = w->layout->layer_bytes / 2;
    assert_true(more <= half + (1u << 20) && more + slot + (1u << 20) > half);
}

static void test_context(void **state) {
    const world *w = *state;
    lv_plan_choice choice;
    lever_error error;
    lv_plan_input in = input_of(w, 300u << 20);
    in.context_tokens = 32768;
    CHECK_FAILS(lv_plan_choose(&in, &choice, &error), LEVER_E_BUDGET, "32768");
    in.context_tokens = 40000;
    CHECK_FAILS(lv_plan_choose(&in, &choice, &error), LEVER_E_ARGUMENT, "32768");
    in = input_of(w, 4096ull << 20);
    in.context_tokens = 8192;
    CHECK_OK(lv_plan_choose(&in, &choice, &error));
    assert_int_equal(choice.context_tokens, 8192);
}

/* Rows beyond one batch hold all blocks of a stage at once: the ring must have them and one more. */
static void test_ring_holds_a_stage(void **state) {
    const world *w = *state;
    lv_plan_choice choice;
    lever_error error;
    for (uint64_t mib = 250; mib < 1500; mib += 50) {
        const lv_plan_input in = input_of(w, mib << 20);
        CHECK_OK(lv_plan_choose(&in, &choice, &error));
        if (choice.rows_max > choice.batch_rows) assert_true(choice.slots_count >= 4);
    }
    lv_plan_input in = input_of(w, 1024ull << 20);
    in.ring_bytes = 1;
    CHECK_OK(lv_plan_choose(&in, &choice, &error));
    assert_int_equal(choice.slots_count, 2);
    assert_int_equal(choice.rows_max, choice.batch_rows);
}

/* --- With a draft ------------------------------------------------------------------------------------------------ */

static const lv_model draft_model = {.hparams = {.layers_count = 24,
                                                 .embedding = 896,
                                                 .heads_count = 14,
                                                 .kv_heads_count = 2,
                                                 .head_dim = 64,
                                                 .feed_forward = 4864,
                                                 .vocabulary = VOCABULARY,
                                                 .context_train = 32768}};

static lv_plan_input input_with_draft(const world *w, uint64_t budget) {
    lv_plan_input in = input_of(w, budget);
    in.io_bytes_per_second = 2.0e9;
    in.memory_bytes_per_second = 20.0e9;
    in.draft = (lv_plan_draft){
        .model = &draft_model, .bytes = 250u << 20, .step_bytes = 220u << 20, .compare_bytes = 80u << 20};
    return in;
}

static lv_plan_input without_draft(const lv_plan_input *in) {
    lv_plan_input alone = *in;
    alone.draft.model = NULL;
    return alone;
}

static lv_plan_choice chosen(const lv_plan_input *in) {
    lv_plan_choice choice;
    lever_error error;
    CHECK_OK(lv_plan_choose(in, &choice, &error));
    return choice;
}

static uint64_t row_of(const lever_plan *table, lv_category category) {
    for (uint32_t i = 0; i < table->rows_count; i++) {
        if (strcmp(table->rows[i].category, lv_category_name(category)) == 0) return table->rows[i].bytes;
    }
    return 0;
}

/* The draft is one row; the context stays what it was, and layers pay. */
static void test_draft_is_kept(void **state) {
    const world *w = *state;
    const lv_plan_input in = input_with_draft(w, 900u << 20), alone = without_draft(&in);
    const lv_plan_choice with = chosen(&in), without = chosen(&alone);
    assert_true(with.table.draft_used);
    assert_string_equal(with.table.draft_reason, "");
    assert_int_equal(with.table.draft_bytes,
                     in.draft.bytes + lv_plan_draft_session_bytes(&w->model, &draft_model, with.context_tokens));
    assert_int_equal(row_of(&with.table, LV_MEM_DRAFT), with.table.draft_bytes);
    assert_int_equal(with.context_tokens, without.context_tokens);
    assert_int_equal(with.table.least_bytes, without.table.least_bytes);
    assert_true(with.table.pinned_bytes < without.table.pinned_bytes);
    assert_true(with.table.total_bytes <= in.budget_bytes);
    assert_true(with.rows_max >= 65);
    assert_int_equal(with.logits_rows, 16);
    assert_false(without.table.draft_used);
    assert_int_equal(without.table.draft_bytes, 0);
}

/* What the predictor takes of a session is taken by each of them; a reserve once. */
static void test_sessions_and_reserve(void **state) {
    const world *w = *state;
    for (uint32_t sessions = 1; sessions <= 3; sessions++) {
        lv_plan_input in = input_with_draft(w, LV_LEDGER_UNLIMITED);
        in.sessions_max = sessions;
        in.draft.forced = true;
        const lv_plan_choice before = chosen(&in);
        in.draft.session_bytes = 7u << 20;
        const lv_plan_choice with = chosen(&in);
        assert_int_equal(with.table.total_bytes - before.table.total_bytes, sessions * (7u << 20));
        in.reserve_bytes = 5u << 20;
        assert_int_equal(chosen(&in).table.total_bytes - with.table.total_bytes, 5u << 20);
    }
}

/* A draft as slow as its target gains nothing: then the plan is that of the target alone, and says why. */
static void test_draft_is_left_out(void **state) {
    const world *w = *state;
    lv_plan_input in = input_with_draft(w, 1500u << 20);
    in.draft.step_bytes = 900u << 20;
    const lv_plan_input alone = without_draft(&in);
    const lv_plan_choice choice = chosen(&in), without = chosen(&alone);
    assert_false(choice.table.draft_used);
    assert_non_null(strstr(choice.table.draft_reason, "predicted to be faster"));
    assert_non_null(strstr(choice.table.draft_reason, "--force-draft"));
    assert_int_equal(choice.table.total_bytes, without.table.total_bytes);
    assert_int_equal(choice.table.pinned_bytes, without.table.pinned_bytes);
    assert_int_equal(row_of(&choice.table, LV_MEM_DRAFT), 0);

    in.draft.forced = true;
    assert_true(chosen(&in).table.draft_used);
    in.draft.forced = false;
    in.target_ram_percent = 50;
    assert_true(chosen(&in).table.draft_used);
}

static void test_draft_that_does_not_fit(void **state) {
    const world *w = *state;
    lv_plan_input in = input_with_draft(w, 1);
    lv_plan_choice choice;
    lever_error error;
    CHECK_FAILS(lv_plan_choose(&in, &choice, &error), LEVER_E_BUDGET, "least");
    in.budget_bytes = choice.table.least_bytes;
    choice = chosen(&in);
    assert_false(choice.table.draft_used);
    assert_non_null(strstr(choice.table.draft_reason, "cannot hold"));

    in.draft.forced = true;
    CHECK_FAILS(lv_plan_choose(&in, &choice, &error), LEVER_E_BUDGET, "with the draft");
    assert_true(choice.table.total_bytes > in.budget_bytes);

    /* Comparing vocabularies may need more than running does. */
    in = input_with_draft(w, 900u << 20);
    in.draft.compare_bytes = 900u << 20;
    assert_non_null(strstr(chosen(&in).table.draft_reason, "cannot hold"));

    in = input_with_draft(w, 900u << 20);
    in.target_ram_percent = 60;
    assert_non_null(strstr(chosen(&in).table.draft_reason, "layers asked for"));
    in.draft.forced = true;
    CHECK_FAILS(lv_plan_choose(&in, &choice, &error), LEVER_E_BUDGET, "60 %");
}

/* Where a draft fits, so does a tree with its root. No budget is passed, and once a draft fits it stays. */
static void test_draft_at_every_budget(void **state) {
    const world *w = *state;
    bool used = false;
    uint32_t narrow = 0, wide = 0;
    const lv_plan_input first = input_with_draft(w, LV_LEDGER_UNLIMITED);
    const lv_plan_choice most = chosen(&first);
    for (uint64_t budget = most.table.least_bytes; budget < most.table.all_bytes + (20u << 20); budget += 3u << 20) {
        const lv_plan_input in = input_with_draft(w, budget);
        const lv_plan_choice choice = chosen(&in);
        assert_true(choice.table.total_bytes <= budget);
        assert_int_equal(choice.table.draft_used, choice.table.draft_reason[0] == '\0');
        assert_true(choice.table.draft_used || !used);
        used = choice.table.draft_used;
        if (used) *(choice.rows_max >= 65 ? &wide : &narrow) += 1;
    }
    assert_true(used);
    assert_true(wide > 0 && narrow <= 10); /* within 30 MiB of the least budget for both */
    assert_int_equal(chosen(&first).table.pass_read_bytes, 0);
}

static void test_speeds(void **state) {
    (void)state;
    const double mib = 1048576.0;
    static const struct {
        uint64_t read_mib, layer_mib, head_mib, step_mib;
        double io, memory, plain, with;
    } cases[] = {
        /* milliseconds: pass 50, of which computing 1000 / 20000 * 1000; a step 10 + 1; head 1.3 * 10 */
        {0, 800, 200, 200, 1e9, 20000 * 1048576.0, 1 / 0.050, 8.5 / (7 * 0.011 + 0.064 + 0.013)},
        {1000, 800, 200, 200, 1000 * 1048576.0, 20000 * 1048576.0, 1.0, 8.5 / (7 * 0.011 + 1.0 + 0.013)},
        /* a draft far slower than its target: a short tree is the best */
        {0, 800, 200, 10000, 1e9, 20000 * 1048576.0, 1 / 0.050, 3.3 / (2.5 * 0.501 + 0.064 + 0.013)},
        /* nothing measured: 2e9 and 20e9 */
        {1000, 800, 200, 0, 0, 0, 2e9 / (1000 * 1048576.0), 8.5 / (7 * 0.001 + 1048.576 / 2000 + 0.013631488)},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const lv_plan_rates rates = {.read_bytes = (uint64_t)((double)cases[c].read_mib * mib),
                                     .layer_bytes = (uint64_t)((double)cases[c].layer_mib * mib),
                                     .head_bytes = (uint64_t)((double)cases[c].head_mib * mib),
                                     .step_bytes = (uint64_t)((double)cases[c].step_mib * mib),
                                     .io_bytes_per_second = cases[c].io,
                                     .memory_bytes_per_second = cases[c].memory};
        const double plain = lv_plan_speed_plain(&rates), with = lv_plan_speed_with_draft(&rates);
        if (fabs(plain / cases[c].plain - 1) > 1e-6 || fabs(with / cases[c].with - 1) > 1e-6) {
            fail_msg("case %zu: %g and %g instead of %g and %g", c, plain, with, cases[c].plain, cases[c].with);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_budget_is_passed),
        cmocka_unit_test(test_cache_of_what_was_used_last),
        cmocka_unit_test(test_a_budget_above_what_is_free),
        cmocka_unit_test(test_all_bytes_pins_all),
        cmocka_unit_test(test_share_of_the_layers),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_ring_holds_a_stage),
        cmocka_unit_test(test_draft_is_kept),
        cmocka_unit_test(test_sessions_and_reserve),
        cmocka_unit_test(test_draft_is_left_out),
        cmocka_unit_test(test_draft_that_does_not_fit),
        cmocka_unit_test(test_draft_at_every_budget),
        cmocka_unit_test(test_speeds),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
