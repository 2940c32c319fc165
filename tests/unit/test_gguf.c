/* test_gguf.c - headers that lie, files that are something else, and honest ones in every shape. */
/* faults: memory file */
#include "support/check.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/gguf.h"
#include "support/fault.h"
#include "support/gguf_writer.h"
#include "support/scratch.h"

static lever_error error;
static char path[1024];

/* Through the page cache: a direct read of a file just written waits for the disk. */
static lever_status open_path(lv_gguf **gguf, const char *file) {
    return lv_gguf_open(gguf, file, &(lv_file_options){0}, &error);
}

/* Writing over a file would wait for the disk; so each is removed. */
static lever_status open_bytes(lv_gguf **gguf, const char *name, const void *data, size_t bytes) {
    lever_status status = open_path(gguf, scratch_write(name, data, bytes, path, sizeof path));
    remove(path);
    return status;
}

static lever_status open_writer(lv_gguf **gguf, const gguf_writer *writer) {
    lever_status status = open_path(gguf, gguf_writer_save(writer, "case.gguf", path, sizeof path));
    remove(path);
    return status;
}

/* Keys of several types and three tensors: what the tests below change. */
static gguf_writer *sample(void) {
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_text(writer, "general.architecture", "llama");
    gguf_writer_u32(writer, "answer", 42);
    gguf_writer_f32(writer, "half", 0.5f);
    gguf_writer_bool(writer, "yes", true);
    gguf_writer_texts(writer, "words", (const char *const[]){"one", "two", "three"}, 3);
    gguf_writer_array(writer, "sums", LV_GGUF_U64, (const uint64_t[]){1, 2, UINT64_MAX}, 3, 8);
    gguf_writer_add_tensor(writer, "a", 0, 64, 2);
    gguf_writer_add_tensor(writer, "b", 0, 32, 0);
    gguf_writer_add_tensor(writer, "c", 0, 8, 8);
    return writer;
}

/* --- Honest files ---------------------------------------------------------------------------------------------------
 */

static void check_sample(const gguf_writer *writer) {
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    assert_int_equal(lv_gguf_tensors_count(gguf), 3);
    assert_int_equal(lv_gguf_keys_count(gguf), writer->keys_count);
    const lv_tensor *a = lv_gguf_find(gguf, "a"), *c = lv_gguf_find(gguf, "c");
    assert_non_null(a);
    assert_non_null(c);
    assert_null(lv_gguf_find(gguf, "d"));
    assert_int_equal(a->row_bytes, 256);
    assert_int_equal(a->rows_count, 2);
    assert_int_equal(a->bytes, 512);
    assert_int_equal(c->dims[1], 8);
    assert_int_equal(c->dims[2], 1);
    assert_true(c->offset + c->bytes <= lv_file_bytes(lv_gguf_file(gguf, 0)));
    lv_gguf_close(&gguf);
}

static void test_honest_shapes(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    check_sample(writer);
    writer->version = 2;
    check_sample(writer);
    writer->trailing_bytes = 17;
    check_sample(writer);
    writer->alignment = 64;
    gguf_writer_u32(writer, "general.alignment", 64);
    check_sample(writer);
    /* Data in another order than the table. */
    gguf_writer_find_tensor(writer, "a")->offset = 512;
    gguf_writer_find_tensor(writer, "b")->offset = 256;
    gguf_writer_find_tensor(writer, "c")->offset = 0;
    check_sample(writer);
    gguf_writer_free(writer);
}

static void test_odd_names_of_files(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    lv_gguf *gguf = NULL;
    gguf_writer_save(writer, "a model \xc3\xa9\xe4\xb8\xad.gguf", path, sizeof path);
    CHECK_OK(lv_gguf_open(&gguf, path, &(lv_file_options){.direct = true}, &error));
    assert_string_equal(lv_gguf_path(gguf), path);
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

static void test_no_tensors(void **state) {
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    assert_int_equal(lv_gguf_tensors_count(gguf), 0);
    assert_int_equal(lv_gguf_keys_count(gguf), 0);
    assert_null(lv_gguf_find(gguf, "a"));
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

static void test_many_tensors_are_found(void **state) {
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    char name[32];
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "t%u", i * 7919u % 3000u);
        gguf_writer_add_tensor(writer, name, 0, 8, 0);
        snprintf(name, sizeof name, "k%u", i * 7919u % 3000u);
        gguf_writer_u32(writer, name, i);
    }
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "t%u", i * 7919u % 3000u);
        assert_ptr_equal(lv_gguf_find(gguf, name), lv_gguf_tensor(gguf, i));
        snprintf(name, sizeof name, "k%u", i * 7919u % 3000u);
        uint32_t value = 0;
        CHECK_OK(lv_gguf_get_u32(gguf, name, &value, NULL, &error));
        assert_int_equal(value, i);
    }
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

