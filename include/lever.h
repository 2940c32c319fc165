/* lever.h - run a language model larger than your memory.
 *
 * An ENGINE is a model opened under a memory budget. Its weights stay on flash and stream through a small ring of
 * buffers; what the budget allows stays pinned in memory. A SESSION is one conversation: its tokens, its key/value
 * cache, its sampler. Tokens are decided by the model and the seed alone, never by the budget, the layout of the file
 * or the number of threads.
 *
 *     lever_engine_options options;
 *     lever_engine_options_init(&options);
 *     options.model_path = "model.gguf";
 *     options.ram_bytes  = 700u << 20;
 *     lever_engine *engine = NULL;
 *     lever_error   error;
 *     if (lever_engine_open(&engine, &options, &error) != LEVER_OK) { ... error.message ... }
 *     ... lever_session_open, lever_session_prompt, lever_session_generate ...
 *     lever_engine_close(&engine);
 *
 * Threads. An engine may be shared by threads; a session belongs to one thread at a time. Passes of several sessions
 * are serialised inside the engine. Two functions may be called from any thread at any time, also while another call is
 * running on the same object: lever_session_cancel and lever_engine_set_budget.
 *
 * Errors. Every function that can fail returns a lever_status and, where `error` is not NULL, writes a message that
 * says what was tried, on what, what was found and what to do. The library never exits, never prints, never changes the
 * environment and keeps no global state.
 *
 * Callbacks come without a lock of the engine's and may call what they like, but close nothing that is at work, nor
 * change the session that is (LEVER_E_ARGUMENT). Three come in the middle of a pass, progress of a prompt
 * (LEVER_STAGE_PREFILL), logits of lever_session_score, and a line of the log that a device failed or a file is read
 * through the page cache: of the same engine these may call lever_session_cancel and lever_engine_set_budget alone.
 *
 * Ownership. Strings and arrays in options are borrowed for the duration of the call. Pointers returned by accessors
 * are borrowed until their object is closed, or as stated. Every _close takes a pointer to the handle, accepts NULL and
 * a handle that is NULL, and sets the handle to NULL. */
#ifndef LEVER_H
#define LEVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) || !defined(__GNUC__)
#define LEVER_API
#else
#define LEVER_API __attribute__((visibility("default")))
#endif

#define LEVER_VERSION_MAJOR 0
#define LEVER_VERSION_MINOR 1
#define LEVER_VERSION_PATCH 0
#define LEVER_VERSION_TEXT "0.1.0"

/* --- Status and errors ------------------------------------------------------------------------------------------- */

/* One list gives the enum, the names and the texts. The number of a status never changes. */
#define LEVER_STATUS_LIST(X)                             \
    X(LEVER_OK, 0, "success")                            \
    X(LEVER_E_ARGUMENT, -1, "invalid argument")          \
    X(LEVER_E_FORMAT, -2, "damaged or unsupported file") \
    X(LEVER_E_BUDGET, -3, "memory budget too small")     \
    X(LEVER_E_MEMORY, -4, "the system refused memory")   \
    X(LEVER_E_IO, -5, "reading or writing failed")       \
    X(LEVER_E_CONTEXT, -6, "the context is full")        \
    X(LEVER_E_CANCELLED, -7, "cancelled")                \
    X(LEVER_E_TEMPLATE, -8, "no usable chat template")   \
    X(LEVER_E_NETWORK, -9, "the network failed")         \
    X(LEVER_E_INTERNAL, -10, "internal error")

typedef enum {
#define LEVER_STATUS_ENUM(name, number, text) name = number,
    LEVER_STATUS_LIST(LEVER_STATUS_ENUM)
#undef LEVER_STATUS_ENUM
} lever_status;

/* Filled by a function that fails; the caller's own, may be NULL wherever it is taken. */
typedef struct {
    lever_status status;
    char message[1024];
} lever_error;

/* The short text of a status, never NULL. */
LEVER_API const char *lever_status_text(lever_status status);

/* "0.1.0": the version of the library that is running. */
LEVER_API const char *lever_version(void);

/* --- Callbacks --------------------------------------------------------------------------------------------------- */

