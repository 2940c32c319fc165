/* link: --wrap=lv_os_pread */
/* Leases show the bytes of the file, whatever the order, the ring, the lanes and what is pinned meanwhile; and memory
 * is given back when it is said to be. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/thread.h"
#include "flash/checks.h"
#include "support/check.h"
#include "support/scratch.h"
#include "support/store_world.h"

static char model[512], packed_model[512];

/* A gate before every read: while it is closed, reads take as long as the test wants. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_closed;
static uint32_t gate_waiting;

ssize_t __real_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
ssize_t __wrap_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
ssize_t __wrap_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset) {
    pthread_mutex_lock(&gate_lock);
    gate_waiting++;
    pthread_cond_broadcast(&gate_changed);
    while (gate_closed) pthread_cond_wait(&gate_changed, &gate_lock);
    gate_waiting--;
    pthread_mutex_unlock(&gate_lock);
    return __real_lv_os_pread(descriptor, data, bytes, offset);
}

static void set_gate(bool closed) {
    pthread_mutex_lock(&gate_lock);
    gate_closed = closed;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_lock);
}

static void wait_for_reads_at_gate(uint32_t count) {
    pthread_mutex_lock(&gate_lock);
    while (gate_waiting < count) pthread_cond_wait(&gate_changed, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static uint32_t draw(uint32_t seed, uint32_t *counter, uint32_t below) {
    const uint32_t words[4] = {(*counter)++, 0, 0, 0}, key[2] = {seed, 5};
    return lv_philox(words, key).word[0] % below;
}

static uint64_t streamed_superset_bytes(const world *w) {
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < w->layout->head_block_first; b++)
        if (!w->pinned[b]) bytes += lv_file_superset_bytes(w->layout->blocks[b].offset, w->layout->blocks[b].bytes);
    return bytes;
}

static void passes_show_the_file(void **state) {
    (void)state;
    const world_options cases[] = {{.slots = 2, .lanes = 1},
                                   {.slots = 3, .lanes = 2},
                                   {.slots = 8, .lanes = 4, .buffered = true},
                                   {.slots = 3, .lanes = 2, .pinned = 3},
                                   {.slots = 2, .lanes = 3, .pinned = 2, .transform = true},
                                   {.slots = 3, .lanes = 2, .keeps = true},
                                   {.slots = 6, .lanes = 3, .pinned = 3, .keeps = true},
                                   {.slots = 0, .lanes = 1, .pinned = 1, .transform = true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        lever_error error;
        CHECK_OK(world_open(&w, model, &cases[i], &error));
        for (int pass = 0; pass < 4; pass++) CHECK_OK(world_pass(&w, false, &error));

        lv_store_counters counters;
        lv_store_get_counters(w.store, &counters);
        uint64_t pinned_bytes = 0, pass_bytes = streamed_superset_bytes(&w);
        for (uint32_t b = 0; b < w.layout->head_block_first; b++)
            if (w.pinned[b]) pinned_bytes += w.layout->blocks[b].bytes;
        assert_int_equal(counters.pinned_bytes, pinned_bytes);
        assert_int_equal(counters.ring_bytes, cases[i].slots * w.layout->slot_bytes);
        /* Nothing is read twice: four passes, give or take what the ring held at the start and holds now. */
        uint64_t ring_bytes = cases[i].slots * (WORLD_BLOCK_BYTES + 2 * LV_FILE_ALIGN);
        assert_true(counters.bytes_read + ring_bytes >= 4 * pass_bytes);
        assert_true(counters.bytes_read <= 4 * pass_bytes + ring_bytes);
        assert_true(pass_bytes == 0 || counters.busy_ns > 0);
        world_close(&w);
    }
}

/* A cache that has room for all of it reads everything once. */
static void a_ring_that_holds_all_keeps_it(void **state) {
    (void)state;
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, model, &(world_options){.slots = 2, .lanes = 1}, &error));
    const uint32_t blocks_count = w.layout->head_block_first;
    world_close(&w);
    const world_options options = {.slots = blocks_count, .lanes = 2, .keeps = true};
    CHECK_OK(world_open(&w, model, &options, &error));
    for (int pass = 0; pass < 4; pass++) CHECK_OK(world_pass(&w, false, &error));
    lv_store_counters counters;
    lv_store_get_counters(w.store, &counters);
    assert_int_equal(counters.reads_count, blocks_count);
    assert_int_equal(counters.bytes_read, streamed_superset_bytes(&w));
    assert_int_equal(counters.hit_bytes, 3 * w.layout->layer_bytes);
    assert_int_equal(counters.pinned_bytes, 0);
    world_close(&w);
}

