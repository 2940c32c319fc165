/* system.c - reads the kernel's text files about memory.
 *
 * A process may sit in a cgroup of version 1 or 2, below others that have limits too, and inside a container the path
 * in /proc/self/cgroup may be that of the host, which is not mounted here. So the path is tried from the whole of it
 * up to the root, and the level that leaves the least room counts. Page cache that the kernel can take back does not
 * count as used. */
#include "base/system.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define PATH_BYTES 1024

static FILE *open_below(const char *root, const char *path) {
    char whole[2 * PATH_BYTES];
    int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    return length > 0 && (size_t)length < sizeof whole ? fopen(whole, "re") : NULL;
}

typedef struct {
    const char *name; /* NULL: the end of a list */
    uint64_t *value;
} wanted_line;

/* Lines of the form "Name:   123 kB" or "name 123"; what is found is stored, in bytes. */
static void read_named(const char *root, const char *path, const wanted_line *wanted) {
    FILE *file = open_below(root, path);
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        char name[64], unit[8] = "";
        uint64_t number = 0;
        if (sscanf(line, "%63[^: \t]%*[: \t]%" SCNu64 " %7s", name, &number, unit) < 2) continue;
        for (const wanted_line *entry = wanted; entry->name; entry++)
            if (strcmp(name, entry->name) == 0) *entry->value = strcmp(unit, "kB") == 0 ? number * 1024 : number;
    }
    fclose(file);
}

void lv_process_memory_read(const char *root, lv_process_memory *memory) {
    *memory = (lv_process_memory){0};
    read_named(root, "/proc/self/status",
               (const wanted_line[]){{"VmRSS", &memory->rss_bytes},
                                     {"VmHWM", &memory->rss_peak_bytes},
                                     {"RssFile", &memory->rss_file_bytes},
                                     {"RssAnon", &memory->rss_anon_bytes},
                                     {NULL, NULL}});
    read_named(root, "/proc/self/smaps_rollup",
               (const wanted_line[]){{"AnonHugePages", &memory->huge_page_bytes}, {NULL, NULL}});
}

/* A file that holds one number; "max" and what looks like no limit (version 1 says 2^63 less a page) is UINT64_MAX. */
static bool read_number(const char *root, const char *path, uint64_t *number) {
    FILE *file = open_below(root, path);
    if (!file) return false;
    char line[64] = "";
    bool found = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    if (!found) return false;
    if (strncmp(line, "max", 3) == 0) {
        *number = UINT64_MAX;
        return true;
    }
    if (sscanf(line, "%" SCNu64, number) != 1) return false;
    if (*number >= UINT64_C(1) << 60) *number = UINT64_MAX;
    return true;
}

typedef struct {
    const char *mount, *limit, *used;
    const char *inactive, *active; /* lines of memory.stat: page cache */
} cgroup_files;

static const cgroup_files files_v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "total_inactive_file", "total_active_file"};
static const cgroup_files files_v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};

/* Keeps the numbers of the folder `group` when it leaves less room than what was found so far. */
static void read_cgroup_level(const char *root, const cgroup_files *files, const char *group,
                              lv_system_memory *memory) {
    char path[2 * PATH_BYTES];
    uint64_t limit = 0, used = 0;
    snprintf(path, sizeof path, "%s%s/%s", files->mount, group, files->limit);
    if (!read_number(root, path, &limit) || limit == UINT64_MAX) return;
    snprintf(path, sizeof path, "%s%s/%s", files->mount, group, files->used);
    if (!read_number(root, path, &used)) used = 0;

    uint64_t inactive = 0, active = 0;
    snprintf(path, sizeof path, "%s%s/memory.stat", files->mount, group);
    read_named(root, path, (const wanted_line[]){{files->inactive, &inactive}, {files->active, &active}, {NULL, NULL}});
    uint64_t reclaimable = inactive + active;
    used = used > reclaimable ? used - reclaimable : 0;

    uint64_t room = limit > used ? limit - used : 0;
    uint64_t known_room = memory->cgroup_limit == UINT64_MAX           ? UINT64_MAX
                          : memory->cgroup_limit > memory->cgroup_used ? memory->cgroup_limit - memory->cgroup_used
                                                                       : 0;
    if (room >= known_room) return;
    memory->cgroup_limit = limit;
    memory->cgroup_used = used;
}

