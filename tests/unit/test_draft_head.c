/* link: --wrap=lv_os_pread */
/* The draft's head gives a token the bits that the whole head gives it, whatever the type and the layout of the file
 * (every model of LEVER_TINY_DIR, packed and not), and keeps the right rows. */
#include "compute/draft_head.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>

#include "base/memory.h"
#include "compute/convert.h"
#include "compute/row_cache.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/parts.h"
#include "support/scratch.h"

enum { TOKENS_COUNT = 11, ROWS_COUNT = 7 };

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

static void fill_tokens(int32_t *tokens, size_t count, uint32_t vocabulary) {
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * 7919 + 13) % vocabulary);
}

static const uint32_t logits_rows[ROWS_COUNT] = {10, 0, 3, 4, 4, 9, 1};

/* Logits of some rows of a pass, by the model's head or by the draft's. To be freed. */
static float *compute_logits(parts *p, const lv_draft_head *head) {
    lever_error error;
    lv_forward_options options = parts_forward_options(p);
    options.draft_head = head;
    lv_forward *forward = NULL;
    CHECK_OK(lv_forward_open(&forward, &options, &error));
    int32_t tokens[TOKENS_COUNT];
    fill_tokens(tokens, TOKENS_COUNT, p->model->hparams.vocabulary);
    parts_run(p, forward, tokens, TOKENS_COUNT);
    assert_int_equal(lv_forward_logits_count(forward),
                     head ? lv_draft_head_rows_count(head) : p->model->hparams.vocabulary);
    float *logits = calloc((size_t)ROWS_COUNT * lv_forward_logits_count(forward), sizeof(float));
    assert_non_null(logits);
    CHECK_OK(lv_forward_logits(forward, logits_rows, ROWS_COUNT, logits, &error));
    lv_forward_close(&forward);
    return logits;
}

/* The draft's logits against the same tokens' of the whole head. */
static void check_logits(const parts *p, const lv_draft_head *head, const float *whole, const float *draft,
                         const char *what) {
    const uint32_t count = lv_draft_head_rows_count(head), vocabulary = p->model->hparams.vocabulary;
    for (uint32_t i = 0; i < ROWS_COUNT; i++) {
        for (uint32_t row = 0; row < count; row++) {
            const int32_t token = lv_draft_head_token(head, row);
            if (token < 0) continue;
            const float wanted = whole[(size_t)i * vocabulary + (uint32_t)token],
                        found = draft[(size_t)i * count + row];
            if (memcmp(&wanted, &found, sizeof(float)) != 0) {
                fail_msg("%s: row %u of the head, token %d: %.9g, wanted %.9g", what, row, token, (double)found,
                         (double)wanted);
            }
        }
    }
}

static bool has_token(const lv_draft_head *head, int32_t token) {
    for (uint32_t row = 0; row < lv_draft_head_rows_count(head); row++) {
        if (lv_draft_head_token(head, row) == token) return true;
    }
    return false;
}

static void check_model(const char *path) {
    parts with_head, without;
    parts_open(&with_head, path, true);
    parts_open(&without, path, false);
    assert_int_equal(without.weights->layout->head_block_first, without.weights->layout->blocks_count);
    assert_int_equal(without.weights->layout->layer_bytes, with_head.weights->layout->layer_bytes);
    const int32_t vocabulary = (int32_t)with_head.model->hparams.vocabulary;
    float *whole = compute_logits(&with_head, NULL);

    lever_error error;
    lv_draft_head *head = NULL;
    CHECK_OK(lv_draft_head_open(&head, without.model->output, without.store, &(lv_draft_head_shape){90, 20, false},
                                NULL, NULL, &error));
    assert_int_equal(lv_draft_head_rows_count(head), 96 + 32);
    const int32_t extras[] = {vocabulary - 1, 100, 5, 101, vocabulary, -1, vocabulary - 17, 100, INT32_MAX};
    CHECK_OK(lv_draft_head_add(head, extras, sizeof(extras) / sizeof(extras[0]), &error));
    assert_true(has_token(head, vocabulary - 1) && has_token(head, 100) && has_token(head, vocabulary - 17));
    float *draft = compute_logits(&without, head);
    check_logits(&with_head, head, whole, draft, path);
    free(draft);
    lv_draft_head_close(&head);

    CHECK_OK(lv_draft_head_open(&head, without.model->output, without.store,
                                &(lv_draft_head_shape){UINT32_MAX - 15, 20, false}, NULL, NULL, &error));
    assert_true((int32_t)lv_draft_head_rows_count(head) >= vocabulary);
    assert_true((int32_t)lv_draft_head_rows_count(head) < vocabulary + 16);
    draft = compute_logits(&without, head);
    check_logits(&with_head, head, whole, draft, path);
    for (uint32_t row = 0; row < lv_draft_head_rows_count(head); row++) {
        assert_int_equal(lv_draft_head_token(head, row), (int32_t)row < vocabulary ? (int32_t)row : -1);
    }
    free(draft);
    lv_draft_head_close(&head);
    free(whole);
    parts_close(&without);
    parts_close(&with_head);
}

