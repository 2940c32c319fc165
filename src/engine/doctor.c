/* doctor.c - lever_doctor: what this machine can do, measured, and what to do about it.
 *
 * Processor, memory, disk, then the model if one was given. Rates of the disk are taken over a few block sizes and
 * numbers of lanes; the best pair is kept as the disk's profile. For a model the store itself then streams the model's
 * own blocks: what decoding can reach at most. Without a model a temporary file is written beside, measured and
 * removed. With a draft, what earlier runs of the pair have learned is told, not measured anew. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/system.h"
#include "base/text.h"
#include "base/thread.h"
#include "compute/device.h"
#include "compute/linear.h"
#include "engine/costs_file.h"
#include "engine/engine_state.h"
#include "engine/probe.h"
#include "engine/profile.h"

enum { LANE_CHOICES = 3, BLOCK_CHOICES = 4, TEMPORARY_MIB = 256, PATH_BYTES = 4096 };

typedef struct {
    const lever_doctor_options *options;
    lever_finding_fn fn;
    void *user;
    uint32_t threads, engine_threads; /* that measure, and that an engine takes */
    double memory_rate;
    lv_profile profile;
} doctor;

/* --- Telling ----------------------------------------------------------------------------------------------------- */

static void tell(const doctor *d, lever_fact_kind kind, const char *key, const char *unit, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void tell(const doctor *d, lever_fact_kind kind, const char *key, const char *unit, const char *format, ...) {
    char value[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    d->fn(d->user, kind, key, value, unit);
}

static void tell_bytes(const doctor *d, const char *key, uint64_t bytes) {
    if (bytes == UINT64_MAX) {
        tell(d, LEVER_FACT_MEASURED, key, "", "none");
    } else {
        tell(d, LEVER_FACT_MEASURED, key, "bytes", "%" PRIu64, bytes);
    }
}

/* --- Processor and memory ---------------------------------------------------------------------------------------- */

static void look_at_processor(const doctor *d) {
    tell(d, LEVER_FACT_MEASURED, "cpu.processors", "", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    tell(d, LEVER_FACT_MEASURED, "cpu.threads", "", "%" PRIu32, d->threads);
    tell(d, LEVER_FACT_MEASURED, "cpu.kernels", "", "%s", lv_kernels_name(lv_kernels_best()));
    tell(d, LEVER_FACT_MEASURED, "cpu.attention", "", "%s", lv_attention_isa_name(lv_attention_isa_best()));
    if (!lv_kernels_at(1)) {
        tell(d, LEVER_FACT_WARNING, "cpu.kernels", "",
             "there is no vector instruction set that the kernels know: products run on portable code, several times "
             "slower");
    }
}

static void look_at_huge_pages(const doctor *d) {
    char setting[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file) {
        if (!fgets(setting, sizeof(setting), file)) setting[0] = 0;
        fclose(file);
    }
    setting[strcspn(setting, "\n")] = 0;
    tell(d, LEVER_FACT_MEASURED, "memory.huge_pages_setting", "", "%s", setting[0] ? setting : "unknown");
    const double granted = lv_probe_huge_pages();
    if (granted < 0) return;
    tell(d, LEVER_FACT_MEASURED, "memory.huge_pages_granted", "", "%.2f", granted);
    if (granted < 0.5) {
        tell(d, LEVER_FACT_ADVICE, "memory.huge_pages", "",
             "huge pages are not granted, so reads go to scattered small pages, at about two thirds of the speed: as "
             "root, echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
}

static lever_status look_at_memory(doctor *d, lever_error *error) {
    lv_system_memory memory;
    lv_system_memory_read("", &memory);
    tell_bytes(d, "memory.total", memory.total_bytes);
    tell_bytes(d, "memory.available", memory.available_bytes);
    tell_bytes(d, "memory.cgroup_limit", memory.cgroup_limit);
    tell_bytes(d, "memory.usable", memory.usable_bytes);
    look_at_huge_pages(d);
    LV_TRY(lv_probe_memory(d->threads, d->options->quick ? 0.2 : 0.5, &d->memory_rate, error));
    tell(d, LEVER_FACT_MEASURED, "memory.read_bytes_per_second", "bytes/s", "%.0f", d->memory_rate);
    return LEVER_OK;
}

/* --- Disk -------------------------------------------------------------------------------------------------------- */

static const char *file_system_name(const char *path) {
    static const struct {
        unsigned long magic;
        const char *name;
    } known[] = {
        {0xEF53, "ext4"},      {0x9123683E, "btrfs"},     {0x58465342, "xfs"}, {0xF2F52010, "f2fs"},
        {0x01021994, "tmpfs"}, {0x794c7630, "overlayfs"}, {0x6969, "nfs"},     {0x65735546, "fuse"},
        {0x4d44, "vfat"},      {0x2011BAB0, "exfat"},     {0x2FC12FC1, "zfs"}, {0x5346544e, "ntfs"},
    };
    struct statfs status;
    if (statfs(path, &status) != 0) return "unknown";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if ((unsigned long)status.f_type == known[i].magic) return known[i].name;
    }
    return "unknown";
}

static lever_status measure_disk(doctor *d, lv_file *file, lever_error *error) {
    static const uint32_t lanes[LANE_CHOICES] = {1, 2, 4};
    static const size_t blocks_mib[BLOCK_CHOICES] = {2, 4, 8, 16};
    const double seconds = d->options->quick ? 0.15 : 0.6;
    const size_t block_first = d->options->quick ? 2 : 0;
    const size_t block_end = d->options->quick ? 3 : BLOCK_CHOICES;
    d->profile.memory_bytes_per_second = d->memory_rate;
    for (size_t b = block_first; b < block_end; b++) {
        for (size_t l = 0; l < LANE_CHOICES; l++) {
            if (blocks_mib[b] << 20 > lv_file_bytes(file)) continue;
            double rate;
            LV_TRY(lv_probe_reads(file, lanes[l], blocks_mib[b] << 20, seconds, &rate, error));
            char key[64];
            snprintf(key, sizeof(key), "disk.read.%zuMiB.%" PRIu32 "lanes", blocks_mib[b], lanes[l]);
            tell(d, LEVER_FACT_MEASURED, key, "bytes/s", "%.0f", rate);
            /* More lanes and larger blocks cost memory: they must be clearly better. */
            if (rate > d->profile.io_bytes_per_second * 1.03) {
                d->profile.io_bytes_per_second = rate;
                d->profile.lanes = lanes[l];
                d->profile.block_bytes = blocks_mib[b] << 20;
            }
        }
    }
    tell(d, LEVER_FACT_MEASURED, "disk.direct", "", "%s", lv_file_is_direct(file) ? "yes" : "no");
    if (d->profile.lanes == 0) return LEVER_OK;
    tell(d, LEVER_FACT_MEASURED, "disk.best_lanes", "", "%" PRIu32, d->profile.lanes);
    tell(d, LEVER_FACT_MEASURED, "disk.best_block_bytes", "bytes", "%" PRIu64, d->profile.block_bytes);
    tell(d, LEVER_FACT_MEASURED, "disk.read_bytes_per_second", "bytes/s", "%.0f", d->profile.io_bytes_per_second);
    if (!lv_file_is_direct(file)) {
        tell(d, LEVER_FACT_WARNING, "disk.direct", "",
             "this disk refuses O_DIRECT: reads go through the page cache, which costs processor time; keep the model "
             "on "
             "another file system if you can");
    }
    return LEVER_OK;
}

/* A file of the folder's disk that has no name, so that nothing stays of it whatever happens; NULL: the cause is errno.
 */
static FILE *open_temporary(const char *folder) {
    char path[PATH_BYTES];
    const int length = snprintf(path, sizeof(path), "%s/lever-doctor-%ld.tmp", folder, (long)gettid());
    errno = ENAMETOOLONG;
    FILE *file = length > 0 && length < (int)sizeof(path) ? fopen(path, "wxe") : NULL;
    if (file) unlink(path);
    return file;
}

static lever_status write_temporary(const char *folder, FILE **out, lever_error *error) {
    const size_t bytes = (size_t)1 << 20;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_WORKSPACE, 1, bytes, "a buffer to write from", error));
    uint64_t *words = memory, state = 88172645463325252u;
    for (size_t i = 0; i < bytes / sizeof(*words); i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = state;
    }
    FILE *file = open_temporary(folder);
    bool written = file != NULL;
    for (int i = 0; i < TEMPORARY_MIB && written; i++) written = fwrite(memory, 1, bytes, file) == bytes;
    if (written) written = fflush(file) == 0 && fsync(fileno(file)) == 0;
    const int cause = errno;
    lv_free(memory);
    *out = file;
    if (written) return LEVER_OK;
    return lv_fail(error, LEVER_E_IO,
                   "cannot write %d MiB into %s to measure the disk: %s; give a model with -m, or a folder "
                   "with room",
                   TEMPORARY_MIB, folder, strerror(cause));
}

static lever_status look_at(const char *path, struct stat *status, lever_error *error) {
    if (stat(path, status) == 0) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT, "cannot look at %s: %s; check the path", path, strerror(errno));
}

static lever_status look_at_disk(doctor *d, const char *path, lever_error *error) {
    struct stat status;
    LV_TRY(look_at(path, &status, error));
    tell(d, LEVER_FACT_MEASURED, "disk.file_system", "", "%s", file_system_name(path));
    const bool is_folder = S_ISDIR(status.st_mode);
    char measured[64]; /* the nameless file */
    FILE *temporary = NULL;
    lever_status result = is_folder ? write_temporary(path, &temporary, error) : LEVER_OK;
    lv_file *file = NULL;
    const lv_file_options options = {.direct = true};
    if (temporary) snprintf(measured, sizeof(measured), "/proc/self/fd/%d", fileno(temporary));
    if (result == LEVER_OK) result = lv_file_open(&file, is_folder ? measured : path, &options, error);
    if (result == LEVER_OK) result = measure_disk(d, file, error);
    lv_file_close(&file);
    if (temporary) (void)fclose(temporary);
    if (result == LEVER_OK && d->profile.lanes && d->options->cache_dir) {
        lever_error ignored;
        if (lv_profile_save(d->options->cache_dir, path, &d->profile, &ignored) != LEVER_OK) {
            tell(d, LEVER_FACT_WARNING, "disk.profile", "", "%s", ignored.message);
        }
    }
    return result;
}

/* --- Model ------------------------------------------------------------------------------------------------------- */

/* Types that ggml computes: how many rows may go at once without changing a row's bits. */
static lever_status look_at_types(const doctor *d, const lv_weights *weights, lever_error *error) {
    bool seen[GGML_TYPE_COUNT] = {false};
    lv_graph *graph = NULL;
    const lv_graph_options options = {
        .nodes_max = 16, .work_bytes = (size_t)8 << 20, .records_bytes = 64 << 10, .threads = d->threads};
    LV_TRY(lv_graph_open(&graph, &options, error));
    for (uint32_t i = 0; i < weights->items_count; i++) {
        const lv_tensor *tensor = weights->items[i].tensor;
        if (seen[tensor->type] || lv_kernel_supports(tensor->type, tensor->dims[0])) continue;
        seen[tensor->type] = true;
        const uint8_t stable =
            lv_linear_stable_batch(graph, (enum ggml_type)tensor->type, (size_t)tensor->dims[0], NULL);
        char key[64], name[32];
        snprintf(key, sizeof(key), "model.type.%s.stable_rows",
                 lv_gguf_tensor_type_name(tensor->type, name, sizeof(name)));
        tell(d, LEVER_FACT_MEASURED, key, "rows", "%u", stable);
        tell(d, LEVER_FACT_ADVICE, key, "",
             "type %s has no kernel of lever's own: ggml computes it, %u rows at once at most, so that bits do not "
             "depend "
             "on the batch; 'lever pack --type q8_0' or q4_0 gives a faster file",
             lv_gguf_tensor_type_name(tensor->type, name, sizeof(name)), stable);
    }
    lv_graph_close(&graph);
    return LEVER_OK;
}

static lever_status stream_model(doctor *d, const lv_gguf *gguf, const lv_weights *weights, lever_error *error) {
    const lv_layout *layout = weights->layout;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_METADATA, layout->blocks_count, sizeof(bool), "blocks", error));
    bool *pinned = memory;
    for (uint32_t b = layout->head_block_first; b < layout->blocks_count; b++) pinned[b] = false;
    const lv_store_options options = {.gguf = gguf,
                                      .layout = layout,
                                      .pinned = pinned,
                                      .slots_count = 8,
                                      .lanes = d->profile.lanes ? d->profile.lanes : 2,
                                      .huge_pages = true,
                                      .clock = &lv_clock_real};
    lv_store *store = NULL;
    double rate = 0;
    lever_status status = lv_store_open(&store, &options, error);
    /* Disks are quicker for a moment than for long: a rate to plan with takes some seconds. */
    if (status == LEVER_OK) {
        lv_store_set_head_wanted(store, true);
        status = lv_store_measure(store, d->options->quick ? 2 : 10, &rate, error);
    }
    lv_store_close(&store);
    lv_free(pinned);
    if (status != LEVER_OK) return status;
    tell(d, LEVER_FACT_MEASURED, "disk.model_read_bytes_per_second", "bytes/s", "%.0f", rate);
    if (rate > 0) {
        double pass = (double)layout->layer_bytes / rate;
        const double computing = (double)(layout->layer_bytes + layout->head_bytes) / d->memory_rate;
        if (pass < computing) pass = computing;
        tell(d, LEVER_FACT_MEASURED, "model.tokens_per_second_streamed", "tokens/s", "%.2f", 1 / pass);
        tell(d, LEVER_FACT_MEASURED, "model.tokens_per_second_resident", "tokens/s", "%.2f", 1 / computing);
    }
    return LEVER_OK;
}

