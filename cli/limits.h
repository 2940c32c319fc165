/* limits.h - a process of its own under limits of the kernel: memory and the speed of a disk, by control groups.
 *
 * Version 1 and 2. The groups are made at the top of their hierarchies, which wants root; what is refused is said, and
 * the rest holds. The parent stays outside, waits, and removes the groups behind the child, however it ended. `root` is
 * "" except in tests, where it is put in front of every path. Main thread, before others were started. */
#ifndef CLI_LIMITS_H
#define CLI_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "models.h"

typedef struct {
    uint64_t memory_bytes;          /* 0: none */
    uint64_t read_bytes_per_second; /* 0: none */
    const char *disk_of;            /* the file whose disk is slowed down */
} limits_wish;

enum { LIMITS_GROUPS_MAX = 2 };

typedef struct {
    const char *root;
    struct {
        char folder[PATH_BYTES];
        int version;
        bool memory;
    } groups[LIMITS_GROUPS_MAX];
    int groups_count;
    uint64_t memory_bytes, read_bytes_per_second; /* that are in force; 0: none */
    char refused[512];                            /* what is not, and why; "" */
    int peak_file;                                /* of the memory group, through which its peak began anew; -1 */
    bool peak_known;                              /* it did begin anew */
} limits;

/* Makes the groups and sets their limits. */
void limits_open(limits *held, const limits_wish *wish, const char *root);
/* Moves this process in. False: it was refused, and nothing is in force any more. */
bool limits_enter(limits *held);
/* From here on the peak of memory is counted anew, where the kernel does that. */
void limits_restart_peak(limits *held);
/* The most memory since then; 0: unknown. */
uint64_t limits_memory_peak(const limits *held);
/* How many processes were killed for want of it; 0: unknown. */
uint64_t limits_memory_kills(const limits *held);
void limits_close(limits *held);

/* Runs `work` in a child under the limits, or here when none is wanted or allowed, and returns its exit code. When the
 * child is killed: `killed` gets a sentence about it (else ""), and the code is that of an empty budget where memory
 * was the reason. */
int limits_run(const limits_wish *wish, int (*work)(void *user, limits *held), void *user, char killed[256]);

/* Takes a file out of the page cache as far as the system lets us. */
void limits_drop_cache(const char *path);
/* How much of a file is in the page cache; 0 where the system does not say. */
uint64_t limits_cached_bytes(const char *path);

#endif
