/* terminal.c - see terminal.h. */
#include "terminal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "progress.h"

int exit_code_of(lever_status status) {
    switch (status) {
    case LEVER_OK:
        return EXIT_DONE;
    case LEVER_E_ARGUMENT:
        return EXIT_USAGE;
    case LEVER_E_FORMAT:
    case LEVER_E_TEMPLATE:
        return EXIT_FILE;
    case LEVER_E_BUDGET:
    case LEVER_E_MEMORY:
        return EXIT_BUDGET;
    case LEVER_E_IO:
        return EXIT_IO;
    case LEVER_E_CANCELLED:
        return EXIT_INTERRUPTED;
    case LEVER_E_CONTEXT:
    case LEVER_E_NETWORK:
    case LEVER_E_INTERNAL:
        return EXIT_OTHER;
    }
    return EXIT_OTHER;
}

static void print_message(const char *colour, const char *format, va_list arguments) {
    const bool coloured = terminal_has_colour(stderr);
    progress_make_room();
    fprintf(stderr, "%slever: %s", coloured ? colour : "", coloured ? "\033[0m" : "");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

static void print_line(const char *colour, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print_line(const char *colour, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message(colour, format, arguments);
    va_end(arguments);
}

int fail_with(lever_status status, const char *message) {
    print_line("\033[31m", "%s", message[0] != '\0' ? message : lever_status_text(status));
    return exit_code_of(status);
}

int fail_usage(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message("\033[31m", format, arguments);
    va_end(arguments);
    return EXIT_USAGE;
}

void note(const cli_options *options, const char *format, ...) {
    if (options->quiet) return;
    va_list arguments;
    va_start(arguments, format);
    print_message("\033[2m", format, arguments);
    va_end(arguments);
}

void show_log(void *user, lever_log_level level, const char *line) {
    const cli_options *options = user;
    if (options->quiet || (int)level < options->log_level) return;
    print_line(level == LEVER_LOG_WARNING ? "\033[33m" : "\033[2m", "%s", line);
}

bool terminal_is_live(FILE *stream) {
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && (term == NULL || strcmp(term, "dumb") != 0);
}

int terminal_columns(FILE *stream) {
    struct winsize size = {0};
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

bool terminal_has_colour(FILE *stream) {
    const char *no_colour = getenv("NO_COLOR");
    return (no_colour == NULL || no_colour[0] == '\0') && terminal_is_live(stream);
}

bool put_data(const char *data, size_t bytes, bool *quietly) {
    *quietly = false;
    if (bytes == 0) return true;
    if (fwrite(data, 1, bytes, stdout) == bytes && fflush(stdout) == 0) return true;
    *quietly = errno == EPIPE;
    if (*quietly) clearerr(stdout);
    return false;
}
