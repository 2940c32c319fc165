/* gguf_writer.c - see gguf_writer.h. */
#include "support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"
#include "support/scratch.h"

static void *must(void *memory) {
    if (!memory) abort();
    return memory;
}

/* Bytes that grow. */
typedef struct {
    uint8_t *data;
    size_t bytes, capacity;
} buffer;

static void put(buffer *b, const void *data, size_t bytes) {
    if (b->bytes + bytes > b->capacity) {
        b->capacity = 2 * (b->bytes + bytes) + 64;
        b->data = must(realloc(b->data, b->capacity));
    }
    if (bytes) memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

static void put_u32(buffer *b, uint32_t value) {
    put(b, &value, sizeof value);
}

static void put_u64(buffer *b, uint64_t value) {
    put(b, &value, sizeof value);
}

static void put_text(buffer *b, const char *text, size_t bytes) {
    put_u64(b, bytes);
    put(b, text, bytes);
}

static void put_zeros(buffer *b, size_t bytes) {
    static const uint8_t zeros[4096];
    for (; bytes > sizeof zeros; bytes -= sizeof zeros) put(b, zeros, sizeof zeros);
    put(b, zeros, bytes);
}

gguf_writer *gguf_writer_create(void) {
    gguf_writer *writer = must(calloc(1, sizeof *writer));
    memcpy(writer->magic, "GGUF", 4);
    writer->version = 3;
    writer->keys_claimed = writer->tensors_claimed = GGUF_WRITER_AUTO;
    writer->alignment = 32;
    return writer;
}

void gguf_writer_free(gguf_writer *writer) {
    if (!writer) return;
    for (size_t i = 0; i < writer->keys_count; i++) {
        free(writer->keys[i].name);
        free(writer->keys[i].value);
    }
    for (size_t i = 0; i < writer->tensors_count; i++) free(writer->tensors[i].name);
    free(writer->keys);
    free(writer->tensors);
    free(writer);
}

/* --- Keys -----------------------------------------------------------------------------------------------------------
 */

gguf_writer_key *gguf_writer_find_key(gguf_writer *writer, const char *key) {
    for (size_t i = 0; i < writer->keys_count; i++)
        if (!strcmp(writer->keys[i].name, key)) return &writer->keys[i];
    return NULL;
}

static gguf_writer_key *append_key(gguf_writer *writer, const char *name) {
    writer->keys = must(realloc(writer->keys, (writer->keys_count + 1) * sizeof *writer->keys));
    gguf_writer_key *key = &writer->keys[writer->keys_count++];
    *key = (gguf_writer_key){.name = must(strdup(name))};
    return key;
}

void gguf_writer_raw(gguf_writer *writer, const char *name, uint32_t type, const void *value, size_t value_bytes) {
    gguf_writer_key *key = gguf_writer_find_key(writer, name);
    if (!key) key = append_key(writer, name);
    free(key->value);
    key->type = type;
    key->value = must(malloc(value_bytes + 1));
    if (value_bytes) memcpy(key->value, value, value_bytes);
    key->value_bytes = value_bytes;
}

void gguf_writer_add_key_again(gguf_writer *writer, const char *name) {
    gguf_writer_key *key = gguf_writer_find_key(writer, name);
    if (!key) abort();
    uint8_t *value = must(malloc(key->value_bytes + 1));
    memcpy(value, key->value, key->value_bytes);
    size_t value_bytes = key->value_bytes;
    uint32_t type = key->type;
    key = append_key(writer, name);
    *key = (gguf_writer_key){.name = key->name, .type = type, .value = value, .value_bytes = value_bytes};
}

void gguf_writer_remove_key(gguf_writer *writer, const char *name) {
    gguf_writer_key *key = gguf_writer_find_key(writer, name);
    if (!key) return;
    free(key->name);
    free(key->value);
    size_t index = (size_t)(key - writer->keys);
    memmove(key, key + 1, (writer->keys_count - index - 1) * sizeof *key);
    writer->keys_count--;
}

void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value) {
    gguf_writer_raw(writer, key, LV_GGUF_U32, &value, sizeof value);
}

void gguf_writer_f32(gguf_writer *writer, const char *key, float value) {
    gguf_writer_raw(writer, key, LV_GGUF_F32, &value, sizeof value);
}

void gguf_writer_bool(gguf_writer *writer, const char *key, bool value) {
    uint8_t byte = value;
    gguf_writer_raw(writer, key, LV_GGUF_BOOL, &byte, 1);
}

