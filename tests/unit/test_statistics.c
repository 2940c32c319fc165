/* The figures of an answer, which `lever run --json` and the rows of `lever bench` share: what is unknown is not there.
 */
#include "cli/statistics.h"
#include "support/check.h"

static void check_energy(const lever_statistics *statistics, const char *said) {
    json out;
    json_init(&out);
    json_object_open(&out, NULL);
    statistics_write(&out, statistics, 1, 28);
    json_object_close(&out);
    assert_false(out.failed);
    assert_non_null(strstr(out.text, "completion_tokens"));
    if (said != NULL) {
        assert_non_null(strstr(out.text, said));
    } else {
        assert_null(strstr(out.text, "energy"));
    }
    json_fini(&out);
}

static void test_energy_where_it_is_known(void **state) {
    (void)state;
    lever_statistics statistics = {.completion_tokens = 5};
    check_energy(&statistics, NULL);
    statistics.energy_joules = 10;
    check_energy(&statistics, "\"energy_joules\": 10");
    check_energy(&statistics, "\"energy_per_token\": 2.5");
    check_energy(&statistics, "\"energy_source\": \"processor\"");
    statistics.energy_is_simulated = true;
    check_energy(&statistics, "\"energy_source\": \"simulated\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_energy_where_it_is_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
