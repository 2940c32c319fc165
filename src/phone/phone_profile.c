/* phone_profile.c - one table says which keys there are, their unit and what is allowed.
 *
 * A text is read line by line: "key value unit origin", and whatever stands behind the origin is a note. Lines of a
 * section that is not wanted are checked as well, so that a profile is right or wrong as a whole; their values go to a
 * copy that is thrown away. */
#include "phone/phone_profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

typedef struct {
    const char *key, *unit;
    double scale; /* of the unit */
    double least, most;
    size_t offset;
    bool is_count; /* which has no fraction */
} value_row;

#define VALUE(key, unit, scale, least, most) \
    { #key, unit, scale, least, most, offsetof(lv_phone_profile, key), false }
#define COUNT(key, unit, least, most) \
    { #key, unit, 1, least, most, offsetof(lv_phone_profile, key), true }

static const value_row rows[] = {
    VALUE(flash_sequential, "GB/s", 1e9, 0.001, 100),
    VALUE(flash_request, "ms", 1e-3, 0, 100),
    VALUE(flash_iops, "k/s", 1e3, 0.01, 100000),
    VALUE(flash_iops_loss, "k/s", 1e3, 0, 100000),
    VALUE(flash_iops_least, "k/s", 1e3, 0.01, 100000),
    VALUE(flash_copy, "GB/s", 1e9, 0, 1000),
    VALUE(flash_lane_loss, "share", 1, 0, 0.95),
    VALUE(flash_lane_loss_small, "share", 1, 0, 0.95),
    VALUE(flash_core, "share", 1, 0.05, 1),
    VALUE(flash_fragmentation, "share", 1, 0.05, 1),
    VALUE(read_block, "KiB", 1024, 4, 32768),
    VALUE(read_queue, "requests", 1, 1, 1024),
    VALUE(read_lanes, "threads", 1, 1, 64),
    COUNT(ring_layers, "layers", 2, LV_PHONE_RING_MAX),
    VALUE(memory_bandwidth, "GB/s", 1e9, 0.1, 10000),
    VALUE(memory_copies, "times", 1, 1, 10),
    VALUE(npu_bandwidth, "GB/s", 1e9, 0.1, 10000),
    VALUE(npu_arithmetic, "TFLOPS", 1e12, 0.001, 10000),
    VALUE(npu_dequantise, "G/s", 1e9, 0, 100000),
    VALUE(npu_row, "us", 1e-6, 0, 100000),
    COUNT(npu_tile, "rows", 1, 1024),
    VALUE(npu_crossing, "ms", 1e-3, 0, 1000),
    VALUE(npu_chunks, "crossings", 1, 1, 1024),
    VALUE(npu_io_loss, "share", 1, 0, 1),
    VALUE(npu_attention, "share", 1, 0.001, 1),
    VALUE(cpu_bandwidth, "GB/s", 1e9, 0.1, 10000),
    VALUE(cpu_bandwidth_share, "share", 1, 0.05, 1),
    VALUE(cpu_arithmetic, "TOPS", 1e12, 0.001, 1000),
    VALUE(cpu_layer, "us", 1e-6, 0, 100000),
    VALUE(head_arithmetic, "TOPS", 1e12, 0.001, 1000),
    VALUE(power_base, "W", 1, 0, 100),
    VALUE(power_npu, "W", 1, 0, 100),
    VALUE(power_cpu, "W", 1, 0, 200),
    VALUE(power_reader, "W", 1, 0, 100),
    VALUE(energy_flash, "J/GB", 1e-9, 0, 100),
    VALUE(energy_memory, "J/GB", 1e-9, 0, 100),
    VALUE(heat_ambient, "C", 1, -40, 60),
    VALUE(heat_resistance, "K/W", 1, 0.1, 100),
    VALUE(heat_capacity, "J/K", 1, 1, 100000),
    VALUE(heat_from, "C", 1, 0, 150),
    VALUE(heat_full, "C", 1, 0, 150),
    VALUE(heat_speed_least, "share", 1, 0.05, 1),
};

enum {
    ROWS_COUNT = sizeof(rows) / sizeof(rows[0]),
    LINE_BYTES_MAX = 512,
    TEXT_BYTES_MAX = 1 << 16,
    WORD_BYTES = 64,
    BUCKET_MOST = 4096
};

static const char buckets_key[] = "npu_buckets";
static const char *const origins[] = {"read", "fitted", "estimated"};

/* --- One line ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *origin; /* of the text, for messages */
    unsigned line;
    const char *wanted; /* section; "": the first */
    bool in_section, found_section;
    char section[32]; /* that the line is in; "": in front of all */
    lv_phone_profile *wanted_profile, ignored;
    bool common_seen[ROWS_COUNT + 2], section_seen[ROWS_COUNT + 2], wanted_seen[ROWS_COUNT + 2];
    lever_error *error;
} reader;

enum { SEEN_BUCKETS = ROWS_COUNT, SEEN_NAME };

static lever_status wrong(const reader *r, const char *key, const char *what) {
    return lv_fail(r->error, LEVER_E_FORMAT, "%s:%u: %s %s", r->origin, r->line, key, what);
}

/* Where the values of this line go. */
static lv_phone_profile *place(reader *r) {
    return r->section[0] == '\0' || r->in_section ? r->wanted_profile : &r->ignored;
}

/* A key stands once in front of the sections, and once in each. */
static lever_status mark_seen(reader *r, const char *key, size_t index) {
    bool *seen = r->section[0] ? &r->section_seen[index] : &r->common_seen[index];
    if (*seen) return wrong(r, key, "stands twice");
    *seen = true;
    if (place(r) == r->wanted_profile) r->wanted_seen[index] = true;
    return LEVER_OK;
}

static lever_status check_unit_and_origin(const reader *r, const char *key, const char *unit, const char *wanted_unit,
                                          const char *origin) {
    char what[160];
    if (strcmp(unit, wanted_unit) != 0) {
        snprintf(what, sizeof(what), "is given in '%s'; its unit is %s", unit, wanted_unit);
        return wrong(r, key, what);
    }
    for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++) {
        if (strcmp(origin, origins[i]) == 0) return LEVER_OK;
    }
    snprintf(what, sizeof(what), "says '%s' where it comes from; allowed: read, fitted, estimated", origin);
    return wrong(r, key, what);
}

