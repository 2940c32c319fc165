/* progress.h - how far a long step is, on standard error.
 *
 * On a terminal one line that is drawn over: label, bar, amount, rate, remaining time. Elsewhere a plain line now and
 * then, so that a log shows life; nothing with --quiet. Steps that are over within a moment show nothing at all. One
 * bar is shown at a time; messages make room for themselves with progress_make_room (any thread). */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "lever.h"
#include "options.h"

typedef enum { UNIT_BYTES, UNIT_PARTS } progress_unit;

typedef struct {
    char label[48];
    progress_unit unit;
    bool shown; /* false: quiet */
    bool live;  /* on a terminal */
    bool drawn; /* the line is on the screen */
    uint64_t started_ns, printed_ns;
    uint64_t first; /* what was done when it started: not counted in the rate */
    uint64_t done, total;
} progress;

void progress_open(progress *bar, const char *label, progress_unit unit, const cli_options *options);
void progress_update(progress *bar, uint64_t done, uint64_t total);
void progress_close(progress *bar); /* wipes the line */

/* A lever_progress_fn; `user` is a `progress` opened with any label: the stage gives the label and begins anew. */
void progress_of_stage(void *user, lever_stage stage, uint64_t done, uint64_t total);

/* Wipes the bar that is drawn now, if any; the next update draws it again. */
void progress_make_room(void);

/* "12 s", "3 min 20 s", "1 h 05 min". Returns `buffer`. */
char *format_duration(double seconds, char *buffer, size_t capacity);

#endif
