/* bench_caches.h - a cache folder of its own for each arm of `lever bench`, for as long as the run lasts.
 *
 * What engines learn (costs, calibration, what drafting ahead was worth) they keep in their cache folder. Each arm at
 * each budget has one that begins without any of it, so that nothing is another's, nor of what was run before. What
 * doctor found out about disks and the pairs' predictors are those of the user, by links. The folders lie in the user's
 * cache folder, and are removed at the end; what a run that was killed left is removed by the next. Main thread. */
#ifndef CLI_BENCH_CACHES_H
#define CLI_BENCH_CACHES_H

#include <stdbool.h>
#include <stddef.h>

#include "models.h"

typedef struct {
    char users[PATH_BYTES];  /* cache folder */
    char folder[PATH_BYTES]; /* that holds all; "": none could be made */
    int held;                /* that folder, locked while it is in use */
} bench_caches;

/* False: none could be made, with errno; the arms then have no cache folder at all. */
bool bench_caches_open(bench_caches *caches);
/* The folder of an arm, which is made when it is asked for first. False: there is none. */
bool bench_caches_of(const bench_caches *caches, size_t arm, size_t budget, char path[PATH_BYTES]);
void bench_caches_close(bench_caches *caches);

#endif