static void advise(const doctor *d, const lv_gguf *gguf, const lv_weights *weights) {
    if (!lv_gguf_is_packed(gguf)) {
        tell(d, LEVER_FACT_ADVICE, "model.pack", "",
             "'lever pack' writes the layout that streams and computes fastest, once");
    }
    lv_system_memory memory;
    lv_system_memory_read("", &memory);
    const uint64_t all = weights->layout->layer_bytes + weights->layout->head_bytes;
    char size[32];
    if (memory.usable_bytes > all + all / 2) {
        tell(d, LEVER_FACT_ADVICE, "model.memory", "",
             "all of the model's %s fit the memory that is free: --target-ram 100 keeps them there",
             lv_format_size(all, size, sizeof(size)));
    } else {
        tell(d, LEVER_FACT_ADVICE, "model.memory", "",
             "the model's %s do not fit the memory that is free with room to spare: they stream; 'lever plan --ram "
             "SIZE' "
             "shows what a budget buys",
             lv_format_size(all, size, sizeof(size)));
    }
}

/* --- Pair -------------------------------------------------------------------------------------------------------- */

/* "pair.layers.all.16": a point that no pass had says what its neighbours make likely. A curve without samples says
 * nothing. */
static void tell_curve(const doctor *d, const char *name, const lv_cost_curve *curve, const uint32_t *rows,
                       size_t rows_count) {
    bool measured = false;
    for (size_t i = 0; i < LV_COST_POINTS; i++) measured = measured || curve->samples[i] > 0;
    for (size_t i = 0; i < rows_count && measured; i++) {
        char key[64];
        snprintf(key, sizeof(key), "pair.%s.%" PRIu32, name, rows[i]);
        tell(d, LEVER_FACT_MEASURED, key, "ms", "%.3f", 1e3 * lv_cost_curve_at(curve, rows[i]));
    }
}

