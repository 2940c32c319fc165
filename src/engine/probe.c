/* probe.c - lanes take the next block from a common counter until the time is over; the rate is what all of them read,
 * by the time from the first request to the last answer. */
#include "engine/probe.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/system.h"
#include "base/thread.h"

typedef struct {
    lv_file *file;
    size_t block_bytes;
    uint64_t blocks_count, deadline_ns;
    atomic_ullong next, bytes;
    atomic_bool failed;
} read_work;

typedef struct {
    read_work *work;
    lv_area area;
    lv_thread thread;
    lever_status status;
    lever_error error;
} reader;

static void *read_blocks(void *user) {
    reader *self = user;
    read_work *work = self->work;
    while (lv_clock_now_ns(&lv_clock_real) < work->deadline_ns && !atomic_load(&work->failed)) {
        const uint64_t block = atomic_fetch_add(&work->next, 1) % work->blocks_count;
        size_t skip;
        self->status = lv_file_read_superset(work->file, self->area.data, block * work->block_bytes, work->block_bytes,
                                             &skip, &self->error);
        if (self->status != LEVER_OK) {
            atomic_store(&work->failed, true);
            break;
        }
        atomic_fetch_add(&work->bytes, work->block_bytes);
    }
    return NULL;
}

lever_status lv_probe_reads(lv_file *file, uint32_t lanes, size_t block_bytes, double seconds, double *bytes_per_second,
                            lever_error *error) {
    *bytes_per_second = 0;
    if (lanes > LV_PROBE_THREADS_MAX) lanes = LV_PROBE_THREADS_MAX;
    read_work work = {.file = file, .block_bytes = block_bytes, .blocks_count = lv_file_bytes(file) / block_bytes};
    if (work.blocks_count == 0) {
        return lv_fail(error, LEVER_E_ARGUMENT, "%s has %llu bytes, too few to measure reads of %zu",
                       lv_file_path(file), (unsigned long long)lv_file_bytes(file), block_bytes);
    }
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_WORKSPACE, lanes, sizeof(reader), "readers", error));
    reader *readers = memory;
    const lv_area_options options = {.huge_pages = true, .touch = true};
    lever_status status = LEVER_OK;
    for (uint32_t i = 0; i < lanes && status == LEVER_OK; i++) {
        readers[i].work = &work;
        status = lv_area_open(&readers[i].area, NULL, LV_MEM_WORKSPACE, lv_file_superset_bytes(0, block_bytes),
                              &options, "a buffer to read into", error);
    }
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    work.deadline_ns = begin_ns + (uint64_t)(seconds * 1e9);
    for (uint32_t i = 0; i < lanes && status == LEVER_OK; i++) {
        status = lv_thread_start(&readers[i].thread, NULL, read_blocks, &readers[i], "lever-probe", error);
    }
    for (uint32_t i = 0; i < lanes; i++) {
        lv_thread_join(&readers[i].thread);
        if (status == LEVER_OK && readers[i].status != LEVER_OK) {
            status = readers[i].status;
            if (error) *error = readers[i].error;
        }
    }
    const double passed = lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
    if (status == LEVER_OK && passed > 0) *bytes_per_second = (double)atomic_load(&work.bytes) / passed;
    for (uint32_t i = 0; i < lanes; i++) lv_area_close(&readers[i].area);
    lv_free(readers);
    return status;
}

/* --- Memory ------------------------------------------------------------------------------------------------------ */

static const size_t memory_bytes_total = (size_t)256 << 20;

typedef struct {
    const uint64_t *words;
    size_t words_count;
    uint64_t deadline_ns, bytes, sum;
    lv_thread thread;
} memory_reader;

static void *read_memory(void *user) {
    memory_reader *self = user;
    while (lv_clock_now_ns(&lv_clock_real) < self->deadline_ns) {
        uint64_t sums[8] = {0};
        for (size_t i = 0; i + 8 <= self->words_count; i += 8) {
            for (size_t lane = 0; lane < 8; lane++) sums[lane] += self->words[i + lane];
        }
        for (size_t lane = 0; lane < 8; lane++) self->sum += sums[lane];
        self->bytes += self->words_count * sizeof(uint64_t);
    }
    return NULL;
}

lever_status lv_probe_memory(uint32_t threads, double seconds, double *bytes_per_second, lever_error *error) {
    *bytes_per_second = 0;
    if (threads > LV_PROBE_THREADS_MAX) threads = LV_PROBE_THREADS_MAX;
    lv_area area;
    const lv_area_options options = {.huge_pages = true, .touch = true};
    LV_TRY(lv_area_open(&area, NULL, LV_MEM_WORKSPACE, memory_bytes_total, &options, "memory to measure", error));
    memset(area.data, 1, area.bytes);
    memory_reader readers[LV_PROBE_THREADS_MAX] = {0};
    const uint64_t begin_ns = lv_clock_now_ns(&lv_clock_real);
    const size_t share = area.bytes / threads / sizeof(uint64_t);
    lever_status status = LEVER_OK;
    for (uint32_t i = 0; i < threads && status == LEVER_OK; i++) {
        readers[i].words = (const uint64_t *)(const void *)area.data + i * share;
        readers[i].words_count = share;
        readers[i].deadline_ns = begin_ns + (uint64_t)(seconds * 1e9);
        status = lv_thread_start(&readers[i].thread, NULL, read_memory, &readers[i], "lever-probe", error);
    }
    uint64_t bytes = 0, sum = 0;
    for (uint32_t i = 0; i < threads; i++) {
        lv_thread_join(&readers[i].thread);
        bytes += readers[i].bytes;
        sum += readers[i].sum;
    }
    const double passed = lv_seconds(lv_clock_now_ns(&lv_clock_real) - begin_ns);
    /* The sum is looked at, so that the loads are not thrown away. */
    if (status == LEVER_OK && passed > 0 && sum != 0) *bytes_per_second = (double)bytes / passed;
    lv_area_close(&area);
    return status;
}

double lv_probe_huge_pages(void) {
    const size_t bytes = 16 * LV_HUGE_PAGE_BYTES;
    lv_process_memory before, after;
    lv_process_memory_read("", &before);
    lv_area area;
    const lv_area_options options = {.huge_pages = true, .touch = true};
    if (lv_area_open(&area, NULL, LV_MEM_WORKSPACE, bytes, &options, "huge pages", NULL) != LEVER_OK) return -1;
    lv_process_memory_read("", &after);
    lv_area_close(&area);
    if (after.rss_bytes == 0) return -1;
    const double granted = (double)(after.huge_page_bytes - before.huge_page_bytes) / (double)bytes;
    return after.huge_page_bytes < before.huge_page_bytes ? 0 : granted;
}
