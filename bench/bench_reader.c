/* bench_reader - the reader alone, over sizes of blocks and numbers of lanes, in one process.
 *
 *     bench_reader MODEL [--blocks MIB,...] [--lanes N,...] [--ring MIB] [--passes N] [--rounds N] [--small-pages]
 * [--json]
 *
 * Streams the layers of a model through the store and gives every block back at once: what decoding could reach at
 * most. Each round visits all combinations in turn, after one pass that is not counted each; a row gives the median
 * rate, and the median over the rounds of the ratio to the first combination. On a busy machine, and on a disk that
 * others use too, the ratios are to be trusted, not the rates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compute/weights.h"
#include "flash/store.h"

enum { CHOICES_MAX = 16, ROUNDS_MAX = 101 };

typedef struct {
    const char *path;
    uint64_t blocks_mib[CHOICES_MAX], lanes[CHOICES_MAX];
    size_t blocks_count, lanes_count;
    uint64_t ring_mib, passes, rounds;
    bool huge_pages, json;
} options;

static bool parse_list(const char *text, uint64_t maximum, uint64_t *values, size_t *count) {
    char copy[256], *rest = NULL;
    *count = 0;
    if (text == NULL || strlen(text) >= sizeof copy) return false;
    strcpy(copy, text);
    for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest))
        if (*count == CHOICES_MAX || !lv_parse_u64(item, 1, maximum, &values[(*count)++])) return false;
    return *count > 0;
}

static bool parse(int count, char **arguments, options *o) {
    *o = (options){.blocks_mib = {8, 2, 4, 16, 32},
                   .lanes = {2, 1, 3, 4},
                   .blocks_count = 5,
                   .lanes_count = 4,
                   .ring_mib = 64,
                   .passes = 1,
                   .rounds = 7,
                   .huge_pages = true};
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
        bool good = true, takes_value = true;
        if (strcmp(name, "--blocks") == 0) {
            good = parse_list(value, 32, o->blocks_mib, &o->blocks_count);
        } else if (strcmp(name, "--lanes") == 0) {
            good = parse_list(value, 64, o->lanes, &o->lanes_count);
        } else if (strcmp(name, "--ring") == 0) {
            good = lv_parse_u64(value, 1, 65536, &o->ring_mib);
        } else if (strcmp(name, "--passes") == 0) {
            good = lv_parse_u64(value, 1, 1000, &o->passes);
        } else if (strcmp(name, "--rounds") == 0) {
            good = lv_parse_u64(value, 1, ROUNDS_MAX, &o->rounds);
        } else {
            takes_value = false;
            if (strcmp(name, "--small-pages") == 0) {
                o->huge_pages = false;
            } else if (strcmp(name, "--json") == 0) {
                o->json = true;
            } else {
                good = o->path == NULL && name[0] != '-';
                o->path = name;
            }
        }
        if (!good) return false;
        i += takes_value;
    }
    return o->path != NULL;
}

static lever_status measure(const options *o, const lv_gguf *gguf, const lv_model *model, size_t b, size_t l,
                            double *rate, lever_error *error) {
    lv_weights *weights = NULL;
    lv_store *store = NULL;
    bool *pinned = NULL;
    lever_status status = lv_weights_open(&weights, gguf, model, o->blocks_mib[b] << 20, true, NULL, error);
    if (status != LEVER_OK) goto done;
    pinned = calloc(weights->layout->blocks_count, sizeof *pinned);
    if (pinned == NULL) abort();
    uint64_t slots = (o->ring_mib << 20) / weights->layout->slot_bytes;
    const lv_store_options store_options = {.gguf = gguf,
                                            .layout = weights->layout,
                                            .pinned = pinned,
                                            .slots_count = slots < 2 ? 2 : (uint32_t)slots,
                                            .lanes = (uint32_t)o->lanes[l],
                                            .huge_pages = o->huge_pages,
                                            .clock = &lv_clock_real};
    status = lv_store_open(&store, &store_options, error);
    if (status == LEVER_OK) status = lv_store_measure(store, 1, rate, error);
    if (status == LEVER_OK) status = lv_store_measure(store, (uint32_t)o->passes, rate, error);
done:
    lv_store_close(&store);
    free(pinned);
    lv_weights_close(&weights);
    return status;
}

static int compare(const void *a, const void *b) {
    const double *one = a, *other = b;
    return (*one > *other) - (*one < *other);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

static double rates[CHOICES_MAX][CHOICES_MAX][ROUNDS_MAX];

static void report(const options *o) {
    if (!o->json) printf("block MiB  lanes      GB/s  to the first\n");
    double first[ROUNDS_MAX];
    memcpy(first, rates[0][0], sizeof first);
    for (size_t b = 0; b < o->blocks_count; b++) {
        for (size_t l = 0; l < o->lanes_count; l++) {
            double ratios[ROUNDS_MAX];
            for (size_t r = 0; r < o->rounds; r++) ratios[r] = rates[b][l][r] / first[r];
            double ratio = median(ratios, o->rounds), rate = median(rates[b][l], o->rounds) / 1e9;
            const char *format = o->json
                                     ? "{\"block_mib\": %llu, \"lanes\": %llu, \"gb_per_s\": %.3f, \"ratio\": %.3f}\n"
                                     : "%9llu %6llu %9.3f %13.3f\n";
            printf(format, (unsigned long long)o->blocks_mib[b], (unsigned long long)o->lanes[l], rate, ratio);
        }
    }
}

int main(int count, char **arguments) {
    options o;
    if (!parse(count, arguments, &o)) {
        fprintf(stderr, "usage: bench_reader MODEL [--blocks MIB,...] [--lanes N,...] [--ring MIB] [--passes N] "
                        "[--rounds N] [--small-pages] [--json]\n");
        return 2;
    }
    lever_error error;
    lv_gguf *gguf = NULL;
    lv_model *model = NULL;
    lever_status status = lv_gguf_open(&gguf, o.path, &(lv_file_options){.direct = true}, &error);
    if (status == LEVER_OK) status = lv_model_bind(&model, gguf, NULL, &error);
    for (size_t r = 0; r < o.rounds && status == LEVER_OK; r++)
        for (size_t b = 0; b < o.blocks_count; b++)
            for (size_t l = 0; l < o.lanes_count && status == LEVER_OK; l++)
                status = measure(&o, gguf, model, b, l, &rates[b][l][r], &error);
    if (status == LEVER_OK) {
        report(&o);
    } else {
        fprintf(stderr, "bench_reader: %s\n", error.message);
    }
    lv_model_free(&model);
    lv_gguf_close(&gguf);
    return status == LEVER_OK ? 0 : 1;
}
