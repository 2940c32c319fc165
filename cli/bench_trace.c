/* bench_trace.c - see bench_trace.h. The lines of one answer stand together, so only the end of a file can be wrong. */
#include "bench_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define LINE_BEGIN "{\"row\": \""

/* The id of the row that a line belongs to; false: it is no line of such a trace. */
static bool read_id(const char *line, char id[SHA256_TEXT_BYTES]) {
    const size_t before = strlen(LINE_BEGIN);
    if (strncmp(line, LINE_BEGIN, before) != 0) return false;
    const size_t length = strcspn(line + before, "\"");
    if (length >= SHA256_TEXT_BYTES || line[before + length] != '"') return false;
    memcpy(id, line + before, length);
    id[length] = '\0';
    return true;
}

/* Returns false. */
static bool refuse_line(const char *path, size_t number, char *message, size_t message_bytes) {
    snprintf(message, message_bytes, "%s:%zu: not a line of a trace of lever bench; name another file", path, number);
    return false;
}

static bool read_whole(bench_trace *trace, const char *path, char *message, size_t message_bytes) {
    char *line = NULL, id[SHA256_TEXT_BYTES];
    size_t capacity = 0, number = 0;
    ssize_t length = 0;
    bool right = true;
    while (right && (length = getline(&line, &capacity, trace->file)) > 0 && line[length - 1] == '\n') {
        number++;
        if (!read_id(line, id)) {
            right = refuse_line(path, number, message, message_bytes);
        } else if (strcmp(id, trace->last_id) != 0) {
            memcpy(trace->last_id, id, sizeof id);
            trace->last_begin = trace->whole;
        }
        trace->whole += length;
    }
    if (right && ferror(trace->file) != 0) {
        snprintf(message, message_bytes, "reading the trace %s failed: %s", path, strerror(errno));
        right = false;
    } else if (right && length > 0 && !lv_text_may_begin(line, (size_t)length, LINE_BEGIN)) {
        right = refuse_line(path, number + 1, message, message_bytes); /* what a killed run left is cut off later */
    }
    free(line);
    return right;
}

bool bench_trace_open(bench_trace *trace, const char *path, bool resume, char *message, size_t message_bytes) {
    *trace = (bench_trace){.file = fopen(path, resume ? "r+e" : "we")};
    if (trace->file == NULL && resume && errno == ENOENT) trace->file = fopen(path, "we");
    if (trace->file == NULL) {
        snprintf(message, message_bytes, "cannot write the trace %s: %s", path, strerror(errno));
        return false;
    }
    return !resume || read_whole(trace, path, message, message_bytes);
}

static void cut(bench_trace *trace, off_t end) {
    if (fflush(trace->file) != 0 || ftruncate(fileno(trace->file), end) != 0 ||
        fseeko(trace->file, end, SEEK_SET) != 0) {
        trace->failed = true;
    }
}

void bench_trace_settle(bench_trace *trace, bool last_has_row) {
    if (trace->file != NULL) cut(trace, last_has_row ? trace->whole : trace->last_begin);
}

void bench_trace_begin(bench_trace *trace, const char *id) {
    trace->id = id;
    if (trace->file != NULL) trace->answer = ftello(trace->file);
}

void bench_trace_line(bench_trace *trace, const char *line) {
    if (fprintf(trace->file, LINE_BEGIN "%s\", \"trace\": %s}\n", trace->id, line) < 0) trace->failed = true;
}

void bench_trace_end(bench_trace *trace, bool keep) {
    if (trace->file == NULL) return;
    if (!keep) {
        cut(trace, trace->answer);
    } else if (fflush(trace->file) != 0) {
        trace->failed = true;
    }
}

bool bench_trace_close(bench_trace *trace) {
    if (trace->file == NULL) return true;
    const bool closed = fclose(trace->file) == 0;
    trace->file = NULL;
    return closed && !trace->failed;
}