typedef enum { LEVER_LOG_DEBUG = 0, LEVER_LOG_INFO = 1, LEVER_LOG_WARNING = 2 } lever_log_level;

/* One line without a newline. May be called from any thread of the library. */
typedef void (*lever_log_fn)(void *user, lever_log_level level, const char *line);

typedef enum {
    LEVER_STAGE_OPEN = 0,    /* bytes of pinned weights read; also those of a draft that comes back for an answer */
    LEVER_STAGE_PREFILL = 1, /* prompt tokens times layers computed */
    LEVER_STAGE_PACK = 2,    /* bytes written */
    LEVER_STAGE_VERIFY = 3,  /* bytes checked */
    LEVER_STAGE_COLLECT = 4, /* tokens of text gone through */
    LEVER_STAGE_TRAIN = 5    /* rounds through what was collected */
} lever_stage;

/* `done` of `total` units of the stage. Called from the thread that called into the library. */
typedef void (*lever_progress_fn)(void *user, lever_stage stage, uint64_t done, uint64_t total);

/* A token of the answer; tokens that end an answer are not given out. `text` holds `text_bytes` bytes of whole UTF-8
 * characters (not terminated) that became certain with this token; it can be empty. `token` is -1 for the last call of
 * an answer when held-back text is flushed. Return false to end the answer after this token. */
typedef bool (*lever_token_fn)(void *user, int32_t token, const char *text, size_t text_bytes);

/* --- Engine ------------------------------------------------------------------------------------------------------ */

typedef struct lever_engine lever_engine;
typedef struct lever_session lever_session;

/* What a device is for: whatever trying it has shown to pay; or this, whatever it costs. */
typedef enum {
    LEVER_DEVICE_AUTO = 0,
    LEVER_DEVICE_TARGET = 1,
    LEVER_DEVICE_DRAFT = 2,
    LEVER_DEVICE_BOTH = 3
} lever_device_use;

/* What the NPU of a simulated phone computes; the cores have the rest, and the heads. AUTO: the target's layers, and
 * those of the draft in front of a pass where it is faster. TARGET: the target's alone. BOTH: all layers, also of what
 * is drafted beside a pass, which then shares it. NONE: none, and the cores are shared. */
typedef enum {
    LEVER_PHONE_NPU_AUTO = 0,
    LEVER_PHONE_NPU_TARGET = 1,
    LEVER_PHONE_NPU_BOTH = 2,
    LEVER_PHONE_NPU_NONE = 3
} lever_phone_npu;

/* What the layers get of the memory. A pass goes through them in a circle, so a cache of what was used last never has
 * what comes next, unless it has everything: LRU is there to be compared with. */
typedef enum {
    LEVER_CACHE_PIN = 0, /* blocks that are chosen once, and stay */
    LEVER_CACHE_LRU = 1  /* the blocks used last: slots of the ring, which no budget takes back */
} lever_cache;

/* "pin", "lru". */
LEVER_API const char *lever_cache_text(lever_cache cache);

