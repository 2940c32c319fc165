/* bench_cases.c - see bench_cases.h. */
#include "bench_cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define DEFAULT_ARMS "lever,chain,edge,ar"
#define DEFAULT_TEMPERATURES "0"
#define DEFAULT_LENGTHS "128"
#define BUDGET_STEP ((uint64_t)1 << 20)

/* Adds one word to the list `into`; false when it is not allowed. */
typedef bool (*add_word_fn)(bench_lists *into, const char *word);

static bool parse_list(bench_lists *lists, const char *name, const char *text, add_word_fn add, const char *allowed,
                       char message[BENCH_MESSAGE_BYTES]) {
    char *copy = strdup(text), *rest = copy;
    size_t count = 0;
    bool right = copy != NULL;
    while (right && rest != NULL) {
        const char *word = strsep(&rest, ",");
        right = count++ < BENCH_LIST_MAX && word[0] != '\0' && strlen(word) < BENCH_NAME_BYTES && add(lists, word);
        if (!right) {
            snprintf(message, BENCH_MESSAGE_BYTES, "--%s has '%.60s'; allowed: at most %d of %s, separated by commas",
                     name, word, BENCH_LIST_MAX, allowed);
        }
    }
    if (copy == NULL) snprintf(message, BENCH_MESSAGE_BYTES, "no memory for --%s", name);
    free(copy);
    return right;
}

/* --- Arms --- */

static bool set_fixed(bench_arm *arm, const char *value) {
    uint64_t nodes;
    if (!lv_parse_u64(value, 1, 63, &nodes)) return false;
    arm->how.tree_nodes = (uint32_t)nodes;
    return true;
}

static bool set_head(bench_arm *arm, const char *value) {
    static const char *const names[] = {"auto", "demand", "path", "all"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) != 0) continue;
        arm->how.head = (lever_head_mode)i;
        return true;
    }
    return false;
}

static bool set_no_ahead(bench_arm *arm, const char *value) {
    arm->how.no_ahead = true;
    return value[0] == '\0';
}

static bool set_no_lookup(bench_arm *arm, const char *value) {
    arm->how.no_lookup = true;
    return value[0] == '\0';
}

static bool set_no_prune(bench_arm *arm, const char *value) {
    arm->how.no_prune = true;
    return value[0] == '\0';
}

static bool set_prune_forced(bench_arm *arm, const char *value) {
    arm->how.prune_forced = true;
    return value[0] == '\0';
}

static bool set_prune_cap(bench_arm *arm, const char *value) {
    uint64_t percent;
    if (!lv_parse_u64(value, 0, 100, &percent)) return false;
    arm->how.prune_cap = (int32_t)percent;
    return true;
}

static bool set_longrun(bench_arm *arm, const char *value) {
    arm->how.stop_rule = LEVER_STOP_LONGRUN;
    return value[0] == '\0';
}

static bool set_paper(bench_arm *arm, const char *value) {
    arm->how.no_ahead = arm->how.no_lookup = true;
    arm->how.stop_rule = LEVER_STOP_OWN;
    return value[0] == '\0';
}

static bool set_lru(bench_arm *arm, const char *value) {
    arm->cache = LEVER_CACHE_LRU;
    return value[0] == '\0';
}

/* What may stand behind a strategy, each behind a plus. */
static const struct {
    const char *name; /* with a colon where a value follows */
    bool (*set)(bench_arm *arm, const char *value);
} modifiers[] = {
    {"fixed:", set_fixed},         {"head:", set_head},
    {"no-ahead", set_no_ahead},    {"no-lookup", set_no_lookup},
    {"no-prune", set_no_prune},    {"prune-forced", set_prune_forced},
    {"prune-cap:", set_prune_cap}, {"longrun", set_longrun},
    {"paper", set_paper},          {"lru", set_lru},
};

#define ARMS_ALLOWED                                                                                    \
    "lever, ar, chain, chain:N (1 to 63) or edge, each perhaps with +no-ahead, +no-lookup, +no-prune, " \
    "+prune-cap:PCT, "                                                                                  \
    "+prune-forced, +paper, +longrun, +fixed:N, +head:MODE, +lru"

static bool apply_modifier(bench_arm *arm, const char *word) {
    for (size_t i = 0; i < sizeof modifiers / sizeof modifiers[0]; i++) {
        const size_t length = strlen(modifiers[i].name);
        if (strncmp(word, modifiers[i].name, length) == 0) return modifiers[i].set(arm, word + length);
    }
    return false;
}

static bool apply_strategy(lever_generate_options *how, const char *word) {
    static const lever_strategy strategies[] = {LEVER_STRATEGY_LEVER, LEVER_STRATEGY_AR, LEVER_STRATEGY_CHAIN,
                                                LEVER_STRATEGY_EDGE};
    uint64_t length;
    if (strncmp(word, "chain:", 6) == 0) {
        how->strategy = LEVER_STRATEGY_CHAIN;
        if (!lv_parse_u64(word + 6, 1, 63, &length)) return false;
        how->chain_length = (uint32_t)length;
        return true;
    }
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        how->strategy = strategies[i];
        if (strcmp(word, lever_strategy_text(strategies[i])) == 0) return true;
    }
    return false;
}

