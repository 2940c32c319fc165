/* bench_rows.c - see bench_rows.h. */
#include "bench_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/text.h"
#include "json_reader.h"

enum { ID_BYTES = 128 };

/* What each row begins with, half-written ones too as far as they go. */
static const char row_begin[] = "{\"schema\": ";

typedef struct {
    char id[ID_BYTES];
    bench_result result;
    double schema;
} read_row;

static void copy_text(char *to, size_t capacity, const json_member *member) {
    snprintf(to, capacity, "%s", member->kind == JSON_STRING ? member->text : "");
}

static void take_member(void *user, const json_member *member) {
    read_row *row = user;
    bench_result *r = &row->result;
    const char *path = member->path;
    if (strcmp(path, "id") == 0) copy_text(row->id, sizeof row->id, member);
    if (strcmp(path, "reason") == 0) copy_text(r->reason, sizeof r->reason, member);
    if (strcmp(path, "values.tokens_sha256") == 0) copy_text(r->tokens_sha256, sizeof r->tokens_sha256, member);
    if (strcmp(path, "schema") == 0) row->schema = member->number;
    if (strcmp(path, "values.decode_tokens_per_second") == 0) r->decode_tokens_per_second = member->number;
    if (strcmp(path, "values.tokens_per_cycle") == 0) r->tokens_per_cycle = member->number;
    if (strcmp(path, "values.bytes_per_token") == 0) r->bytes_per_token = member->number;
    if (strcmp(path, "values.seconds") == 0) r->seconds = member->number;
    if (strcmp(path, "status") == 0) {
        r->status = member->kind == JSON_STRING && strcmp(member->text, "ok") == 0 ? BENCH_OK : BENCH_FAILED;
    }
}

/* Reads the whole lines; *whole is where the last of them ends. What stands behind them is cut off later: only where it
 * may be what a killed run left. */
static bool read_rows(FILE *file, const char *path, bench_row_fn on_row, void *user, off_t *whole, char *message,
                      size_t message_bytes) {
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t length = 0;
    bool right = true;
    *whole = 0;
    while (right && (length = getline(&line, &capacity, file)) > 0 && line[length - 1] == '\n') {
        read_row row = {0};
        const char *problem = NULL;
        number++;
        *whole += length;
        if (strspn(line, " \t\r\n") == (size_t)length) continue;
        right = json_read_object(line, (size_t)length, take_member, &row, &problem);
        if (right && (int)row.schema != BENCH_SCHEMA) {
            problem = "a row of another schema";
            right = false;
        }
        if (right) {
            on_row(user, row.id, &row.result);
        } else {
            snprintf(message, message_bytes, "%s:%zu: %s", path, number, problem);
        }
    }
    if (right && ferror(file) != 0) {
        snprintf(message, message_bytes, "reading %s failed: %s", path, strerror(errno));
        right = false;
    } else if (right && length > 0 && !lv_text_may_begin(line, (size_t)length, row_begin)) {
        snprintf(message, message_bytes,
                 "%s:%zu: not a row of lever bench; name a file of rows, or begin one with --out", path, number + 1);
        right = false;
    }
    free(line);
    return right;
}

bool bench_rows_open(bench_rows *rows, const char *path, bool resume, bench_row_fn on_row, void *user, char *message,
                     size_t message_bytes) {
    rows->path = path;
    rows->file = fopen(path, resume ? "r+e" : "wxe");
    if (rows->file == NULL && !resume && errno == EEXIST) {
        snprintf(message, message_bytes, "%s is there already: --resume %s goes on with it", path, path);
        return false;
    }
    if (rows->file == NULL) {
        snprintf(message, message_bytes, "the rows %s cannot be %s: %s", path, resume ? "read" : "written",
                 strerror(errno));
        return false;
    }
    off_t whole = 0;
    if (flock(fileno(rows->file), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        snprintf(message, message_bytes, "%s is being written by another lever bench; wait for its end", path);
        return false;
    }
    if (!resume) return true;
    if (!read_rows(rows->file, path, on_row, user, &whole, message, message_bytes)) return false;
    if (ftruncate(fileno(rows->file), whole) != 0 || fseeko(rows->file, whole, SEEK_SET) != 0) {
        snprintf(message, message_bytes, "cutting the half-written last line of %s failed: %s", path, strerror(errno));
        return false;
    }
    return true;
}

bool bench_rows_append(const bench_rows *rows, const json *row) {
    if (row->failed) return false;
    return fwrite(row->text, 1, row->bytes, rows->file) == row->bytes && fputc('\n', rows->file) != EOF &&
           fflush(rows->file) == 0;
}

bool bench_rows_close(bench_rows *rows) {
    if (rows->file == NULL) return true;
    const bool failed = ferror(rows->file) != 0;
    const bool closed = fclose(rows->file) == 0;
    rows->file = NULL;
    return closed && !failed;
}
