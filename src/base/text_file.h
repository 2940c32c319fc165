/* text_file.h - small text files of ours: what was measured, kept between runs.
 *
 * Any thread; two threads, of one process or of two, that write the same file do not meet. */
#ifndef LV_BASE_TEXT_FILE_H
#define LV_BASE_TEXT_FILE_H

#include <stddef.h>

#include "base/status.h"

/* Replaces a file, or makes it, atomically: whoever reads it sees the old text or the new one, whole. LEVER_E_IO, and
 * the file as it was, when that fails. */
lever_status lv_text_file_replace(const char *path, const char *text, size_t bytes, lever_error *error);

#endif
