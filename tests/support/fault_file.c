/* fault_file.c - stands between file.c and the system, by the linker's --wrap. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/os_file.h"
#include "support/fault.h"

int __real_lv_os_open(const char *path, bool direct);
ssize_t __real_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
int __real_lv_os_fstat(int descriptor, struct stat *status);
void __real_lv_os_drop_pages(int descriptor, uint64_t offset, size_t bytes);
int __real_lv_os_close(int descriptor);

int __wrap_lv_os_open(const char *path, bool direct);
ssize_t __wrap_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset);
int __wrap_lv_os_fstat(int descriptor, struct stat *status);
void __wrap_lv_os_drop_pages(int descriptor, uint64_t offset, size_t bytes);
int __wrap_lv_os_close(int descriptor);

typedef struct {
    _Atomic uint64_t first, length, calls;
    _Atomic int kind;
} faults;

static faults reading, opening;
static _Atomic int64_t descriptors;
static _Atomic uint64_t drops;

static void set(faults *self, fault_kind kind, uint64_t nth, uint64_t count) {
    self->first = nth;
    self->length = count;
    self->calls = 0;
    self->kind = (int)kind;
}

static bool fails(faults *self) {
    uint64_t call = atomic_fetch_add(&self->calls, 1) + 1;
    return self->first != 0 && call >= self->first && call - self->first < self->length;
}

void fault_read_set(fault_kind kind, uint64_t nth, uint64_t count) {
    set(&reading, kind, nth, count);
}

uint64_t fault_read_calls(void) {
    return reading.calls;
}

void fault_open_set(fault_kind kind, uint64_t nth, uint64_t count) {
    set(&opening, kind, nth, count);
}

uint64_t fault_open_calls(void) {
    return opening.calls;
}

int64_t fault_file_descriptors(void) {
    return descriptors;
}

uint64_t fault_drop_calls(void) {
    return drops;
}

/* The errno of a failing call, 0 for kinds that let it through in some form. */
static int failing_errno(int kind, bool direct) {
    switch (kind) {
    case FAULT_EIO:
        return EIO;
    case FAULT_EINTR:
        return EINTR;
    case FAULT_EINVAL_DIRECT:
        return direct ? EINVAL : 0;
    default:
        return 0;
    }
}

int __wrap_lv_os_open(const char *path, bool direct) {
    int number = fails(&opening) ? failing_errno(opening.kind, direct) : 0;
    if (number) {
        errno = number;
        return -1;
    }
    int descriptor = __real_lv_os_open(path, direct);
    if (descriptor >= 0) descriptors++;
    return descriptor;
}

ssize_t __wrap_lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset) {
    if (!fails(&reading)) return __real_lv_os_pread(descriptor, data, bytes, offset);
    int kind = reading.kind;
    bool direct = (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
    int number = failing_errno(kind, direct);
    if (number) {
        errno = number;
        return -1;
    }
    if (kind == FAULT_END) return 0;
    ssize_t got = __real_lv_os_pread(descriptor, data, bytes, offset);
    if (got <= 1 && kind != FAULT_GARBAGE) return got;
    if (kind == FAULT_SHORT) return got / 2;
    if (kind == FAULT_SHORT_ODD) return got - 1;
    if (kind == FAULT_GARBAGE && got > 0) *(uint8_t *)data ^= 1;
    return got;
}

int __wrap_lv_os_fstat(int descriptor, struct stat *status) {
    return __real_lv_os_fstat(descriptor, status);
}

void __wrap_lv_os_drop_pages(int descriptor, uint64_t offset, size_t bytes) {
    drops++;
    __real_lv_os_drop_pages(descriptor, offset, bytes);
}

int __wrap_lv_os_close(int descriptor) {
    descriptors--;
    return __real_lv_os_close(descriptor);
}
