/* ggml_log.h - hearing what ggml and libllama say while lever calls them.
 *
 * Their log is one function for the whole process. It is set once, to one without state of its own, which drops
 * everything but what the thread that is calling has asked for; so any number of threads can listen at once. A library
 * that brings a ggml of its own, as a backend in a file does, keeps a log of its own. */
#ifndef LV_MODEL_GGML_LOG_H
#define LV_MODEL_GGML_LOG_H

#include <ggml.h>

#include "base/log.h"

typedef struct {
    const lv_log *log;  /* hears warnings and errors, as lines for who looks for a fault */
    const char *source; /* what these lines begin with */
    char error[256];    /* the first error, for a message; "": none */
} lv_ggml_listener;

/* From now on, for this thread, until it is called with NULL. The listener is borrowed. */
void lv_ggml_listen(lv_ggml_listener *listener);

/* The function that the log is set to; libllama has a second log, which is set by who uses it. */
void lv_ggml_hear(enum ggml_log_level level, const char *text, void *user);

#endif
