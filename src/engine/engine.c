/* engine.c - opening a model under a budget, and the functions of lever.h about engines, tokens and text.
 *
 * The order of opening keeps the process below its budget at every moment: metadata; then the vocabulary, whose
 * loading peaks above what it keeps; then a plan from what is really in use; then, if a draft is part of it, the
 * draft's vocabulary, which leaves as soon as it is compared; only then the large areas. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/system.h"
#include "base/text.h"
#include "base/thread.h"
#include "compute/offload.h"
#include "engine/residency.h"
#include "engine/watch.h"
#include "model/chat.h"

enum { PREDICTOR_PATH_BYTES = 4096, LANES_DEFAULT = 2, LANES_MAX = 16, THREADS_MAX = 64 };

/* Beside what the process took before: code and library data that opening and the first answer still touch. */
static const uint64_t program_growth_bytes = (uint64_t)6 << 20;

/* --- Options ----------------------------------------------------------------------------------------------------- */

void lever_engine_options_init(lever_engine_options *options) {
    memset(options, 0, sizeof(*options));
    options->target_ram_percent = -1;
    options->sessions_max = 1;
    options->huge_pages = true;
    options->verify_checksums = true;
    options->direct_io = true;
}

const char *lever_cache_text(lever_cache cache) {
    return cache == LEVER_CACHE_LRU ? "lru" : "pin";
}

static lever_status check_options(const lever_engine_options *options, lever_error *error) {
    if (!options) return lv_fail(error, LEVER_E_ARGUMENT, "the engine's options are NULL");
    if (!options->model_path || !options->model_path[0]) {
        return lv_fail(error, LEVER_E_ARGUMENT, "no model was given: set model_path to a GGUF or packed file");
    }
    if (options->draft_path && !options->draft_path[0]) {
        return lv_fail(error, LEVER_E_ARGUMENT, "draft_path is empty; give a GGUF or packed file, or NULL for none");
    }
    if (options->phone_as && !options->phone) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "phone_as (--as) is given without a phone (--phone): sizes are those of the models");
    }
    if ((unsigned)options->phone_npu > LEVER_PHONE_NPU_NONE) {
        return lv_fail(error, LEVER_E_ARGUMENT, "phone_npu is %d; give one of lever_phone_npu",
                       (int)options->phone_npu);
    }
    if (options->phone_npu && !options->phone) {
        return lv_fail(error, LEVER_E_ARGUMENT, "phone_npu is given without a phone; set phone as well");
    }
    if (options->phone && options->disk_bytes_per_second) {
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "a simulated phone has a flash of its own: give a phone, or disk_bytes_per_second");
    }
    if (options->target_ram_percent < -1 || options->target_ram_percent > 100) {
        return lv_fail(error, LEVER_E_ARGUMENT, "target_ram_percent is %d; give 0 to 100, or -1 for the plan's choice",
                       options->target_ram_percent);
    }
    if (options->ram_unlimited && options->ram_bytes) {
        return lv_fail(error, LEVER_E_ARGUMENT, "ram_unlimited and ram_bytes exclude each other; set one");
    }
    if (options->threads > THREADS_MAX || options->lanes > LANES_MAX) {
        return lv_fail(error, LEVER_E_ARGUMENT, "%u threads and %u lanes were asked for; the most are %d and %d",
                       options->threads, options->lanes, THREADS_MAX, LANES_MAX);
    }
    const uint64_t block = options->block_bytes;
    if (block != 0 && (block < LV_BLOCK_BYTES_MIN || block > LV_BLOCK_BYTES_MAX)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "block_bytes is %llu; give 65536 to 33554432, or 0",
                       (unsigned long long)block);
    }
    if ((unsigned)options->cache > LEVER_CACHE_LRU) {
        return lv_fail(error, LEVER_E_ARGUMENT, "cache is %d; give one of lever_cache", (int)options->cache);
    }
    if ((unsigned)options->device_use > LEVER_DEVICE_BOTH) {
        return lv_fail(error, LEVER_E_ARGUMENT, "device_use is %d; give one of lever_device_use",
                       (int)options->device_use);
    }
    if (options->sessions_max == 0 || options->sessions_max > 1024) {
        return lv_fail(error, LEVER_E_ARGUMENT, "sessions_max is %u; give 1 to 1024", options->sessions_max);
    }
    return LEVER_OK;
}

/* --- Files and plan ---------------------------------------------------------------------------------------------- */

