/* json_reader.h - reading one JSON object from text that may be anything.
 *
 * Members are given out as they come, those of nested objects under their whole path ("values.cycles"); arrays are
 * checked and skipped. Nothing is kept. Any thread. */
#ifndef CLI_JSON_READER_H
#define CLI_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum { JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL } json_kind;

typedef struct {
    const char *path;
    json_kind kind;
    const char *text; /* a string's bytes, escapes resolved, terminated; zero bytes inside became spaces */
    size_t bytes;
    double number;
} json_member;

/* Borrowed for the call. */
typedef void (*json_member_fn)(void *user, const json_member *member);

/* Reads exactly one object. False: *problem (static text) says why; what was given out so far is not to be used. */
bool json_read_object(const char *text, size_t bytes, json_member_fn on_member, void *user, const char **problem);

#endif
