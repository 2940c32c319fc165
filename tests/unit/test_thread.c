/* Threads: booked stacks, failures; and which processors count as fast. */
#include "base/thread.h"

#include <sched.h>
#include <stdatomic.h>

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
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!kinds[cpu % 3]) continue;
        snprintf(name, sizeof name, "%s/devices/system/cpu/cpu%u/%s", folder, cpu, file);
        int length = snprintf(text, sizeof text, "%u\n", kinds[cpu % 3]);
        scratch_write(name, text, (size_t)length, path, sizeof path);
    }
    return scratch_path(folder, root, sizeof root);
}

/* Allowed processors whose number modulo 3 has its bit in `kinds`. */
static uint32_t allowed_count(unsigned kinds) {
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    uint32_t count = 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) count += CPU_ISSET(cpu, &allowed) && (kinds >> cpu % 3 & 1);
    return count;
}

static void test_fast_processors(void **state) {
    (void)state;
    /* Processors 0, 3, 6.. / 1, 4, 7.. / 2, 5, 8... Those that the process may not use do not count: with processors
     * missing the best of what is there is the measure. */
    if (allowed_count(1) == 0 || allowed_count(2) == 0) skip();
    const char *capacities = fake_sysfs("capacity", "cpu_capacity", (unsigned[3]){1024, 250, 800});
    assert_int_equal(lv_cpu_fast_count(capacities), allowed_count(1 | 4));
    const char *frequencies =
        fake_sysfs("frequency", "cpufreq/cpuinfo_max_freq", (unsigned[3]){1800000, 3200000, 2800000});
    assert_int_equal(lv_cpu_fast_count(frequencies), allowed_count(2 | 4));
    const char *gaps = fake_sysfs("gaps", "cpu_capacity", (unsigned[3]){1024, 0, 800});
    assert_int_equal(lv_cpu_fast_count(gaps), allowed_count(7)); /* not comparable: all count */
    assert_int_equal(lv_cpu_fast_count("/nonexistent"), allowed_count(7));
    assert_true(lv_cpu_fast_count("/sys") >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_and_join),
        cmocka_unit_test(test_fast_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