static void close_files(lv_engine_files *files) {
    lv_accelerator_close(&files->accelerator);
    lv_draft_model_close(&files->draft);
    lv_weights_close(&files->weights);
    lv_model_free(&files->model);
    lv_gguf_close(&files->gguf);
}

static void slow_down(lv_profile *disk, uint64_t bytes_per_second) {
    const double rate = (double)bytes_per_second;
    if (rate > 0 && rate < lv_plan_rate_or(disk->io_bytes_per_second, LV_PLAN_IO_ASSUMED)) {
        disk->io_bytes_per_second = rate;
    }
}

static lever_status open_files(lv_engine_files *files, const lever_engine_options *options, const lv_log *log,
                               lever_error *error) {
    const lv_file_options file = {
        .direct = options->direct_io, .log = log, .ledger = files->ledger, .pacer = files->pacer};
    lv_profile_load(options->cache_dir, options->model_path, &files->disk);
    slow_down(&files->disk, options->disk_bytes_per_second);
    lever_status status = lv_gguf_open(&files->gguf, options->model_path, &file, error);
    if (status == LEVER_OK) status = lv_model_bind(&files->model, files->gguf, files->ledger, error);
    if (status == LEVER_OK) {
        const uint64_t block = options->block_bytes ? options->block_bytes : LV_BLOCK_BYTES_DEFAULT;
        status = lv_weights_open(&files->weights, files->gguf, files->model, block, true, files->ledger, error);
    }
    if (status == LEVER_OK && options->draft_path) {
        status = lv_draft_model_open_files(&files->draft, options->draft_path, &file, files->ledger, error);
    }
    if (status != LEVER_OK) close_files(files);
    return status;
}

static uint32_t threads_of(const lever_engine_options *options) {
    if (options->threads) return options->threads;
    const uint32_t fast = lv_cpu_fast_count("/sys");
    return fast < THREADS_MAX ? fast : THREADS_MAX;
}

static uint32_t lanes_of(const lever_engine_options *options, const lv_profile *disk) {
    if (options->lanes) return options->lanes;
    return disk->lanes ? disk->lanes : LANES_DEFAULT;
}

static uint64_t rss_now(void) {
    lv_process_memory memory;
    lv_process_memory_read("", &memory);
    return memory.rss_bytes;
}

/* What the process can grow to before the system ends it: what it has and what is free, less a share for page tables
 * and other memory of the kernel, which counts against a cgroup as well. */
static uint64_t room_now(void) {
    lv_system_memory system;
    lv_process_memory process;
    lv_system_memory_read("", &system);
    lv_process_memory_read("", &process);
    if (system.available_bytes == 0) return UINT64_MAX; /* unknown */
    const uint64_t room = system.usable_bytes + process.rss_anon_bytes;
    return room - room / 32;
}

/* A budget is a bound, so less is taken where that much is not there; it is told when the plan is for good. */
static lever_status choose_plan(lv_plan_input *input, const lv_log *log, lv_plan_choice *choice, lever_error *error) {
    const uint64_t given = input->budget_bytes;
    char size[32];
    LV_TRY(lv_plan_choose_within(input, room_now(), choice, error));
    if (input->budget_bytes == given || !log) return LEVER_OK;
    lv_log_write(log, LEVER_LOG_WARNING,
                 "the budget allows more memory than the system, or the cgroup, has free: %s are used instead",
                 lv_format_size(input->budget_bytes, size, sizeof(size)));
    return LEVER_OK;
}

/* A model may be its own draft. */
static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static lever_status gather_draft(const lever_engine_options *options, const lv_draft_model *draft, uint32_t threads,
                                 lv_plan_draft *sizes, lever_error *error) {
    uint64_t vocabulary_bound = 0;
    if (!is_same_file(options->model_path, options->draft_path)) {
        LV_TRY(lv_vocab_bytes_bound(draft->gguf, &vocabulary_bound, error));
    }
    *sizes = (lv_plan_draft){
        .model = draft->model,
        .bytes = lv_draft_model_bytes(draft, threads),
        .step_bytes = lv_draft_model_step_bytes(draft),
        .compare_bytes = draft->metadata_bytes + vocabulary_bound,
        .forced = options->draft_forced,
    };
    return LEVER_OK;
}

