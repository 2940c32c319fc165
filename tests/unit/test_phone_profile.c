/* Phones' profiles: those that are built in are whole, sections override, and what is missing, absurd, unknown or
 * doubled is refused by name. */
#include "phone/phone_profile.h"

#include <stdlib.h>

#include "phone/shape.h"
#include "support/check.h"
#include "support/scratch.h"

enum { TEXT_BYTES = 16384 };

/* The OnePlus 12's text with one line changed: the first that begins with `key` is replaced, NULL drops it. */
static const char *changed(const char *key, const char *line) {
    static char text[TEXT_BYTES];
    const char *from = NULL;
    for (size_t i = 0; i < lv_phone_texts_count; i++) {
        if (strcmp(lv_phone_texts[i].name, "oneplus12") == 0) from = lv_phone_texts[i].text;
    }
    assert_non_null(from);
    size_t used = 0;
    bool done = false;
    while (*from) {
        const size_t length = strcspn(from, "\n") + 1;
        const size_t key_length = strlen(key);
        const bool hit = !done && strncmp(from, key, key_length) == 0 && strchr(" ]", from[key_length]);
        done = done || hit;
        if (!hit) used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s", (int)length, from);
        if (hit && line) used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\n", line);
        from += length;
    }
    assert_true(done);
    assert_true(used < sizeof(text));
    return text;
}

static void test_built_in(void **state) {
    (void)state;
    static const struct {
        const char *wanted, *name, *section;
        double sequential, arithmetic, resistance;
    } cases[] = {
        {"oneplus12", "OnePlus 12 (Snapdragon 8 Gen 3)", "root", 3.5e9, 6.6e12, 3.8},
        {"oneplus12:root", "OnePlus 12 (Snapdragon 8 Gen 3)", "root", 3.5e9, 6.6e12, 3.8},
        {"oneplus12:app", "OnePlus 12 (Snapdragon 8 Gen 3)", "app", 2.58e9, 9.0e12, 3.8},
        {"magicv5", "Honor Magic V5 (Snapdragon 8 Elite)", "root", 3.6e9, 7.1e12, 4.2},
        {"magicv5:app", "Honor Magic V5 (Snapdragon 8 Elite)", "app", 2.6e9, 9.7e12, 4.2},
        {"honor500pro", "Honor 500 Pro (Snapdragon 8 Elite)", "root", 3.4e9, 7.1e12, 3.7},
        {"honor500pro:app", "Honor 500 Pro (Snapdragon 8 Elite)", "app", 2.4e9, 9.7e12, 3.7},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        lv_phone_profile profile;
        lever_error error;
        CHECK_OK(lv_phone_profile_load(&profile, cases[i].wanted, &error));
        assert_string_equal(profile.name, cases[i].name);
        assert_string_equal(profile.section, cases[i].section);
        CHECK_DOUBLE(profile.flash_sequential, cases[i].sequential, 1);
        CHECK_DOUBLE(profile.npu_arithmetic, cases[i].arithmetic, 1);
        CHECK_DOUBLE(profile.heat_resistance, cases[i].resistance, 1e-9);
        assert_int_equal(profile.npu_buckets.count, 7);
        assert_int_equal(profile.npu_buckets.rows[3], 32);
        CHECK_DOUBLE(profile.read_block, 1 << 20, 1e-9);
        CHECK_DOUBLE(profile.flash_request, 0.11e-3, 1e-12);
        CHECK_DOUBLE(profile.energy_flash, 0.42e-9, 1e-18);
    }
}

/* --- Every value of every built-in profile ----------------------------------------------------------------------- */

enum { LINES_MAX = 128, KEYS_COUNT = 44 };

typedef struct {
    char key[64], value[64], unit[64], section[32]; /* key "": no value; section "": for all */
    const char *text;
    int bytes; /* with the newline */
} profile_line;

static uint32_t split_lines(const char *text, profile_line *lines) {
    char section[32] = "";
    uint32_t count = 0;
    for (; *text; count++) {
        assert_true(count < LINES_MAX);
        profile_line *line = &lines[count];
        *line = (profile_line){.text = text, .bytes = (int)strcspn(text, "\n") + 1};
        if (text[0] == '[') assert_int_equal(sscanf(text, "[%31[^]]", section), 1);
        if (!strchr("#[\n", text[0]))
            assert_int_equal(sscanf(text, "%63s %63s %63s", line->key, line->value, line->unit), 3);
        memcpy(line->section, section, sizeof(section));
        text += line->bytes;
    }
    return count;
}