void gguf_writer_text(gguf_writer *writer, const char *key, const char *value) {
    buffer b = {0};
    put_text(&b, value, strlen(value));
    gguf_writer_raw(writer, key, LV_GGUF_TEXT, b.data, b.bytes);
    free(b.data);
}

void gguf_writer_texts(gguf_writer *writer, const char *key, const char *const *values, size_t count) {
    buffer b = {0};
    put_u32(&b, LV_GGUF_TEXT);
    put_u64(&b, count);
    for (size_t i = 0; i < count; i++) put_text(&b, values[i], strlen(values[i]));
    gguf_writer_raw(writer, key, LV_GGUF_ARRAY, b.data, b.bytes);
    free(b.data);
}

void gguf_writer_array(gguf_writer *writer, const char *key, uint32_t element_type, const void *values, size_t count,
                       size_t element_bytes) {
    buffer b = {0};
    put_u32(&b, element_type);
    put_u64(&b, count);
    put(&b, values, count * element_bytes);
    gguf_writer_raw(writer, key, LV_GGUF_ARRAY, b.data, b.bytes);
    free(b.data);
}

/* --- Tensors --------------------------------------------------------------------------------------------------------
 */

gguf_writer_tensor *gguf_writer_find_tensor(gguf_writer *writer, const char *name) {
    for (size_t i = 0; i < writer->tensors_count; i++)
        if (!strcmp(writer->tensors[i].name, name)) return &writer->tensors[i];
    return NULL;
}

static gguf_writer_tensor *append_tensor(gguf_writer *writer, const char *name) {
    writer->tensors = must(realloc(writer->tensors, (writer->tensors_count + 1) * sizeof *writer->tensors));
    gguf_writer_tensor *tensor = &writer->tensors[writer->tensors_count++];
    *tensor = (gguf_writer_tensor){.name = must(strdup(name)), .offset = GGUF_WRITER_AUTO};
    return tensor;
}

gguf_writer_tensor *gguf_writer_add_tensor(gguf_writer *writer, const char *name, uint32_t type, uint64_t dim0,
                                           uint64_t dim1) {
    gguf_writer_tensor *tensor = gguf_writer_find_tensor(writer, name);
    if (!tensor) tensor = append_tensor(writer, name);
    tensor->type = type;
    tensor->dims_count = dim1 ? 2 : 1;
    tensor->dims[0] = dim0;
    tensor->dims[1] = dim1;
    tensor->data_bytes = (size_t)(dim0 * (dim1 ? dim1 : 1) * sizeof(float));
    return tensor;
}

void gguf_writer_add_tensor_again(gguf_writer *writer, const char *name) {
    gguf_writer_tensor *tensor = gguf_writer_find_tensor(writer, name);
    if (!tensor) abort();
    gguf_writer_tensor copy = *tensor;
    tensor = append_tensor(writer, name);
    copy.name = tensor->name;
    *tensor = copy;
}

void gguf_writer_remove_tensor(gguf_writer *writer, const char *name) {
    gguf_writer_tensor *tensor = gguf_writer_find_tensor(writer, name);
    if (!tensor) return;
    free(tensor->name);
    size_t index = (size_t)(tensor - writer->tensors);
    memmove(tensor, tensor + 1, (writer->tensors_count - index - 1) * sizeof *tensor);
    writer->tensors_count--;
}

/* --- Whole models ---------------------------------------------------------------------------------------------------
 */

static char *key_of(const char *arch, const char *rest) {
    static char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, rest);
    return key;
}

static void layer(gguf_writer *writer, const char *arch, int index) {
    static const struct {
        const char *name;
        uint64_t dim0, dim1;
        const char *only; /* architecture; NULL: all */
    } parts[] = {
        {"attn_norm.weight", 64, 0, NULL},      {"attn_q.weight", 64, 64, NULL},
        {"attn_k.weight", 64, 32, NULL},        {"attn_v.weight", 64, 32, NULL},
        {"attn_output.weight", 64, 64, NULL},   {"ffn_norm.weight", 64, 0, NULL},
        {"ffn_gate.weight", 64, 96, NULL},      {"ffn_up.weight", 64, 96, NULL},
        {"ffn_down.weight", 96, 64, NULL},      {"attn_q.bias", 64, 0, "qwen2"},
        {"attn_k.bias", 32, 0, "qwen2"},        {"attn_v.bias", 32, 0, "qwen2"},
        {"attn_q_norm.weight", 16, 0, "qwen3"}, {"attn_k_norm.weight", 16, 0, "qwen3"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].only && strcmp(parts[i].only, arch)) continue;
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", index, parts[i].name);
        gguf_writer_add_tensor(writer, name, 0, parts[i].dim0, parts[i].dim1);
    }
}

