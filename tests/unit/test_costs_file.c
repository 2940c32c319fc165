/* Costs and calibration between runs: kept by pair, budget class and threads, and as good as none when damaged. */
/* faults: memory */
#include "engine/costs_file.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "support/check.h"
#include "support/fault.h"
#include "support/scratch.h"

enum { FILE_BYTES_MAX = 1 << 20 };

/* A folder of its own for each test, made when the first file goes into it. */
static char *make_folder(const char *name, char *path, size_t capacity) {
    char file[600];
    snprintf(file, sizeof(file), "%s/now", name);
    char inside[1024];
    scratch_write(file, "", 0, inside, sizeof(inside));
    assert_int_equal(remove(inside), 0);
    return scratch_path(name, path, capacity);
}

static lv_ledger *open_ledger(void) {
    lv_ledger *ledger = lv_ledger_create(LV_LEDGER_UNLIMITED);
    assert_non_null(ledger);
    return ledger;
}

static lv_costs prior(void) {
    lv_costs costs;
    lv_costs_init(&costs, .02, .01, .005, .3, .04);
    return costs;
}

/* Opens, says whether something was known, learns if wanted, closes. */
static bool use(const lv_costs_share_options *options, bool learn) {
    lv_ledger *ledger = open_ledger();
    lv_costs_share share;
    lever_error error;
    const lv_costs before = prior();
    CHECK_OK(lv_costs_share_open(&share, options, &before, ledger, &error));
    lv_costs costs;
    lv_calibration calibration;
    lv_costs_share_take(&share, &costs, &calibration);
    const bool known = costs.draft[LV_SPLIT_ALL].samples[0] > 0;
    assert_int_equal(known,
                     calibration.by_rank[LV_SOURCE_DRAFT][3].trials != calibration.by_rank[LV_SOURCE_DRAFT][4].trials);
    if (!known) assert_memory_equal(&costs.draft, &before.draft, sizeof(before.draft));
    assert_int_equal(costs.frozen, options->frozen_path != NULL);
    assert_int_equal(calibration.frozen, options->frozen_path != NULL);
    if (learn) {
        const lv_feature feature = {.source = LV_SOURCE_DRAFT, .rank = 3, .depth = 1, .estimate = .2f, .margin = .1f};
        lv_cost_curve_learn(&costs.draft[LV_SPLIT_ALL], 1, .011);
        lv_calibration_learn(&calibration, &feature, true);
        lv_costs_share_give(&share, &costs, &calibration, options->pass_read_bytes);
    }
    lv_costs_share_close(&share);
    lv_ledger_free(ledger);
    return known;
}

static void test_kept(void **state) {
    (void)state;
    char folder[512], path[1024];
    const lv_costs_share_options options = {
        .folder = make_folder("kept", folder, sizeof(folder)),
        .target_path = "/proc/self/exe",
        .draft_path = "/proc/self/status",
        .pass_read_bytes = 700u << 20,
        .threads = 2,
    };
    assert_false(use(&options, false)); /* nothing learned, nothing kept */
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 0);
    assert_false(use(&options, true));
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    assert_true(use(&options, false));
    assert_true(use(&options, true));
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
}

/* Another pair, budget or number of threads has costs of its own. */
static void test_apart(void **state) {
    (void)state;
    char folder[512], path[1024], one[512], two[512];
    const lv_costs_share_options options = {
        .folder = make_folder("apart", folder, sizeof(folder)),
        .target_path = scratch_write("one.gguf", "1", 1, one, sizeof(one)),
        .draft_path = scratch_write("two.gguf", "22", 2, two, sizeof(two)),
        .pass_read_bytes = 640u << 20,
        .threads = 2,
    };
    assert_false(use(&options, true));
    lv_costs_share_options other = options;
    other.threads = 1;
    assert_false(use(&other, true));
    other = options;
    other.pass_read_bytes = 300u << 20;
    assert_false(use(&other, true));
    other = options;
    other.draft_path = NULL;
    assert_false(use(&other, true));
    other = options;
    other.target_path = two;
    assert_false(use(&other, true));
    other = options;
    other.disk_bytes_per_second = 500000000;
    assert_false(use(&other, true));
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 6);
    other = options;
    other.pass_read_bytes += 10u << 20; /* nearly the same budget */
    assert_true(use(&other, false));
    scratch_write("one.gguf", "longer now", 10, one, sizeof(one)); /* another file under the old name */
    assert_false(use(&options, false));
}

static void test_nowhere_to_keep(void **state) {
    (void)state;
    static const char *const folders[] = {NULL, "", "/no/such/folder", "/dev/null"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        const lv_costs_share_options options = {.folder = folders[i], .target_path = "/proc/self/exe", .threads = 1};
        assert_false(use(&options, true));
        assert_false(use(&options, false));
    }
}

static size_t read_file(const char *path, char *text) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t bytes = fread(text, 1, FILE_BYTES_MAX, file);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const char *text, size_t bytes) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

