/* options.c - see options.h.
 *
 * getopt_long does the splitting (also in musl and in Android's C library); names, kinds and ranges come from the table
 * below, so that help, environment and messages cannot disagree with what is accepted. */
#include "options.h"

#include <ctype.h>
#include <float.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

typedef enum {
    KIND_FLAG,    /* bool; in the environment 1/0, yes/no, true/false, on/off */
    KIND_TEXT,    /* const char * */
    KIND_TEXTS,   /* may be repeated */
    KIND_RAM,     /* uint64_t, or "none" */
    KIND_COUNT,   /* uint32_t within the range */
    KIND_INTEGER, /* int32_t within the range */
    KIND_NUMBER,  /* float within the range */
    KIND_SEED,    /* uint64_t, or -1 for one that is drawn */
    KIND_CHOICE,  /* int32_t, the index of a word of `choices` */
    KIND_TREE,    /* uint32_t: "fixed:N" */
} option_kind;

typedef struct {
    const char *name;
    char letter; /* 0: none */
    option_kind kind;
    size_t offset; /* in cli_options */
    unsigned commands;
    double least, most;
    const char *value; /* in the help: "FILE" */
    const char *help;
    const char *example;        /* a right value, for messages */
    const char *const *choices; /* ended by NULL */
} option_row;

#define FIELD(name) offsetof(cli_options, name)
#define BENCH(name) offsetof(cli_options, bench.name)
#define ON_OPEN (ON_RUN | ON_CHAT | ON_PLAN | ON_BENCH)
#define ON_MODEL (ON_RUN | ON_CHAT | ON_PLAN)
#define ON_ANSWER (ON_RUN | ON_CHAT)
#define ON_SAMPLE (ON_RUN | ON_CHAT | ON_BENCH)
#define ON_ALL (ON_RUN | ON_CHAT | ON_PLAN | ON_PACK | ON_PULL | ON_INSPECT | ON_DOCTOR | ON_BENCH | ON_TRAIN)

/* In the order of the enums of lever.h. */
static const char *const strategies[] = {"lever", "ar", "chain", "edge", NULL};
static const char *const caches[] = {"pin", "lru", NULL};
static const char *const heads[] = {"auto", "demand", "path", "all", NULL};
static const char *const stop_rules[] = {"own", "longrun", NULL};
static const char *const device_uses[] = {"auto", "target", "draft", "both", NULL};
static const char *const npu_uses[] = {"auto", "target", "both", "none", NULL};
static const char *const trace_formats[] = {"cycles", "chrome", NULL};
static const char *const log_levels[] = {"debug", "info", "warning", "none", NULL};

