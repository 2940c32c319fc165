/* link: --wrap=lv_energy_read */
/* test_session.c - what a session promises: prefixes are reused, rewinding is exact, a cancelled or failed call leaves
 * a session that can go on, several sessions share an engine, and the budget changes while passes run. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/energy.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/sanitizer.h"

enum { PROMPT = 40, ANSWER = 24 };

static const char model_path[] = LEVER_TINY_DIR "/qwen2-q4_k_m.gguf";

typedef struct {
    int32_t ids[256];
    size_t count;
    char text[8192];
    size_t bytes;
    size_t stop_after;     /* the receiver ends the answer then; 0: never */
    lever_session *cancel; /* cancelled from inside after cancel_after tokens */
    size_t cancel_after;
} answer;

static bool take(void *user, int32_t token, const char *text, size_t bytes) {
    answer *to = user;
    if (token >= 0) to->ids[to->count++] = token;
    assert_true(to->bytes + bytes < sizeof(to->text));
    memcpy(to->text + to->bytes, text, bytes);
    to->bytes += bytes;
    if (to->cancel && to->count == to->cancel_after) lever_session_cancel(to->cancel);
    return to->stop_after == 0 || to->count < to->stop_after;
}

static lever_generate_options answer_options(void) {
    lever_generate_options options;
    lever_generate_options_init(&options);
    options.tokens_max = ANSWER;
    options.temperature = 1.0f;
    options.seed = 5;
    options.ignore_end = true;
    return options;
}

static lever_engine *open_engine(int percent) {
    lever_engine_options options;
    lv_test_options(&options, model_path);
    options.target_ram_percent = percent;
    options.sessions_max = 4;
    return lv_test_open(&options);
}

static answer generate(lever_session *session) {
    answer to = {0};
    lever_error error;
    lever_finish finish;
    const lever_generate_options options = answer_options();
    CHECK_OK(lever_session_generate(session, &options, take, &to, &finish, &error));
    assert_int_equal(finish, LEVER_FINISH_LENGTH);
    assert_int_equal(to.count, ANSWER);
    return to;
}

static answer fresh_answer(const int32_t *tokens, size_t count) {
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    lever_error error;
    CHECK_OK(lever_session_prompt(session, tokens, count, &error));
    const answer to = generate(session);
    lever_session_close(&session);
    lever_engine_close(&engine);
    return to;
}

static void check_same(const answer *a, const answer *b) {
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof(a->ids[0]));
}

static void test_prefix_is_reused(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT + ANSWER + 8];
    lv_test_tokens(engine, 21, tokens, PROMPT);
    lever_error error;
    lever_statistics statistics;
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    const answer first = generate(session);
    memcpy(tokens + PROMPT, first.ids, sizeof(int32_t) * ANSWER);
    lv_test_tokens(engine, 22, tokens + PROMPT + ANSWER, 8);
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT + ANSWER + 8, &error));
    lever_session_get_statistics(session, &statistics);
    /* The answer's last token was never computed. */
    assert_int_equal(statistics.prompt_tokens_reused, PROMPT + ANSWER - 1);
    const answer second = generate(session);
    const answer wanted = fresh_answer(tokens, PROMPT + ANSWER + 8);
    check_same(&second, &wanted);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* A prompt that is the beginning of the one before: the logits must be its own, not the old ones'. */
