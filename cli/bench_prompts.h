/* bench_prompts.h - the prompts of `lever bench`: the project's own, which are part of the command, or files of JSON
 * lines. */
#ifndef CLI_BENCH_PROMPTS_H
#define CLI_BENCH_PROMPTS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char *id, *task, *text;
    size_t place; /* among those that are chosen */
} bench_prompt;

typedef struct {
    bench_prompt *data;
    size_t count, capacity;
    bool own;
} bench_prompts;

/* `files`: paths separated by commas; NULL: the project's own. Each line is an object with `prompt`, and perhaps `id`
 * and `task`; without a task it is the file's name without its ending. False: `message` names every bad line, or the
 * first few of them. */
bool bench_prompts_load(bench_prompts *prompts, const char *files, char *message, size_t message_bytes);

/* Keeps the prompts of the tasks that are named (separated by commas; NULL: all), in the order of the names, and of
 * each task at most `each` (0: all). False: a task has no prompt; `message` says which, and what there is. */
bool bench_prompts_choose(bench_prompts *prompts, const char *tasks, size_t each, char *message, size_t message_bytes);

void bench_prompts_fini(bench_prompts *prompts);

#endif
