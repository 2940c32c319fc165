/* bench_machine.c - see bench_machine.h. The same facts, under the same names, as bench/rows.py finds. */
#include "bench_machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/system.h"
#include "commit.h"
#include "models.h"

enum { LINE_BYTES = 8192, COMMAND_BYTES = 32768, PIECE_BYTES = 1 << 20 };

/* The first line of a small file without its newline; "" where there is none. */
static void read_line(const char *path, char *line, size_t capacity) {
    line[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    if (fgets(line, (int)capacity, file) == NULL) line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
}

/* What stands behind "name   : " in /proc/cpuinfo, the first time. */
static bool find_in_cpuinfo(const char *name, char *value, size_t capacity) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = malloc(LINE_BYTES);
    bool found = false;
    while (file != NULL && line != NULL && !found && fgets(line, LINE_BYTES, file) != NULL) {
        const size_t length = strlen(name);
        const char *colon = strchr(line, ':');
        if (strncmp(line, name, length) != 0 || colon == NULL || strspn(line + length, " \t") == 0) continue;
        snprintf(value, capacity, "%s", colon + 1 + (colon[1] == ' '));
        value[strcspn(value, "\n")] = '\0';
        found = true;
    }
    free(line);
    if (file != NULL) fclose(file);
    return found;
}

static void write_processor(json *out) {
    static const char *const wanted[] = {"avx2",    "fma",  "avx512f", "avx512_vnni", "avx_vnni", "amx_int8",
                                         "asimddp", "i8mm", "sve",     "sve2",        "sme"};
    char model[256] = "unknown", flags[LINE_BYTES] = "";
    struct utsname name;
    const bool named = uname(&name) == 0;
    if (!find_in_cpuinfo("model name", model, sizeof model) && !find_in_cpuinfo("Hardware", model, sizeof model) &&
        !find_in_cpuinfo("CPU part", model, sizeof model) && named) {
        snprintf(model, sizeof model, "%s", name.machine);
    }
    if (!find_in_cpuinfo("flags", flags, sizeof flags)) (void)find_in_cpuinfo("Features", flags, sizeof flags);
    json_text(out, "cpu", model);
    json_text(out, "architecture", named ? name.machine : "unknown");
    json_array_open(out, "instruction_sets");
    for (char *rest = flags, *flag; (flag = strsep(&rest, " ")) != NULL;) {
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            if (strcmp(flag, wanted[i]) == 0) json_text(out, NULL, flag);
        }
    }
    json_array_close(out);
    cpu_set_t processors;
    const bool counted = sched_getaffinity(0, sizeof processors, &processors) == 0;
    json_unsigned(out, "cores", counted ? (uint64_t)CPU_COUNT(&processors) : 0);
    json_text(out, "kernel", named ? name.release : "unknown");
}

/* The kind of the file system that is mounted nearest above a file. */
static void write_file_system(json *out, const char *path) {
    char kind[64] = "", line[LINE_BYTES];
    size_t nearest = 0;
    char *whole = realpath(path, NULL);
    FILE *mounts = fopen("/proc/self/mounts", "re");
    while (whole != NULL && mounts != NULL && fgets(line, sizeof line, mounts) != NULL) {
        char *rest = line;
        (void)strsep(&rest, " ");
        const char *folder = strsep(&rest, " "), *found = strsep(&rest, " ");
        if (folder == NULL || found == NULL) continue;
        const size_t length = strlen(folder);
        if (length < nearest || strncmp(whole, folder, length) != 0) continue;
        if (length > 1 && whole[length] != '/') continue;
        nearest = length;
        snprintf(kind, sizeof kind, "%s", found);
    }
    json_text(out, "filesystem", kind);
    if (mounts != NULL) fclose(mounts);
    free(whole);
}

static void write_disk(json *out, const char *path) {
    struct stat status;
    char node[128], target[512], line[256];
    json_object_open(out, "disk");
    write_file_system(out, path);
    if (stat(path, &status) == 0 && major(status.st_dev) != 0) {
        snprintf(node, sizeof node, "/sys/dev/block/%u:%u", major(status.st_dev), minor(status.st_dev));
        const ssize_t length = readlink(node, target, sizeof target - 1);
        if (length > 0) {
            target[length] = '\0';
            const char *slash = strrchr(target, '/');
            json_text(out, "device", slash != NULL ? slash + 1 : target);
            snprintf(node, sizeof node, "/sys/dev/block/%u:%u/size", major(status.st_dev), minor(status.st_dev));
            read_line(node, line, sizeof line);
            json_unsigned(out, "bytes", strtoull(line, NULL, 10) * 512);
            snprintf(node, sizeof node, "/sys/dev/block/%u:%u/queue/rotational", major(status.st_dev),
                     minor(status.st_dev));
            read_line(node, line, sizeof line);
            json_bool(out, "rotational", line[0] == '1');
        }
    }
    json_object_close(out);
}

