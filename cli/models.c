/* models.c - see models.h. */
#include "models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings.h"

static bool print_path(char path[PATH_BYTES], const char *folder, const char *middle, const char *name) {
    const int length = snprintf(path, PATH_BYTES, "%s%s%s", folder, middle, name);
    return length > 0 && length < PATH_BYTES;
}

const model_pair *models_pair_at(size_t index) {
    return index < sizeof pairs / sizeof pairs[0] ? &pairs[index] : NULL;
}

const model_pair *models_pair(const char *name) {
    if (name == NULL) return &pairs[0];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(pairs[i].name, name) == 0) return &pairs[i];
    }
    return NULL;
}

const char *models_hub_address(void) {
    const char *endpoint = getenv("HF_ENDPOINT");
    return endpoint != NULL && endpoint[0] != '\0' ? endpoint : HUB_ADDRESS;
}

bool models_cache_path(const char *name, char path[PATH_BYTES]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] == '/') return print_path(path, cache, "/lever/", name);
    if (home != NULL && home[0] == '/') return print_path(path, home, "/.cache/lever/", name);
    return false;
}

bool models_make_cache_folder(const char *name, char path[PATH_BYTES]) {
    errno = ENOENT;
    if (!models_cache_path(name, path)) return false;
    for (char *slash = path + 1;; slash++) {
        if (*slash != '/' && *slash != '\0') continue;
        const char kept = *slash;
        *slash = '\0';
        const bool made = mkdir(path, 0755) == 0 || errno == EEXIST;
        *slash = kept;
        if (!made || kept == '\0') return made;
    }
}

bool models_shared_folder(char path[PATH_BYTES]) {
    static const char *const places[] = {"/share/lever", "/../share/lever"};
    char program[PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return false;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (print_path(path, program, places[i], "") && access(path, R_OK) == 0) return true;
    }
    return false;
}

bool models_packed_path(const char *path, char packed[PATH_BYTES]) {
    static const char ending[] = ".gguf";
    const size_t length = strlen(path), ending_length = sizeof ending - 1;
    if (length >= PATH_BYTES) return false;
    char stem[PATH_BYTES];
    memcpy(stem, path, length + 1);
    if (length > ending_length && strcmp(stem + length - ending_length, ending) == 0) {
        stem[length - ending_length] = '\0';
    }
    return print_path(packed, stem, "", ".lvr");
}

static bool pulled_path(const model_file *file, char path[PATH_BYTES]) {
    char name[128];
    snprintf(name, sizeof name, "models/%s", file->name);
    return models_cache_path(name, path);
}

/* A pulled file, packed where it is. */
static bool best_of(const char *pulled, char path[PATH_BYTES]) {
    if (models_packed_path(pulled, path) && access(path, R_OK) == 0) return true;
    return access(pulled, R_OK) == 0 && print_path(path, "", "", pulled);
}

bool models_find(const char *wanted, char path[PATH_BYTES], char *message, size_t message_bytes) {
    const model_pair *pair = models_pair(wanted);
    if (wanted != NULL && (pair == NULL || access(wanted, F_OK) == 0)) {
        if (print_path(path, "", "", wanted)) return true;
        snprintf(message, message_bytes, "the path of the model is longer than %d bytes", PATH_BYTES - 1);
        return false;
    }
    char pulled[PATH_BYTES];
    if (!pulled_path(&pair->files[0], pulled)) {
        snprintf(message, message_bytes,
                 "no cache folder: neither XDG_CACHE_HOME nor HOME is a folder. Give a model with -m FILE");
        return false;
    }
    if (best_of(pulled, path)) return true;
    snprintf(message, message_bytes,
             "no model: %s is not there. 'lever pull%s%s' fetches it; or give a file with -m FILE", pulled,
             wanted != NULL ? " " : "", wanted != NULL ? wanted : "");
    return false;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

bool models_find_draft(const char *model_path, char path[PATH_BYTES]) {
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char target[PATH_BYTES], packed[PATH_BYTES], draft[PATH_BYTES];
        if (pairs[i].files_count < PAIR_FILES_MAX) continue;
        if (!pulled_path(&pairs[i].files[0], target) || !models_packed_path(target, packed)) continue;
        if (!is_same_file(model_path, target) && !is_same_file(model_path, packed)) continue;
        return pulled_path(&pairs[i].files[1], draft) && best_of(draft, path);
    }
    return false;
}