typedef struct {
    const char *model_path;     /* GGUF (first file of a split set) or packed file; required */
    uint64_t ram_bytes;         /* budget of the whole process, at most what is free; 0: a stated share of that */
    bool ram_unlimited;         /* true: no budget at all (ram_bytes must be 0) */
    int target_ram_percent;     /* 0..100: share of the layer bytes to pin; -1: as the plan decides, or 0 on a phone */
    lever_cache cache;          /* default: LEVER_CACHE_PIN */
    uint32_t context_tokens;    /* 0: 4096 or what fits */
    uint32_t sessions_max;      /* sessions open at once that the plan sets memory aside for; default 1 */
    uint32_t threads;           /* compute threads in all; 0: performance cores of this machine */
    uint32_t lanes;             /* reader threads; 0: what lever_doctor found best, else 2 */
    uint32_t block_bytes;       /* most that one read takes; 0: 8 MiB. 64 KiB to 32 MiB */
    uint32_t ring_bytes;        /* 0: as the plan decides */
    bool huge_pages;            /* ask for huge pages; default true */
    bool verify_checksums;      /* check packed blocks when first read; default true */
    bool direct_io;             /* bypass the page cache where the system allows; default true */
    const char *cache_dir;      /* folder with what was measured on this machine (disk, costs); may be NULL */
    const char *draft_path;     /* GGUF or packed file of the draft model; NULL: none, plain decoding */
    bool draft_forced;          /* keep the draft where the plan would leave it out */
    const char *costs_path;     /* frozen costs: the same cycles in every run; NULL: measured while running */
    const char *predictor_path; /* of the pair's pruning predictor; NULL: looked for in cache_dir, then predictor_dir */
    const char *predictor_dir;  /* folder with predictors that came with the program; may be NULL */
    bool no_predictor;          /* none is loaded */
    bool learn;                 /* answers refine the predictor, which is kept in cache_dir */
    const char *phone;          /* to simulate: "oneplus12", "oneplus12:app", a profile's file; NULL: none */
    const char *phone_as;       /* sizes that it takes the models to have: "TARGET", "TARGET,DRAFT"; NULL: their own */
    lever_phone_npu phone_npu;  /* default AUTO */
    const char *device;         /* computes layers beside the CPU (docs/DEVICES.md); NULL or "cpu": none */
    lever_device_use device_use;
    /* As on a disk of this speed: reads of both models take their time, one behind the other. 0: the disk as it is. */
    uint64_t disk_bytes_per_second;
    bool watch_memory; /* shrink the budget while the system is short of memory: pinned weights go, then the draft; and
                        * let it grow again */
    bool trace_spans;  /* record what happens when, for lever_generate_options.spans */
    lever_log_fn log;  /* may be NULL */
    void *log_user;
    lever_progress_fn progress; /* may be NULL */
    void *progress_user;
} lever_engine_options;

LEVER_API void lever_engine_options_init(lever_engine_options *options);

/* One row of the memory plan. */
typedef struct {
    const char *category; /* static text */
    uint64_t bytes;
} lever_plan_row;

#define LEVER_PLAN_ROWS_MAX 16

typedef struct {
    lever_plan_row rows[LEVER_PLAN_ROWS_MAX];
    uint32_t rows_count;
    uint64_t total_bytes;  /* sum of the rows */
    uint64_t budget_bytes; /* UINT64_MAX: none */
    uint64_t least_bytes;  /* the smallest budget that works with this model, at least_context tokens */
    uint32_t least_context_tokens;
    uint64_t all_bytes;     /* the budget from which everything is pinned */
    bool budget_is_default; /* the budget was derived from free memory */
    uint32_t context_tokens;
    uint32_t prefill_rows; /* prompt tokens that one pass takes */
    uint32_t layers_count;
    uint64_t layer_bytes;  /* of all layers */
    uint64_t pinned_bytes; /* of the layers */
    uint64_t head_bytes;
    bool head_pinned;
    lever_cache cache;
    uint64_t ring_bytes;            /* with LEVER_CACHE_LRU all that the layers get */
    uint64_t pass_read_bytes;       /* read from flash for each decoded token */
    double io_bytes_per_second;     /* used for the estimate; 0: unknown */
    double memory_bytes_per_second; /* used for the estimate; 0: unknown */
    double tokens_per_second;       /* expected when decoding plainly; 0: unknown */
    bool draft_used;                /* a draft was given, and is in memory */
    uint64_t draft_bytes;           /* what the draft takes in all: weights, head, caches, activations */
    char draft_reason[160];         /* why the draft was left out; "": it was not */
} lever_plan;

/* What would be in memory, without reading weights. LEVER_E_BUDGET when it does not fit: the plan is filled all the
 * same, with `least_bytes` saying what would do. */
LEVER_API lever_status lever_engine_plan(const lever_engine_options *options, lever_plan *plan, lever_error *error);

LEVER_API lever_status lever_engine_open(lever_engine **engine, const lever_engine_options *options,
                                         lever_error *error);

/* All sessions must be closed before. */
LEVER_API void lever_engine_close(lever_engine **engine);