static bool add_arm(bench_lists *into, const char *word) {
    bench_arm *arm = &into->arms[into->arms_count++];
    snprintf(arm->name, sizeof arm->name, "%s", word);
    lever_generate_options_init(&arm->how);
    char copy[BENCH_NAME_BYTES];
    memcpy(copy, arm->name, sizeof copy);
    char *rest = copy;
    if (!apply_strategy(&arm->how, strsep(&rest, "+"))) return false;
    while (rest != NULL) {
        if (!apply_modifier(arm, strsep(&rest, "+"))) return false;
    }
    arm->drafts = arm->how.strategy != LEVER_STRATEGY_AR;
    return true;
}

/* --- The other lists --- */

static bool add_budget(bench_lists *into, const char *word) {
    bench_budget *budget = &into->budgets[into->budgets_count++];
    snprintf(budget->name, sizeof budget->name, "%s", word);
    budget->percent = -1;
    if (strcmp(word, "none") == 0) return true;
    char number[BENCH_NAME_BYTES];
    snprintf(number, sizeof number, "%s", word);
    const size_t length = strlen(number);
    if (number[length - 1] != '%') return lv_parse_size(word, &budget->bytes) && budget->bytes > 0;
    number[length - 1] = '\0';
    uint64_t percent;
    if (!lv_parse_u64(number, 0, 100, &percent)) return false;
    budget->percent = (int)percent;
    return true;
}

static bool add_temperature(bench_lists *into, const char *word) {
    double value;
    if (!lv_parse_double(word, 0, 100, &value)) return false;
    into->temperatures[into->temperatures_count++] = (float)value;
    return true;
}

static bool add_length(bench_lists *into, const char *word) {
    uint64_t value;
    if (!lv_parse_u64(word, 2, 1u << 20, &value)) return false;
    into->lengths[into->lengths_count++] = (uint32_t)value;
    return true;
}

static bool has_twice(const bench_lists *lists, char message[BENCH_MESSAGE_BYTES]) {
    for (size_t i = 0; i < lists->arms_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(lists->arms[i].name, lists->arms[j].name) != 0) continue;
            snprintf(message, BENCH_MESSAGE_BYTES, "--strategies has '%s' twice", lists->arms[i].name);
            return true;
        }
    }
    return false;
}

bool bench_lists_parse(bench_lists *lists, const cli_options *options, uint64_t target_bytes,
                       char message[BENCH_MESSAGE_BYTES]) {
    const cli_bench_options *wanted = &options->bench;
    *lists = (bench_lists){.repetitions = wanted->repetitions > 0 ? wanted->repetitions : 1};
    char budget[32];
    snprintf(budget, sizeof budget, "%" PRIu64 "M", target_bytes / 8 * 7 / BUDGET_STEP + 1);
    return parse_list(lists, "strategies", wanted->strategies != NULL ? wanted->strategies : DEFAULT_ARMS, add_arm,
                      ARMS_ALLOWED, message) &&
           parse_list(lists, "budgets", wanted->budgets != NULL ? wanted->budgets : budget, add_budget,
                      "a size such as 900M, a share of the layers such as 50%, or none", message) &&
           parse_list(lists, "temps", wanted->temperatures != NULL ? wanted->temperatures : DEFAULT_TEMPERATURES,
                      add_temperature, "temperatures from 0 to 100", message) &&
           parse_list(lists, "lengths", wanted->lengths != NULL ? wanted->lengths : DEFAULT_LENGTHS, add_length,
                      "answer lengths from 2 tokens on", message) &&
           !has_twice(lists, message);
}

/* --- Their product --- */

bench_case *bench_cases_make(const bench_lists *lists, size_t prompts_count, size_t *count) {
    const size_t rounds =
        lists->repetitions * lists->budgets_count * lists->temperatures_count * lists->lengths_count * prompts_count;
    *count = rounds * lists->arms_count;
    bench_case *cases = calloc(*count + 1, sizeof *cases);
    if (cases == NULL) return NULL;
    for (size_t round = 0; round < rounds; round++) {
        size_t rest = round;
        bench_case one = {.round = round};
        one.prompt = rest % prompts_count;
        rest /= prompts_count;
        one.length = rest % lists->lengths_count;
        rest /= lists->lengths_count;
        one.temperature = rest % lists->temperatures_count;
        rest /= lists->temperatures_count;
        one.budget = rest % lists->budgets_count;
        one.repetition = (uint32_t)(rest / lists->budgets_count);
        for (size_t i = 0; i < lists->arms_count; i++) {
            one.arm = round % 2 == 0 ? i : lists->arms_count - 1 - i;
            cases[round * lists->arms_count + i] = one;
        }
    }
    return cases;
}

void bench_case_name(const bench_lists *lists, const bench_case *c, char name[BENCH_NAME_BYTES]) {
    snprintf(name, BENCH_NAME_BYTES, "%.32s/t%g/n%" PRIu32, lists->budgets[c->budget].name,
             (double)lists->temperatures[c->temperature], lists->lengths[c->length]);
}
