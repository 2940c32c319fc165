/* costs_file.c - the file's name is made of what the costs depend on; its text is that of costs and calibration. */
#include "engine/costs_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/text_file.h"

enum {
    PATH_BYTES = 4096,
    TEXT_BYTES_MAX = 1 << 20,
    CLASS_SHIFT = 26, /* budgets that stream nearly the same share costs: 64 MiB make a class */
};

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

/* A model is told by its name without folders and its size. */
static uint64_t hash_model(uint64_t hash, const char *path) {
    struct stat status;
    if (!path || stat(path, &status) != 0) return hash;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const int64_t bytes = (int64_t)status.st_size;
    return hash_bytes(hash_bytes(hash, name, strlen(name)), &bytes, sizeof(bytes));
}

static lv_costs_place place_of(const lv_costs_share_options *o) {
    return (lv_costs_place){
        .folder = o->folder,
        .device = o->device,
        .models_hash = hash_model(hash_model(0xcbf29ce484222325u, o->target_path), o->draft_path),
        .disk_bytes_per_second = o->disk_bytes_per_second,
        .threads = o->threads,
    };
}

/* Where costs of passes that stream so much are kept. */
static bool path_of(const lv_costs_place *at, uint64_t pass_read_bytes, char *out) {
    if (!at->folder || !at->folder[0]) return false;
    const uint64_t class = pass_read_bytes >> CLASS_SHIFT;
    uint64_t hash = hash_bytes(at->models_hash, &class, sizeof(class));
    hash = hash_bytes(hash, &at->threads, sizeof(at->threads));
    const uint64_t rate = at->disk_bytes_per_second;
    if (rate) hash = hash_bytes(hash, &rate, sizeof(rate));
    if (at->device) hash = hash_bytes(hash, at->device, strlen(at->device));
    const int length = snprintf(out, PATH_BYTES, "%s/pair-%016" PRIx64 ".costs", at->folder, hash);
    return length > 0 && length < PATH_BYTES;
}

static void set_path(lv_costs_share *share) {
    char path[PATH_BYTES];
    lv_free(share->path);
    share->path = NULL;
    if (path_of(&share->place, share->pass_read_bytes, path)) {
        share->path = lv_strdup(share->ledger, LV_MEM_SESSION, path);
    }
}

static bool read_text(lv_costs_share *share, char *text) {
    lv_costs costs = share->costs;
    lv_calibration calibration = share->calibration;
    if (!lv_costs_read(&costs, text) || !lv_calibration_read(&calibration, text)) return false;
    share->costs = costs;
    share->calibration = calibration;
    return true;
}

static lever_status load(lv_costs_share *share, const char *path, bool required, lever_error *error) {
    FILE *file = fopen(path, "re");
    if (!file) {
        if (!required) return LEVER_OK;
        return lv_fail(error, LEVER_E_IO, "%s: cannot be read (%s); give a file of costs, or leave the option out",
                       path, strerror(errno));
    }
    void *memory = NULL;
    struct stat about;
    const bool is_small = fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode) && about.st_size < TEXT_BYTES_MAX;
    const size_t most = is_small ? (size_t)about.st_size : TEXT_BYTES_MAX;
    const lever_status status = lv_alloc_checked(&memory, share->ledger, LV_MEM_SESSION, 1, most + 1,
                                                 "the text of a file of costs", required ? error : NULL);
    if (status != LEVER_OK) {
        fclose(file);
        return required ? status : LEVER_OK;
    }
    char *text = memory;
    const size_t bytes = fread(text, 1, most, file);
    text[bytes] = '\0';
    const bool fine = strlen(text) == bytes && read_text(share, text);
    lv_free(text);
    fclose(file);
    if (fine || !required) return LEVER_OK;
    return lv_fail(error, LEVER_E_FORMAT, "%s: is not a file of costs, or damaged; write it anew", path);
}

lever_status lv_costs_share_open(lv_costs_share *share, const lv_costs_share_options *options, const lv_costs *prior,
                                 lv_ledger *ledger, lever_error *error) {
    memset(share, 0, sizeof(*share));
    pthread_mutex_init(&share->lock, NULL);
    share->ledger = ledger;
    share->costs = *prior;
    share->pass_read_bytes = options->pass_read_bytes;
    lv_calibration_init(&share->calibration);
    if (options->frozen_path) {
        LV_TRY(load(share, options->frozen_path, true, error));
        share->costs.frozen = share->calibration.frozen = true;
        return LEVER_OK;
    }
    if (!options->folder) return LEVER_OK;
    share->place = place_of(options);
    share->place.folder = share->place.device = NULL; /* until they are its own */
    if (options->device) {
        share->place.device = lv_strdup(ledger, LV_MEM_SESSION, options->device);
        if (!share->place.device) return LEVER_OK; /* without its name they would be the CPU's */
    }
    share->place.folder = lv_strdup(ledger, LV_MEM_SESSION, options->folder);
    set_path(share);
    if (!share->path) return LEVER_OK;
    LV_TRY(load(share, share->path, false, error));
    /* A class that begins with nothing has files of both. */
    if ((share->costs.io_seconds > 0) != (options->pass_read_bytes > 0)) {
        share->costs.io_seconds = prior->io_seconds;
        share->costs.ring_seconds = prior->ring_seconds;
    }
    return LEVER_OK;
}