/* --- Hostile headers ------------------------------------------------------------------------------------------------
 */

static void text_of_length(gguf_writer *w, const char *key, uint64_t length) {
    gguf_writer_raw(w, key, LV_GGUF_TEXT, &length, sizeof length);
}

static void array_of(gguf_writer *w, const char *key, uint32_t type, uint64_t count) {
    uint8_t value[12];
    memcpy(value, &type, 4);
    memcpy(value + 4, &count, 8);
    gguf_writer_raw(w, key, LV_GGUF_ARRAY, value, sizeof value);
}

#define MUTATION(name) static void name(gguf_writer *w)
MUTATION(tensors_2_60) {
    w->tensors_claimed = (uint64_t)1 << 60;
}
MUTATION(keys_2_60) {
    w->keys_claimed = (uint64_t)1 << 60;
}
MUTATION(keys_2_64) {
    w->keys_claimed = UINT64_MAX - 1;
}
MUTATION(keys_one_more) {
    w->keys_claimed = w->keys_count + 1;
}
MUTATION(tensors_one_more) {
    w->tensors_claimed = w->tensors_count + 1;
}
MUTATION(dims_product) {
    gguf_writer_tensor *t = gguf_writer_find_tensor(w, "b");
    t->dims_count = 2;
    t->dims[0] = ((uint64_t)1 << 42) + 1;
    t->dims[1] = (uint64_t)1 << 22;
}
MUTATION(dims_bytes) {
    gguf_writer_tensor *t = gguf_writer_find_tensor(w, "b");
    t->dims[0] = (uint64_t)1 << 62; /* elements fit, bytes do not */
}
MUTATION(text_2_63) {
    text_of_length(w, "long", (uint64_t)1 << 63);
}
MUTATION(text_2_64) {
    text_of_length(w, "long", UINT64_MAX);
}
MUTATION(array_2_61_texts) {
    array_of(w, "many", LV_GGUF_TEXT, (uint64_t)1 << 61);
}
MUTATION(array_2_63_bytes) {
    array_of(w, "many", LV_GGUF_U8, (uint64_t)1 << 63);
}
MUTATION(array_of_arrays) {
    array_of(w, "nested", LV_GGUF_ARRAY, 1);
}
MUTATION(array_of_unknown) {
    array_of(w, "odd", 13, 1);
}
MUTATION(unknown_value_type) {
    gguf_writer_raw(w, "odd", 77, "x", 1);
}
MUTATION(bool_of_2) {
    gguf_writer_raw(w, "maybe", LV_GGUF_BOOL, "\2", 1);
}
MUTATION(text_with_zero) {
    gguf_writer_raw(w, "cut", LV_GGUF_TEXT, "\3\0\0\0\0\0\0\0a\0b", 11);
}
MUTATION(dim_0) {
    gguf_writer_find_tensor(w, "b")->dims[0] = 0;
}
MUTATION(dim_1_0) {
    gguf_writer_tensor *t = gguf_writer_find_tensor(w, "a");
    t->dims[1] = 0;
}
MUTATION(no_dims) {
    gguf_writer_find_tensor(w, "b")->dims_count = 0;
}
MUTATION(five_dims) {
    gguf_writer_find_tensor(w, "b")->dims_count = 5;
}
MUTATION(duplicate_key) {
    gguf_writer_add_key_again(w, "answer");
}
MUTATION(duplicate_tensor) {
    gguf_writer_add_tensor_again(w, "b");
}
MUTATION(offset_2_63) {
    gguf_writer_find_tensor(w, "b")->offset = (uint64_t)1 << 63;
}
MUTATION(offset_wraps) {
    gguf_writer_find_tensor(w, "b")->offset = UINT64_MAX - 31;
}
MUTATION(offset_past_end) {
    gguf_writer_find_tensor(w, "c")->offset = 1u << 20, w->tensors[2].data_bytes = 0;
}
MUTATION(overlap) {
    gguf_writer_find_tensor(w, "b")->offset = 32;
}
MUTATION(same_place) {
    gguf_writer_find_tensor(w, "c")->offset = 0;
}
MUTATION(offset_odd) {
    gguf_writer_find_tensor(w, "b")->offset = 520;
}
MUTATION(type_unknown) {
    gguf_writer_find_tensor(w, "b")->type = 999;
}
MUTATION(type_dropped) {
    gguf_writer_find_tensor(w, "b")->type = 4; /* Q4_2 */
}
MUTATION(type_negative) {
    gguf_writer_find_tensor(w, "b")->type = UINT32_MAX;
}
MUTATION(half_blocks) {
    gguf_writer_tensor *t = gguf_writer_find_tensor(w, "b");
    t->type = 2; /* Q4_0: blocks of 32 */
    t->dims[0] = 48;
}
MUTATION(too_small_for_type) { /* laid out as Q4_0, described as F32 */
    gguf_writer_find_tensor(w, "a")->data_bytes = 64;
    w->trailing_bytes = 1024;
}
MUTATION(alignment_0) {
    gguf_writer_u32(w, "general.alignment", 0);
}
MUTATION(alignment_3) {
    gguf_writer_u32(w, "general.alignment", 24);
}
MUTATION(alignment_huge) {
    gguf_writer_u32(w, "general.alignment", 1u << 31);
}
MUTATION(alignment_text) {
    gguf_writer_text(w, "general.alignment", "32");
}
MUTATION(version_0) {
    w->version = 0;
}
MUTATION(version_1) {
    w->version = 1;
}
MUTATION(version_99) {
    w->version = 99;
}
MUTATION(version_big_endian) {
    w->version = 0x03000000;
}
MUTATION(key_without_name) {
    gguf_writer_u32(w, "", 1);
}
MUTATION(key_with_escape) {
    gguf_writer_u32(w, "a\033[31mb", 1);
}
MUTATION(tensor_without_name) {
    gguf_writer_add_tensor(w, "", 0, 8, 0);
}
MUTATION(tensor_with_escape) {
    gguf_writer_add_tensor(w, "a\033[31mb", 0, 8, 0);
}
MUTATION(tensor_name_long) {
    gguf_writer_add_tensor(w, "0123456789012345678901234567890123456789012345678901234567890123456789", 0, 8, 0);
}
MUTATION(packed_without_version) {
    memcpy(w->magic, "LVRP", 4);
}
MUTATION(packed_of_the_future) {
    memcpy(w->magic, "LVRP", 4);
    w->alignment = LV_PACK_ALIGN;
    gguf_writer_u32(w, LV_PACK_KEY_VERSION, 9);
}
MUTATION(packed_bad_layout) {
    packed_of_the_future(w);
    gguf_writer_u32(w, LV_PACK_KEY_VERSION, LV_PACK_VERSION);
    gguf_writer_array(w, LV_PACK_KEY_LAYOUTS, LV_GGUF_U8, "\0\1\7", 3, 1);
}
MUTATION(packed_short_layouts) {
    packed_bad_layout(w);
    gguf_writer_array(w, LV_PACK_KEY_LAYOUTS, LV_GGUF_U8, "\0\1", 2, 1);
}