static void test_bits(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    for (size_t i = 0; i < paths.count; i++) {
        check_model(paths.path[i]);
        char packed[LV_TEST_PATH_BYTES + 64];
        check_model(parts_pack(paths.path[i], packed, sizeof(packed)));
    }
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

/* Extras that were added first leave, but not for others of the same call. */
static void check_extras(const char *path) {
    lever_error error;
    parts p;
    parts_open(&p, path, true);
    float *whole = compute_logits(&p, NULL);
    lv_draft_head *head = NULL;
    CHECK_OK(
        lv_draft_head_open(&head, p.model->output, p.store, &(lv_draft_head_shape){16, 16, false}, NULL, NULL, &error));
    int32_t tokens[20];
    for (int32_t i = 0; i < 20; i++) tokens[i] = 100 + 3 * i;

    uint64_t before = reads_of(&p);
    CHECK_OK(lv_draft_head_add(head, tokens, 16, &error));
    assert_int_equal(reads_of(&p), before + 16);
    CHECK_OK(lv_draft_head_add(head, tokens + 3, 5, &error));
    CHECK_OK(lv_draft_head_add(head, (const int32_t[]){0, 15, tokens[1]}, 3, &error));
    assert_int_equal(reads_of(&p), before + 16); /* they are all there */

    CHECK_OK(lv_draft_head_add(head, tokens + 16, 2, &error));
    assert_false(has_token(head, tokens[0]) || has_token(head, tokens[1]));
    for (size_t i = 2; i < 18; i++) assert_true(has_token(head, tokens[i]));

    const int32_t oldest_and_new[] = {tokens[2], tokens[18]};
    CHECK_OK(lv_draft_head_add(head, oldest_and_new, 2, &error));
    assert_true(has_token(head, tokens[18]) && has_token(head, tokens[2]));
    assert_false(has_token(head, tokens[3]));

    CHECK_OK(lv_draft_head_add(head, tokens, 1, &error)); /* one that had left */
    assert_true(has_token(head, tokens[0]));
    assert_false(has_token(head, tokens[4]));

    before = reads_of(&p);
    CHECK_OK(lv_draft_head_add(head, tokens, 20, &error)); /* more than there is room for */
    assert_true(reads_of(&p) - before < 20);

    float *draft = compute_logits(&p, head);
    check_logits(&p, head, whole, draft, path);
    free(draft);
    free(whole);
    lv_draft_head_close(&head);
    parts_close(&p);
}

static void test_extras(void **state) {
    (void)state;
    char packed[LV_TEST_PATH_BYTES + 64];
    check_extras(one_model("llama-q4_0.gguf"));
    check_extras(parts_pack(one_model("llama-q4_0.gguf"), packed, sizeof(packed)));
    check_extras(one_model("llama-foreign-types.gguf"));
}

/* Rows that are kept in a smaller type are the file's rows rewritten, the first ones and the extras, before and after
 * others took their place; those that would not shrink stay as they are. */
static uint32_t check_small(const char *path) {
    lever_error error;
    parts p;
    parts_open(&p, path, false);
    const lv_tensor *output = p.model->output;
    const size_t elements = (size_t)output->dims[0];
    lv_draft_head *head = NULL;
    CHECK_OK(lv_draft_head_open(&head, output, p.store, &(lv_draft_head_shape){90, 16, true}, NULL, NULL, &error));
    const uint64_t opened = lv_draft_head_version(head);
    int32_t tokens[20];
    for (int32_t i = 0; i < 20; i++) tokens[i] = 110 + 3 * i;
    CHECK_OK(lv_draft_head_add(head, tokens, 16, &error));
    CHECK_OK(lv_draft_head_add(head, tokens + 16, 4, &error));
    assert_int_equal(lv_draft_head_version(head), opened + 20);
    const lv_tensor *kept = lv_draft_head_tensor(head);
    const bool smaller = kept->type != output->type;
    if (smaller) assert_true(kept->row_bytes < output->row_bytes);
    const size_t tile_bytes = LV_TILE_ROWS * (size_t)kept->row_bytes;
    uint8_t *tile = malloc(tile_bytes), *file = malloc(2 * LV_TILE_ROWS * (size_t)output->row_bytes);
    uint8_t *wanted = malloc((size_t)kept->row_bytes);
    float *floats = malloc(elements * sizeof(float));
    assert_true(tile && file && wanted && floats);
    for (uint32_t row = 0; row < lv_draft_head_rows_count(head); row++) {
        const int32_t token = lv_draft_head_token(head, row);
        const uint8_t *found = lv_draft_head_data(head) + row * (size_t)kept->row_bytes;
        if (kept->layout == LV_LAYOUT_TILES) {
            const uint8_t *at = lv_draft_head_data(head) + row / LV_TILE_ROWS * tile_bytes;
            lv_tile_unpack(kept->type, elements, at, tile);
            found = tile + row % LV_TILE_ROWS * (size_t)kept->row_bytes;
        }
        CHECK_OK(lv_row_read(p.store, output, (uint64_t)token, file, file, &error));
        if (smaller) {
            lv_convert_rows(output->type, file, kept->type, wanted, elements, 1, floats);
        } else {
            memcpy(wanted, file, (size_t)kept->row_bytes);
        }
        assert_memory_equal(found, wanted, (size_t)kept->row_bytes);
    }
    free(floats);
    free(wanted);
    free(file);
    free(tile);
    lv_draft_head_close(&head);
    CHECK_OK(
        lv_draft_head_open(&head, output, p.store, &(lv_draft_head_shape){UINT32_MAX, 0, true}, NULL, NULL, &error));
    assert_int_equal(lv_draft_head_tensor(head)->type, output->type); /* a whole head is the model's own */
    lv_draft_head_close(&head);
    parts_close(&p);
    return smaller;
}

static void test_small_rows(void **state) {
    (void)state;
    lv_test_paths paths;
    lv_test_list_models(LEVER_TINY_DIR, &paths);
    uint32_t smaller_count = 0;
    for (size_t i = 0; i < paths.count; i++) {
        smaller_count += check_small(paths.path[i]);
        char packed[LV_TEST_PATH_BYTES + 64];
        smaller_count += check_small(parts_pack(paths.path[i], packed, sizeof(packed)));
    }
    assert_true(smaller_count > 0);
}

static void test_failed_reads(void **state) {
    (void)state;
    lever_error error;
    parts p;
    parts_open(&p, one_model("llama-q4_0.gguf"), true);
    float *whole = compute_logits(&p, NULL);
    lv_draft_head *head = NULL;
    reads_fail = true;
    CHECK_FAILS(
        lv_draft_head_open(&head, p.model->output, p.store, &(lv_draft_head_shape){16, 16, false}, NULL, NULL, &error),
        LEVER_E_IO, "output.weight");
    assert_null(head);
    reads_fail = false;
    CHECK_OK(
        lv_draft_head_open(&head, p.model->output, p.store, &(lv_draft_head_shape){16, 16, false}, NULL, NULL, &error));
    int32_t tokens[17];
    for (int32_t i = 0; i < 17; i++) tokens[i] = 40 + i;
    CHECK_OK(lv_draft_head_add(head, tokens, 16, &error));
    reads_fail = true;
    CHECK_FAILS(lv_draft_head_add(head, tokens + 16, 1, &error), LEVER_E_IO, "output.weight");
    reads_fail = false;
    for (size_t i = 0; i < 16; i++) assert_true(has_token(head, tokens[i]));
    float *draft = compute_logits(&p, head);
    check_logits(&p, head, whole, draft, "after a failed read");
    free(draft);
    CHECK_OK(lv_draft_head_add(head, tokens + 16, 1, &error));
    assert_true(has_token(head, tokens[16]) && !has_token(head, tokens[0]));
    lv_draft_head_close(&head);
    free(whole);
    parts_close(&p);
}

/* A flag that is set already: nothing is read. */
static void test_cancelled(void **state) {
    (void)state;
    lever_error error;
    parts p;
    parts_open(&p, one_model("llama-q4_0.gguf"), true);
    lv_draft_head *head = NULL;
    const lv_draft_head_shape shape = {16, 16, false};
    atomic_bool cancel = true;
    const uint64_t before = reads_of(&p);
    CHECK_FAILS(lv_draft_head_open(&head, p.model->output, p.store, &shape, &cancel, NULL, &error), LEVER_E_CANCELLED,
                "cancelled");
    assert_null(head);
    assert_int_equal(reads_of(&p), before);
    atomic_store(&cancel, false);
    CHECK_OK(lv_draft_head_open(&head, p.model->output, p.store, &shape, &cancel, NULL, &error));
    lv_draft_head_close(&head);
    parts_close(&p);
}

static void test_ledger(void **state) {
    (void)state;
    lever_error error;
    parts p;
    parts_open(&p, one_model("llama-q4_0.gguf"), true);
    static const lv_draft_head_shape shapes[] = {
        {16, 0, false}, {90, 20, false}, {UINT32_MAX, UINT32_MAX, false}, {16, 0, true}, {90, 20, true}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const uint64_t bytes = lv_draft_head_bytes(p.model->output, &shapes[i]);
        lv_draft_head *head = NULL;
        lv_ledger *ledger = lv_ledger_create(bytes);
        CHECK_OK(lv_draft_head_open(&head, p.model->output, p.store, &shapes[i], NULL, ledger, &error));
        /* The buffer through which rows of another type come is given back. */
        const uint64_t buffer = shapes[i].small ? 96 * p.model->output->row_bytes : 0;
        assert_in_range(lv_ledger_used_by(ledger, LV_MEM_DRAFT), bytes - buffer, bytes);
        lv_draft_head_close(&head);
        lv_ledger_free(ledger);
        ledger = lv_ledger_create(bytes - 1);
        CHECK_FAILS(lv_draft_head_open(&head, p.model->output, p.store, &shapes[i], NULL, ledger, &error),
                    LEVER_E_BUDGET, "draft's head");
        assert_null(head);
        lv_ledger_free(ledger);
    }
    parts_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),         cmocka_unit_test(test_extras), cmocka_unit_test(test_small_rows),
        cmocka_unit_test(test_failed_reads), cmocka_unit_test(test_ledger), cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
