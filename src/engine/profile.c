/* profile.c - four lines of "name value", so that a user can read them, mend them, or delete the file. */
#include "engine/profile.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/text.h"
#include "base/text_file.h"

enum { PATH_BYTES = 4096, LANES_MAX = 16 };

static const char heading[] = "lever disk profile 1\n";

static bool path_of(const char *folder, const char *path, char *out) {
    struct stat status;
    if (!folder || !folder[0] || !path || stat(path, &status) != 0) return false;
    const int length = snprintf(out, PATH_BYTES, "%s/disk-%u-%u.profile", folder, (unsigned)major(status.st_dev),
                                (unsigned)minor(status.st_dev));
    return length > 0 && length < PATH_BYTES;
}

static bool is_sane(const lv_profile *profile) {
    return profile->lanes >= 1 && profile->lanes <= LANES_MAX && profile->block_bytes >= (64u << 10) &&
           profile->block_bytes <= (32u << 20) && profile->io_bytes_per_second > 0 &&
           profile->memory_bytes_per_second >= 0;
}

bool lv_profile_load(const char *folder, const char *path, lv_profile *profile) {
    memset(profile, 0, sizeof(*profile));
    char name[PATH_BYTES], line[128] = "";
    if (!path_of(folder, path, name)) return false;
    FILE *file = fopen(name, "re");
    if (!file) return false;
    lv_profile read = {0};
    const bool complete = fgets(line, sizeof(line), file) && strcmp(line, heading) == 0 &&
                          fscanf(file, "lanes %" SCNu32 "\n", &read.lanes) == 1 &&
                          fscanf(file, "block_bytes %" SCNu64 "\n", &read.block_bytes) == 1 &&
                          fscanf(file, "io_bytes_per_second %lf\n", &read.io_bytes_per_second) == 1 &&
                          fscanf(file, "memory_bytes_per_second %lf\n", &read.memory_bytes_per_second) == 1;
    fclose(file);
    if (!complete || !is_sane(&read)) return false;
    *profile = read;
    return true;
}

lever_status lv_profile_save(const char *folder, const char *path, const lv_profile *profile, lever_error *error) {
    char name[PATH_BYTES], text[1024];
    if (!path_of(folder, path, name)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "no folder to keep measurements of the disk of %s in", path);
    }
    const size_t bytes = lv_text_append(
        text, sizeof(text), 0,
        "%slanes %" PRIu32 "\nblock_bytes %" PRIu64 "\nio_bytes_per_second %.0f\nmemory_bytes_per_second %.0f\n",
        heading, profile->lanes, profile->block_bytes, profile->io_bytes_per_second, profile->memory_bytes_per_second);
    assert(bytes < sizeof(text));
    return lv_text_file_replace(name, text, bytes, error);
}