static const struct {
    const char *name;
    void (*mutate)(gguf_writer *);
    const char *message; /* what the error must contain */
} hostile[] = {
    {"2^60 tensors", tensors_2_60, "1152921504606846976 tensors"},
    {"2^60 keys", keys_2_60, "1152921504606846976 keys"},
    {"2^64 keys", keys_2_64, "keys, more than"},
    {"one key too many", keys_one_more, "case.gguf: "},
    {"one tensor too many", tensors_one_more, "case.gguf: "},
    {"product of dimensions overflows", dims_product, "dimensions of tensor 'b' overflow"},
    {"bytes of a tensor overflow", dims_bytes, "size of tensor 'b' overflows"},
    {"text of 2^63 bytes", text_2_63, "key 'long' wants 9223372036854775808 bytes"},
    {"text of 2^64 - 1 bytes", text_2_64, "key 'long' wants 18446744073709551615 bytes"},
    {"array of 2^61 texts", array_2_61_texts, "key 'many' is an array of 2305843009213693952 elements"},
    {"array of 2^63 bytes", array_2_63_bytes, "key 'many' is an array of 9223372036854775808 elements"},
    {"array of arrays", array_of_arrays, "key 'nested' is an array of elements of type 9"},
    {"array of unknown type", array_of_unknown, "key 'odd' is an array of elements of type 13"},
    {"value of unknown type", unknown_value_type, "key 'odd' has a value of type 77"},
    {"boolean of value 2", bool_of_2, "key 'maybe' is a boolean of value 2"},
    {"text with a zero byte", text_with_zero, "key 'cut' holds a zero byte"},
    {"dimension of 0", dim_0, "tensor 'b' has a dimension of 0"},
    {"second dimension of 0", dim_1_0, "tensor 'a' has a dimension of 0"},
    {"no dimensions", no_dims, "tensor 'b' has 0 dimensions"},
    {"five dimensions", five_dims, "tensor 'b' has 5 dimensions"},
    {"key twice", duplicate_key, "key 'answer' stands in the header twice"},
    {"tensor twice", duplicate_tensor, "tensor 'b' is listed twice"},
    {"offset of 2^63", offset_2_63, "tensor 'b' ends at byte 9223372036854"},
    {"offset that wraps around", offset_wraps, "tensor 'b' in the file overflows"},
    {"offset past the end", offset_past_end, "tensor 'c' ends at byte"},
    {"overlap", overlap, "'a' and 'b' overlap"},
    {"two tensors in one place", same_place, "overlap"},
    {"offset between alignments", offset_odd, "tensor 'b' begins at 520"},
    {"type unknown", type_unknown, "tensor 'b' is of type 999"},
    {"type that ggml dropped", type_dropped, "tensor 'b' is of type 4"},
    {"type -1", type_negative, "tensor 'b' is of type 4294967295"},
    {"row of half blocks", half_blocks, "tensor 'b' have 48 elements, not whole blocks of 32"},
    {"too few bytes for the type", too_small_for_type, "'a' and 'b' overlap"},
    {"alignment 0", alignment_0, "'general.alignment' is 0"},
    {"alignment 24", alignment_3, "'general.alignment' is 24"},
    {"alignment 2^31", alignment_huge, "'general.alignment' is 2147483648"},
    {"alignment as a text", alignment_text, "key 'general.alignment' is of type text"},
    {"version 0", version_0, "GGUF version 0"},
    {"version 1", version_1, "GGUF version 1; lever reads versions 2 and 3"},
    {"version 99", version_99, "GGUF version 99"},
    {"big-endian", version_big_endian, "big-endian GGUF (version 3)"},
    {"key without a name", key_without_name, "the name of key 6 is empty"},
    {"key with an escape sequence", key_with_escape, "the name of key 6 is empty or holds control"},
    {"tensor without a name", tensor_without_name, "the name of tensor 3 is empty"},
    {"tensor with an escape sequence", tensor_with_escape, "the name of tensor 3 is empty or holds"},
    {"tensor with a long name", tensor_name_long, "the name of tensor 3 has 70 bytes"},
    {"packed without a version", packed_without_version, "case.gguf: "},
    {"packed in a later format", packed_of_the_future, "version 9 of the format; this lever reads version 1"},
    {"packed with an unknown layout", packed_bad_layout, "'lever.pack.layouts' is damaged"},
    {"packed with too few layouts", packed_short_layouts, "'lever.pack.layouts' is damaged"},
};

