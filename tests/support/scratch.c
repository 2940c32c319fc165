/* scratch.c - one folder a process, removed at exit. */
#include "support/scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[512];

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *position) {
    (void)status;
    (void)kind;
    (void)position;
    return remove(path);
}

static void remove_folder(void) {
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void die(const char *what) {
    perror(what);
    abort();
}

const char *scratch_folder(void) {
    if (folder[0]) return folder;
    char here[400];
    if (!getcwd(here, sizeof here)) die("getcwd");
    snprintf(folder, sizeof folder, "%s/scratch.XXXXXX", here);
    if (!mkdtemp(folder)) die(folder);
    atexit(remove_folder);
    return folder;
}

char *scratch_path(const char *name, char *path, size_t capacity) {
    int length = snprintf(path, capacity, "%s/%s", scratch_folder(), name);
    if (length < 0 || (size_t)length >= capacity) die(name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    return path;
}

char *scratch_write(const char *name, const void *data, size_t bytes, char *path, size_t capacity) {
    scratch_path(name, path, capacity);
    FILE *file = fopen(path, "we");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) die(path);
    return path;
}

size_t scratch_find(const char *in, char *path, size_t capacity) {
    DIR *dir = opendir(in);
    if (!dir) die(in);
    size_t found = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, capacity, "%s/%s", in, entry->d_name);
        found++;
    }
    closedir(dir);
    return found;
}