void gguf_writer_model(gguf_writer *writer, const char *arch, uint64_t vocabulary) {
    gguf_writer_text(writer, "general.architecture", arch);
    gguf_writer_text(writer, "general.name", "tiny");
    gguf_writer_u32(writer, key_of(arch, "context_length"), 512);
    gguf_writer_u32(writer, key_of(arch, "embedding_length"), 64);
    gguf_writer_u32(writer, key_of(arch, "block_count"), 2);
    gguf_writer_u32(writer, key_of(arch, "feed_forward_length"), 96);
    gguf_writer_u32(writer, key_of(arch, "attention.head_count"), 4);
    gguf_writer_u32(writer, key_of(arch, "attention.head_count_kv"), 2);
    gguf_writer_f32(writer, key_of(arch, "attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_writer_add_tensor(writer, "token_embd.weight", 0, 64, vocabulary);
    gguf_writer_add_tensor(writer, "output_norm.weight", 0, 64, 0);
    for (int i = 0; i < 2; i++) layer(writer, arch, i);
}

/* The character that stands for a byte in byte-level BPE, as UTF-8. */
static const char *character_of(unsigned byte, char text[4]) {
    unsigned code = byte;
    if (!((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae)) {
        code = 256;
        for (unsigned b = 0; b < byte; b++)
            if (!((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae)) code++;
    }
    if (code < 0x80)
        snprintf(text, 4, "%c", (int)code);
    else
        snprintf(text, 4, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
    return text;
}

static void vocabulary(gguf_writer *writer, const char *model, const char *const *tokens, const int32_t *types,
                       size_t count) {
    gguf_writer_text(writer, "tokenizer.ggml.model", model);
    gguf_writer_texts(writer, "tokenizer.ggml.tokens", tokens, count);
    gguf_writer_array(writer, "tokenizer.ggml.token_type", LV_GGUF_I32, types, count, sizeof *types);
}

void gguf_writer_bpe(gguf_writer *writer, const char *pre) {
    static const char *const merges[] = {
        "h e", "t he",         "\xc4\xa0 the",      "l l", "l o", "he ll", "hell o", "\xc4\xa0 w",
        "o r", "\xc4\xa0w or", "\xc4\x8a \xc4\x8a", "A A"};
    static const char *const merged[] = {
        "he", "the",         "\xc4\xa0the",      "ll", "lo", "hell", "hello", "\xc4\xa0w",
        "or", "\xc4\xa0wor", "\xc4\x8a\xc4\x8a", "AA"};
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>"};
    static char bytes[256][4];
    const char *tokens[GGUF_WRITER_BPE_TOKENS];
    int32_t types[GGUF_WRITER_BPE_TOKENS];
    size_t count = 0;
    for (unsigned i = 0; i < 256; i++) tokens[count++] = character_of(i, bytes[i]);
    for (size_t i = 0; i < sizeof merged / sizeof merged[0]; i++) tokens[count++] = merged[i];
    for (size_t i = 0; i < count; i++) types[i] = 1;
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        types[count] = i == 3 ? 4 : 3;
        tokens[count++] = special[i];
    }
    if (count != GGUF_WRITER_BPE_TOKENS) abort();
    vocabulary(writer, "gpt2", tokens, types, count);
    if (pre) gguf_writer_text(writer, "tokenizer.ggml.pre", pre);
    gguf_writer_texts(writer, "tokenizer.ggml.merges", merges, sizeof merges / sizeof merges[0]);
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 268);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 270);
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", false);
}

void gguf_writer_spm(gguf_writer *writer) {
    static const char *const pieces[] = {
        "\xe2\x96\x81",      "h", "e", "l", "o", "\xe2\x96\x81h", "el", "lo", "\xe2\x96\x81hel",
        "\xe2\x96\x81hello", "<", "s", ">", "<s"};
    static char bytes[256][8];
    const char *tokens[GGUF_WRITER_SPM_TOKENS];
    int32_t types[GGUF_WRITER_SPM_TOKENS];
    float scores[GGUF_WRITER_SPM_TOKENS];
    size_t count = 0;
    tokens[count++] = "<unk>";
    tokens[count++] = "<s>";
    tokens[count++] = "</s>";
    types[0] = 2;
    types[1] = types[2] = 3;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        types[count] = 6;
        tokens[count++] = bytes[i];
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        types[count] = 1;
        tokens[count++] = pieces[i];
    }
    if (count != GGUF_WRITER_SPM_TOKENS) abort();
    for (size_t i = 0; i < count; i++) scores[i] = types[i] == 1 ? -(float)i : 0.0f;
    vocabulary(writer, "llama", tokens, types, count);
    gguf_writer_array(writer, "tokenizer.ggml.scores", LV_GGUF_F32, scores, count, sizeof *scores);
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 2);
}

