/* limits.h - a process of its own under a limit of the kernel: memory, by a control group.
 *
 * Version 1 and 2. The group is made at the top of its hierarchy, which wants root; where that is refused it is said.
 * The parent stays outside, waits, and removes the group behind the child, however it ended. `root` is
 * "" except in tests, where it is put in front of every path. Main thread, before others were started. */
#ifndef CLI_LIMITS_H
#define CLI_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "models.h"

typedef struct {
    const char *root;
    char folder[PATH_BYTES]; /* of the group */
    int version;             /* of its hierarchy; 0: there is no group */
    uint64_t memory_bytes;   /* in force; 0: none */
    char refused[512];       /* why the limit is not; "" */
    int peak_file;           /* of the group, through which its peak began anew; -1 */
    bool peak_known;         /* it did begin anew */
} limits;

/* Makes a group and sets its limit. 0: none is wanted. */
void limits_open(limits *held, uint64_t memory_bytes, const char *root);
/* Moves this process in. False: it was refused, and the limit is not in force. */
bool limits_enter(limits *held);
/* From here on the peak of memory is counted anew, where the kernel does that. */
void limits_restart_peak(limits *held);
/* The most memory since then; 0: unknown. */
uint64_t limits_memory_peak(const limits *held);
/* How many processes were killed for want of it; 0: unknown. */
uint64_t limits_memory_kills(const limits *held);
void limits_close(limits *held);

/* Runs `work` in a child under the limit, or here when none is wanted or allowed, and returns its exit code. When the
 * child is killed: `killed` gets a sentence about it (else ""), and the code is that of an empty budget where memory
 * was the reason. */
int limits_run(uint64_t memory_bytes, int (*work)(void *user, limits *held), void *user, char killed[256]);

/* Takes a file out of the page cache as far as the system lets us. */
void limits_drop_cache(const char *path);
/* How much of a file is in the page cache; 0 where the system does not say. */
uint64_t limits_cached_bytes(const char *path);

#endif
