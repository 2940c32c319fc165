/* test_soak_speculation.c - the wide product: every way of speculating, on many prompts and seeds, in sessions that go
 * on, are rewound and cancelled, while other sessions of the same engine do the same. Every answer must be that of the
 * target alone. LEVER_SOAK_SECONDS says how long (default 300). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "support/check.h"
#include "support/engines.h"
#include "support/pairs.h"

enum { ANSWER_MAX = 80, WORKERS = 2, SECONDS_PER_ENGINE = 5 };

typedef struct {
    lever_engine *pair, *plain;
    lever_session *_Atomic session; /* to be cancelled from outside */
    const atomic_bool *stop;
    uint32_t state;
    uint64_t answers, cancelled;
    char message[512]; /* what went wrong */
} worker;

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Answers of both, as far as neither is cancelled. cmocka's checks belong to the main thread: failures are written
 * down. */
static bool answer_once(worker *w, lever_session *pair, lever_session *plain) {
    pair_way way;
    for (uint32_t f = 0; f < PAIR_FACTORS; f++) way.level[f] = (uint8_t)draw(&w->state, pairs_levels(f));
    lever_generate_options options;
    pairs_generate_options(&options, &way, 1 + draw(&w->state, ANSWER_MAX));
    options.seed = draw(&w->state, 1u << 20);
    int32_t tokens[PAIR_PROMPT];
    pairs_prompt(w->pair, draw(&w->state, 50), tokens);
    const size_t count = 1 + draw(&w->state, PAIR_PROMPT);
    pair_answer got = {0}, wanted = {0};
    lever_error error = {0};
    lever_status status = lever_session_prompt(pair, tokens, count, &error);
    if (status == LEVER_OK) status = pairs_generate(pair, &options, &got, &error);
    w->cancelled += status == LEVER_E_CANCELLED;
    if (status != LEVER_OK && status != LEVER_E_CANCELLED) {
        snprintf(w->message, sizeof(w->message), "%.400s", error.message);
        return false;
    }
    options.strategy = LEVER_STRATEGY_AR;
    if (lever_session_prompt(plain, tokens, count, &error) != LEVER_OK ||
        pairs_generate(plain, &options, &wanted, &error) != LEVER_OK) {
        snprintf(w->message, sizeof(w->message), "plain: %.400s", error.message);
        return false;
    }
    w->answers += status == LEVER_OK;
    const size_t compared = got.count < wanted.count ? got.count : wanted.count;
    if ((status == LEVER_OK && got.count != wanted.count) ||
        memcmp(got.ids, wanted.ids, compared * sizeof(got.ids[0])) != 0) {
        snprintf(w->message, sizeof(w->message), "strategy %u, tree %u, head %u, sampling %u, look-up %u, ahead %u",
                 way.level[PAIR_STRATEGY], way.level[PAIR_TREE], way.level[PAIR_HEAD], way.level[PAIR_SAMPLING],
                 way.level[PAIR_LOOKUP], way.level[PAIR_AHEAD]);
        return false;
    }
    return true;
}

static void *work(void *user) {
    worker *w = user;
    lever_session *pair = NULL, *plain = NULL;
    lever_error error;
    if (lever_session_open(&pair, w->pair, NULL, &error) == LEVER_OK &&
        lever_session_open(&plain, w->plain, NULL, &error) == LEVER_OK) {
        atomic_store(&w->session, pair);
        while (!atomic_load(w->stop) && answer_once(w, pair, plain)) continue;
        atomic_store(&w->session, NULL);
    } else {
        snprintf(w->message, sizeof(w->message), "%.400s", error.message);
    }
    lever_session_close(&plain);
    return pair; /* closed when nobody cancels it any more */
}

static void soak_one_engine(uint32_t *random, time_t end, uint64_t *answers, uint64_t *cancelled) {
    pair_way way;
    for (uint32_t f = 0; f < PAIR_FACTORS; f++) way.level[f] = (uint8_t)draw(random, pairs_levels(f));
    lever_engine_options options;
    pairs_engine_options(&options, &way);
    options.sessions_max = WORKERS;
    lever_engine *pair = lv_test_open(&options);
    lv_test_options(&options, PAIR_TARGET);
    options.sessions_max = WORKERS;
    lever_engine *plain = lv_test_open(&options);
    atomic_bool stop = false;
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    memset(workers, 0, sizeof(workers));
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].pair = pair;
        workers[i].plain = plain;
        workers[i].stop = &stop;
        workers[i].state = draw(random, 1u << 20);
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    while (time(NULL) < end && !workers[0].message[0] && !workers[1].message[0]) {
        const struct timespec pause = {.tv_nsec = (long)draw(random, 40000000)};
        nanosleep(&pause, NULL);
        lever_session *session = atomic_load(&workers[draw(random, WORKERS)].session);
        if (session && draw(random, 3) == 0) lever_session_cancel(session);
    }
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < WORKERS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        lever_session *session = result;
        lever_session_close(&session);
        if (workers[i].message[0]) fail_msg("%s; engine: %s", workers[i].message, pairs_describe(&way));
        *answers += workers[i].answers;
        *cancelled += workers[i].cancelled;
    }
    lever_engine_close(&pair);
    lever_engine_close(&plain);
}

static void test_wide_product(void **state) {
    (void)state;
    const char *wanted = getenv("LEVER_SOAK_SECONDS");
    const time_t end = time(NULL) + (wanted ? atoi(wanted) : 300);
    uint32_t random = 3;
    uint64_t answers = 0, cancelled = 0;
    do {
        const time_t next = time(NULL) + SECONDS_PER_ENGINE;
        soak_one_engine(&random, next < end ? next : end, &answers, &cancelled);
    } while (time(NULL) < end);
    print_message("%llu answers, %llu cancelled\n", (unsigned long long)answers, (unsigned long long)cancelled);
    assert_true(answers > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wide_product)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