static lever_status gather_input(const lever_engine_options *options, const lv_engine_files *files,
                                 uint64_t rss_at_start, const lv_vocab *vocab, lv_plan_input *input,
                                 lever_error *error) {
    uint64_t vocabulary_bound = 0;
    LV_TRY(lv_vocab_bytes_bound(files->gguf, &vocabulary_bound, error));
    const bool has_predictor = files->draft && !options->no_predictor;
    const uint64_t metadata_bytes =
        lv_ledger_used_by(files->ledger, LV_MEM_METADATA) - (files->draft ? files->draft->metadata_bytes : 0);
    *input = (lv_plan_input){
        .model = files->model,
        .layout = files->weights->layout,
        .program_bytes = rss_at_start + program_growth_bytes,
        .vocabulary_bytes = vocab ? lv_ledger_used_by(files->ledger, LV_MEM_VOCABULARY) : vocabulary_bound,
        .vocabulary_peak_bytes = vocabulary_bound,
        .metadata_bytes = metadata_bytes + lv_weights_vector_bytes(files->model) +
                          lv_plan_store_bytes(files->weights->layout) +
                          (has_predictor ? lv_predictor_file_memory(files->model) : 0),
        .target_ram_percent = options->target_ram_percent,
        .cache = options->cache,
        .context_tokens = options->context_tokens,
        .sessions_max = options->sessions_max,
        .threads = threads_of(options),
        .lanes = lanes_of(options, &files->disk),
        .ring_bytes = options->ring_bytes,
        .device_bytes = lv_accelerator_target_bytes(&files->accelerator, files->weights),
        .io_bytes_per_second = files->disk.io_bytes_per_second,
        .memory_bytes_per_second = files->disk.memory_bytes_per_second,
    };
    input->budget_bytes = lv_budget_of(options, &input->budget_is_default);
    if (!files->draft) return LEVER_OK;
    LV_TRY(gather_draft(options, files->draft, input->threads, &input->draft, error));
    input->draft.device_bytes = lv_accelerator_draft_bytes(&files->accelerator, files->draft);
    if (has_predictor) input->draft.session_bytes = lv_predictor_session_memory(files->model, options->learn);
    return LEVER_OK;
}

static lv_accelerator_options accelerator_options(const lever_engine_options *options, const lv_engine_files *files,
                                                  const lv_log *log) {
    return (lv_accelerator_options){
        .name = options->device,
        .use = options->device_use,
        .target = files->weights,
        .draft = files->draft,
        .threads = threads_of(options),
        .io_bytes_per_second = files->disk.io_bytes_per_second,
        .log = log,
        .ledger = files->ledger,
    };
}

static lever_status open_accelerator(const lever_engine_options *options, lv_engine_files *files, const lv_log *log,
                                     lever_error *error) {
    const lv_accelerator_options accelerator = accelerator_options(options, files, log);
    return lv_accelerator_open(&files->accelerator, &accelerator, error);
}

/* What a plan is made from beside the files. */
typedef struct {
    const lever_engine_options *options;
    uint64_t rss_at_start, reserve_bytes;
    const lv_vocab *vocab; /* NULL: not loaded */
    bool alone;            /* whether the draft fits too is seen later */
    const lv_log *log;     /* NULL: the plan is not for good */
} planning;

static lever_status try_plan(const planning *p, const lv_engine_files *files, lv_plan_input *input,
                             lv_plan_choice *choice, lever_error *error) {
    LV_TRY(gather_input(p->options, files, p->rss_at_start, p->vocab, input, error));
    input->reserve_bytes = p->reserve_bytes;
    if (p->alone) input->draft.model = NULL;
    return choose_plan(input, p->log, choice, error);
}

/* The plan that counts: without the device where there is no room for its buffers and that is allowed. */
static lever_status plan_with_device(const planning *p, lv_engine_files *files, lv_plan_input *input,
                                     lv_plan_choice *choice, lever_error *error) {
    const lv_log log = {p->options->log, p->options->log_user};
    const lv_accelerator_options accelerator = accelerator_options(p->options, files, &log);
    lever_error own;
    lv_error_clear(&own);
    lever_status status = try_plan(p, files, input, choice, &own);
    if (status == LEVER_E_BUDGET && lv_accelerator_leave_out(&files->accelerator, &accelerator, own.message)) {
        status = try_plan(p, files, input, choice, &own);
    }
    if (status != LEVER_OK && error) *error = own;
    return status;
}

