/* check.h - cmocka with the headers that it wants, and a few assertions of our own. */
#ifndef LV_TESTS_CHECK_H
#define LV_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lever.h"

/* The call succeeds; else the test fails with the message. `error` is a lever_error of the caller's. */
#define CHECK_OK(call)                                                                                               \
    do {                                                                                                             \
        lever_status check_status = (call);                                                                          \
        if (check_status != LEVER_OK) fail_msg("%s: %s: %s", #call, lever_status_text(check_status), error.message); \
    } while (0)

/* The call fails with this status, and its message contains the text. */
#define CHECK_FAILS(call, wanted_status, wanted_text)                                       \
    do {                                                                                    \
        lever_status check_status = (call);                                                 \
        if (check_status != (wanted_status) || error.status != (wanted_status))             \
            fail_msg("%s: got '%s', wanted '%s'", #call, lever_status_text(check_status),   \
                     lever_status_text(wanted_status));                                     \
        if (!strstr(error.message, wanted_text))                                            \
            fail_msg("%s: the message '%s' lacks '%s'", #call, error.message, wanted_text); \
    } while (0)

/* Two doubles differ by at most `tolerance`. */
#define CHECK_DOUBLE(got, wanted, tolerance)                                                       \
    do {                                                                                           \
        const double check_got = (got), check_wanted = (wanted);                                   \
        if (!(check_got <= check_wanted + (tolerance) && check_got >= check_wanted - (tolerance))) \
            fail_msg("%s: %g, wanted %g", #got, check_got, check_wanted);                          \
    } while (0)

#endif
