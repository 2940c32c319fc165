/* What was measured comes back as it was; a file that is missing, damaged or of another version is as good as none. */
#include <stdlib.h>
#include <unistd.h>

#include "engine/profile.h"
#include "support/check.h"
#include "support/scratch.h"

static const lv_profile measured = {
    .lanes = 3, .block_bytes = 8 << 20, .io_bytes_per_second = 2.5e9, .memory_bytes_per_second = 4e10};

static void assert_none(const char *folder, const char *path) {
    static const lv_profile none;
    lv_profile profile = measured;
    assert_false(lv_profile_load(folder, path, &profile));
    assert_memory_equal(&profile, &none, sizeof none);
}

static void a_profile_comes_back(void **state) {
    (void)state;
    lever_error error;
    lv_profile profile;
    assert_none(scratch_folder(), ".");
    for (uint32_t lanes = 1; lanes <= 4; lanes++) { /* replaced each time */
        lv_profile saved = measured;
        saved.lanes = lanes;
        CHECK_OK(lv_profile_save(scratch_folder(), ".", &saved, &error));
        assert_true(lv_profile_load(scratch_folder(), ".", &profile));
        assert_int_equal(profile.lanes, lanes);
        assert_int_equal(profile.block_bytes, measured.block_bytes);
        assert_true(profile.io_bytes_per_second == measured.io_bytes_per_second);
        assert_true(profile.memory_bytes_per_second == measured.memory_bytes_per_second);
    }
    assert_none(scratch_folder(), "/proc"); /* another device */
    assert_none(NULL, ".");
    assert_none("", ".");
    assert_none(scratch_folder(), "/nowhere/at/all");
}

static void a_damaged_profile_is_none(void **state) {
    (void)state;
    char path[512], text[512];
    lever_error error;
    CHECK_OK(lv_profile_save(scratch_folder(), ".", &measured, &error));
    assert_int_equal(scratch_find(scratch_folder(), path, sizeof path), 1);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);

    lv_profile profile;
    for (size_t cut = 0; cut < bytes; cut++) { /* as a full disk leaves it: read, if at all, within sane bounds */
        file = fopen(path, "w");
        assert_int_equal(fwrite(text, 1, cut, file), cut);
        fclose(file);
        if (!lv_profile_load(scratch_folder(), ".", &profile)) continue;
        assert_in_range(profile.lanes, 1, 64);
        assert_in_range(profile.block_bytes, 1, 32 << 20);
    }
    static const char *const contents[] = {
        "",
        "rubbish",
        "lever disk profile 0\nlanes 3\nblock_bytes 8388608\n",
        "lever disk profile 1\nlanes 0\nblock_bytes 8388608\nio_bytes_per_second 1\nmemory_bytes_per_second 1\n",
        "lever disk profile 1\nlanes 99999\nblock_bytes 8388608\nio_bytes_per_second 1\nmemory_bytes_per_second 1\n",
        "lever disk profile 1\nlanes 3\nblock_bytes 1\nio_bytes_per_second 1\nmemory_bytes_per_second 1\n",
        "lever disk profile 1\nlanes 3\nblock_bytes 8388608\nio_bytes_per_second nan\nmemory_bytes_per_second 1\n",
        "lever disk profile 1\nlanes 3\nblock_bytes 8388608\nio_bytes_per_second -5\nmemory_bytes_per_second 1\n"};
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        file = fopen(path, "w");
        fputs(contents[i], file);
        fclose(file);
        assert_none(scratch_folder(), ".");
    }
    CHECK_OK(lv_profile_save(scratch_folder(), ".", &measured, &error));
    assert_true(lv_profile_load(scratch_folder(), ".", &profile));
}

static void what_cannot_be_kept_is_told(void **state) {
    (void)state;
    lever_error error;
    CHECK_FAILS(lv_profile_save("/nowhere/at/all", ".", &measured, &error), LEVER_E_IO, "/nowhere/at/all");
    CHECK_FAILS(lv_profile_save(NULL, ".", &measured, &error), LEVER_E_ARGUMENT, "folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_comes_back),
        cmocka_unit_test(a_damaged_profile_is_none),
        cmocka_unit_test(what_cannot_be_kept_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
