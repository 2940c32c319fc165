/* text.c - written by hand where the C library would depend on the locale, accept blanks or wrap around. */
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Reads digits at *text and moves it behind them. False without a digit or when the value passes 64 bits. */
static bool read_digits(const char **text, uint64_t *value) {
    const char *at = *text;
    uint64_t sum = 0;
    if (!is_digit(*at)) return false;
    for (; is_digit(*at); at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (sum > (UINT64_MAX - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    *text = at;
    *value = sum;
    return true;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The power of two that a unit's letter stands for; 0: none. */
static unsigned unit_shift(char letter) {
    switch (lower(letter)) {
    case 'k':
        return 10;
    case 'm':
        return 20;
    case 'g':
        return 30;
    case 't':
        return 40;
    default:
        return 0;
    }
}

bool lv_parse_size(const char *text, uint64_t *bytes) {
    if (!text) return false;
    uint64_t whole = 0;
    if (!read_digits(&text, &whole)) return false;
    double fraction = 0, place = 1;
    bool has_fraction = *text == '.';
    if (has_fraction) {
        text++;
        if (!is_digit(*text)) return false;
        for (; is_digit(*text); text++) fraction += (place /= 10) * (*text - '0');
    }
    unsigned shift = unit_shift(*text);
    if (shift) text++;
    if (has_fraction && !shift) return false; /* half a byte */
    if (shift && lower(text[0]) == 'i' && lower(text[1]) == 'b')
        text += 2;
    else if (lower(text[0]) == 'b')
        text += 1;
    if (*text != '\0' || whole > UINT64_MAX >> shift) return false;

    uint64_t value = whole << shift;
    uint64_t rest = (uint64_t)(fraction * (double)(UINT64_C(1) << shift) + 0.5);
    if (rest > UINT64_MAX - value) return false;
    *bytes = value + rest;
    return true;
}

char *lv_format_size(uint64_t bytes, char *buffer, size_t capacity) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(buffer, capacity, "%u B", (unsigned)bytes);
        return buffer;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1023.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0; /* three digits that say something */
    snprintf(buffer, capacity, "%.*f %s", decimals, value, units[unit]);
    return buffer;
}

bool lv_parse_u64(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value) {
    uint64_t number = 0;
    if (!text || !read_digits(&text, &number) || *text != '\0') return false;
    if (number < minimum || number > maximum) return false;
    *value = number;
    return true;
}

bool lv_parse_i64(const char *text, int64_t minimum, int64_t maximum, int64_t *value) {
    if (!text) return false;
    bool negative = *text == '-';
    if (negative) text++;
    uint64_t magnitude = 0;
    if (!read_digits(&text, &magnitude) || *text != '\0') return false;
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    /* The least number has no positive twin: it is built without ever being positive. */
    int64_t number = negative && magnitude ? -(int64_t)(magnitude - 1) - 1 : (int64_t)magnitude;
    if (number < minimum || number > maximum) return false;
    *value = number;
    return true;
}

bool lv_parse_double(const char *text, double minimum, double maximum, double *value) {
    /* The set of characters keeps out blanks, hexadecimal, "inf" and "nan", all of which strtod takes. */
    if (!text || *text == '\0' || *text == '+' || text[strspn(text, "0123456789.eE+-")] != '\0') return false;
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number) || number < minimum || number > maximum) return false;
    *value = number;
    return true;
}

typedef enum { UTF8_VALID, UTF8_INVALID, UTF8_INCOMPLETE } utf8_kind;

/* Looks at the first character of `bytes` > 0 bytes. *length is the length of the valid character, of the longest part
 * of one that stands there (invalid), or of all that is left (incomplete). The bounds of the second byte keep out
 * overlong forms, surrogates and what lies above U+10FFFF. */
static utf8_kind utf8_first(const uint8_t *text, size_t bytes, size_t *length) {
    uint8_t lead = text[0];
    *length = 1;
    if (lead < 0x80) return UTF8_VALID;
    if (lead < 0xC2 || lead > 0xF4) return UTF8_INVALID;
    size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < wanted; i++) {
        if (i == bytes) return UTF8_INCOMPLETE;
        if (text[i] < low || text[i] > high) return UTF8_INVALID;
        low = 0x80;
        high = 0xBF;
        *length = i + 1;
    }
    return UTF8_VALID;
}

size_t lv_utf8_whole(const char *text, size_t bytes) {
    size_t at = 0, length = 0;
    while (at < bytes && utf8_first((const uint8_t *)text + at, bytes - at, &length) == UTF8_VALID) at += length;
    return at;
}

bool lv_utf8_incomplete(const char *text, size_t bytes) {
    size_t length = 0;
    return bytes > 0 && utf8_first((const uint8_t *)text, bytes, &length) == UTF8_INCOMPLETE;
}

size_t lv_utf8_repair(const char *text, size_t bytes, char *out, size_t capacity) {
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t needed = 0, length = 0;
    for (size_t at = 0; at < bytes; at += length) {
        utf8_kind kind = utf8_first((const uint8_t *)text + at, bytes - at, &length);
        const char *source = kind == UTF8_VALID ? text + at : replacement;
        size_t count = kind == UTF8_VALID ? length : 3;
        if (needed <= capacity && count <= capacity - needed) memcpy(out + needed, source, count);
        needed += count;
    }
    return needed;
}

size_t lv_text_append(char *text, size_t capacity, size_t used, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const bool fits = used < capacity;
    const int length = vsnprintf(fits ? text + used : NULL, fits ? capacity - used : 0, format, arguments);
    va_end(arguments);
    return used + (length > 0 ? (size_t)length : 0);
}

const char *lv_text_section(const char *text, const char *heading) {
    const size_t length = strlen(heading);
    while (text && strncmp(text, heading, length) != 0) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    return text ? text + length : NULL;
}

bool lv_text_is_section_end(const char *text) {
    return *text == '\0' || strncmp(text, "lever ", 6) == 0;
}

bool lv_text_may_begin(const char *text, size_t bytes, const char *begin) {
    const size_t begin_bytes = strlen(begin);
    return memcmp(text, begin, bytes < begin_bytes ? bytes : begin_bytes) == 0;
}
