/* memory.c - heap blocks with a header that remembers their booking, and large areas mapped alone.
 *
 *     heap block:  | header: ledger, bytes, category | the caller's bytes, aligned to 16 ... |
 *
 *     area:        |  cut off  |data, aligned to 2 MiB ............ whole pages|  cut off  |
 *
 * A block's header lets lv_free release what was booked without being told. An area is mapped larger than asked, then
 * cut to size on both sides, because the kernel gives huge pages only where 2 MiB of addresses lie aligned.
 *
 * Booking counts the caller's bytes. What headers and the system's allocator add is the ledger's LV_MEM_SLACK. */
#include "base/memory.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/os_memory.h"
#include "base/text.h"

typedef struct {
    lv_ledger *ledger;
    size_t bytes;
    lv_category category;
    uint32_t guard; /* tells a block of ours from a stray pointer, and a freed one from a living one */
} header;

#define HEADER_BYTES ((size_t)32)
#define HEADER_GUARD UINT32_C(0x6c657672)

_Static_assert(sizeof(header) <= HEADER_BYTES, "the header must fit in front of the block");
_Static_assert(HEADER_BYTES % 16 == 0, "blocks are aligned to 16");

static header *header_of(void *memory) {
    header *block = (header *)(void *)((uint8_t *)memory - HEADER_BYTES);
    assert(block->guard == HEADER_GUARD);
    return block;
}

static bool bytes_product(size_t count, size_t bytes, size_t *product) {
    return !__builtin_mul_overflow(count, bytes, product) && *product <= SIZE_MAX / 2;
}

lever_status lv_alloc_checked(void **memory, lv_ledger *ledger, lv_category category, size_t count, size_t bytes,
                              const char *what, lever_error *error) {
    *memory = NULL;
    size_t total = 0;
    if (!bytes_product(count, bytes, &total))
        return lv_fail(error, LEVER_E_MEMORY, "%s: %zu items of %zu bytes are more than can be addressed.", what, count,
                       bytes);
    lever_status status = lv_ledger_reserve(ledger, category, total, error);
    if (status != LEVER_OK) {
        lv_error_prefix(error, "%s: ", what);
        return status;
    }
    header *block = lv_os_calloc(HEADER_BYTES + total);
    if (!block) {
        lv_ledger_release(ledger, category, total);
        char size[32];
        return lv_fail(error, LEVER_E_MEMORY, "%s: the system refused %s of memory. Close other programs.", what,
                       lv_format_size(total, size, sizeof size));
    }
    *block = (header){ledger, total, category, HEADER_GUARD};
    *memory = (uint8_t *)block + HEADER_BYTES;
    return LEVER_OK;
}

void *lv_alloc(lv_ledger *ledger, lv_category category, size_t count, size_t bytes) {
    void *memory = NULL;
    (void)lv_alloc_checked(&memory, ledger, category, count, bytes, lv_category_name(category), NULL);
    return memory; /* NULL on failure */
}

void *lv_realloc(void *memory, size_t count, size_t bytes) {
    header *block = header_of(memory);
    size_t total = 0;
    if (!bytes_product(count, bytes, &total)) return NULL;
    const header old = *block;
    if (total > old.bytes && lv_ledger_reserve(old.ledger, old.category, total - old.bytes, NULL) != LEVER_OK)
        return NULL;
    block = lv_os_realloc(block, HEADER_BYTES + total);
    if (!block) {
        if (total > old.bytes) lv_ledger_release(old.ledger, old.category, total - old.bytes);
        return NULL;
    }
    block->bytes = total;
    if (total < old.bytes) lv_ledger_release(old.ledger, old.category, old.bytes - total);
    uint8_t *data = (uint8_t *)block + HEADER_BYTES;
    if (total > old.bytes) memset(data + old.bytes, 0, total - old.bytes);
    return data;
}

char *lv_strdup(lv_ledger *ledger, lv_category category, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = lv_alloc(ledger, category, bytes, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void lv_free(void *memory) {
    if (!memory) return;
    header *block = header_of(memory);
    const header old = *block;
    block->guard = 0;
    lv_os_free(block);
    lv_ledger_release(old.ledger, old.category, old.bytes);
}

/* 4 KiB, or what the system has if that is more (16 KiB on some arm64 systems). */
static size_t page_bytes(void) {
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 4096 ? (size_t)bytes : 4096;
}

size_t lv_area_booked_bytes(size_t bytes) {
    size_t page = page_bytes();
    return bytes > SIZE_MAX - page ? SIZE_MAX : (bytes + page - 1) / page * page;
}

/* Writes one byte of each page, a huge page at a time: where a huge page was granted the first write brings all of it,
 * where not, the others bring the rest. */
static void touch(uint8_t *data, size_t bytes) {
    size_t page = page_bytes();
    for (size_t step = 0; step < bytes; step += LV_HUGE_PAGE_BYTES) {
        size_t end = bytes - step < LV_HUGE_PAGE_BYTES ? bytes : step + LV_HUGE_PAGE_BYTES;
        for (size_t at = step; at < end; at += page) ((volatile uint8_t *)data)[at] = 0;
    }
}

/* Maps `bytes` (whole pages) at a multiple of 2 MiB; NULL when the system refuses. */
static uint8_t *map_aligned(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t mapped = bytes + LV_HUGE_PAGE_BYTES;
    uint8_t *base = lv_os_map(mapped);
    if (!base) return NULL;
    size_t front = (LV_HUGE_PAGE_BYTES - (uintptr_t)base % LV_HUGE_PAGE_BYTES) % LV_HUGE_PAGE_BYTES;
    size_t back = mapped - front - bytes;
    if (front) lv_os_unmap(base, front);
    if (back) lv_os_unmap(base + front + bytes, back);
    return base + front;
}

lever_status lv_area_open(lv_area *area, lv_ledger *ledger, lv_category category, size_t bytes,
                          const lv_area_options *options, const char *what, lever_error *error) {
    *area = (lv_area){0};
    size_t booked = lv_area_booked_bytes(bytes ? bytes : 1);
    lever_status status = lv_ledger_reserve(ledger, category, booked, error);
    if (status != LEVER_OK) {
        lv_error_prefix(error, "%s: ", what);
        return status;
    }
    uint8_t *data = map_aligned(booked);
    if (!data) {
        lv_ledger_release(ledger, category, booked);
        char size[32];
        return lv_fail(error, LEVER_E_MEMORY,
                       "%s: the system refused to map %s. Close other programs, or lower the budget.", what,
                       lv_format_size(booked, size, sizeof size));
    }
    if (options->huge_pages) (void)lv_os_advise_huge(data, booked); /* without them it is slower, not wrong */
    if (options->touch) touch(data, booked);
    *area = (lv_area){data, bytes, booked, category, ledger};
    return LEVER_OK;
}

void lv_area_close(lv_area *area) {
    if (!area->data) return;
    lv_os_unmap(area->data, area->mapped_bytes);
    lv_ledger_release(area->ledger, area->category, area->mapped_bytes);
    *area = (lv_area){0};
}
