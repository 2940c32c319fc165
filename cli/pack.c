/* pack.c - `lever pack`: a GGUF into the packed layout. */
#include <string.h>

#include "command.h"
#include "interrupt.h"
#include "models.h"
#include "progress.h"
#include "terminal.h"

typedef struct {
    progress bar;
    char part[PATH_BYTES]; /* "": the path is too long for one */
    bool begun;
} packing;

/* Once there is progress the unfinished file is this program's own. */
static void tell_packing(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    packing *now = user;
    if (!now->begun && now->part[0] != '\0') interrupt_removes(now->part);
    now->begun = true;
    progress_of_stage(&now->bar, stage, done, total);
}

lever_status pack_file(const char *input, const char *output, const char *type, const cli_options *options,
                       lever_error *error) {
    packing now = {0};
    const int length = snprintf(now.part, sizeof now.part, "%s.part", output);
    if (length < 0 || length >= PATH_BYTES) now.part[0] = '\0';
    progress_open(&now.bar, "", UNIT_BYTES, options);
    lever_pack_options pack_options;
    lever_pack_options_init(&pack_options);
    pack_options.type = type;
    pack_options.progress = tell_packing;
    pack_options.progress_user = &now;
    pack_options.log = show_log;
    pack_options.log_user = (void *)(uintptr_t)options; /* show_log does not change it */
    const lever_status status = lever_pack(input, output, &pack_options, error);
    interrupt_removes(NULL);
    progress_close(&now.bar);
    return status;
}

int command_pack(const cli_options *options) {
    interrupt_open();
    lever_error error = {0};
    const lever_status status = pack_file(options->arguments[0], options->arguments[1], options->type, options, &error);
    if (status != LEVER_OK) return fail_with(status, error.message);
    note(options, "%s is packed into %s", options->arguments[0], options->arguments[1]);
    return EXIT_DONE;
}
