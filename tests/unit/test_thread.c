/* Threads: booked stacks, failures; and which processors count as fast. */
#include "base/thread.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

static void *add_one(void *user) {
    atomic_fetch_add((atomic_int *)user, 1);
    return NULL;
}

static void test_start_and_join(void **state) {
    (void)state;
    lever_error error;
    atomic_int sum = 0;
    lv_ledger *ledger = lv_ledger_create(LV_THREAD_STACK_BYTES);
    lv_thread thread, refused;
    CHECK_OK(lv_thread_start(&thread, ledger, add_one, &sum, "a name longer than the kernel takes", &error));
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_STACKS), LV_THREAD_STACK_BYTES);
    CHECK_FAILS(lv_thread_start(&refused, ledger, add_one, &sum, "reader 1", &error), LEVER_E_BUDGET, "'reader 1'");
    lv_thread_join(&refused);
    lv_thread_join(&thread);
    lv_thread_join(&thread);
    assert_int_equal(sum, 1);
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
}

/* Makes a folder like /sys in which processor i has kinds[i % 3]; 0: the file is missing. */
static const char *fake_sysfs(const char *folder, const char *file, const unsigned kinds[3]) {
    static char root[512];
    char path[512], name[128], text[32];
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && cpu < (unsigned)sysconf(_SC_NPROCESSORS_CONF); cpu++) {
        if (!kinds[cpu % 3]) continue;
        snprintf(name, sizeof name, "%s/devices/system/cpu/cpu%u/%s", folder, cpu, file);
        int length = snprintf(text, sizeof text, "%u\n", kinds[cpu % 3]);
        scratch_write(name, text, (size_t)length, path, sizeof path);
    }
    return scratch_path(folder, root, sizeof root);
}

/* Allowed processors with at least three quarters of the best one's number. */
static uint32_t wanted_count(const unsigned kinds[3]) {
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    unsigned best = 0;
    uint32_t count = 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && kinds[cpu % 3] > best) best = kinds[cpu % 3];
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        count += CPU_ISSET(cpu, &allowed) && 4 * kinds[cpu % 3] >= 3 * best;
    return count;
}

/* All orders, so that a machine with two processors sees every pair of kinds. */
static void test_fast_processors(void **state) {
    (void)state;
    static const unsigned orders[][3] = {{1024, 250, 800}, {1024, 800, 250}, {250, 1024, 800}, {800, 767, 1024}};
    for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++) {
        char folder[32];
        snprintf(folder, sizeof folder, "capacity%u", i);
        assert_int_equal(lv_cpu_fast_count(fake_sysfs(folder, "cpu_capacity", orders[i])), wanted_count(orders[i]));
        snprintf(folder, sizeof folder, "frequency%u", i);
        assert_int_equal(lv_cpu_fast_count(fake_sysfs(folder, "cpufreq/cpuinfo_max_freq", orders[i])),
                         wanted_count(orders[i]));
    }
}

static void test_unknown_processors(void **state) {
    (void)state;
    const unsigned alike[3] = {1, 1, 1};
    /* Numbers that some lack cannot be compared: all processors count. */
    assert_int_equal(lv_cpu_fast_count(fake_sysfs("gap0", "cpu_capacity", (unsigned[3]){1024, 0, 100})),
                     wanted_count(alike));
    assert_int_equal(lv_cpu_fast_count(fake_sysfs("gap1", "cpu_capacity", (unsigned[3]){0, 1024, 100})),
                     wanted_count(alike));
    assert_int_equal(lv_cpu_fast_count("/nonexistent"), wanted_count(alike));
    assert_true(lv_cpu_fast_count("/sys") >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_and_join),
        cmocka_unit_test(test_fast_processors),
        cmocka_unit_test(test_unknown_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
