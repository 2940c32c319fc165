/* faults: memory file */
/* link: --wrap=fstatvfs,--wrap=fstatvfs64 */
/* A packed file holds what the model held, row for row and key for key; and when packing fails nothing of it is left.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "compute/convert.h"
#include "compute/kernels/kernel.h"
#include "engine/pack.h"
#include "flash/checks.h"
#include "support/check.h"
#include "support/engines.h"
#include "support/fault.h"
#include "support/gguf_writer.h"
#include "support/scratch.h"

static char packed[512];
static lever_pack_options as_it_is;

/* --- A disk of a size of the test's choice ------------------------------------------------------------------------ */

static uint64_t disk_free_bytes = UINT64_MAX;

int __real_fstatvfs(int descriptor, struct statvfs *status);
int __wrap_fstatvfs(int descriptor, struct statvfs *status);
int __wrap_fstatvfs64(int descriptor, struct statvfs *status);
int __wrap_fstatvfs(int descriptor, struct statvfs *status) {
    int result = __real_fstatvfs(descriptor, status);
    if (disk_free_bytes == UINT64_MAX) return result;
    status->f_frsize = 1;
    status->f_bavail = disk_free_bytes;
    return result;
}
int __wrap_fstatvfs64(int descriptor, struct statvfs *status) {
    return __wrap_fstatvfs(descriptor, status);
}

/* --- Helpers ------------------------------------------------------------------------------------------------------ */

static lv_gguf *open_model(const char *path) {
    lv_gguf *gguf = NULL;
    lever_error error;
    CHECK_OK(lv_gguf_open(&gguf, path, &(lv_file_options){.direct = true}, &error));
    return gguf;
}

/* The bytes of a tensor, as rows whatever its layout; to be freed. */
static uint8_t *rows_of(const lv_gguf *gguf, const lv_tensor *tensor) {
    lever_error error;
    uint8_t *rows = malloc(tensor->bytes);
    assert_non_null(rows);
    CHECK_OK(lv_file_read(lv_gguf_file(gguf, tensor->file_index), rows, tensor->offset, tensor->bytes, &error));
    if (tensor->layout == LV_LAYOUT_ROWS) return rows;
    uint8_t *unpacked = malloc(tensor->bytes);
    assert_non_null(unpacked);
    for (uint64_t row = 0; row < tensor->rows_count; row += LV_TILE_ROWS)
        lv_tile_unpack(tensor->type, tensor->dims[0], rows + row * tensor->row_bytes,
                       unpacked + row * tensor->row_bytes);
    free(rows);
    return unpacked;
}

/* The folder holds no temporary file. */
static void no_part_is_left(void) {
    DIR *folder = opendir(scratch_folder());
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strstr(entry->d_name, ".part") != NULL) fail_msg("%s was left", entry->d_name);
    closedir(folder);
}

static bool is_layer_matrix(const lv_tensor *tensor) {
    return strncmp(tensor->name, "blk.", 4) == 0 && tensor->dims_count == 2;
}

typedef struct {
    uint64_t done, total;
} progress;

static void on_progress(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    progress *p = user;
    assert_int_equal(stage, LEVER_STAGE_PACK);
    assert_true(done >= p->done && done <= total);
    *p = (progress){done, total};
}

/* --- What is in it ------------------------------------------------------------------------------------------------ */

static void check_keys(const lv_gguf *source, const lv_gguf *result) {
    uint32_t copied = 0;
    for (uint32_t i = 0; i < lv_gguf_keys_count(source); i++) {
        lever_error error;
        const char *name = NULL, *other_name = NULL;
        char value[256], other[256];
        CHECK_OK(lv_gguf_describe_key(source, i, &name, value, sizeof value, &error));
        if (strncmp(name, "split.", 6) == 0) continue;
        CHECK_OK(lv_gguf_describe_key(result, copied++, &other_name, other, sizeof other, &error));
        assert_string_equal(name, other_name);
        assert_string_equal(value, other);
    }
    assert_int_equal(lv_gguf_keys_count(result), copied + 5);
}

