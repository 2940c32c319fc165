/* link: --wrap=lv_os_pread,--wrap=lv_store_read_rows */
/* Rows of the cache are the rows of the file, read once while they stay; passes have the same bits with any cache. */
#include "compute/row_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>

#include "base/memory.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/parts.h"
#include "support/scratch.h"

static bool reads_fail;

ssize_t __real_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
ssize_t __wrap_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
ssize_t __wrap_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset) {
    if (reads_fail) {
        errno = EIO;
        return -1;
    }
    return __real_lv_os_pread(descriptor, data, bytes, offset);
}

static const char *one_model(const char *name) {
    static char path[LV_TEST_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", LEVER_TINY_DIR, name);
    return path;
}

static uint64_t reads_of(const parts *p) {
    lv_store_counters counters;
    lv_store_get_counters(p->store, &counters);
    return counters.reads_count;
}

/* Of rows alone: lanes of the store read blocks beside them. */
static uint64_t row_reads;

lever_status __real_lv_store_read_rows(lv_store *store, const lv_tensor *tensor, uint64_t first, uint64_t count,
                                       void *rows, lever_error *error);
lever_status __wrap_lv_store_read_rows(lv_store *store, const lv_tensor *tensor, uint64_t first, uint64_t count,
                                       void *rows, lever_error *error);
lever_status __wrap_lv_store_read_rows(lv_store *store, const lv_tensor *tensor, uint64_t first, uint64_t count,
                                       void *rows, lever_error *error) {
    row_reads++;
    return __real_lv_store_read_rows(store, tensor, first, count, rows, error);
}

typedef struct {
    parts plain, asked; /* the file as it is, and the one that the cache reads */
    lv_row_cache *cache;
    uint8_t *wanted;
} world;

static void open_world(world *w, const char *plain, const char *asked, uint32_t entries) {
    lever_error error;
    parts_open(&w->plain, plain, false);
    parts_open(&w->asked, asked, false);
    CHECK_OK(lv_row_cache_open(&w->cache, w->asked.model->token_embd, w->asked.store, entries, NULL, &error));
    w->wanted = malloc((size_t)w->plain.model->token_embd->row_bytes);
    assert_non_null(w->wanted);
}

static void close_world(world *w) {
    free(w->wanted);
    lv_row_cache_close(&w->cache);
    parts_close(&w->asked);
    parts_close(&w->plain);
}

/* Asks for a row, which takes `reads` reads. */
static void check_row(world *w, uint32_t row, uint64_t reads) {
    lever_error error;
    const lv_tensor *table = w->plain.model->token_embd;
    const uint64_t before = row_reads;
    const uint8_t *data = NULL;
    CHECK_OK(lv_row_cache_get(w->cache, row, &data, &error));
    assert_int_equal(row_reads - before, reads);
    CHECK_OK(lv_store_read_rows(w->plain.store, table, row, 1, w->wanted, &error));
    assert_memory_equal(data, w->wanted, table->row_bytes);
}

static void check_hits(const char *plain, const char *asked) {
    world w;
    open_world(&w, plain, asked, 32);
    const uint32_t last = w.plain.model->hparams.vocabulary - 1;
    check_row(&w, 5, 1);
    check_row(&w, 5, 0);
    check_row(&w, 6, 1);
    check_row(&w, 0, 1);
    check_row(&w, last, 1);
    check_row(&w, 5, 0);
    check_row(&w, 5 + 32, 1); /* the same entry */
    check_row(&w, 5 + 32, 0);
    check_row(&w, 5, 1);
    check_row(&w, 6, 0);
    close_world(&w);

    open_world(&w, plain, asked, 0);
    check_row(&w, 5, 1);
    check_row(&w, 5, 1);
    check_row(&w, last, 1);
    close_world(&w);

    open_world(&w, plain, asked, UINT32_MAX); /* all rows */
    for (uint32_t row = 0; row <= last; row++) check_row(&w, row, 1);
    for (uint32_t row = 0; row <= last; row++) check_row(&w, row, 0);
    close_world(&w);
}

static void test_hits_and_collisions(void **state) {
    (void)state;
    static const char *const names[] = {"llama-q4_0.gguf", "qwen2-q4_k_m.gguf", "llama-f32-tied.gguf",
                                        "llama-linear-f16.gguf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char plain[LV_TEST_PATH_BYTES], packed[LV_TEST_PATH_BYTES + 64];
        snprintf(plain, sizeof(plain), "%s", one_model(names[i]));
        check_hits(plain, plain);
        check_hits(plain, parts_pack(plain, packed, sizeof(packed)));
    }
}

static void test_failed_reads(void **state) {
    (void)state;
    lever_error error;
    world w;
    open_world(&w, one_model("llama-q4_0.gguf"), one_model("llama-q4_0.gguf"), 32);
    check_row(&w, 5, 1);
    const uint8_t *data = NULL;
    reads_fail = true;
    CHECK_FAILS(lv_row_cache_get(w.cache, 5 + 32, &data, &error), LEVER_E_IO, "token_embd.weight");
    reads_fail = false;
    check_row(&w, 5, 1); /* the entry was being written */
    check_row(&w, 5 + 32, 1);
    close_world(&w);
}

static float *hidden_of(parts *p, uint32_t embedding_rows, const int32_t *tokens, uint32_t tokens_count) {
    lever_error error;
    lv_forward_options options = parts_forward_options(p);
    options.embedding_rows = embedding_rows;
    lv_forward *forward = NULL;
    CHECK_OK(lv_forward_open(&forward, &options, &error));
    const size_t bytes = tokens_count * p->model->hparams.embedding * sizeof(float);
    float *hidden = malloc(bytes);
    assert_non_null(hidden);
    parts_run(p, forward, tokens, tokens_count);
    const uint64_t reads = reads_of(p);
    parts_run(p, forward, tokens, tokens_count);
    const uint64_t again = reads_of(p) - reads;
    assert_int_equal(again, embedding_rows == LV_FORWARD_EMBEDDING_ROWS ? 0 : tokens_count);
    memcpy(hidden, lv_forward_hidden(forward, 0), bytes);
    lv_forward_close(&forward);
    return hidden;
}

static void test_passes(void **state) {
    (void)state;
    static const int32_t tokens[] = {3, 250, 17, 18, 4, 99};
    enum { COUNT = sizeof(tokens) / sizeof(tokens[0]) };
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t i = 0; i < paths.count; i++) {
        char packed[LV_TEST_PATH_BYTES + 64];
        parts_pack(paths.path[i], packed, sizeof(packed));
        float *wanted = NULL;
        for (int in_tiles = 0; in_tiles < 2; in_tiles++) {
            parts p;
            parts_open(&p, in_tiles ? packed : paths.path[i], true);
            const size_t bytes = COUNT * p.model->hparams.embedding * sizeof(float);
            static const uint32_t sizes[] = {0, 1, LV_FORWARD_EMBEDDING_ROWS};
            for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                float *hidden = hidden_of(&p, sizes[s], tokens, COUNT);
                if (!wanted) {
                    wanted = hidden;
                    continue;
                }
                assert_memory_equal(hidden, wanted, bytes);
                free(hidden);
            }
            parts_close(&p);
        }
        free(wanted);
    }
}