static void tell_acceptance(const doctor *d, const lv_calibration *calibration) {
    for (size_t rank = 0; rank < LV_RANKS_COUNT; rank++) {
        const lv_counter *counter = &calibration->by_rank[LV_SOURCE_DRAFT][rank];
        char key[64];
        snprintf(key, sizeof(key), "pair.accepted.rank_%zu", rank + 1);
        if (counter->trials < 1) continue;
        tell(d, LEVER_FACT_MEASURED, key, "", "%.3f", (double)(counter->hits / counter->trials));
    }
}

/* What runs of the pair have kept: milliseconds by rows, and how often a candidate of the draft was right. */
static void look_at_pair(const doctor *d, const char *path, const lv_layout *layout) {
    static const uint32_t layers[] = {1, 8, 16, 32, 64}, draft[] = {1, 4, 8}, head[] = {1, 8, 16};
    const lv_costs_share_options options = {
        .folder = d->options->cache_dir,
        .target_path = path,
        .draft_path = d->options->draft_path,
        .pass_read_bytes = layout->layer_bytes + layout->head_bytes,
        .threads = d->engine_threads,
    };
    lv_costs costs;
    lv_calibration calibration;
    uint64_t read_bytes;
    if (!lv_costs_file_newest(&options, &costs, &calibration, &read_bytes)) {
        tell(d, LEVER_FACT_ADVICE, "pair.costs", "",
             "no run of this model with this draft and %" PRIu32
             " threads has left its costs yet: they are measured while it answers; 'lever run -m %s -d %s' once, then "
             "ask again",
             d->engine_threads, path, d->options->draft_path);
        return;
    }
    tell_bytes(d, "pair.pass_read_bytes", read_bytes);
    tell(d, LEVER_FACT_MEASURED, "pair.io", "ms", "%.3f", 1e3 * costs.io_seconds);
    tell_curve(d, "layers.one", &costs.layers[LV_SPLIT_ONE], layers, 5);
    tell_curve(d, "layers.all", &costs.layers[LV_SPLIT_ALL], layers, 5);
    tell_curve(d, "draft.one", &costs.draft[LV_SPLIT_ONE], draft, 3);
    tell_curve(d, "draft.all", &costs.draft[LV_SPLIT_ALL], draft, 3);
    tell_curve(d, "head", &costs.head, head, 3);
    tell_acceptance(d, &calibration);
}

