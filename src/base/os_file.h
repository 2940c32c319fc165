/* os_file.h - the only calls that open and read weights.
 *
 * A seam for tests, which replace these functions when linking (--wrap): EIO, short reads, EINTR, EINVAL under
 * O_DIRECT, files cut or replaced while in use. Results as of open(2), pread(2) and fstat(2), with errno. Called by
 * file.c alone. */
#ifndef LV_BASE_OS_FILE_H
#define LV_BASE_OS_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

int lv_os_open(const char *path, bool direct); /* read-only, close-on-exec, non-blocking */
ssize_t lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
int lv_os_fstat(int descriptor, struct stat *status);
void lv_os_drop_pages(int descriptor, uint64_t offset, size_t bytes);
int lv_os_close(int descriptor);

#endif
