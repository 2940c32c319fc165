/* gguf_tensors.c - the table of tensors of a header.
 *
 * A description is five numbers and a name. Each is checked alone (type, dimensions, products that overflow), then
 * against the file (its end, and the other tensors: sorted by place, each must end before the next begins). The order
 * in the header, gaps between tensors and bytes behind the last are nobody's business. The only file of gguf*.c that
 * includes ggml's headers: it asks for the block sizes of types, and which of them its CPU backend computes. */
#include <ggml-cpu.h>
#include <ggml.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf_internal.h"

_Static_assert(LV_TENSOR_TYPE_F32 == GGML_TYPE_F32, "one number for one type");

/* False for numbers that ggml does not know, and for types that it has dropped. */
static bool type_is_known(uint32_t type) {
    return type < GGML_TYPE_COUNT && ggml_type_size((enum ggml_type)type) > 0 &&
           ggml_blck_size((enum ggml_type)type) > 0;
}

bool lv_gguf_tensor_type_computes(int32_t type) {
    return type >= 0 && type_is_known((uint32_t)type) && ggml_get_type_traits_cpu((enum ggml_type)type)->vec_dot;
}

const char *lv_gguf_tensor_type_name(int32_t type, char *buffer, size_t capacity) {
    if (type >= 0 && type_is_known((uint32_t)type)) return ggml_type_name((enum ggml_type)type);
    snprintf(buffer, capacity, "type %d", type);
    return buffer;
}

static bool multiply(uint64_t a, uint64_t b, uint64_t *product) {
    return !__builtin_mul_overflow(a, b, product) && *product <= INT64_MAX;
}

/* Fills what follows from type and dimensions. */
static lever_status measure(lv_tensor *tensor, lever_error *error) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->dims_count; i++) {
        if (!tensor->dims[i]) return lv_fail(error, LEVER_E_FORMAT, "tensor '%s' has a dimension of 0", tensor->name);
        if (!multiply(elements, tensor->dims[i], &elements))
            return lv_fail(error, LEVER_E_FORMAT, "the dimensions of tensor '%s' overflow", tensor->name);
    }
    uint64_t block_elements = (uint64_t)ggml_blck_size((enum ggml_type)tensor->type);
    uint64_t block_bytes = ggml_type_size((enum ggml_type)tensor->type);
    if (tensor->dims[0] % block_elements)
        return lv_fail(error, LEVER_E_FORMAT,
                       "the rows of tensor '%s' have %llu elements, not whole blocks of %llu (%s)", tensor->name,
                       (unsigned long long)tensor->dims[0], (unsigned long long)block_elements,
                       ggml_type_name((enum ggml_type)tensor->type));
    tensor->rows_count = elements / tensor->dims[0];
    if (!multiply(tensor->dims[0] / block_elements, block_bytes, &tensor->row_bytes) ||
        !multiply(tensor->row_bytes, tensor->rows_count, &tensor->bytes))
        return lv_fail(error, LEVER_E_FORMAT, "the size of tensor '%s' overflows", tensor->name);
    return LEVER_OK;
}

/* Reads one description; the offset is still that in the data section. */
static lever_status read_tensor(lv_gguf *gguf, lv_tensor *tensor, uint64_t number, lv_gguf_cursor *cursor,
                                uint64_t alignment, lever_error *error) {
    char what[128];
    snprintf(what, sizeof what, "the name of tensor %llu", (unsigned long long)number);
    const char *name = NULL;
    size_t bytes = 0;
    LV_TRY(lv_gguf_cursor_text(cursor, LV_GGUF_TENSOR_NAME_BYTES_MAX, &name, &bytes, what, error));
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] <= 0x20 || (unsigned char)name[i] == 0x7f) bytes = 0;
    if (!bytes) return lv_fail(error, LEVER_E_FORMAT, "%s is empty or holds blanks or control characters", what);
    LV_TRY(lv_gguf_pool_add(&gguf->names, name, bytes, &tensor->name, error));

    snprintf(what, sizeof what, "tensor '%s'", tensor->name);
    LV_TRY(lv_gguf_cursor_u32(cursor, &tensor->dims_count, what, error));
    if (!tensor->dims_count || tensor->dims_count > 4)
        return lv_fail(error, LEVER_E_FORMAT, "%s has %u dimensions; 1 to 4 are valid", what, tensor->dims_count);
    for (uint32_t i = 0; i < 4; i++) tensor->dims[i] = 1;
    for (uint32_t i = 0; i < tensor->dims_count; i++) LV_TRY(lv_gguf_cursor_u64(cursor, &tensor->dims[i], what, error));
    uint32_t type = 0;
    LV_TRY(lv_gguf_cursor_u32(cursor, &type, what, error));
    if (!type_is_known(type))
        return lv_fail(error, LEVER_E_FORMAT, "%s is of type %u, which this build of ggml does not know", what, type);
    tensor->type = (int32_t)type;
    LV_TRY(measure(tensor, error));
    LV_TRY(lv_gguf_cursor_u64(cursor, &tensor->offset, what, error));
    if (tensor->offset % alignment)
        return lv_fail(error, LEVER_E_FORMAT, "%s begins at %llu of the data, not at a multiple of %llu", what,
                       (unsigned long long)tensor->offset, (unsigned long long)alignment);
    return LEVER_OK;
}

static bool place_less(const void *table, uint32_t a, uint32_t b) {
    const lv_tensor *tensors = table;
    return tensors[a].offset < tensors[b].offset;
}