static const option_row table[] = {
    {"model", 'm', KIND_TEXT, FIELD(model), ON_OPEN | ON_DOCTOR | ON_TRAIN, 0, 0, "FILE",
     "GGUF or packed file, or the name of a pulled pair (default qwen2.5-coder)", "model.gguf", NULL},
    {"draft", 'd', KIND_TEXT, FIELD(draft), ON_OPEN | ON_DOCTOR | ON_TRAIN, 0, 0, "FILE",
     "draft model of the same family: GGUF or packed file (default: that of a pulled pair)", "draft.gguf", NULL},
    {"no-draft", 0, KIND_FLAG, FIELD(no_draft), ON_MODEL, 0, 0, NULL, "no draft model", NULL, NULL},
    {"force-draft", 0, KIND_FLAG, FIELD(force_draft), ON_OPEN, 0, 0, NULL,
     "keep the draft where leaving it out is predicted to be faster", NULL, NULL},
    {"ram", 0, KIND_RAM, FIELD(ram_bytes), ON_MODEL | ON_TRAIN, 0, 0, "SIZE",
     "memory for the whole process, or none for no limit (default: a share of what is free)", "700M", NULL},
    {"target-ram", 0, KIND_INTEGER, FIELD(target_ram_percent), ON_MODEL, 0, 100, "PCT",
     "share of the layers' bytes that stays in memory", "50", NULL},
    {"cache", 0, KIND_CHOICE, FIELD(cache), ON_MODEL, 0, 0, "WHAT",
     "what the layers' memory holds: blocks that are pinned (pin, default), or those used last (lru: none of them is "
     "next, so nothing is saved until all fit; for comparison)",
     "lru", caches},
    {"ctx", 0, KIND_COUNT, FIELD(context_tokens), ON_OPEN, 16, 16777216, "N",
     "tokens of context (default 4096, or what fits)", "4096", NULL},
    {"threads", 0, KIND_COUNT, FIELD(threads), ON_OPEN | ON_DOCTOR | ON_TRAIN, 1, 64, "N",
     "threads that compute (default: fast cores)", "4", NULL},
    {"lanes", 0, KIND_COUNT, FIELD(lanes), ON_OPEN, 1, 16, "N",
     "threads that read (default: what doctor found best, else 2)", "2", NULL},
    {"watch-memory", 0, KIND_FLAG, FIELD(watch_memory), ON_OPEN, 0, 0, NULL,
     "use less memory while the system is short of it", NULL, NULL},
    {"device", 0, KIND_TEXT, FIELD(device), ON_OPEN, 0, 0, "NAME",
     "computes layers beside the CPU: test, or one that doctor lists (default: cpu, none)", "test", NULL},
    {"device-for", 0, KIND_CHOICE, FIELD(device_use), ON_OPEN, 0, 0, "WHAT",
     "what the device computes: auto (default: what trying it shows to pay), target, draft or both", "auto",
     device_uses},
    {"costs", 0, KIND_TEXT, FIELD(costs), ON_SAMPLE, 0, 0, "FILE",
     "frozen costs: the same cycles in every run (default: measured while running)", "pair.costs", NULL},
    {"phone", 0, KIND_TEXT, FIELD(phone), ON_ANSWER, 0, 0, "NAME",
     "simulate a phone: oneplus12, magicv5, honor500pro (:app without root), or a profile's file; its time is virtual",
     "oneplus12", NULL},
    {"as", 0, KIND_TEXT, FIELD(phone_as), ON_ANSWER, 0, 0, "SHAPES",
     "TARGET or TARGET,DRAFT: sizes that --phone takes the models to have (default: their own)",
     "llama-3.1-8b-q4_0,llama-3.2-1b-q4_0", NULL},
    {"phone-npu", 0, KIND_CHOICE, FIELD(phone_npu), ON_ANSWER, 0, 0, "WHAT",
     "layers that the phone's NPU computes: auto (default: the target's, and the draft's where that is faster), "
     "target, "
     "both or none",
     "auto", npu_uses},
    {"strategy", 0, KIND_CHOICE, FIELD(strategy), ON_ANSWER, 0, 0, "NAME",
     "how tokens are found: lever (default; without a draft by look-up alone), ar (plain), chain or edge; the text is "
     "the same",
     "lever", strategies},
    {"chain-length", 0, KIND_COUNT, FIELD(chain_length), ON_ANSWER, 1, 63, "N",
     "tokens that --strategy chain drafts (default 12)", "8", NULL},
    {"tree", 0, KIND_TREE, FIELD(tree_nodes), ON_ANSWER, 1, 63, "fixed:N",
     "N nodes in every tree (default: by gain and cost)", "fixed:16", NULL},
    {"head", 0, KIND_CHOICE, FIELD(head), ON_ANSWER, 0, 0, "MODE",
     "rows that the head computes at once: auto (default), demand, path or all", "auto", heads},
    {"stop-rule", 0, KIND_CHOICE, FIELD(stop_rule), ON_ANSWER, 0, 0, "RULE",
     "a tree grows while it pays by its own rate (default) or that of the last cycles: own or longrun", "own",
     stop_rules},
    {"no-ahead", 0, KIND_FLAG, FIELD(no_ahead), ON_ANSWER, 0, 0, NULL, "the draft rests while the target computes",
     NULL, NULL},
    {"no-lookup", 0, KIND_FLAG, FIELD(no_lookup), ON_ANSWER, 0, 0, NULL, "no candidates from the text so far", NULL,
     NULL},
    {"paper", 0, KIND_FLAG, FIELD(paper), ON_ANSWER, 0, 0, NULL,
     "the published method: --stop-rule own --no-ahead --no-lookup", NULL, NULL},
    {"predictor", 0, KIND_TEXT, FIELD(predictor), ON_SAMPLE, 0, 0, "FILE",
     "pruning predictor of the pair (default: what lever train made, or came with the program)", "pair.predictor",
     NULL},
    {"no-prune", 0, KIND_FLAG, FIELD(no_prune), ON_ANSWER, 0, 0, NULL, "no pruning predictor", NULL, NULL},
    {"prune-cap", 0, KIND_INTEGER, FIELD(prune_cap), ON_ANSWER, 0, 100, "PCT",
     "share of a tree's nodes that may go in the middle of a pass (default 50; 0: none, the predictor only steers the "
     "draft)",
     "50", NULL},
    {"prune-forced", 0, KIND_FLAG, FIELD(prune_forced), ON_ANSWER, 0, 0, NULL,
     "as many nodes go as the cap allows, whether it pays or not (for measurements)", NULL, NULL},
    {"learn", 0, KIND_FLAG, FIELD(learn), ON_ANSWER, 0, 0, NULL, "answers refine the pair's pruning predictor", NULL,
     NULL},
    {"oracle", 0, KIND_TEXT, FIELD(oracle), ON_ANSWER, 0, 0, "FILE",
     "the answer's token ids, taken for what the predictor says (for measurements)", "tokens.txt", NULL},
    {"prompts", 0, KIND_TEXTS, FIELD(prompts), ON_TRAIN, 0, 0, "FILE",
     "train on answers to these prompts, one a line, \\n within one begins a new line (may be repeated)", "prompts.txt",
     NULL},
    {"text", 0, KIND_TEXTS, FIELD(texts), ON_TRAIN, 0, 0, "FILE", "train on a file of text (may be repeated)",
     "notes.txt", NULL},
    {"output", 'o', KIND_TEXT, FIELD(output), ON_TRAIN, 0, 0, "FILE", "write the predictor to FILE", "pair.predictor",
     NULL},
    {"layer", 0, KIND_COUNT, FIELD(layer), ON_TRAIN, 1, 1024, "N",
     "the predictor looks behind layer N (default: where it saves the most)", "8", NULL},
    {"rank", 0, KIND_COUNT, FIELD(rank), ON_TRAIN, 1, 128, "N", "size of the predictor (default 8)", "8", NULL},
    {"miss-weight", 0, KIND_NUMBER, FIELD(miss_weight), ON_TRAIN, 0.01, 100, "F",
     "how much places count where the draft's best was wrong (default 1)", "3", NULL},
    {"keep-samples", 0, KIND_FLAG, FIELD(keep_samples), ON_TRAIN, 0, 0, NULL,
     "keep what was collected, for the next training", NULL, NULL},
    {"trace", 0, KIND_TEXT, FIELD(trace), ON_SAMPLE, 0, 0, "FILE", "write each cycle as a line of JSON", "trace.jsonl",
     NULL},
    {"trace-format", 0, KIND_CHOICE, FIELD(trace_format), ON_ANSWER, 0, 0, "FORM",
     "of --trace: cycles (default), or chrome, a timeline for chrome://tracing and ui.perfetto.dev", "chrome",
     trace_formats},
    {"max-tokens", 'n', KIND_COUNT, FIELD(tokens_max), ON_ANSWER | ON_TRAIN, 0, 16777216, "N",
     "at most N tokens of answer (default 0: until it ends), or of text to train on (40000)", "200", NULL},
    {"temp", 0, KIND_NUMBER, FIELD(temperature), ON_ANSWER, 0, (double)FLT_MAX, "F",
     "temperature; 0 takes the likeliest token (default 0.7)", "0.7", NULL},
    {"top-k", 0, KIND_INTEGER, FIELD(top_k), ON_SAMPLE, -1, 2147483647, "N", "the N likeliest only (default 0: off)",
     "40", NULL},
    {"top-p", 0, KIND_NUMBER, FIELD(top_p), ON_SAMPLE, 0, 1, "F",
     "the likeliest that sum up to F (default 0.95; 1: off)", "0.95", NULL},
    {"min-p", 0, KIND_NUMBER, FIELD(min_p), ON_SAMPLE, 0, 1, "F",
     "at least F times as likely as the likeliest (default 0: off)", "0.05", NULL},
    {"seed", 0, KIND_SEED, FIELD(seed), ON_SAMPLE | ON_TRAIN, 0, 0, "N",
     "the same seed gives the same text (default -1: drawn)", "42", NULL},
    {"repeat-penalty", 0, KIND_NUMBER, FIELD(repeat_penalty), ON_ANSWER, 0.01, 100, "F",
     "against tokens that were there (default 1: off)", "1.1", NULL},
    {"presence-penalty", 0, KIND_NUMBER, FIELD(presence_penalty), ON_ANSWER, -100, 100, "F",
     "taken once from the logit of each token that was there (default 0)", "0.5", NULL},
    {"frequency-penalty", 0, KIND_NUMBER, FIELD(frequency_penalty), ON_ANSWER, -100, 100, "F",
     "taken from it as often as it was there (default 0)", "0.5", NULL},
    {"stop", 0, KIND_TEXTS, FIELD(stops), ON_ANSWER, 0, 0, "TEXT", "ends the answer in front of TEXT (may be repeated)",
     "END", NULL},
    {"system", 0, KIND_TEXT, FIELD(system), ON_ANSWER, 0, 0, "TEXT", "the system message", "Be brief.", NULL},
    {"raw", 0, KIND_FLAG, FIELD(raw), ON_RUN, 0, 0, NULL, "no chat template: the prompt as it is", NULL, NULL},
    {"type", 0, KIND_TEXT, FIELD(type), ON_PACK, 0, 0, "TYPE",
     "requantise the layers' matrices: q4_0, q8_0, ... (default: keep)", "q4_0", NULL},
    {"verify", 0, KIND_FLAG, FIELD(verify), ON_INSPECT, 0, 0, NULL, "check every checksum of a packed file", NULL,
     NULL},
    {"no-pack", 0, KIND_FLAG, FIELD(no_pack), ON_PULL, 0, 0, NULL, "leave the pulled files as they are", NULL, NULL},
    {"quick", 0, KIND_FLAG, FIELD(quick), ON_DOCTOR, 0, 0, NULL, "two seconds instead of ten", NULL, NULL},
    {"strategies", 0, KIND_TEXT, BENCH(strategies), ON_BENCH, 0, 0, "LIST",
     "of lever, ar, chain, chain:N, edge; behind one perhaps +no-ahead, +no-lookup, +no-prune, +prune-cap:PCT, "
     "+prune-forced, +paper, +longrun, +fixed:N, +head:MODE, +lru (default lever,chain,edge,ar)",
     "lever,ar", NULL},
    {"budgets", 0, KIND_TEXT, BENCH(budgets), ON_BENCH, 0, 0, "LIST",
     "of memory for the whole process (900M), shares of the layers (50%), or none (default 7/8 of the target)",
     "900M,1.2G", NULL},
    {"temps", 0, KIND_TEXT, BENCH(temperatures), ON_BENCH, 0, 0, "LIST", "of temperatures (default 0)", "0,0.8", NULL},
    {"lengths", 0, KIND_TEXT, BENCH(lengths), ON_BENCH, 0, 0, "LIST", "of answers, in tokens (default 128)", "32,128",
     NULL},
    {"tasks", 0, KIND_TEXT, BENCH(tasks), ON_BENCH, 0, 0, "LIST",
     "of the prompts' tasks (default code,maths,dialogue,summary,editing)", "code,maths", NULL},
    {"each", 0, KIND_COUNT, BENCH(each), ON_BENCH, 1, 100000, "N", "prompts of each task (default 2; of files: all)",
     "1", NULL},
    {"repetitions", 0, KIND_COUNT, BENCH(repetitions), ON_BENCH, 1, 1000, "N", "rounds of everything (default 1)", "3",
     NULL},
    {"prompts", 0, KIND_TEXT, BENCH(prompts), ON_BENCH, 0, 0, "FILES",
     "JSON lines with prompt and perhaps id and task (default: lever's own)", "code.jsonl,maths.jsonl", NULL},
    {"out", 0, KIND_TEXT, BENCH(out), ON_BENCH, 0, 0, "FILE", "where raw rows go (default lever-bench-TIME.jsonl)",
     "rows.jsonl", NULL},
    {"resume", 0, KIND_TEXT, BENCH(resume), ON_BENCH, 0, 0, "FILE",
     "go on with a file of rows: what it has is not measured again", "rows.jsonl", NULL},
    {"cgroup-ram", 0, KIND_TEXT, BENCH(cgroup_ram), ON_BENCH, 0, 0, "SIZE",
     "run in a memory cgroup of this size, page cache included (wants root)", "900M", NULL},
    {"ignore-end", 0, KIND_FLAG, FIELD(ignore_end), ON_BENCH, 0, 0, NULL, "go on where the model would end its answer",
     NULL, NULL},
    {"disk-mbps", 0, KIND_COUNT, FIELD(disk_mbps), ON_OPEN, 1, 1000000, "N",
     "read the models as from a disk of N million bytes a second (default: as fast as it is)", "500", NULL},
    {"no-direct", 0, KIND_FLAG, FIELD(no_direct), ON_OPEN, 0, 0, NULL, "read through the page cache", NULL, NULL},
    {"json", 0, KIND_FLAG, FIELD(json), ON_RUN | ON_PLAN | ON_INSPECT | ON_DOCTOR, 0, 0, NULL,
     "one JSON object on standard output", NULL, NULL},
    {"quiet", 'q', KIND_FLAG, FIELD(quiet), ON_ALL, 0, 0, NULL, "no progress, no statistics, no warnings", NULL, NULL},
    {"log-level", 0, KIND_CHOICE, FIELD(log_level), ON_ALL, 0, 0, "LEVEL", "debug, info, warning (default) or none",
     "info", log_levels},
};

