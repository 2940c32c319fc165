/* chat.c - `lever chat`: a conversation in the terminal.
 *
 * Each turn renders the whole conversation and hands it to the session, which computes only what it does not hold yet.
 * Nothing is ever dropped to make room: a full context is told with both numbers. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "command.h"
#include "editor.h"
#include "interrupt.h"
#include "talk.h"
#include "terminal.h"

typedef struct {
    const char *role; /* a constant */
    char *content;    /* owned */
} turn;

typedef struct {
    turn *turns;
    size_t count, capacity;
} conversation;

typedef struct {
    const cli_options *options;
    talk talk;
    editor *editor;
    conversation said;
    char *system;  /* NULL: none */
    reply last;    /* the answer whose figures /stats shows */
    uint64_t seed; /* of the next answer */
    uint64_t seed_last;
    bool done;
    int code;
} chat;

static const char help_text[] =
    "/help            this text\n"
    "/exit            ends the conversation (also Ctrl-D, or Ctrl-C on an empty line)\n"
    "/clear           forgets the conversation\n"
    "/regen           another answer to the last message, with another seed\n"
    "/stats           figures of the last answer\n"
    "/system [TEXT]   shows or changes the system message\n"
    "A line that ends in \\ goes on in the next; \"\"\" begins and ends a block of lines.\n";

/* --- The conversation --- */

static bool push(conversation *said, const char *role, const char *content) {
    if (said->count == said->capacity) {
        const size_t capacity = said->capacity == 0 ? 16 : said->capacity * 2;
        turn *grown = realloc(said->turns, capacity * sizeof *grown);
        if (grown == NULL) return false;
        said->turns = grown;
        said->capacity = capacity;
    }
    turn *last = &said->turns[said->count];
    *last = (turn){role, strdup(content)};
    if (last->content == NULL) return false;
    said->count++;
    return true;
}

static void pop(conversation *said) {
    if (said->count > 0) free(said->turns[--said->count].content);
}

static void clear(conversation *said) {
    while (said->count > 0) pop(said);
}

/* --- Turns --- */

static lever_status tokenize(chat *with, token_list *tokens, lever_error *error) {
    lever_message *messages = calloc(with->said.count + 1, sizeof *messages);
    if (messages == NULL) return lv_fail(error, LEVER_E_MEMORY, "no memory for the conversation");
    size_t count = 0;
    if (with->system != NULL) messages[count++] = (lever_message){"system", with->system};
    for (size_t i = 0; i < with->said.count; i++) {
        messages[count++] = (lever_message){with->said.turns[i].role, with->said.turns[i].content};
    }
    const lever_status status = talk_tokenize_chat(&with->talk, messages, count, tokens, error);
    free(messages);
    return status;
}

static void tell_context_full(const chat *with, size_t tokens_count) {
    note(with->options,
         "the conversation has %zu tokens, and the context holds %" PRIu32 ". /clear begins anew; 'lever chat --ctx N' "
         "makes more room. The last message was not taken.",
         tokens_count, with->talk.plan.context_tokens);
}

/* Answers the last message, which is the user's. True when the answer stands. */
static bool answer_last(chat *with) {
    token_list tokens = {0};
    lever_error error = {0};
    reply answer = {.streaming = true};
    lever_status status = tokenize(with, &tokens, &error);
    if (status == LEVER_OK && tokens.count >= with->talk.plan.context_tokens) {
        tell_context_full(with, tokens.count);
        with->code = exit_code_of(LEVER_E_CONTEXT);
        free(tokens.data);
        return false;
    }
    if (status == LEVER_OK) status = talk_answer(&with->talk, &tokens, with->seed, &answer, &error);
    free(tokens.data);
    with->seed_last = with->seed;

    if (answer.bytes > 0 && answer.text[answer.bytes - 1] != '\n' && !answer.write_failed) {
        answer.write_failed = !put_data("\n", 1, &answer.closed);
    }
    if (answer.write_failed) {
        with->done = true;
        with->code = answer.closed ? EXIT_DONE : fail_with(LEVER_E_IO, "writing the answer to standard output failed");
    }
    const bool stands = status == LEVER_OK || status == LEVER_E_CANCELLED;
    if (!stands) with->code = fail_with(status, error.message);
    if (status == LEVER_E_TEMPLATE) with->done = true;
    if (status == LEVER_OK && answer.finish == LEVER_FINISH_LENGTH && with->options->tokens_max == 0) {
        note(with->options, "the answer was cut: the context of %" PRIu32 " tokens is full. /clear begins anew",
             with->talk.plan.context_tokens);
    }
    const bool kept = stands && push(&with->said, "assistant", answer.text != NULL ? answer.text : "");
    reply_fini(&with->last);
    with->last = answer;
    return kept;
}

static void take_message(chat *with, const char *text) {
    if (!push(&with->said, "user", text)) {
        with->code = fail_with(LEVER_E_MEMORY, "no memory for the message");
        return;
    }
    if (!answer_last(with)) pop(&with->said);
}

static void regenerate(chat *with) {
    if (with->said.count < 2) {
        note(with->options, "there is no answer yet");
        return;
    }
    char *before = strdup(with->said.turns[with->said.count - 1].content);
    pop(&with->said);
    with->seed++;
    if (!answer_last(with) && before != NULL) (void)push(&with->said, "assistant", before);
    free(before);
}