typedef struct {
    pthread_t thread;
    uint64_t done, total;
} progress;

static void on_progress(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    progress *p = user;
    assert_int_equal(stage, LEVER_STAGE_OPEN);
    assert_true(pthread_equal(pthread_self(), p->thread));
    assert_true(done >= p->done && done <= total);
    p->done = done;
    p->total = total;
}

static void opening_tells_its_progress(void **state) {
    (void)state;
    world w;
    lever_error error;
    progress told = {.thread = pthread_self()};
    world_options options = {.slots = 2, .lanes = 1, .pinned = 2, .progress = on_progress, .progress_user = &told};
    CHECK_OK(world_open(&w, model, &options, &error));
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < w.layout->blocks_count; b += 2) bytes += w.layout->blocks[b].bytes;
    assert_int_equal(told.done, bytes);
    assert_int_equal(told.total, bytes);
    world_close(&w);
}

static void cancel_it(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    (void)stage;
    (void)done;
    (void)total;
    atomic_store((atomic_bool *)user, true);
}

/* By a flag that is set while blocks are read, or was set before; nothing is left then. */
static void opening_can_be_cancelled(void **state) {
    (void)state;
    world w;
    lever_error error;
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    atomic_bool cancel = false;
    world_options options = {
        .slots = 2, .lanes = 1, .pinned = 1, .ledger = ledger, .progress = cancel_it, .progress_user = &cancel};
    options.cancel = &cancel;
    CHECK_FAILS(world_open(&w, model, &options, &error), LEVER_E_CANCELLED, "cancelled");
    assert_int_equal(lv_ledger_used(ledger), 0);
    options.progress = NULL;
    CHECK_FAILS(world_open(&w, model, &options, &error), LEVER_E_CANCELLED, "cancelled");
    assert_int_equal(lv_ledger_used(ledger), 0);
    atomic_store(&cancel, false);
    CHECK_OK(world_open(&w, model, &options, &error));
    CHECK_OK(world_pass(&w, true, &error));
    world_close(&w);
    lv_ledger_free(ledger);
}

static void the_head_follows_the_layers_when_wanted(void **state) {
    (void)state;
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, model, &(world_options){.slots = 3, .lanes = 2}, &error));
    assert_int_equal(w.layout->blocks_count - w.layout->head_block_first, 3);
    lv_store_set_head_wanted(w.store, true);
    for (int pass = 0; pass < 3; pass++) CHECK_OK(world_pass(&w, true, &error));
    lv_store_counters counters;
    lv_store_get_counters(w.store, &counters);
    assert_true(counters.reads_count <= 3 * w.layout->blocks_count + 3);
    lv_store_set_head_wanted(w.store, false);
    CHECK_OK(world_pass(&w, false, &error));
    CHECK_OK(world_pass(&w, true, &error)); /* not wanted, but asked for: it comes all the same */
    world_close(&w);
}

