/* progress.c - see progress.h. */
#include "progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "terminal.h"

#define SILENT_NS 500000000u /* steps shorter than this show nothing */
#define REDRAW_NS 100000000u /* between two drawings on a terminal */
#define LINE_NS 10000000000u /* between two lines elsewhere */
#define COLUMNS_MAX 120

/* Whether a bar is on the screen: the one thing that messages from other threads must know. */
static atomic_bool bar_on_screen;

char *format_duration(double seconds, char *buffer, size_t capacity) {
    const uint64_t whole = seconds > 0 ? (uint64_t)(seconds + 0.5) : 0;
    if (whole < 60) {
        snprintf(buffer, capacity, "%u s", (unsigned)whole);
    } else if (whole < 3600) {
        snprintf(buffer, capacity, "%u min %02u s", (unsigned)(whole / 60), (unsigned)(whole % 60));
    } else if (whole < 360000) {
        snprintf(buffer, capacity, "%u h %02u min", (unsigned)(whole / 3600), (unsigned)(whole / 60 % 60));
    } else {
        snprintf(buffer, capacity, "days");
    }
    return buffer;
}

/* "1.2 GiB of 4.0 GiB, 95.0 MiB/s, 30 s left" */
static void describe(const progress *bar, uint64_t now_ns, char *text, size_t capacity) {
    char done[32], total[32], rate[32], left[32];
    const double seconds = lv_seconds(now_ns - bar->started_ns);
    const double per_second = seconds > 0 ? (double)(bar->done - bar->first) / seconds : 0;
    const double remaining = per_second > 0 ? (double)(bar->total - bar->done) / per_second : -1;
    size_t used;
    if (bar->unit == UNIT_BYTES) {
        used = (size_t)snprintf(text, capacity, "%s of %s, %s/s", lv_format_size(bar->done, done, sizeof done),
                                lv_format_size(bar->total, total, sizeof total),
                                lv_format_size((uint64_t)per_second, rate, sizeof rate));
    } else {
        used = (size_t)snprintf(text, capacity, "%u %%", (unsigned)(bar->total > 0 ? bar->done * 100 / bar->total : 0));
    }
    if (remaining >= 0 && used < capacity) {
        snprintf(text + used, capacity - used, ", %s left", format_duration(remaining, left, sizeof left));
    }
}

static void draw(progress *bar, uint64_t now_ns) {
    char text[160], gauge[COLUMNS_MAX + 1];
    describe(bar, now_ns, text, sizeof text);
    int columns = terminal_columns(stderr) - 1;
    if (columns > COLUMNS_MAX) columns = COLUMNS_MAX;
    const int cells = columns - (int)strlen(bar->label) - (int)strlen(text) - 4;
    if (cells >= 8) {
        const int full = bar->total > 0 ? (int)((double)bar->done / (double)bar->total * cells) : 0;
        for (int i = 0; i < cells; i++) gauge[i] = i < full ? '=' : ' ';
        gauge[cells] = '\0';
        fprintf(stderr, "\r%s [%s] %s\033[K", bar->label, gauge, text);
    } else {
        fprintf(stderr, "\r%.*s\033[K", columns, text);
    }
    fflush(stderr);
    bar->drawn = true;
    atomic_store(&bar_on_screen, true);
}

void progress_open(progress *bar, const char *label, progress_unit unit, const cli_options *options) {
    *bar = (progress){.unit = unit, .shown = !options->quiet, .live = terminal_is_live(stderr)};
    snprintf(bar->label, sizeof bar->label, "%s", label);
    bar->started_ns = bar->printed_ns = lv_clock_now_ns(&lv_clock_real);
    bar->first = UINT64_MAX;
}

void progress_update(progress *bar, uint64_t done, uint64_t total) {
    if (bar->first == UINT64_MAX || done < bar->first) bar->first = done;
    bar->done = done;
    bar->total = total >= done ? total : done;
    if (!bar->shown) return;
    const uint64_t now_ns = lv_clock_now_ns(&lv_clock_real);
    if (now_ns - bar->started_ns < SILENT_NS) return;
    if (bar->live) {
        if (bar->drawn && now_ns - bar->printed_ns < REDRAW_NS) return;
        draw(bar, now_ns);
    } else {
        if (now_ns - bar->printed_ns < LINE_NS) return;
        char text[160];
        describe(bar, now_ns, text, sizeof text);
        fprintf(stderr, "%s: %s\n", bar->label, text);
    }
    bar->printed_ns = now_ns;
}

void progress_close(progress *bar) {
    if (bar->drawn) progress_make_room();
    bar->drawn = false;
}

void progress_of_stage(void *user, lever_stage stage, uint64_t done, uint64_t total) {
    static const struct {
        const char *label;
        progress_unit unit;
    } stages[] = {
        [LEVER_STAGE_OPEN] = {"Loading", UNIT_BYTES},
        [LEVER_STAGE_PREFILL] = {"Reading the prompt", UNIT_PARTS},
        [LEVER_STAGE_PACK] = {"Packing", UNIT_BYTES},
        [LEVER_STAGE_VERIFY] = {"Checking", UNIT_BYTES},
        [LEVER_STAGE_COLLECT] = {"Going through text", UNIT_PARTS},
        [LEVER_STAGE_TRAIN] = {"Learning", UNIT_PARTS},
    };
    progress *bar = user;
    if ((size_t)stage >= sizeof stages / sizeof stages[0]) return;
    if (strcmp(bar->label, stages[stage].label) != 0 || done < bar->done) {
        const cli_options loudness = {.quiet = !bar->shown};
        progress_close(bar);
        progress_open(bar, stages[stage].label, stages[stage].unit, &loudness);
    }
    progress_update(bar, done, total);
    if (done >= total) progress_close(bar);
}

void progress_make_room(void) {
    if (atomic_exchange(&bar_on_screen, false)) fputs("\r\033[K", stderr);
}
