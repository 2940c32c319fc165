/* status.c - the texts of statuses and the writing of error messages. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *lever_status_text(lever_status status) {
    switch (status) {
#define STATUS_CASE(name, number, text) \
    case name:                          \
        return text;
        LEVER_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *lever_version(void) {
    return LEVER_VERSION_TEXT;
}

lever_status lv_fail(lever_error *error, lever_status status, const char *format, ...) {
    if (!error) return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

void lv_error_prefix(lever_error *error, const char *format, ...) {
    if (!error) return;
    char old[sizeof error->message];
    memcpy(old, error->message, sizeof old);
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (written < 0 || (size_t)written >= sizeof error->message) return;
    size_t used = (size_t)written;
    snprintf(error->message + used, sizeof error->message - used, "%s", old);
}

void lv_error_clear(lever_error *error) {
    if (!error) return;
    error->status = LEVER_OK;
    error->message[0] = '\0';
}
