/* Reading at any offset in every mode, and what happens when the system or the file does not play along. */
/* faults: memory file */
#include "base/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"
#include "support/fault.h"
#include "support/scratch.h"

enum { FILE_BYTES = 300 * 1024 + 123 };

static uint8_t content[FILE_BYTES];
static int warnings;

static void count_warning(void *user, lever_log_level level, const char *line) {
    (void)user;
    if (level == LEVER_LOG_WARNING && strstr(line, "direct")) warnings++;
}
static const lv_log log_counting = {count_warning, NULL};

static const char *write_content(const char *name) {
    static char path[512];
    return scratch_write(name, content, sizeof content, path, sizeof path);
}

static lv_file *open_file(const char *path, bool direct) {
    lever_error error;
    lv_file *file = NULL;
    warnings = 0;
    CHECK_OK(lv_file_open(&file, path, &(lv_file_options){.direct = direct, .log = &log_counting}, &error));
    return file;
}

/* Reads all kinds of ranges in both ways and compares. */
static void check_reading(lv_file *file) {
    static const struct {
        uint64_t offset;
        size_t bytes;
    } rows[] = {
        {0, 1},       {0, 4096},       {1, 4096},   {4095, 2},       {4096, 8192},        {12345, 0},
        {100, 70000}, {65536, 131072}, {7, 200000}, {0, FILE_BYTES}, {FILE_BYTES - 1, 1}, {FILE_BYTES - 5000, 5000},
    };
    uint8_t *memory = NULL;
    assert_int_equal(posix_memalign((void **)&memory, LV_FILE_ALIGN, FILE_BYTES + 3 * LV_FILE_ALIGN), 0);
    lever_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t offset = rows[i].offset;
        size_t bytes = rows[i].bytes;
        for (size_t shift = 0; shift < 2; shift++) {
            memset(memory, 0xEE, bytes + 2);
            CHECK_OK(lv_file_read(file, memory + shift, offset, bytes, &error));
            assert_memory_equal(memory + shift, content + offset, bytes);
            assert_int_equal(memory[shift + bytes], 0xEE); /* nothing is written behind the end */
        }
        size_t skip = 0, room = lv_file_superset_bytes(offset, bytes);
        memory[room] = 0xEE;
        CHECK_OK(lv_file_read_superset(file, memory, offset, bytes, &skip, &error));
        assert_int_equal(skip, offset % LV_FILE_ALIGN);
        assert_memory_equal(memory + skip, content + offset, bytes);
        assert_int_equal(memory[room], 0xEE);
    }
    free(memory);
}

