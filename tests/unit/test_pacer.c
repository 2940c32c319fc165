/* link: --wrap=lv_os_wait_until */
/* A disk of a stated speed, by a false clock: it moves where somebody waits, and where a test moves it. */
#include "base/pacer.h"

#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "base/os_wait.h"
#include "base/thread.h"
#include "support/check.h"
#include "support/scratch.h"
#include "support/store_world.h"

enum { MS = 1000000, RATE = 100000000 /* a byte takes 10 ns */ };

static atomic_ullong now_ns;
static atomic_uint waits_count;
static lv_pacer *stopped_by_waiting; /* NULL: none */

static uint64_t read_now(void *user) {
    (void)user;
    return atomic_load(&now_ns);
}

static const lv_clock false_clock = {read_now, NULL};

void __wrap_lv_os_wait_until(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t until_ns);
void __wrap_lv_os_wait_until(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t until_ns) {
    (void)changed;
    atomic_fetch_add(&waits_count, 1);
    if (stopped_by_waiting != NULL) {
        pthread_mutex_unlock(lock);
        lv_pacer_stop(stopped_by_waiting);
        pthread_mutex_lock(lock);
    } else if (until_ns > atomic_load(&now_ns)) {
        atomic_store(&now_ns, until_ns);
    }
}

static lv_pacer *open_pacer(uint64_t bytes_per_second) {
    lv_pacer *pacer = NULL;
    lever_error error;
    atomic_store(&now_ns, 5 * MS);
    atomic_store(&waits_count, 0);
    stopped_by_waiting = NULL;
    CHECK_OK(lv_pacer_open(&pacer, bytes_per_second, &false_clock, NULL, &error));
    return pacer;
}

static void read_one(lv_pacer *pacer, size_t bytes) {
    lv_pacer_wait(pacer, lv_pacer_begin(pacer, bytes));
}

static void a_read_takes_its_bytes_time(void **state) {
    (void)state;
    lv_pacer *pacer = open_pacer(RATE);
    for (uint64_t i = 1; i <= 3; i++) {
        read_one(pacer, RATE / 100);
        assert_int_equal(read_now(NULL), (5 + i * 10) * MS);
    }
    read_one(pacer, 0);
    assert_int_equal(read_now(NULL), 35 * MS);
    lv_pacer_close(&pacer);
    pacer = open_pacer(3); /* what does not divide is rounded up */
    assert_int_equal(lv_pacer_begin(pacer, 1), 5 * MS + 333333334);
    lv_pacer_close(&pacer);
    assert_null(pacer);
}

static void rest_saves_nothing(void **state) {
    (void)state;
    lv_pacer *pacer = open_pacer(RATE);
    read_one(pacer, RATE / 100);
    atomic_fetch_add(&now_ns, 1000 * MS);
    for (uint64_t i = 1; i <= 4; i++) {
        read_one(pacer, RATE / 100);
        assert_int_equal(read_now(NULL), (1015 + i * 10) * MS);
    }
    lv_pacer_close(&pacer);
}

static void lanes_share_the_disk(void **state) {
    (void)state;
    lv_pacer *pacer = open_pacer(RATE);
    const uint64_t a = lv_pacer_begin(pacer, RATE / 100), b = lv_pacer_begin(pacer, RATE / 50);
    const uint64_t c = lv_pacer_begin(pacer, RATE / 100);
    assert_int_equal(a, 15 * MS);
    assert_int_equal(b, 35 * MS);
    assert_int_equal(c, 45 * MS);
    lv_pacer_wait(pacer, a);
    assert_int_equal(read_now(NULL), 15 * MS);
    assert_int_equal(lv_pacer_begin(pacer, RATE / 100), 55 * MS); /* the first lane again, behind the others */
    lv_pacer_wait(pacer, c);
    assert_int_equal(read_now(NULL), 45 * MS);
    lv_pacer_wait(pacer, b);
    assert_int_equal(read_now(NULL), 45 * MS);
    assert_int_equal(atomic_load(&waits_count), 2);
    lv_pacer_close(&pacer);
}

/* The real disk was slower: nothing is added, and no time is made up for. */
static void a_slower_real_disk_is_not_sped_up(void **state) {
    (void)state;
    lv_pacer *pacer = open_pacer(RATE);
    const uint64_t end = lv_pacer_begin(pacer, RATE / 100);
    atomic_fetch_add(&now_ns, 50 * MS);
    lv_pacer_wait(pacer, end);
    assert_int_equal(read_now(NULL), 55 * MS);
    assert_int_equal(atomic_load(&waits_count), 0);
    read_one(pacer, RATE / 100);
    assert_int_equal(read_now(NULL), 65 * MS);
    lv_pacer_close(&pacer);
}