/* Cut anywhere, with a byte that does not belong, or not text at all: ignored from the cache, refused by name. */
static void test_damage(void **state) {
    (void)state;
    char folder[512], path[1024];
    const lv_costs_share_options options = {
        .folder = make_folder("damage", folder, sizeof(folder)), .target_path = "/proc/self/exe", .threads = 1};
    assert_false(use(&options, true));
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    char *text = calloc(1, FILE_BYTES_MAX), *bad = calloc(1, FILE_BYTES_MAX);
    assert_true(text && bad);
    const size_t bytes = read_file(path, text);
    assert_true(bytes > 100 && bytes < FILE_BYTES_MAX);
    lv_ledger *ledger = open_ledger();
    const lv_costs_share_options frozen = {.frozen_path = path};
    const lv_costs before = prior();
    for (uint32_t kind = 0; kind < 24; kind++) {
        memcpy(bad, text, bytes);
        size_t kept = bytes;
        if (kind < 16) kept = bytes * kind / 16;
        if (kind == 16) bad[3] = '\0';
        if (kind == 17) bad[bytes - 3] = '\0';
        if (kind >= 18) memset(bad + (bytes - 12) * (kind - 18) / 6, '#', 12);
        write_file(path, bad, kept);
        lv_costs_share share;
        lever_error error;
        const lever_status status = lv_costs_share_open(&share, &frozen, &before, ledger, &error);
        lv_costs_share_close(&share);
        if (status == LEVER_OK) fail_msg("damage %u was taken for costs", kind);
        assert_int_equal(status, LEVER_E_FORMAT);
        assert_non_null(strstr(error.message, path));
        assert_false(use(&options, false));
    }
    assert_false(use(&options, true)); /* replaced by what is learned next */
    assert_true(use(&options, false));
    lv_ledger_free(ledger);
    free(text);
    free(bad);
}

/* Named costs are frozen: nothing is learned, nothing is written. */
static void test_frozen(void **state) {
    (void)state;
    char folder[512], path[1024];
    lv_costs_share_options options = {
        .folder = make_folder("frozen", folder, sizeof(folder)), .target_path = "/proc/self/exe", .threads = 1};
    assert_false(use(&options, true));
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    char *before = calloc(1, FILE_BYTES_MAX), *after = calloc(1, FILE_BYTES_MAX);
    assert_true(before && after);
    const size_t bytes = read_file(path, before);
    options.frozen_path = path;
    assert_true(use(&options, true));
    assert_int_equal(read_file(path, after), bytes);
    assert_memory_equal(before, after, bytes);
    lv_costs_share share;
    lever_error error;
    const lv_costs costs = prior();
    lv_ledger *ledger = open_ledger();
    options.frozen_path = "/no/such/file";
    CHECK_FAILS(lv_costs_share_open(&share, &options, &costs, ledger, &error), LEVER_E_IO, "/no/such/file");
    lv_costs_share_close(&share);
    lv_ledger_free(ledger);
    free(before);
    free(after);
}

/* For a report: what was kept last, of whatever budget up to the one that is named. */
static void test_newest(void **state) {
    (void)state;
    char folder[512];
    lv_costs_share_options options = {
        .folder = make_folder("newest", folder, sizeof(folder)), .target_path = "/proc/self/exe", .threads = 2};
    lv_costs costs = prior();
    const lv_costs untouched = costs;
    lv_calibration calibration;
    uint64_t pass_read_bytes = 0;
    options.pass_read_bytes = 640u << 20;
    assert_false(lv_costs_file_newest(&options, &costs, &calibration, &pass_read_bytes));
    assert_memory_equal(&costs, &untouched, sizeof(costs));
    options.pass_read_bytes = 128u << 20;
    assert_false(use(&options, true));
    options.pass_read_bytes = 640u << 20;
    assert_true(lv_costs_file_newest(&options, &costs, &calibration, &pass_read_bytes));
    assert_int_equal(pass_read_bytes, 128u << 20);
    assert_true(costs.draft[LV_SPLIT_ALL].samples[0] > 0);
    options.pass_read_bytes = 64u << 20;
    assert_false(lv_costs_file_newest(&options, &costs, &calibration, &pass_read_bytes));
    options.pass_read_bytes = 640u << 20;
    options.threads = 1;
    assert_false(lv_costs_file_newest(&options, &costs, &calibration, &pass_read_bytes));
}

/* --- What a pass streams changes --------------------------------------------------------------------------------- */

enum { MIB = 1 << 20 };

static lv_costs costs_of(lv_costs_share *share) {
    lv_costs costs;
    lv_calibration calibration;
    lv_costs_share_take(share, &costs, &calibration);
    return costs;
}

static void check_reading(lv_costs_share *share, double io, double ring) {
    const lv_costs costs = costs_of(share);
    if (fabs(costs.io_seconds - io) > 1e-8 || fabs(costs.ring_seconds - ring) > 1e-8)
        fail_msg("io %g, ring %g instead of %g, %g", costs.io_seconds, costs.ring_seconds, io, ring);
}

static void follow(lv_costs_share *share, uint64_t mib) {
    lv_costs_share_follow(
        share, &(lv_costs_reading){.pass_read_bytes = mib * MIB, .ring_bytes = 64 * MIB, .bytes_per_second = 1e9});
}

