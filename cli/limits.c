/* limits.c - see limits.h. */
#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "terminal.h"

/* --- Small files of the kernel --- */

static bool join(char path[PATH_BYTES], const char *root, const char *folder, const char *name) {
    const int length = snprintf(path, PATH_BYTES, "%s%s/%s", root, folder, name);
    return length > 0 && length < PATH_BYTES;
}

static FILE *open_file(const char *root, const char *folder, const char *name, const char *mode) {
    char path[PATH_BYTES];
    return join(path, root, folder, name) ? fopen(path, mode) : NULL;
}

static bool exists(const char *root, const char *folder, const char *name) {
    char path[PATH_BYTES];
    return join(path, root, folder, name) && access(path, F_OK) == 0;
}

static bool put(const char *root, const char *folder, const char *name, const char *text) {
    FILE *file = open_file(root, folder, name, "we");
    if (file == NULL) return false;
    const bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written;
}

static uint64_t read_number(const char *root, const char *folder, const char *name) {
    FILE *file = open_file(root, folder, name, "re");
    uint64_t number = 0;
    if (file == NULL) return 0;
    if (fscanf(file, "%" SCNu64, &number) != 1) number = 0;
    fclose(file);
    return number;
}

/* Is `word` one of the words of a file? */
static bool has_word(const char *root, const char *folder, const char *name, const char *word) {
    FILE *file = open_file(root, folder, name, "re");
    char found[64];
    bool has = false;
    while (file != NULL && !has && fscanf(file, "%63s", found) == 1) has = strcmp(found, word) == 0;
    if (file != NULL) fclose(file);
    return has;
}

static bool has_option(char *list, const char *wanted) {
    while (list != NULL) {
        if (strcmp(strsep(&list, ","), wanted) == 0) return true;
    }
    return false;
}

/* --- Groups --- */

/* The folder of the hierarchy that has a controller; its version, or 0. */
static int find_controller(const char *root, const char *controller, char folder[PATH_BYTES]) {
    FILE *mounts = open_file(root, "/proc/self", "mounts", "re");
    if (mounts == NULL) return 0;
    char line[2 * PATH_BYTES];
    int version = 0;
    while (version == 0 && fgets(line, sizeof line, mounts) != NULL) {
        char *rest = line;
        (void)strsep(&rest, " ");
        const char *mounted = strsep(&rest, " "), *kind = strsep(&rest, " ");
        char *list = strsep(&rest, " ");
        if (mounted == NULL || kind == NULL || list == NULL || strlen(mounted) >= PATH_BYTES) continue;
        if (strcmp(kind, "cgroup") == 0 && has_option(list, controller)) version = 1;
        if (strcmp(kind, "cgroup2") == 0 && has_word(root, mounted, "cgroup.controllers", controller)) version = 2;
        if (version != 0) snprintf(folder, PATH_BYTES, "%s", mounted);
    }
    fclose(mounts);
    return version;
}

static void refuse(limits *held, const char *why) {
    snprintf(held->refused, sizeof held->refused, "memory: %s", why);
}

/* Makes a group below the hierarchy for memory. False: what went wrong was told. */
static bool make_group(limits *held) {
    char top[PATH_BYTES], path[PATH_BYTES], name[32];
    const int version = find_controller(held->root, "memory", top);
    if (version == 0) {
        refuse(held, "this system has no control groups for it");
        return false;
    }
    if (version == 2 && !has_word(held->root, top, "cgroup.subtree_control", "memory")) {
        (void)put(held->root, top, "cgroup.subtree_control", "+memory"); /* when refused, the limit's file is missing */
    }
    snprintf(name, sizeof name, "lever-%d", (int)getpid());
    if (!join(held->folder, "", top, name) || !join(path, held->root, top, name) || mkdir(path, 0755) != 0) {
        refuse(held, "a control group cannot be made (limits want root)");
        return false;
    }
    held->version = version;
    return true;
}

static void limit_memory(limits *held, uint64_t bytes) {
    char text[32];
    if (!make_group(held)) return;
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    if (!put(held->root, held->folder, held->version == 1 ? "memory.limit_in_bytes" : "memory.max", text)) {
        refuse(held, "the control group does not take the limit");
        return;
    }
    /* Swap counts too; where it is not accounted there is no such file. */
    if (held->version == 1 && exists(held->root, held->folder, "memory.memsw.limit_in_bytes")) {
        (void)put(held->root, held->folder, "memory.memsw.limit_in_bytes", text);
    }
    if (held->version == 2 && exists(held->root, held->folder, "memory.swap.max")) {
        (void)put(held->root, held->folder, "memory.swap.max", "0");
    }
    held->memory_bytes = bytes;
}

void limits_open(limits *held, uint64_t memory_bytes, const char *root) {
    *held = (limits){.root = root, .peak_file = -1};
    if (memory_bytes > 0) limit_memory(held, memory_bytes);
}