static void test_shorter_prompt(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 23, tokens, PROMPT);
    lever_error error;
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT / 2, &error));
    const answer got = generate(session), wanted = fresh_answer(tokens, PROMPT / 2);
    check_same(&got, &wanted);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_rewind(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 24, tokens, PROMPT);
    lever_error error;
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    const answer first = generate(session);
    CHECK_OK(lever_session_rewind(session, PROMPT, &error));
    const answer again = generate(session);
    check_same(&first, &again);
    CHECK_OK(lever_session_rewind(session, 7, &error));
    const answer got = generate(session), wanted = fresh_answer(tokens, 7);
    check_same(&got, &wanted);
    CHECK_FAILS(lever_session_rewind(session, 4000, &error), LEVER_E_ARGUMENT, "4000");
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_limits(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[300];
    lv_test_tokens(engine, 25, tokens, 300);
    lever_error error;
    CHECK_FAILS(lever_session_prompt(session, tokens, 257, &error), LEVER_E_CONTEXT, "257");
    CHECK_FAILS(lever_session_prompt(session, tokens, 0, &error), LEVER_E_ARGUMENT, "no tokens");
    const int32_t bad[] = {1, -1}, large[] = {1 << 30};
    CHECK_FAILS(lever_session_prompt(session, bad, 2, &error), LEVER_E_ARGUMENT, "-1");
    CHECK_FAILS(lever_session_prompt(session, large, 1, &error), LEVER_E_ARGUMENT, "vocabulary");
    CHECK_FAILS(lever_session_generate(session, NULL, NULL, NULL, NULL, &error), LEVER_E_ARGUMENT, "no tokens");
    static const size_t sizes[] = {255, 256};
    for (size_t i = 0; i < 2; i++) {
        lever_generate_options options = answer_options();
        answer to = {0};
        lever_finish finish;
        CHECK_OK(lever_session_prompt(session, tokens, sizes[i], &error));
        CHECK_OK(lever_session_generate(session, &options, take, &to, &finish, &error));
        assert_int_equal(finish, LEVER_FINISH_LENGTH);
        assert_int_equal(to.count, 256 - sizes[i]);
    }
    lever_session_close(&session);
    lever_engine_close(&engine);
}

typedef struct {
    lever_session *session;
    int32_t tokens[PROMPT];
    size_t calls;
} meddler;

/* Everything that would pull the session from under the call that is at work. */
static void meddle(meddler *with) {
    const char text[] = "another call is at work";
    lever_error error;
    lever_session *session = with->session;
    CHECK_FAILS(lever_session_rewind(session, 0, &error), LEVER_E_ARGUMENT, text);
    CHECK_FAILS(lever_session_prompt(session, with->tokens, 3, &error), LEVER_E_ARGUMENT, text);
    CHECK_FAILS(lever_session_generate(session, NULL, NULL, NULL, NULL, &error), LEVER_E_ARGUMENT, text);
    CHECK_FAILS(lever_session_score(session, with->tokens, 3, NULL, NULL, &error), LEVER_E_ARGUMENT, text);
    with->calls++;
}

static bool meddle_with_an_answer(void *user, int32_t token, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    if (token >= 0) meddle(user);
    return true;
}

static bool meddle_with_a_score(void *user, size_t position, const float *logits) {
    (void)position;
    (void)logits;
    meddle(user);
    return true;
}

static void test_a_callback_does_not_change_its_session(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    meddler with = {.session = lv_test_session(engine)};
    lv_test_tokens(engine, 26, with.tokens, PROMPT);
    lever_error error;
    const lever_generate_options options = answer_options();
    CHECK_OK(lever_session_prompt(with.session, with.tokens, PROMPT, &error));
    CHECK_OK(lever_session_generate(with.session, &options, meddle_with_an_answer, &with, NULL, &error));
    assert_int_equal(with.calls, ANSWER);
    CHECK_OK(lever_session_score(with.session, with.tokens, PROMPT, meddle_with_a_score, &with, &error));
    assert_int_equal(with.calls, ANSWER + PROMPT);
    CHECK_OK(lever_session_prompt(with.session, with.tokens, PROMPT, &error));
    const answer got = generate(with.session), wanted = fresh_answer(with.tokens, PROMPT);
    check_same(&got, &wanted);
    lever_session_close(&with.session);
    lever_engine_close(&engine);
}

