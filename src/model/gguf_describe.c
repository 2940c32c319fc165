/* gguf_describe.c - what a key holds, for people. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf_internal.h"

#define ELEMENTS_SHOWN 4u
#define TEXT_BYTES_SHOWN 160u

/* Text that is put together piece by piece; what does not fit is cut. */
typedef struct {
    char *text;
    size_t capacity, used;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(w->text + w->used, w->capacity - w->used, format, arguments);
    va_end(arguments);
    size_t room = w->capacity - w->used - 1;
    if (wanted > 0) w->used += (size_t)wanted < room ? (size_t)wanted : room;
}

static void put_value(writer *w, const lv_gguf_value *value) {
    char text[TEXT_BYTES_SHOWN + 1];
    switch (value->type) {
    case LV_GGUF_TEXT:
        put(w, "\"%s\"%s", lv_gguf_printable(value->text, value->text_bytes, text, sizeof text),
            value->text_bytes > TEXT_BYTES_SHOWN ? "..." : "");
        break;
    case LV_GGUF_BOOL:
        put(w, "%s", value->unsigned_integer ? "true" : "false");
        break;
    case LV_GGUF_F32:
    case LV_GGUF_F64:
        put(w, "%.9g", value->real);
        break;
    case LV_GGUF_I8:
    case LV_GGUF_I16:
    case LV_GGUF_I32:
    case LV_GGUF_I64:
        put(w, "%lld", (long long)value->integer);
        break;
    default:
        put(w, "%llu", (unsigned long long)value->unsigned_integer);
        break;
    }
}

static bool put_element(void *user, uint64_t index, const lv_gguf_value *value) {
    writer *w = user;
    if (index >= ELEMENTS_SHOWN) return false;
    if (index) put(w, ", ");
    put_value(w, value);
    return true;
}

lever_status lv_gguf_describe_key(const lv_gguf *gguf, uint32_t index, const char **name, char *value,
                                  size_t value_capacity, lever_error *error) {
    const lv_gguf_key *key = &gguf->keys.items[index];
    writer w = {.text = value, .capacity = value_capacity};
    value[0] = '\0';
    *name = key->name;
    if (key->value.type != LV_GGUF_ARRAY) {
        put_value(&w, &key->value);
        return LEVER_OK;
    }
    put(&w, "%llu x %s: ", (unsigned long long)key->elements_count, lv_gguf_type_name(key->element_type));
    LV_TRY(lv_gguf_walk_array(gguf, key->name, put_element, &w, error));
    if (key->elements_count > ELEMENTS_SHOWN) put(&w, ", ...");
    return LEVER_OK;
}
