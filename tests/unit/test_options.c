/* The table of options: values, ranges, environment, messages, guesses. And the JSON that is written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/json.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "lever.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define WORDS_MAX 12

static int nothing(const cli_options *options) {
    (void)options;
    return 0;
}

static const cli_command run_command = {"run", "[PROMPT|-]", "", "", "", ON_RUN, 0, 1, nothing};
static const cli_command pack_command = {"pack", "IN OUT", "", "", "", ON_PACK, 2, 2, nothing};

/* The environment of a test: pairs of name and value, ended by NULL. */
static const char *const *environment;

static char *lookup(const char *name) {
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i += 2) {
        if (strcmp(environment[i], name) == 0) return (char *)(uintptr_t)environment[i + 1];
    }
    return NULL;
}

static char message[OPTIONS_MESSAGE_BYTES];

static options_result parse(cli_options *options, const cli_command *command, const char *const *words) {
    char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t)command->name};
    int argc = 1;
    while (words[argc - 1] != NULL) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    return options_parse(options, command, argc, argv, lookup, message);
}

static void defaults_are_those_of_the_help(void **state) {
    (void)state;
    cli_options options;
    const char *const words[] = {NULL};
    environment = NULL;
    assert_int_equal(parse(&options, &run_command, words), OPTIONS_OK);
    assert_null(options.model);
    assert_int_equal(options.ram_bytes, 0);
    assert_false(options.ram_unlimited);
    assert_int_equal(options.target_ram_percent, -1);
    assert_true(options.temperature == 0.7f && options.top_p == 0.95f && options.min_p == 0.0f);
    assert_true(options.repeat_penalty == 1.0f);
    assert_int_equal(options.top_k, 0);
    assert_int_equal(options.tokens_max, 0);
    assert_false(options.seed_given);
    assert_int_equal(options.log_level, SHOW_WARNING);
    assert_null(options.draft);
    assert_true(options.strategy == LEVER_STRATEGY_LEVER && options.head == LEVER_HEAD_AUTO);
    assert_true(options.stop_rule == LEVER_STOP_OWN && options.chain_length == 0 && options.tree_nodes == 0);
    assert_false(options.no_draft || options.force_draft || options.no_ahead || options.no_lookup || options.paper);
    assert_int_equal(options.arguments_count, 0);
}

static void values_are_taken(void **state) {
    (void)state;
    cli_options options;
    const char *const words[] = {"-m",     "x.gguf", "--ram=1.5G", "hello", "--seed", "18446744073709551615",
                                 "--stop", "a",      "--stop",     "b",     "-n7",    NULL};
    environment = NULL;
    assert_int_equal(parse(&options, &run_command, words), OPTIONS_OK);
    assert_string_equal(options.model, "x.gguf");
    assert_int_equal(options.ram_bytes, (uint64_t)3 << 29);
    assert_true(options.seed_given && options.seed == UINT64_MAX);
    assert_int_equal(options.stops_count, 2);
    assert_string_equal(options.stops[0], "a");
    assert_string_equal(options.stops[1], "b");
    assert_int_equal(options.tokens_max, 7);
    assert_int_equal(options.arguments_count, 1);
    assert_string_equal(options.arguments[0], "hello");

    const char *const others[] = {"--ram", "none", "--target-ram", "0", "--seed", "-1", "--raw", "--", "--temp", NULL};
    assert_int_equal(parse(&options, &run_command, others), OPTIONS_OK);
    assert_true(options.ram_unlimited && options.raw && !options.seed_given);
    assert_int_equal(options.target_ram_percent, 0);
    assert_string_equal(options.arguments[0], "--temp");

    const char *const dash[] = {"-", NULL};
    assert_int_equal(parse(&options, &run_command, dash), OPTIONS_OK);
    assert_string_equal(options.arguments[0], "-");
}