lever_status lever_engine_plan(const lever_engine_options *options, lever_plan *plan, lever_error *error) {
    lv_error_clear(error);
    if (!plan) return lv_fail(error, LEVER_E_ARGUMENT, "lever_engine_plan: the plan is NULL");
    memset(plan, 0, sizeof(*plan));
    LV_TRY(check_options(options, error));
    const uint64_t rss_at_start = rss_now();
    const lv_log log = {options->log, options->log_user};
    lv_engine_files files = {.ledger = lv_ledger_create(LV_LEDGER_UNLIMITED)};
    if (!files.ledger) return lv_fail(error, LEVER_E_MEMORY, "the system refused memory for the ledger");
    lv_plan_input input;
    lv_plan_choice choice = {0};
    lever_status status = open_files(&files, options, &log, error);
    if (status == LEVER_OK) {
        status = open_accelerator(options, &files, &log, error);
        if (status != LEVER_OK) close_files(&files);
    }
    if (status == LEVER_OK) {
        const planning p = {.options = options, .rss_at_start = rss_at_start, .log = &log};
        status = plan_with_device(&p, &files, &input, &choice, error);
        *plan = choice.table;
        close_files(&files);
    }
    lv_ledger_free(files.ledger);
    return status;
}

/* --- Opening ----------------------------------------------------------------------------------------------------- */

static void transform_pinned(void *user, uint32_t block, uint8_t *data) {
    lever_engine *engine = user;
    pthread_mutex_lock(&engine->transform_lock);
    lv_weights_transform(engine->weights, block, data, engine->transform_scratch);
    pthread_mutex_unlock(&engine->transform_lock);
}

static lever_status open_store(lever_engine *engine, lever_error *error) {
    const lv_layout *layout = engine->weights->layout;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_METADATA, layout->blocks_count, sizeof(bool),
                            "the table of pinned blocks", error));
    engine->pinned = memory;
    lv_plan_pins(layout, engine->plan.head_pinned, engine->plan.pin_bytes, engine->pinned);
    engine->pin_bytes = engine->plan.pin_bytes + (engine->plan.head_pinned ? lv_plan_head_bytes(layout) : 0);
    engine->planned_bytes = engine->plan.table.total_bytes - engine->pin_bytes;
    const lv_store_options options = {
        .gguf = engine->gguf,
        .layout = layout,
        .pinned = engine->pinned,
        .slots_count = engine->plan.slots_count,
        .keeps = engine->options.cache == LEVER_CACHE_LRU,
        .lanes = engine->lanes,
        .huge_pages = engine->options.huge_pages,
        .verify = engine->options.verify_checksums,
        .transform = transform_pinned,
        .transform_user = engine,
        .clock = &lv_clock_real,
        .spans = engine->spans,
        .log = &engine->log,
        .ledger = engine->ledger,
        .progress = engine->options.progress,
        .progress_user = engine->options.progress_user,
    };
    return lv_store_open(&engine->store, &options, error);
}

static lever_status open_forward(lever_engine *engine, lever_error *error) {
    const lv_plan_choice *plan = &engine->plan;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_WORKSPACE, plan->rows_max, sizeof(lv_row),
                            "the rows of a pass", error));
    engine->rows = memory;
    const lv_forward_options options = {
        .weights = engine->weights,
        .store = engine->store,
        .kernels = engine->kernels,
        .attention = lv_attention_isa_best(),
        .threads = engine->threads,
        .shares = engine->draft != NULL,
        .rows_max = plan->rows_max,
        .batch_rows = plan->batch_rows,
        .logits_rows = plan->logits_rows,
        .leases_max = plan->leases_max,
        .embedding_rows = plan->embedding_rows,
        .device = engine->accelerator.target,
        .device_blocks = LV_OFFLOAD_BLOCKS,
        .device_always = engine->accelerator.target_always,
        .device_required = engine->options.device_use != LEVER_DEVICE_AUTO,
        .on_block = lv_budget_on_block,
        .user = engine,
        .spans = engine->spans,
        .log = &engine->log,
        .ledger = engine->ledger,
    };
    LV_TRY(lv_forward_open(&engine->forward, &options, error));
    if (!lv_forward_has_device(engine->forward)) lv_device_close(&engine->accelerator.target);
    return LEVER_OK;
}

