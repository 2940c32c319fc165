/* device_test.h - an accelerator that is made of the CPU and behaves like an NPU, so that everything that is written
 * for one can be run, and tested, without one.
 *
 * Fixed buckets, prepared shapes, buffers of its own of at most 1 GiB without host pointers, weights in tiles, runs
 * that are computed later by a thread of its own. It computes with lever's own kernels, so its bits are the CPU's. And
 * it is strict: whatever a real device would answer with rubbish or a crash is an error here that names the rule. What
 * it takes by the clock says nothing about a device, so that it takes every pass, unless its costs are given.
 *
 * Names: "test", or "test:" and words with commas between:
 *     fail=N     the N-th run, and everything after it, fails
 *     wrong      results are off by a little
 *     once       a buffer keeps the weights that were uploaded first (some drivers do)
 *     small      buffers of at most 64 KiB
 *     slow       a run takes far longer than on the CPU, and the clock is believed
 *     costs=N+N+...     for each of its buckets, the nanoseconds of a run: it tells them, and the clock is not asked
 *     floats     it multiplies floats, of weights of any type, so that its bits are its own
 *     takes=N    N MiB of memory that it books nowhere, as drivers do
 *     align=N    offsets are multiples of N, a power of two from 128 to 4096
 *     buckets=N+N+...   other numbers of rows than 1, 4, 8, 16, 32 and 64 */
#ifndef LV_COMPUTE_DEVICE_TEST_H
#define LV_COMPUTE_DEVICE_TEST_H

#include "compute/device.h"

#define LV_DEVICE_TEST_ALIGNMENT ((uint64_t)128)
#define LV_DEVICE_TEST_BUFFER_BYTES ((uint64_t)1 << 30)

lever_status lv_device_test_open(lv_device **device, const char *name, lv_ledger *ledger, lever_error *error);

#endif