/* The lines as a text, with `instead` (whose end is the caller's) in the place of one of them. */
static const char *joined(const profile_line *lines, uint32_t count, uint32_t one, const char *instead) {
    static char text[TEXT_BYTES];
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i == one) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", instead);
        } else {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s", lines[i].bytes, lines[i].text);
        }
        assert_true(used < sizeof(text));
    }
    return text;
}

/* Whether the profile is whole with `instead` in the place of a line; if not, it is refused with the key's name. */
static bool is_accepted(const profile_line *lines, uint32_t count, uint32_t one, const char *instead) {
    lv_phone_profile profile;
    lever_error error;
    const char *text = joined(lines, count, one, instead);
    const lever_status status = lv_phone_profile_parse(&profile, "test", text, lines[one].section, &error);
    if (status == LEVER_OK) return true;
    assert_int_equal(status, LEVER_E_FORMAT);
    if (!strstr(error.message, lines[one].key))
        fail_msg("'%s' in place of %s: '%s'", instead, lines[one].key, error.message);
    return false;
}

static bool is_one_of(const char *key, const char *const *keys) {
    for (; *keys; keys++) {
        if (strcmp(key, *keys) == 0) return true;
    }
    return false;
}

/* What may be nothing: a limit or a loss that there is not, a share that nothing takes, a power that is not told. */
static const char *const may_be_zero[] = {"flash_request",
                                          "flash_iops_loss",
                                          "flash_copy",
                                          "flash_lane_loss",
                                          "flash_lane_loss_small",
                                          "npu_dequantise",
                                          "npu_row",
                                          "npu_crossing",
                                          "npu_io_loss",
                                          "cpu_layer",
                                          "power_base",
                                          "power_npu",
                                          "power_cpu",
                                          "power_reader",
                                          "energy_flash",
                                          "energy_memory",
                                          "heat_ambient",
                                          NULL};
static const char *const may_be_negative[] = {"heat_ambient", NULL};

static void check_absurd(const profile_line *lines, uint32_t count, uint32_t one) {
    static const char *const never[] = {"nan", "-nan", "inf", "-inf", "1e300", "-1e300", "1e999", "-", "much", "1,e"};
    const profile_line *line = &lines[one];
    char text[256];
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        snprintf(text, sizeof(text), "%.63s %s %.63s read\n", line->key, never[i], line->unit);
        if (is_accepted(lines, count, one, text)) fail_msg("%s is '%s'", line->key, never[i]);
    }
    snprintf(text, sizeof(text), "%.63s 0 %.63s read\n", line->key, line->unit);
    if (is_accepted(lines, count, one, text) != is_one_of(line->key, may_be_zero)) fail_msg("%s is 0", line->key);
    snprintf(text, sizeof(text), "%.63s -1 %.63s read\n", line->key, line->unit);
    if (is_accepted(lines, count, one, text) != is_one_of(line->key, may_be_negative)) fail_msg("%s is -1", line->key);
    snprintf(text, sizeof(text), "%.63s %.63s lightyears read\n", line->key, line->value);
    if (is_accepted(lines, count, one, text)) fail_msg("%s is in light-years", line->key);
    snprintf(text, sizeof(text), "%.63s %.63s %.63s\n", line->key, line->value, line->unit);
    if (is_accepted(lines, count, one, text)) fail_msg("%s comes from nowhere", line->key);
}

/* Each value alone: missing, doubled, absurd. */
static void check_each(const char *text, uint32_t keys_wanted) {
    static profile_line lines[LINES_MAX];
    const uint32_t count = split_lines(text, lines);
    uint32_t keys = 0;
    for (uint32_t i = 0; i < count; i++) {
        const profile_line *line = &lines[i];
        char twice[1024];
        if (!line->key[0]) continue;
        keys += line->section[0] == '\0' || strcmp(line->section, "root") == 0;
        lever_error error;
        lv_phone_profile profile;
        char wanted[128];
        snprintf(wanted, sizeof(wanted), "test: %.63s is missing", line->key);
        CHECK_FAILS(lv_phone_profile_parse(&profile, "test", joined(lines, count, i, ""), line->section, &error),
                    LEVER_E_FORMAT, wanted);
        snprintf(twice, sizeof(twice), "%.*s%.*s", line->bytes, line->text, line->bytes, line->text);
        snprintf(wanted, sizeof(wanted), "%.63s stands twice", line->key);
        CHECK_FAILS(lv_phone_profile_parse(&profile, "test", joined(lines, count, i, twice), line->section, &error),
                    LEVER_E_FORMAT, wanted);
        if (strcmp(line->key, "name") != 0) check_absurd(lines, count, i);
    }
    assert_int_equal(keys, keys_wanted);
}