/* What holds until something was measured: memory and disk are the limits, of which doctor may have found the rates. */
static lever_status open_costs(lever_engine *engine, lever_error *error) {
    const lever_plan *table = &engine->plan.table;
    const double memory = lv_plan_rate_or(table->memory_bytes_per_second, LV_PLAN_MEMORY_ASSUMED);
    const double io = lv_plan_rate_or(table->io_bytes_per_second, LV_PLAN_IO_ASSUMED);
    const double draft = engine->draft ? (double)lv_draft_model_step_bytes(engine->draft) : 0;
    const uint64_t streamed = lv_residency_streamed_bytes(engine);
    const uint64_t ring = table->ring_bytes < streamed ? table->ring_bytes : streamed;
    lv_costs prior;
    lv_costs_init(&prior, (double)table->layer_bytes / memory, draft / memory + LV_PLAN_STEP_SECONDS,
                  (double)table->head_bytes / memory, (double)streamed / io, (double)ring / io);
    const lv_costs_share_options options = {
        .folder = engine->phone ? NULL : engine->options.cache_dir, /* nothing is learned of this machine */
        .frozen_path = engine->options.costs_path,
        .target_path = engine->options.model_path,
        .draft_path = engine->draft ? engine->options.draft_path : NULL,
        .pass_read_bytes = streamed,
        .disk_bytes_per_second = engine->options.disk_bytes_per_second,
        .threads = engine->threads,
        .device = engine->accelerator.target || engine->accelerator.draft ? engine->options.device : NULL,
    };
    return lv_costs_share_open(&engine->costs, &options, &prior, engine->ledger, error);
}

static void open_predictor(lever_engine *engine) {
    if (!engine->draft || engine->options.no_predictor) return;
    const lv_predictor_place place = {
        .named_path = engine->options.predictor_path,
        .cache_dir = engine->options.cache_dir,
        .shared_dir = engine->options.predictor_dir,
        .target = engine->weights,
        .draft = engine->draft->weights,
    };
    engine->predictor = lv_predictor_file_load(&place, &engine->log, engine->ledger);
    char path[PREDICTOR_PATH_BYTES];
    if (engine->predictor && engine->options.learn &&
        lv_predictor_file_path(&place, path, sizeof(path), NULL) == LEVER_OK) {
        engine->predictor_path = lv_strdup(engine->ledger, LV_MEM_SESSION, path);
    }
}

static uint64_t reserve_of(const lever_engine *engine, const lv_engine_files *files) {
    return engine->reserve && files->draft ? engine->reserve(files->model, files->draft->model) : 0;
}

/* Books what the program itself takes, makes the plan from what is in use, and puts the limit in force. */
static lever_status make_plan(lever_engine *engine, lv_engine_files *files, uint64_t rss_at_start, lever_error *error) {
    const planning p = {.options = &engine->options,
                        .rss_at_start = rss_at_start,
                        .reserve_bytes = reserve_of(engine, files),
                        .vocab = engine->vocab,
                        .log = &engine->log};
    lv_plan_input input;
    LV_TRY(plan_with_device(&p, files, &input, &engine->plan, error));
    LV_TRY(lv_ledger_set_limit(engine->ledger, input.budget_bytes, error));
    engine->budget_most = input.budget_bytes;
    lv_ledger_book(engine->ledger, LV_MEM_PROGRAM, input.program_bytes);
    lv_ledger_book(engine->ledger, LV_MEM_SLACK, lv_plan_slack_bytes());
    return LEVER_OK;
}

/* Keeps the draft, if the plan wants it and it fits the target's vocabulary, or lets it go. */
static lever_status settle_draft(lever_engine *engine, lever_error *error) {
    const lever_plan *table = &engine->plan.table;
    if (!engine->draft) return LEVER_OK;
    if (!table->draft_used) {
        lv_log_write(&engine->log, LEVER_LOG_INFO, "%s: %s", engine->options.draft_path, table->draft_reason);
        lv_draft_model_close(&engine->draft);
        lv_device_close(&engine->accelerator.draft);
        return LEVER_OK;
    }
    if (is_same_file(engine->options.model_path, engine->options.draft_path)) return LEVER_OK;
    return lv_draft_model_compare(engine->draft, engine->vocab, engine->options.model_path, engine->ledger,
                                  &engine->log, error);
}

static uint64_t session_bytes(const lever_engine *engine) {
    const uint32_t context = engine->plan.context_tokens;
    const uint64_t bytes = lv_plan_session_bytes(engine->model, context);
    if (!engine->draft) return bytes;
    return bytes + lv_plan_draft_session_bytes(engine->model, engine->draft->model, context) +
           (engine->options.no_predictor ? 0 : lv_predictor_session_memory(engine->model, engine->options.learn));
}