static lever_status take_value(reader *r, const value_row *row, const char *value) {
    double number = 0;
    if (!lv_parse_double(value, row->least, row->most, &number) || (row->is_count && number != floor(number))) {
        char what[200];
        snprintf(what, sizeof(what), "is '%s' %s; allowed: a %snumber from %g to %g", value, row->unit,
                 row->is_count ? "whole " : "", row->least, row->most);
        return wrong(r, row->key, what);
    }
    *(double *)(void *)((char *)place(r) + row->offset) = number * row->scale;
    return mark_seen(r, row->key, (size_t)(row - rows));
}

static lever_status take_buckets(reader *r, char *value) {
    static const char what[] = "wants 1 to 16 numbers of rows that grow, such as 1,8,32";
    lv_buckets *to = &place(r)->npu_buckets;
    to->count = 0;
    for (char *word = value, *next = NULL; word; word = next) {
        next = strchr(word, ',');
        if (next) *next++ = '\0';
        uint64_t number = 0;
        const uint64_t least = to->count > 0 ? (uint64_t)to->rows[to->count - 1] + 1 : 1;
        if (to->count == LV_BUCKETS_MAX || !lv_parse_u64(word, least, BUCKET_MOST, &number)) {
            return wrong(r, buckets_key, what);
        }
        to->rows[to->count++] = (uint32_t)number;
    }
    return mark_seen(r, buckets_key, SEEN_BUCKETS);
}

