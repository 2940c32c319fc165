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

bool models_find(const char *wanted, char path[PATH_BYTES], char *message, size_t message_bytes) {
    const model_pair *pair = models_pair(wanted);
    if (wanted != NULL && (pair == NULL || access(wanted, F_OK) == 0)) {
        if (print_path(path, "", "", wanted)) return true;
        snprintf(message, message_bytes, "the path of the model is longer than %d bytes", PATH_BYTES - 1);
        return false;
    }
    char name[128], pulled[PATH_BYTES];
    snprintf(name, sizeof name, "models/%s", pair->files[0].name);
    if (!models_cache_path(name, pulled)) {
        snprintf(message, message_bytes,
                 "no cache folder: neither XDG_CACHE_HOME nor HOME is a folder. Give a model with -m FILE");
        return false;
    }
    if (models_packed_path(pulled, path) && access(path, R_OK) == 0) return true;
    if (access(pulled, R_OK) == 0) return print_path(path, "", "", pulled);
    snprintf(message, message_bytes,
             "no model: %s is not there. 'lever pull%s%s' fetches it; or give a file with -m FILE", pulled,
             wanted != NULL ? " " : "", wanted != NULL ? wanted : "");
    return false;
}
