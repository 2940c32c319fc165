/* editor.c - see editor.h.
 *
 * libedit reads characters through a function of ours, so that Ctrl-C ends the line and not the program, and so that a
 * bracketed paste, which libedit does not know, can be taken whole: its newlines stand in the line as a sign that is
 * turned back when the line is done. */
#include "editor.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "interrupt.h"
#include "terminal.h"

#ifdef LEVER_HAVE_EDIT
#include <histedit.h>
#endif

#define HISTORY_LINES 500
#define NEWLINE_SIGN L'\u23ce'      /* the return symbol */
#define NEWLINE_TEXT "\xe2\x8f\x8e" /* the same in UTF-8 */

struct editor {
    char *line;
    size_t capacity;
    bool interactive;
#ifdef LEVER_HAVE_EDIT
    EditLine *edit; /* NULL: plain lines */
    History *history;
    const char *history_path;
    const char *prompt;
    bool interrupted, was_empty;
#endif
};

static line_result read_plainly(editor *reader, const char *prompt) {
    if (reader->interactive) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    if (reader->interactive && !interrupt_wait_for_input()) {
        fputs("\n", stderr);
        return LINE_LEFT;
    }
    const ssize_t length = getline(&reader->line, &reader->capacity, stdin);
    if (length < 0) return interrupt_happened() ? LINE_LEFT : LINE_END;
    if (length > 0 && reader->line[length - 1] == '\n') reader->line[length - 1] = '\0';
    return LINE_READ;
}

#ifdef LEVER_HAVE_EDIT

static char *show_prompt(EditLine *edit) {
    editor *reader = NULL;
    el_get(edit, EL_CLIENTDATA, &reader);
    return (char *)(uintptr_t)reader->prompt; /* libedit does not change it */
}

/* One character; -1 at Ctrl-C, 0 at the end of input. */
static int read_character(EditLine *edit, wchar_t *character) {
    editor *reader = NULL;
    el_get(edit, EL_CLIENTDATA, &reader);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (!interrupt_wait_for_input()) {
            const LineInfo *typed = el_line(edit);
            reader->interrupted = true;
            reader->was_empty = typed->lastchar == typed->buffer;
            return -1;
        }
        const ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        const size_t used = mbrtowc(character, &byte, 1, &state);
        if (used == (size_t)-2) continue;            /* not whole yet */
        if (used == (size_t)-1) *character = 0xfffd; /* no text: shown as such */
        if (used == 0) *character = L'\004';         /* Ctrl-D typed before the terminal was ready */
        return 1;
    }
}

/* Bound to the sequence that begins a bracketed paste: takes everything up to the one that ends it. */
static unsigned char take_paste(EditLine *edit, int character) {
    (void)character;
    static const wchar_t ending[] = L"\033[201~";
    const size_t ending_length = sizeof ending / sizeof ending[0] - 1;
    size_t count = 0, capacity = 0;
    wchar_t *text = NULL, next;
    while (read_character(edit, &next) == 1) {
        if (count + 2 > capacity) {
            capacity = capacity == 0 ? 256 : capacity * 2;
            wchar_t *grown = realloc(text, capacity * sizeof *text);
            if (grown == NULL) break;
            text = grown;
        }
        text[count++] = next == L'\r' || next == L'\n' ? NEWLINE_SIGN : next == L'\t' ? L' ' : next;
        if (count >= ending_length && wmemcmp(text + count - ending_length, ending, ending_length) == 0) {
            count -= ending_length;
            break;
        }
    }
    if (count > 0) {
        text[count] = L'\0';
        (void)el_winsertstr(edit, text);
    }
    free(text);
    return CC_REFRESH;
}