static void without_one_nothing_waits(void **state) {
    (void)state;
    lv_pacer *none = NULL;
    atomic_store(&waits_count, 0);
    lv_pacer_wait(none, lv_pacer_begin(none, SIZE_MAX));
    lv_pacer_wait(none, UINT64_MAX);
    lv_pacer_stop(none);
    lv_pacer_close(&none);
    assert_int_equal(atomic_load(&waits_count), 0);
}

static void stopping_ends_waits(void **state) {
    (void)state;
    lv_pacer *pacer = open_pacer(1);
    stopped_by_waiting = pacer;
    read_one(pacer, SIZE_MAX >> 32);
    assert_int_equal(atomic_load(&waits_count), 1);
    read_one(pacer, SIZE_MAX >> 32);
    assert_int_equal(atomic_load(&waits_count), 1);
    assert_int_equal(read_now(NULL), 5 * MS);
    lv_pacer_close(&pacer);
}

/* --- Who reads ---------------------------------------------------------------------------------------------------- */

enum { READERS = 4, READS = 50 };

typedef struct {
    lv_pacer *pacer;
    size_t bytes;
    lv_thread thread;
} reader;

static void *read_often(void *user) {
    const reader *r = user;
    for (int i = 0; i < READS; i++) read_one(r->pacer, r->bytes);
    return NULL;
}

static void threads_take_the_time_of_all(void **state) {
    (void)state;
    lv_pacer *pacer = open_pacer(RATE);
    reader readers[READERS];
    lever_error error;
    uint64_t bytes = 0;
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = (reader){.pacer = pacer, .bytes = 1000 * (i + 1)};
        bytes += READS * readers[i].bytes;
        CHECK_OK(lv_thread_start(&readers[i].thread, NULL, read_often, &readers[i], "reader", &error));
    }
    for (size_t i = 0; i < READERS; i++) lv_thread_join(&readers[i].thread);
    assert_int_equal(read_now(NULL), 5 * MS + bytes * 10);
    lv_pacer_close(&pacer);
}

/* Whole pages where reads are direct, and what is asked for where they are not. */
static void files_are_read_at_its_pace(void **state) {
    (void)state;
    static uint8_t data[3 * 4096 + 100];
    char path[4096];
    scratch_write("paced", data, sizeof data, path, sizeof path);
    for (int direct = 0; direct < 2; direct++) {
        lv_pacer *pacer = open_pacer(RATE);
        lv_file *file = NULL;
        lever_error error;
        uint8_t to[5000];
        CHECK_OK(lv_file_open(&file, path, &(lv_file_options){.direct = direct, .pacer = pacer}, &error));
        assert_int_equal(read_now(NULL), 5 * MS);
        CHECK_OK(lv_file_read(file, to, 10, 5000, &error));
        const uint64_t bytes = lv_file_is_direct(file) ? 8192 : 5000;
        assert_int_equal(read_now(NULL), 5 * MS + bytes * 10);
        assert_int_not_equal(lv_file_read(file, to, sizeof data, 1, &error), LEVER_OK);
        assert_int_equal(read_now(NULL), 5 * MS + bytes * 10);
        lv_file_close(&file);
        lv_pacer_close(&pacer);
    }
}

/* No lane, no pinned block and no row gets past it. */
static void a_store_is_read_at_its_pace(void **state) {
    (void)state;
    char path[4096];
    scratch_path("model.gguf", path, sizeof path);
    world_write(path, false);
    const world_options cases[] = {
        {.slots = 2, .lanes = 1}, {.slots = 4, .lanes = 3, .buffered = true}, {.slots = 3, .lanes = 2, .pinned = 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lv_pacer *pacer = open_pacer(RATE);
        world_options options = cases[i];
        options.clock = &false_clock;
        options.pacer = pacer;
        world w;
        lever_error error;
        CHECK_OK(world_open(&w, path, &options, &error));
        uint64_t pinned_bytes = 0;
        for (uint32_t b = 0; b < w.layout->blocks_count; b++) {
            if (w.pinned[b]) pinned_bytes += w.layout->blocks[b].bytes;
        }
        assert_true(read_now(NULL) >= 5 * MS + pinned_bytes * 10);
        for (int pass = 0; pass < 3; pass++) CHECK_OK(world_pass(&w, false, &error));
        lv_store_counters counters;
        lv_store_get_counters(w.store, &counters);
        assert_true(counters.bytes_read > 0);
        assert_true(read_now(NULL) >= 5 * MS + (pinned_bytes + counters.bytes_read) * 10);
        world_close(&w);
        lv_pacer_close(&pacer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_takes_its_bytes_time),  cmocka_unit_test(rest_saves_nothing),
        cmocka_unit_test(lanes_share_the_disk),         cmocka_unit_test(a_slower_real_disk_is_not_sped_up),
        cmocka_unit_test(without_one_nothing_waits),    cmocka_unit_test(stopping_ends_waits),
        cmocka_unit_test(threads_take_the_time_of_all), cmocka_unit_test(files_are_read_at_its_pace),
        cmocka_unit_test(a_store_is_read_at_its_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