/* The words of a choice stand for the values of lever.h. */
static void choices_mean_what_they_say(void **state) {
    (void)state;
    environment = NULL;
    static const struct {
        const char *words[4];
        size_t field;
        int32_t value;
    } cases[] = {
        {{"--strategy", "lever"}, offsetof(cli_options, strategy), LEVER_STRATEGY_LEVER},
        {{"--strategy", "ar"}, offsetof(cli_options, strategy), LEVER_STRATEGY_AR},
        {{"--strategy", "chain"}, offsetof(cli_options, strategy), LEVER_STRATEGY_CHAIN},
        {{"--strategy", "edge"}, offsetof(cli_options, strategy), LEVER_STRATEGY_EDGE},
        {{"--head", "auto"}, offsetof(cli_options, head), LEVER_HEAD_AUTO},
        {{"--head", "demand"}, offsetof(cli_options, head), LEVER_HEAD_DEMAND},
        {{"--head", "path"}, offsetof(cli_options, head), LEVER_HEAD_PATH},
        {{"--head", "all"}, offsetof(cli_options, head), LEVER_HEAD_ALL},
        {{"--stop-rule", "own"}, offsetof(cli_options, stop_rule), LEVER_STOP_OWN},
        {{"--stop-rule", "longrun"}, offsetof(cli_options, stop_rule), LEVER_STOP_LONGRUN},
        {{"--chain-length", "24"}, offsetof(cli_options, chain_length), 24},
        {{"--tree", "fixed:32"}, offsetof(cli_options, tree_nodes), 32},
    };
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        cli_options options;
        if (parse(&options, &run_command, cases[c].words) != OPTIONS_OK) fail_msg("case %zu: %s", c, message);
        int32_t value;
        memcpy(&value, (const char *)&options + cases[c].field, sizeof value);
        if (value != cases[c].value) fail_msg("case %zu: %d", c, value);
    }
    cli_options options;
    const char *const words[] = {"-d",          "d.gguf",  "--force-draft", "--costs", "c.json", "--no-ahead",
                                 "--no-lookup", "--trace", "t.jsonl",       "--paper", NULL};
    assert_int_equal(parse(&options, &run_command, words), OPTIONS_OK);
    assert_string_equal(options.draft, "d.gguf");
    assert_string_equal(options.costs, "c.json");
    assert_string_equal(options.trace, "t.jsonl");
    assert_true(options.force_draft && options.no_ahead && options.no_lookup && options.paper && !options.no_draft);
}

static void the_command_line_wins_over_the_environment(void **state) {
    (void)state;
    static const char *const variables[] = {"LEVER_TEMP", "0.2", "LEVER_MAX_TOKENS", "5",     "LEVER_STOP", "env",
                                            "LEVER_JSON", "yes", "LEVER_RAM",        "",      "LEVER_TYPE", "q4_0",
                                            "LEVER_RAW",  "off", "LEVER_SYSTEM",     "brief", NULL};
    environment = variables;
    cli_options options;
    const char *const none[] = {NULL};
    assert_int_equal(parse(&options, &run_command, none), OPTIONS_OK);
    assert_true(options.temperature == 0.2f && options.json && !options.raw);
    assert_int_equal(options.tokens_max, 5);
    assert_int_equal(options.stops_count, 1);
    assert_string_equal(options.stops[0], "env");
    assert_string_equal(options.system, "brief");
    assert_null(options.type); /* not an option of this command */

    const char *const words[] = {"--temp", "0.9", "--stop", "line", "--stop", "two", NULL};
    assert_int_equal(parse(&options, &run_command, words), OPTIONS_OK);
    assert_true(options.temperature == 0.9f);
    assert_int_equal(options.stops_count, 2);
    assert_string_equal(options.stops[0], "line");
    environment = NULL;
}

