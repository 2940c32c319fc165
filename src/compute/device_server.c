/* device_server.c - a connection is made and closed. Host and port are read like ggml reads them: IPv4 alone, and the
 * first colon ends the host. */
#include "compute/device_server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"

enum { HOST_BYTES = 256, PORT_MAX = 65535 };

static bool split(const char *address, char host[HOST_BYTES], char port[8]) {
    const char *colon = strchr(address, ':');
    if (!colon || colon == address || colon - address >= HOST_BYTES) return false;
    char *end;
    const long number = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || number < 1 || number > PORT_MAX) return false;
    snprintf(host, HOST_BYTES, "%.*s", (int)(colon - address), address);
    snprintf(port, 8, "%ld", number);
    return true;
}

/* 0, or what errno would be. */
static int connect_within(const struct addrinfo *to, int wait_ms) {
    const int descriptor = socket(to->ai_family, to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to->ai_protocol);
    if (descriptor < 0) return errno;
    int result = connect(descriptor, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (result == EINPROGRESS) {
        struct pollfd wanted = {.fd = descriptor, .events = POLLOUT};
        socklen_t bytes = sizeof(result);
        const int ready = poll(&wanted, 1, wait_ms);
        if (ready == 0) {
            result = ETIMEDOUT;
        } else if (ready < 0 || getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &result, &bytes) != 0) {
            result = errno;
        }
    }
    close(descriptor);
    return result;
}

lever_status lv_device_server_check(const char *address, int wait_ms, lever_error *error) {
    char host[HOST_BYTES], port[8];
    if (!split(address, host, port)) {
        return lv_fail(error, LEVER_E_ARGUMENT, "'%s' is no address of a server, which is HOST:PORT", address);
    }
    const struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int unknown = getaddrinfo(host, port, &wanted, &found);
    if (unknown != 0) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the host of the server %s is not known: %s", address,
                       gai_strerror(unknown));
    }
    const int refused = connect_within(found, wait_ms);
    freeaddrinfo(found);
    if (refused == 0) return LEVER_OK;
    return lv_fail(error, LEVER_E_ARGUMENT, "no server answers at %s: %s", address, strerror(refused));
}