static void test_superset_bytes(void **state) {
    (void)state;
    static const struct {
        uint64_t offset;
        size_t bytes, wanted;
    } rows[] = {{0, 0, 0},       {0, 1, 4096},    {0, 4096, 4096},    {1, 4096, 8192},
                {4095, 1, 4096}, {4095, 2, 8192}, {8191, 4098, 12288}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(lv_file_superset_bytes(rows[i].offset, rows[i].bytes), rows[i].wanted);
}

static void test_reading(void **state) {
    (void)state;
    const char *path = write_content("plain");
    for (int direct = 0; direct < 2; direct++) {
        lv_file *file = open_file(path, direct);
        assert_int_equal(lv_file_bytes(file), FILE_BYTES);
        assert_string_equal(lv_file_path(file), path);
        check_reading(file);
        lv_file_close(&file);
        assert_null(file);
        lv_file_close(&file);
    }
}

static void test_past_the_end(void **state) {
    (void)state;
    lever_error error;
    uint8_t byte[8];
    lv_file *file = open_file(write_content("end"), false);
    CHECK_FAILS(lv_file_read(file, byte, FILE_BYTES - 7, 8, &error), LEVER_E_IO, "past its end");
    CHECK_FAILS(lv_file_read(file, byte, UINT64_MAX - 3, 8, &error), LEVER_E_IO, "cut");
    size_t skip;
    uint8_t *page = NULL;
    assert_int_equal(posix_memalign((void **)&page, LV_FILE_ALIGN, LV_FILE_ALIGN), 0);
    CHECK_FAILS(lv_file_read_superset(file, page, FILE_BYTES, 1, &skip, &error), LEVER_E_IO, "past its end");
    free(page);
    lv_file_close(&file);
}

static void test_what_cannot_be_opened(void **state) {
    (void)state;
    lever_error error;
    lv_file *file = NULL;
    const lv_file_options options = {.direct = true};
    char path[512];
    CHECK_FAILS(lv_file_open(&file, "/nonexistent/model.gguf", &options, &error), LEVER_E_FORMAT,
                "/nonexistent/model.gguf': No such file");
    CHECK_FAILS(lv_file_open(&file, scratch_folder(), &options, &error), LEVER_E_FORMAT, "is a folder");
    assert_int_equal(mkfifo(scratch_path("fifo", path, sizeof path), 0600), 0);
    CHECK_FAILS(lv_file_open(&file, path, &options, &error), LEVER_E_FORMAT, "not a file"); /* and does not hang */
    CHECK_FAILS(lv_file_open(&file, "/dev/null", &options, &error), LEVER_E_FORMAT, "not a file");
    fault_open_set(FAULT_EIO, 1, 1);
    CHECK_FAILS(lv_file_open(&file, write_content("eio"), &options, &error), LEVER_E_IO, "Input/output error");
    fault_open_set(FAULT_EIO, 0, 0);
    assert_null(file);
    assert_int_equal(fault_file_descriptors(), 0);
}

static void test_direct_refused_at_opening(void **state) {
    (void)state;
    fault_open_set(FAULT_EINVAL_DIRECT, 1, FAULT_FOR_GOOD);
    lv_file *file = open_file(write_content("refused"), true);
    fault_open_set(FAULT_EIO, 0, 0);
    assert_false(lv_file_is_direct(file));
    uint64_t drops = fault_drop_calls();
    check_reading(file);
    assert_true(fault_drop_calls() > drops);
    assert_int_equal(warnings, 1);
    lv_file_close(&file);
}

static void test_direct_refused_at_first_read(void **state) {
    (void)state;
    lv_file *file = open_file(write_content("late"), true);
    if (!lv_file_is_direct(file)) {
        lv_file_close(&file);
        skip();
    }
    fault_read_set(FAULT_EINVAL_DIRECT, 1, FAULT_FOR_GOOD);
    check_reading(file);
    fault_read_set(FAULT_EIO, 0, 0);
    assert_false(lv_file_is_direct(file));
    assert_int_equal(warnings, 1);
    lv_file_close(&file);
}

/* A direct read that ends at an odd place is finished, and the next one is direct again. */
static void test_odd_reads_stay_direct(void **state) {
    (void)state;
    lv_file *file = open_file(write_content("odd"), true);
    bool direct = lv_file_is_direct(file);
    fault_read_set(FAULT_SHORT_ODD, 1, FAULT_FOR_GOOD);
    check_reading(file);
    fault_read_set(FAULT_EIO, 0, 0);
    assert_int_equal(lv_file_is_direct(file), direct);
    assert_int_equal(warnings, direct ? 0 : 1);
    lv_file_close(&file);
}

/* Each kind of harmless trouble, at each call and at every call: the bytes are right. */
static void test_short_and_interrupted_reads(void **state) {
    (void)state;
    static const fault_kind kinds[] = {FAULT_EINTR, FAULT_SHORT, FAULT_SHORT_ODD, FAULT_EINVAL_DIRECT};
    const char *path = write_content("short");
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (int direct = 0; direct < 2; direct++) {
            for (uint64_t nth = 1; nth < 60; nth++) {
                lv_file *file = open_file(path, direct);
                uint64_t count = nth % 2 && kinds[kind] != FAULT_EINTR ? FAULT_FOR_GOOD : 3;
                fault_read_set(kinds[kind], nth, count);
                check_reading(file);
                fault_read_set(FAULT_EIO, 0, 0);
                lv_file_close(&file);
            }
        }
    }
}

static void test_failing_reads(void **state) {
    (void)state;
    lever_error error;
    uint8_t *memory = NULL;
    assert_int_equal(posix_memalign((void **)&memory, LV_FILE_ALIGN, FILE_BYTES + LV_FILE_ALIGN), 0);
    for (int direct = 0; direct < 2; direct++) {
        lv_file *file = open_file(write_content("broken"), direct);
        size_t skip;
        fault_read_set(FAULT_EIO, 1, 1);
        CHECK_FAILS(lv_file_read_superset(file, memory, 5000, 9000, &skip, &error), LEVER_E_IO, "Input/output error");
        assert_non_null(strstr(error.message, lv_file_path(file)));
        assert_non_null(strstr(error.message, "4096"));
        fault_read_set(FAULT_END, 1, 1);
        CHECK_FAILS(lv_file_read(file, memory + 1, 5000, 9000, &error), LEVER_E_IO, "cut");
        fault_read_set(FAULT_EIO, 0, 0);
        CHECK_OK(lv_file_read(file, memory, 5000, 9000, &error)); /* and it goes on */
        assert_memory_equal(memory, content + 5000, 9000);
        lv_file_close(&file);
    }
    free(memory);
}

