/* thread.c - starting and joining threads, and counting fast processors.
 *
 * Processors of phones come in two or three kinds, and those of PCs differ by what each core may boost to. Waiting for
 * a slow core costs more than its help is worth, but a "prime" core alone is not the fast kind either. So all cores
 * within a quarter of the best count as fast: capacity (arm64: relative speed, 1024 the best) where the kernel tells
 * it, else the highest frequency. Little cores have a third of the capacity, or half the frequency. */
#include "base/thread.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

int lv_condition_open(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    int failure = pthread_condattr_init(&attributes);
    if (failure != 0) return failure;
    failure = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (failure == 0) failure = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return failure;
}

lever_status lv_thread_start(lv_thread *thread, lv_ledger *ledger, void *(*run)(void *), void *user, const char *name,
                             lever_error *error) {
    *thread = (lv_thread){.ledger = ledger, .stack_bytes = LV_THREAD_STACK_BYTES};
    lever_status status = lv_ledger_reserve(ledger, LV_MEM_STACKS, thread->stack_bytes, error);
    if (status != LEVER_OK) {
        lv_error_prefix(error, "thread '%s': ", name);
        return status;
    }
    pthread_attr_t attributes;
    int failure = pthread_attr_init(&attributes);
    if (failure == 0) {
        failure = pthread_attr_setstacksize(&attributes, thread->stack_bytes);
        if (failure == 0) failure = pthread_create(&thread->id, &attributes, run, user);
        pthread_attr_destroy(&attributes);
    }
    if (failure != 0) {
        lv_ledger_release(ledger, LV_MEM_STACKS, thread->stack_bytes);
        return lv_fail(error, LEVER_E_MEMORY, "The thread '%s' could not be started: %s.", name, strerror(failure));
    }
    thread->running = true;
    char short_name[16]; /* the kernel's limit */
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(thread->id, short_name);
    return LEVER_OK;
}

void lv_thread_join(lv_thread *thread) {
    if (!thread->running) return;
    pthread_join(thread->id, NULL);
    thread->running = false;
    lv_ledger_release(thread->ledger, LV_MEM_STACKS, thread->stack_bytes);
}

/* The number in a file of one processor's folder; 0 when it is not there. */
static uint64_t cpu_number(const char *sysfs_root, unsigned cpu, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%u/%s", sysfs_root, cpu, name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    char line[64];
    uint64_t number = 0;
    if (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (!lv_parse_u64(line, 0, UINT64_MAX / 4, &number)) number = 0;
    }
    fclose(file);
    return number;
}

/* Allowed processors of which `name` is at least three quarters of the best's; 0 when any of them lacks the number. */
static uint32_t count_fast(const char *sysfs_root, const cpu_set_t *allowed, const char *name) {
    uint64_t best = 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, allowed)) continue;
        uint64_t number = cpu_number(sysfs_root, cpu, name);
        if (number == 0) return 0;
        if (number > best) best = number;
    }
    uint32_t count = 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && 4 * cpu_number(sysfs_root, cpu, name) >= 3 * best) count++;
    return count;
}

uint32_t lv_cpu_fast_count(const char *sysfs_root) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (uint32_t)online : 1;
    }
    uint32_t count = count_fast(sysfs_root, &allowed, "cpu_capacity");
    if (count == 0) count = count_fast(sysfs_root, &allowed, "cpufreq/cpuinfo_max_freq");
    return count ? count : (uint32_t)CPU_COUNT(&allowed);
}