static void test_hostile_headers(void **state) {
    (void)state;
    int64_t blocks = fault_memory_blocks(), descriptors = fault_file_descriptors();
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        gguf_writer *writer = sample();
        hostile[i].mutate(writer);
        lv_gguf *gguf = NULL;
        lever_status status = open_writer(&gguf, writer);
        if (status != LEVER_E_FORMAT || !strstr(error.message, hostile[i].message) ||
            !strstr(error.message, "case.gguf"))
            fail_msg("%s: status %d, '%s'", hostile[i].name, status, error.message);
        assert_null(gguf);
        assert_int_equal(fault_memory_blocks(), blocks);
        assert_int_equal(fault_file_descriptors(), descriptors);
        gguf_writer_free(writer);
    }
}

static void test_the_path_stands_in_a_message_once(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        gguf_writer *writer = sample();
        hostile[i].mutate(writer);
        lv_gguf *gguf = NULL;
        assert_int_equal(open_writer(&gguf, writer), LEVER_E_FORMAT);
        const char *first = strstr(error.message, path);
        assert_non_null(first);
        assert_null(strstr(first + 1, path));
        gguf_writer_free(writer);
    }
}

/* A file whose claims are large must be refused before memory is asked for. */
static void test_claims_do_not_allocate(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    writer->tensors_claimed = writer->keys_claimed = (uint64_t)1 << 40;
    gguf_writer_save(writer, "case.gguf", path, sizeof path);
    lv_ledger *ledger = lv_ledger_create((uint64_t)1 << 20);
    lv_gguf *gguf = NULL;
    CHECK_FAILS(lv_gguf_open(&gguf, path, &(lv_file_options){.ledger = ledger}, &error), LEVER_E_FORMAT, "keys");
    assert_true(lv_ledger_peak(ledger) < (512u << 10));
    assert_int_equal(lv_ledger_used(ledger), 0);
    lv_ledger_free(ledger);
    gguf_writer_free(writer);
}

/* Cut at every length, the file must be refused, and say so. */
static void test_every_cut(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    size_t bytes = 0;
    uint8_t *data = gguf_writer_build(writer, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        lv_gguf *gguf = NULL;
        lever_status status = open_bytes(&gguf, "cut.gguf", data, cut);
        if (status != LEVER_E_FORMAT) fail_msg("cut at %zu of %zu: status %d", cut, bytes, status);
        assert_null(gguf);
    }
    CHECK_FAILS(open_path(&(lv_gguf *){NULL}, scratch_write("cut.gguf", data, bytes - 1, path, sizeof path)),
                LEVER_E_FORMAT, "tensor 'c' ends at byte");
    char size[32];
    snprintf(size, sizeof size, "the file has %zu:", bytes - 1);
    assert_non_null(strstr(error.message, size));
    free(data);
    gguf_writer_free(writer);
}

