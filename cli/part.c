/* part.c - see part.h.
 *
 * NAME.part.from holds two lines: the source, and "PIECES BYTES". It is replaced by renaming, after the bytes it speaks
 * of are on the disk, so that it never promises too much. */
#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

#define COPY_BYTES ((size_t)1 << 20)

static lever_status io_failed(lever_error *error, const char *doing, const char *path) {
    return lv_fail(error, LEVER_E_IO, "%s %s failed: %s", doing, path, strerror(errno));
}

static bool print_path(char path[PATH_BYTES], const char *stem, const char *ending) {
    const int length = snprintf(path, PATH_BYTES, "%s%s", stem, ending);
    return length > 0 && length < PATH_BYTES;
}

/* A small text file, replaced as a whole. */
static lever_status replace_text(const char *path, const char *text, lever_error *error) {
    char temporary[PATH_BYTES];
    if (!print_path(temporary, path, ".new")) return lv_fail(error, LEVER_E_ARGUMENT, "the path %s is too long", path);
    FILE *out = fopen(temporary, "we");
    if (out == NULL) return io_failed(error, "writing", temporary);
    bool written = fputs(text, out) >= 0 && fflush(out) == 0 && fsync(fileno(out)) == 0;
    written = fclose(out) == 0 && written;
    if (!written || rename(temporary, path) != 0) return io_failed(error, "writing", path);
    return LEVER_OK;
}

/* A state that cannot be read, or promises more than there is, counts as none. */
static void read_from_file(part *file, uint64_t bytes_there) {
    FILE *in = fopen(file->from_path, "re");
    if (in == NULL) return;
    char numbers[64] = "";
    bool understood =
        fgets(file->source, sizeof file->source, in) != NULL && fgets(numbers, sizeof numbers, in) != NULL;
    fclose(in);
    file->source[strcspn(file->source, "\n")] = '\0';
    understood = understood && sscanf(numbers, "%u %" SCNu64, &file->pieces, &file->bytes) == 2;
    if (!understood || file->bytes > bytes_there) {
        file->source[0] = '\0';
        file->pieces = 0;
        file->bytes = 0;
    }
}

lever_status part_open(part *file, const char *final_path, lever_error *error) {
    *file = (part){.descriptor = -1};
    if (!print_path(file->final_path, final_path, "") || !print_path(file->path, final_path, ".part") ||
        !print_path(file->from_path, final_path, ".part.from")) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the path %s is too long", final_path);
    }
    file->descriptor = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file->descriptor < 0) return io_failed(error, "opening", file->path);
    struct stat status;
    if (flock(file->descriptor, LOCK_EX | LOCK_NB) != 0) {
        part_close(file);
        return lv_fail(error, LEVER_E_IO, "%s is being written by another program: is 'lever pull' running already?",
                       file->path);
    }
    if (fstat(file->descriptor, &status) != 0) {
        const lever_status failed = io_failed(error, "opening", file->path);
        part_close(file);
        return failed;
    }
    file->bytes_there = (uint64_t)status.st_size;
    read_from_file(file, file->bytes_there);
    return LEVER_OK;
}

void part_close(part *file) {
    if (file->descriptor >= 0) close(file->descriptor);
    file->descriptor = -1;
}

lever_status part_cut(part *file, uint64_t bytes, lever_error *error) {
    if (ftruncate(file->descriptor, (off_t)bytes) != 0) return io_failed(error, "shortening", file->path);
    file->bytes = file->bytes_there = bytes;
    return LEVER_OK;
}

lever_status part_begin(part *file, const char *source, lever_error *error) {
    if (strcmp(file->source, source) == 0) return LEVER_OK;
    snprintf(file->source, sizeof file->source, "%s", source);
    LV_TRY(part_cut(file, 0, error));
    return part_record(file, 0, error);
}