static void check_tensors(const lv_gguf *source, const lv_gguf *result) {
    assert_int_equal(lv_gguf_tensors_count(source), lv_gguf_tensors_count(result));
    const bool tied = lv_gguf_find(source, "output.weight") == NULL;
    for (uint32_t i = 0; i < lv_gguf_tensors_count(result); i++) {
        const lv_tensor *out = lv_gguf_tensor(result, i), *in = lv_gguf_find(source, out->name);
        assert_non_null(in);
        assert_int_equal(out->offset % LV_PACK_ALIGN, 0);
        assert_int_equal(out->type, in->type);
        assert_memory_equal(out->dims, in->dims, sizeof out->dims);
        bool computed = is_layer_matrix(out) || strcmp(out->name, tied ? "token_embd.weight" : "output.weight") == 0;
        bool tiles = computed && lv_kernel_supports(out->type, out->dims[0]) && out->rows_count % 16 == 0;
        assert_int_equal(out->layout, tiles ? LV_LAYOUT_TILES : LV_LAYOUT_ROWS);
        uint8_t *wanted = rows_of(source, in), *got = rows_of(result, out);
        assert_memory_equal(wanted, got, in->bytes);
        free(wanted);
        free(got);
    }
    /* The order of use: what is small first, then layer by layer, the head last. */
    static const char *const order[] = {"attn_q.weight",   "attn_k.weight", "attn_v.weight",  "attn_output.weight",
                                        "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
    uint64_t end = 0;
    char name[64];
    for (uint32_t m = 0;; m++) {
        snprintf(name, sizeof name, "blk.%u.%s", m / 7, order[m % 7]);
        const lv_tensor *tensor = lv_gguf_find(result, name);
        if (tensor == NULL) break;
        assert_true(tensor->offset >= end);
        assert_true(m == 0 || tensor->offset - end < LV_PACK_ALIGN);
        end = tensor->offset + tensor->bytes;
    }
    assert_true(lv_gguf_find(result, tied ? "token_embd.weight" : "output.weight")->offset >= end);
}

static void packing_keeps_every_row_and_key(void **state) {
    (void)state;
    static lv_test_paths models;
    lv_test_list_models(LEVER_TINY_DIR, &models);
    assert_true(models.count >= 10);
    for (size_t m = 0; m < models.count; m++) {
        lever_error error;
        progress told = {0};
        lever_pack_options options = as_it_is;
        options.progress = on_progress;
        options.progress_user = &told;
        CHECK_OK(lever_pack(models.path[m], packed, &options, &error));
        assert_true(told.total > 0 && told.done == told.total);
        no_part_is_left();

        lv_gguf *source = open_model(models.path[m]), *result = open_model(packed);
        assert_true(lv_gguf_is_packed(result));
        assert_int_equal(lv_gguf_files_count(result), 1);
        check_keys(source, result);
        check_tensors(source, result);
        CHECK_OK(lv_checks_verify_file(result, NULL, NULL, &error));
        lv_gguf_close(&result);
        lv_gguf_close(&source);
    }
}

/* Rows that one worker alone could not hold. */
static void large_tensors_are_written_in_runs(void **state) {
    (void)state;
    char path[512];
    lever_error error;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_model(writer, "llama", 30001); /* no multiple of 16 */
    gguf_writer_save(writer, "large.gguf", path, sizeof path);
    gguf_writer_free(writer);
    lv_gguf *source = open_model(path);
    const lv_tensor *table = lv_gguf_find(source, "token_embd.weight");
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    for (uint64_t row = 0; row < table->rows_count; row++) {
        float value[64];
        for (int i = 0; i < 64; i++) value[i] = (float)row + (float)i / 64;
        assert_int_equal(pwrite(descriptor, value, sizeof value, (off_t)(table->offset + row * sizeof value)), 256);
    }
    close(descriptor);
    lv_gguf_close(&source);

    CHECK_OK(lever_pack(path, packed, &as_it_is, &error));
    source = open_model(path);
    lv_gguf *result = open_model(packed);
    check_tensors(source, result);
    CHECK_OK(lv_checks_verify_file(result, NULL, NULL, &error));
    lv_gguf_close(&result);
    lv_gguf_close(&source);
}

/* --- Another type ------------------------------------------------------------------------------------------------- */

/* Root of the mean square of the difference, over that of the values. */
static double relative_difference(const lv_tensor *a, const uint8_t *a_rows, const lv_tensor *b,
                                  const uint8_t *b_rows) {
    double difference = 0, square = 0;
    float *one = malloc(a->dims[0] * sizeof(float)), *other = malloc(a->dims[0] * sizeof(float));
    float *floats = malloc(a->dims[0] * sizeof(float));
    const int32_t f32 = 0;
    for (uint64_t row = 0; row < a->rows_count; row++) {
        lv_convert_rows(a->type, a_rows + row * a->row_bytes, f32, one, a->dims[0], 1, floats);
        lv_convert_rows(b->type, b_rows + row * b->row_bytes, f32, other, a->dims[0], 1, floats);
        for (uint64_t i = 0; i < a->dims[0]; i++) {
            double d = (double)one[i] - (double)other[i];
            difference += d * d;
            square += (double)one[i] * (double)one[i];
        }
    }
    free(one);
    free(other);
    free(floats);
    return sqrt(difference / square);
}

static void warn(void *user, lever_log_level level, const char *line) {
    (void)level;
    snprintf(user, 256, "%s", line);
}

static void matrices_of_layers_take_the_type_where_it_fits(void **state) {
    (void)state;
    const struct {
        const char *model, *type;
        double difference_max;
        bool some_keep;
    } cases[] = {{"llama-f32-tied", "q4_0", 0.12, false},
                 {"llama-linear-f16", "Q8_0", 0.01, false},
                 {"qwen2-q4_k_m", "q8_0", 0.01, false},
                 {"llama-sentencepiece-q4_k", "f16", 0.001, false},
                 {"llama-foreign-types", "q6_k", 0.03, false},
                 {"llama-narrow", "q4_k", 0.12, true},
                 {"qwen2-split-q8_0-00001-of-00003", "q4_k", 0.12, false}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char path[512], line[256] = "";
        lever_error error;
        int32_t type = -1;
        assert_true(lv_convert_type(cases[c].type, &type));
        snprintf(path, sizeof path, "%s/%s.gguf", LEVER_TINY_DIR, cases[c].model);
        const lever_pack_options options = {.type = cases[c].type, .log = warn, .log_user = line};
        CHECK_OK(lever_pack(path, packed, &options, &error));
        assert_int_equal(cases[c].some_keep, strstr(line, "keep their type") != NULL);

        lv_gguf *source = open_model(path), *result = open_model(packed);
        for (uint32_t i = 0; i < lv_gguf_tensors_count(source); i++) {
            const lv_tensor *in = lv_gguf_tensor(source, i), *out = lv_gguf_find(result, in->name);
            bool converted = is_layer_matrix(in) && lv_convert_row_bytes(type, in->dims[0]) > 0;
            assert_int_equal(out->type, converted ? type : in->type);
            uint8_t *wanted = rows_of(source, in), *got = rows_of(result, out);
            if (converted) {
                assert_true(relative_difference(in, wanted, out, got) <= cases[c].difference_max);
            } else {
                assert_memory_equal(wanted, got, in->bytes);
            }
            free(wanted);
            free(got);
        }
        CHECK_OK(lv_checks_verify_file(result, NULL, NULL, &error));
        lv_gguf_close(&result);
        lv_gguf_close(&source);
    }
}

/* --- What is refused ---------------------------------------------------------------------------------------------- */

static void model_at(char *path, size_t capacity) {
    snprintf(path, capacity, "%s/llama-narrow.gguf", LEVER_TINY_DIR);
}

static void what_cannot_be_done_is_refused(void **state) {
    (void)state;
    char model[512], copy[512], link_path[512], cut[512], other[512];
    lever_error error;
    model_at(model, sizeof model);
    CHECK_OK(lever_pack(model, packed, NULL, &error)); /* no options: as it is */
    struct stat before, after;
    assert_int_equal(stat(packed, &before), 0);

    scratch_path("other.lvr", other, sizeof other);
    CHECK_FAILS(lever_pack(packed, other, &as_it_is, &error), LEVER_E_ARGUMENT, "packed already");
    CHECK_FAILS(lever_pack(model, other, &(lever_pack_options){.type = "q9"}, &error), LEVER_E_ARGUMENT, "q4_k");
    CHECK_FAILS(lever_pack(model, scratch_folder(), &as_it_is, &error), LEVER_E_ARGUMENT, "not a file");
    CHECK_FAILS(lever_pack(model, "/nowhere/at/all", &as_it_is, &error), LEVER_E_IO, "/nowhere/at/all");
    CHECK_FAILS(lever_pack("/nowhere/at/all", other, &as_it_is, &error), LEVER_E_FORMAT, "/nowhere/at/all");
    CHECK_FAILS(lever_pack(model, "", &as_it_is, &error), LEVER_E_ARGUMENT, "name");
    CHECK_FAILS(lever_pack(NULL, other, &as_it_is, &error), LEVER_E_ARGUMENT, "model");

    /* The input itself, by its name and by another. */
    lv_gguf *source = open_model(model);
    size_t bytes = (size_t)lv_file_bytes(lv_gguf_file(source, 0));
    uint8_t *data = malloc(bytes);
    CHECK_OK(lv_file_read(lv_gguf_file(source, 0), data, 0, bytes, &error));
    lv_gguf_close(&source);
    scratch_write("copy.gguf", data, bytes, copy, sizeof copy);
    scratch_write("cut.gguf", data, bytes - 1, cut, sizeof cut);
    free(data);
    assert_int_equal(link(copy, scratch_path("link.gguf", link_path, sizeof link_path)), 0);
    CHECK_FAILS(lever_pack(copy, copy, &as_it_is, &error), LEVER_E_ARGUMENT, "the input itself");
    CHECK_FAILS(lever_pack(copy, link_path, &as_it_is, &error), LEVER_E_ARGUMENT, "the input itself");
    CHECK_FAILS(lever_pack(cut, other, &as_it_is, &error), LEVER_E_FORMAT, "cut.gguf");

    assert_int_equal(stat(packed, &after), 0);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_not_equal(access(other, F_OK), 0);
    no_part_is_left();
}

static void a_full_disk_is_told_in_bytes(void **state) {
    (void)state;
    char model[512];
    lever_error error;
    model_at(model, sizeof model);
    unlink(packed);
    disk_free_bytes = 12345;
    CHECK_FAILS(lever_pack(model, packed, &as_it_is, &error), LEVER_E_IO, "12345");
    assert_non_null(strstr(error.message, "needs"));
    disk_free_bytes = UINT64_MAX;
    assert_int_not_equal(access(packed, F_OK), 0);

    /* Writing fails on the way. */
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, before.rlim_max}), 0);
    lever_status status = lever_pack(model, packed, &as_it_is, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, LEVER_E_IO);
    assert_int_not_equal(access(packed, F_OK), 0);
    no_part_is_left();
    CHECK_OK(lever_pack(model, packed, &as_it_is, &error));
}