/* Every byte of the header set to several values: refused or opened, never a crash (run under the sanitizers too). */
static void test_every_byte_changed(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    size_t bytes = 0;
    uint8_t *data = gguf_writer_build(writer, &bytes);
    size_t header_bytes = bytes - 512 - 128 - 256;
    unsigned opened = 0, refused = 0;
    for (size_t at = 0; at < header_bytes; at++) {
        static const uint8_t changes[] = {0x00, 0x01, 0x09, 0x7f, 0x80, 0xff};
        uint8_t old = data[at];
        for (size_t i = 0; i < sizeof changes; i++) {
            data[at] = changes[i];
            lv_gguf *gguf = NULL;
            lever_status status = open_bytes(&gguf, "bent.gguf", data, bytes);
            assert_true(status == LEVER_OK || status == LEVER_E_FORMAT);
            assert_true((gguf != NULL) == (status == LEVER_OK));
            for (uint32_t k = 0; gguf && k < lv_gguf_keys_count(gguf); k++) {
                const char *name = NULL;
                char value[64];
                CHECK_OK(lv_gguf_describe_key(gguf, k, &name, value, sizeof value, &error));
            }
            opened += status == LEVER_OK;
            refused += status != LEVER_OK;
            lv_gguf_close(&gguf);
        }
        data[at] = old;
    }
    assert_true(opened > 0 && refused > 0);
    free(data);
    gguf_writer_free(writer);
}

/* --- Files that are something else ----------------------------------------------------------------------------------
 */