static void test_every_value(void **state) {
    (void)state;
    assert_int_equal(lv_phone_texts_count, 3);
    for (size_t i = 0; i < lv_phone_texts_count; i++) check_each(lv_phone_texts[i].text, KEYS_COUNT);
}

/* --- One value --------------------------------------------------------------------------------------------------- */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *key, *line, *message;
    } cases[] = {
        {"flash_sequential", "flash_sequential 3500 GB/s read", "flash_sequential is '3500' GB/s; allowed"},
        {"flash_sequential", "flash_sequential 0 GB/s read", "flash_sequential is '0' GB/s; allowed"},
        {"flash_sequential", "flash_sequential nan GB/s read", "flash_sequential is 'nan'"},
        {"flash_sequential", "flash_sequential 3.5x GB/s read", "flash_sequential is '3.5x'"},
        {"flash_sequential", "flash_sequential 3.5 MB/s read", "flash_sequential is given in 'MB/s'; its unit is GB/s"},
        {"flash_sequential", "flash_sequential 3.5 GB/s heard", "flash_sequential says 'heard'"},
        {"flash_sequential", "flash_sequential 3.5 GB/s", "flash_sequential wants a value, a unit"},
        {"flash_sequential", "flash_sequentiel 3.5 GB/s read", "flash_sequentiel is not a value"},
        {"npu_tile", "npu_tile 32 rows read\nnpu_tile 32 rows read", "npu_tile stands twice"},
        {"ring_layers", "ring_layers 65 layers read",
         "ring_layers is '65' layers; allowed: a whole number from 2 to 64"},
        {"ring_layers", "ring_layers 2.5 layers read", "ring_layers is '2.5' layers; allowed: a whole number"},
        {"npu_tile", "npu_tile 1.5 rows read", "npu_tile is '1.5' rows; allowed: a whole number from 1 to 1024"},
        {"flash_core", "flash_core 1.5 share read", "flash_core is '1.5'"},
        {"heat_capacity", "heat_capacity -95 J/K read", "heat_capacity is '-95'"},
        {"heat_full", "heat_full 30 C read", "must grow"},
        {"heat_from", "heat_from 20 C read", "must grow"},
        {"memory_bandwidth", "memory_bandwidth 45 GB/s read", "are parts of it"},
        {"npu_buckets", "npu_buckets 1,32,8 rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets 0,32 rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets , rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets 1,,8 rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets ,1,8 rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets 1,8, rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 rows read", "npu_buckets wants"},
        {"npu_buckets", "npu_buckets 1,8 tokens read", "npu_buckets is given in 'tokens'"},
        {"name", "name", "name is not a value"},
        {"[app", "[root]", "[root] stands twice"},
        {"[app", "[app] more", "is not a section"},
        {"[root", "[]", "is not a section"},
        {"[app", "[app]\nnpu_dequantise 1 G/s read", "npu_dequantise stands twice"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        lv_phone_profile profile;
        lever_error error;
        CHECK_FAILS(lv_phone_profile_parse(&profile, "test", changed(cases[i].key, cases[i].line), NULL, &error),
                    LEVER_E_FORMAT, cases[i].message);
    }
}

/* What is wrong in a section that is not wanted is wrong as well, but does not count as missing. */
static void test_sections(void **state) {
    (void)state;
    lv_phone_profile profile;
    lever_error error;
    const char *text = changed("flash_copy", "flash_copy 1 GB/s read");
    CHECK_OK(lv_phone_profile_parse(&profile, "test", text, "root", &error));
    CHECK_DOUBLE(profile.flash_copy, 1e9, 1);
    CHECK_OK(lv_phone_profile_parse(&profile, "test", text, "app", &error));
    CHECK_DOUBLE(profile.flash_copy, 9e9, 1);
    CHECK_FAILS(lv_phone_profile_parse(&profile, "test", text, "other", &error), LEVER_E_FORMAT, "no section [other]");
    text = changed("power_npu", "power_npu 3 W read\n[first]\npower_npu 4 W read\n[second]\npower_npu 5 W read");
    static const struct {
        const char *section;
        double watts;
    } cases[] = {{"first", 4}, {"second", 5}};
    for (size_t i = 0; i < 2; i++) {
        CHECK_FAILS(lv_phone_profile_parse(&profile, "test", text, cases[i].section, &error), LEVER_E_FORMAT,
                    "is missing");
        CHECK_DOUBLE(profile.power_npu, cases[i].watts, 1e-9);
    }
    text = changed("[app", "[app]\nflash_copy 5000 GB/s read");
    CHECK_FAILS(lv_phone_profile_parse(&profile, "test", text, "root", &error), LEVER_E_FORMAT, "flash_copy is '5000'");
}

