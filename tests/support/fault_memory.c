/* fault_memory.c - stands between memory.c and the system's allocator, by the linker's --wrap. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/os_memory.h"
#include "support/fault.h"

void *__real_lv_os_calloc(size_t bytes);
void *__real_lv_os_realloc(void *memory, size_t bytes);
void __real_lv_os_free(void *memory);
void *__real_lv_os_map(size_t bytes);
void __real_lv_os_unmap(void *memory, size_t bytes);
bool __real_lv_os_advise_huge(void *memory, size_t bytes);

void *__wrap_lv_os_calloc(size_t bytes);
void *__wrap_lv_os_realloc(void *memory, size_t bytes);
void __wrap_lv_os_free(void *memory);
void *__wrap_lv_os_map(size_t bytes);
void __wrap_lv_os_unmap(void *memory, size_t bytes);
bool __wrap_lv_os_advise_huge(void *memory, size_t bytes);

static _Atomic uint64_t first, length, calls;
static _Atomic int64_t blocks, mapped_bytes;

void fault_memory_set(uint64_t nth, uint64_t count) {
    first = nth;
    length = count;
    calls = 0;
}

uint64_t fault_memory_calls(void) {
    return calls;
}

int64_t fault_memory_blocks(void) {
    return blocks;
}

int64_t fault_memory_mapped_bytes(void) {
    return mapped_bytes;
}

static bool fails(void) {
    uint64_t call = atomic_fetch_add(&calls, 1) + 1;
    return first != 0 && call >= first && call - first < length;
}

void *__wrap_lv_os_calloc(size_t bytes) {
    void *memory = fails() ? NULL : __real_lv_os_calloc(bytes);
    if (memory) blocks++;
    return memory;
}

void *__wrap_lv_os_realloc(void *memory, size_t bytes) {
    return fails() ? NULL : __real_lv_os_realloc(memory, bytes);
}

void __wrap_lv_os_free(void *memory) {
    if (memory) blocks--;
    __real_lv_os_free(memory);
}

void *__wrap_lv_os_map(size_t bytes) {
    void *memory = fails() ? NULL : __real_lv_os_map(bytes);
    if (memory) mapped_bytes += (int64_t)bytes;
    return memory;
}

void __wrap_lv_os_unmap(void *memory, size_t bytes) {
    mapped_bytes -= (int64_t)bytes;
    __real_lv_os_unmap(memory, bytes);
}

bool __wrap_lv_os_advise_huge(void *memory, size_t bytes) {
    return __real_lv_os_advise_huge(memory, bytes);
}