/* Changes the budget while running, from any thread. A smaller budget unpins weights within one block's time; a larger
 * one is filled by pinning as blocks pass by, up to target_ram_percent where that was given. Sessions of sessions_max
 * that are not open yet keep their memory as long as pinned weights can make room. The ring keeps its memory, so with
 * LEVER_CACHE_LRU little can be given up. LEVER_E_BUDGET when `ram_bytes` is
 * below what cannot be given up; the budget then stays as it was. 0 lifts the limit. With watch_memory this is the most
 * from then on. */
LEVER_API lever_status lever_engine_set_budget(lever_engine *engine, uint64_t ram_bytes, lever_error *error);

/* The plan as carried out. */
LEVER_API void lever_engine_get_plan(const lever_engine *engine, lever_plan *plan);

typedef struct {
    const char *architecture;  /* "qwen2"; borrowed until the engine is closed */
    const char *name;          /* general.name, "" when absent */
    const char *kernels;       /* instruction set of the kernels in use */
    const char *chat_template; /* NULL when the file has none */
    int32_t vocabulary_tokens;
    uint32_t context_train_tokens;
    uint32_t threads;
    uint32_t lanes;
    bool packed;
    bool direct_io;                   /* false once reading has fallen back on buffered reads */
    bool draft;                       /* a draft model is in memory */
    const char *device;               /* "cpu", or the device in use; borrowed until the engine is closed */
    bool device_target, device_draft; /* what it was opened for */
    bool device_failed;               /* it has failed, and the CPU has taken over */
    double open_seconds;

    /* The phone that is simulated (NULL: none), the section of its profile, and what it takes the models for. */
    const char *phone;
    const char *phone_section, *phone_target, *phone_draft;
    uint32_t phone_layers_count, phone_layers_pinned; /* of the target */
} lever_engine_info;

LEVER_API void lever_engine_get_info(const lever_engine *engine, lever_engine_info *info);

/* --- Text and tokens --------------------------------------------------------------------------------------------- */

/* Both functions write at most `capacity` tokens and always set *count to the number needed; LEVER_E_ARGUMENT when that
 * is more. Invalid UTF-8 is taken as U+FFFD. */

/* `control` makes the names of control tokens in the text real control tokens: for raw prompts, never for what a
 * stranger wrote. `begin` adds the model's own start token where it wants one (never a second one). */
LEVER_API lever_status lever_tokenize(const lever_engine *engine, const char *text, size_t text_bytes, bool begin,
                                      bool control, int32_t *tokens, size_t capacity, size_t *count,
                                      lever_error *error);

typedef struct {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} lever_message;

/* Renders a conversation with the model's chat template. Contents never become control tokens. With `answer`, the start
 * of the assistant's turn is added. LEVER_E_TEMPLATE, naming it, when the template is not known. */
LEVER_API lever_status lever_chat_tokenize(const lever_engine *engine, const lever_message *messages,
                                           size_t messages_count, bool answer, int32_t *tokens, size_t capacity,
                                           size_t *count, lever_error *error);

/* The bytes of one token (not terminated, can be part of a character); returns how many, or 0 for an unknown id or one
 * without text. At most `capacity` are written. */
LEVER_API size_t lever_token_text(const lever_engine *engine, int32_t token, bool control, char *text, size_t capacity);

/* True for every token that ends an answer. */
LEVER_API bool lever_token_is_end(const lever_engine *engine, int32_t token);

/* --- Session ----------------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t context_tokens; /* 0: as the engine's plan says; never more */
} lever_session_options;

LEVER_API void lever_session_options_init(lever_session_options *options);

/* Reserves all the memory that the session will use. LEVER_E_BUDGET when that is not there. */
LEVER_API lever_status lever_session_open(lever_session **session, lever_engine *engine,
                                          const lever_session_options *options, lever_error *error);

LEVER_API void lever_session_close(lever_session **session);

/* Makes the session hold exactly these tokens. The prefix that it already holds is not computed again; what differs is
 * dropped and computed anew. LEVER_E_CONTEXT, before any weight is read, when they do not fit. After an error or a
 * cancellation the session holds the tokens that were completed and can go on. */
LEVER_API lever_status lever_session_prompt(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                            lever_error *error);