static void test_not_gguf(void **state) {
    (void)state;
    static const struct {
        const char *data;
        const char *message;
    } cases[] = {
        {"", "not a GGUF file: it is empty"},
        {"GGU", "not a GGUF file: it begins with the bytes 47 47 55"},
        {"<!DOCTYPE html><html>", "not a GGUF file: it is a web page"},
        {"\n  <html>", "not a GGUF file: it is a web page"},
        {"{\"error\":\"not found\"}", "not a GGUF file: it is JSON"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n",
         "not a GGUF file: it is a Git LFS pointer"},
        {"PK\003\004zip", "not a GGUF file: it is a zip archive"},
        {"tjgg\1", "not a GGUF file: it is in the old GGML format"},
        {"\033[31mred", "not a GGUF file: it begins with the bytes 1b 5b 33 31 6d 72 65 64 (\".[31mred\")"},
        {"GGUF", "the version wants 4 bytes at offset 4, but the file ends at 4"},
        {"LVRP", "the version wants 4 bytes at offset 4, but the file ends at 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lv_gguf *gguf = NULL;
        scratch_write("other", cases[i].data, strlen(cases[i].data), path, sizeof path);
        CHECK_FAILS(open_path(&gguf, path), LEVER_E_FORMAT, cases[i].message);
        assert_non_null(strstr(error.message, path));
    }
    lv_gguf *gguf = NULL;
    assert_int_not_equal(open_path(&gguf, scratch_folder()), LEVER_OK);
    assert_int_not_equal(open_path(&gguf, scratch_path("missing.gguf", path, sizeof path)), LEVER_OK);
    assert_non_null(strstr(error.message, "missing.gguf"));
}

/* --- Values ---------------------------------------------------------------------------------------------------------
 */

static void test_values(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    gguf_writer_raw(writer, "i8", LV_GGUF_I8, "\x07", 1);
    gguf_writer_raw(writer, "minus", LV_GGUF_I8, "\xff", 1);
    gguf_writer_raw(writer, "u64", LV_GGUF_U64, &(uint64_t){7}, 8);
    gguf_writer_raw(writer, "large", LV_GGUF_U64, &(uint64_t){(uint64_t)1 << 32}, 8);
    gguf_writer_raw(writer, "double", LV_GGUF_F64, &(double){0.25}, 8);
    gguf_writer_raw(writer, "infinite", LV_GGUF_F64, &(double){1e300}, 8);
    gguf_writer_raw(writer, "nan", LV_GGUF_F32, "\0\0\xc0\x7f", 4);
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    uint32_t u32 = 0;
    float f32 = 0;
    bool yes = false, found = true;
    const char *text = NULL;
    CHECK_OK(lv_gguf_get_u32(gguf, "answer", &u32, NULL, &error));
    assert_int_equal(u32, 42);
    CHECK_OK(lv_gguf_get_u32(gguf, "i8", &u32, NULL, &error));
    assert_int_equal(u32, 7);
    CHECK_OK(lv_gguf_get_u32(gguf, "u64", &u32, &found, &error));
    assert_true(found && u32 == 7);
    u32 = 5;
    CHECK_OK(lv_gguf_get_u32(gguf, "absent", &u32, &found, &error));
    assert_true(!found && u32 == 5);
    CHECK_OK(lv_gguf_get_f32(gguf, "double", &f32, NULL, &error));
    assert_true(f32 == 0.25f);
    CHECK_OK(lv_gguf_get_bool(gguf, "yes", &yes, NULL, &error));
    assert_true(yes);
    CHECK_OK(lv_gguf_get_text(gguf, "general.architecture", &text, NULL, &error));
    assert_string_equal(text, "llama");

    CHECK_FAILS(lv_gguf_get_u32(gguf, "absent", &u32, NULL, &error), LEVER_E_FORMAT, "key 'absent' is missing");
    CHECK_FAILS(lv_gguf_get_u32(gguf, "large", &u32, NULL, &error), LEVER_E_FORMAT, "key 'large' is 4294967296");
    CHECK_FAILS(lv_gguf_get_u32(gguf, "minus", &u32, NULL, &error), LEVER_E_FORMAT, "key 'minus' is -1");
    CHECK_FAILS(lv_gguf_get_u32(gguf, "half", &u32, &found, &error), LEVER_E_FORMAT,
                "key 'half' is of type f32; an integer is wanted");
    CHECK_FAILS(lv_gguf_get_u32(gguf, "words", &u32, NULL, &error), LEVER_E_FORMAT, "key 'words' is an array of text");
    CHECK_FAILS(lv_gguf_get_f32(gguf, "answer", &f32, NULL, &error), LEVER_E_FORMAT, "a float is wanted");
    CHECK_FAILS(lv_gguf_get_f32(gguf, "infinite", &f32, NULL, &error), LEVER_E_FORMAT, "not a finite number");
    CHECK_FAILS(lv_gguf_get_f32(gguf, "nan", &f32, NULL, &error), LEVER_E_FORMAT, "not a finite number");
    CHECK_FAILS(lv_gguf_get_bool(gguf, "answer", &yes, NULL, &error), LEVER_E_FORMAT, "a boolean is wanted");
    CHECK_FAILS(lv_gguf_get_text(gguf, "answer", &text, NULL, &error), LEVER_E_FORMAT, "a text is wanted");
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

static bool collect(void *user, uint64_t index, const lv_gguf_value *value) {
    char *all = user;
    snprintf(all + strlen(all), 64 - strlen(all), "%llu=%.*s ", (unsigned long long)index, (int)value->text_bytes,
             value->text);
    return index < 1;
}

static void test_arrays(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    gguf_writer_array(writer, "none", LV_GGUF_U64, "", 0, 8);
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    uint32_t type = 0;
    uint64_t count = 0, *sums = NULL;
    CHECK_OK(lv_gguf_get_array(gguf, "words", &type, &count, NULL, &error));
    assert_int_equal(type, LV_GGUF_TEXT);
    assert_int_equal(count, 3);
    char all[64] = "";
    CHECK_OK(lv_gguf_walk_array(gguf, "words", collect, all, &error));
    assert_string_equal(all, "0=one 1=two "); /* and stopped there */
    CHECK_OK(lv_gguf_read_u64_array(gguf, "sums", &sums, &count, &error));
    assert_int_equal(count, 3);
    assert_true(sums[2] == UINT64_MAX);
    lv_free(sums);
    CHECK_OK(lv_gguf_read_u64_array(gguf, "none", &sums, &count, &error));
    assert_int_equal(count, 0);
    lv_free(sums);
    CHECK_FAILS(lv_gguf_read_u64_array(gguf, "words", &sums, &count, &error), LEVER_E_FORMAT, "array of u64");
    CHECK_FAILS(lv_gguf_get_array(gguf, "answer", &type, &count, NULL, &error), LEVER_E_FORMAT, "an array is wanted");
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

static void test_describe(void **state) {
    (void)state;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_text(writer, "a", "two\nlines\033[0m");
    gguf_writer_f32(writer, "b", 1e-5f);
    gguf_writer_bool(writer, "c", false);
    gguf_writer_raw(writer, "d", LV_GGUF_I32, &(int32_t){-3}, 4);
    gguf_writer_texts(writer, "e", (const char *const[]){"1", "2", "3", "4", "5"}, 5);
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    static const char *const wanted[] = {"\"two?lines?[0m\"", "9.99999975e-06", "false", "-3",
                                         "5 x text: \"1\", \"2\", \"3\", \"4\", ..."};
    for (uint32_t i = 0; i < 5; i++) {
        const char *name = NULL;
        char value[128], tight[8];
        CHECK_OK(lv_gguf_describe_key(gguf, i, &name, value, sizeof value, &error));
        assert_int_equal(name[0], 'a' + (int)i);
        assert_string_equal(value, wanted[i]);
        CHECK_OK(lv_gguf_describe_key(gguf, i, &name, tight, sizeof tight, &error));
        assert_memory_equal(tight, wanted[i], strlen(tight));
    }
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

static void test_written_keys(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    gguf_writer_text(writer, "general.name", "x");
    lv_gguf *gguf = NULL, *copy = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    static const char *const prefixes[] = {"general.", "words", NULL}, *const left_out[] = {"general.name", NULL};
    scratch_path("copy.gguf", path, sizeof path);
    FILE *file = fopen(path, "wb");
    CHECK_OK(lv_gguf_write_keys(gguf, fileno(file), prefixes, left_out, &error));
    fclose(file);
    CHECK_OK(open_path(&copy, path));
    assert_int_equal(lv_file_bytes(lv_gguf_file(copy, 0)), lv_gguf_written_bytes(gguf, prefixes, left_out));
    assert_int_equal(lv_gguf_keys_count(copy), 2);
    assert_int_equal(lv_gguf_tensors_count(copy), 0);
    char all[64] = "";
    CHECK_OK(lv_gguf_walk_array(copy, "words", collect, all, &error));
    assert_string_equal(all, "0=one 1=two ");
    lv_gguf_close(&copy);
    FILE *full = fopen("/dev/full", "wb");
    if (full) {
        CHECK_FAILS(lv_gguf_write_keys(gguf, fileno(full), prefixes, NULL, &error), LEVER_E_IO, "No space left");
        fclose(full);
    }
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

/* --- Split sets -----------------------------------------------------------------------------------------------------
 */

static void save_part(unsigned part, unsigned parts_count, unsigned in_place_of, const char *tensor) {
    gguf_writer *writer = gguf_writer_create();
    if (!part) gguf_writer_text(writer, "general.architecture", "llama");
    gguf_writer_raw(writer, "split.no", LV_GGUF_U16, &(uint16_t){(uint16_t)part}, 2);
    gguf_writer_raw(writer, "split.count", LV_GGUF_U16, &(uint16_t){(uint16_t)parts_count}, 2);
    gguf_writer_raw(writer, "split.tensors.count", LV_GGUF_I32, &(int32_t){3}, 4);
    gguf_writer_add_tensor(writer, tensor, 0, 64, 0);
    char name[64];
    snprintf(name, sizeof name, "split/m-%05u-of-%05u.gguf", in_place_of + 1, parts_count);
    gguf_writer_save(writer, name, path, sizeof path);
    gguf_writer_free(writer);
}

static void save_set(void) {
    static const char *const tensors[] = {"a", "b", "c"};
    for (unsigned i = 0; i < 3; i++) save_part(i, 3, i, tensors[i]);
}

static lever_status open_part(lv_gguf **gguf, unsigned part) {
    char name[64];
    snprintf(name, sizeof name, "split/m-%05u-of-00003.gguf", part);
    return open_path(gguf, scratch_path(name, path, sizeof path));
}

static void test_split_sets(void **state) {
    (void)state;
    lv_gguf *gguf = NULL;
    save_set();
    CHECK_OK(open_part(&gguf, 1));
    assert_int_equal(lv_gguf_files_count(gguf), 3);
    assert_int_equal(lv_gguf_tensors_count(gguf), 3);
    assert_int_equal(lv_gguf_find(gguf, "c")->file_index, 2);
    assert_non_null(strstr(lv_file_path(lv_gguf_file(gguf, 2)), "m-00003-of-00003.gguf"));
    lv_gguf_close(&gguf);

    CHECK_FAILS(open_part(&gguf, 2), LEVER_E_FORMAT, "part 2 of a split set of 3; give the first: ");
    assert_non_null(strstr(error.message, "m-00001-of-00003.gguf"));

    save_part(2, 3, 1, "c"); /* swapped */
    save_part(1, 3, 2, "b");
    CHECK_FAILS(open_part(&gguf, 1), LEVER_E_FORMAT, "m-00002-of-00003.gguf holds part 3 of 3, not part 2 of 3");
    CHECK_FAILS(open_part(&gguf, 2), LEVER_E_FORMAT, "holds part 3 of a split set of 3, though its name says part 2");

    save_set();
    save_part(1, 4, 1, "b"); /* writes m-00002-of-00004: a part of another set */
    char name[1024];
    assert_int_equal(rename(path, scratch_path("split/m-00002-of-00003.gguf", name, sizeof name)), 0);
    CHECK_FAILS(open_part(&gguf, 1), LEVER_E_FORMAT, "holds part 2 of 4, not part 2 of 3");

    save_set();
    save_part(1, 3, 1, "a"); /* the name of a tensor of part 1 */
    CHECK_FAILS(open_part(&gguf, 1), LEVER_E_FORMAT, "tensor 'a' is listed twice");

    assert_int_equal(remove(path), 0); /* part 1 */
    save_set();
    assert_int_equal(remove(scratch_path("split/m-00003-of-00003.gguf", path, sizeof path)), 0);
    lever_status status = open_part(&gguf, 1);
    assert_int_not_equal(status, LEVER_OK);
    assert_non_null(strstr(error.message, "part 3 of 3"));
    assert_non_null(strstr(error.message, "m-00003-of-00003.gguf"));
    assert_null(gguf);
}

static void test_split_set_renamed_or_short(void **state) {
    (void)state;
    lv_gguf *gguf = NULL;
    save_set();
    char first[1024], renamed[1024];
    scratch_path("split/m-00001-of-00003.gguf", first, sizeof first);
    scratch_path("split/m.gguf", renamed, sizeof renamed);
    assert_int_equal(rename(first, renamed), 0);
    CHECK_FAILS(open_path(&gguf, renamed), LEVER_E_FORMAT, "does not end in -00001-of-00003.gguf");

    save_set();
    gguf_writer *writer = gguf_writer_create(); /* no tensor in part 3 */
    gguf_writer_u32(writer, "split.no", 2);
    gguf_writer_u32(writer, "split.count", 3);
    gguf_writer_save(writer, "split/m-00003-of-00003.gguf", path, sizeof path);
    gguf_writer_free(writer);
    CHECK_FAILS(open_part(&gguf, 1), LEVER_E_FORMAT, "should hold 3 tensors, but its files hold 2");
}

/* --- Packed files ---------------------------------------------------------------------------------------------------
 */

static void test_packed(void **state) {
    (void)state;
    gguf_writer *writer = sample();
    packed_bad_layout(writer);
    gguf_writer_array(writer, LV_PACK_KEY_LAYOUTS, LV_GGUF_U8, "\0\1\0", 3, 1);
    lv_gguf *gguf = NULL;
    CHECK_OK(open_writer(&gguf, writer));
    assert_true(lv_gguf_is_packed(gguf));
    assert_int_equal(lv_gguf_find(gguf, "a")->layout, LV_LAYOUT_ROWS);
    assert_int_equal(lv_gguf_find(gguf, "b")->layout, LV_LAYOUT_TILES);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(lv_gguf_tensor(gguf, i)->offset % LV_PACK_ALIGN, 0);
    lv_gguf_close(&gguf);
    gguf_writer_free(writer);
}

/* --- Failures of the system -----------------------------------------------------------------------------------------
 */

static void test_every_failure(void **state) {
    (void)state;
    save_set();
    scratch_path("split/m-00001-of-00003.gguf", path, sizeof path);
    int64_t blocks = fault_memory_blocks(), descriptors = fault_file_descriptors();
    uint64_t failures = 0;
    for (uint64_t nth = 1;; nth++) {
        lv_gguf *gguf = NULL;
        fault_memory_set(nth, 1);
        lever_status status = open_path(&gguf, path);
        uint64_t calls = fault_memory_calls();
        fault_memory_set(0, 0);
        lv_gguf_close(&gguf);
        assert_int_equal(fault_memory_blocks(), blocks);
        assert_int_equal(fault_file_descriptors(), descriptors);
        if (calls < nth) {
            assert_int_equal(status, LEVER_OK);
            break;
        }
        assert_int_equal(status, LEVER_E_MEMORY);
        failures++;
    }
    assert_true(failures > 10);

    for (uint64_t nth = 1;; nth++) {
        lv_gguf *gguf = NULL;
        fault_read_set(FAULT_EIO, nth, 1);
        lever_status status = open_path(&gguf, path);
        uint64_t calls = fault_read_calls();
        fault_read_set(FAULT_EIO, 0, 0);
        lv_gguf_close(&gguf);
        assert_int_equal(fault_memory_blocks(), blocks);
        assert_int_equal(fault_file_descriptors(), descriptors);
        if (calls < nth) {
            assert_int_equal(status, LEVER_OK);
            break;
        }
        assert_int_equal(status, LEVER_E_IO);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest_shapes),
        cmocka_unit_test(test_odd_names_of_files),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_many_tensors_are_found),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_the_path_stands_in_a_message_once),
        cmocka_unit_test(test_claims_do_not_allocate),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_not_gguf),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_written_keys),
        cmocka_unit_test(test_split_sets),
        cmocka_unit_test(test_split_set_renamed_or_short),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