/* The share of the target that stays in memory is the phone's; here the models may have what there is, both of them. Of
 * a cache that holds less than everything the phone has nothing. */
static lever_status open_phone(lever_engine *engine, lever_error *error) {
    if (!engine->options.phone) return LEVER_OK;
    LV_TRY(lv_phone_open(&engine->phone, engine->options.phone, engine->ledger, error));
    engine->phone->npu = engine->options.phone_npu;
    const int percent = engine->options.target_ram_percent;
    const bool misses = engine->options.cache == LEVER_CACHE_LRU && percent < 100;
    engine->phone->pinned_share = percent < 0 || misses ? 0 : percent / 100.0;
    engine->options.target_ram_percent = -1;
    engine->options.draft_forced = true;
    return LEVER_OK;
}

static lever_status settle_phone(lever_engine *engine, lever_error *error) {
    if (!engine->phone) return LEVER_OK;
    return lv_phone_set_models(engine->phone, engine->model, engine->draft ? engine->draft->model : NULL,
                               engine->options.phone_as, error);
}

static lever_status open_vocabulary(lever_engine *engine, lever_error *error) {
    LV_TRY(lv_vocab_open(&engine->vocab, engine->gguf, engine->ledger, &engine->log, error));
    if ((uint32_t)lv_vocab_tokens_count(engine->vocab) > engine->model->hparams.vocabulary) {
        return lv_fail(error, LEVER_E_FORMAT, "%s: the vocabulary has %d tokens, but the output matrix has %u rows",
                       engine->options.model_path, lv_vocab_tokens_count(engine->vocab),
                       engine->model->hparams.vocabulary);
    }
    return LEVER_OK;
}

/* A budget that cannot work, or a device that it has no room for, is known before the vocabulary is loaded. */
static lever_status make_first_plan(lever_engine *engine, lv_engine_files *files, uint64_t rss_at_start,
                                    lever_error *error) {
    const planning p = {.options = &engine->options,
                        .rss_at_start = rss_at_start,
                        .reserve_bytes = reserve_of(engine, files),
                        .alone = true};
    lv_plan_input input;
    lv_plan_choice choice;
    bool is_default;
    LV_TRY(try_plan(&p, files, &input, &choice, error));
    LV_TRY(lv_ledger_set_limit(engine->ledger, lv_budget_of(&engine->options, &is_default), error));
    LV_TRY(open_accelerator(&engine->options, files, &engine->log, error));
    lever_status status = LEVER_OK;
    if (files->accelerator.target || files->accelerator.draft) {
        status = plan_with_device(&p, files, &input, &choice, error);
    }
    engine->accelerator = files->accelerator;
    return status;
}

static lever_status open_parts(lever_engine *engine, uint64_t rss_at_start, lever_error *error) {
    LV_TRY(open_phone(engine, error));
    if (engine->options.disk_bytes_per_second) {
        LV_TRY(lv_pacer_open(&engine->pacer, engine->options.disk_bytes_per_second, &lv_clock_real, engine->ledger,
                             error));
    }
    lv_engine_files files = {.ledger = engine->ledger, .pacer = engine->pacer};
    lever_status status = open_files(&files, &engine->options, &engine->log, error);
    engine->gguf = files.gguf;
    engine->model = files.model;
    engine->weights = files.weights;
    engine->draft = files.draft;
    engine->lanes = lanes_of(&engine->options, &files.disk);
    if (status != LEVER_OK) return status;
    LV_TRY(make_first_plan(engine, &files, rss_at_start, error));
    LV_TRY(open_vocabulary(engine, error));
    status = make_plan(engine, &files, rss_at_start, error);
    engine->accelerator = files.accelerator; /* which may have left it out */
    if (status != LEVER_OK) return status;
    if (engine->accelerator.target && engine->plan.batch_rows > LV_OFFLOAD_ROWS_MAX) {
        engine->plan.batch_rows = LV_OFFLOAD_ROWS_MAX;
    }
    LV_TRY(settle_draft(engine, error));
    engine->session_bytes = session_bytes(engine);
    LV_TRY(settle_phone(engine, error));
    LV_TRY(lv_weights_read_vectors(engine->weights, engine->gguf, engine->ledger, error));
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, engine->ledger, LV_MEM_METADATA, 1, lv_weights_transform_bytes(engine->weights),
                            "a tile", error));
    engine->transform_scratch = memory;
    engine->kernels = lv_kernels_best();
    if (engine->options.trace_spans) LV_TRY(lv_spans_open(&engine->timeline, engine->ledger, error));
    if (!engine->phone) engine->spans = engine->timeline;
    engine->spans_origin_ns = lv_spans_begin(engine->spans);
    LV_TRY(lv_residency_open(engine, NULL, error));
    open_predictor(engine);
    LV_TRY(open_store(engine, error));
    LV_TRY(open_forward(engine, error));
    return open_costs(engine, error); /* now it is known who computes */
}