lever_status part_append(part *file, const void *data, size_t bytes, lever_error *error) {
    const char *from = data;
    while (bytes > 0) {
        const ssize_t written = pwrite(file->descriptor, from, bytes, (off_t)file->bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return io_failed(error, "writing", file->path);
        from += written;
        bytes -= (size_t)written;
        file->bytes += (uint64_t)written;
    }
    return LEVER_OK;
}

lever_status part_record(part *file, unsigned pieces, lever_error *error) {
    if (fdatasync(file->descriptor) != 0) return io_failed(error, "writing", file->path);
    file->pieces = pieces;
    char text[PART_SOURCE_BYTES + 64];
    snprintf(text, sizeof text, "%s\n%u %" PRIu64 "\n", file->source, file->pieces, file->bytes);
    return replace_text(file->from_path, text, error);
}

static lever_status checksum_of(int descriptor, const char *path, char checksum[SHA256_TEXT_BYTES], progress *bar,
                                lever_error *error) {
    struct stat status;
    uint8_t *buffer = malloc(COPY_BYTES);
    if (buffer == NULL) return lv_fail(error, LEVER_E_MEMORY, "no memory for checking %s", path);
    lever_status result = LEVER_OK;
    sha256 hash;
    sha256_init(&hash);
    if (fstat(descriptor, &status) != 0) result = io_failed(error, "reading", path);
    for (uint64_t done = 0; result == LEVER_OK;) {
        const ssize_t got = pread(descriptor, buffer, COPY_BYTES, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) result = io_failed(error, "reading", path);
        if (got <= 0) break;
        sha256_update(&hash, buffer, (size_t)got);
        done += (uint64_t)got;
        progress_update(bar, done, (uint64_t)status.st_size);
    }
    sha256_finish(&hash, checksum);
    free(buffer);
    return result;
}

lever_status file_checksum(const char *path, char checksum[SHA256_TEXT_BYTES], progress *bar, lever_error *error) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return io_failed(error, "opening", path);
    const lever_status status = checksum_of(descriptor, path, checksum, bar, error);
    close(descriptor);
    return status;
}

bool file_stated_checksum(const char *final_path, char checksum[SHA256_TEXT_BYTES]) {
    char path[PATH_BYTES];
    FILE *in = print_path(path, final_path, ".sha256") ? fopen(path, "re") : NULL;
    if (in == NULL) return false;
    const size_t got = fread(checksum, 1, SHA256_TEXT_BYTES - 1, in);
    fclose(in);
    checksum[SHA256_TEXT_BYTES - 1] = '\0';
    return got == SHA256_TEXT_BYTES - 1 && strspn(checksum, "0123456789abcdef") == got;
}

/* The name of a file is on the disk once its folder is. */
static void sync_folder_of(const char *path) {
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    (void)fsync(descriptor);
    close(descriptor);
}

lever_status part_finish(part *file, const char *checksum, progress *bar, lever_error *error) {
    char found[SHA256_TEXT_BYTES], stated_path[PATH_BYTES], text[PATH_BYTES + SHA256_TEXT_BYTES + 4];
    LV_TRY(checksum_of(file->descriptor, file->path, found, bar, error));
    progress_close(bar);
    if (strcmp(found, checksum) != 0) {
        unlink(file->path);
        unlink(file->from_path);
        return lv_fail(
            error, LEVER_E_FORMAT,
            "%s has the SHA-256 %s, not %s: what was fetched is damaged, or is not the file that was wanted. "
            "It is deleted; fetch it again",
            file->path, found, checksum);
    }
    if (fsync(file->descriptor) != 0) return io_failed(error, "writing", file->path);
    const char *name = strrchr(file->final_path, '/');
    snprintf(text, sizeof text, "%s  %s\n", found, name != NULL ? name + 1 : file->final_path);
    if (!print_path(stated_path, file->final_path, ".sha256")) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the path %s is too long", file->final_path);
    }
    LV_TRY(replace_text(stated_path, text, error));
    if (rename(file->path, file->final_path) != 0) return io_failed(error, "renaming", file->path);
    unlink(file->from_path);
    sync_folder_of(file->final_path);
    return LEVER_OK;
}
