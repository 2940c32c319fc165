/* json_reader.c - see json_reader.h.
 *
 * A recursive descent that never reads past the end, with a bound on depth and on the length of paths. Strings are
 * resolved into one buffer as long as the text: no escape becomes longer than it was. */
#include "json_reader.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 16, PATH_MAX_BYTES = 256, NUMBER_BYTES = 64 };

typedef struct {
    const char *at, *end;
    char *scratch; /* of the string that was read last */
    size_t scratch_bytes;
    char path[PATH_MAX_BYTES];
    size_t path_bytes;
    int depth, arrays; /* how many objects and arrays are open; of these, arrays */
    json_member_fn on_member;
    void *user;
    const char *problem;
} reader;

static bool refuse(reader *r, const char *problem) {
    if (r->problem == NULL) r->problem = problem;
    return false;
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool take(reader *r, char wanted) {
    skip_blanks(r);
    if (r->at == r->end || *r->at != wanted) return false;
    r->at++;
    return true;
}

static bool take_word(reader *r, const char *word) {
    const size_t bytes = strlen(word);
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0) return false;
    r->at += bytes;
    return true;
}

/* --- Strings --- */

static bool read_hex(reader *r, uint32_t *code) {
    if (r->end - r->at < 4) return refuse(r, "an escape that ends early");
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const char c = *r->at++;
        const char *digit = c != '\0' ? strchr("0123456789abcdef", c | 0x20) : NULL;
        if (digit == NULL) return refuse(r, "an escape that is not hexadecimal");
        *code = *code << 4 | (uint32_t)(digit - "0123456789abcdef");
    }
    return true;
}

static void put_byte(reader *r, uint32_t byte) {
    r->scratch[r->scratch_bytes++] = (char)(byte == 0 ? ' ' : byte);
}

static void put_code(reader *r, uint32_t code) {
    if (code < 0x80) {
        put_byte(r, code);
    } else if (code < 0x800) {
        put_byte(r, 0xc0 | code >> 6);
        put_byte(r, 0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        put_byte(r, 0xe0 | code >> 12);
        put_byte(r, 0x80 | (code >> 6 & 0x3f));
        put_byte(r, 0x80 | (code & 0x3f));
    } else {
        put_byte(r, 0xf0 | code >> 18);
        put_byte(r, 0x80 | (code >> 12 & 0x3f));
        put_byte(r, 0x80 | (code >> 6 & 0x3f));
        put_byte(r, 0x80 | (code & 0x3f));
    }
}

/* A half of a pair without its other half becomes U+FFFD. */
static bool read_unicode(reader *r) {
    uint32_t code, low;
    if (!read_hex(r, &code)) return false;
    if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        const char *before = r->at;
        r->at += 2;
        if (!read_hex(r, &low)) return false;
        if (low >= 0xdc00 && low < 0xe000) {
            put_code(r, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
            return true;
        }
        r->at = before;
    }
    put_code(r, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
    return true;
}

static bool read_escape(reader *r) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end) return refuse(r, "a string that does not end");
    const char letter = *r->at++;
    if (letter == 'u') return read_unicode(r);
    const char *known = letter != '\0' ? strchr(letters, letter) : NULL;
    if (known == NULL) return refuse(r, "an unknown escape");
    put_byte(r, (uint8_t)meanings[known - letters]);
    return true;
}

static bool read_string(reader *r) {
    if (!take(r, '"')) return refuse(r, "a string was expected");
    r->scratch_bytes = 0;
    while (r->at < r->end) {
        const char c = *r->at++;
        if (c == '"') {
            r->scratch[r->scratch_bytes] = '\0';
            return true;
        }
        if ((uint8_t)c < 0x20) return refuse(r, "a control character in a string");
        if (c != '\\') {
            put_byte(r, (uint8_t)c);
        } else if (!read_escape(r)) {
            return false;
        }
    }
    return refuse(r, "a string that does not end");
}

/* --- Values --- */

static bool read_number(reader *r, double *number) {
    char text[NUMBER_BYTES];
    size_t bytes = 0;
    while (r->at < r->end && *r->at != '\0' && strchr("+-.0123456789eE", *r->at) != NULL) {
        if (bytes + 1 == sizeof text) return refuse(r, "a number that is too long");
        text[bytes++] = *r->at++;
    }
    text[bytes] = '\0';
    char *rest = text;
    *number = strtod(text, &rest);
    if (bytes == 0 || *rest != '\0') return refuse(r, "a value was expected");
    return true;
}

static bool read_object(reader *r);
static bool read_array(reader *r);

static bool read_value(reader *r) {
    json_member member = {.path = r->path, .text = ""};
    skip_blanks(r);
    if (r->at == r->end) return refuse(r, "it ends early");
    if (*r->at == '{') return read_object(r);
    if (*r->at == '[') return read_array(r);
    if (*r->at == '"') {
        if (!read_string(r)) return false;
        member.text = r->scratch;
        member.bytes = r->scratch_bytes;
    } else if (take_word(r, "true")) {
        member.kind = JSON_TRUE;
    } else if (take_word(r, "false")) {
        member.kind = JSON_FALSE;
    } else if (take_word(r, "null")) {
        member.kind = JSON_NULL;
    } else {
        member.kind = JSON_NUMBER;
        if (!read_number(r, &member.number)) return false;
    }
    if (r->arrays == 0) r->on_member(r->user, &member);
    return true;
}

static bool read_array(reader *r) {
    if (++r->depth > DEPTH_MAX) return refuse(r, "nested too deeply");
    r->arrays++;
    r->at++;
    if (!take(r, ']')) {
        do {
            if (!read_value(r)) return false;
        } while (take(r, ','));
        if (!take(r, ']')) return refuse(r, "an array that does not end");
    }
    r->arrays--;
    r->depth--;
    return true;
}

static bool read_object(reader *r) {
    if (++r->depth > DEPTH_MAX) return refuse(r, "nested too deeply");
    r->at++;
    if (take(r, '}')) {
        r->depth--;
        return true;
    }
    const size_t path_bytes = r->path_bytes;
    do {
        if (!read_string(r)) return false;
        const int length =
            snprintf(r->path + path_bytes, sizeof r->path - path_bytes, "%s%s", path_bytes > 0 ? "." : "", r->scratch);
        if (length < 0 || (size_t)length >= sizeof r->path - path_bytes) return refuse(r, "a name that is too long");
        r->path_bytes = path_bytes + (size_t)length;
        if (!take(r, ':')) return refuse(r, "a colon was expected");
        if (!read_value(r)) return false;
        r->path_bytes = path_bytes;
        r->path[path_bytes] = '\0';
    } while (take(r, ','));
    if (!take(r, '}')) return refuse(r, "an object that does not end");
    r->depth--;
    return true;
}

bool json_read_object(const char *text, size_t bytes, json_member_fn on_member, void *user, const char **problem) {
    char *scratch = malloc(bytes + 1);
    if (scratch == NULL) {
        *problem = "no memory for it";
        return false;
    }
    reader r = {.at = text, .end = text + bytes, .scratch = scratch, .on_member = on_member, .user = user};
    skip_blanks(&r);
    bool right = r.at < r.end && *r.at == '{' ? read_object(&r) : refuse(&r, "not a JSON object");
    skip_blanks(&r);
    if (right && r.at != r.end) right = refuse(&r, "something stands behind the object");
    free(scratch);
    *problem = r.problem;
    return right;
}
