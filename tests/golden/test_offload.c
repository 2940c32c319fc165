/* link: --wrap=lv_device_probe,--wrap=lv_offload_open */
/* A model on a device: the same logits, the same text, whatever is padded, wherever it fails; and what a device is
 * refused for. The pair and the small models, on the device that is made of the CPU, and one on ggml's CPU backend. */
#include <stdlib.h>

#include "compute/device_probe.h"
#include "compute/offload.h"
#include "engine/engine_state.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"
#include "support/parts.h"

enum { ANSWER = 60, TOKENS = 23 };

/* Types that lever has no kernel for. */
#define FOREIGN_TYPES LEVER_TINY_DIR "/llama-foreign-types.gguf"

/* --- Logits ------------------------------------------------------------------------------------------------------ */

/* Everything a forward pass gives, without and with the device, by the bits. */
static void test_bits_of_every_model(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    size_t compared = 0;
    for (size_t i = 0; i < paths.count; i++) {
        lever_engine_options options;
        lv_test_options(&options, paths.path[i]);
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = lv_test_session(engine);
        int32_t tokens[TOKENS];
        lv_test_tokens(engine, 3, tokens, TOKENS);
        float *wanted = lv_test_score(engine, session, tokens, TOKENS);
        const size_t bytes = TOKENS * lv_test_vocabulary(engine) * sizeof(float);
        lever_session_close(&session);
        lever_engine_close(&engine);

        options.device = "test";
        options.device_use = LEVER_DEVICE_TARGET;
        options.target_ram_percent = 0;
        lever_error error;
        if (lever_engine_open(&engine, &options, &error) != LEVER_OK) {
            /* Some have matrices that no kernel of ours, and so not this device, can compute. */
            if (!strstr(error.message, "does not run")) fail_msg("%s: %s", paths.path[i], error.message);
            free(wanted);
            continue;
        }
        session = lv_test_session(engine);
        float *got = lv_test_score(engine, session, tokens, TOKENS);
        lever_engine_info info;
        lever_engine_get_info(engine, &info);
        assert_true(info.device_target);
        assert_false(info.device_failed);
        assert_string_equal(info.device, "test");
        if (memcmp(got, wanted, bytes) != 0) fail_msg("%s: other bits", paths.path[i]);
        compared++;
        free(got);
        free(wanted);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
    assert_true(compared >= 4);
}

/* --- Text -------------------------------------------------------------------------------------------------------- */

typedef struct {
    int32_t prompt[PAIR_PROMPT];
    pair_answer plain[PAIR_SAMPLINGS];
} reference;

static reference *make_reference(void) {
    reference *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    lever_engine_options options;
    lv_test_options(&options, PAIR_TARGET);
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    lever_error error;
    pairs_prompt(engine, 1, r->prompt);
    for (uint32_t s = 0; s < PAIR_SAMPLINGS; s++) {
        lever_generate_options generate;
        pairs_sampling(&generate, s, ANSWER);
        CHECK_OK(lever_session_prompt(session, r->prompt, PAIR_PROMPT, &error));
        CHECK_OK(pairs_generate(session, &generate, &r->plain[s], &error));
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
    return r;
}

/* The answer of the pair with this device, in this way; says whether the device has failed. */
static bool answer_on(const reference *r, const char *device, lever_device_use use, const pair_way *way,
                      pair_answer *got) {
    lever_engine_options options;
    lever_generate_options generate;
    lever_error error;
    pairs_engine_options(&options, way);
    pairs_generate_options(&generate, way, ANSWER);
    options.device = device;
    options.device_use = use;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    CHECK_OK(lever_session_prompt(session, r->prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &generate, got, &error));
    pairs_check_same(got, &r->plain[way->level[PAIR_SAMPLING]], device);
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    lever_session_close(&session);
    lever_engine_close(&engine);
    return info.device_failed;
}

static void test_every_way_gives_the_same_text(void **state) {
    (void)state;
    reference *r = make_reference();
    static const char *const devices[] = {"test", "test:buckets=8", "test:buckets=3+24,align=4096"};
    pair_way ways[PAIR_WAYS_MAX];
    const uint32_t count = pairs_covering(ways, 12, PAIR_WAYS_MAX);
    uint64_t device_rows = 0, rows = 0, padded = 0, accepted = 0;
    for (uint32_t i = 0; i < count; i++) {
        pair_answer got = {0};
        assert_false(answer_on(r, devices[i % 3], LEVER_DEVICE_BOTH, &ways[i], &got));
        assert_int_equal(got.statistics.device_layer_rows, got.statistics.layer_rows);
        device_rows += got.statistics.device_layer_rows;
        rows += got.statistics.nodes_verified;
        padded += got.statistics.nodes_padded;
        accepted += got.statistics.nodes_accepted;
        assert_true(got.statistics.padded_layer_rows >= got.statistics.nodes_padded);
    }
    print_message("rows %llu, padded %llu, in %u ways\n", (unsigned long long)rows, (unsigned long long)padded, count);
    assert_true(device_rows > 0 && padded > 0 && accepted > 0);
    free(r);
}

/* For one of the two only, or as it seems best: which one is not seen in the text. */
static void test_every_use(void **state) {
    (void)state;
    reference *r = make_reference();
    const pair_way way = {.level = {[PAIR_COSTS] = 1}};
    static const lever_device_use uses[] = {LEVER_DEVICE_AUTO, LEVER_DEVICE_TARGET, LEVER_DEVICE_DRAFT,
                                            LEVER_DEVICE_BOTH};
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        pair_answer got = {0};
        assert_false(answer_on(r, "test", uses[i], &way, &got));
        assert_int_equal(got.statistics.device_layer_rows > 0, uses[i] != LEVER_DEVICE_DRAFT);
    }
    /* Its upload works once: it holds the draft, and the target stays where it is. */
    pair_answer got = {0};
    assert_false(answer_on(r, "test:once", LEVER_DEVICE_AUTO, &way, &got));
    assert_int_equal(got.statistics.device_layer_rows, 0);
    free(r);
}

/* A target that the device cannot compute, with a draft that it can. */
static void test_a_draft_without_its_target(void **state) {
    (void)state;
    pair_answer wanted = {0}, got = {0};
    for (uint32_t i = 0; i < 2; i++) {
        lever_engine_options options;
        lv_test_options(&options, FOREIGN_TYPES);
        options.draft_path = i ? LEVER_TINY_DIR "/llama-q4_0.gguf" : NULL;
        options.draft_forced = true;
        options.device = i ? "test" : NULL;
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = lv_test_session(engine);
        lever_engine_info info;
        lever_engine_get_info(engine, &info);
        assert_false(info.device_target);
        assert_int_equal(info.device_draft, i == 1);
        int32_t prompt[PAIR_PROMPT];
        lever_generate_options generate;
        lever_error error;
        pairs_prompt(engine, 1, prompt);
        pairs_sampling(&generate, 1, TOKENS);
        CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
        CHECK_OK(pairs_generate(session, &generate, i ? &got : &wanted, &error));
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
    pairs_check_same(&got, &wanted, "the draft alone on the device");
}

/* --- A device with bits of its own ------------------------------------------------------------------------------- */

static uint64_t device_bytes(const lever_engine *engine) {
    return lv_ledger_used_by(engine->ledger, LV_MEM_DEVICE);
}

/* The answer with all of the target on such a device. While it comes, nothing is taken for the device. */
static void answer_by_own_bits(const char *device, const char *path, const char *draft_path, lever_strategy strategy,
                               pair_answer *got) {
    lever_engine_options options;
    lv_test_options(&options, path);
    options.draft_path = draft_path;
    options.draft_forced = true;
    options.device = device;
    options.device_use = LEVER_DEVICE_TARGET;
    options.target_ram_percent = 0;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    const uint64_t bytes = device_bytes(engine);
    assert_true(bytes <= lv_accelerator_target_bytes(&engine->accelerator, engine->weights));
    int32_t prompt[PAIR_PROMPT];
    lever_generate_options generate;
    lever_error error;
    pairs_prompt(engine, 1, prompt);
    pairs_sampling(&generate, 1, TOKENS);
    generate.strategy = strategy;
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    CHECK_OK(pairs_generate(session, &generate, got, &error));
    lever_engine_info info;
    lever_engine_get_info(engine, &info);
    assert_false(info.device_failed);
    assert_true(got->statistics.device_layer_rows > 0);
    assert_int_equal(got->statistics.device_layer_rows, got->statistics.layer_rows);
    assert_int_equal(device_bytes(engine), bytes);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* ggml's CPU backend, and floats. Types that change from layer to layer, read as rows and, packed, as tiles, and types
 * without a kernel; speculation does not change the text. */
static void test_own_bits_keep_their_text(void **state) {
    (void)state;
    static const char gguf[] = LEVER_TINY_DIR "/qwen2-by-layer.gguf";
    char packed[512];
    static const char *const devices[] = {"CPU", "CPU", "test:floats", "test:floats", "test:floats,align=512"};
    const char *const paths[] = {gguf, parts_pack(gguf, packed, sizeof(packed)), gguf, packed, FOREIGN_TYPES};
    pair_answer plain = {0}, got = {0};
    uint64_t accepted = 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        answer_by_own_bits(devices[i], paths[i], NULL, LEVER_STRATEGY_AR, &plain);
        answer_by_own_bits(devices[i], paths[i], paths[i], LEVER_STRATEGY_LEVER, &got);
        pairs_check_same(&got, &plain, "with a tree");
        accepted += got.statistics.nodes_accepted;
        answer_by_own_bits(devices[i], paths[i], paths[i], LEVER_STRATEGY_CHAIN, &got);
        pairs_check_same(&got, &plain, "with a chain");
        accepted += got.statistics.nodes_accepted;
    }
    assert_true(accepted > 0);
}

/* --- Failing ----------------------------------------------------------------------------------------------------- */

/* From the first run after the probe on, in prefill and cycles, of target and draft. */
static void test_a_failing_device_leaves_the_text(void **state) {
    (void)state;
    reference *r = make_reference();
    const pair_way way = {.level = {[PAIR_COSTS] = 1}};
    const pair_way pinned = {.level = {[PAIR_COSTS] = 1, [PAIR_BUDGET] = 1, [PAIR_SAMPLING] = 2}};
    uint32_t failed = 0;
    for (uint32_t run = 60; run < 1500; run = run * 8 / 5 + 1) {
        char device[64];
        snprintf(device, sizeof(device), "test:fail=%u", run);
        pair_answer got = {0};
        failed +=
            answer_on(r, device, run % 2 ? LEVER_DEVICE_TARGET : LEVER_DEVICE_BOTH, run % 3 ? &way : &pinned, &got);
    }
    assert_true(failed >= 3);
    free(r);
}

static void check_refused(const lever_engine_options *options, const char *message) {
    lever_engine *engine = NULL;
    lever_plan plan;
    lever_error error;
    CHECK_FAILS(lever_engine_open(&engine, options, &error), LEVER_E_ARGUMENT, message);
    CHECK_FAILS(lever_engine_plan(options, &plan, &error), LEVER_E_ARGUMENT, message);
}

/* A device that fails while it is tried is refused. */
static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *device;
        lever_device_use use;
        bool draft;
        const char *message;
    } cases[] = {
        {"test:wrong", LEVER_DEVICE_AUTO, true, "its results are wrong"},
        {"test:wrong", LEVER_DEVICE_DRAFT, true, "its results are wrong"},
        {"test:fail=2", LEVER_DEVICE_AUTO, true, "a run has failed"},
        {"test:small", LEVER_DEVICE_AUTO, true, "the largest that it gives has 65536"},
        {"test:slow", LEVER_DEVICE_AUTO, true, "the CPU takes"},
        {"test:once", LEVER_DEVICE_TARGET, true, "do not take their place"},
        {"test:once", LEVER_DEVICE_AUTO, false, "do not take their place"},
        {"test", LEVER_DEVICE_DRAFT, false, "there is no draft model"},
        {"nothing", LEVER_DEVICE_AUTO, false, "there are: cpu, test"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const pair_way way = {.level = {0}};
        lever_engine_options options;
        pairs_engine_options(&options, &way);
        options.device = cases[i].device;
        options.device_use = cases[i].use;
        if (!cases[i].draft) options.draft_path = NULL;
        check_refused(&options, cases[i].message);
    }
    /* What ggml's product takes is known as well. */
    lever_engine_options options;
    lv_test_options(&options, FOREIGN_TYPES);
    options.device = "test:floats,slow";
    check_refused(&options, "the CPU takes");
}

/* --- Want of memory ---------------------------------------------------------------------------------------------- */

/* Calls that find no memory, the first one's bit the lowest: for the target's probe, then the draft's; for the draft's
 * buffers, then the target's. */
static struct {
    uint32_t probes, offloads; /* bits that are left */
    char warning[1024];
} lacks;

static bool lacks_now(uint32_t *calls) {
    const bool now = *calls & 1;
    *calls >>= 1;
    return now;
}

lever_status __real_lv_device_probe(lv_device *device, const lv_device_probe_options *options,
                                    lv_device_findings *findings, lever_error *error);
lever_status __wrap_lv_device_probe(lv_device *device, const lv_device_probe_options *options,
                                    lv_device_findings *findings, lever_error *error);
lever_status __wrap_lv_device_probe(lv_device *device, const lv_device_probe_options *options,
                                    lv_device_findings *findings, lever_error *error) {
    if (lacks_now(&lacks.probes)) return lv_fail(error, LEVER_E_BUDGET, "no room to try it");
    return __real_lv_device_probe(device, options, findings, error);
}

lever_status __real_lv_offload_open(lv_offload **offload, const lv_offload_options *options, lever_error *error);
lever_status __wrap_lv_offload_open(lv_offload **offload, const lv_offload_options *options, lever_error *error);
lever_status __wrap_lv_offload_open(lv_offload **offload, const lv_offload_options *options, lever_error *error) {
    if (lacks_now(&lacks.offloads)) return lv_fail(error, LEVER_E_MEMORY, "no room for buffers");
    return __real_lv_offload_open(offload, options, error);
}

static void keep_warning(void *user, lever_log_level level, const char *line) {
    (void)user;
    if (level == LEVER_LOG_WARNING) snprintf(lacks.warning, sizeof(lacks.warning), "%s", line);
}

/* A device that there is no memory for is left out, wholly or for one of the two, and the text is that of the CPU;
 * where it was said what it is for, the engine does not open. */
static void test_no_memory_for_a_device(void **state) {
    (void)state;
    static const struct {
        lever_device_use use;
        bool draft;
        uint32_t probes, offloads;
        lever_status status;
        bool on_target, on_draft;
        const char *warning;
    } cases[] = {
        {LEVER_DEVICE_AUTO, true, 1, 0, LEVER_OK, false, true, ""},
        {LEVER_DEVICE_AUTO, true, 2, 0, LEVER_OK, true, false, ""},
        {LEVER_DEVICE_AUTO, true, 3, 0, LEVER_OK, false, false, "the device test is left out, the CPU computes"},
        {LEVER_DEVICE_AUTO, false, 1, 0, LEVER_OK, false, false, "left out, the CPU computes: no room to try it"},
        {LEVER_DEVICE_TARGET, false, 1, 0, LEVER_E_BUDGET, false, false, "no room to try it"},
        {LEVER_DEVICE_DRAFT, true, 1, 0, LEVER_E_BUDGET, false, false, "no room to try it"},
        {LEVER_DEVICE_BOTH, true, 2, 0, LEVER_E_BUDGET, false, false, "no room to try it"},
        {LEVER_DEVICE_AUTO, true, 0, 1, LEVER_OK, true, false, "no room for buffers; the CPU computes"},
        {LEVER_DEVICE_AUTO, true, 0, 2, LEVER_OK, false, true, "no room for buffers; the CPU computes"},
        {LEVER_DEVICE_AUTO, true, 0, 3, LEVER_OK, false, false, "no room for buffers; the CPU computes"},
        {LEVER_DEVICE_DRAFT, true, 0, 1, LEVER_E_MEMORY, false, false, "no room for buffers"},
        {LEVER_DEVICE_BOTH, true, 0, 2, LEVER_E_MEMORY, false, false, "no room for buffers"},
    };
    reference *r = make_reference();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const pair_way way = {.level = {[PAIR_COSTS] = 1}};
        lever_engine_options options;
        lever_generate_options generate;
        lever_engine *engine = NULL;
        lever_error error;
        pairs_engine_options(&options, &way);
        pairs_generate_options(&generate, &way, TOKENS);
        if (!cases[i].draft) options.draft_path = NULL;
        options.device = "test";
        options.device_use = cases[i].use;
        options.log = keep_warning;
        lacks.warning[0] = '\0';
        lacks.probes = cases[i].probes;
        lacks.offloads = cases[i].offloads;
        if (cases[i].status != LEVER_OK) {
            CHECK_FAILS(lever_engine_open(&engine, &options, &error), cases[i].status, cases[i].warning);
            continue;
        }
        CHECK_OK(lever_engine_open(&engine, &options, &error));
        if (!strstr(lacks.warning, cases[i].warning) || (cases[i].warning[0] == '\0') != (lacks.warning[0] == '\0'))
            fail_msg("case %zu: %s", i, lacks.warning);
        lever_engine_info info;
        lever_engine_get_info(engine, &info);
        assert_int_equal(info.device_target, cases[i].on_target);
        assert_int_equal(info.device_draft, cases[i].on_draft);
        assert_false(info.device_failed);
        assert_string_equal(info.device, cases[i].on_target || cases[i].on_draft ? "test" : "cpu");
        lever_session *session = lv_test_session(engine);
        pair_answer got = {0};
        CHECK_OK(lever_session_prompt(session, r->prompt, PAIR_PROMPT, &error));
        CHECK_OK(pairs_generate(session, &generate, &got, &error));
        assert_int_equal(got.count, TOKENS);
        assert_memory_equal(got.ids, r->plain[way.level[PAIR_SAMPLING]].ids, TOKENS * sizeof(got.ids[0]));
        assert_int_equal(got.statistics.device_layer_rows > 0, cases[i].on_target);
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
    free(r);
}

/* --- The plan ---------------------------------------------------------------------------------------------------- */

static lever_plan plan_with(lever_engine_options *options, const char *device) {
    lever_plan plan;
    lever_error error;
    options->device = device;
    CHECK_OK(lever_engine_plan(options, &plan, &error));
    return plan;
}

/* Memory for a device is part of the plan, and the plan is kept. */
static void test_the_plan_knows_its_buffers(void **state) {
    (void)state;
    const pair_way way = {.level = {0}};
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    const lever_plan without = plan_with(&options, NULL), with = plan_with(&options, "test");
    assert_true(with.total_bytes > without.total_bytes);
    assert_true(with.least_bytes > without.least_bytes);
    options.ram_unlimited = false;
    options.target_ram_percent = -1;
    options.context_tokens = 64;
    options.ram_bytes = plan_with(&options, "test").least_bytes + (8 << 20);
    lever_error error;
    lever_engine *engine = lv_test_open(&options);
    lever_session *session = lv_test_session(engine);
    int32_t prompt[PAIR_PROMPT];
    pairs_prompt(engine, 0, prompt);
    CHECK_OK(lever_session_prompt(session, prompt, PAIR_PROMPT, &error));
    lever_statistics statistics;
    lever_session_get_statistics(session, &statistics);
    assert_true(statistics.ram_peak <= options.ram_bytes);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* So is what its library and its driver take for themselves: twice, as target and draft have a handle each. */
static void test_the_plan_knows_memory_of_its_own(void **state) {
    (void)state;
    const pair_way way = {.level = {0}};
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    const lever_plan without = plan_with(&options, "test"), with = plan_with(&options, "test:takes=48");
    assert_true(with.total_bytes > without.total_bytes + (90 << 20));
    assert_true(with.total_bytes < without.total_bytes + (102 << 20));
    lever_error error;
    lever_engine *engine = lv_test_open(&options);
    assert_true(device_bytes(engine) > 90 << 20);
    lever_engine_close(&engine);
    options.ram_unlimited = false;
    options.ram_bytes = without.least_bytes + (32 << 20);
    options.device_use = LEVER_DEVICE_BOTH;
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_BUDGET, "");
    CHECK_FAILS(lever_engine_plan(&options, &(lever_plan){0}, &error), LEVER_E_BUDGET, "");

    /* Nobody said what it is for: it is left out, with all that it took. */
    options.device_use = LEVER_DEVICE_AUTO;
    options.log = keep_warning;
    lacks.warning[0] = '\0';
    assert_true(plan_with(&options, "test:takes=48").total_bytes <= options.ram_bytes);
    assert_non_null(strstr(lacks.warning, "left out, the CPU computes"));
    engine = lv_test_open(&options);
    assert_true(device_bytes(engine) < 1 << 20);
    assert_false(engine->accelerator.target || engine->accelerator.draft);
    lever_engine_close(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_every_model),
        cmocka_unit_test(test_every_way_gives_the_same_text),
        cmocka_unit_test(test_every_use),
        cmocka_unit_test(test_a_draft_without_its_target),
        cmocka_unit_test(test_own_bits_keep_their_text),
        cmocka_unit_test(test_a_failing_device_leaves_the_text),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory_for_a_device),
        cmocka_unit_test(test_the_plan_knows_its_buffers),
        cmocka_unit_test(test_the_plan_knows_memory_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
