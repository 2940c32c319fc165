/* os_memory.c - calloc and mmap, in a file of their own so that a linker can put others in their place. */
#include "base/os_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

void *lv_os_calloc(size_t bytes) {
    return calloc(1, bytes);
}

void *lv_os_realloc(void *memory, size_t bytes) {
    return realloc(memory, bytes);
}

void lv_os_free(void *memory) {
    free(memory);
}

void *lv_os_map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void lv_os_unmap(void *memory, size_t bytes) {
    munmap(memory, bytes);
}

bool lv_os_advise_huge(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    return madvise(memory, bytes, MADV_HUGEPAGE) == 0;
#else
    (void)memory;
    (void)bytes;
    return false;
#endif
}
