/* inspect.c - `lever inspect`: the facts about a file, one a line or as JSON. */
#include "command.h"
#include "json.h"
#include "progress.h"
#include "terminal.h"

static void print_fact(void *user, const char *key, const char *value) {
    (void)user;
    progress_make_room();
    printf("%-32s %s\n", key, value);
}

static void add_fact(void *user, const char *key, const char *value) {
    json_text(user, key, value);
}

int command_inspect(const cli_options *options) {
    progress bar;
    progress_open(&bar, "", UNIT_BYTES, options);
    json out;
    json_init(&out);
    json_object_open(&out, NULL);

    lever_error error = {0};
    const lever_status status =
        lever_inspect(options->arguments[0], options->verify, options->json ? add_fact : print_fact, &out,
                      progress_of_stage, &bar, &error);
    progress_close(&bar);
    json_object_close(&out);
    int code = EXIT_DONE;
    if (status != LEVER_OK) {
        code = fail_with(status, error.message);
    } else if (options->json && !json_put(&out)) {
        code = fail_with(LEVER_E_IO, "writing to standard output failed");
    } else if (options->verify) {
        note(options, "every checksum of %s is right", options->arguments[0]);
    }
    json_fini(&out);
    return code;
}
