/* chat.c - a conversation as tokens, by the model's chat template.
 *
 * libllama knows some fifty templates by telling phrases in them, and writes the conversation as one text. Each content
 * is replaced by a marker between two vertical tabs before: private-use characters and a number, which no template
 * writes. In the result, a marker that is not there had no place; a vertical tab that is not there was trimmed.
 *
 *     <|im_start|>user \n  \v[marker 0]\v  <|im_end|> \n <|im_start|>assistant \n
 *     ------------====  =   ==========     ----------  =  ------------=========  =     - control token   = text
 *
 * Between two control tokens that the template wrote, its own text and the contents are one run, tokenised together: so
 * words that span the border, or the space that SentencePiece puts before a text, come out as in the rendered whole. */
#include "model/chat.h"

#include <llama.h>
#include <stdio.h>
#include <string.h>

#include "model/vocab_internal.h"

#define MESSAGES_MAX ((size_t)100000)
#define FORBIDDEN_MAX 32u
#define MARKER_BYTES ((size_t)14) /* a private-use character, a number of 8 digits, the character again */
#define PADDED_BYTES ((size_t)32) /* between two vertical tabs, terminated; with room for any number */

/* A part of the conversation in the order of the rendered text. */
typedef struct {
    const char *text;
    size_t bytes;
    bool from_template;
} piece;

typedef struct {
    const lv_vocab *vocab;
    const lever_message *messages;
    size_t messages_count;
    bool answer, open_end; /* the last message is left open */
    char *rendered;
    size_t rendered_bytes;
    piece *pieces; /* room for 2 * messages_count + 1 */
    size_t pieces_count;
    int32_t forbidden[FORBIDDEN_MAX]; /* user-defined tokens that the template writes */
    size_t forbidden_count;
    lever_error *error;
} chat;

/* --- What is asked ------------------------------------------------------------------------------------------------ */

static lever_status check_messages(const chat *c) {
    static const char *const roles[] = {"system", "user", "assistant"};
    if (!c->messages_count || c->messages_count > MESSAGES_MAX)
        return lv_fail(c->error, LEVER_E_ARGUMENT, "a conversation of %zu messages; 1 to %zu are valid",
                       c->messages_count, MESSAGES_MAX);
    for (size_t i = 0; i < c->messages_count; i++) {
        const char *role = c->messages[i].role;
        if (!role || !c->messages[i].content)
            return lv_fail(c->error, LEVER_E_ARGUMENT, "message %zu has no role or no content", i);
        bool known = false;
        for (size_t r = 0; r < sizeof roles / sizeof roles[0]; r++) known = known || !strcmp(role, roles[r]);
        char shown[64];
        if (!known)
            return lv_fail(c->error, LEVER_E_TEMPLATE,
                           "message %zu has the role '%s'; system, user and assistant are known", i,
                           lv_gguf_printable(role, strlen(role), shown, sizeof shown));
    }
    return LEVER_OK;
}

static lever_status no_template(const chat *c, const char *what) {
    char shown[80];
    const char *text = lv_vocab_chat_template(c->vocab);
    if (!text)
        return lv_fail(
            c->error, LEVER_E_TEMPLATE,
            "the model has no chat template; give it a raw prompt (--raw) in the form that it was trained on");
    return lv_fail(
        c->error, LEVER_E_TEMPLATE,
        "the chat template of the model (\"%s...\") %s; give it a raw prompt (--raw) in the form that it was "
        "trained on",
        lv_gguf_printable(text, strlen(text), shown, sizeof shown), what);
}

/* libllama does not carry out a template's own checks. This one is common, and skipping it makes prompts that a model
 * has never seen. */
static lever_status check_turns(const chat *c) {
    const char *text = lv_vocab_chat_template(c->vocab);
    if (!strstr(text, "raise_exception") || !strstr(text, "roles must alternate")) return LEVER_OK;
    const char *before = "assistant";
    for (size_t i = 0; i < c->messages_count; i++) {
        const char *role = c->messages[i].role;
        if (i == 0 && !strcmp(role, "system")) continue;
        if (strcmp(role, "system") && strcmp(role, before)) {
            before = role;
            continue;
        }
        return lv_fail(c->error, LEVER_E_TEMPLATE,
                       "message %zu is of role '%s' after '%s', but in the chat template of this model \"roles must "
                       "alternate user/assistant/user/assistant/...\", beginning with user, a system message before",
                       i, role, i ? c->messages[i - 1].role : "nothing");
    }
    return LEVER_OK;
}

/* --- Rendering ---------------------------------------------------------------------------------------------------- */

