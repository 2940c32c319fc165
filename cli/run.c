/* run.c - `lever run`: one prompt, one answer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "interrupt.h"
#include "json.h"
#include "statistics.h"
#include "talk.h"
#include "terminal.h"

#define PROMPT_BYTES_MAX ((size_t)64 << 20)

typedef struct {
    char *text; /* terminated, without zero bytes */
    size_t bytes;
} prompt;

/* Zero bytes would end the text early: they become spaces. Other bytes that are no text are the library's to repair. */
static void drop_zero_bytes(prompt *given) {
    for (size_t i = 0; i < given->bytes; i++) {
        if (given->text[i] == '\0') given->text[i] = ' ';
    }
    given->text[given->bytes] = '\0';
}

static int cannot_read(void) {
    char message[256];
    snprintf(message, sizeof message, "reading the prompt from standard input failed: %s; give it as the argument",
             strerror(errno));
    return fail_with(LEVER_E_IO, message);
}

static int read_input(prompt *given) {
    size_t capacity = 0;
    for (;;) {
        if (given->bytes + 1 >= capacity) {
            capacity = capacity == 0 ? 65536 : capacity * 2;
            char *grown = realloc(given->text, capacity);
            if (grown == NULL) return fail_with(LEVER_E_MEMORY, "no memory for the prompt on standard input");
            given->text = grown;
        }
        const ssize_t got = read(STDIN_FILENO, given->text + given->bytes, capacity - 1 - given->bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read();
        if (got == 0) break;
        given->bytes += (size_t)got;
        if (given->bytes > PROMPT_BYTES_MAX) {
            return fail_usage("the prompt on standard input is longer than %zu MiB", PROMPT_BYTES_MAX >> 20);
        }
    }
    drop_zero_bytes(given);
    return EXIT_DONE;
}

static int get_prompt(const cli_options *options, prompt *given) {
    const char *argument = options->arguments_count > 0 ? options->arguments[0] : NULL;
    if (argument == NULL && isatty(STDIN_FILENO)) {
        return fail_usage("no prompt: give one as the argument, or on standard input (lever run < FILE)");
    }
    if (argument == NULL || strcmp(argument, "-") == 0) {
        const int code = read_input(given);
        if (code != EXIT_DONE) return code;
    } else {
        given->text = strdup(argument);
        if (given->text == NULL) return fail_with(LEVER_E_MEMORY, "no memory for the prompt");
        given->bytes = strlen(argument);
    }
    if (given->bytes == 0) return fail_usage("the prompt is empty");
    return EXIT_DONE;
}

static lever_status tokenize(talk *opened, const prompt *given, token_list *tokens, lever_error *error) {
    if (opened->options->raw && opened->options->system != NULL) {
        note(opened->options, "with --raw the system message is not used");
    }
    if (opened->options->raw) return talk_tokenize_raw(opened, given->text, given->bytes, tokens, error);
    lever_message messages[2];
    size_t count = 0;
    if (opened->options->system != NULL) messages[count++] = (lever_message){"system", opened->options->system};
    messages[count++] = (lever_message){"user", given->text};
    return talk_tokenize_chat(opened, messages, count, tokens, error);
}

static void print_phone(json *out, const talk *opened, const lever_statistics *s) {
    if (opened->info.phone == NULL) return;
    json_object_open(out, "phone");
    json_text(out, "name", opened->info.phone);
    json_text(out, "section", opened->info.phone_section);
    json_text(out, "target", opened->info.phone_target);
    json_text(out, "draft", opened->info.phone_draft);
    json_unsigned(out, "layers", opened->info.phone_layers_count);
    json_unsigned(out, "layers_pinned", opened->info.phone_layers_pinned);
    json_number(out, "temperature", s->phone_temperature);
    json_number(out, "speed", s->phone_speed);
    json_object_close(out);
}

static bool print_json(const talk *opened, const reply *answer) {
    json out;
    json_init(&out);
    json_object_open(&out, NULL);
    json_string(&out, "text", answer->text != NULL ? answer->text : "", answer->bytes);
    json_array_open(&out, "tokens");
    for (size_t i = 0; i < answer->tokens.count; i++) json_unsigned(&out, NULL, (uint64_t)answer->tokens.data[i]);
    json_array_close(&out);
    json_text(&out, "finish_reason", lever_finish_text(answer->finish));
    json_text(&out, "device", opened->info.device);
    statistics_write(&out, &answer->statistics, opened->info.open_seconds, opened->plan.layers_count);
    json_unsigned(&out, "seed", opened->seed);
    print_phone(&out, opened, &answer->statistics);
    json_object_close(&out);
    const bool written = json_put(&out);
    json_fini(&out);
    return written;
}

/* What stands on standard output at the end, however the answer ended. */
static void finish_output(const talk *opened, reply *answer) {
    if (opened->options->json) {
        answer->write_failed = !print_json(opened, answer);
    } else if (answer->bytes > 0 && answer->text[answer->bytes - 1] != '\n' && !answer->write_failed) {
        answer->write_failed = !put_data("\n", 1, &answer->closed);
    }
}

int command_run(const cli_options *options) {
    prompt given = {0};
    talk opened = {.options = options};
    token_list tokens = {0};
    reply answer = {.streaming = !options->json};

    int code = get_prompt(options, &given);
    if (code != EXIT_DONE) goto done;
    interrupt_open();
    code = talk_open(&opened, options);
    if (code != EXIT_DONE) goto done;

    lever_error error = {0};
    lever_status status = tokenize(&opened, &given, &tokens, &error);
    if (status == LEVER_OK) status = talk_answer(&opened, &tokens, opened.seed, &answer, &error);
    if (status == LEVER_OK || status == LEVER_E_CANCELLED) {
        finish_output(&opened, &answer);
        if (!answer.closed) talk_show_statistics(&opened, &answer, opened.seed);
        code = exit_code_of(status);
    } else {
        if (!options->json) finish_output(&opened, &answer);
        code = fail_with(status, error.message);
    }
    if (answer.write_failed) {
        code = answer.closed ? EXIT_DONE : fail_with(LEVER_E_IO, "writing the answer to standard output failed");
    }

done:
    reply_fini(&answer);
    free(tokens.data);
    code = talk_close(&opened, code);
    free(given.text);
    return code;
}
