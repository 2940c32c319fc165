/* embed.c - a program of your own with lever inside: one question, one answer.
 *
 *     cc embed.c $(pkg-config --cflags --libs lever) -o embed
 *     ./embed model.gguf "Write a quicksort in C." 700
 *
 * The last argument is the memory, in MiB, that the whole process may use; without it lever takes a share of what is
 * free. */
#include <lever.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void print_log(void *user, lever_log_level level, const char *line) {
    (void)user;
    if (level >= LEVER_LOG_WARNING) fprintf(stderr, "lever: %s\n", line);
}

/* Text comes in whole characters, so it can be shown at once. */
static bool print_token(void *user, int32_t token, const char *text, size_t text_bytes) {
    (void)user;
    (void)token;
    fwrite(text, 1, text_bytes, stdout);
    fflush(stdout);
    return true; /* false would end the answer here */
}

/* The tokens of a conversation with one message. The first call asks how many there are, the second gets them. */
static lever_status tokenize(const lever_engine *engine, const char *prompt, int32_t **tokens, size_t *count,
                             lever_error *error) {
    const lever_message message = {"user", prompt};
    lever_status status = lever_chat_tokenize(engine, &message, 1, true, NULL, 0, count, error);
    if (status != LEVER_OK && status != LEVER_E_ARGUMENT) return status;
    *tokens = malloc((*count ? *count : 1) * sizeof **tokens);
    if (!*tokens) {
        error->status = LEVER_E_MEMORY;
        snprintf(error->message, sizeof error->message, "No memory for %zu tokens.", *count);
        return LEVER_E_MEMORY;
    }
    return lever_chat_tokenize(engine, &message, 1, true, *tokens, *count, count, error);
}

static void print_statistics(const lever_session *session) {
    lever_statistics statistics;
    lever_session_get_statistics(session, &statistics);
    double seconds = statistics.decode_seconds > 0 ? statistics.decode_seconds : 1;
    fprintf(stderr, "\n%llu tokens, %.1f tokens/s, %.1f MiB of memory\n",
            (unsigned long long)statistics.completion_tokens, (double)statistics.completion_tokens / seconds,
            (double)statistics.rss_peak / (1 << 20));
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT [MIB]\n", argv[0]);
        return 2;
    }
    lever_engine_options options;
    lever_engine_options_init(&options);
    options.model_path = argv[1];
    options.ram_bytes = argc > 3 ? (uint64_t)strtoull(argv[3], NULL, 10) << 20 : 0;
    options.log = print_log;

    lever_engine *engine = NULL;
    lever_session *session = NULL;
    int32_t *tokens = NULL;
    size_t tokens_count = 0;
    lever_error error;

    lever_status status = lever_engine_open(&engine, &options, &error);
    if (status != LEVER_OK) goto done;
    lever_session_options session_options;
    lever_session_options_init(&session_options);
    status = lever_session_open(&session, engine, &session_options, &error);
    if (status != LEVER_OK) goto done;
    status = tokenize(engine, argv[2], &tokens, &tokens_count, &error);
    if (status != LEVER_OK) goto done;
    status = lever_session_prompt(session, tokens, tokens_count, &error);
    if (status != LEVER_OK) goto done;

    lever_generate_options generate_options;
    lever_generate_options_init(&generate_options);
    generate_options.tokens_max = 200;
    lever_finish finish;
    status = lever_session_generate(session, &generate_options, print_token, NULL, &finish, &error);
    if (status == LEVER_OK) print_statistics(session);

done:
    if (status != LEVER_OK) fprintf(stderr, "%s: %s\n", lever_status_text(status), error.message);
    free(tokens);
    lever_session_close(&session);
    lever_engine_close(&engine);
    return status == LEVER_OK ? 0 : 1;
}