/* Holds up to `slots` leases, asks in any order, and says what is pinned now and then. */
static void random_use(uint32_t seed, const char *path) {
    uint32_t counter = 0;
    world_options options = {.slots = 2 + draw(seed, &counter, 5),
                             .lanes = 1 + draw(seed, &counter, 4),
                             .pinned = draw(seed, &counter, 5),
                             .transform = draw(seed, &counter, 2),
                             .verify = true};
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, path, &options, &error));
    if (options.pinned == 1) options.slots = 2; /* all pinned at opening; the ring is used when that changes */
    lv_lease leases[8];
    uint32_t leases_count = 0, streamed = 0, next = 0;
    for (uint32_t step = 0; step < 150; step++) {
        uint32_t dice = draw(seed, &counter, 100);
        if (dice < 60 && leases_count < 8 && streamed < options.slots) {
            next = draw(seed, &counter, 4) > 0 ? (next + 1) % w.layout->blocks_count
                                               : draw(seed, &counter, w.layout->blocks_count);
            lv_lease *lease = &leases[leases_count];
            if (draw(seed, &counter, 5) == 0) {
                if (!lv_store_try_acquire(w.store, next, lease)) continue;
            } else {
                CHECK_OK(lv_store_acquire(w.store, next, NULL, lease, &error));
            }
            assert_int_equal(lease->block, next);
            assert_true(world_lease_is_right(&w, lease));
            streamed += lease->slot != UINT32_MAX;
            leases_count++;
        } else if (dice < 92 && leases_count > 0) {
            uint32_t which = draw(seed, &counter, leases_count);
            assert_true(world_lease_is_right(&w, &leases[which])); /* nobody touched it meanwhile */
            streamed -= leases[which].slot != UINT32_MAX;
            lv_store_release(w.store, &leases[which]);
            leases[which] = leases[--leases_count];
        } else if (dice < 96) {
            for (uint32_t b = 0; b < w.layout->blocks_count; b++) w.pinned[b] = draw(seed, &counter, 3) == 0;
            lv_store_set_pinned(w.store, w.pinned);
        } else {
            lv_store_set_head_wanted(w.store, draw(seed, &counter, 2));
        }
    }
    while (leases_count > 0) {
        assert_true(world_lease_is_right(&w, &leases[leases_count - 1]));
        lv_store_release(w.store, &leases[--leases_count]);
    }
    world_close(&w);
}

static void any_order_shows_the_file(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) random_use(seed, seed % 2 ? model : packed_model);
}

static uint64_t pinned_memory(const lv_ledger *ledger) {
    return lv_ledger_used_by(ledger, LV_MEM_PINNED) + lv_ledger_used_by(ledger, LV_MEM_HEAD);
}

static void pinning_follows_what_is_said(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    world w;
    lever_error error;
    CHECK_OK(
        world_open(&w, model, &(world_options){.slots = 3, .lanes = 2, .transform = true, .ledger = ledger}, &error));
    assert_int_equal(pinned_memory(ledger), 0);
    uint64_t others = lv_ledger_used(ledger);

    for (uint32_t b = 0; b < w.layout->blocks_count; b++) w.pinned[b] = b % 2 == 0;
    lv_store_set_pinned(w.store, w.pinned);
    assert_int_equal(pinned_memory(ledger), 0); /* what comes is pinned as it passes by */
    CHECK_OK(world_pass(&w, true, &error));
    uint64_t wanted = 0;
    for (uint32_t b = 0; b < w.layout->blocks_count; b += 2) wanted += lv_area_booked_bytes(w.layout->blocks[b].bytes);
    assert_int_equal(pinned_memory(ledger), wanted);

    lv_lease pinned, streamed;
    CHECK_OK(lv_store_acquire(w.store, 0, NULL, &pinned, &error));
    CHECK_OK(lv_store_acquire(w.store, 1, NULL, &streamed, &error));
    assert_true(pinned.transformed && pinned.slot == UINT32_MAX);
    assert_true(!streamed.transformed && streamed.slot != UINT32_MAX);
    lv_store_release(w.store, &streamed);

    /* All is given back at once but what is leased, and that with its lease. */
    memset(w.pinned, 0, sizeof w.pinned);
    lv_store_set_pinned(w.store, w.pinned);
    assert_int_equal(pinned_memory(ledger), lv_area_booked_bytes(w.layout->blocks[0].bytes));
    assert_true(world_lease_is_right(&w, &pinned));
    lv_store_release(w.store, &pinned);
    assert_int_equal(pinned_memory(ledger), 0);
    assert_int_equal(lv_ledger_used(ledger), others);
    CHECK_OK(world_pass(&w, false, &error));
    world_close(&w);
    lv_ledger_free(ledger);
}