typedef enum {
    LEVER_STRATEGY_LEVER = 0, /* a token tree by gain and cost */
    LEVER_STRATEGY_AR = 1,    /* plain: a pass for each token */
    LEVER_STRATEGY_CHAIN = 2, /* a chain of fixed length, then a pass */
    LEVER_STRATEGY_EDGE = 3   /* EdgeLLM-like: a tree that grows by level until its best path is unlikely */
} lever_strategy;

/* "lever", "ar", "chain", "edge". */
LEVER_API const char *lever_strategy_text(lever_strategy strategy);

typedef enum {
    LEVER_HEAD_AUTO = 0,   /* by cost */
    LEVER_HEAD_DEMAND = 1, /* row by row along the accepted path */
    LEVER_HEAD_PATH = 2,   /* the likeliest path at once, the rest on demand */
    LEVER_HEAD_ALL = 3     /* every row of the pass */
} lever_head_mode;

typedef enum {
    LEVER_STOP_OWN = 0,    /* the tree's own average rate */
    LEVER_STOP_LONGRUN = 1 /* the rate of the last cycles */
} lever_stop_rule;

/* One cycle as a line of JSON, without a newline; borrowed for the call. */
typedef void (*lever_trace_fn)(void *user, const char *line);

typedef struct {
    uint32_t tokens_max;  /* 0: until the answer or the context ends */
    float temperature;    /* 0: the likeliest token */
    int32_t top_k;        /* 0: off */
    float top_p;          /* 1: off; 0: the likeliest only */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off */
    float presence_penalty;
    float frequency_penalty;
    int32_t penalty_tokens; /* how far back penalties look; default 64, -1: the whole session */
    uint64_t seed;
    const char *const *stops; /* texts that end the answer and are not part of it; empty ones are ignored */
    size_t stops_count;       /* at most 16 */
    bool ignore_end;          /* go on past end-of-generation tokens (measurements) */

    /* How tokens are found. None of this changes the text. */
    lever_strategy strategy; /* default: LEVER_STRATEGY_LEVER; without a draft only by look-up, others plain */
    uint32_t chain_length;   /* of LEVER_STRATEGY_CHAIN; 0: 12 */
    uint32_t tree_nodes;     /* LEVER_STRATEGY_LEVER: always this many nodes; 0: by gain and cost */
    lever_head_mode head;    /* which rows the head computes at once */
    lever_stop_rule stop_rule;
    bool no_ahead;     /* the draft rests while the target computes */
    bool no_lookup;    /* no candidates from the text so far */
    bool no_prune;     /* no row of a pass ends in its middle, and nothing is learned there */
    int32_t prune_cap; /* percent of a pass's nodes that may go in its middle, 0 to 100; -1: 50. 0: scores only steer
                          drafting ahead */
    bool prune_forced; /* measurement: as many go as the cap allows, whether it pays or not */
    const int32_t *known_tokens; /* measurement: the answer's tokens, taken for what the predictor says; NULL */
    size_t known_tokens_count;
    lever_trace_fn trace; /* may be NULL */
    void *trace_user;
    lever_trace_fn spans; /* events of the Chrome trace format, of all that the engine does; needs trace_spans */
    void *spans_user;
} lever_generate_options;

LEVER_API void lever_generate_options_init(lever_generate_options *options);

typedef enum { LEVER_FINISH_STOP = 0, LEVER_FINISH_LENGTH = 1, LEVER_FINISH_CANCELLED = 2 } lever_finish;

/* "stop", "length", "cancelled". */
LEVER_API const char *lever_finish_text(lever_finish finish);

/* Continues the session's tokens. `on_token` may be NULL. On LEVER_E_CANCELLED and other errors the session stands at
 * its last committed token; what was emitted has been given to `on_token`. */
LEVER_API lever_status lever_session_generate(lever_session *session, const lever_generate_options *options,
                                              lever_token_fn on_token, void *user, lever_finish *finish,
                                              lever_error *error);

/* Ends the call that is running on the session with LEVER_E_CANCELLED, within one block's time; without one running,
 * the next call. From any thread, but not from a signal handler: it takes a lock for a moment. */
LEVER_API void lever_session_cancel(lever_session *session);