/* What a program that was killed left behind is in nobody's way. */
static void an_old_part_is_written_over(void **state) {
    (void)state;
    char model[512], part[512];
    lever_error error;
    model_at(model, sizeof model);
    static const uint8_t rubbish[3 << 20] = {1, 2, 3};
    scratch_write("packed.lvr.part", rubbish, sizeof rubbish, part, sizeof part);
    CHECK_OK(lever_pack(model, packed, &as_it_is, &error));
    lv_gguf *result = open_model(packed);
    CHECK_OK(lv_checks_verify_file(result, NULL, NULL, &error));
    lv_gguf_close(&result);
    no_part_is_left();
}

static void another_version_is_to_be_packed_anew(void **state) {
    (void)state;
    char model[512], old[512];
    lever_error error;
    model_at(model, sizeof model);
    CHECK_OK(lever_pack(model, packed, &as_it_is, &error));
    lv_gguf *result = open_model(packed);
    size_t bytes = (size_t)lv_file_bytes(lv_gguf_file(result, 0));
    uint8_t *data = malloc(bytes);
    CHECK_OK(lv_file_read(lv_gguf_file(result, 0), data, 0, bytes, &error));
    lv_gguf_close(&result);
    uint8_t *key = memmem(data, bytes, LV_PACK_KEY_VERSION, strlen(LV_PACK_KEY_VERSION));
    assert_non_null(key);
    key[strlen(LV_PACK_KEY_VERSION) + 4] = LV_PACK_VERSION + 1;
    scratch_write("old.lvr", data, bytes, old, sizeof old);
    free(data);
    CHECK_FAILS(lv_gguf_open(&result, old, &(lv_file_options){0}, &error), LEVER_E_FORMAT, "pack");
}

