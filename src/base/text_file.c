/* text_file.c - written beside the file under a name of this thread's own, then renamed. */
#include "base/text_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 + 32 };

static lever_status fail_writing(lever_error *error, const char *path) {
    return lv_fail(error, LEVER_E_IO, "cannot write %s: %s; check the folder, and the room on its disk", path,
                   strerror(errno));
}

lever_status lv_text_file_replace(const char *path, const char *text, size_t bytes, lever_error *error) {
    char unfinished[PATH_BYTES];
    const int length = snprintf(unfinished, sizeof(unfinished), "%s.%ld.part", path, (long)gettid());
    if (length < 0 || (size_t)length >= sizeof(unfinished)) {
        return lv_fail(error, LEVER_E_IO, "cannot write %s: the path is too long", path);
    }
    FILE *file = fopen(unfinished, "we");
    if (!file) return fail_writing(error, unfinished);
    const bool written = fwrite(text, 1, bytes, file) == bytes;
    const bool closed = fclose(file) == 0;
    if (!written || !closed || rename(unfinished, path) != 0) {
        const lever_status status = fail_writing(error, path);
        unlink(unfinished);
        return status;
    }
    return LEVER_OK;
}