static void test_what_is_missing_is_told(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    lever_error error;
    int32_t token = 1;
    size_t count;
    const lever_message message = {"user", "x"};
    CHECK_FAILS(lever_session_prompt(NULL, &token, 1, &error), LEVER_E_ARGUMENT, "the session is NULL");
    CHECK_FAILS(lever_session_rewind(NULL, 0, &error), LEVER_E_ARGUMENT, "the session is NULL");
    CHECK_FAILS(lever_session_score(NULL, &token, 1, NULL, NULL, &error), LEVER_E_ARGUMENT, "the session is NULL");
    CHECK_FAILS(lever_session_generate(NULL, NULL, NULL, NULL, NULL, &error), LEVER_E_ARGUMENT, "the session is NULL");
    CHECK_FAILS(lever_tokenize(NULL, "x", 1, true, true, &token, 1, &count, &error), LEVER_E_ARGUMENT, "the engine");
    CHECK_FAILS(lever_tokenize(engine, NULL, 1, true, true, &token, 1, &count, &error), LEVER_E_ARGUMENT, "the text");
    CHECK_FAILS(lever_tokenize(engine, "x", 1, true, true, NULL, 1, &count, &error), LEVER_E_ARGUMENT, "tokens");
    CHECK_FAILS(lever_tokenize(engine, "x", 1, true, true, &token, 1, NULL, &error), LEVER_E_ARGUMENT, "count");
    CHECK_FAILS(lever_chat_tokenize(NULL, &message, 1, true, &token, 1, &count, &error), LEVER_E_ARGUMENT,
                "the engine");
    CHECK_FAILS(lever_chat_tokenize(engine, NULL, 1, true, &token, 1, &count, &error), LEVER_E_ARGUMENT, "messages");
    CHECK_FAILS(lever_chat_tokenize(engine, &message, 1, true, NULL, 1, &count, &error), LEVER_E_ARGUMENT, "tokens");
    CHECK_FAILS(lever_chat_tokenize(engine, &message, 1, true, &token, 1, NULL, &error), LEVER_E_ARGUMENT, "count");
    CHECK_OK(lever_session_prompt(session, &token, 1, &error));
    lever_generate_options options = answer_options();
    options.stops_count = 1;
    CHECK_FAILS(lever_session_generate(session, &options, NULL, NULL, NULL, &error), LEVER_E_ARGUMENT, "stops is NULL");
    options = answer_options();
    options.known_tokens_count = 1;
    CHECK_FAILS(lever_session_generate(session, &options, NULL, NULL, NULL, &error), LEVER_E_ARGUMENT,
                "known_tokens is NULL");
    lever_train_options train;
    lever_train_options_init(&train);
    train.model_path = train.draft_path = model_path;
    train.output_path = "";
    train.prompts_count = 1;
    CHECK_FAILS(lever_train(&train, NULL, &error), LEVER_E_ARGUMENT, "prompts is NULL");
    train.prompts_count = 0;
    train.texts_count = 1;
    CHECK_FAILS(lever_train(&train, NULL, &error), LEVER_E_ARGUMENT, "texts is NULL");
    const char *const texts[] = {"/nowhere"};
    train.texts = texts;
    CHECK_FAILS(lever_train(&train, NULL, &error), LEVER_E_ARGUMENT, "output_path is empty");
    train.output_path = "never.predictor";
    train.miss_weight = NAN;
    CHECK_FAILS(lever_train(&train, NULL, &error), LEVER_E_ARGUMENT, "miss_weight");
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_cancel(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 26, tokens, PROMPT);
    const answer wanted = fresh_answer(tokens, PROMPT);
    lever_error error;
    lever_session_cancel(session);
    CHECK_FAILS(lever_session_prompt(session, tokens, PROMPT, &error), LEVER_E_CANCELLED, "cancelled");
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    lever_generate_options options = answer_options();
    options.strategy = LEVER_STRATEGY_AR; /* a cycle that found more gives it out before it ends */
    answer part = {.cancel = session, .cancel_after = 9};
    lever_finish finish;
    CHECK_FAILS(lever_session_generate(session, &options, take, &part, &finish, &error), LEVER_E_CANCELLED,
                "cancelled");
    assert_int_equal(finish, LEVER_FINISH_CANCELLED);
    assert_int_equal(part.count, 9);
    size_t count;
    const int32_t *held = lever_session_tokens(session, &count);
    assert_int_equal(count, PROMPT + 9);
    assert_memory_equal(held + PROMPT, wanted.ids, 9 * sizeof(int32_t));
    /* It goes on where it stood. */
    options.tokens_max = ANSWER - 9;
    answer rest = {0};
    CHECK_OK(lever_session_generate(session, &options, take, &rest, &finish, &error));
    assert_memory_equal(rest.ids, wanted.ids + 9, (ANSWER - 9) * sizeof(int32_t));
    /* The receiver can end an answer too. */
    answer few = {.stop_after = 3};
    CHECK_OK(lever_session_generate(session, &options, take, &few, &finish, &error));
    assert_int_equal(few.count, 3);
    assert_int_equal(finish, LEVER_FINISH_STOP);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

static void test_stop_text(void **state) {
    (void)state;
    lever_engine *engine = open_engine(0);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 27, tokens, PROMPT);
    lever_error error;
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    const answer whole = generate(session);
    assert_true(whole.bytes > 8);
    char stop[5] = {0};
    memcpy(stop, whole.text + whole.bytes / 2, 4);
    const char *stops[] = {"", stop};
    lever_generate_options options = answer_options();
    options.stops = stops;
    options.stops_count = 2;
    CHECK_OK(lever_session_rewind(session, PROMPT, &error));
    answer cut = {0};
    lever_finish finish;
    CHECK_OK(lever_session_generate(session, &options, take, &cut, &finish, &error));
    assert_int_equal(finish, LEVER_FINISH_STOP);
    assert_true(cut.bytes < whole.bytes);
    assert_memory_equal(cut.text, whole.text, cut.bytes);
    cut.text[cut.bytes] = 0;
    assert_null(strstr(cut.text, stop));
    lever_session_close(&session);
    lever_engine_close(&engine);
}

