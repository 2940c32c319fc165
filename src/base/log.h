/* log.h - where lines for the user go.
 *
 * A lv_log is a borrowed callback and its argument; copying it is cheap. Modules take `const lv_log *`, NULL meaning
 * silence. One line per load, per request, per fallback; numbers go to statistics. Any thread; never called under a
 * lock of lever's. */
#ifndef LV_BASE_LOG_H
#define LV_BASE_LOG_H

#include "lever.h"

typedef struct lv_log {
    lever_log_fn fn; /* may be NULL */
    void *user;
} lv_log;

void lv_log_write(const lv_log *log, lever_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
