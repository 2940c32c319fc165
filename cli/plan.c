/* plan.c - `lever plan`: the memory plan as a table or as JSON. */
#include <inttypes.h>

#include "base/text.h"
#include "command.h"
#include "json.h"
#include "talk.h"
#include "terminal.h"

typedef struct {
    char text[32];
} size_text;

static size_text size_of(uint64_t bytes) {
    size_text size;
    lv_format_size(bytes, size.text, sizeof size.text);
    return size;
}

static void print_table(const char *path, const lever_plan *plan) {
    printf("%s\n\n", path);
    for (uint32_t i = 0; i < plan->rows_count; i++) {
        printf("  %-26s %12s\n", plan->rows[i].category, size_of(plan->rows[i].bytes).text);
    }
    printf("  %-26s %12s\n", "total", size_of(plan->total_bytes).text);
    if (plan->budget_bytes == UINT64_MAX) {
        printf("  %-26s %12s\n\n", "budget", "none");
    } else {
        printf("  %-26s %12s%s\n\n", "budget", size_of(plan->budget_bytes).text,
               plan->budget_is_default ? "  (a share of what is free; --ram SIZE sets another)" : "");
    }

    printf("  context            %" PRIu32 " tokens; a pass takes %" PRIu32 " tokens of a prompt\n",
           plan->context_tokens, plan->prefill_rows);
    printf("  layers             %" PRIu32 ", %s, of which %s stay in memory (%.0f %%)\n", plan->layers_count,
           size_of(plan->layer_bytes).text, size_of(plan->pinned_bytes).text,
           plan->layer_bytes > 0 ? 100.0 * (double)plan->pinned_bytes / (double)plan->layer_bytes : 0.0);
    printf("  head               %s, %s\n", size_of(plan->head_bytes).text,
           plan->head_pinned ? "stays in memory" : "streamed");
    printf("  ring               %s%s\n", size_of(plan->ring_bytes).text,
           plan->cache == LEVER_CACHE_LRU ? ", a cache of the blocks used last" : "");
    if (plan->draft_used) {
        printf("  draft              stays in memory, %s\n", size_of(plan->draft_bytes).text);
    } else if (plan->draft_reason[0] != '\0') {
        printf("  draft              none: %s\n", plan->draft_reason);
    }
    printf("  read for a token   %s\n", size_of(plan->pass_read_bytes).text);
    if (plan->tokens_per_second > 0) {
        printf("  speed to expect    %.2f tokens a second%s (flash %s/s", plan->tokens_per_second,
               plan->draft_used ? " plainly, more with the draft" : "",
               size_of((uint64_t)plan->io_bytes_per_second).text);
        if (plan->memory_bytes_per_second > 0) {
            printf(", memory %s/s", size_of((uint64_t)plan->memory_bytes_per_second).text);
        }
        printf(")\n");
    } else {
        printf("  speed to expect    unknown: 'lever doctor -m FILE' measures the disk\n");
    }
    printf("\n  least budget       %s (context %" PRIu32 ")\n", size_of(plan->least_bytes).text,
           plan->least_context_tokens);
    printf("  all in memory from %s\n", size_of(plan->all_bytes).text);
}

static bool print_json(const char *path, const lever_plan *plan, bool fits) {
    json out;
    json_init(&out);
    json_object_open(&out, NULL);
    json_text(&out, "model", path);
    json_bool(&out, "fits", fits);
    json_array_open(&out, "rows");
    for (uint32_t i = 0; i < plan->rows_count; i++) {
        json_object_open(&out, NULL);
        json_text(&out, "category", plan->rows[i].category);
        json_unsigned(&out, "bytes", plan->rows[i].bytes);
        json_object_close(&out);
    }
    json_array_close(&out);
    json_unsigned(&out, "total_bytes", plan->total_bytes);
    json_unsigned(&out, "budget_bytes", plan->budget_bytes == UINT64_MAX ? 0 : plan->budget_bytes);
    json_bool(&out, "budget_is_default", plan->budget_is_default);
    json_unsigned(&out, "least_bytes", plan->least_bytes);
    json_unsigned(&out, "least_context_tokens", plan->least_context_tokens);
    json_unsigned(&out, "all_bytes", plan->all_bytes);
    json_unsigned(&out, "context_tokens", plan->context_tokens);
    json_unsigned(&out, "prefill_rows", plan->prefill_rows);
    json_unsigned(&out, "layers_count", plan->layers_count);
    json_unsigned(&out, "layer_bytes", plan->layer_bytes);
    json_unsigned(&out, "pinned_bytes", plan->pinned_bytes);
    json_unsigned(&out, "head_bytes", plan->head_bytes);
    json_bool(&out, "head_pinned", plan->head_pinned);
    json_text(&out, "cache", lever_cache_text(plan->cache));
    json_unsigned(&out, "ring_bytes", plan->ring_bytes);
    json_unsigned(&out, "pass_read_bytes", plan->pass_read_bytes);
    json_number(&out, "io_bytes_per_second", plan->io_bytes_per_second);
    json_number(&out, "memory_bytes_per_second", plan->memory_bytes_per_second);
    json_number(&out, "tokens_per_second", plan->tokens_per_second);
    json_bool(&out, "draft_used", plan->draft_used);
    json_unsigned(&out, "draft_bytes", plan->draft_bytes);
    json_text(&out, "draft_reason", plan->draft_reason);
    json_object_close(&out);
    const bool written = json_put(&out);
    json_fini(&out);
    return written;
}

int command_plan(const cli_options *options) {
    talk_paths paths;
    lever_engine_options engine_options;
    int code = EXIT_DONE;
    if (!talk_engine_options(options, &paths, &engine_options, &code)) return code;

    lever_plan plan = {0};
    lever_error error = {0};
    const lever_status status = lever_engine_plan(&engine_options, &plan, &error);
    if (status != LEVER_OK && status != LEVER_E_BUDGET) return fail_with(status, error.message);
    if (!options->json) {
        print_table(paths.model, &plan);
    } else if (!print_json(paths.model, &plan, status == LEVER_OK)) {
        return fail_with(LEVER_E_IO, "writing the plan to standard output failed");
    }
    return status == LEVER_OK ? EXIT_DONE : fail_with(status, error.message);
}