/* ----------------------------------------------------------------------------------------------------------------- */

static lever_status look_at_model(doctor *d, const char *path, lever_error *error) {
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    lv_weights *weights = NULL;
    const lv_file_options options = {.direct = true};
    lever_status status = lv_gguf_open(&gguf, path, &options, error);
    if (status == LEVER_OK) status = lv_model_bind(&model, gguf, NULL, error);
    if (status == LEVER_OK) {
        status = lv_weights_open(&weights, gguf, model, LV_BLOCK_BYTES_DEFAULT, true, NULL, error);
    }
    if (status == LEVER_OK) {
        tell(d, LEVER_FACT_MEASURED, "model.architecture", "", "%s", model->arch_name);
        tell(d, LEVER_FACT_MEASURED, "model.packed", "", "%s", lv_gguf_is_packed(gguf) ? "yes" : "no");
        tell_bytes(d, "model.layer_bytes", weights->layout->layer_bytes);
        tell_bytes(d, "model.head_bytes", weights->layout->head_bytes);
        status = look_at_types(d, weights, error);
    }
    if (status == LEVER_OK) status = stream_model(d, gguf, weights, error);
    if (status == LEVER_OK) advise(d, gguf, weights);
    if (status == LEVER_OK && d->options->draft_path) look_at_pair(d, path, weights->layout);
    lv_weights_close(&weights);
    lv_model_free(&model);
    lv_gguf_close(&gguf);
    return status;
}

