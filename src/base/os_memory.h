/* os_memory.h - the only calls that ask the system for memory.
 *
 * A seam for tests: they replace these functions when linking (--wrap) to make the n-th request fail. Called by
 * memory.c and ledger.c alone. */
#ifndef LV_BASE_OS_MEMORY_H
#define LV_BASE_OS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void *lv_os_calloc(size_t bytes);
void *lv_os_realloc(void *memory, size_t bytes);
void lv_os_free(void *memory);
void *lv_os_map(size_t bytes); /* anonymous, private, zero; NULL on failure */
void lv_os_unmap(void *memory, size_t bytes);
bool lv_os_advise_huge(void *memory, size_t bytes);

#endif
