/* file.c - reads that end in exactly the bytes asked for, or in an error that says why not.
 *
 * Two descriptors of one file: one with O_DIRECT, one buffered. The buffered one is there from the start, because the
 * path may name another file by the time it is needed. It serves three cases: the system refused O_DIRECT at opening;
 * it refused the first read with EINVAL (some file systems accept the flag and nothing else), after which the file is
 * read buffered for good; or a direct read came back short at an odd place, where no direct read can go on. What was
 * read buffered is dropped from the page cache at once: it counts against the memory budget like everything else.
 *
 * Before a read the open file is compared with what it was at opening. A file that was written in place meanwhile would
 * give weights that belong to no model; one that was replaced by a rename lives on behind our descriptors. */
#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "base/os_file.h"

#define BOUNCE_BYTES ((size_t)64 << 10)

struct lv_file {
    char *path;
    int direct;   /* descriptor; -1: the system refused it */
    int buffered; /* descriptor */
    uint64_t bytes;
    struct timespec modified;
    lv_log log;
    lv_pacer *pacer;
    atomic_bool is_direct; /* goes from true to false once, by the first read that is refused */
};

static lever_status fail_errno(const lv_file *file, const char *what, int number, lever_error *error) {
    return lv_fail(error, LEVER_E_IO, "Cannot %s '%s': %s.", what, file->path, strerror(number));
}

static void warn_buffered(const lv_file *file) {
    lv_log_write(&file->log, LEVER_LOG_WARNING,
                 "'%s': this file system does not allow direct reads; reading through the page cache, more slowly.",
                 file->path);
}

