/* bench_phones.c - the timing model of the phones without any tokens: methods at assumed tokens a cycle, over the share
 * of the target that stays in memory (docs/PHONES.md).
 *
 *     bench_phones [--as TARGET,DRAFT] [PHONE...]      default: both sections of the phones that are built in
 *
 * Writes rows of CSV. `resident` is plain decoding with everything in memory, the best that the phone can do without a
 * draft. */
#include <stdio.h>
#include <string.h>

#include "phone/method.h"

static const char *const phones[] = {"oneplus12:root", "magicv5:root", "honor500pro:root",
                                     "oneplus12:app",  "magicv5:app",  "honor500pro:app"};
static const char *const methods[] = {"ar", "chain", "edge", "lever"};

enum { METHODS_COUNT = sizeof(methods) / sizeof(methods[0]), SHARE_STEP = 5, NAME_BYTES = 64 };

static void print_phone(const char *phone, const lv_phone_profile *profile, const lv_phone_shape *target,
                        const lv_phone_shape *draft) {
    const lv_phone_method *plain = lv_phone_method_find("ar");
    const double resident = lv_phone_method_run(plain, profile, target, draft, 1).seconds;
    for (int percent = 0; percent <= 100; percent += SHARE_STEP) {
        const double ar = lv_phone_method_run(plain, profile, target, draft, percent / 100.0).seconds;
        for (size_t i = 0; i < METHODS_COUNT; i++) {
            const lv_phone_method *method = lv_phone_method_find(methods[i]);
            const lv_phone_method_times t = lv_phone_method_run(method, profile, target, draft, percent / 100.0);
            printf("%s,%s,%s,%d,%s,%.2f,%.6f,%.3f,%.3f,%.4f\n", phone, target->name, draft->name, percent, method->name,
                   method->tokens, t.seconds, ar / t.seconds, t.seconds / resident, t.joules);
        }
    }
}

static bool find_shapes(const char *names, lv_phone_shape *target, lv_phone_shape *draft, lever_error *error) {
    char first[NAME_BYTES] = "";
    const char *comma = strchr(names, ',');
    if (!comma || (size_t)(comma - names) >= sizeof(first)) return false;
    memcpy(first, names, (size_t)(comma - names));
    return lv_phone_shape_find(target, first, error) == LEVER_OK &&
           lv_phone_shape_find(draft, comma + 1, error) == LEVER_OK;
}

int main(int argc, char **argv) {
    const char *shapes = "llama-3.1-8b-q4_0,llama-3.2-1b-q4_0";
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--as") == 0) {
        shapes = argv[2];
        first = 3;
    }
    lever_error error = {.message = "--as wants TARGET,DRAFT"};
    lv_phone_shape target, draft;
    if (!find_shapes(shapes, &target, &draft, &error)) {
        fprintf(stderr, "bench_phones: %s\n", error.message);
        return 2;
    }
    printf("phone,target,draft,pinned_percent,method,tokens_per_cycle,seconds_per_token,over_ar,over_resident,"
           "joules_per_token\n");
    const size_t given = (size_t)(argc - first);
    for (size_t i = 0; i < (given ? given : sizeof(phones) / sizeof(phones[0])); i++) {
        const char *name = given ? argv[(size_t)first + i] : phones[i];
        lv_phone_profile profile;
        if (lv_phone_profile_load(&profile, name, &error) != LEVER_OK) {
            fprintf(stderr, "bench_phones: %s\n", error.message);
            return 3;
        }
        print_phone(name, &profile, &target, &draft);
    }
    return 0;
}