/* A character from the private-use area that the template does not contain. */
static bool choose_mark(const char *text, char mark[4]) {
    for (unsigned i = 0; i < 64; i++) {
        snprintf(mark, 4, "\xee\x80%c", (int)(0x80 + i));
        if (!strstr(text, mark)) return true;
    }
    return false;
}

static lever_status render(chat *c, const char *mark) {
    const char *text = lv_vocab_chat_template(c->vocab);
    void *memory = NULL;
    size_t memory_bytes = c->messages_count * (sizeof(struct llama_chat_message) + PADDED_BYTES);
    LV_TRY(lv_vocab_work_alloc(c->vocab, &memory, memory_bytes, c->error));
    struct llama_chat_message *marked = memory;
    char(*contents)[PADDED_BYTES] = (char(*)[PADDED_BYTES])(marked + c->messages_count);
    for (size_t i = 0; i < c->messages_count; i++) {
        snprintf(contents[i], PADDED_BYTES, "\v%s%08zu%s\v", mark, i, mark);
        marked[i] = (struct llama_chat_message){.role = c->messages[i].role, .content = contents[i]};
    }
    lever_status status = LEVER_OK;
    int32_t bytes = llama_chat_apply_template(text, marked, c->messages_count, c->answer && !c->open_end, NULL, 0);
    if (bytes < 0) status = no_template(c, "is not one that libllama knows");
    if (status == LEVER_OK) {
        void *rendered = NULL;
        status = lv_vocab_work_alloc(c->vocab, &rendered, (size_t)bytes + 1, c->error);
        c->rendered = rendered;
        c->rendered_bytes = (size_t)bytes;
        if (rendered)
            llama_chat_apply_template(text, marked, c->messages_count, c->answer && !c->open_end, c->rendered,
                                      bytes + 1);
    }
    lv_vocab_work_free(c->vocab, memory, memory_bytes);
    return status;
}

/* --- Taking apart ------------------------------------------------------------------------------------------------- */

static void trim(const char **text, size_t *bytes, bool front, bool back) {
    static const char blanks[] = " \t\n\v\f\r";
    while (front && *bytes && memchr(blanks, **text, sizeof blanks - 1)) {
        ++*text;
        --*bytes;
    }
    while (back && *bytes && memchr(blanks, (*text)[*bytes - 1], sizeof blanks - 1)) --*bytes;
}

/* Reads "<mark>00000012<mark>"; false when it is something else. */
static bool read_marker(const char *text, const char *mark, size_t *index) {
    *index = 0;
    for (size_t i = 3; i < 11; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *index = *index * 10 + (size_t)(text[i] - '0');
    }
    return !strncmp(text + 11, mark, 3);
}

/* Cuts the rendered text into pieces. `seen` has a byte for each message. */
static lever_status split(chat *c, const char *mark, uint8_t *seen) {
    const char *next = c->rendered, *end = c->rendered + c->rendered_bytes;
    for (const char *found; (found = strstr(next, mark)) != NULL;) {
        size_t index = 0;
        if (!read_marker(found, mark, &index) || index >= c->messages_count || seen[index])
            return no_template(c, "repeats or changes messages");
        seen[index] = 1;
        const char *after = found + MARKER_BYTES;
        bool kept_front = found > next && found[-1] == '\v', kept_back = *after == '\v';
        piece content = {.text = c->messages[index].content, .bytes = strlen(c->messages[index].content)};
        trim(&content.text, &content.bytes, !kept_front, !kept_back);
        c->pieces[c->pieces_count++] =
            (piece){.text = next, .bytes = (size_t)(found - next) - kept_front, .from_template = true};
        c->pieces[c->pieces_count++] = content;
        next = after + kept_back;
        if (c->open_end && index + 1 == c->messages_count) end = next;
    }
    if (end > next)
        c->pieces[c->pieces_count++] = (piece){.text = next, .bytes = (size_t)(end - next), .from_template = true};
    for (size_t i = 0; i < c->messages_count; i++)
        if (!seen[i])
            return lv_fail(c->error, LEVER_E_TEMPLATE,
                           "the chat template of the model has no place for message %zu, of role '%s'", i,
                           c->messages[i].role);
    return LEVER_OK;
}

/* Notes the user-defined tokens that the template writes: nobody else may. */
static lever_status note_forbidden(chat *c) {
    for (size_t p = 0; p < c->pieces_count; p++) {
        for (size_t at = 0; c->pieces[p].from_template && at < c->pieces[p].bytes; at++) {
            const lv_vocab_special *special =
                lv_vocab_match(c->vocab, c->pieces[p].text + at, c->pieces[p].bytes - at, true);
            if (!special) continue;
            at += special->text_bytes - 1;
            bool noted = !special->user_defined;
            for (size_t i = 0; i < c->forbidden_count; i++) noted = noted || c->forbidden[i] == special->token;
            if (noted) continue;
            if (c->forbidden_count == FORBIDDEN_MAX) return no_template(c, "uses more special tokens than lever takes");
            c->forbidden[c->forbidden_count++] = special->token;
        }
    }
    return LEVER_OK;
}

