/* talk.h - an engine, a session and the answers they give: what `run` and `chat` share.
 *
 * Opens both as the options say, shows progress, lets Ctrl-C end an answer, collects text, tokens and statistics. */
#ifndef CLI_TALK_H
#define CLI_TALK_H

#include "lever.h"
#include "models.h"
#include "progress.h"

/* The files of an engine; its options borrow from here. */
typedef struct {
    char model[PATH_BYTES], draft[PATH_BYTES], cache[PATH_BYTES], predictors[PATH_BYTES];
} talk_paths;

typedef struct {
    int32_t *data;
    size_t count, capacity;
} token_list;

typedef struct {
    const cli_options *options;
    talk_paths paths;
    lever_engine *engine;
    lever_session *session;
    lever_engine_info info;
    lever_plan plan;
    uint64_t seed;    /* given or drawn */
    FILE *trace;      /* NULL: none is written */
    int trace_error;  /* errno of the first write to it that failed; 0 */
    token_list known; /* --oracle */
    bool trace_has_spans;
    progress bar;
} talk;

typedef struct {
    char *text; /* terminated; owned until reply_fini */
    size_t bytes, capacity;
    token_list tokens;
    lever_finish finish;
    lever_statistics statistics;
    bool streaming;    /* text goes to standard output as it comes */
    bool closed;       /* nobody reads standard output any more */
    bool write_failed; /* writing failed for another reason */
    bool memory_failed;
} reply;

/* The options of an engine, for `plan` too. False: the message was printed; *exit_code says how to end. */
bool talk_engine_options(const cli_options *options, talk_paths *paths, lever_engine_options *engine, int *exit_code);

/* Returns the exit code. */
int talk_open(talk *opened, const cli_options *options);
/* Returns `code`, or, where that is EXIT_DONE, what a trace that is not complete makes of it. What was never opened is
 * accepted. */
int talk_close(talk *opened, int code);

/* Fills `tokens` (owned by the caller, freed with free). */
lever_status talk_tokenize_raw(talk *opened, const char *text, size_t bytes, token_list *tokens, lever_error *error);
lever_status talk_tokenize_chat(talk *opened, const lever_message *messages, size_t count, token_list *tokens,
                                lever_error *error);

/* One answer to the tokens. A cancelled one is LEVER_E_CANCELLED, and `answer` holds what there was until then. */
lever_status talk_answer(talk *opened, const token_list *prompt, uint64_t seed, reply *answer, lever_error *error);

void reply_fini(reply *answer);

/* The line with the figures of the last answer. */
void talk_show_statistics(const talk *opened, const reply *answer, uint64_t seed);

#endif
