/* main.c - the table of commands. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "lever.h"
#include "terminal.h"

/* In the order in which a newcomer needs them. */
static const cli_command commands[] = {
    {"pull", "[PAIR]", "fetch a model pair, check and pack it",
     "PAIR is qwen2.5-coder (the default: target 1.5B, draft 0.5B) or smollm2 (135M, for trying). An interrupted pull\n"
     "goes on where it stopped. HF_TOKEN and HF_ENDPOINT are honoured.\n",
     "  lever pull\n  lever pull smollm2\n", ON_PULL, 0, 1, command_pull},
    {"run", "[PROMPT|-]", "one answer on standard output",
     "Without PROMPT, or with -, the prompt is read from standard input. Without -m the default pair is used, target\n"
     "and draft. A draft makes the answer faster and never another one; --no-draft goes without.\n"
     "Nothing but the answer goes to standard output.\n",
     "  lever run --ram 700M \"Write a quicksort in C.\"\n  lever run -m model.gguf -d draft.gguf --ram 2G \"Hello\"\n"
     "  lever run --json --seed 1 -n 100 - < question.txt\n",
     ON_RUN, 0, 1, command_run},
    {"chat", "", "a conversation in the terminal",
     "Ctrl-C ends an answer, Ctrl-D or /exit the conversation; /help lists the commands. A line that ends in \\ goes "
     "on\n"
     "in the next; \"\"\" begins and ends a block of lines.\n",
     "  lever chat --ram 700M --system \"Answer briefly.\"\n", ON_CHAT, 0, 0, command_chat},
    {"plan", "", "what would be in memory and the speed to expect, without loading",
     "With a draft it tells whether the draft would be kept, or why not.\n",
     "  lever plan -m model.gguf --ram 700M\n  lever plan -m model.gguf -d draft.gguf --ram 2G\n", ON_PLAN, 0, 0,
     command_plan},
    {"pack", "IN OUT", "rewrite a GGUF into the layout that streams fastest", "",
     "  lever pack model.gguf model.lvr\n  lever pack --type q4_0 model.gguf model-q4_0.lvr\n", ON_PACK, 2, 2,
     command_pack},
    {"train", "", "make the pruning predictor of a pair: it makes answers faster, never other ones",
     "Both models go through text, written by themselves from prompts that come along unless --prompts or --text is\n"
     "given; a small network learns from it which drafted tokens the target will take. Minutes. An interrupted run "
     "goes\n"
     "on where it stopped. The predictor is kept where lever run finds it, unless -o names a file.\n",
     "  lever train\n  lever train -m target.gguf -d draft.gguf --ram 1G --text notes.txt -o pair.predictor\n",
     ON_TRAIN, 0, 0, command_train},
    {"inspect", "FILE", "what is in a GGUF, packed file, predictor or file of costs",
     "Of a predictor: which pair it is for, where it looks, its size and the recall that it promises. Of a file of "
     "costs:\nwhat was measured, in milliseconds, and how often candidates were right.\n",
     "  lever inspect model.gguf\n  lever inspect --verify model.lvr\n  lever inspect pair.predictor\n", ON_INSPECT, 1,
     1, command_inspect},
    {"doctor", "", "storage, memory and processor: measured, with advice",
     "Measures the disk that the model lies on, and keeps the best number of lanes for later. With a draft it tells\n"
     "what runs of the two have measured: the cost of passes, and how often the draft was right.\n",
     "  lever doctor\n  lever doctor -m model.gguf -d draft.gguf --quick --json\n", ON_DOCTOR, 0, 0, command_doctor},
    {"bench", "", "strategies x prompts x budgets, measured side by side",
     "Every strategy answers every prompt; a table comes out, and a raw row of each answer as a line of JSON. All "
     "must\n"
     "write the same text. The default, 40 answers of 128 tokens, takes about 15 minutes with the default pair. "
     "Unless\n"
     "given, the context is 2048, or the model's if that is less, and the seed 1; a share of the layers as budget "
     "keeps\n"
     "the draft.\n",
     "  lever bench\n  lever bench --strategies lever,ar --budgets 900M,50% --tasks code --lengths 64\n"
     "  lever bench --cgroup-ram 1G --budgets 1G --out rows.jsonl; lever bench ... --resume rows.jsonl\n",
     ON_BENCH, 0, 0, command_bench},
};

enum { COMMANDS_COUNT = sizeof commands / sizeof commands[0] };

static void print_overview(FILE *out) {
    fputs("lever - run a language model larger than your memory\n\nusage: lever COMMAND [OPTION...]\n\n", out);
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].arguments);
        fprintf(out, "  %-20s %s\n", left, commands[i].summary);
    }
    fputs("\n'lever COMMAND --help' lists the options of a command; 'lever --version' says the version.\n\n"
          "Exit codes: 0 done; 1 anything else (network, full context); 2 usage; 3 file or format; 4 memory budget;\n"
          "5 reading or writing failed; 130 interrupted (the text so far stands).\n\n"
          "  lever pull && lever run --ram 700M \"Write a quicksort in C.\"\n",
          out);
}

static const cli_command *find_command(const char *name) {
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[COMMANDS_COUNT + 1] = {NULL};
    for (size_t i = 0; i < COMMANDS_COUNT; i++) names[i] = commands[i].name;
    const char *nearest = options_nearest(name, names);
    if (nearest != NULL) return fail_usage("unknown command '%s'; did you mean '%s'?", name, nearest);
    return fail_usage("unknown command '%s'; 'lever --help' lists them", name);
}

static int print_version(void) {
    printf("lever %s\n", lever_version());
    return EXIT_DONE;
}

/* A standard stream that was closed is opened on nothing: no file of ours gets its number, and reads and writes fail.
 */
static void keep_stream_numbers(void) {
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) != -1) continue;
        if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
    }
}

/* What was printed must have arrived; that nobody listens any more is no mistake. */
static int end_output(int code) {
    const bool failed = ferror(stdout) != 0;
    if ((fflush(stdout) == 0 || errno == EPIPE) && !failed) return code;
    return code != EXIT_DONE ? code : fail_with(LEVER_E_IO, "writing to standard output failed");
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) return print_version();
    const bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
    if (help && argc == 2) {
        print_overview(stdout);
        return EXIT_DONE;
    }
    const char *name = help ? argv[2] : word;
    const cli_command *command = find_command(name);
    if (command == NULL) return unknown_command(name);
    if (help) {
        options_print_help(stdout, command);
        return EXIT_DONE;
    }

    cli_options options;
    char message[OPTIONS_MESSAGE_BYTES];
    switch (options_parse(&options, command, argc - 1, argv + 1, getenv, message)) {
    case OPTIONS_OK:
        return command->run(&options);
    case OPTIONS_HELP:
        options_print_help(stdout, command);
        return EXIT_DONE;
    case OPTIONS_VERSION:
        return print_version();
    case OPTIONS_WRONG:
        break;
    }
    return fail_usage("%s\n'lever %s --help' lists the options.", message, command->name);
}

int main(int argc, char **argv) {
    keep_stream_numbers();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error to tell, as a full disk is */
    return end_output(run(argc, argv));
}