/* --- Faults ------------------------------------------------------------------------------------------------------- */

static void every_step_may_fail(void **state) {
    (void)state;
    char model[512], other[512];
    model_at(model, sizeof model);
    scratch_path("faulty.lvr", other, sizeof other);
    const lever_pack_options options = {.type = "q8_0"};
    for (int what = 0; what < 3; what++) {
        for (uint64_t nth = 1;; nth++) {
            lever_error error = {0};
            if (what == 0) fault_memory_set(nth, 1);
            if (what == 1) fault_read_set(FAULT_EIO, nth, 1);
            if (what == 2) fault_read_set(FAULT_SHORT_ODD, nth, 1);
            lever_status status = lever_pack(model, other, &options, &error);
            uint64_t calls = what == 0 ? fault_memory_calls() : fault_read_calls();
            fault_memory_set(0, 0);
            fault_read_set(FAULT_EIO, 0, 0);
            assert_int_equal(fault_memory_blocks(), 0);
            assert_int_equal(fault_memory_mapped_bytes(), 0);
            assert_int_equal(fault_file_descriptors(), 0);
            no_part_is_left();
            bool failed = calls >= nth && what < 2;
            assert_int_equal(status, !failed ? LEVER_OK : what == 0 ? LEVER_E_MEMORY : LEVER_E_IO);
            assert_int_equal(access(other, F_OK) == 0, !failed);
            if (failed) assert_true(strlen(error.message) > 0);
            unlink(other);
            if (calls < nth) break;
        }
    }
}

static int name_files(void **state) {
    (void)state;
    scratch_path("packed.lvr", packed, sizeof packed);
    lever_pack_options_init(&as_it_is);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_keeps_every_row_and_key),
        cmocka_unit_test(large_tensors_are_written_in_runs),
        cmocka_unit_test(matrices_of_layers_take_the_type_where_it_fits),
        cmocka_unit_test(what_cannot_be_done_is_refused),
        cmocka_unit_test(a_full_disk_is_told_in_bytes),
        cmocka_unit_test(an_old_part_is_written_over),
        cmocka_unit_test(another_version_is_to_be_packed_anew),
        cmocka_unit_test(every_step_may_fail),
    };
    return cmocka_run_group_tests(tests, name_files, NULL);
}
