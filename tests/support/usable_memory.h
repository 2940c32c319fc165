/* usable_memory.h - a system that is as short of memory as a test says. For one source of a program that is linked with
 * --wrap=lv_system_memory_read; any thread. */
#ifndef SUPPORT_USABLE_MEMORY_H
#define SUPPORT_USABLE_MEMORY_H

#include <stdatomic.h>

#include "base/system.h"

static atomic_ullong usable_bytes; /* 0: what there is */

void __real_lv_system_memory_read(const char *root, lv_system_memory *memory);
void __wrap_lv_system_memory_read(const char *root, lv_system_memory *memory);
void __wrap_lv_system_memory_read(const char *root, lv_system_memory *memory) {
    __real_lv_system_memory_read(root, memory);
    const uint64_t usable = atomic_load(&usable_bytes);
    if (usable > 0) memory->usable_bytes = usable;
}

#endif
