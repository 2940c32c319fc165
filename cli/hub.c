/* hub.c - see hub.h.
 *
 * A file is first asked about without following the redirection that the hub answers with (the hub states SHA-256 and
 * size there, in X-Linked-Etag and X-Linked-Size), then fetched with it. The source that is written down for resuming
 * is the checksum, or the ETag where there is none. A resumed request carries a range and, once the ETag of the serving
 * host is known, If-Range: when the file changed, the host sends it anew from the start.
 *
 * As long as an attempt brings bytes there is another one. A hub that does not answer is given up at once: there are
 * packages. */
#include "hub.h"

#include "base/status.h"

#ifdef LEVER_HAVE_CURL

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#define CONNECT_SECONDS 10L
#define STALLED_SECONDS 30L /* less than a kilobyte a second for so long ends an attempt */
#define FRUITLESS_MAX 3     /* attempts in a row that bring nothing, once something came */
#define URL_BYTES 1024

/* The functions of libcurl that are used. */
typedef struct {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *handle);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
    void (*easy_cleanup)(CURL *handle);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} curl_functions;

/* What the headers said: of the first answer (the hub's), and of the last (the serving host's). */
typedef struct {
    char linked_etag[128], etag[128];
    uint64_t linked_bytes, bytes;
    uint64_t range_begin; /* of Content-Range; UINT64_MAX: none */
} headers;

typedef struct {
    const curl_functions *curl;
    CURL *handle;
    part *file;
    progress *bar;
    uint64_t total_bytes; /* 0: unknown */
    headers seen;
    bool accepted; /* the body is the file's: the status was looked at */
    lever_status status;
    lever_error *error;
} transfer;

/* --- libcurl --- */

static bool load_function(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol); /* ISO C has no conversion from void * to a function */
    return symbol != NULL;
}

static bool load_curl(curl_functions *curl) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL); /* stays until the program ends */
        if (library == NULL) continue;
        return load_function(library, "curl_easy_init", &curl->easy_init) &&
               load_function(library, "curl_easy_setopt", &curl->easy_setopt) &&
               load_function(library, "curl_easy_perform", &curl->easy_perform) &&
               load_function(library, "curl_easy_getinfo", &curl->easy_getinfo) &&
               load_function(library, "curl_easy_cleanup", &curl->easy_cleanup) &&
               load_function(library, "curl_easy_strerror", &curl->easy_strerror) &&
               load_function(library, "curl_slist_append", &curl->slist_append) &&
               load_function(library, "curl_slist_free_all", &curl->slist_free_all);
    }
    return false;
}

/* --- What comes in --- */

/* The value when the line is this header, without quotes and blanks; else NULL. */
static const char *header_value(const char *line, size_t length, const char *name, char value[128]) {
    const size_t name_length = strlen(name);
    if (length <= name_length || strncasecmp(line, name, name_length) != 0 || line[name_length] != ':') return NULL;
    const char *begin = line + name_length + 1, *end = line + length;
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (begin < end && isspace((unsigned char)end[-1])) end--;
    snprintf(value, 128, "%.*s", (int)(end - begin), begin);
    return value;
}

static size_t take_header(char *line, size_t size, size_t count, void *user) {
    headers *seen = user;
    const size_t length = size * count;
    char value[128];
    if (length > 5 && strncmp(line, "HTTP/", 5) == 0) { /* the next answer begins */
        seen->etag[0] = '\0';
        seen->bytes = 0;
        seen->range_begin = UINT64_MAX;
    } else if (header_value(line, length, "x-linked-etag", value) != NULL) {
        snprintf(seen->linked_etag, sizeof seen->linked_etag, "%s", value);
    } else if (header_value(line, length, "x-linked-size", value) != NULL) {
        seen->linked_bytes = strtoull(value, NULL, 10);
    } else if (header_value(line, length, "etag", value) != NULL) {
        snprintf(seen->etag, sizeof seen->etag, "%s", value);
    } else if (header_value(line, length, "content-length", value) != NULL) {
        seen->bytes = strtoull(value, NULL, 10);
    } else if (header_value(line, length, "content-range", value) != NULL && strncasecmp(value, "bytes ", 6) == 0) {
        seen->range_begin = strtoull(value + 6, NULL, 10);
    }
    return length;
}

/* The first bytes of a body: are they the ones that are missing? */
static lever_status accept_body(transfer *get) {
    long code = 0;
    get->curl->easy_getinfo(get->handle, CURLINFO_RESPONSE_CODE, &code);
    if (code == 206 && get->seen.range_begin == get->file->bytes) return LEVER_OK;
    if (code == 200) return part_cut(get->file, 0, get->error); /* the whole file, from the start */
    return lv_fail(get->error, LEVER_E_NETWORK, "the hub answered with status %ld", code);
}

