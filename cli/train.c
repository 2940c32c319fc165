/* train.c - `lever train`: the pruning predictor of a pair. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "command.h"
#include "interrupt.h"
#include "talk.h"
#include "terminal.h"

#define PROMPTS_BYTES_MAX ((size_t)16 << 20)

/* Prompts of files, one a line; `\n` within a line begins a new one. */
typedef struct {
    char *text; /* all of them, each terminated */
    size_t bytes, capacity;
    const char **prompts;
    size_t count;
} prompt_list;

static bool append(prompt_list *list, const char *line) {
    const size_t length = strlen(line);
    if (list->bytes + length + 1 > list->capacity) {
        const size_t capacity = (list->bytes + length + 1) * 2;
        char *grown = capacity <= PROMPTS_BYTES_MAX ? realloc(list->text, capacity) : NULL;
        if (grown == NULL) return false;
        list->text = grown;
        list->capacity = capacity;
    }
    char *to = list->text + list->bytes;
    for (const char *c = line; *c != '\0' && *c != '\n'; c++) {
        const bool breaks = c[0] == '\\' && c[1] == 'n';
        *to++ = breaks ? '\n' : *c;
        c += breaks;
    }
    if (to == list->text + list->bytes) return true; /* an empty line */
    *to++ = '\0';
    list->bytes = (size_t)(to - list->text);
    list->count++;
    return true;
}

static int read_prompts(const char *path, prompt_list *list) {
    char message[PATH_BYTES + 128], *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(message, sizeof message, "%s: cannot be read (%s); give a file with a prompt a line", path,
                 strerror(errno));
        return fail_with(LEVER_E_IO, message);
    }
    bool fits = true;
    while (fits && getline(&line, &capacity, file) >= 0) fits = append(list, line);
    const int failure = ferror(file) != 0 ? errno : 0;
    free(line);
    fclose(file);
    if (!fits) return fail_with(LEVER_E_MEMORY, "the prompts are too long in all");
    if (failure == 0) return EXIT_DONE;
    snprintf(message, sizeof message, "%s: reading failed (%s); give a file with a prompt a line", path,
             strerror(failure));
    return fail_with(LEVER_E_IO, message);
}

/* Pointers only when the text does not move any more. */
static int finish_prompts(prompt_list *list) {
    list->prompts = calloc(list->count + 1, sizeof *list->prompts);
    if (list->prompts == NULL) return fail_with(LEVER_E_MEMORY, "no memory for the prompts");
    const char *at = list->text;
    for (size_t i = 0; i < list->count; i++, at += strlen(at) + 1) list->prompts[i] = at;
    return EXIT_DONE;
}

/* Those that came with the program. */
static int read_own_prompts(prompt_list *list) {
    char folder[PATH_BYTES], path[PATH_BYTES + 16];
    if (!models_shared_folder(folder)) {
        return fail_usage(
            "the prompts that come with lever are not there; give some with --prompts FILE, or --text FILE");
    }
    snprintf(path, sizeof path, "%s/prompts.txt", folder);
    return read_prompts(path, list);
}

static int gather_prompts(const cli_options *options, prompt_list *list) {
    for (size_t i = 0; i < options->prompts_count; i++) {
        const int code = read_prompts(options->prompts[i], list);
        if (code != EXIT_DONE) return code;
    }
    if (options->prompts_count == 0 && options->texts_count == 0) {
        const int code = read_own_prompts(list);
        if (code != EXIT_DONE) return code;
    }
    return finish_prompts(list);
}

static void show_result(const cli_options *options, const lever_train_result *r) {
    char peak[32];
    note(options,
         "the predictor looks behind layer %u of %u: held out, %.1f %% of what the target says is kept when 40 %% of "
         "the "
         "candidates go (by the draft alone %.1f %%); loss %.3f instead of %.3f",
         r->layer, r->layers_count, 100 * r->recall, 100 * r->draft_recall, r->loss, r->draft_loss);
    note(options, "%s is written (%llu bytes)", r->path, (unsigned long long)r->file_bytes);
    note(options, "%llu samples in %.1f s, learned in %.1f s: %.1f s in all; memory %s at most",
         (unsigned long long)r->learned_samples + r->held_out_samples, r->collect_seconds, r->learn_seconds,
         r->collect_seconds + r->learn_seconds,
         r->rss_peak > 0 ? lv_format_size(r->rss_peak, peak, sizeof peak) : "unknown");
}

int command_train(const cli_options *options) {
    talk_paths paths;
    lever_engine_options engine;
    lever_train_options train;
    prompt_list list = {0};
    progress bar;
    int code = EXIT_DONE;
    if (!talk_engine_options(options, &paths, &engine, &code)) return code;
    if (engine.draft_path == NULL) return fail_usage("a predictor is trained for a pair: give a draft with -d FILE");
    code = gather_prompts(options, &list);
    if (code != EXIT_DONE) goto done;
    char cache[PATH_BYTES];
    progress_open(&bar, "", UNIT_PARTS, options);
    lever_train_options_init(&train);
    train.model_path = engine.model_path;
    train.draft_path = engine.draft_path;
    train.cache_dir = models_make_cache_folder("", cache) ? cache : NULL;
    train.prompts = list.prompts;
    train.prompts_count = list.count;
    train.texts = options->texts;
    train.texts_count = options->texts_count;
    if (options->tokens_max > 0) train.tokens_max = options->tokens_max;
    train.ram_bytes = options->ram_unlimited ? UINT64_MAX : options->ram_bytes;
    train.threads = options->threads;
    train.layer = options->layer;
    train.rank = options->rank;
    train.miss_weight = options->miss_weight;
    train.keep_samples = options->keep_samples;
    train.output_path = options->output;
    if (options->seed_given) train.seed = options->seed;
    train.log = show_log;
    train.log_user = (void *)(uintptr_t)options; /* show_log does not change it */
    train.progress = progress_of_stage;
    train.progress_user = &bar;
    interrupt_open();
    lever_train_result result;
    lever_error error = {0};
    const lever_status status = lever_train(&train, &result, &error);
    progress_close(&bar);
    code = status == LEVER_OK ? EXIT_DONE : fail_with(status, error.message);
    if (status == LEVER_OK) show_result(options, &result);

done:
    free(list.prompts);
    free(list.text);
    return code;
}