lever_status lever_engine_open(lever_engine **out, const lever_engine_options *options, lever_error *error) {
    return lv_engine_open_reserving(out, options, NULL, error);
}

lever_status lv_engine_open_reserving(lever_engine **out, const lever_engine_options *options, lv_reserve_fn reserve,
                                      lever_error *error) {
    lv_error_clear(error);
    if (!out) return lv_fail(error, LEVER_E_ARGUMENT, "lever_engine_open: no place for the engine was given");
    *out = NULL;
    LV_TRY(check_options(options, error));
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    const uint64_t rss_at_start = rss_now();
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    if (!ledger) return lv_fail(error, LEVER_E_MEMORY, "the system refused memory for the ledger");
    lever_engine *engine = lv_alloc(ledger, LV_MEM_METADATA, 1, sizeof(*engine));
    if (!engine) {
        lv_ledger_free(ledger);
        return lv_fail(error, LEVER_E_MEMORY, "the system refused memory for an engine");
    }
    engine->ledger = ledger;
    engine->options = *options;
    engine->reserve = reserve;
    engine->log = (lv_log){options->log, options->log_user};
    engine->threads = threads_of(options);
    pthread_mutex_init(&engine->pass_lock, NULL);
    pthread_mutex_init(&engine->budget_lock, NULL);
    pthread_mutex_init(&engine->transform_lock, NULL);
    pthread_mutex_init(&engine->residency.lock, NULL);
    const lever_status status = open_parts(engine, rss_at_start, error);
    engine->options.model_path = engine->options.cache_dir = NULL;
    engine->options.draft_path = engine->options.costs_path = NULL;
    engine->options.predictor_path = engine->options.predictor_dir = NULL;
    engine->options.phone = engine->options.phone_as = NULL;
    const bool has_device = engine->accelerator.target || engine->accelerator.draft;
    snprintf(engine->device_name, sizeof(engine->device_name), "%s", has_device ? options->device : "cpu");
    engine->options.device = NULL;
    if (status != LEVER_OK) {
        lever_engine_close(&engine);
        return status;
    }
    if (options->watch_memory) {
        const lever_status watched = lv_watch_open(&engine->watch, engine, ledger, error);
        if (watched != LEVER_OK) {
            lever_engine_close(&engine);
            return watched;
        }
    }
    engine->open_seconds = lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
    *out = engine;
    return LEVER_OK;
}

void lever_engine_close(lever_engine **out) {
    if (!out || !*out) return;
    lever_engine *engine = *out;
    lv_ledger *ledger = engine->ledger;
    lv_pacer_stop(engine->pacer); /* lanes read ahead for nobody */
    lv_watch_close(&engine->watch);
    lv_predictor_close(&engine->predictor);
    lv_free(engine->predictor_path);
    lv_costs_share_close(&engine->costs);
    lv_phone_close(&engine->phone);
    lv_forward_close(&engine->forward);
    lv_free(engine->rows);
    lv_store_close(&engine->store);
    lv_spans_close(&engine->timeline);
    lv_free(engine->transform_scratch);
    lv_free(engine->pinned);
    lv_vocab_close(&engine->vocab);
    lv_engine_files files = {
        .gguf = engine->gguf, .model = engine->model, .weights = engine->weights, .draft = engine->draft};
    /* The draft's forward pass uses its device until it is closed with the draft. */
    lv_draft_model_close(&files.draft);
    files.accelerator = engine->accelerator;
    close_files(&files);
    lv_pacer_close(&engine->pacer);
    pthread_mutex_destroy(&engine->pass_lock);
    pthread_mutex_destroy(&engine->budget_lock);
    pthread_mutex_destroy(&engine->transform_lock);
    pthread_mutex_destroy(&engine->residency.lock);
    lv_ledger_release(ledger, LV_MEM_SLACK, lv_ledger_used_by(ledger, LV_MEM_SLACK));
    lv_free(engine);
    lv_ledger_free(ledger);
    *out = NULL;
}

/* --- What an engine is ------------------------------------------------------------------------------------------- */

