/* json.c - see json.h. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "terminal.h"

static void append(json *out, const char *text, size_t bytes) {
    if (out->failed) return;
    if (out->bytes + bytes + 1 > out->capacity) {
        const size_t capacity = (out->bytes + bytes + 1) * 2;
        char *grown = realloc(out->text, capacity);
        if (grown == NULL) {
            out->failed = true;
            return;
        }
        out->text = grown;
        out->capacity = capacity;
    }
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
    out->text[out->bytes] = '\0';
}

static void append_text(json *out, const char *text) {
    append(out, text, strlen(text));
}

/* Valid UTF-8 stays as it is; control characters, quotes and backslashes are escaped. */
static void append_quoted(json *out, const char *text, size_t bytes) {
    append(out, "\"", 1);
    size_t plain = 0; /* from here on nothing was written yet */
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f) continue;
        append(out, text + plain, i - plain);
        plain = i + 1;
        char escape[8];
        static const char shorts[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
        const char *known = byte != 0 ? strchr(shorts, byte) : NULL;
        if (known != NULL) {
            snprintf(escape, sizeof escape, "\\%c", letters[known - shorts]);
        } else {
            snprintf(escape, sizeof escape, "\\u%04x", byte);
        }
        append_text(out, escape);
    }
    append(out, text + plain, bytes - plain);
    append(out, "\"", 1);
}

static void begin_value(json *out, const char *key) {
    if (out->comma) append_text(out, ", ");
    if (key != NULL) {
        append_quoted(out, key, strlen(key));
        append_text(out, ": ");
    }
    out->comma = true;
}

static void open_nest(json *out, const char *key, const char *bracket) {
    begin_value(out, key);
    append_text(out, bracket);
    out->comma = false;
}

static void close_nest(json *out, const char *bracket) {
    append_text(out, bracket);
    out->comma = true;
}

void json_init(json *out) {
    *out = (json){0};
}

void json_fini(json *out) {
    free(out->text);
    *out = (json){0};
}

void json_object_open(json *out, const char *key) {
    open_nest(out, key, "{");
}

void json_object_close(json *out) {
    close_nest(out, "}");
}

void json_array_open(json *out, const char *key) {
    open_nest(out, key, "[");
}

void json_array_close(json *out) {
    close_nest(out, "]");
}

void json_string(json *out, const char *key, const char *text, size_t bytes) {
    begin_value(out, key);
    if (lv_utf8_whole(text, bytes) == bytes) {
        append_quoted(out, text, bytes);
        return;
    }
    const size_t repaired_bytes = lv_utf8_repair(text, bytes, NULL, 0);
    char *repaired = malloc(repaired_bytes);
    if (repaired == NULL) {
        out->failed = true;
        return;
    }
    (void)lv_utf8_repair(text, bytes, repaired, repaired_bytes);
    append_quoted(out, repaired, repaired_bytes);
    free(repaired);
}

void json_text(json *out, const char *key, const char *text) {
    if (text != NULL) {
        json_string(out, key, text, strlen(text));
        return;
    }
    begin_value(out, key);
    append_text(out, "null");
}

void json_unsigned(json *out, const char *key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    begin_value(out, key);
    append_text(out, text);
}

void json_number(json *out, const char *key, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.6g", isfinite(value) ? value : 0.0);
    begin_value(out, key);
    append_text(out, text);
}

void json_bool(json *out, const char *key, bool value) {
    begin_value(out, key);
    append_text(out, value ? "true" : "false");
}

bool json_put(json *out) {
    append_text(out, "\n");
    if (out->failed) return false;
    bool quietly = false;
    return put_data(out->text, out->bytes, &quietly) || quietly;
}