static void mistakes_are_told(void **state) {
    (void)state;
    static const struct {
        const cli_command *command;
        const char *words[WORDS_MAX];
        const char *variable, *value;
        const char *told[3]; /* each stands in the message */
    } cases[] = {
        {&run_command, {"--temp", "hot"}, NULL, NULL, {"--temp", "'hot'", "a number of 0 or more"}},
        {&run_command, {"--temp", "nan"}, NULL, NULL, {"--temp", "'nan'"}},
        {&run_command, {"--temp", "-1"}, NULL, NULL, {"--temp", "'-1'"}},
        {&run_command, {"--top-p", "1.1"}, NULL, NULL, {"--top-p", "'1.1'", "from 0 to 1"}},
        {&run_command, {"--top-k", "1.5"}, NULL, NULL, {"--top-k", "'1.5'", "whole"}},
        {&run_command, {"--seed", "1.5"}, NULL, NULL, {"--seed", "'1.5'", "-1"}},
        {&run_command, {"--seed", "18446744073709551616"}, NULL, NULL, {"--seed", "18446744073709551615"}},
        {&run_command, {"--target-ram", "101"}, NULL, NULL, {"--target-ram", "'101'", "from 0 to 100"}},
        {&run_command, {"--target-ram", "50%"}, NULL, NULL, {"--target-ram", "'50%'"}},
        {&run_command, {"--ram", "5X"}, NULL, NULL, {"--ram", "'5X'", "700M"}},
        {&run_command, {"--ram", "0"}, NULL, NULL, {"--ram", "'0'", "none"}},
        {&run_command, {"--ctx", "4k"}, NULL, NULL, {"--ctx", "'4k'", "whole"}},
        {&run_command, {"--threads", "0"}, NULL, NULL, {"--threads", "'0'", "from 1"}},
        {&run_command, {"-n", " 5"}, NULL, NULL, {"--max-tokens", "' 5'"}},
        {&run_command, {"--model", ""}, NULL, NULL, {"--model", "''"}},
        {&run_command, {"--strategy", "tree"}, NULL, NULL, {"--strategy", "'tree'", "allowed: lever, ar, chain, edge"}},
        {&run_command, {"--head", "some"}, NULL, NULL, {"--head", "'some'", "auto, demand, path, all"}},
        {&run_command, {"--stop-rule", "never"}, NULL, NULL, {"--stop-rule", "own, longrun"}},
        {&run_command, {"--tree", "16"}, NULL, NULL, {"--tree", "'16'", "fixed:N, N from 1 to 63"}},
        {&run_command, {"--tree", "fixed:0"}, NULL, NULL, {"--tree", "'fixed:0'"}},
        {&run_command, {"--tree", "fixed:"}, NULL, NULL, {"--tree", "'fixed:'"}},
        {&run_command, {"--tree", "fixed:64"}, NULL, NULL, {"--tree", "'fixed:64'"}},
        {&run_command, {"--chain-length", "0"}, NULL, NULL, {"--chain-length", "from 1 to 63"}},
        {&run_command, {"--draft", ""}, NULL, NULL, {"--draft", "''"}},
        {&run_command, {"--log-level", "loud"}, NULL, NULL, {"--log-level", "debug, info, warning, none"}},
        {&run_command, {"--tmep", "1"}, NULL, NULL, {"--tmep", "did you mean --temp?"}},
        {&run_command, {"--temperature", "1"}, NULL, NULL, {"--temperature"}},
        {&run_command, {"--type", "q4_0"}, NULL, NULL, {"'lever run' does not take --type"}},
        {&run_command, {"--phones", "x"}, NULL, NULL, {"unknown option --phones", "--phone?"}},
        {&pack_command, {"--draft", "x", "a", "b"}, NULL, NULL, {"'lever pack' does not take --draft"}},
        {&run_command, {"-x"}, NULL, NULL, {"unknown option -x"}},
        {&run_command, {"--json=1"}, NULL, NULL, {"--json=1", "no value"}},
        {&run_command, {"--temp"}, NULL, NULL, {"--temp needs a value", "0.7"}},
        {&run_command, {"-m"}, NULL, NULL, {"--model needs a value"}},
        {&run_command, {"two", "words"}, NULL, NULL, {"'words'", "quotes"}},
        {&pack_command, {"one"}, NULL, NULL, {"missing", "lever pack IN OUT"}},
        {&pack_command, {"--temp", "1", "a", "b"}, NULL, NULL, {"'lever pack' does not take --temp"}},
        {&run_command, {NULL}, "LEVER_TEMP", "hot", {"LEVER_TEMP", "'hot'", "a number"}},
        {&run_command, {NULL}, "LEVER_QUIET", "maybe", {"LEVER_QUIET", "'maybe'", "yes or no"}},
    };
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        const char *const variables[] = {cases[c].variable, cases[c].value, NULL};
        environment = variables;
        cli_options options;
        if (parse(&options, cases[c].command, cases[c].words) != OPTIONS_WRONG) fail_msg("case %zu was accepted", c);
        for (size_t i = 0; i < 3 && cases[c].told[i] != NULL; i++) {
            if (strstr(message, cases[c].told[i]) == NULL) {
                fail_msg("case %zu: '%s' is not in '%s'", c, cases[c].told[i], message);
            }
        }
    }
    environment = NULL;
}

static void help_and_version_come_first(void **state) {
    (void)state;
    cli_options options;
    const char *const help[] = {"--help", NULL}, *const short_help[] = {"-h", NULL},
                      *const version[] = {"--version", NULL};
    static const char *const broken[] = {"LEVER_TEMP", "hot", NULL};
    environment = broken; /* even then */
    assert_int_equal(parse(&options, &run_command, help), OPTIONS_HELP);
    assert_int_equal(parse(&options, &pack_command, short_help), OPTIONS_HELP);
    assert_int_equal(parse(&options, &run_command, version), OPTIONS_VERSION);
    environment = NULL;
}

/* Seventeen stop strings are one too many; sixteen are not. */
static void stops_are_limited(void **state) {
    (void)state;
    char *argv[2 * OPTIONS_STOPS_MAX + 4] = {(char *)(uintptr_t) "run"};
    int argc = 1;
    for (int i = 0; i <= OPTIONS_STOPS_MAX; i++) {
        argv[argc++] = (char *)(uintptr_t) "--stop";
        argv[argc++] = (char *)(uintptr_t) "x";
    }
    cli_options options;
    environment = NULL;
    assert_int_equal(options_parse(&options, &run_command, argc, argv, lookup, message), OPTIONS_WRONG);
    assert_non_null(strstr(message, "at most 16"));
    assert_int_equal(options_parse(&options, &run_command, argc - 2, argv, lookup, message), OPTIONS_OK);
    assert_int_equal(options.stops_count, OPTIONS_STOPS_MAX);
}

