/* bench_prompts.c - see bench_prompts.h. */
#include "bench_prompts.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "json_reader.h"

enum { BAD_LINES_SHOWN = 5, NAME_BYTES = 256 };
#define FILE_BYTES_MAX ((size_t)64 << 20)
#define UNPLACED SIZE_MAX

/* bench/prompts.jsonl of the source tree. */
static const uint8_t own_prompts[] = {
#include "bench_prompts.inc"
};

/* What stands in place of the tasks when none are named: translation is left out, as most small models do it badly. */
static const char own_tasks[] = "code,maths,dialogue,summary,editing";

typedef struct {
    char *id, *task, *category, *text;
    bool failed;
} line_members;

static void keep(char **field, const json_member *member, line_members *into) {
    if (member->kind != JSON_STRING || *field != NULL) return;
    *field = strdup(member->text);
    if (*field == NULL) into->failed = true;
}

static void take_member(void *user, const json_member *member) {
    line_members *into = user;
    if (strcmp(member->path, "id") == 0) keep(&into->id, member, into);
    if (strcmp(member->path, "task") == 0) keep(&into->task, member, into);
    if (strcmp(member->path, "category") == 0) keep(&into->category, member, into);
    if (strcmp(member->path, "prompt") == 0) keep(&into->text, member, into);
}

static bool add_prompt(bench_prompts *prompts, const bench_prompt *prompt) {
    if (prompts->count == prompts->capacity) {
        const size_t capacity = prompts->capacity == 0 ? 32 : prompts->capacity * 2;
        bench_prompt *grown = realloc(prompts->data, capacity * sizeof *grown);
        if (grown == NULL) return false;
        prompts->data = grown;
        prompts->capacity = capacity;
    }
    prompts->data[prompts->count++] = *prompt;
    return true;
}

/* One line; NULL, or what is wrong with it. `stem` is NULL for the project's own, which have a category. */
static const char *add_line(bench_prompts *prompts, const char *line, size_t bytes, const char *stem, size_t number) {
    line_members members = {0};
    const char *problem = NULL;
    if (json_read_object(line, bytes, take_member, &members, &problem)) {
        if (members.text == NULL || members.text[0] == '\0') problem = "no \"prompt\"";
        if (members.failed) problem = "no memory for it";
    }
    if (problem == NULL) {
        char name[NAME_BYTES + 32];
        snprintf(name, sizeof name, "%.*s/%zu", NAME_BYTES, stem != NULL ? stem : "own", number);
        const char *task = stem != NULL ? stem : members.category;
        if (members.id == NULL) members.id = strdup(name);
        if (members.task == NULL) members.task = strdup(task != NULL ? task : "own");
        const bench_prompt prompt = {members.id, members.task, members.text, UNPLACED};
        if (prompt.id != NULL && prompt.task != NULL && add_prompt(prompts, &prompt)) {
            members.id = members.task = members.text = NULL; /* they are the prompt's now */
        } else {
            problem = "no memory for it";
        }
    }
    free(members.id);
    free(members.task);
    free(members.category);
    free(members.text);
    return problem;
}

/* All lines of a text; what is wrong is appended to the message. */
static bool add_lines(bench_prompts *prompts, const char *text, size_t bytes, const char *path, const char *stem,
                      char *message, size_t message_bytes) {
    size_t bad = 0, used = 0, number = 0, added = 0;
    for (const char *line = text, *end = text + bytes; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const size_t length = newline != NULL ? (size_t)(newline - line) : (size_t)(end - line);
        number++;
        if (strspn(line, " \t\r") < length) {
            const char *problem = add_line(prompts, line, length, stem, number);
            added += problem == NULL;
            if (problem != NULL && bad++ < BAD_LINES_SHOWN) {
                used = lv_text_append(message, message_bytes, used, "%s%s:%zu: %s", bad > 1 ? "; " : "", path, number,
                                      problem);
            }
        }
        line += length + (newline != NULL);
    }
    if (bad > BAD_LINES_SHOWN) lv_text_append(message, message_bytes, used, "; and %zu more", bad - BAD_LINES_SHOWN);
    if (bad == 0 && added == 0) snprintf(message, message_bytes, "there is no prompt in %s", path);
    return bad == 0 && added > 0;
}

