/* bench_caches.c - see bench_caches.h. The lock tells a folder in use from one that was left behind: it ends with the
 * process, however that ends, and is inherited by the one that works under limits. */
#include "bench_caches.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_BEGIN "bench-arms-"

static bool join(char path[PATH_BYTES], const char *folder, const char *name) {
    const int length = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return length > 0 && length < PATH_BYTES;
}

static bool is_above(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool ends_with(const char *text, const char *ending) {
    const size_t length = strlen(text), of_ending = strlen(ending);
    return length >= of_ending && strcmp(text + length - of_ending, ending) == 0;
}

/* Removes a folder of files. */
static void remove_folder(const char *folder) {
    char path[PATH_BYTES];
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (!is_above(entry->d_name) && join(path, folder, entry->d_name)) (void)unlink(path);
    }
    if (entries != NULL) closedir(entries);
    (void)rmdir(folder);
}

/* Removes a folder of folders of files. */
static void remove_all(const char *folder) {
    char path[PATH_BYTES];
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (!is_above(entry->d_name) && join(path, folder, entry->d_name)) remove_folder(path);
    }
    if (entries != NULL) closedir(entries);
    (void)rmdir(folder);
}

/* The folder, open and locked; -1, with errno: another process has it. */
static int hold(const char *folder) {
    const int held = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (held < 0 || flock(held, LOCK_EX | LOCK_NB) == 0) return held;
    close(held);
    return -1;
}

static void remove_what_was_left(const char *users) {
    char path[PATH_BYTES];
    DIR *entries = opendir(users);
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (strncmp(entry->d_name, FOLDER_BEGIN, strlen(FOLDER_BEGIN)) != 0) continue;
        const int held = join(path, users, entry->d_name) ? hold(path) : -1;
        if (held < 0) continue;
        remove_all(path);
        close(held);
    }
    if (entries != NULL) closedir(entries);
}

bool bench_caches_open(bench_caches *caches) {
    *caches = (bench_caches){.held = -1};
    if (!models_make_cache_folder("", caches->users)) return false;
    remove_what_was_left(caches->users);
    if (!join(caches->folder, caches->users, FOLDER_BEGIN "XXXXXX") || mkdtemp(caches->folder) == NULL) {
        caches->folder[0] = '\0';
        return false;
    }
    caches->held = hold(caches->folder);
    if (caches->held >= 0 || access(caches->folder, F_OK) == 0) return true; /* a file system without locks */
    caches->folder[0] = '\0';
    return false;
}

static void link_what_is_kept(const bench_caches *caches, const char *folder) {
    char from[PATH_BYTES], to[PATH_BYTES];
    DIR *entries = opendir(caches->users);
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (!ends_with(entry->d_name, ".profile") && !ends_with(entry->d_name, ".predictor")) continue;
        if (join(from, caches->users, entry->d_name) && join(to, folder, entry->d_name)) (void)!symlink(from, to);
    }
    if (entries != NULL) closedir(entries);
}

bool bench_caches_of(const bench_caches *caches, size_t arm, size_t budget, char path[PATH_BYTES]) {
    char name[64];
    snprintf(name, sizeof name, "%zu-%zu", arm, budget);
    if (caches->folder[0] == '\0' || !join(path, caches->folder, name)) return false;
    if (mkdir(path, 0700) != 0) return errno == EEXIST;
    link_what_is_kept(caches, path);
    return true;
}

void bench_caches_close(bench_caches *caches) {
    if (caches->folder[0] != '\0') remove_all(caches->folder);
    if (caches->held >= 0) close(caches->held);
    *caches = (bench_caches){.held = -1};
}
