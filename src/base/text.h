/* text.h - sizes, numbers, UTF-8, and text files of ours.
 *
 * Pure functions; any thread. */
#ifndef LV_BASE_TEXT_H
#define LV_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "700M", "1.5G", "4096", "64K", "2T", with an optional "B" or "iB", either case; binary units. False for anything
 * else, for negative values and for what does not fit 64 bits. */
bool lv_parse_size(const char *text, uint64_t *bytes);

/* "1.50 GiB", "26.3 MiB", "864 B". Returns `buffer`. */
char *lv_format_size(uint64_t bytes, char *buffer, size_t capacity);

/* Whole-string parsers: no leading or trailing blanks, nothing left over, range kept. `text` may be NULL (false). */
bool lv_parse_u64(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value);
bool lv_parse_i64(const char *text, int64_t minimum, int64_t maximum, int64_t *value);
bool lv_parse_double(const char *text, double minimum, double maximum, double *value); /* refuses nan and inf */

/* How many leading bytes of `text` form whole, valid UTF-8 characters; the rest is incomplete or invalid. */
size_t lv_utf8_whole(const char *text, size_t bytes);

/* True when the bytes can still become a valid character with more bytes behind them. */
bool lv_utf8_incomplete(const char *text, size_t bytes);

/* Copies with each maximal invalid part as U+FFFD. Returns the bytes needed; writes at most `capacity`. */
size_t lv_utf8_repair(const char *text, size_t bytes, char *out, size_t capacity);

/* As snprintf behind the `used` bytes that are there, or would be if they fitted. Returns the sum: the bytes wanted so
 * far. */
__attribute__((format(printf, 4, 5))) size_t lv_text_append(char *text, size_t capacity, size_t used,
                                                            const char *format, ...);

/* Files of ours hold sections, each under a heading of its own: a line that begins with "lever ". What follows the
 * heading, which includes its newline; NULL when there is no such section. */
const char *lv_text_section(const char *text, const char *heading);
/* At the end of a section: nothing, or another one. */
bool lv_text_is_section_end(const char *text);

/* Whether the text may have been cut off a line that begins with `begin`: as far as it goes, it begins so too. */
bool lv_text_may_begin(const char *text, size_t bytes, const char *begin);

#endif