void bench_machine_write(json *out, const char *path) {
    char line[256];
    lv_system_memory memory;
    lv_system_memory_read("", &memory);
    json_object_open(out, "machine");
    write_processor(out);
    json_unsigned(out, "memory_bytes", memory.total_bytes);
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
    json_text(out, "huge_pages", line);
    write_disk(out, path);
    json_object_close(out);
    json_object_open(out, "commit");
    json_text(out, "hash", LEVER_COMMIT);
    json_bool(out, "dirty", LEVER_COMMIT_DIRTY);
    json_object_close(out);
}

/* Rows are published: they name files, not where these lie on a machine. In place; words may be lists with commas. */
static size_t remove_folders(char *word, size_t length) {
    size_t kept = 0;
    for (size_t begin = 0; begin < length;) {
        size_t end = begin, from = begin;
        while (end < length && word[end] != ',') end++;
        for (size_t i = begin; i < end && word[begin] == '/'; i++) {
            if (word[i] == '/') from = i + 1;
        }
        if (begin > 0) word[kept++] = ',';
        memmove(word + kept, word + from, end - from);
        kept += end - from;
        begin = end + 1;
    }
    return kept;
}

void bench_command_write(json *out) {
    char *words = malloc(COMMAND_BYTES);
    FILE *file = fopen("/proc/self/cmdline", "re");
    const size_t bytes = file != NULL && words != NULL ? fread(words, 1, COMMAND_BYTES, file) : 0;
    json_array_open(out, "command");
    for (size_t begin = 0; begin < bytes;) {
        const size_t length = strnlen(words + begin, bytes - begin);
        json_string(out, NULL, words + begin, remove_folders(words + begin, length));
        begin += length + 1;
    }
    json_array_close(out);
    if (file != NULL) fclose(file);
    free(words);
}

double bench_load_average(void) {
    char line[64];
    read_line("/proc/loadavg", line, sizeof line);
    return strtod(line, NULL);
}

/* --- Checksums --- */

#define CHECKSUMS_FILE "checksums"

/* "SIZE TIME PATH": what a checksum is remembered by. False: the file is not there, or its path too long. */
static bool describe_file(const char *path, char *text, size_t capacity) {
    struct stat status;
    char *whole = realpath(path, NULL);
    const bool there = whole != NULL && stat(whole, &status) == 0;
    const int length = there ? snprintf(text, capacity, "%" PRIu64 " %" PRId64 ".%09ld %s", (uint64_t)status.st_size,
                                        (int64_t)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, whole)
                             : -1;
    free(whole);
    return length > 0 && (size_t)length < capacity && strchr(text, '\n') == NULL;
}

static bool recall(const char *description, char text[SHA256_TEXT_BYTES]) {
    char path[PATH_BYTES], line[LINE_BYTES];
    FILE *file = models_cache_path(CHECKSUMS_FILE, path) ? fopen(path, "re") : NULL;
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        found = strlen(line) > SHA256_TEXT_BYTES && strcmp(line + SHA256_TEXT_BYTES, description) == 0;
    }
    if (file != NULL) fclose(file);
    if (found) snprintf(text, SHA256_TEXT_BYTES, "%.64s", line);
    return found;
}

/* One line is one write: lines of two processes do not mix. That it cannot be kept is no failure. */
static void remember(const char *description, const char *text) {
    char path[PATH_BYTES], line[LINE_BYTES];
    const int length = snprintf(line, sizeof line, "%s %s\n", text, description);
    if (!models_make_cache_folder("", path) || !models_cache_path(CHECKSUMS_FILE, path)) return;
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (length > 0 && (size_t)length < sizeof line) (void)!write(file, line, (size_t)length);
    close(file);
}

static bool compute(const char *path, char text[SHA256_TEXT_BYTES], void (*tell)(void *user, uint64_t bytes),
                    void *user) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *piece = malloc(PIECE_BYTES);
    bool right = file >= 0 && piece != NULL;
    sha256 hash;
    sha256_init(&hash);
    for (off_t done = 0; right;) {
        const ssize_t got = read(file, piece, PIECE_BYTES);
        right = got >= 0;
        if (got <= 0) break;
        sha256_update(&hash, piece, (size_t)got);
        (void)posix_fadvise(file, done, got, POSIX_FADV_DONTNEED);
        done += got;
        if (tell != NULL) tell(user, (uint64_t)got);
    }
    sha256_finish(&hash, text);
    free(piece);
    if (file >= 0) close(file);
    return right;
}

bool bench_checksum(const char *path, char text[SHA256_TEXT_BYTES], void (*tell)(void *user, uint64_t bytes),
                    void *user) {
    char description[PATH_BYTES + 64];
    const bool described = describe_file(path, description, sizeof description);
    if (described && recall(description, text)) return true;
    if (!compute(path, text, tell, user)) return false;
    if (described) remember(description, text);
    return true;
}