static void test_changed_files(void **state) {
    (void)state;
    lever_error error;
    uint8_t data[16];
    char other[512], path[512];

    snprintf(path, sizeof path, "%s", write_content("cut"));
    lv_file *file = open_file(path, true);
    assert_int_equal(truncate(path, 5000), 0);
    CHECK_FAILS(lv_file_read(file, data, 0, 16, &error), LEVER_E_IO, "was cut while in use");
    lv_file_close(&file);

    snprintf(path, sizeof path, "%s", write_content("written"));
    file = open_file(path, true);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    for (int row = 0; row < 3; row++) { /* seconds or the fraction alone, then as it was */
        struct timespec times[2] = {status.st_mtim, status.st_mtim};
        if (row == 0) times[1].tv_sec -= 1;
        if (row == 1) times[1].tv_nsec ^= 1;
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        if (row < 2)
            CHECK_FAILS(lv_file_read(file, data, 0, 16, &error), LEVER_E_IO, "was written to while in use");
        else
            CHECK_OK(lv_file_read(file, data, 0, 16, &error));
    }
    lv_file_close(&file);

    snprintf(path, sizeof path, "%s", write_content("replaced"));
    file = open_file(path, true);
    scratch_write("other", "something else", 14, other, sizeof other);
    assert_int_equal(rename(other, path), 0);
    CHECK_OK(lv_file_read(file, data, 7, 16, &error)); /* the old file lives on */
    assert_memory_equal(data, content + 7, 16);
    lv_file_close(&file);
}

static void test_every_allocation_fails(void **state) {
    (void)state;
    lever_error error;
    const char *path = write_content("memory");
    for (uint64_t nth = 1;; nth++) {
        lv_file *file = NULL;
        lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
        fault_memory_set(nth, 1);
        lever_status status = lv_file_open(&file, path, &(lv_file_options){.direct = true, .ledger = ledger}, &error);
        bool failed = fault_memory_calls() >= nth;
        fault_memory_set(0, 0);
        assert_int_equal(status, failed ? LEVER_E_MEMORY : LEVER_OK);
        lv_file_close(&file);
        assert_int_equal(lv_ledger_used(ledger), 0);
        lv_ledger_free(ledger);
        if (!failed) break;
    }
}

typedef struct {
    lv_file *file;
    uint32_t number;
    bool wrong;
} reader;

static void *read_often(void *user) {
    reader *self = user;
    uint8_t data[9000];
    for (uint32_t i = 0; i < 300; i++) {
        uint64_t offset = (i * 7919u + self->number * 104729u) % (FILE_BYTES - sizeof data);
        lever_status status = lv_file_read(self->file, data, offset, sizeof data, NULL);
        if (status != LEVER_OK || memcmp(data, content + offset, sizeof data) != 0) self->wrong = true;
    }
    return NULL;
}

/* Several threads, and the fall-back in the middle of it. */
static void test_many_readers(void **state) {
    (void)state;
    enum { READERS = 4 };
    lv_file *file = open_file(write_content("many"), true);
    fault_read_set(FAULT_EINVAL_DIRECT, 400, FAULT_FOR_GOOD);
    pthread_t threads[READERS];
    reader readers[READERS];
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (reader){file, i, false};
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(readers[i].wrong);
    }
    fault_read_set(FAULT_EIO, 0, 0);
    assert_true(warnings <= 1);
    lv_file_close(&file);
}

static int fill_content(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 2654435761u >> 13);
    return 0;
}

static int nothing_is_left(void **state) {
    (void)state;
    return fault_file_descriptors() == 0 && fault_memory_blocks() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_superset_bytes),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_past_the_end),
        cmocka_unit_test(test_what_cannot_be_opened),
        cmocka_unit_test(test_direct_refused_at_opening),
        cmocka_unit_test(test_direct_refused_at_first_read),
        cmocka_unit_test(test_short_and_interrupted_reads),
        cmocka_unit_test(test_odd_reads_stay_direct),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_changed_files),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_many_readers),
    };
    return cmocka_run_group_tests(tests, fill_content, nothing_is_left);
}
