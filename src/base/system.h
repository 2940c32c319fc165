/* system.h - what the operating system says about memory.
 *
 * Reads /proc and cgroup files; every function copes with files that are missing or unreadable. `root` is "" except in
 * tests, where it is put in front of every path. Any thread. */
#ifndef LV_BASE_SYSTEM_H
#define LV_BASE_SYSTEM_H

#include <stdint.h>

typedef struct {
    uint64_t rss_bytes;       /* VmRSS; 0: unknown */
    uint64_t rss_peak_bytes;  /* VmHWM */
    uint64_t rss_file_bytes;  /* RssFile: mapped files, code above all */
    uint64_t rss_anon_bytes;  /* RssAnon */
    uint64_t huge_page_bytes; /* AnonHugePages of the process, from smaps_rollup */
} lv_process_memory;

void lv_process_memory_read(const char *root, lv_process_memory *memory);

typedef struct {
    uint64_t total_bytes;
    uint64_t available_bytes; /* MemAvailable, or what sysconf says */
    uint64_t cgroup_limit;    /* UINT64_MAX: none; v1 and v2 */
    uint64_t cgroup_used;     /* without what can be reclaimed */
    uint64_t usable_bytes;    /* the smaller of available and what the cgroup leaves */
} lv_system_memory;

void lv_system_memory_read(const char *root, lv_system_memory *memory);

/* Counters that only grow; 0 where the system does not tell. */
typedef struct {
    uint64_t stalled_us;  /* in which some thread of the cgroup, or of the system, waited for memory */
    uint64_t high_events; /* times that the cgroup was throttled at its high mark (version 2) */
} lv_system_pressure;

void lv_system_pressure_read(const char *root, lv_system_pressure *pressure);

/* Gives freed heap memory back to the system where the C library can. */
void lv_system_trim_heap(void);

#endif