/* --- Tokens ------------------------------------------------------------------------------------------------------- */

/* The text of a run, put together from pieces. */
typedef struct {
    char *text;
    size_t bytes;
} run;

static lever_status flush(const chat *c, run *r, lv_token_sink *sink) {
    lv_vocab_rules rules = {.forbidden = c->forbidden, .forbidden_count = c->forbidden_count};
    char *copy = NULL;
    size_t bytes = 0;
    LV_TRY(lv_vocab_repair(c->vocab, r->text, r->bytes, &copy, &bytes, c->error));
    lever_status status = lv_vocab_append(c->vocab, &rules, copy ? copy : r->text, bytes, sink, c->error);
    lv_vocab_work_free(c->vocab, copy, bytes + 1);
    r->bytes = 0;
    return status;
}

static void add_text(run *r, const char *text, size_t bytes, bool *strip) {
    if (*strip) trim(&text, &bytes, true, false);
    if (bytes) *strip = false;
    memcpy(r->text + r->bytes, text, bytes);
    r->bytes += bytes;
}

static lever_status emit(const chat *c, run *r, lv_token_sink *sink) {
    bool strip = false; /* a token before takes the blanks behind it away */
    if (c->vocab->begin_token >= 0) lv_token_sink_add(sink, c->vocab->begin_token);
    for (size_t p = 0; p < c->pieces_count; p++) {
        const piece *part = &c->pieces[p];
        size_t begin = 0, at = 0;
        while (part->from_template && at < part->bytes) {
            const lv_vocab_special *special = lv_vocab_match(c->vocab, part->text + at, part->bytes - at, true);
            if (!special) {
                at++;
                continue;
            }
            add_text(r, part->text + begin, at - begin, &strip);
            const char *text = r->text;
            if (special->strips_left) trim(&text, &r->bytes, false, true);
            LV_TRY(flush(c, r, sink));
            bool second_begin = sink->count == 1 && special->token == c->vocab->begin_token;
            if (!second_begin) lv_token_sink_add(sink, special->token);
            strip = special->strips_right;
            begin = at += special->text_bytes;
        }
        add_text(r, part->text + begin, part->bytes - begin, &strip);
    }
    return flush(c, r, sink);
}

static lever_status tokenize(chat *c, lv_token_sink *sink) {
    size_t total = 0;
    for (size_t p = 0; p < c->pieces_count; p++) total += c->pieces[p].bytes;
    void *memory = NULL;
    LV_TRY(lv_vocab_work_alloc(c->vocab, &memory, total + 1, c->error));
    run r = {.text = memory};
    lever_status status = note_forbidden(c);
    if (status == LEVER_OK) status = emit(c, &r, sink);
    lv_vocab_work_free(c->vocab, memory, total + 1);
    return status;
}

lever_status lv_chat_tokenize(const lv_vocab *vocab, const lever_message *messages, size_t messages_count, bool answer,
                              int32_t *tokens, size_t capacity, size_t *count, lever_error *error) {
    *count = 0;
    chat c = {.vocab = vocab, .messages = messages, .messages_count = messages_count, .answer = answer, .error = error};
    LV_TRY(check_messages(&c));
    char mark[4];
    if (!lv_vocab_chat_template(vocab)) return no_template(&c, "");
    if (!choose_mark(lv_vocab_chat_template(vocab), mark)) return no_template(&c, "leaves no character for markers");
    LV_TRY(check_turns(&c));
    c.open_end = answer && !strcmp(messages[messages_count - 1].role, "assistant");

    lv_token_sink sink = {.tokens = tokens, .capacity = capacity};
    void *memory = NULL;
    size_t memory_bytes = (2 * messages_count + 1) * sizeof *c.pieces + messages_count;
    LV_TRY(lv_vocab_work_alloc(vocab, &memory, memory_bytes, error));
    c.pieces = memory;
    lever_status status = render(&c, mark);
    if (status == LEVER_OK) status = split(&c, mark, (uint8_t *)(c.pieces + 2 * messages_count + 1));
    if (status == LEVER_OK) status = tokenize(&c, &sink);
    if (status == LEVER_OK) status = lv_token_sink_check(&sink, count, error);
    lv_vocab_work_free(vocab, c.rendered, c.rendered_bytes + 1);
    lv_vocab_work_free(vocab, memory, memory_bytes);
    return status;
}