static void open_edit(editor *reader, const char *history_path) {
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    reader->edit = el_init("lever", stdin, stderr, stderr);
    reader->history = history_init();
    if (reader->edit == NULL || reader->history == NULL) return;
    HistEvent event;
    history(reader->history, &event, H_SETSIZE, HISTORY_LINES);
    history(reader->history, &event, H_SETUNIQUE, 1);
    reader->history_path = history_path;
    if (history_path != NULL) history(reader->history, &event, H_LOAD, history_path);
    el_set(reader->edit, EL_CLIENTDATA, reader);
    el_set(reader->edit, EL_PROMPT, show_prompt);
    el_set(reader->edit, EL_EDITOR, "emacs");
    el_set(reader->edit, EL_SIGNAL, 1);
    el_set(reader->edit, EL_HIST, history, reader->history);
    el_set(reader->edit, EL_GETCFN, read_character);
    el_wset(reader->edit, EL_ADDFN, L"lever-paste", L"take a bracketed paste", take_paste); /* el_set leaks the texts */
    el_set(reader->edit, EL_BIND, "\033[200~", "lever-paste", NULL);
    el_source(reader->edit, NULL);
}

static void close_edit(editor *reader) {
    if (reader->edit != NULL) el_end(reader->edit);
    if (reader->history != NULL) history_end(reader->history);
}

static void remember(editor *reader, const char *text) {
    HistEvent event;
    if (text[strspn(text, " \n")] == '\0') return;
    history(reader->history, &event, H_ENTER, text);
    if (reader->history_path != NULL) history(reader->history, &event, H_SAVE, reader->history_path);
}

/* Copies the line, without its newline, the signs of a paste turned back. */
static bool keep_line(editor *reader, const char *text, size_t length) {
    char *kept = realloc(reader->line, length + 1);
    if (kept == NULL) return false;
    reader->line = kept;
    reader->capacity = length + 1;
    size_t out = 0;
    for (size_t i = 0; i < length && text[i] != '\n';) {
        const bool sign = strncmp(text + i, NEWLINE_TEXT, sizeof NEWLINE_TEXT - 1) == 0;
        kept[out++] = sign ? '\n' : text[i];
        i += sign ? sizeof NEWLINE_TEXT - 1 : 1;
    }
    kept[out] = '\0';
    return true;
}

static line_result read_edited(editor *reader, const char *prompt) {
    int length = 0;
    reader->prompt = prompt;
    reader->interrupted = false;
    fputs("\033[?2004h", stderr); /* bracketed paste on */
    fflush(stderr);
    const char *text = el_gets(reader->edit, &length);
    fputs("\033[?2004l", stderr);
    fflush(stderr);
    if (reader->interrupted) {
        fputs("\n", stderr);
        return reader->was_empty ? LINE_LEFT : LINE_INTERRUPTED;
    }
    if (text == NULL || length <= 0) return LINE_END;
    char *entry = strndup(text, strcspn(text, "\n"));
    if (entry != NULL) remember(reader, entry);
    free(entry);
    return keep_line(reader, text, (size_t)length) ? LINE_READ : LINE_END;
}

#endif

editor *editor_open(const char *history_path) {
    editor *opened = calloc(1, sizeof *opened);
    if (opened == NULL) return NULL;
    opened->interactive = isatty(STDIN_FILENO);
#ifdef LEVER_HAVE_EDIT
    if (opened->interactive && terminal_is_live(stderr)) open_edit(opened, history_path);
#else
    (void)history_path;
#endif
    return opened;
}

void editor_close(editor **opened) {
    if (*opened == NULL) return;
#ifdef LEVER_HAVE_EDIT
    close_edit(*opened);
#endif
    free((*opened)->line);
    free(*opened);
    *opened = NULL;
}

line_result editor_read(editor *reader, const char *prompt, char **line) {
    interrupt_remember();
#ifdef LEVER_HAVE_EDIT
    const bool edited = reader->edit != NULL && reader->history != NULL;
    const line_result result = edited ? read_edited(reader, prompt) : read_plainly(reader, prompt);
#else
    const line_result result = read_plainly(reader, prompt);
#endif
    *line = reader->line;
    return result;
}