typedef struct {
    lever_engine *engine;
    uint32_t seed;
    answer got;
} worker;

static void *work(void *user) {
    worker *w = user;
    lever_session *session = NULL;
    lever_error error;
    int32_t tokens[PROMPT];
    lv_test_tokens(w->engine, w->seed, tokens, PROMPT);
    if (lever_session_open(&session, w->engine, NULL, &error) != LEVER_OK) return NULL;
    const lever_generate_options options = answer_options();
    if (lever_session_prompt(session, tokens, PROMPT, &error) == LEVER_OK) {
        (void)lever_session_generate(session, &options, take, &w->got, NULL, &error);
    }
    lever_session_close(&session);
    return NULL;
}

static void test_sessions_share_an_engine(void **state) {
    (void)state;
    lever_engine *engine = open_engine(50);
    worker workers[4];
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        workers[i] = (worker){.engine = engine, .seed = 31 + (uint32_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 4; i++) {
        int32_t tokens[PROMPT];
        lv_test_tokens(engine, workers[i].seed, tokens, PROMPT);
        const answer wanted = fresh_answer(tokens, PROMPT);
        check_same(&workers[i].got, &wanted);
    }
    lever_engine_close(&engine);
}

typedef struct {
    lever_engine *engine;
    uint64_t low, high;
    atomic_bool stop;
    unsigned changes;
} changer;

static void *change(void *user) {
    changer *c = user;
    while (!atomic_load(&c->stop)) {
        lever_error error;
        if (lever_engine_set_budget(c->engine, c->changes % 2 ? c->high : c->low, &error) == LEVER_OK) c->changes++;
    }
    return NULL;
}

static void test_budget_changes(void **state) {
    (void)state;
    lever_engine *engine = open_engine(100);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 41, tokens, PROMPT);
    lever_error error;
    lever_statistics statistics;
    lever_session_get_statistics(session, &statistics);
    const uint64_t used = statistics.ram_used, pinned = statistics.target_bytes_pinned;
    assert_true(pinned > 0);
    CHECK_FAILS(lever_engine_set_budget(engine, 1 << 20, &error), LEVER_E_BUDGET, "cannot give up");
    changer c = {.engine = engine, .low = used - pinned, .high = used};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
    const answer wanted = fresh_answer(tokens, PROMPT);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(lever_session_rewind(session, 0, &error));
        CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
        const answer got = generate(session);
        check_same(&got, &wanted);
        lever_plan plan; /* as it is now: before the first change there is no budget */
        lever_engine_get_plan(engine, &plan);
        assert_true(plan.budget_bytes == c.low || plan.budget_bytes == c.high || plan.budget_bytes == UINT64_MAX);
    }
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    assert_true(c.changes > 0);
    CHECK_OK(lever_engine_set_budget(engine, c.low, &error));
    CHECK_OK(lever_session_rewind(session, 0, &error));
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    lever_session_get_statistics(session, &statistics);
    assert_true(statistics.ram_used <= c.low);
    assert_int_equal(statistics.ram_budget, c.low);
    CHECK_OK(lever_engine_set_budget(engine, 0, &error));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lever_session_rewind(session, 0, &error));
        CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    }
    lever_session_get_statistics(session, &statistics);
    assert_int_equal(statistics.target_bytes_pinned, pinned);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* A counter of 5 J that begins anew between any two readings. */
static bool energy_is_fake;
static uint32_t energy_readings;

void __real_lv_energy_read(const char *root, lv_energy *energy);
void __wrap_lv_energy_read(const char *root, lv_energy *energy);
void __wrap_lv_energy_read(const char *root, lv_energy *energy) {
    if (!energy_is_fake) {
        __real_lv_energy_read(root, energy);
        return;
    }
    energy_readings++;
    *energy = (lv_energy){
        .zones_count = 1, .microjoules = {energy_readings * (uint64_t)4000000 % 5000000}, .range = {5000000}};
}