/* Drops all tokens from `tokens_count` on; exact. LEVER_E_ARGUMENT when the session holds fewer. */
LEVER_API lever_status lever_session_rewind(lever_session *session, size_t tokens_count, lever_error *error);

/* The tokens that the session holds, prompt and answers; borrowed until the next call on the session. */
LEVER_API const int32_t *lever_session_tokens(const lever_session *session, size_t *count);

/* Logits that follow the session's last token: vocabulary_tokens floats, borrowed until the next call on the session;
 * NULL when there are none (no token yet, or after a rewind). */
LEVER_API const float *lever_session_logits(const lever_session *session);

/* Measurement: makes the session hold `tokens` like lever_session_prompt and calls `on_logits` for each computed
 * position, in order. Return false to stop. */
typedef bool (*lever_logits_fn)(void *user, size_t position, const float *logits);
LEVER_API lever_status lever_session_score(lever_session *session, const int32_t *tokens, size_t tokens_count,
                                           lever_logits_fn on_logits, void *user, lever_error *error);

/* Counters of the last prompt and generate calls; seconds are wall-clock, or those of a simulated phone. `bytes_read`,
 * `io_seconds` and what derives from them count decoding only. */
typedef struct {
    uint64_t prompt_tokens;        /* given */
    uint64_t prompt_tokens_reused; /* of these, not computed again */
    uint64_t prefill_passes;       /* over flash */
    double prefill_seconds;
    double first_token_seconds; /* from the prompt given to the first token out */
    uint64_t completion_tokens;
    double decode_seconds;    /* from the first token out to the end of the answer */
    double tokens_per_second; /* tokens after the first, by decode_seconds; 0 when there are none */
    uint64_t cycles;
    uint64_t nodes_drafted, nodes_verified, nodes_padded, nodes_pruned, nodes_accepted;
    uint64_t layer_rows;                           /* rows times layers computed while decoding */
    uint64_t device_layer_rows, padded_layer_rows; /* of these on a device; and computed besides, as padding */
    uint64_t bytes_read;
    double io_seconds; /* time in which a read was in flight */
    double compute_seconds;
    double head_seconds;
    double draft_seconds, draft_hidden_seconds;
    double
        ahead_hit_rate; /* of the cycles that drafted ahead, those whose next token had been expanded, then or before */
    uint64_t cycles_scored; /* in which the predictor was asked */
    double prune_recall;    /* of the walk's steps to nodes of the pass, how many were to one that had stayed; 1: all */
    bool draft_dropped; /* the draft left in the middle of the answer: the target alone, with its memory, is faster, or
                         * the system is short of memory */
    bool draft_away;    /* it was wanted, but is away since it left in an answer before */
    lever_strategy strategy; /* that was in force */
    uint64_t ram_budget;     /* UINT64_MAX: none */
    uint64_t ram_used;       /* the ledger's, now */
    uint64_t ram_peak;       /* the ledger's */
    uint64_t rss_peak;       /* the kernel's, of the process; 0: unknown */
    uint64_t rss_now;
    uint64_t huge_page_bytes;
    uint64_t target_bytes_pinned;
    lever_cache cache;
    uint64_t cache_hit_bytes; /* while decoding, of blocks that LEVER_CACHE_LRU had kept: nothing read them anew */
    uint64_t ring_bytes;

    /* While decoding: of the phone that is simulated, or of the processor where it tells; 0: unknown. */
    double energy_joules;
    bool energy_is_simulated;
    double phone_temperature; /* degrees Celsius */
    double phone_speed;       /* the share of its full speed that heat leaves it; 0: no phone is simulated */
} lever_statistics;

LEVER_API void lever_session_get_statistics(const lever_session *session, lever_statistics *statistics);

/* --- Files ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *type; /* NULL: keep the types; else "q4_0", "q8_0", "q4_k", ... for the matrices of the layers */
    lever_progress_fn progress;
    void *progress_user;
    lever_log_fn log;
    void *log_user;
} lever_pack_options;

LEVER_API void lever_pack_options_init(lever_pack_options *options);

/* Writes the fast layout to `output_path`.part, there from the first progress on, and renames it at the end. */
LEVER_API lever_status lever_pack(const char *input_path, const char *output_path, const lever_pack_options *options,
                                  lever_error *error);

