/* os_file.c - the system calls behind file.c, in a file of their own so that a linker can put others in their place. */
#include "base/os_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int lv_os_open(const char *path, bool direct) {
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* non-blocking: a FIFO without a writer must not hang us */
#ifdef O_DIRECT
    if (direct) flags |= O_DIRECT;
#else
    if (direct) {
        errno = EINVAL;
        return -1;
    }
#endif
    return open(path, flags);
}

ssize_t lv_os_pread(int descriptor, void *data, size_t bytes, uint64_t offset) {
    return pread(descriptor, data, bytes, (off_t)offset);
}

int lv_os_fstat(int descriptor, struct stat *status) {
    return fstat(descriptor, status);
}

void lv_os_drop_pages(int descriptor, uint64_t offset, size_t bytes) {
    posix_fadvise(descriptor, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

int lv_os_close(int descriptor) {
    return close(descriptor);
}