void lever_engine_get_plan(const lever_engine *engine, lever_plan *plan) {
    pthread_mutex_t *lock = &((lever_engine *)(uintptr_t)engine)->budget_lock; /* the budget may be changing */
    pthread_mutex_lock(lock);
    *plan = engine->plan.table;
    pthread_mutex_unlock(lock);
}

/* The draft may come and go meanwhile. */
static bool has_draft_failed(const lever_engine *engine) {
    if (!engine->draft || !engine->accelerator.draft) return false;
    pthread_mutex_t *lock = &((lever_engine *)(uintptr_t)engine)->residency.lock;
    pthread_mutex_lock(lock);
    const lv_forward *forward = engine->residency.away ? NULL : engine->draft->forward;
    const bool failed = engine->accelerator.draft_lost || (forward && lv_forward_device_failed(forward));
    pthread_mutex_unlock(lock);
    return failed;
}

void lever_engine_get_info(const lever_engine *engine, lever_engine_info *info) {
    *info = (lever_engine_info){
        .architecture = engine->model->arch_name,
        .name = engine->model->name ? engine->model->name : "",
        .kernels = lv_kernels_name(engine->kernels),
        .chat_template = lv_vocab_chat_template(engine->vocab),
        .vocabulary_tokens = lv_vocab_tokens_count(engine->vocab),
        .context_train_tokens = engine->model->hparams.context_train,
        .threads = engine->threads,
        .lanes = engine->lanes,
        .packed = lv_gguf_is_packed(engine->gguf),
        .direct_io = lv_file_is_direct(lv_gguf_file(engine->gguf, 0)),
        .draft = engine->draft != NULL,
        .phone = engine->phone ? engine->phone->profile.name : NULL,
        .phone_section = engine->phone ? engine->phone->profile.section : "",
        .phone_target = engine->phone ? engine->phone->target.name : "",
        .phone_draft = engine->phone ? engine->phone->draft.name : "",
        .phone_layers_count = engine->phone ? (uint32_t)engine->phone->target.layers_count : 0,
        .phone_layers_pinned = engine->phone ? engine->phone->pinned_layers : 0,
        .device = engine->device_name,
        .device_target = engine->accelerator.target != NULL,
        .device_draft = engine->accelerator.draft != NULL,
        .device_failed = lv_forward_device_failed(engine->forward) || has_draft_failed(engine),
        .open_seconds = engine->open_seconds,
    };
}

/* --- Text and tokens --------------------------------------------------------------------------------------------- */

/* `lacks`: what the tokens are to be made of, where it is NULL; `no_room`: `tokens` is, and was to be filled. */
static lever_status check_tokens_call(const char *function, const lever_engine *engine, const char *lacks, bool no_room,
                                      const size_t *count, lever_error *error) {
    const char *null = !engine ? "the engine" : !count ? "count" : lacks ? lacks : no_room ? "tokens" : NULL;
    return null ? lv_fail(error, LEVER_E_ARGUMENT, "%s: %s is NULL", function, null) : LEVER_OK;
}

lever_status lever_tokenize(const lever_engine *engine, const char *text, size_t text_bytes, bool begin, bool control,
                            int32_t *tokens, size_t capacity, size_t *count, lever_error *error) {
    lv_error_clear(error);
    LV_TRY(check_tokens_call("lever_tokenize", engine, !text && text_bytes > 0 ? "the text" : NULL,
                             !tokens && capacity > 0, count, error));
    return lv_vocab_tokenize(engine->vocab, text, text_bytes, begin, control, tokens, capacity, count, error);
}

lever_status lever_chat_tokenize(const lever_engine *engine, const lever_message *messages, size_t messages_count,
                                 bool answer, int32_t *tokens, size_t capacity, size_t *count, lever_error *error) {
    lv_error_clear(error);
    LV_TRY(check_tokens_call("lever_chat_tokenize", engine, !messages && messages_count > 0 ? "messages" : NULL,
                             !tokens && capacity > 0, count, error));
    return lv_chat_tokenize(engine->vocab, messages, messages_count, answer, tokens, capacity, count, error);
}

size_t lever_token_text(const lever_engine *engine, int32_t token, bool control, char *text, size_t capacity) {
    return lv_vocab_piece(engine->vocab, token, control, text, capacity);
}

bool lever_token_is_end(const lever_engine *engine, int32_t token) {
    return lv_vocab_is_end(engine->vocab, token);
}