static size_t take_body(char *data, size_t size, size_t count, void *user) {
    transfer *get = user;
    const size_t bytes = size * count;
    if (!get->accepted) get->status = accept_body(get);
    get->accepted = true;
    if (get->status == LEVER_OK && get->total_bytes > 0 && get->file->bytes + bytes > get->total_bytes) {
        get->status = lv_fail(get->error, LEVER_E_FORMAT, "the hub sends more than the %llu bytes that it stated",
                              (unsigned long long)get->total_bytes);
    }
    if (get->status == LEVER_OK) get->status = part_append(get->file, data, bytes, get->error);
    if (get->status != LEVER_OK) return 0; /* ends the transfer */
    progress_update(get->bar, get->file->bytes, get->total_bytes);
    return bytes;
}

/* --- Requests --- */

static void set_common_options(const curl_functions *curl, CURL *handle, const char *url, headers *seen) {
    curl->easy_setopt(handle, CURLOPT_URL, url);
    curl->easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    curl->easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl->easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, STALLED_SECONDS);
    curl->easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "https,http");
    curl->easy_setopt(handle, CURLOPT_USERAGENT, "lever/" LEVER_VERSION_TEXT);
    curl->easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
    curl->easy_setopt(handle, CURLOPT_HEADERDATA, seen);
}

/* The user's token for the hub; libcurl does not pass it on to other hosts. */
static struct curl_slist *add_token(const curl_functions *curl, struct curl_slist *list) {
    const char *token = getenv("HF_TOKEN");
    if (token == NULL || token[0] == '\0') return list;
    char line[512];
    snprintf(line, sizeof line, "Authorization: Bearer %s", token);
    return curl->slist_append(list, line);
}

static bool is_checksum(const char *text) {
    return strlen(text) == SHA256_TEXT_BYTES - 1 && strspn(text, "0123456789abcdef") == SHA256_TEXT_BYTES - 1;
}

/* An ETag without its quotes; "" for a weak one, which promises nothing about bytes. */
static void strip_etag(const char *etag, char bare[128]) {
    if (strncmp(etag, "W/", 2) == 0) etag = "";
    if (etag[0] == '"') etag++;
    snprintf(bare, 128, "%s", etag);
    bare[strcspn(bare, "\"")] = '\0';
}

static lever_status unreachable(const curl_functions *curl, CURLcode result, lever_error *error) {
    return lv_fail(error, LEVER_E_NETWORK, "the model hub %s cannot be reached: %s", models_hub_address(),
                   curl->easy_strerror(result));
}

/* Asks about the file: identity (checksum or ETag), checksum or "", size or 0. */
static lever_status ask(const curl_functions *curl, const char *url, char identity[128],
                        char checksum[SHA256_TEXT_BYTES], uint64_t *bytes, lever_error *error) {
    headers seen = {.range_begin = UINT64_MAX};
    CURL *handle = curl->easy_init();
    if (handle == NULL) return lv_fail(error, LEVER_E_MEMORY, "no memory for a request to the hub");
    struct curl_slist *list = add_token(curl, NULL);
    set_common_options(curl, handle, url, &seen);
    curl->easy_setopt(handle, CURLOPT_NOBODY, 1L);
    curl->easy_setopt(handle, CURLOPT_HTTPHEADER, list);
    const CURLcode result = curl->easy_perform(handle);
    long code = 0;
    curl->easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    curl->slist_free_all(list);
    curl->easy_cleanup(handle);

    if (result != CURLE_OK) return unreachable(curl, result, error);
    if (code == 401 || code == 403) {
        return lv_fail(error, LEVER_E_NETWORK, "the hub does not give %s without a token (status %ld): set HF_TOKEN",
                       url, code);
    }
    if (code < 200 || code >= 400) {
        return lv_fail(error, LEVER_E_NETWORK, "the hub does not have %s (status %ld)", url, code);
    }
    strip_etag(seen.linked_etag[0] != '\0' ? seen.linked_etag : seen.etag, identity);
    snprintf(checksum, SHA256_TEXT_BYTES, "%.64s", is_checksum(identity) ? identity : "");
    *bytes = seen.linked_bytes > 0 ? seen.linked_bytes : code < 300 ? seen.bytes : 0;
    return LEVER_OK;
}

