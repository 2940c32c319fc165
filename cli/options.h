/* options.h - what the user asked for, from the command line and the environment.
 *
 * One table (options.c) gives every option its name, its value, its range, the commands that take it and its line in
 * the help; `--target-ram` is LEVER_TARGET_RAM in the environment, and the command line wins. A mistake is told with
 * the option, the value and what is allowed. Strings are borrowed from argv and the environment. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_STOPS_MAX 16
#define OPTIONS_ARGUMENTS_MAX 2

/* Bits of the commands, for the table of options. */
enum {
    ON_RUN = 1 << 0,
    ON_CHAT = 1 << 1,
    ON_PLAN = 1 << 2,
    ON_PACK = 1 << 3,
    ON_PULL = 1 << 4,
    ON_INSPECT = 1 << 5,
    ON_DOCTOR = 1 << 6,
    ON_BENCH = 1 << 7,
    ON_TRAIN = 1 << 8,
};

/* In the order of their weight: a line is shown when its level is at least the one chosen. */
enum { TRACE_CYCLES = 0, TRACE_CHROME = 1 };
enum { SHOW_DEBUG = 0, SHOW_INFO = 1, SHOW_WARNING = 2, SHOW_NOTHING = 3 };

/* What `lever bench` measures; lists are words separated by commas, NULL where they were not given. */
typedef struct {
    const char *strategies, *budgets, *temperatures, *lengths, *tasks;
    const char *prompts; /* files; NULL: those of lever */
    const char *out, *resume;
    uint32_t each, repetitions; /* prompts of a task, rounds of everything; 0: not given */
    const char *cgroup_ram;     /* a size */
} cli_bench_options;

typedef struct {
    /* The model and what it may use. */
    const char *model; /* NULL: the default pair's target */
    const char *draft; /* NULL: that of the pair, if the model belongs to one */
    bool no_draft, force_draft;
    const char *device;
    int32_t device_use;
    const char *costs;            /* NULL: measured */
    const char *phone, *phone_as; /* NULL: none is simulated; as the models are */
    int32_t phone_npu;
    uint64_t ram_bytes;
    bool ram_unlimited;
    int32_t target_ram_percent; /* -1: not given */
    int32_t cache;              /* lever_cache */
    uint32_t context_tokens, threads, lanes;
    bool no_direct;
    uint32_t disk_mbps; /* 0: as fast as it is */

    /* The answer. */
    uint32_t tokens_max; /* 0: until it ends */
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    uint64_t seed;
    bool seed_given;
    float repeat_penalty, presence_penalty, frequency_penalty;
    const char *stops[OPTIONS_STOPS_MAX];
    size_t stops_count;
    const char *system;
    bool raw;

    /* How its tokens are found. */
    int32_t strategy, head, stop_rule; /* lever_strategy, lever_head_mode, lever_stop_rule */
    uint32_t chain_length;             /* 0: not given */
    uint32_t tree_nodes;               /* 0: by gain and cost */
    bool no_ahead, no_lookup, paper;
    const char *predictor; /* NULL: that of the pair, where there is one */
    bool no_prune, prune_forced, learn;
    int32_t prune_cap;  /* percent; -1: not given */
    const char *oracle; /* a file of token ids; NULL: none */
    bool watch_memory;
    const char *trace;
    int32_t trace_format;
    bool ignore_end;

    cli_bench_options bench;

    /* Files. */
    const char *type;
    bool verify, no_pack, quick;

    /* Training. */
    const char *prompts[OPTIONS_STOPS_MAX], *texts[OPTIONS_STOPS_MAX];
    size_t prompts_count, texts_count;
    const char *output;
    uint32_t layer, rank; /* 0: not given */
    float miss_weight;    /* 0: not given */
    bool keep_samples;

    /* What is shown. */
    bool json, quiet;
    int32_t log_level;

    const char *arguments[OPTIONS_ARGUMENTS_MAX];
    int arguments_count;
} cli_options;

typedef struct {
    const char *name;
    const char *arguments; /* "[PROMPT|-]", "" */
    const char *summary;
    const char *details; /* lines for the help, each ended by a newline; "" */
    const char *example; /* lines with commands */
    unsigned bit;
    int arguments_min, arguments_max;
    int (*run)(const cli_options *options);
} cli_command;

typedef enum { OPTIONS_OK, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_WRONG } options_result;

#define OPTIONS_MESSAGE_BYTES 1024

/* Reads argv[1..] (argv[0] is the command's name) and, before it, the environment through `lookup` (getenv, or a test's
 * own). OPTIONS_WRONG: `message` says what is wrong and what is allowed. */
options_result options_parse(cli_options *options, const cli_command *command, int argc, char **argv,
                             char *(*lookup)(const char *name), char message[OPTIONS_MESSAGE_BYTES]);

void options_print_help(FILE *out, const cli_command *command);

/* Of `candidates` (ended by NULL) the one that was probably meant, or NULL. */
const char *options_nearest(const char *word, const char *const *candidates);

#endif