/* Opens the buffered descriptor and takes down what the file is now. */
static lever_status open_buffered(lv_file *file, lever_error *error) {
    file->buffered = lv_os_open(file->path, false);
    if (file->buffered < 0) {
        int number = errno;
        bool path_is_wrong = number == ENOENT || number == ENOTDIR || number == EACCES || number == EPERM ||
                             number == ELOOP || number == ENAMETOOLONG || number == ENXIO || number == EISDIR;
        if (!path_is_wrong) return fail_errno(file, "open", number, error);
        return lv_fail(error, LEVER_E_FORMAT, "Cannot open '%s': %s. Check the path and who may read it.", file->path,
                       strerror(number));
    }
    struct stat status;
    if (lv_os_fstat(file->buffered, &status) != 0) return fail_errno(file, "examine", errno, error);
    if (!S_ISREG(status.st_mode))
        return lv_fail(error, LEVER_E_FORMAT, "'%s' is %s, not a file.", file->path,
                       S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
    file->bytes = (uint64_t)status.st_size;
    file->modified = status.st_mtim;
    return LEVER_OK;
}

/* Opens the direct descriptor where the system allows it and the path still names the same file. */
static void open_direct(lv_file *file) {
    struct stat buffered, direct;
    file->direct = lv_os_open(file->path, true);
    if (file->direct >= 0 && (lv_os_fstat(file->direct, &direct) != 0 || lv_os_fstat(file->buffered, &buffered) != 0 ||
                              direct.st_ino != buffered.st_ino || direct.st_dev != buffered.st_dev)) {
        lv_os_close(file->direct);
        file->direct = -1;
    }
    if (file->direct < 0) warn_buffered(file);
    atomic_store(&file->is_direct, file->direct >= 0);
}

lever_status lv_file_open(lv_file **file, const char *path, const lv_file_options *options, lever_error *error) {
    *file = NULL;
    void *memory = NULL;
    lever_status status = lv_alloc_checked(&memory, options->ledger, LV_MEM_METADATA, 1, sizeof(lv_file), path, error);
    if (status != LEVER_OK) return status;
    lv_file *self = memory;
    self->direct = self->buffered = -1;
    if (options->log) self->log = *options->log;
    self->pacer = options->pacer;
    self->path = lv_strdup(options->ledger, LV_MEM_METADATA, path);
    if (!self->path) {
        status = lv_fail(error, LEVER_E_MEMORY, "Cannot open '%s': no memory for its name.", path);
        goto done;
    }
    status = open_buffered(self, error);
    if (status == LEVER_OK && options->direct) open_direct(self);
done:
    if (status != LEVER_OK) lv_file_close(&self);
    *file = self;
    return status;
}

void lv_file_close(lv_file **file) {
    lv_file *self = *file;
    if (!self) return;
    if (self->direct >= 0) lv_os_close(self->direct);
    if (self->buffered >= 0) lv_os_close(self->buffered);
    lv_free(self->path);
    lv_free(self);
    *file = NULL;
}

uint64_t lv_file_bytes(const lv_file *file) {
    return file->bytes;
}

const char *lv_file_path(const lv_file *file) {
    return file->path;
}

bool lv_file_is_direct(const lv_file *file) {
    return atomic_load(&file->is_direct);
}

static lever_status check_unchanged(const lv_file *file, lever_error *error) {
    struct stat now;
    if (lv_os_fstat(file->buffered, &now) != 0) return fail_errno(file, "examine", errno, error);
    if ((uint64_t)now.st_size < file->bytes)
        return lv_fail(error, LEVER_E_IO,
                       "'%s' was cut while in use: it had %" PRIu64 " bytes, now it has %" PRIu64
                       ". Restore the file and open it again.",
                       file->path, file->bytes, (uint64_t)now.st_size);
    if ((uint64_t)now.st_size != file->bytes || now.st_mtim.tv_sec != file->modified.tv_sec ||
        now.st_mtim.tv_nsec != file->modified.tv_nsec)
        return lv_fail(error, LEVER_E_IO, "'%s' was written to while in use. Open it again.", file->path);
    return LEVER_OK;
}

/* The descriptor for the next read, that can go on at `data` and `offset`. */
static int choose_descriptor(const lv_file *file, const uint8_t *data, uint64_t offset, size_t bytes) {
    bool aligned = ((uintptr_t)data | offset | bytes) % LV_FILE_ALIGN == 0;
    return aligned && lv_file_is_direct(file) ? file->direct : file->buffered;
}

/* Reads up to `wanted` bytes, of which the first `needed` must come; a direct read asks for whole pages and may meet
 * the end of the file in the last one. */
static lever_status read_range(lv_file *file, uint8_t *data, uint64_t offset, size_t wanted, size_t needed,
                               lever_error *error) {
    lever_status status = check_unchanged(file, error);
    if (status != LEVER_OK) return status;
    const uint64_t end_ns = lv_pacer_begin(file->pacer, wanted);
    size_t got = 0;
    while (got < needed) {
        int descriptor = choose_descriptor(file, data + got, offset + got, wanted - got);
        bool buffered = descriptor == file->buffered;
        ssize_t count = lv_os_pread(descriptor, data + got, wanted - got, offset + got);
        if (count > 0) {
            if (buffered) lv_os_drop_pages(descriptor, offset + got, (size_t)count);
            got += (size_t)count;
        } else if (count == 0) {
            return lv_fail(error, LEVER_E_IO,
                           "'%s' ends at byte %" PRIu64
                           ", where %zu more were wanted: it was cut while in use. Restore "
                           "the file and open it again.",
                           file->path, offset + got, needed - got);
        } else if (errno == EINVAL && !buffered) {
            if (atomic_exchange(&file->is_direct, false)) warn_buffered(file);
        } else if (errno != EINTR) {
            return lv_fail(error, LEVER_E_IO, "Cannot read %zu bytes at %" PRIu64 " of '%s': %s.", needed - got,
                           offset + got, file->path, strerror(errno));
        }
    }
    lv_pacer_wait(file->pacer, end_ns);
    return LEVER_OK;
}

/* Bytes of [offset, offset + bytes) that the file has. */
static size_t clip(const lv_file *file, uint64_t offset, size_t bytes) {
    uint64_t left = offset < file->bytes ? file->bytes - offset : 0;
    return left < bytes ? (size_t)left : bytes;
}

static lever_status check_range(const lv_file *file, uint64_t offset, size_t bytes, lever_error *error) {
    if (clip(file, offset, bytes) == bytes) return LEVER_OK;
    return lv_fail(error, LEVER_E_IO,
                   "'%s' has %" PRIu64 " bytes; %zu bytes at %" PRIu64 " are past its end. It was cut: fetch it again.",
                   file->path, file->bytes, bytes, offset);
}

/* Direct reading of what is not aligned: whole pages into a buffer on the stack, from there to the caller. */
static lever_status read_bounced(lv_file *file, uint8_t *data, uint64_t offset, size_t bytes, lever_error *error) {
    alignas(4096) uint8_t bounce[BOUNCE_BYTES];
    static_assert(LV_FILE_ALIGN == 4096 && BOUNCE_BYTES % LV_FILE_ALIGN == 0, "the buffer is read into directly");
    while (bytes > 0) {
        size_t skip = (size_t)(offset % LV_FILE_ALIGN);
        size_t count = bytes < BOUNCE_BYTES - skip ? bytes : BOUNCE_BYTES - skip;
        size_t needed = skip + count;
        size_t wanted = lv_file_superset_bytes(offset, count);
        lever_status status = read_range(file, bounce, offset - skip, wanted, needed, error);
        if (status != LEVER_OK) return status;
        memcpy(data, bounce + skip, count);
        data += count;
        offset += count;
        bytes -= count;
    }
    return LEVER_OK;
}

lever_status lv_file_read(lv_file *file, void *data, uint64_t offset, size_t bytes, lever_error *error) {
    lever_status status = check_range(file, offset, bytes, error);
    if (status != LEVER_OK || bytes == 0) return status;
    bool aligned = ((uintptr_t)data | offset | bytes) % LV_FILE_ALIGN == 0;
    if (lv_file_is_direct(file) && !aligned) return read_bounced(file, data, offset, bytes, error);
    return read_range(file, data, offset, bytes, bytes, error);
}

size_t lv_file_superset_bytes(uint64_t offset, size_t bytes) {
    size_t skip = (size_t)(offset % LV_FILE_ALIGN);
    return (skip + bytes + LV_FILE_ALIGN - 1) / LV_FILE_ALIGN * LV_FILE_ALIGN;
}

lever_status lv_file_read_superset(lv_file *file, void *data, uint64_t offset, size_t bytes, size_t *skip,
                                   lever_error *error) {
    assert((uintptr_t)data % LV_FILE_ALIGN == 0);
    *skip = (size_t)(offset % LV_FILE_ALIGN);
    lever_status status = check_range(file, offset, bytes, error);
    if (status != LEVER_OK || bytes == 0) return status;
    return read_range(file, data, offset - *skip, lv_file_superset_bytes(offset, bytes), *skip + bytes, error);
}
