/* energy.c - the zones named package-*; those below them are parts of them, and "psys" is the whole board or nothing.
 */
#include "base/energy.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 512 };

static bool read_text(const char *root, uint32_t zone, const char *file, char *text, size_t capacity) {
    char path[PATH_BYTES];
    const int length =
        snprintf(path, sizeof(path), "%s/sys/class/powercap/intel-rapl:%" PRIu32 "/%s", root, zone, file);
    if (length < 0 || (size_t)length >= sizeof(path)) return false;
    FILE *stream = fopen(path, "re");
    if (!stream) return false;
    const bool fine = fgets(text, (int)capacity, stream) != NULL;
    fclose(stream);
    return fine;
}

static bool read_number(const char *root, uint32_t zone, const char *file, uint64_t *number) {
    char text[32];
    return read_text(root, zone, file, text, sizeof(text)) && sscanf(text, "%19" SCNu64, number) == 1;
}

void lv_energy_read(const char *root, lv_energy *energy) {
    static const char package[] = "package-";
    memset(energy, 0, sizeof(*energy));
    char name[32];
    for (uint32_t zone = 0; energy->zones_count < LV_ENERGY_ZONES_MAX; zone++) {
        if (!read_text(root, zone, "name", name, sizeof(name))) return;
        if (strncmp(name, package, sizeof(package) - 1) != 0) continue;
        uint64_t *value = &energy->microjoules[energy->zones_count], *range = &energy->range[energy->zones_count];
        if (!read_number(root, zone, "energy_uj", value) || !read_number(root, zone, "max_energy_range_uj", range)) {
            energy->zones_count = 0; /* a part of the whole would be no figure */
            return;
        }
        energy->zones_count++;
    }
}

double lv_energy_between(const lv_energy *before, const lv_energy *after) {
    if (before->zones_count == 0 || before->zones_count != after->zones_count) return 0;
    double joules = 0;
    for (uint32_t i = 0; i < after->zones_count; i++) {
        uint64_t gone = after->microjoules[i] - before->microjoules[i];
        if (after->microjoules[i] < before->microjoules[i]) gone += after->range[i];
        joules += (double)gone * 1e-6;
    }
    return joules;
}
