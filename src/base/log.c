/* log.c - formats a line on the stack and hands it to the user's callback; what is longer than the buffer is cut. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void lv_log_write(const lv_log *log, lever_log_level level, const char *format, ...) {
    if (!log || !log->fn) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log->fn(log->user, level, line);
}