static void a_refused_block_is_streamed_on(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, model, &(world_options){.slots = 2, .lanes = 1, .ledger = ledger}, &error));
    CHECK_OK(lv_ledger_set_limit(ledger, lv_ledger_used(ledger) + (300 << 10), &error)); /* room for one block */
    for (uint32_t b = 0; b < w.layout->blocks_count; b++) w.pinned[b] = true;
    lv_store_set_pinned(w.store, w.pinned);
    for (int pass = 0; pass < 2; pass++) CHECK_OK(world_pass(&w, false, &error));
    assert_in_range(pinned_memory(ledger), 1, 300 << 10);
    assert_true(lv_ledger_peak(ledger) <= lv_ledger_limit(ledger));
    CHECK_OK(lv_ledger_set_limit(ledger, LV_LEDGER_UNLIMITED, &error));
    CHECK_OK(world_pass(&w, true, &error));
    CHECK_OK(world_pass(&w, true, &error));
    lv_store_counters before, after;
    lv_store_get_counters(w.store, &before);
    assert_int_equal(before.pinned_bytes, w.layout->layer_bytes);
    CHECK_OK(world_pass(&w, true, &error));
    lv_store_get_counters(w.store, &after);
    assert_int_equal(after.reads_count, before.reads_count); /* everything is in memory */
    world_close(&w);
    lv_ledger_free(ledger);
}

/* --- Several threads ---------------------------------------------------------------------------------------------- */

typedef struct {
    world *w;
    atomic_bool stop;
} meddler;

static void *meddle(void *user) {
    meddler *m = user;
    bool pinned[WORLD_BLOCKS_MAX];
    for (uint32_t round = 0, counter = 0; !atomic_load(&m->stop); round++) {
        for (uint32_t b = 0; b < WORLD_BLOCKS_MAX; b++) pinned[b] = draw(round, &counter, 2) == 0;
        lv_store_set_pinned(m->w->store, pinned);
        lv_store_counters counters;
        lv_store_get_counters(m->w->store, &counters);
        lv_store_cancel_wait(m->w->store);
        usleep(100); /* so that the others get the lock too */
    }
    return NULL;
}

static void others_may_change_what_is_pinned(void **state) {
    (void)state;
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    world w;
    lever_error error;
    CHECK_OK(world_open(
        &w, model, &(world_options){.slots = 3, .lanes = 2, .pinned = 4, .transform = true, .ledger = ledger}, &error));
    meddler m = {.w = &w};
    lv_thread thread;
    CHECK_OK(lv_thread_start(&thread, NULL, meddle, &m, "meddler", &error));
    for (int pass = 0; pass < 20; pass++) CHECK_OK(world_pass(&w, pass % 2, &error));
    atomic_store(&m.stop, true);
    lv_thread_join(&thread);
    memset(w.pinned, 0, sizeof w.pinned);
    lv_store_set_pinned(w.store, w.pinned);
    assert_int_equal(pinned_memory(ledger), 0);
    world_close(&w);
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
}

typedef struct {
    world *w;
    atomic_bool cancel;
    bool wakes; /* else it only sets the flag, as a signal handler does */
} canceller;

static void *cancel_while_reading(void *user) {
    canceller *c = user;
    wait_for_reads_at_gate(1);
    atomic_store(&c->cancel, true);
    if (c->wakes) lv_store_cancel_wait(c->w->store);
    return NULL;
}

static void a_cancelled_wait_ends_and_can_be_repeated(void **state) {
    (void)state;
    for (int wakes = 0; wakes < 2; wakes++) {
        world w;
        lever_error error;
        lv_lease lease;
        lv_thread thread;
        CHECK_OK(world_open(&w, model, &(world_options){.slots = 2, .lanes = 1}, &error));
        CHECK_OK(world_pass(&w, false, &error));
        set_gate(true);
        canceller c = {.w = &w, .wakes = wakes != 0};
        CHECK_OK(lv_thread_start(&thread, NULL, cancel_while_reading, &c, "canceller", &error));
        /* The read does not end, the wait does. */
        CHECK_FAILS(lv_store_acquire(w.store, 9, &c.cancel, &lease, &error), LEVER_E_CANCELLED, "cancelled");
        lv_thread_join(&thread);
        assert_false(lv_store_try_acquire(w.store, 9, &lease));
        set_gate(false);
        atomic_store(&c.cancel, false);
        CHECK_OK(lv_store_acquire(w.store, 9, &c.cancel, &lease, &error));
        assert_true(world_lease_is_right(&w, &lease));
        lv_store_release(w.store, &lease);
        world_close(&w);
    }
}