bool limits_enter(limits *held) {
    char process[32];
    snprintf(process, sizeof process, "%d", (int)getpid());
    if (put(held->root, held->folder, "cgroup.procs", process)) return true;
    refuse(held, "the control group does not take the process");
    held->memory_bytes = 0;
    return false;
}

/* Version 2 (Linux 6.12 and later) counts anew only for who reads through the file that was written to. */
static bool restart_peak_v2(limits *held) {
    char path[PATH_BYTES];
    if (held->peak_file < 0 && join(path, held->root, held->folder, "memory.peak")) {
        held->peak_file = open(path, O_RDWR | O_CLOEXEC);
    }
    return held->peak_file >= 0 && pwrite(held->peak_file, "0", 1, 0) == 1;
}

void limits_restart_peak(limits *held) {
    if (held->version == 0) return;
    held->peak_known =
        held->version == 1 ? put(held->root, held->folder, "memory.max_usage_in_bytes", "0") : restart_peak_v2(held);
}

uint64_t limits_memory_peak(const limits *held) {
    if (held->version == 0 || !held->peak_known) return 0;
    if (held->version == 1) return read_number(held->root, held->folder, "memory.max_usage_in_bytes");
    char text[32] = "";
    return pread(held->peak_file, text, sizeof text - 1, 0) > 0 ? strtoull(text, NULL, 10) : 0;
}

uint64_t limits_memory_kills(const limits *held) {
    if (held->version == 0) return 0;
    const char *name = held->version == 1 ? "memory.oom_control" : "memory.events";
    FILE *file = open_file(held->root, held->folder, name, "re");
    if (file == NULL) return 0;
    char word[64];
    uint64_t number, kills = 0;
    while (fscanf(file, "%63s %" SCNu64, word, &number) == 2) {
        if (strcmp(word, "oom_kill") == 0) kills = number;
    }
    fclose(file);
    return kills;
}

void limits_close(limits *held) {
    if (held->peak_file >= 0) close(held->peak_file);
    held->peak_file = -1;
    char path[PATH_BYTES];
    if (held->version == 0 || !join(path, held->root, held->folder, "")) return;
    /* A process that was killed leaves its group a moment later. */
    for (int tries = 0; rmdir(path) != 0 && errno == EBUSY && tries < 50; tries++) {
        if (held->version == 1) (void)put(held->root, held->folder, "memory.force_empty", "0");
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    held->version = 0;
}

/* --- The child --- */

/* A signal handler has no other way to know it. */
static volatile sig_atomic_t child_process;

static void pass_on(int number) {
    if (child_process > 0) kill((pid_t)child_process, number);
}

static int wait_for(pid_t child, const limits *held, char killed[256]) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    child_process = 0;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const bool memory = limits_memory_kills(held) > 0;
    char size[32];
    snprintf(killed, 256, memory ? "killed by the kernel: the limit of %s was passed" : "killed by signal %s",
             memory ? lv_format_size(held->memory_bytes, size, sizeof size) : strsignal(WTERMSIG(status)));
    return memory ? EXIT_BUDGET : EXIT_OTHER;
}

int limits_run(uint64_t memory_bytes, int (*work)(void *user, limits *held), void *user, char killed[256]) {
    killed[0] = '\0';
    limits held;
    limits_open(&held, memory_bytes, "");
    if (held.version == 0) return work(user, &held);
    fflush(NULL);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody measures on beside a run that goes on with the rows */
        if (getppid() != parent) _exit(EXIT_OTHER);
        (void)limits_enter(&held);
        const int code = work(user, &held);
        fflush(NULL);
        _exit(code);
    }
    int code = EXIT_OTHER;
    if (child > 0) {
        child_process = (sig_atomic_t)child;
        struct sigaction action = {.sa_handler = SIG_IGN}; /* Ctrl-C reaches the child by itself */
        sigaction(SIGINT, &action, NULL);
        action.sa_handler = pass_on;
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGHUP, &action, NULL);
        code = wait_for(child, &held, killed);
    } else {
        snprintf(killed, 256, "no process could be started: %s", strerror(errno));
    }
    limits_close(&held);
    return code;
}

/* --- The page cache --- */

void limits_drop_cache(const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    (void)fdatasync(file); /* pages that are not yet written would stay */
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
}

uint64_t limits_cached_bytes(const char *path) {
    struct stat status;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0 || status.st_size <= 0) {
        if (file >= 0) close(file);
        return 0;
    }
    const size_t bytes = (size_t)status.st_size, page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t pages = (bytes + page - 1) / page;
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return 0;
    unsigned char *states = calloc(pages, 1);
    uint64_t cached = 0;
    if (states != NULL && mincore(mapped, bytes, states) == 0) {
        for (size_t i = 0; i < pages; i++) cached += (states[i] & 1) * page;
    }
    free(states);
    munmap(mapped, bytes);
    return cached;
}
