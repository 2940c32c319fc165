/* Energy counters: packages are summed, parts and the board are left out, a counter may begin anew, and what cannot be
 * read is not known. */
#include "base/energy.h"

#include "support/check.h"
#include "support/scratch.h"

static void write_zone(const char *root, unsigned zone, const char *name, const char *value, const char *range) {
    const char *const files[] = {"name", "energy_uj", "max_energy_range_uj"};
    const char *const texts[] = {name, value, range};
    for (size_t i = 0; i < 3; i++) {
        char file[200], path[800];
        if (!texts[i]) continue;
        snprintf(file, sizeof(file), "%s/sys/class/powercap/intel-rapl:%u/%s", root, zone, files[i]);
        scratch_write(file, texts[i], strlen(texts[i]), path, sizeof(path));
    }
}

static lv_energy read_root(const char *root) {
    char path[600];
    lv_energy energy;
    lv_energy_read(scratch_path(root, path, sizeof(path)), &energy);
    return energy;
}

static void test_packages(void **state) {
    (void)state;
    write_zone("two", 0, "package-0\n", "1000000\n", "5000000\n");
    write_zone("two", 1, "psys\n", "77\n", "5000000\n");
    write_zone("two", 2, "package-1\n", "4000000\n", "4500000\n");
    const lv_energy before = read_root("two");
    assert_int_equal(before.zones_count, 2);
    write_zone("two", 0, "package-0\n", "3500000\n", "5000000\n");
    write_zone("two", 2, "package-1\n", "500000\n", "4500000\n");
    const lv_energy after = read_root("two");
    CHECK_DOUBLE(lv_energy_between(&before, &after), 2.5 + 1.0, 1e-9);
}

static void test_unknown(void **state) {
    (void)state;
    write_zone("half", 0, "package-0\n", "1\n", "9\n");
    write_zone("half", 1, "package-1\n", NULL, "9\n");
    write_zone("damaged", 0, "package-0\n", "many\n", "9\n");
    write_zone("other", 0, "core\n", "1\n", "9\n");
    static const char *const roots[] = {"nothing", "half", "damaged", "other"};
    for (size_t i = 0; i < 4; i++) {
        const lv_energy energy = read_root(roots[i]);
        assert_int_equal(energy.zones_count, 0);
        CHECK_DOUBLE(lv_energy_between(&energy, &energy), 0, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packages), cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