/* Time in which two reads are in flight counts once, and waiting for them is the consumer's. */
static void busy_time_is_counted_once(void **state) {
    (void)state;
    lv_clock_virtual virtual_clock = {.now_ns = 1000};
    const lv_clock clock = lv_clock_of_virtual(&virtual_clock);
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, model, &(world_options){.slots = 2, .lanes = 2, .clock = &clock}, &error));
    lv_lease leases[2];
    for (uint32_t b = 0; b < 2; b++) CHECK_OK(lv_store_acquire(w.store, b, NULL, &leases[b], &error));
    set_gate(true); /* the ring is full of leases: nothing is being read */
    for (uint32_t b = 0; b < 2; b++) lv_store_release(w.store, &leases[b]);
    wait_for_reads_at_gate(2);
    virtual_clock.now_ns += 500;
    lv_store_counters counters;
    lv_store_get_counters(w.store, &counters);
    assert_int_equal(counters.busy_ns, 500); /* of reads that are still under way */
    set_gate(false);
    CHECK_OK(world_pass(&w, false, &error));
    lv_store_get_counters(w.store, &counters);
    assert_int_equal(counters.busy_ns, 500);
    assert_int_equal(counters.wait_ns, 0);
    world_close(&w);
}

static void too_many_leases_are_an_error_not_a_hang(void **state) {
    (void)state;
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, model, &(world_options){.slots = 2, .lanes = 1}, &error));
    lv_lease leases[2], more;
    for (uint32_t b = 0; b < 2; b++) CHECK_OK(lv_store_acquire(w.store, b, NULL, &leases[b], &error));
    CHECK_FAILS(lv_store_acquire(w.store, 2, NULL, &more, &error), LEVER_E_INTERNAL, "all 2 slots");
    for (uint32_t b = 0; b < 2; b++) lv_store_release(w.store, &leases[b]);
    world_close(&w);
    CHECK_FAILS(world_open(&w, model, &(world_options){.slots = 1, .lanes = 1}, &error), LEVER_E_ARGUMENT, "slots");
    CHECK_FAILS(world_open(&w, model, &(world_options){.slots = 2}, &error), LEVER_E_ARGUMENT, "lane");
}

/* --- Rows, measuring, checksums ----------------------------------------------------------------------------------- */

static void rows_come_on_demand(void **state) {
    (void)state;
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, packed_model, &(world_options){.slots = 2, .lanes = 1, .verify = true}, &error));
    const lv_tensor *table = lv_gguf_find(w.gguf, "token_embd.weight");
    assert_non_null(table);
    static uint8_t rows[64 << 10];
    const struct { uint64_t first, count; } cases[] = {{0, 1}, {255, 2}, {511, 1}, {17, 60}, {17, 60}, {512, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_OK(lv_store_read_rows(w.store, table, cases[i].first, cases[i].count, rows, &error));
        for (uint64_t b = 0; b < cases[i].count * table->row_bytes; b++)
            assert_int_equal(rows[b], world_byte(table->offset + cases[i].first * table->row_bytes + b));
    }
    CHECK_FAILS(lv_store_read_rows(w.store, table, 512, 1, rows, &error), LEVER_E_ARGUMENT, "token_embd");
    CHECK_FAILS(lv_store_read_rows(w.store, table, 2, UINT64_MAX, rows, &error), LEVER_E_ARGUMENT, "token_embd");
    lv_tensor tiled = *table;
    tiled.layout = LV_LAYOUT_TILES;
    CHECK_FAILS(lv_store_read_rows(w.store, &tiled, 1, 16, rows, &error), LEVER_E_ARGUMENT, "tiles");
    world_close(&w);
}

static void the_reader_can_be_measured(void **state) {
    (void)state;
    for (uint32_t pinned = 0; pinned < 2; pinned++) {
        world w;
        lever_error error;
        CHECK_OK(world_open(&w, model, &(world_options){.slots = 2, .lanes = 1, .pinned = pinned}, &error));
        double rate = -1;
        CHECK_OK(lv_store_measure(w.store, 2, &rate, &error));
        assert_true(pinned ? rate == 0 : rate > 0);
        CHECK_OK(world_pass(&w, true, &error));
        world_close(&w);
    }
}

static void flip(const char *path, uint64_t offset) {
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    assert_int_equal(pread(descriptor, &byte, 1, (off_t)offset), 1);
    byte ^= 4;
    assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)offset), 1);
    close(descriptor);
}

