/* profile.h - what `doctor` found best on a disk, kept for later openings.
 *
 * A small text file in a folder that the caller names, one for each device, replaced atomically. A file that is
 * missing, damaged or of another version is as good as none. Any thread. */
#ifndef LV_ENGINE_PROFILE_H
#define LV_ENGINE_PROFILE_H

#include "base/status.h"

typedef struct {
    uint32_t lanes;
    uint64_t block_bytes;
    double io_bytes_per_second;     /* with these lanes and blocks */
    double memory_bytes_per_second; /* read by all threads together */
} lv_profile;

/* The profile of the disk that `path` lies on. False: none; `profile` is then all zero. `folder` may be NULL. */
bool lv_profile_load(const char *folder, const char *path, lv_profile *profile);
lever_status lv_profile_save(const char *folder, const char *path, const lv_profile *profile, lever_error *error);

#endif
