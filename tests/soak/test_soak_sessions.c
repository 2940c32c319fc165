/* test_soak_sessions.c - some minutes of everything at once: sessions in several threads, prompts that share prefixes,
 * cancellations from outside and a budget that never rests. Every answer must be the one that a quiet engine gives.
 * LEVER_SOAK_SECONDS says how long (default 300). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "support/check.h"
#include "support/engines.h"

enum { PROMPTS = 6, PROMPT_MAX = 90, ANSWER = 16, WORKERS = 3 };

static const char model_path[] = LEVER_TINY_DIR "/qwen2-q4_k_m.gguf";

typedef struct {
    int32_t tokens[PROMPT_MAX];
    size_t count;
    int32_t answer[ANSWER];
} known;

typedef struct {
    lever_engine *engine;
    const known *knowns;
    lever_session *_Atomic session; /* to be cancelled from outside */
    atomic_bool *stop;
    uint32_t state;
    uint64_t answers, cancelled, wrong;
    char message[sizeof(((lever_error *)0)->message)];
} worker;

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

typedef struct {
    int32_t ids[ANSWER];
    size_t count;
} taken;

static bool take(void *user, int32_t token, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    taken *to = user;
    if (token >= 0 && to->count < ANSWER) to->ids[to->count++] = token;
    return true;
}

static lever_status answer(lever_session *session, const known *k, size_t count, taken *to, lever_error *error) {
    lever_generate_options options;
    lever_generate_options_init(&options);
    options.tokens_max = (uint32_t)count;
    options.seed = 17;
    options.ignore_end = true;
    to->count = 0;
    lever_status status = lever_session_prompt(session, k->tokens, k->count, error);
    if (status == LEVER_OK) status = lever_session_generate(session, &options, take, to, NULL, error);
    return status;
}

static void *work(void *user) {
    worker *w = user;
    lever_session *session = NULL;
    lever_error error = {0};
    if (lever_session_open(&session, w->engine, NULL, &error) != LEVER_OK) {
        snprintf(w->message, sizeof(w->message), "%s", error.message);
        w->wrong++;
        return NULL;
    }
    atomic_store(&w->session, session);
    while (!atomic_load(w->stop) && w->wrong == 0) {
        const known *k = &w->knowns[draw(&w->state, PROMPTS)];
        taken got;
        const lever_status status = answer(session, k, 1 + draw(&w->state, ANSWER), &got, &error);
        if (status != LEVER_OK && status != LEVER_E_CANCELLED) {
            snprintf(w->message, sizeof(w->message), "%s", error.message);
            w->wrong++;
        } else if (memcmp(got.ids, k->answer, got.count * sizeof(int32_t)) != 0) {
            snprintf(w->message, sizeof(w->message), "another answer after %zu tokens", k->count);
            w->wrong++;
        }
        if (status == LEVER_OK) w->answers++;
        if (status == LEVER_E_CANCELLED) w->cancelled++;
    }
    atomic_store(&w->session, NULL);
    lever_session_close(&session);
    return NULL;
}

static void make_knowns(lever_engine *engine, known *knowns) {
    lever_session *session = lv_test_session(engine);
    lever_error error;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        /* Prompts of one half share their beginning. */
        lv_test_tokens(engine, 50 + i % 2, knowns[i].tokens, PROMPT_MAX);
        knowns[i].count = PROMPT_MAX / (1 + i / 2) - i;
        taken got;
        CHECK_OK(answer(session, &knowns[i], ANSWER, &got, &error));
        memcpy(knowns[i].answer, got.ids, sizeof(got.ids));
    }
    lever_session_close(&session);
}

static void test_everything_at_once(void **state) {
    (void)state;
    const char *wanted = getenv("LEVER_SOAK_SECONDS");
    const time_t end = time(NULL) + (wanted ? atoi(wanted) : 300);
    lever_engine_options options;
    lv_test_options(&options, model_path);
    options.target_ram_percent = 100;
    options.sessions_max = WORKERS + 1;
    options.block_bytes = 64u << 10;
    lever_engine *engine = lv_test_open(&options);
    known knowns[PROMPTS];
    make_knowns(engine, knowns);
    atomic_bool stop = false;
    worker workers[WORKERS];
    memset(workers, 0, sizeof(workers));
    pthread_t threads[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].engine = engine;
        workers[i].knowns = knowns;
        workers[i].stop = &stop;
        workers[i].state = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    uint32_t random = 99;
    lever_plan plan;
    lever_engine_get_plan(engine, &plan);
    uint64_t changes = 0, wrong = 0;
    while (time(NULL) < end && wrong == 0) {
        const struct timespec pause = {.tv_nsec = (long)draw(&random, 3000000)};
        nanosleep(&pause, NULL);
        lever_error error;
        const uint64_t budget = plan.total_bytes - draw(&random, (uint32_t)plan.pinned_bytes + 1);
        if (lever_engine_set_budget(engine, budget, &error) == LEVER_OK) changes++;
        if (draw(&random, 8) == 0) lever_session_cancel(atomic_load(&workers[draw(&random, WORKERS)].session));
        for (uint32_t i = 0; i < WORKERS; i++) wrong += workers[i].message[0] != 0;
    }
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        print_message("worker %u: %llu answers, %llu cancelled\n", i, (unsigned long long)workers[i].answers,
                      (unsigned long long)workers[i].cancelled);
        if (workers[i].wrong) fail_msg("worker %u: %s", i, workers[i].message);
        assert_true(workers[i].answers > 0);
    }
    print_message("%llu changes of the budget\n", (unsigned long long)changes);
    assert_true(changes > 0);
    lever_engine_close(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_everything_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
