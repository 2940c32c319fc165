/* json.h - writing one JSON object, key by key, in the order of the calls.
 *
 * Only what the command needs to write: integers of 64 bits without a sign (seeds, sizes), short numbers, strings that
 * are repaired to valid UTF-8, and nesting. Commas and escapes are done here. What is written goes into memory, so that
 * an object reaches standard output whole or not at all. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *text; /* terminated; owned until json_fini */
    size_t bytes, capacity;
    bool comma;  /* something stands before the next value */
    bool failed; /* memory ran out; the text is not whole */
} json;

void json_init(json *out);
void json_fini(json *out);

/* `key` is NULL inside an array and at the top. */
void json_object_open(json *out, const char *key);
void json_object_close(json *out);
void json_array_open(json *out, const char *key);
void json_array_close(json *out);
void json_string(json *out, const char *key, const char *text, size_t bytes);
void json_text(json *out, const char *key, const char *text); /* terminated; NULL becomes null */
void json_unsigned(json *out, const char *key, uint64_t value);
void json_number(json *out, const char *key, double value); /* six digits; what is not finite becomes 0 */
void json_bool(json *out, const char *key, bool value);

/* Writes it with a newline to standard output; false when that, or the memory for it, failed. */
bool json_put(json *out);

#endif