static void test_estimate(void **state) {
    (void)state;
    lever_error error;
    parts p;
    parts_open(&p, one_model("llama-q4_0.gguf"), true);
    static const uint32_t sizes[] = {0, 100, LV_FORWARD_EMBEDDING_ROWS};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        lv_forward_options options = parts_forward_options(&p);
        options.embedding_rows = sizes[i];
        options.ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
        const lv_forward_bytes bytes = lv_forward_estimate(p.model, options.rows_max, options.batch_rows,
                                                           options.logits_rows, options.threads, sizes[i]);
        lv_forward *forward = NULL;
        CHECK_OK(lv_forward_open(&forward, &options, &error));
        assert_int_equal(lv_ledger_used_by(options.ledger, LV_MEM_EMBEDDING), bytes.embedding_bytes);
        assert_int_equal(lv_ledger_used_by(options.ledger, LV_MEM_WORKSPACE), bytes.workspace_bytes);
        assert_true(bytes.embedding_bytes >= sizes[i] * p.model->token_embd->row_bytes ||
                    sizes[i] > p.model->hparams.vocabulary);
        lv_forward_close(&forward);
        lv_ledger_free(options.ledger);
    }
    parts_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_and_collisions),
        cmocka_unit_test(test_failed_reads),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_estimate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