/* Turns offsets in the data section into offsets in the file, and checks them. `index` is room for `count`. */
static lever_status place(lv_tensor *tensors, uint32_t count, uint64_t data_begin, uint64_t file_bytes, uint32_t *index,
                          lever_error *error) {
    for (uint32_t i = 0; i < count; i++) {
        lv_tensor *tensor = &tensors[i];
        uint64_t end = 0;
        if (__builtin_add_overflow(tensor->offset, data_begin, &tensor->offset) ||
            __builtin_add_overflow(tensor->offset, tensor->bytes, &end))
            return lv_fail(error, LEVER_E_FORMAT, "the place of tensor '%s' in the file overflows", tensor->name);
        if (end > file_bytes)
            return lv_fail(error, LEVER_E_FORMAT,
                           "tensor '%s' ends at byte %llu, but the file has %llu: it is cut short or damaged; fetch it "
                           "again",
                           tensor->name, (unsigned long long)end, (unsigned long long)file_bytes);
        index[i] = i;
    }
    lv_gguf_sort(index, count, place_less, tensors);
    for (uint32_t i = 1; i < count; i++) {
        const lv_tensor *before = &tensors[index[i - 1]], *tensor = &tensors[index[i]];
        if (before->offset + before->bytes > tensor->offset)
            return lv_fail(error, LEVER_E_FORMAT, "tensors '%s' and '%s' overlap in the file", before->name,
                           tensor->name);
    }
    return LEVER_OK;
}

/* Makes room for `count` more descriptions. */
static lever_status grow(lv_gguf *gguf, uint32_t count, lever_error *error) {
    uint32_t total = gguf->tensors_count + count;
    if (!gguf->tensors) {
        void *memory = NULL;
        LV_TRY(lv_alloc_checked(&memory, gguf->options.ledger, LV_MEM_METADATA, total, sizeof *gguf->tensors,
                                "a table of tensors", error));
        gguf->tensors = memory;
        memory = NULL;
        LV_TRY(lv_alloc_checked(&memory, gguf->options.ledger, LV_MEM_METADATA, total, sizeof *gguf->tensors_by_name,
                                "a table of tensors", error));
        gguf->tensors_by_name = memory;
        return LEVER_OK;
    }
    void *tensors = lv_realloc(gguf->tensors, total, sizeof *gguf->tensors);
    if (tensors) gguf->tensors = tensors;
    void *by_name = lv_realloc(gguf->tensors_by_name, total, sizeof *gguf->tensors_by_name);
    if (by_name) gguf->tensors_by_name = by_name;
    if (!tensors || !by_name) return lv_fail(error, LEVER_E_MEMORY, "no memory for a table of %u tensors", total);
    return LEVER_OK;
}

lever_status lv_gguf_tensors_read(lv_gguf *gguf, lv_gguf_cursor *cursor, uint64_t count, uint32_t file_index,
                                  uint64_t alignment, lever_error *error) {
    /* A description takes 33 bytes at least: a name of one character, one dimension, the type and the offset. */
    if (count > lv_gguf_cursor_left(cursor) / 33)
        return lv_fail(error, LEVER_E_FORMAT,
                       "the header counts %llu tensors, more than the %llu bytes behind it can describe",
                       (unsigned long long)count, (unsigned long long)lv_gguf_cursor_left(cursor));
    if (count > LV_GGUF_TENSORS_MAX - gguf->tensors_count)
        return lv_fail(error, LEVER_E_FORMAT, "the header has %llu tensors; lever takes at most %u",
                       (unsigned long long)count, LV_GGUF_TENSORS_MAX);
    if (!count) return LEVER_OK;

    LV_TRY(grow(gguf, (uint32_t)count, error));
    lv_tensor *first = &gguf->tensors[gguf->tensors_count];
    for (uint32_t i = 0; i < count; i++) {
        LV_TRY(read_tensor(gguf, &first[i], i, cursor, alignment, error));
        first[i].file_index = file_index;
    }
    uint64_t data_begin = 0;
    if (__builtin_add_overflow(cursor->position, alignment - 1, &data_begin))
        return lv_fail(error, LEVER_E_FORMAT, "the alignment of the data, %llu, is out of range",
                       (unsigned long long)alignment);
    data_begin -= data_begin % alignment;
    LV_TRY(place(first, (uint32_t)count, data_begin, cursor->end, &gguf->tensors_by_name[gguf->tensors_count], error));
    gguf->tensors_count += (uint32_t)count;
    return LEVER_OK;
}

static bool name_less(const void *table, uint32_t a, uint32_t b) {
    const lv_tensor *tensors = table;
    return strcmp(tensors[a].name, tensors[b].name) < 0;
}

lever_status lv_gguf_tensors_finish(lv_gguf *gguf, lever_error *error) {
    for (uint32_t i = 0; i < gguf->tensors_count; i++) gguf->tensors_by_name[i] = i;
    lv_gguf_sort(gguf->tensors_by_name, gguf->tensors_count, name_less, gguf->tensors);
    for (uint32_t i = 1; i < gguf->tensors_count; i++) {
        const char *name = gguf->tensors[gguf->tensors_by_name[i]].name;
        if (!strcmp(gguf->tensors[gguf->tensors_by_name[i - 1]].name, name))
            return lv_fail(error, LEVER_E_FORMAT, "tensor '%s' is listed twice", name);
    }
    return LEVER_OK;
}

const lv_tensor *lv_gguf_find(const lv_gguf *gguf, const char *name) {
    uint32_t low = 0, high = gguf->tensors_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const lv_tensor *tensor = &gguf->tensors[gguf->tensors_by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (!order) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

uint32_t lv_gguf_tensors_count(const lv_gguf *gguf) {
    return gguf->tensors_count;
}

const lv_tensor *lv_gguf_tensor(const lv_gguf *gguf, uint32_t index) {
    return &gguf->tensors[index];
}