static void change_system(chat *with, const char *text) {
    if (text[0] == '\0') {
        fprintf(stderr, "%s\n", with->system != NULL ? with->system : "(no system message)");
        return;
    }
    char *copy = strdup(text);
    if (copy == NULL) return;
    free(with->system);
    with->system = copy;
    note(with->options, "the system message is changed; the conversation is read again with the next message");
}

/* A word behind a slash, of letters alone, is a command. False when the line is none. */
static bool take_command(chat *with, const char *line) {
    if (line[0] != '/') return false;
    size_t length = 1;
    while (isalpha((unsigned char)line[length])) length++;
    if (length == 1 || (line[length] != '\0' && line[length] != ' ')) return false;
    const char *rest = line + length + strspn(line + length, " ");
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)length, line);
    if (strcmp(word, "/exit") == 0) {
        with->done = true;
    } else if (strcmp(word, "/help") == 0) {
        fputs(help_text, stderr);
    } else if (strcmp(word, "/clear") == 0) {
        clear(&with->said);
    } else if (strcmp(word, "/regen") == 0) {
        regenerate(with);
    } else if (strcmp(word, "/stats") == 0) {
        talk_show_statistics(&with->talk, &with->last, with->seed_last);
    } else if (strcmp(word, "/system") == 0) {
        change_system(with, rest);
    } else {
        note(with->options, "unknown command %s; /help lists them", word);
    }
    return true;
}

/* --- Input --- */

static bool append_line(char **text, const char *line) {
    const size_t before = *text != NULL ? strlen(*text) : 0, more = strlen(line);
    char *grown = realloc(*text, before + more + 2);
    if (grown == NULL) return false;
    if (before > 0 || *text != NULL) grown[before] = '\n';
    const size_t at = *text != NULL ? before + 1 : 0;
    memcpy(grown + at, line, more + 1);
    *text = grown;
    return true;
}

static bool ends_with(const char *line, const char *ending) {
    const size_t length = strlen(line), ending_length = strlen(ending);
    return length >= ending_length && strcmp(line + length - ending_length, ending) == 0;
}

/* One message: a line, lines joined by backslashes, or a block. *text is the caller's; NULL with LINE_READ when the
 * line was empty. */
static line_result read_message(chat *with, char **text) {
    static const char fence[] = "\"\"\"";
    bool block = false, more = true;
    *text = NULL;
    while (more) {
        char *line = NULL;
        const line_result result = editor_read(with->editor, *text == NULL && !block ? "> " : ". ", &line);
        if (result == LINE_END && *text != NULL) break; /* what there is counts; the next call ends it */
        if (result != LINE_READ) {
            const bool nothing = *text == NULL && !block;
            free(*text);
            *text = NULL;
            return result == LINE_LEFT && !nothing ? LINE_INTERRUPTED : result;
        }
        if (*text == NULL && !block && strncmp(line, fence, 3) == 0) {
            block = true;
            line += 3;
            if (line[0] == '\0') continue;
        }
        if (block) {
            more = !ends_with(line, fence);
            if (!more) line[strlen(line) - 3] = '\0';
            if (!more && line[0] == '\0') break;
        } else {
            more = ends_with(line, "\\");
            if (more) line[strlen(line) - 1] = '\0';
        }
        if (!append_line(text, line)) return LINE_END;
    }
    if (*text != NULL && (*text)[strspn(*text, " \t\n")] == '\0') {
        free(*text);
        *text = NULL;
    }
    return LINE_READ;
}

static void converse(chat *with) {
    line_result result = LINE_READ;
    while (!with->done && result != LINE_END && result != LINE_LEFT) {
        char *text = NULL;
        result = read_message(with, &text);
        if (result == LINE_READ && text != NULL) {
            if (isatty(STDIN_FILENO)) with->code = EXIT_DONE; /* a person has seen what went wrong */
            if (!take_command(with, text)) take_message(with, text);
        }
        free(text);
    }
}

int command_chat(const cli_options *options) {
    chat with = {.options = options, .talk = {.options = options}};
    char history_path[PATH_BYTES], folder[PATH_BYTES];

    interrupt_open();
    with.code = talk_open(&with.talk, options);
    if (with.code != EXIT_DONE) goto done;
    with.seed = with.seed_last = with.talk.seed;

    const bool has_history = models_make_cache_folder("", folder) && models_cache_path("chat_history", history_path);
    with.editor = editor_open(has_history ? history_path : NULL);
    with.system = options->system != NULL ? strdup(options->system) : NULL;
    if (with.editor == NULL || (options->system != NULL && with.system == NULL)) {
        with.code = fail_with(LEVER_E_MEMORY, "no memory for the conversation");
        goto done;
    }
    if (isatty(STDIN_FILENO)) {
        note(options, "%s, context %" PRIu32 " tokens. /help lists the commands",
             with.talk.info.name[0] != '\0' ? with.talk.info.name : with.talk.paths.model,
             with.talk.plan.context_tokens);
    }
    converse(&with);

done:
    editor_close(&with.editor);
    reply_fini(&with.last);
    clear(&with.said);
    free(with.said.turns);
    free(with.system);
    return talk_close(&with.talk, with.code);
}
