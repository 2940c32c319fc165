/* doctor.c - `lever doctor`: what the library measured, for people or as JSON. */
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "command.h"
#include "json.h"
#include "models.h"
#include "terminal.h"

typedef struct {
    json out;
    const char *path; /* the heading; NULL: it stands there */
    bool coloured;
} report;

/* Figures first, as they come; a warning or an advice stands out. */
static void print_finding(void *user, lever_fact_kind kind, const char *key, const char *value, const char *unit) {
    report *to = user;
    uint64_t bytes;
    char size[32];
    if (to->path != NULL) printf("%s\n", to->path);
    to->path = NULL;
    if (kind == LEVER_FACT_MEASURED && strncmp(unit, "bytes", 5) == 0 && lv_parse_u64(value, 0, UINT64_MAX, &bytes)) {
        printf("  %-34s %s%s\n", key, lv_format_size(bytes, size, sizeof size), unit + 5); /* "bytes/s": "GiB/s" */
    } else if (kind == LEVER_FACT_MEASURED) {
        printf("  %-34s %s%s%s\n", key, value, unit[0] != '\0' ? " " : "", unit);
    } else {
        const char *word = kind == LEVER_FACT_WARNING ? "warning" : "advice";
        const char *colour = kind == LEVER_FACT_WARNING ? "\033[33m" : "\033[32m";
        printf("%s%s:%s %s\n", to->coloured ? colour : "", word, to->coloured ? "\033[0m" : "", value);
    }
    fflush(stdout);
}

static void add_finding(void *user, lever_fact_kind kind, const char *key, const char *value, const char *unit) {
    static const char *const kinds[] = {"measured", "warning", "advice"};
    report *to = user;
    json_object_open(&to->out, NULL);
    json_text(&to->out, "kind", (size_t)kind < sizeof kinds / sizeof kinds[0] ? kinds[kind] : "measured");
    json_text(&to->out, "key", key);
    json_text(&to->out, "value", value);
    json_text(&to->out, "unit", unit);
    json_object_close(&to->out);
}

/* The model given; else the default one, if it was pulled; else the current folder. */
static bool choose_path(const cli_options *options, char path[PATH_BYTES], int *code) {
    char message[PATH_BYTES + 256];
    if (models_find(options->model, path, message, sizeof message)) return true;
    if (options->model == NULL) {
        snprintf(path, PATH_BYTES, ".");
        return true;
    }
    *code = fail_with(LEVER_E_FORMAT, message);
    return false;
}

int command_doctor(const cli_options *options) {
    char path[PATH_BYTES], draft[PATH_BYTES];
    int code = EXIT_DONE;
    if (!choose_path(options, path, &code)) return code;
    lever_doctor_options doctor_options;
    lever_doctor_options_init(&doctor_options);
    doctor_options.path = path;
    doctor_options.draft_path = options->draft;
    if (options->draft == NULL && models_find_draft(path, draft)) doctor_options.draft_path = draft;
    doctor_options.quick = options->quick;
    char cache[PATH_BYTES];
    doctor_options.cache_dir = models_make_cache_folder("", cache) ? cache : NULL;
    doctor_options.threads = options->threads;

    report to = {.path = path, .coloured = terminal_has_colour(stdout)};
    json_init(&to.out);
    json_object_open(&to.out, NULL);
    json_text(&to.out, "path", path);
    json_array_open(&to.out, "findings");
    lever_error error = {0};
    const lever_status status = lever_doctor(&doctor_options, options->json ? add_finding : print_finding, &to, &error);
    json_array_close(&to.out);
    json_object_close(&to.out);
    if (status != LEVER_OK) {
        code = fail_with(status, error.message);
    } else if (options->json && !json_put(&to.out)) {
        code = fail_with(LEVER_E_IO, "writing to standard output failed");
    }
    json_fini(&to.out);
    return code;
}