/* It is read on the way too, so that a counter that begins anew is followed. */
static void test_energy_of_a_long_answer(void **state) {
    (void)state;
    lever_engine *engine = open_engine(100);
    lever_session *session = lv_test_session(engine);
    int32_t tokens[PROMPT];
    lv_test_tokens(engine, 51, tokens, PROMPT);
    lever_error error;
    lever_generate_options options = answer_options();
    options.tokens_max = 100;
    CHECK_OK(lever_session_prompt(session, tokens, PROMPT, &error));
    energy_is_fake = true;
    CHECK_OK(lever_session_generate(session, &options, NULL, NULL, NULL, &error));
    energy_is_fake = false;
    lever_statistics statistics;
    lever_session_get_statistics(session, &statistics);
    assert_true(energy_readings >= 7);
    CHECK_DOUBLE(statistics.energy_joules, 4.0 * (energy_readings - 1), 1e-6);
    lever_session_close(&session);
    lever_engine_close(&engine);
}

/* What the plan promises is there: at every budget the engine opens, and then its session. */
static void check_every_budget(const char *path) {
    lever_engine_options options;
    lv_test_options(&options, path);
    lever_plan plan;
    lever_error error;
    CHECK_OK(lever_engine_plan(&options, &plan, &error));
    options.ram_unlimited = false;
    for (uint64_t budget = plan.least_bytes + (4u << 20); budget < plan.all_bytes + (4u << 20); budget += 100000) {
        options.ram_bytes = budget;
        lever_engine *engine = lv_test_open(&options);
        lever_session *session = NULL;
        if (lever_session_open(&session, engine, NULL, &error) != LEVER_OK) {
            fail_msg("%s with %llu bytes: %s", path, (unsigned long long)budget, error.message);
        }
        lever_session_close(&session);
        lever_engine_close(&engine);
    }
}

static void test_every_budget_has_its_session(void **state) {
    (void)state;
    SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN();
    static const char packed[] = LEVER_TINY_DIR "/session-budgets.lvr";
    lever_error error;
    CHECK_OK(lever_pack(model_path, packed, NULL, &error));
    check_every_budget(model_path);
    check_every_budget(packed);
    remove(packed);
}

/* A packed file that claims tiles for types without a kernel is refused, naming the tensor: never read as what it is
 * not. */
static void test_false_tiles(void **state) {
    (void)state;
    static const char packed[] = LEVER_TINY_DIR "/session-false-tiles.lvr", key[] = "lever.pack.layouts";
    enum { HEADER_BYTES = 1 << 16, ARRAY_HEADING = 4 + 4 + 8 };
    lever_error error;
    CHECK_OK(lever_pack(LEVER_TINY_DIR "/llama-foreign-types.gguf", packed, NULL, &error));
    uint8_t *header = calloc(1, HEADER_BYTES);
    assert_non_null(header);
    FILE *file = fopen(packed, "r+b");
    assert_non_null(file);
    const size_t bytes = fread(header, 1, HEADER_BYTES, file);
    const uint8_t *found = memmem(header, bytes, key, sizeof(key) - 1);
    assert_non_null(found);
    uint8_t *heading = header + (found - header) + sizeof(key) - 1;
    uint64_t count;
    memcpy(&count, heading + 8, sizeof(count));
    assert_true(count > 0 && count < 1000);
    memset(heading + ARRAY_HEADING, 1, (size_t)count);
    assert_int_equal(fseek(file, 0, SEEK_SET), 0);
    assert_int_equal(fwrite(header, 1, bytes, file), bytes);
    fclose(file);
    free(header);
    lever_engine_options options;
    lv_test_options(&options, packed);
    lever_engine *engine = NULL;
    CHECK_FAILS(lever_engine_open(&engine, &options, &error), LEVER_E_FORMAT, "is said to lie in tiles");
    assert_null(engine);
    remove(packed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_is_reused),
        cmocka_unit_test(test_shorter_prompt),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_a_callback_does_not_change_its_session),
        cmocka_unit_test(test_what_is_missing_is_told),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_stop_text),
        cmocka_unit_test(test_sessions_share_an_engine),
        cmocka_unit_test(test_budget_changes),
        cmocka_unit_test(test_energy_of_a_long_answer),
        cmocka_unit_test(test_every_budget_has_its_session),
        cmocka_unit_test(test_false_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
