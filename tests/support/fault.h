/* fault.h - makes the n-th request to the system fail, and counts what was not given back.
 *
 * A test that carries the comment line "faults: memory", "faults: file" or "faults: memory file" (tests/CMakeLists.txt)
 * is linked so that lv_os_* calls come through here first. Until something is set, they pass unchanged. Counters run
 * from the last _set of their kind; calls are numbered from 1. Any thread, but set while no other thread calls.
 *
 * The usual loop visits every failure:
 *
 *     for (uint64_t nth = 1;; nth++) {
 *         fault_memory_set(nth, 1);
 *         ... the operation ...
 *         uint64_t calls = fault_memory_calls();
 *         fault_memory_set(0, 0);
 *         if (calls < nth) break;        nothing failed: all failures have been seen
 *     } */
#ifndef LV_TESTS_FAULT_H
#define LV_TESTS_FAULT_H

#include <stdint.h>

#define FAULT_FOR_GOOD UINT64_MAX

/* --- Memory: calloc, realloc and map are counted together --------------------------------------------------------- */

/* Calls nth to nth + count - 1 are refused; nth 0: none. */
void fault_memory_set(uint64_t nth, uint64_t count);
uint64_t fault_memory_calls(void);

/* Heap blocks and mapped bytes that are out now, whatever was set. */
int64_t fault_memory_blocks(void);
int64_t fault_memory_mapped_bytes(void);

/* --- Files -------------------------------------------------------------------------------------------------------- */

typedef enum {
    FAULT_EIO,           /* the call fails with EIO */
    FAULT_EINTR,         /* interrupted; nothing read */
    FAULT_EINVAL_DIRECT, /* EINVAL where the descriptor has O_DIRECT, else as usual */
    FAULT_SHORT,         /* half of what was asked for, at least one byte */
    FAULT_SHORT_ODD,     /* one byte less than asked for (with one asked: the one) */
    FAULT_END,           /* 0 bytes, as at the end of the file */
    FAULT_GARBAGE        /* the right number of bytes, one bit of the first one flipped */
} fault_kind;

/* Calls nth to nth + count - 1 of lv_os_pread; nth 0: none. */
void fault_read_set(fault_kind kind, uint64_t nth, uint64_t count);
uint64_t fault_read_calls(void);

/* The same for lv_os_open; of the kinds above EIO, EINTR and EINVAL_DIRECT (the flag is refused) make sense. */
void fault_open_set(fault_kind kind, uint64_t nth, uint64_t count);
uint64_t fault_open_calls(void);

/* Descriptors that are open now; pages dropped from the page cache (calls of lv_os_drop_pages). */
int64_t fault_file_descriptors(void);
uint64_t fault_drop_calls(void);

/* For programs in which requests for memory and reads of files can both be made to fail: what was taken was given back.
 */
#define CHECK_NOTHING_LEFT()                              \
    do {                                                  \
        assert_int_equal(fault_memory_blocks(), 0);       \
        assert_int_equal(fault_memory_mapped_bytes(), 0); \
        assert_int_equal(fault_file_descriptors(), 0);    \
    } while (0)

#endif