static void tell_device(void *user, const char *name, const char *description) {
    char key[128];
    snprintf(key, sizeof(key), "device.%s", name);
    tell(user, LEVER_FACT_MEASURED, key, "", "%s", description);
}

void lever_doctor_options_init(lever_doctor_options *options) {
    memset(options, 0, sizeof(*options));
}

lever_status lever_doctor(const lever_doctor_options *options, lever_finding_fn on_finding, void *user,
                          lever_error *error) {
    lv_error_clear(error);
    if (!options || !on_finding) return lv_fail(error, LEVER_E_ARGUMENT, "lever_doctor: no options, or no receiver");
    const char *path = options->path && options->path[0] ? options->path : ".";
    doctor d = {.options = options, .fn = on_finding, .user = user};
    d.engine_threads = options->threads ? options->threads : lv_cpu_fast_count("/sys");
    d.threads = d.engine_threads < LV_PROBE_THREADS_MAX ? d.engine_threads : LV_PROBE_THREADS_MAX;
    struct stat status;
    LV_TRY(look_at(path, &status, error));
    const bool is_folder = S_ISDIR(status.st_mode);
    if (options->draft_path && is_folder) {
        return lv_fail(error, LEVER_E_ARGUMENT, "a draft, %s, but no model: %s is a folder; give the target with -m",
                       options->draft_path, path);
    }
    if (options->draft_path) LV_TRY(look_at(options->draft_path, &status, error));
    look_at_processor(&d);
    lv_device_list(tell_device, &d);
    LV_TRY(look_at_memory(&d, error));
    LV_TRY(look_at_disk(&d, path, error));
    return is_folder ? LEVER_OK : look_at_model(&d, path, error);
}
