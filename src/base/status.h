/* status.h - how functions of lever say that they failed.
 *
 * Owns nothing. Every function that can fail returns a lever_status and takes a lever_error that may be NULL. The
 * message is written once, where the fact is known, and passed up unchanged; a caller that knows more (which file,
 * which tensor) puts its words in front with lv_error_prefix. Any thread. */
#ifndef LV_BASE_STATUS_H
#define LV_BASE_STATUS_H

#include "lever.h"

/* Fills `error` (when not NULL) and returns `status`. */
lever_status lv_fail(lever_error *error, lever_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts text in front of the message that is there; what does not fit is cut at the end. */
void lv_error_prefix(lever_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets LEVER_OK and an empty message. NULL is accepted. */
void lv_error_clear(lever_error *error);

/* Passes a failure up. */
#define LV_TRY(call)                                         \
    do {                                                     \
        lever_status lv_try_status = (call);                 \
        if (lv_try_status != LEVER_OK) return lv_try_status; \
    } while (0)

#endif