/* One fact about a file: "architecture" = "qwen2". Both strings are borrowed for the call. */
typedef void (*lever_fact_fn)(void *user, const char *key, const char *value);

/* What is in a GGUF, packed file, predictor or file of costs; with `verify`, every checksum of a packed file is checked
 * (LEVER_E_FORMAT, naming the block, when one is wrong). A damaged predictor or file of costs is LEVER_E_FORMAT. */
LEVER_API lever_status lever_inspect(const char *path, bool verify, lever_fact_fn on_fact, void *user,
                                     lever_progress_fn progress, void *progress_user, lever_error *error);

/* --- Training ---------------------------------------------------------------------------------------------------- */

/* Makes the pruning predictor of a pair: goes through text with both models, keeps what it sees there in a file beside
 * the output, then learns from it. A run that was interrupted goes on from that file, as far as its texts are the first
 * of those given now; the result is that of a run that was not. LEVER_E_BUDGET when the samples do not fit the budget:
 * they are kept, for a larger budget or fewer tokens. */
typedef struct {
    const char *model_path, *draft_path; /* required */
    const char *cache_dir;               /* where the pair's predictor is looked for; NULL: output_path is required */
    const char *const *prompts;          /* that the pair answers itself */
    size_t prompts_count;
    const char *const *texts; /* files of plain text */
    size_t texts_count;
    uint32_t answer_tokens; /* of one answer; default 110 */
    uint32_t tokens_max;    /* of text in all; default 40000 */
    uint64_t ram_bytes;     /* of the whole process; 0: a stated share of what is free; UINT64_MAX: no budget */
    uint32_t threads;       /* 0: performance cores of this machine */
    uint32_t layer;         /* behind which the predictor looks; 0: the one that saves the most */
    uint32_t rank;          /* 0: 8 */
    float miss_weight;      /* of places where the draft's best was wrong; 0: 1 */
    uint64_t seed;
    bool keep_samples;       /* the file of what was seen stays when the predictor is written */
    const char *output_path; /* NULL: in cache_dir, where engines find it */
    lever_log_fn log;
    void *log_user;
    lever_progress_fn progress;
    void *progress_user;
} lever_train_options;

LEVER_API void lever_train_options_init(lever_train_options *options);

typedef struct {
    uint32_t layer, layers_count, rank;
    uint64_t learned_samples, held_out_samples, file_bytes;
    double draft_loss, loss;     /* held out, nats a token: of the draft alone, and of the predictor */
    double draft_recall, recall; /* held out: of true candidates when 40 % of all go */
    double prunable;             /* held out: share of the candidates that can go with a recall of 0.97 */
    double collect_seconds, learn_seconds;
    uint64_t rss_peak; /* the kernel's, of the process; 0: unknown */
    char path[4096];
} lever_train_result;

LEVER_API lever_status lever_train(const lever_train_options *options, lever_train_result *result, lever_error *error);

/* --- Doctor ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *path;       /* a model, or a folder to measure the disk of; NULL: the current folder */
    const char *draft_path; /* of the model: tells what runs of the two have measured; NULL: none */
    bool quick;             /* a second or two instead of ten */
    const char *cache_dir;  /* where the best lanes and the rates are kept for later openings; NULL: nowhere */
    uint32_t threads;       /* for memory and the pair; 0: as an engine would take */
} lever_doctor_options;

LEVER_API void lever_doctor_options_init(lever_doctor_options *options);

typedef enum { LEVER_FACT_MEASURED = 0, LEVER_FACT_WARNING = 1, LEVER_FACT_ADVICE = 2 } lever_fact_kind;

/* Findings come in the order of the report. `key` is stable and machine-readable ("disk.read_bytes_per_second"),
 * `value` is text, `unit` may be "". */
typedef void (*lever_finding_fn)(void *user, lever_fact_kind kind, const char *key, const char *value,
                                 const char *unit);

LEVER_API lever_status lever_doctor(const lever_doctor_options *options, lever_finding_fn on_finding, void *user,
                                    lever_error *error);

#ifdef __cplusplus
}
#endif

#endif
