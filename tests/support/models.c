/* models.c - see models.h. */
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *model_path(const char *name) {
    static char path[1024];
    const char *folder = getenv("LEVER_TEST_MODELS"), *home = getenv("HOME");
    int length = -1;
    if (folder && folder[0])
        length = snprintf(path, sizeof path, "%s/%s", folder, name);
    else if (home && home[0])
        length = snprintf(path, sizeof path, "%s/.cache/lever/models/%s", home, name);
    if (length < 0 || (size_t)length >= sizeof path) return NULL;
    return access(path, R_OK) == 0 ? path : NULL;
}

void models_or_exit(const char *const *names) {
    for (; *names; names++) {
        if (model_path(*names)) continue;
        fprintf(stderr, "skipped: the model %s is not there\n", *names);
        exit(77);
    }
}
