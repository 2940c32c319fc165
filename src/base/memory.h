/* memory.h - all memory of lever's own, booked in a ledger.
 *
 * Two kinds. Heap memory (lv_alloc) is for tables and objects: zeroed, booked by its exact size. An area (lv_area) is
 * for what is large: mapped alone, aligned to 2 MiB, asked to be huge pages, touched at opening in steps of 2 MiB, so
 * that a refusal comes at opening and never in the middle of an answer. Who gets memory from here gives it back here.
 * Any thread. Requests reach the system only through os_memory.h, where tests make them fail. */
#ifndef LV_BASE_MEMORY_H
#define LV_BASE_MEMORY_H

#include "base/ledger.h"

/* Zeroed; NULL when the ledger or the system refuses, or when count * bytes overflows. `ledger` may be NULL. */
void *lv_alloc(lv_ledger *ledger, lv_category category, size_t count, size_t bytes);

/* The same with an error: LEVER_E_BUDGET or LEVER_E_MEMORY, saying for what. */
lever_status lv_alloc_checked(void **memory, lv_ledger *ledger, lv_category category, size_t count, size_t bytes,
                              const char *what, lever_error *error);

/* Grows or shrinks; the old block stays valid when NULL is returned. `memory` must not be NULL. New bytes are zero. */
void *lv_realloc(void *memory, size_t count, size_t bytes);

/* A terminated copy. */
char *lv_strdup(lv_ledger *ledger, lv_category category, const char *text);

void lv_free(void *memory); /* NULL is accepted */

#define LV_HUGE_PAGE_BYTES ((size_t)2 << 20)

typedef struct lv_area {
    uint8_t *data; /* aligned to 2 MiB; NULL: not open */
    size_t bytes;  /* usable */
    size_t mapped_bytes;
    lv_category category;
    lv_ledger *ledger;
} lv_area;

typedef struct {
    bool huge_pages; /* ask the kernel for huge pages */
    bool touch;      /* fault everything in now */
} lv_area_options;

/* Books `bytes` rounded up to whole pages of at least 4 KiB. On failure `area` is left closed. */
lever_status lv_area_open(lv_area *area, lv_ledger *ledger, lv_category category, size_t bytes,
                          const lv_area_options *options, const char *what, lever_error *error);
void lv_area_close(lv_area *area); /* a closed or zeroed area is accepted */

size_t lv_area_booked_bytes(size_t bytes); /* what lv_area_open books for `bytes` */

#endif