/* One attempt to fetch what is missing. `etag`: of the serving host, from the attempt before; is replaced. */
static CURLcode attempt(transfer *get, const char *url, char etag[128]) {
    const curl_functions *curl = get->curl;
    char range[40], condition[160];
    struct curl_slist *list = add_token(curl, NULL);
    get->seen = (headers){.range_begin = UINT64_MAX};
    get->accepted = false;
    get->status = LEVER_OK;
    get->handle = curl->easy_init();
    if (get->handle == NULL) return CURLE_OUT_OF_MEMORY;
    set_common_options(curl, get->handle, url, &get->seen);
    curl->easy_setopt(get->handle, CURLOPT_FOLLOWLOCATION, 1L);
    curl->easy_setopt(get->handle, CURLOPT_MAXREDIRS, 10L);
    curl->easy_setopt(get->handle, CURLOPT_WRITEFUNCTION, take_body);
    curl->easy_setopt(get->handle, CURLOPT_WRITEDATA, get);
    if (get->file->bytes > 0) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)get->file->bytes);
        curl->easy_setopt(get->handle, CURLOPT_RANGE, range);
        if (etag[0] != '\0') {
            snprintf(condition, sizeof condition, "If-Range: \"%s\"", etag);
            list = curl->slist_append(list, condition);
        }
    }
    curl->easy_setopt(get->handle, CURLOPT_HTTPHEADER, list);
    const CURLcode result = curl->easy_perform(get->handle);
    curl->slist_free_all(list);
    curl->easy_cleanup(get->handle);
    if (get->accepted && get->status == LEVER_OK) strip_etag(get->seen.etag, etag);
    return result;
}

static lever_status fetch(transfer *get, const char *url) {
    char etag[128] = "";
    bool anything = false;
    for (int fruitless = 0;;) {
        const uint64_t before = get->file->bytes;
        const CURLcode result = attempt(get, url, etag);
        if (get->status != LEVER_OK) return get->status;
        if (result == CURLE_OK && (get->total_bytes == 0 || get->file->bytes == get->total_bytes)) return LEVER_OK;

        fruitless = get->file->bytes == before ? fruitless + 1 : 0;
        anything = anything || fruitless == 0;
        if (fruitless == FRUITLESS_MAX || (fruitless > 0 && !anything)) {
            if (result != CURLE_OK) return unreachable(get->curl, result, get->error);
            return lv_fail(get->error, LEVER_E_NETWORK, "the hub sent %llu of %llu bytes",
                           (unsigned long long)get->file->bytes, (unsigned long long)get->total_bytes);
        }
        sleep(1u << fruitless);
    }
}

lever_status hub_fetch(const model_file *wanted, part *file, progress *bar, char checksum[SHA256_TEXT_BYTES],
                       lever_error *error) {
    curl_functions curl;
    checksum[0] = '\0';
    if (wanted->hub_repository == NULL) return lv_fail(error, LEVER_E_NETWORK, "%s is not at the hub", wanted->name);
    if (!load_curl(&curl)) return lv_fail(error, LEVER_E_NETWORK, "libcurl, which asks the hub, is not installed");
    char url[URL_BYTES];
    const int length =
        snprintf(url, sizeof url, "%s/%s/resolve/main/%s", models_hub_address(), wanted->hub_repository, wanted->name);
    if (length < 0 || (size_t)length >= sizeof url) {
        return lv_fail(error, LEVER_E_ARGUMENT, "HF_ENDPOINT is longer than an address can be");
    }
    char identity[128], source[PART_SOURCE_BYTES];
    transfer get = {.curl = &curl, .file = file, .bar = bar, .error = error};
    LV_TRY(ask(&curl, url, identity, checksum, &get.total_bytes, error));

    /* Without an identity nothing says that the rest belongs to what is there. */
    snprintf(source, sizeof source, "hub %s", identity);
    if (identity[0] == '\0') file->source[0] = '\0';
    LV_TRY(part_begin(file, source, error));
    file->bytes = file->bytes_there;
    if (get.total_bytes > 0 && file->bytes > get.total_bytes) LV_TRY(part_cut(file, 0, error));
    progress_update(bar, file->bytes, get.total_bytes);
    if (get.total_bytes > 0 && file->bytes == get.total_bytes) return LEVER_OK;
    return fetch(&get, url);
}

#else

lever_status hub_fetch(const model_file *wanted, part *file, progress *bar, char checksum[SHA256_TEXT_BYTES],
                       lever_error *error) {
    (void)wanted;
    (void)file;
    (void)bar;
    checksum[0] = '\0';
    return lv_fail(error, LEVER_E_NETWORK, "this lever was built without libcurl, which asks the hub");
}

#endif