static lever_status take_pair(reader *r, const char *line) {
    char key[WORD_BYTES], value[WORD_BYTES], unit[WORD_BYTES], origin[WORD_BYTES];
    const int count = sscanf(line, "%63s %63s %63s %63s", key, value, unit, origin);
    const value_row *row = NULL;
    for (size_t i = 0; i < ROWS_COUNT; i++) {
        if (strcmp(key, rows[i].key) == 0) row = &rows[i];
    }
    const bool is_buckets = strcmp(key, buckets_key) == 0;
    if (!row && !is_buckets) return wrong(r, key, "is not a value of a phone's profile");
    if (count != 4) return wrong(r, key, "wants a value, a unit and where it comes from");
    LV_TRY(check_unit_and_origin(r, key, unit, row ? row->unit : "rows", origin));
    return row ? take_value(r, row, value) : take_buckets(r, value);
}

static lever_status take_name(reader *r, const char *text) {
    text += strspn(text, " \t");
    if (text[0] == '\0' || strlen(text) >= sizeof(r->wanted_profile->name)) {
        return wrong(r, "name", "wants 1 to 95 bytes of text");
    }
    memcpy(place(r)->name, text, strlen(text) + 1);
    return mark_seen(r, "name", SEEN_NAME);
}

static lever_status take_section(reader *r, const char *line) {
    const size_t length = strcspn(line + 1, "]");
    if (line[1 + length] != ']' || line[2 + length] != '\0' || length == 0 || length >= sizeof(r->section)) {
        return wrong(r, line, "is not a section such as [app]");
    }
    memcpy(r->section, line + 1, length);
    r->section[length] = '\0';
    memset(r->section_seen, 0, sizeof(r->section_seen));
    const char *wanted = r->wanted[0] ? r->wanted : r->wanted_profile->section;
    r->in_section = wanted[0] ? strcmp(r->section, wanted) == 0 : true;
    if (r->in_section && r->found_section) return wrong(r, line, "stands twice");
    if (r->in_section) memcpy(r->wanted_profile->section, r->section, sizeof(r->section));
    r->found_section = r->found_section || r->in_section;
    return LEVER_OK;
}

/* `line` is terminated, without newline and without blanks at either end. */
static lever_status take_line(reader *r, const char *line) {
    if (line[0] == '\0' || line[0] == '#') return LEVER_OK;
    if (line[0] == '[') return take_section(r, line);
    if (strncmp(line, "name ", 5) == 0) return take_name(r, line + 5);
    return take_pair(r, line);
}

/* --- The whole --------------------------------------------------------------------------------------------------- */

static lever_status check_whole(const reader *r) {
    const lv_phone_profile *p = r->wanted_profile;
    if (r->wanted[0] && !r->found_section) {
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: there is no section [%s]", r->origin, r->wanted);
    }
    for (size_t i = 0; i < ROWS_COUNT + 2; i++) {
        if (r->wanted_seen[i]) continue;
        const char *key = i == SEEN_NAME ? "name" : i == SEEN_BUCKETS ? buckets_key : rows[i].key;
        return lv_fail(r->error, LEVER_E_FORMAT, "%s: %s is missing%s%s%s", r->origin, key,
                       p->section[0] ? " in [" : "", p->section, p->section[0] ? "] and in front of it" : "");
    }
    if (p->heat_full <= p->heat_from || p->heat_from < p->heat_ambient) {
        return lv_fail(r->error, LEVER_E_FORMAT,
                       "%s: heat_ambient, heat_from and heat_full must grow; they are %g, %g, %g", r->origin,
                       p->heat_ambient, p->heat_from, p->heat_full);
    }
    if (p->memory_bandwidth < p->cpu_bandwidth || p->memory_bandwidth < p->npu_bandwidth) {
        return lv_fail(r->error, LEVER_E_FORMAT,
                       "%s: memory_bandwidth is %g GB/s; cpu_bandwidth and npu_bandwidth (%g and %g) are parts of it",
                       r->origin, p->memory_bandwidth / 1e9, p->cpu_bandwidth / 1e9, p->npu_bandwidth / 1e9);
    }
    return LEVER_OK;
}