static void give(lv_costs_share *share, uint64_t mib, double io) {
    lv_costs costs;
    lv_calibration calibration;
    lv_costs_share_take(share, &costs, &calibration);
    costs.io_seconds = io;
    lv_costs_share_give(share, &costs, &calibration, mib * MIB);
}

/* Each class keeps its own costs, also when the engine goes from one to the other; what is not known yet is computed
 * from what is. */
static void test_following(void **state) {
    (void)state;
    char folder[512], path[1024];
    lv_costs_share_options options = {
        .folder = make_folder("follow", folder, sizeof(folder)),
        .target_path = "/proc/self/exe",
        .device = "test",
        .pass_read_bytes = 640ull * MIB,
        .threads = 2,
    };
    lv_ledger *ledger = open_ledger();
    lv_costs_share share;
    lever_error error;
    lv_costs before = prior();
    CHECK_OK(lv_costs_share_open(&share, &options, &before, ledger, &error));
    lv_costs learned = costs_of(&share);
    lv_calibration calibration;
    lv_cost_curve_learn(&learned.draft[LV_SPLIT_ALL], 1, .011);
    lv_calibration_init(&calibration);
    lv_costs_share_give(&share, &learned, &calibration, options.pass_read_bytes);
    follow(&share, 660); /* of the same class */
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 0);

    follow(&share, 320);
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    check_reading(&share, .15, .03); /* as fast as before */
    const lv_costs now = costs_of(&share);
    assert_memory_equal(&now.draft, &learned.draft, sizeof(now.draft));
    give(&share, 640, 9); /* of who has not gone on yet */
    check_reading(&share, .15, .03);
    give(&share, 320, .2);
    check_reading(&share, .2, .03);

    follow(&share, 0);
    check_reading(&share, 0, 0);
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 2);
    follow(&share, 321);
    check_reading(&share, .2, .03);
    follow(&share, 10);
    check_reading(&share, .2 * 10 / 321, .2 * 10 / 321); /* all of it fits the ring */
    give(&share, 10, .5);
    follow(&share, 0); /* in the same file */
    check_reading(&share, 0, 0);
    follow(&share, 5);
    check_reading(&share, 5 * MIB / 1e9, 5 * MIB / 1e9); /* nothing else is known */
    follow(&share, 641);
    check_reading(&share, .3, .04);
    lv_costs_share_close(&share);
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 3);
    lv_ledger_free(ledger);
}

/* A class that begins with nothing has files of both: what streamed a little is no measure for nothing, and the other
 * way round. Frozen costs stay what they are. */
static void test_nothing_and_a_little(void **state) {
    (void)state;
    char folder[512], path[1024];
    lv_costs_share_options options = {
        .folder = make_folder("little", folder, sizeof(folder)), .target_path = "/proc/self/exe", .threads = 2};
    lv_ledger *ledger = open_ledger();
    lv_costs_share share;
    lever_error error;
    lv_costs before = prior();
    options.pass_read_bytes = 5 * MIB;
    CHECK_OK(lv_costs_share_open(&share, &options, &before, ledger, &error));
    give(&share, 5, .5);
    lv_costs_share_close(&share);
    before.io_seconds = before.ring_seconds = 0;
    options.pass_read_bytes = 0;
    CHECK_OK(lv_costs_share_open(&share, &options, &before, ledger, &error));
    check_reading(&share, 0, 0);
    give(&share, 0, 0);
    lv_costs_share_close(&share);
    before = prior();
    options.pass_read_bytes = 5 * MIB;
    CHECK_OK(lv_costs_share_open(&share, &options, &before, ledger, &error));
    check_reading(&share, .3, .04);
    lv_costs_share_close(&share);

    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
    options.frozen_path = path;
    CHECK_OK(lv_costs_share_open(&share, &options, &before, ledger, &error));
    const lv_costs frozen = costs_of(&share);
    follow(&share, 2000);
    check_reading(&share, frozen.io_seconds, frozen.ring_seconds);
    lv_costs_share_close(&share);
    lv_ledger_free(ledger);
}

/* Without memory nothing is known and nothing kept, and nothing is lost. */
static void test_no_memory(void **state) {
    (void)state;
    char folder[512], path[1024];
    const lv_costs_share_options options = {
        .folder = make_folder("memory", folder, sizeof(folder)), .target_path = "/proc/self/exe", .threads = 1};
    assert_false(use(&options, true));
    const int64_t blocks = fault_memory_blocks();
    for (uint64_t nth = 2;; nth++) { /* the first is the ledger's */
        fault_memory_set(nth, 1);
        (void)use(&options, true);
        const uint64_t calls = fault_memory_calls();
        fault_memory_set(0, 0);
        assert_int_equal(fault_memory_blocks(), blocks);
        assert_true(use(&options, false));
        if (calls < nth) break;
    }
    assert_int_equal(scratch_find(folder, path, sizeof(path)), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_nowhere_to_keep),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_following),
        cmocka_unit_test(test_nothing_and_a_little),
        cmocka_unit_test(test_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