static void save(lv_costs_share *share) {
    const size_t costs_bytes = lv_costs_write(&share->costs, NULL, 0);
    const size_t all = costs_bytes + lv_calibration_write(&share->calibration, NULL, 0);
    char *text = lv_alloc(share->ledger, LV_MEM_SESSION, 1, all + 1);
    if (!text) return;
    lv_costs_write(&share->costs, text, all + 1);
    lv_calibration_write(&share->calibration, text + costs_bytes, all + 1 - costs_bytes);
    (void)lv_text_file_replace(share->path, text, all, NULL); /* not worth an error */
    lv_free(text);
}

void lv_costs_share_close(lv_costs_share *share) {
    if (!share->ledger) return;
    if (share->learned && share->path) save(share);
    lv_free(share->path);
    lv_free((void *)(uintptr_t)share->place.folder);
    lv_free((void *)(uintptr_t)share->place.device);
    pthread_mutex_destroy(&share->lock);
    memset(share, 0, sizeof(*share));
}

bool lv_costs_class_differs(uint64_t a, uint64_t b) {
    return a >> CLASS_SHIFT != b >> CLASS_SHIFT || (a == 0) != (b == 0);
}

/* What is known of reading else: how fast it was. */
static void read_as_fast(lv_costs *costs, const lv_costs_reading *reading, uint64_t before_bytes) {
    const bool measured = before_bytes > 0 && costs->io_seconds > 0;
    const double rate = measured ? (double)before_bytes / costs->io_seconds : reading->bytes_per_second;
    const uint64_t bytes = reading->pass_read_bytes, ring = reading->ring_bytes < bytes ? reading->ring_bytes : bytes;
    costs->io_seconds = (double)bytes / rate;
    costs->ring_seconds = (double)ring / rate;
    memset(&costs->io_before, 0, sizeof(costs->io_before)); /* no surprise */
}

void lv_costs_share_follow(lv_costs_share *share, const lv_costs_reading *reading) {
    const uint64_t now = reading->pass_read_bytes;
    pthread_mutex_lock(&share->lock);
    const uint64_t before = share->pass_read_bytes;
    if (!share->costs.frozen && lv_costs_class_differs(now, before)) {
        const bool same_file = now >> CLASS_SHIFT == before >> CLASS_SHIFT;
        lv_costs_share kept = {.ledger = share->ledger};
        if (share->learned && share->path) save(share);
        share->learned = false;
        share->pass_read_bytes = now;
        set_path(share);
        const bool found = !same_file && share->path && load(&kept, share->path, true, NULL) == LEVER_OK;
        if (found) {
            kept.costs.buckets = share->costs.buckets;
            share->costs = kept.costs;
        }
        if (!found || (share->costs.io_seconds > 0) != (now > 0)) {
            read_as_fast(&share->costs, reading, found ? 0 : before);
        }
    }
    pthread_mutex_unlock(&share->lock);
}

void lv_costs_share_take(lv_costs_share *share, lv_costs *costs, lv_calibration *calibration) {
    pthread_mutex_lock(&share->lock);
    *costs = share->costs;
    *calibration = share->calibration;
    pthread_mutex_unlock(&share->lock);
}

void lv_costs_share_give(lv_costs_share *share, const lv_costs *costs, const lv_calibration *calibration,
                         uint64_t pass_read_bytes) {
    if (costs->frozen) return;
    pthread_mutex_lock(&share->lock);
    if (!lv_costs_class_differs(pass_read_bytes, share->pass_read_bytes)) share->costs = *costs;
    share->calibration = *calibration;
    share->learned = true;
    pthread_mutex_unlock(&share->lock);
}

lever_status lv_costs_file_read(const char *path, lv_costs *costs, lv_calibration *calibration, lever_error *error) {
    lv_costs_share share = {0};
    LV_TRY(load(&share, path, true, error));
    *costs = share.costs;
    *calibration = share.calibration;
    return LEVER_OK;
}

static bool is_later(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

bool lv_costs_file_newest(const lv_costs_share_options *options, lv_costs *costs, lv_calibration *calibration,
                          uint64_t *pass_read_bytes) {
    const lv_costs_place at = place_of(options);
    char path[PATH_BYTES], newest[PATH_BYTES] = "";
    struct timespec newest_time = {0};
    for (uint64_t class = 0; class <= options->pass_read_bytes >> CLASS_SHIFT; class ++) {
        const uint64_t bytes = class << CLASS_SHIFT;
        struct stat status;
        if (!path_of(&at, bytes, path) || stat(path, &status) != 0) continue;
        if (newest[0] && !is_later(status.st_mtim, newest_time)) continue;
        memcpy(newest, path, sizeof(newest));
        newest_time = status.st_mtim;
        *pass_read_bytes = bytes;
    }
    return newest[0] && lv_costs_file_read(newest, costs, calibration, NULL) == LEVER_OK;
}
