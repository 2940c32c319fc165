/* scratch.h - files that a test writes, in a folder of its own that goes away with it. */
#ifndef LV_TESTS_SCRATCH_H
#define LV_TESTS_SCRATCH_H

#include <stddef.h>

/* Makes an empty folder below the folder that the test runs in (not /tmp, which may not know O_DIRECT); returns its
 * path. Removed, with what is in it, at exit. */
const char *scratch_folder(void);

/* The path of `name` in the scratch folder, in `path`; returns `path`. Folders in `name` are made. */
char *scratch_path(const char *name, char *path, size_t capacity);

/* Writes a file there and returns its path, as above. Aborts when it cannot. */
char *scratch_write(const char *name, const void *data, size_t bytes, char *path, size_t capacity);

/* The number of files in a folder whose names do not begin with a dot, and the path of one of them (unless there is
 * none). Aborts when the folder cannot be read. */
size_t scratch_find(const char *folder, char *path, size_t capacity);

#endif