enum { TABLE_COUNT = sizeof table / sizeof table[0], HELP_CODE = 1000, VERSION_CODE, TABLE_CODE };

static void set_defaults(cli_options *options) {
    *options = (cli_options){
        .target_ram_percent = -1,
        .prune_cap = -1,
        .temperature = 0.7f,
        .top_p = 0.95f,
        .repeat_penalty = 1.0f,
        .log_level = SHOW_WARNING,
    };
}

/* --- Guessing what was meant --- */

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other. */
static size_t distance(const char *a, const char *b) {
    enum { WORD_MAX = 31 };
    const size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > WORD_MAX || b_length > WORD_MAX) return SIZE_MAX;
    size_t cost[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= a_length; i++) {
        for (size_t j = 0; j <= b_length; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            const size_t replaced = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = smaller(replaced, smaller(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = smaller(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[a_length][b_length];
}

const char *options_nearest(const char *word, const char *const *candidates) {
    const char *nearest = NULL;
    size_t nearest_distance = strlen(word) / 2 < 3 ? strlen(word) / 2 + 1 : 4;
    for (size_t i = 0; candidates[i] != NULL; i++) {
        size_t steps = distance(word, candidates[i]);
        const size_t length = strlen(word);
        if (length >= 3 && strncmp(word, candidates[i], length) == 0) steps = 1;
        if (steps < nearest_distance) {
            nearest = candidates[i];
            nearest_distance = steps;
        }
    }
    return nearest;
}

/* --- Values --- */

static bool parse_flag(const char *text, bool *value) {
    static const char *const words[] = {"0", "1", "no", "yes", "false", "true", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *value = i % 2 == 1;
        return true;
    }
    return false;
}

static size_t *texts_count(cli_options *options, const option_row *row) {
    if (row->offset == FIELD(prompts)) return &options->prompts_count;
    return row->offset == FIELD(texts) ? &options->texts_count : &options->stops_count;
}

/* Stores the value; false when it is not allowed. */
static bool store(cli_options *options, const option_row *row, const char *text) {
    char *field = (char *)options + row->offset;
    switch (row->kind) {
    case KIND_FLAG:
        return parse_flag(text, (bool *)field);
    case KIND_TEXT:
        *(const char **)(void *)field = text;
        return text[0] != '\0' || row->offset == FIELD(system);
    case KIND_TEXTS: {
        size_t *count = texts_count(options, row);
        if (*count == OPTIONS_STOPS_MAX) return false;
        ((const char **)(void *)field)[(*count)++] = text;
        return true;
    }
    case KIND_RAM: {
        uint64_t bytes = 0;
        options->ram_unlimited = strcmp(text, "none") == 0;
        if (!options->ram_unlimited && (!lv_parse_size(text, &bytes) || bytes == 0)) return false;
        options->ram_bytes = bytes;
        return true;
    }
    case KIND_COUNT: {
        uint64_t value;
        if (!lv_parse_u64(text, (uint64_t)row->least, (uint64_t)row->most, &value)) return false;
        *(uint32_t *)(void *)field = (uint32_t)value;
        return true;
    }
    case KIND_INTEGER: {
        int64_t value;
        if (!lv_parse_i64(text, (int64_t)row->least, (int64_t)row->most, &value)) return false;
        *(int32_t *)(void *)field = (int32_t)value;
        return true;
    }
    case KIND_NUMBER: {
        double value;
        if (!lv_parse_double(text, row->least, row->most, &value)) return false;
        *(float *)(void *)field = (float)value;
        return true;
    }
    case KIND_SEED:
        options->seed_given = strcmp(text, "-1") != 0;
        return !options->seed_given || lv_parse_u64(text, 0, UINT64_MAX, &options->seed);
    case KIND_CHOICE:
        for (int32_t i = 0; row->choices[i] != NULL; i++) {
            if (strcmp(text, row->choices[i]) != 0) continue;
            *(int32_t *)(void *)field = i;
            return true;
        }
        return false;
    case KIND_TREE: {
        static const char prefix[] = "fixed:";
        uint64_t value;
        if (strncmp(text, prefix, sizeof prefix - 1) != 0) return false;
        if (!lv_parse_u64(text + sizeof prefix - 1, (uint64_t)row->least, (uint64_t)row->most, &value)) return false;
        *(uint32_t *)(void *)field = (uint32_t)value;
        return true;
    }
    }
    return false;
}

/* What is allowed, in words. */
static void describe(const option_row *row, char *text, size_t capacity) {
    switch (row->kind) {
    case KIND_FLAG:
        snprintf(text, capacity, "1 or 0, yes or no, true or false, on or off");
        break;
    case KIND_TEXT:
        snprintf(text, capacity, "a text that is not empty");
        break;
    case KIND_TEXTS:
        snprintf(text, capacity, "at most %d of them", OPTIONS_STOPS_MAX);
        break;
    case KIND_RAM:
        snprintf(text, capacity, "a size such as 700M or 1.5G, or none");
        break;
    case KIND_COUNT:
    case KIND_INTEGER:
        snprintf(text, capacity, "a whole number from %.0f to %.0f", row->least, row->most);
        break;
    case KIND_NUMBER:
        if (row->most >= (double)FLT_MAX) {
            snprintf(text, capacity, "a number of %g or more", row->least);
        } else {
            snprintf(text, capacity, "a number from %g to %g", row->least, row->most);
        }
        break;
    case KIND_SEED:
        snprintf(text, capacity, "a whole number from 0 to 18446744073709551615, or -1 for one that is drawn");
        break;
    case KIND_CHOICE: {
        size_t used = 0;
        for (size_t i = 0; row->choices[i] != NULL && used < capacity; i++) {
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", i == 0 ? "" : ", ", row->choices[i]);
        }
        break;
    }
    case KIND_TREE:
        snprintf(text, capacity, "fixed:N, N from %.0f to %.0f", row->least, row->most);
        break;
    }
}

static options_result wrong_value(const option_row *row, const char *name, const char *value, char *message) {
    char allowed[256];
    describe(row, allowed, sizeof allowed);
    snprintf(message, OPTIONS_MESSAGE_BYTES, "%s is '%.200s'; allowed: %s", name, value, allowed);
    return OPTIONS_WRONG;
}

/* --- Environment --- */

static void environment_name(const option_row *row, char name[64]) {
    snprintf(name, 64, "LEVER_%s", row->name);
    for (char *c = name; *c != '\0'; c++) *c = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
}

static options_result read_environment(cli_options *options, unsigned command, char *(*lookup)(const char *),
                                       char *message) {
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        char name[64];
        environment_name(&table[i], name);
        const char *value = (table[i].commands & command) != 0 ? lookup(name) : NULL;
        if (value == NULL || value[0] == '\0') continue;
        if (!store(options, &table[i], value)) return wrong_value(&table[i], name, value, message);
    }
    return OPTIONS_OK;
}

/* --- Command line --- */

typedef struct {
    struct option longs[TABLE_COUNT + 3];
    char shorts[2 * TABLE_COUNT + 3];
    const char *names[TABLE_COUNT + 3]; /* those of the command, for guessing */
} getopt_tables;

static void fill_getopt_tables(getopt_tables *tables, unsigned command) {
    *tables = (getopt_tables){.shorts = ":h"};
    size_t longs = 0, shorts = strlen(tables->shorts);
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if ((table[i].commands & command) == 0) continue;
        const bool flag = table[i].kind == KIND_FLAG;
        tables->names[longs] = table[i].name;
        tables->longs[longs++] =
            (struct option){table[i].name, flag ? no_argument : required_argument, NULL, TABLE_CODE + (int)i};
        if (table[i].letter == 0) continue;
        tables->shorts[shorts++] = table[i].letter;
        if (!flag) tables->shorts[shorts++] = ':';
    }
    tables->names[longs] = "help";
    tables->longs[longs++] = (struct option){"help", no_argument, NULL, HELP_CODE};
    tables->names[longs] = "version";
    tables->longs[longs++] = (struct option){"version", no_argument, NULL, VERSION_CODE};
}

/* getopt says '?': `optopt` is a letter, the code of a long option that was given a value it does not take, or 0 for an
 * unknown long option, which then stands in `word`. */
static options_result unknown_option(const cli_command *command, const getopt_tables *tables, const char *word,
                                     char *message) {
    if (optopt >= HELP_CODE) {
        snprintf(message, OPTIONS_MESSAGE_BYTES, "%.200s: this option takes no value", word);
        return OPTIONS_WRONG;
    }
    if (optopt != 0) {
        snprintf(message, OPTIONS_MESSAGE_BYTES, "unknown option -%c", optopt);
        return OPTIONS_WRONG;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (strcmp(name, table[i].name) != 0) continue;
        snprintf(message, OPTIONS_MESSAGE_BYTES, "'lever %s' does not take --%s", command->name, name);
        return OPTIONS_WRONG;
    }
    const char *nearest = options_nearest(name, tables->names);
    snprintf(message, OPTIONS_MESSAGE_BYTES, "unknown option --%s%s%s%s", name,
             nearest != NULL ? "; did you mean --" : "", nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
    return OPTIONS_WRONG;
}

static options_result missing_value(char *message) {
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (optopt != TABLE_CODE + (int)i && (table[i].letter == 0 || optopt != table[i].letter)) continue;
        char allowed[256];
        describe(&table[i], allowed, sizeof allowed);
        snprintf(message, OPTIONS_MESSAGE_BYTES, "--%s needs a value: %s, for example --%s '%s'", table[i].name,
                 allowed, table[i].name, table[i].example);
        break;
    }
    return OPTIONS_WRONG;
}

static options_result take_arguments(cli_options *options, const cli_command *command, int argc, char **argv,
                                     char *message) {
    const int count = argc - optind;
    if (count > command->arguments_max) {
        const bool quoting = command->bit == ON_RUN;
        snprintf(message, OPTIONS_MESSAGE_BYTES, "'%.200s' is one argument too many; usage: lever %s%s%s%s",
                 argv[optind + command->arguments_max], command->name, command->arguments[0] != '\0' ? " " : "",
                 command->arguments, quoting ? " (put a prompt of several words in quotes)" : "");
        return OPTIONS_WRONG;
    }
    if (count < command->arguments_min) {
        snprintf(message, OPTIONS_MESSAGE_BYTES, "an argument is missing; usage: lever %s %s", command->name,
                 command->arguments);
        return OPTIONS_WRONG;
    }
    options->arguments_count = count;
    for (int i = 0; i < count; i++) options->arguments[i] = argv[optind + i];
    return OPTIONS_OK;
}

options_result options_parse(cli_options *options, const cli_command *command, int argc, char **argv,
                             char *(*lookup)(const char *name), char message[OPTIONS_MESSAGE_BYTES]) {
    set_defaults(options);
    message[0] = '\0';
    const options_result environment = read_environment(options, command->bit, lookup, message);

    getopt_tables tables;
    fill_getopt_tables(&tables, command->bit);
    bool replaced[TABLE_COUNT] = {false}; /* by option: texts of the environment have left */
    optind = 0;                           /* starts anew, in glibc, musl and bionic */
    opterr = 0;
    for (;;) {
        const int code = getopt_long(argc, argv, tables.shorts, tables.longs, NULL);
        if (code == -1) break;
        if (code == HELP_CODE || code == 'h') return OPTIONS_HELP;
        if (code == VERSION_CODE) return OPTIONS_VERSION;
        if (code == '?') return unknown_option(command, &tables, argv[optind - 1], message);
        if (code == ':') return missing_value(message);

        const option_row *row = NULL;
        for (size_t i = 0; i < TABLE_COUNT; i++) {
            if (code == TABLE_CODE + (int)i || code == table[i].letter) row = &table[i];
        }
        if (row->kind == KIND_TEXTS && !replaced[row - table]) *texts_count(options, row) = 0;
        replaced[row - table] = true;
        char name[64];
        snprintf(name, sizeof name, "--%s", row->name);
        const char *value = row->kind == KIND_FLAG ? "1" : optarg;
        if (!store(options, row, value)) return wrong_value(row, name, value, message);
    }
    if (environment != OPTIONS_OK) return environment;
    return take_arguments(options, command, argc, argv, message);
}

void options_print_help(FILE *out, const cli_command *command) {
    fprintf(out, "lever %s%s%s - %s\n\n%s%s", command->name, command->arguments[0] != '\0' ? " " : "",
            command->arguments, command->summary, command->details, command->details[0] != '\0' ? "\n" : "");
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if ((table[i].commands & command->bit) == 0) continue;
        char left[48];
        snprintf(left, sizeof left, "%c%c%s--%s%s%s", table[i].letter != 0 ? '-' : ' ',
                 table[i].letter != 0 ? table[i].letter : ' ', table[i].letter != 0 ? ", " : "  ", table[i].name,
                 table[i].value != NULL ? " " : "", table[i].value != NULL ? table[i].value : "");
        fprintf(out, "  %-28s %s\n", left, table[i].help);
    }
    fprintf(out,
            "  -h, --help                   this text\n"
            "      --version                the version\n\n"
            "Each option can also stand in the environment: --log-level as LEVER_LOG_LEVEL. Sizes: 512M, 1.5G.\n\n"
            "%s",
            command->example);
}