static bool add_file(bench_prompts *prompts, const char *path, char *message, size_t message_bytes) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(message, message_bytes, "the prompts %s cannot be read: %s", path, strerror(errno));
        return false;
    }
    char *text = malloc(FILE_BYTES_MAX + 1);
    const size_t bytes = text != NULL ? fread(text, 1, FILE_BYTES_MAX, file) : 0;
    bool right = text != NULL && ferror(file) == 0;
    fclose(file);
    if (right) {
        text[bytes] = '\0';
        const char *slash = strrchr(path, '/');
        char stem[NAME_BYTES];
        snprintf(stem, sizeof stem, "%s", slash != NULL ? slash + 1 : path);
        char *ending = strrchr(stem, '.');
        if (ending != NULL && ending != stem) *ending = '\0';
        right = add_lines(prompts, text, bytes, path, stem, message, message_bytes);
    } else {
        snprintf(message, message_bytes, "reading the prompts %s failed", path);
    }
    free(text);
    return right;
}

bool bench_prompts_load(bench_prompts *prompts, const char *files, char *message, size_t message_bytes) {
    *prompts = (bench_prompts){.own = files == NULL};
    if (files == NULL) {
        return add_lines(prompts, (const char *)own_prompts, sizeof own_prompts, "the prompts of lever", NULL, message,
                         message_bytes);
    }
    char *paths = strdup(files), *rest = paths;
    bool right = paths != NULL;
    if (!right) snprintf(message, message_bytes, "no memory for the prompts");
    while (right && rest != NULL) {
        const char *path = strsep(&rest, ",");
        right = add_file(prompts, path, message, message_bytes);
    }
    free(paths);
    return right;
}

static void free_prompt(bench_prompt *prompt) {
    free(prompt->id);
    free(prompt->task);
    free(prompt->text);
    *prompt = (bench_prompt){0};
}

/* The tasks that there are, for messages and as the default: each once, separated by commas. */
static void list_tasks(const bench_prompts *prompts, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < prompts->count; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = strcmp(prompts->data[i].task, prompts->data[j].task) == 0;
        if (!seen) used = lv_text_append(text, capacity, used, "%s%s", used > 0 ? "," : "", prompts->data[i].task);
    }
}

/* Gives places to up to `each` prompts of a task, from *next on; returns how many. */
static size_t place_task(bench_prompts *prompts, const char *task, size_t each, size_t *next) {
    size_t placed = 0;
    for (size_t i = 0; i < prompts->count && (each == 0 || placed < each); i++) {
        if (prompts->data[i].place != UNPLACED || strcmp(prompts->data[i].task, task) != 0) continue;
        prompts->data[i].place = (*next)++;
        placed++;
    }
    return placed;
}

static int compare_places(const void *a, const void *b) {
    const size_t first = ((const bench_prompt *)a)->place, second = ((const bench_prompt *)b)->place;
    return (first > second) - (first < second);
}

bool bench_prompts_choose(bench_prompts *prompts, const char *tasks, size_t each, char *message, size_t message_bytes) {
    char known[1024];
    list_tasks(prompts, known, sizeof known);
    char *wanted = strdup(tasks != NULL ? tasks : prompts->own ? own_tasks : known), *rest = wanted;
    bool right = wanted != NULL;
    size_t chosen = 0;
    if (!right) snprintf(message, message_bytes, "no memory for the prompts");
    while (right && rest != NULL) {
        const char *task = strsep(&rest, ",");
        right = place_task(prompts, task, each, &chosen) > 0;
        if (!right) snprintf(message, message_bytes, "no prompt of the task '%s'; there are %s", task, known);
    }
    free(wanted);
    if (!right) return false;
    qsort(prompts->data, prompts->count, sizeof prompts->data[0],
          compare_places); /* those without a place at the end */
    while (prompts->count > chosen) free_prompt(&prompts->data[--prompts->count]);
    return true;
}

void bench_prompts_fini(bench_prompts *prompts) {
    for (size_t i = 0; i < prompts->count; i++) free_prompt(&prompts->data[i]);
    free(prompts->data);
    *prompts = (bench_prompts){0};
}