static void test_files(void **state) {
    (void)state;
    lv_phone_profile profile;
    lever_error error;
    const char *text = changed("name", "name A phone of mine");
    char path[600], wanted[640];
    scratch_write("mine.phone", text, strlen(text), path, sizeof(path));
    CHECK_OK(lv_phone_profile_load(&profile, path, &error));
    assert_string_equal(profile.name, "A phone of mine");
    snprintf(wanted, sizeof(wanted), "%s:app", path);
    CHECK_OK(lv_phone_profile_load(&profile, wanted, &error));
    assert_string_equal(profile.section, "app");
    CHECK_FAILS(lv_phone_profile_load(&profile, "oneplus13", &error), LEVER_E_ARGUMENT,
                "honor500pro, magicv5, oneplus12");
    CHECK_FAILS(lv_phone_profile_load(&profile, "oneplus12:bottom", &error), LEVER_E_FORMAT, "no section [bottom]");
    scratch_write("zeros.phone", "a\0b", 3, path, sizeof(path));
    CHECK_FAILS(lv_phone_profile_load(&profile, path, &error), LEVER_E_FORMAT, "is not a phone's profile");
    char *large = malloc(70000);
    assert_non_null(large);
    memset(large, '\n', 70000);
    scratch_write("large.phone", large, 70000, path, sizeof(path));
    free(large);
    CHECK_FAILS(lv_phone_profile_load(&profile, path, &error), LEVER_E_FORMAT, "is not a phone's profile");
}

static void test_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double layers, layer_weights, layer_bytes, head_bytes;
    } cases[] = {
        {"llama-3.1-8b-q4_0", 32, 218.1e6, 122.7e6, 430.9e6}, {"llama-3.2-1b-q4_0", 16, 60.8e6, 34.2e6, 215.5e6},
        {"qwen3-8b-q4_0", 36, 193.0e6, 108.5e6, 510.5e6},     {"qwen3-4b-q8_0", 36, 101.0e6, 107.2e6, 413.2e6},
        {"qwen3-0.6b-f16", 28, 15.73e6, 31.5e6, 311.2e6},     {"qwen2.5-1.5b-q4_0", 28, 46.8e6, 26.3e6, 191.4e6},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        lv_phone_shape shape;
        lever_error error;
        CHECK_OK(lv_phone_shape_find(&shape, cases[i].name, &error));
        assert_string_equal(shape.name, cases[i].name);
        CHECK_DOUBLE(shape.layers_count, cases[i].layers, 1e-9);
        CHECK_DOUBLE(shape.layer_weights / cases[i].layer_weights, 1, 0.002);
        CHECK_DOUBLE(shape.layer_bytes / cases[i].layer_bytes, 1, 0.002);
        CHECK_DOUBLE(shape.head_bytes / cases[i].head_bytes, 1, 0.002);
        const double bytes = shape.head_bytes;
        lv_phone_shape_cut_head(&shape, shape.vocabulary * 2, 4);
        CHECK_DOUBLE(shape.head_bytes, bytes, 1e-9);
        lv_phone_shape_cut_head(&shape, shape.vocabulary / 4, 4);
        CHECK_DOUBLE(shape.head_bytes, bytes / 4, 1e-3);
        lv_phone_shape_cut_head(&shape, shape.vocabulary, 0.5);
        CHECK_DOUBLE(shape.head_bytes, shape.vocabulary * shape.width / 2, 1e-3);
    }
    lv_phone_shape shape;
    lever_error error;
    CHECK_FAILS(lv_phone_shape_find(&shape, "llama-3.1-9b-q4_0", &error), LEVER_E_ARGUMENT, "llama-3.1-8b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in), cmocka_unit_test(test_every_value), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sections), cmocka_unit_test(test_files),       cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