/* The path of this process in a line of /proc/self/cgroup ("4:memory:/a/b", "0::/a/b"), NULL when the line is not
 * about memory. */
static const char *cgroup_path(char *line, const cgroup_files **files) {
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return NULL;
    *controllers++ = '\0';
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (strcmp(line, "0") == 0 && controllers[0] == '\0') {
        *files = &files_v2;
        return path;
    }
    char *rest = NULL;
    for (char *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "memory") != 0) continue;
        *files = &files_v1;
        return path;
    }
    return NULL;
}

static void read_cgroups(const char *root, lv_system_memory *memory) {
    FILE *file = open_below(root, "/proc/self/cgroup");
    if (!file) return;
    char line[PATH_BYTES];
    while (fgets(line, sizeof line, file)) {
        const cgroup_files *files = NULL;
        const char *path = cgroup_path(line, &files);
        if (!path) continue;
        char group[PATH_BYTES];
        snprintf(group, sizeof group, "%s", path);
        for (;;) {
            char *slash = strrchr(group, '/');
            if (slash && slash[1] == '\0') *slash = '\0'; /* "/" and "/a/" */
            read_cgroup_level(root, files, group, memory);
            slash = strrchr(group, '/');
            if (!slash) break;
            *slash = '\0';
        }
    }
    fclose(file);
}

void lv_system_memory_read(const char *root, lv_system_memory *memory) {
    *memory = (lv_system_memory){.cgroup_limit = UINT64_MAX};
    read_named(root, "/proc/meminfo",
               (const wanted_line[]){
                   {"MemTotal", &memory->total_bytes}, {"MemAvailable", &memory->available_bytes}, {NULL, NULL}});

    long page_bytes = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES), free_pages = sysconf(_SC_AVPHYS_PAGES);
    if (memory->total_bytes == 0 && page_bytes > 0 && pages > 0)
        memory->total_bytes = (uint64_t)page_bytes * (uint64_t)pages;
    if (memory->available_bytes == 0 && page_bytes > 0 && free_pages > 0)
        memory->available_bytes = (uint64_t)page_bytes * (uint64_t)free_pages;

    read_cgroups(root, memory);
    memory->usable_bytes = memory->available_bytes;
    if (memory->cgroup_limit != UINT64_MAX) {
        uint64_t room = memory->cgroup_limit > memory->cgroup_used ? memory->cgroup_limit - memory->cgroup_used : 0;
        if (room < memory->usable_bytes) memory->usable_bytes = room;
    }
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345" */
static bool read_stalls(const char *root, const char *path, uint64_t *stalled_us) {
    FILE *file = open_below(root, path);
    if (!file) return false;
    char line[128];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        const char *total = strncmp(line, "some ", 5) == 0 ? strstr(line, "total=") : NULL;
        found = total && sscanf(total, "total=%" SCNu64, stalled_us) == 1;
    }
    fclose(file);
    return found;
}

/* The path of this process's cgroup of version 2; false: none. */
static bool find_cgroup_v2(const char *root, char *group, size_t capacity) {
    FILE *file = open_below(root, "/proc/self/cgroup");
    if (!file) return false;
    char line[PATH_BYTES];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        const cgroup_files *files = NULL;
        const char *path = cgroup_path(line, &files);
        found = path && files == &files_v2;
        if (found) snprintf(group, capacity, "%s", path);
    }
    fclose(file);
    return found;
}

void lv_system_pressure_read(const char *root, lv_system_pressure *pressure) {
    *pressure = (lv_system_pressure){0};
    char group[PATH_BYTES], path[2 * PATH_BYTES];
    bool found = false;
    if (find_cgroup_v2(root, group, sizeof group)) {
        snprintf(path, sizeof path, "%s%s/memory.events", files_v2.mount, group);
        read_named(root, path, (const wanted_line[]){{"high", &pressure->high_events}, {NULL, NULL}});
        snprintf(path, sizeof path, "%s%s/memory.pressure", files_v2.mount, group);
        found = read_stalls(root, path, &pressure->stalled_us);
    }
    if (!found) (void)read_stalls(root, "/proc/pressure/memory", &pressure->stalled_us);
}

void lv_system_trim_heap(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