static void damage_is_found_at_the_first_read(void **state) {
    (void)state;
    const world_options checked = {.slots = 3, .lanes = 2, .verify = true}, trusting = {.slots = 3, .lanes = 2};
    world w;
    lever_error error;
    CHECK_OK(world_open(&w, packed_model, &checked, &error));
    CHECK_OK(lv_checks_verify_file(w.gguf, NULL, NULL, &error));
    for (int pass = 0; pass < 2; pass++) CHECK_OK(world_pass(&w, true, &error));
    const lv_block block = w.layout->blocks[4];
    const uint64_t norm = lv_gguf_find(w.gguf, "output_norm.weight")->offset;
    const uint64_t row_300 = lv_gguf_find(w.gguf, "token_embd.weight")->offset + 300 * 1024;
    uint64_t begin, end, keys;
    lv_gguf_keys_range(w.gguf, &begin, &end, &keys);
    world_close(&w);

    flip(packed_model, block.offset + block.bytes - 1);
    CHECK_OK(world_open(&w, packed_model, &checked, &error));
    lv_lease lease;
    for (int attempt = 0; attempt < 2; attempt++) {
        CHECK_FAILS(lv_store_acquire(w.store, 4, NULL, &lease, &error), LEVER_E_FORMAT, "blk.0.ffn_up");
        CHECK_OK(lv_store_acquire(w.store, 5, NULL, &lease, &error));
        lv_store_release(w.store, &lease);
    }
    CHECK_FAILS(lv_checks_verify_file(w.gguf, NULL, NULL, &error), LEVER_E_FORMAT, "blk.0.ffn_up");
    world_close(&w);
    CHECK_OK(world_open(&w, packed_model, &trusting, &error));
    CHECK_OK(lv_store_acquire(w.store, 4, NULL, &lease, &error));
    assert_false(world_lease_is_right(&w, &lease));
    lv_store_release(w.store, &lease);
    world_close(&w);
    world_options pinning = checked;
    pinning.pinned = 4;
    CHECK_FAILS(world_open(&w, packed_model, &pinning, &error), LEVER_E_FORMAT, "blk.0.ffn_up");
    flip(packed_model, block.offset + block.bytes - 1);

    flip(packed_model, row_300);
    CHECK_OK(world_open(&w, packed_model, &checked, &error));
    uint8_t row[1024];
    const lv_tensor *table = lv_gguf_find(w.gguf, "token_embd.weight");
    CHECK_FAILS(lv_store_read_rows(w.store, table, 301, 1, row, &error), LEVER_E_FORMAT, "token_embd");
    world_close(&w);
    flip(packed_model, row_300);

    flip(packed_model, norm);
    CHECK_FAILS(world_open(&w, packed_model, &checked, &error), LEVER_E_FORMAT, "output_norm");
    flip(packed_model, norm);

    flip(packed_model, end + 9); /* in the first tensor's name */
    CHECK_FAILS(world_open(&w, packed_model, &checked, &error), LEVER_E_FORMAT, "header");
    flip(packed_model, end + 9);
    CHECK_OK(world_open(&w, packed_model, &checked, &error));
    world_close(&w);
}

static int write_models(void **state) {
    (void)state;
    world_write(scratch_path("model.gguf", model, sizeof model), false);
    world_write(scratch_path("model.lvr", packed_model, sizeof packed_model), true);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_show_the_file),
        cmocka_unit_test(a_ring_that_holds_all_keeps_it),
        cmocka_unit_test(opening_tells_its_progress),
        cmocka_unit_test(opening_can_be_cancelled),
        cmocka_unit_test(the_head_follows_the_layers_when_wanted),
        cmocka_unit_test(any_order_shows_the_file),
        cmocka_unit_test(pinning_follows_what_is_said),
        cmocka_unit_test(a_refused_block_is_streamed_on),
        cmocka_unit_test(others_may_change_what_is_pinned),
        cmocka_unit_test(a_cancelled_wait_ends_and_can_be_repeated),
        cmocka_unit_test(busy_time_is_counted_once),
        cmocka_unit_test(too_many_leases_are_an_error_not_a_hang),
        cmocka_unit_test(rows_come_on_demand),
        cmocka_unit_test(the_reader_can_be_measured),
        cmocka_unit_test(damage_is_found_at_the_first_read),
    };
    return cmocka_run_group_tests(tests, write_models, NULL);
}
