/* ggml_log.c - the one place where lever cannot pass its own pointer: the callback has a single, global argument. */
#include "model/ggml_log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf.h"

static _Thread_local lv_ggml_listener *listening;

void lv_ggml_hear(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    lv_ggml_listener *l = listening;
    if (!l || level < GGML_LOG_LEVEL_WARN || level > GGML_LOG_LEVEL_ERROR) return;
    char line[256];
    lv_gguf_printable(text, strcspn(text, "\n"), line, sizeof line);
    if (!line[0]) return;
    if (level == GGML_LOG_LEVEL_ERROR && !l->error[0]) snprintf(l->error, sizeof l->error, "%s", line);
    lv_log_write(l->log, LEVER_LOG_DEBUG, "%s: %s", l->source, line);
}

static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void set_log(void) {
    ggml_log_set(lv_ggml_hear, NULL);
}

void lv_ggml_listen(lv_ggml_listener *listener) {
    pthread_once(&log_once, set_log);
    listening = listener;
}