/* --- Reading and writing --------------------------------------------------------------------------------------------
 */

static bool get(FILE *file, void *data, size_t bytes) {
    return fread(data, 1, bytes, file) == bytes;
}

/* Appends the bytes of one value to `value`. */
static bool copy_value(FILE *file, uint32_t type, buffer *value) {
    static const size_t sizes[LV_GGUF_TYPES_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t bytes = type < LV_GGUF_TYPES_COUNT ? sizes[type] : 0;
    if (type == LV_GGUF_TEXT) {
        if (!get(file, &bytes, sizeof bytes)) return false;
        put_u64(value, bytes);
    }
    char step[4096];
    for (; bytes; bytes -= bytes < sizeof step ? bytes : sizeof step) {
        size_t part = bytes < sizeof step ? (size_t)bytes : sizeof step;
        if (!get(file, step, part)) return false;
        put(value, step, part);
    }
    if (type != LV_GGUF_ARRAY) return true;
    uint32_t element = 0;
    uint64_t count = 0;
    if (!get(file, &element, sizeof element) || !get(file, &count, sizeof count)) return false;
    put_u32(value, element);
    put_u64(value, count);
    for (uint64_t i = 0; i < count; i++)
        if (!copy_value(file, element, value)) return false;
    return true;
}

bool gguf_writer_load_keys(gguf_writer *writer, const char *path, const char *prefix) {
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    struct {
        char magic[4];
        uint32_t version;
        uint64_t tensors_count, keys_count;
    } head;
    bool good = get(file, &head, sizeof head);
    for (uint64_t i = 0; good && i < head.keys_count; i++) {
        uint64_t name_bytes = 0;
        char name[256] = "";
        uint32_t type = 0;
        buffer value = {0};
        good = get(file, &name_bytes, sizeof name_bytes) && name_bytes < sizeof name &&
               get(file, name, (size_t)name_bytes) && get(file, &type, sizeof type) && copy_value(file, type, &value);
        if (good && !strncmp(name, prefix, strlen(prefix)))
            gguf_writer_raw(writer, name, type, value.data, value.bytes);
        free(value.data);
    }
    fclose(file);
    return good;
}

uint8_t *gguf_writer_build(const gguf_writer *writer, size_t *bytes) {
    buffer b = {0};
    put(&b, writer->magic, 4);
    put_u32(&b, writer->version);
    put_u64(&b, writer->tensors_claimed == GGUF_WRITER_AUTO ? writer->tensors_count : writer->tensors_claimed);
    put_u64(&b, writer->keys_claimed == GGUF_WRITER_AUTO ? writer->keys_count : writer->keys_claimed);
    for (size_t i = 0; i < writer->keys_count; i++) {
        const gguf_writer_key *key = &writer->keys[i];
        put_text(&b, key->name, strlen(key->name));
        put_u32(&b, key->type);
        put(&b, key->value, key->value_bytes);
    }
    uint64_t next = 0, end = 0;
    for (size_t i = 0; i < writer->tensors_count; i++) {
        const gguf_writer_tensor *tensor = &writer->tensors[i];
        uint64_t offset = tensor->offset == GGUF_WRITER_AUTO ? next : tensor->offset;
        put_text(&b, tensor->name, strlen(tensor->name));
        put_u32(&b, tensor->dims_count);
        for (uint32_t d = 0; d < tensor->dims_count && d < 4; d++) put_u64(&b, tensor->dims[d]);
        put_u32(&b, tensor->type);
        put_u64(&b, offset);
        if (offset <= UINT32_MAX) {
            next = (offset + tensor->data_bytes + writer->alignment - 1) / writer->alignment * writer->alignment;
            if (offset + tensor->data_bytes > end) end = offset + tensor->data_bytes;
        }
    }
    put_zeros(&b, (writer->alignment - b.bytes % writer->alignment) % writer->alignment);
    put_zeros(&b, (size_t)end + writer->trailing_bytes);
    *bytes = b.bytes;
    return b.data;
}

char *gguf_writer_save(const gguf_writer *writer, const char *name, char *path, size_t capacity) {
    size_t bytes = 0;
    uint8_t *data = gguf_writer_build(writer, &bytes);
    scratch_write(name, data, bytes, path, capacity);
    free(data);
    return path;
}
