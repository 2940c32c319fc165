/* No round of a barrier is lost, whether threads spin or sleep, and what was written before it is seen after it. */
#include "compute/barrier.h"

#include <pthread.h>
#include <time.h>

#include "support/check.h"

enum { THREADS_MAX = 8 };

typedef struct {
    lv_barrier barrier;
    uint32_t threads, rounds;
    long late_ns;                  /* thread 0 comes so much later, so that the others sleep */
    uint32_t arrived[THREADS_MAX]; /* rounds of each thread: plain, so that a barrier that orders nothing is a race */
    atomic_uint wrong;
} crowd;

typedef struct {
    crowd *crowd;
    uint32_t index;
} member;

static void come_late(long ns) {
    const struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
}

/* Two barriers a round: one before the others are looked at, one before they go on. */
static void *run_member(void *user) {
    const member *m = user;
    crowd *c = m->crowd;
    for (uint32_t round = 1; round <= c->rounds; round++) {
        if (m->index == 0 && c->late_ns > 0) come_late(c->late_ns);
        c->arrived[m->index] = round;
        lv_barrier_wait(&c->barrier, c->threads);
        for (uint32_t i = 0; i < c->threads; i++) {
            if (c->arrived[i] != round) atomic_fetch_add(&c->wrong, 1);
        }
        lv_barrier_wait(&c->barrier, c->threads);
    }
    return NULL;
}

static void check_crowd(uint32_t threads, uint32_t rounds, long late_ns) {
    crowd c = {.threads = threads, .rounds = rounds, .late_ns = late_ns};
    member members[THREADS_MAX];
    pthread_t handles[THREADS_MAX];
    for (uint32_t i = 0; i < threads; i++) {
        members[i] = (member){&c, i};
        assert_int_equal(pthread_create(&handles[i], NULL, run_member, &members[i]), 0);
    }
    for (uint32_t i = 0; i < threads; i++) assert_int_equal(pthread_join(handles[i], NULL), 0);
    if (atomic_load(&c.wrong) > 0) {
        fail_msg("%u threads, %u rounds: %u times a thread was let through too early", threads, rounds,
                 atomic_load(&c.wrong));
    }
    for (uint32_t i = 0; i < threads; i++) assert_int_equal(c.arrived[i], rounds);
    assert_int_equal(atomic_load(&c.barrier.arrived), 0);
    assert_int_equal(atomic_load(&c.barrier.round), 2 * rounds);
    assert_int_equal(atomic_load(&c.barrier.sleepers), 0);
}

/* More threads than processors: the late one may sit behind those that wait for it. */
static void test_many_rounds(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= THREADS_MAX; threads++) check_crowd(threads, 8000 / threads / threads, 0);
}

static void test_sleepers_are_woken(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= THREADS_MAX; threads += 3) check_crowd(threads, 40, 2000000);
}

/* The number of rounds passes the range of its counter. */
static void *run_short(void *user) {
    for (int i = 0; i < 100; i++) lv_barrier_wait(user, 2);
    return NULL;
}

static void test_counter_wraps(void **state) {
    (void)state;
    lv_barrier barrier = {0};
    atomic_store(&barrier.round, UINT32_MAX - 50);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, run_short, &barrier), 0);
    run_short(&barrier);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(atomic_load(&barrier.round), 49);
}

static void test_alone(void **state) {
    (void)state;
    lv_barrier barrier = {0};
    lv_barrier_wait(&barrier, 1);
    lv_barrier_wait(&barrier, 1);
    assert_int_equal(atomic_load(&barrier.arrived), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_rounds),
        cmocka_unit_test(test_sleepers_are_woken),
        cmocka_unit_test(test_counter_wraps),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