lever_status lv_phone_profile_parse(lv_phone_profile *profile, const char *origin, const char *text,
                                    const char *section, lever_error *error) {
    memset(profile, 0, sizeof(*profile));
    reader r = {.origin = origin, .wanted = section ? section : "", .wanted_profile = profile, .error = error};
    while (*text) {
        const size_t length = strcspn(text, "\n");
        char line[LINE_BYTES_MAX];
        r.line++;
        size_t begin = strspn(text, " \t\r");
        size_t end = length;
        while (end > begin && strchr(" \t\r", text[end - 1])) end--;
        if (begin > end) begin = end;
        if (end - begin >= sizeof(line)) return wrong(&r, "the line", "is too long");
        memcpy(line, text + begin, end - begin);
        line[end - begin] = '\0';
        LV_TRY(take_line(&r, line));
        text += length + (text[length] == '\n');
    }
    return check_whole(&r);
}

/* --- Names and files --------------------------------------------------------------------------------------------- */

static const char *find_built_in(const char *name, size_t length) {
    for (size_t i = 0; i < lv_phone_texts_count; i++) {
        if (strlen(lv_phone_texts[i].name) == length && memcmp(lv_phone_texts[i].name, name, length) == 0) {
            return lv_phone_texts[i].text;
        }
    }
    return NULL;
}

static lever_status fail_unknown(const char *wanted, int reason, lever_error *error) {
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < lv_phone_texts_count; i++) {
        used = lv_text_append(names, sizeof(names), used, "%s%s", i ? ", " : "", lv_phone_texts[i].name);
    }
    return lv_fail(error, LEVER_E_ARGUMENT,
                   "'%s' is neither a phone that is known (%s) nor a file that can be read (%s)", wanted, names,
                   strerror(reason));
}

static lever_status load_file(lv_phone_profile *profile, FILE *file, const char *path, const char *section,
                              lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, NULL, LV_MEM_SESSION, 1, TEXT_BYTES_MAX, "a phone's profile", error));
    char *text = memory;
    const size_t bytes = fread(text, 1, TEXT_BYTES_MAX - 1, file);
    text[bytes] = '\0';
    lever_status status = LEVER_OK;
    if (ferror(file)) {
        status = lv_fail(error, LEVER_E_IO, "%s: cannot be read (%s)", path, strerror(errno));
    } else if (bytes == TEXT_BYTES_MAX - 1 || strlen(text) != bytes) {
        status =
            lv_fail(error, LEVER_E_FORMAT, "%s: is not a phone's profile, which is a text of less than 64 KiB", path);
    } else {
        status = lv_phone_profile_parse(profile, path, text, section, error);
    }
    lv_free(text);
    return status;
}

lever_status lv_phone_profile_load(lv_phone_profile *profile, const char *wanted, lever_error *error) {
    char name[1024];
    const char *colon = strrchr(wanted, ':');
    if (colon && strchr(colon, '/')) colon = NULL;
    const size_t length = colon ? (size_t)(colon - wanted) : strlen(wanted);
    const char *section = colon ? colon + 1 : "";
    const char *built_in = find_built_in(wanted, length);
    if (built_in) {
        snprintf(name, sizeof(name), "%.*s", (int)length, wanted);
        return lv_phone_profile_parse(profile, name, built_in, section, error);
    }
    if (length >= sizeof(name)) return lv_fail(error, LEVER_E_ARGUMENT, "the name of the phone's profile is too long");
    memcpy(name, wanted, length);
    name[length] = '\0';
    FILE *file = fopen(name, "re");
    if (!file) return fail_unknown(wanted, errno, error);
    const lever_status status = load_file(profile, file, name, section, error);
    fclose(file);
    return status;
}
