/* probe.h - measuring reads of a file and of memory: the figures of `doctor`.
 *
 * Each function takes what it needs, measures for about the time it is given, and gives everything back. It starts
 * threads of its own. Nothing else should run meanwhile; the result says what was seen, not what the hardware can. */
#ifndef LV_ENGINE_PROBE_H
#define LV_ENGINE_PROBE_H

#include "base/file.h"

enum { LV_PROBE_THREADS_MAX = 64 };

/* Sequential reads of blocks of `block_bytes` from the start of the file, around at its end, by `lanes` threads, each
 * into huge pages of its own. */
lever_status lv_probe_reads(lv_file *file, uint32_t lanes, size_t block_bytes, double seconds, double *bytes_per_second,
                            lever_error *error);

/* All threads read memory that does not fit a cache. */
lever_status lv_probe_memory(uint32_t threads, double seconds, double *bytes_per_second, lever_error *error);

/* Whether memory that asked for huge pages got them: 0 to 1, negative when the system does not say. */
double lv_probe_huge_pages(void);

#endif