static void guesses_are_near(void **state) {
    (void)state;
    static const char *const words[] = {"run", "chat", "plan", "pack", "pull", "inspect", "doctor", NULL};
    static const struct {
        const char *given, *meant;
    } cases[] = {{"rnu", "run"}, {"runn", "run"},    {"chta", "chat"}, {"docter", "doctor"},   {"insp", "inspect"},
                 {"x", NULL},    {"generate", NULL}, {"serve", NULL},  {"inspekt", "inspect"}, {"", NULL}};
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        const char *meant = options_nearest(cases[c].given, words);
        if ((meant == NULL) != (cases[c].meant == NULL) || (meant != NULL && strcmp(meant, cases[c].meant) != 0)) {
            fail_msg("'%s' is taken for '%s'", cases[c].given, meant != NULL ? meant : "nothing");
        }
    }
}

/* Every option stands in the help of the commands that take it, and nothing that does not work yet. */
static void the_help_lists_what_works(void **state) {
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    options_print_help(out, &run_command);
    fclose(out);
    static const char *const listed[] = {
        "--model FILE",    "-d, --draft FILE", "--ram SIZE",   "--seed N", "--stop TEXT",
        "--strategy NAME", "--tree fixed:N",   "--phone NAME", "--json",   "--help"};
    for (size_t i = 0; i < COUNT_OF(listed); i++) assert_non_null(strstr(text, listed[i]));
    static const char *const absent[] = {"--type", "--prompts", "--verify"};
    for (size_t i = 0; i < COUNT_OF(absent); i++) assert_null(strstr(text, absent[i]));
    free(text);
}

static void statuses_become_exit_codes(void **state) {
    (void)state;
    static const struct {
        lever_status status;
        int code;
    } cases[] = {{LEVER_OK, 0},         {LEVER_E_ARGUMENT, 2}, {LEVER_E_FORMAT, 3},   {LEVER_E_BUDGET, 4},
                 {LEVER_E_MEMORY, 4},   {LEVER_E_IO, 5},       {LEVER_E_CONTEXT, 1},  {LEVER_E_CANCELLED, 130},
                 {LEVER_E_TEMPLATE, 3}, {LEVER_E_NETWORK, 1},  {LEVER_E_INTERNAL, 1}, {(lever_status)-99, 1}};
    for (size_t c = 0; c < COUNT_OF(cases); c++) assert_int_equal(exit_code_of(cases[c].status), cases[c].code);
}

static void json_is_written_as_it_should(void **state) {
    (void)state;
    json out;
    json_init(&out);
    json_object_open(&out, NULL);
    static const char odd[] = "\"\\/\b\f\n\r\t\x01\x7f \xe6\xad\xa3 \xff\0end";
    json_string(&out, "text", odd, sizeof odd - 1);
    json_text(&out, "none", NULL);
    json_array_open(&out, "list");
    json_array_close(&out);
    json_array_open(&out, "ids");
    json_unsigned(&out, NULL, 0);
    json_unsigned(&out, NULL, UINT64_MAX);
    json_array_close(&out);
    json_number(&out, "a", 0.1);
    json_number(&out, "b", (double)INFINITY);
    json_number(&out, "c", 2391234567.0);
    json_bool(&out, "yes", true);
    json_object_open(&out, "k\"ey");
    json_object_close(&out);
    json_object_close(&out);
    assert_false(out.failed);
    assert_string_equal(out.text,
                        "{\"text\": \"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f \xe6\xad\xa3 \xef\xbf\xbd\\u0000end\", "
                        "\"none\": null, \"list\": [], \"ids\": [0, 18446744073709551615], \"a\": 0.1, "
                        "\"b\": 0, \"c\": 2.39123e+09, \"yes\": true, \"k\\\"ey\": {}}");
    json_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_help),
        cmocka_unit_test(values_are_taken),
        cmocka_unit_test(choices_mean_what_they_say),
        cmocka_unit_test(the_command_line_wins_over_the_environment),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(help_and_version_come_first),
        cmocka_unit_test(stops_are_limited),
        cmocka_unit_test(guesses_are_near),
        cmocka_unit_test(the_help_lists_what_works),
        cmocka_unit_test(statuses_become_exit_codes),
        cmocka_unit_test(json_is_written_as_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
