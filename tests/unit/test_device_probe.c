/* What trying a device finds: on the device that is made of the CPU, with a hand between it and the probe that spoils
 * results and lets time pass. */
#include <math.h>

#include "compute/device_probe.h"
#include "support/check.h"
#include "support/pairs.h"
#include "support/parts.h"

enum { SECOND = 1000000000 };

/* What the hand does, and what it saw. */
static struct {
    const lv_device_ops *real;
    lv_device_product last; /* that was run */
    uint32_t unsteady_below, wrong_from;
    uint64_t open_ns, prepare_ns, upload_ns, run_ns, read_ns;
    uint32_t prepared, runs, largest_rows;
    lv_clock_virtual clock;
    char last_line[256];
} hand;

static lever_status hand_buffer_open(lv_device *device, uint64_t bytes, lv_device_buffer **buffer, lever_error *error) {
    hand.clock.now_ns += hand.open_ns;
    return hand.real->buffer_open(device, bytes, buffer, error);
}

static lever_status hand_prepare(lv_device *device, const lv_device_matrix *matrix, uint32_t bucket,
                                 lever_error *error) {
    hand.clock.now_ns += hand.prepare_ns;
    hand.prepared++;
    return hand.real->prepare(device, matrix, bucket, error);
}

static lever_status hand_upload(lv_device_buffer *buffer, uint64_t offset, const lv_device_matrix *matrix,
                                lv_weight_layout layout, const void *weights, lever_error *error) {
    hand.clock.now_ns += hand.upload_ns;
    return hand.real->upload(buffer, offset, matrix, layout, weights, error);
}

static lever_status hand_run(lv_device *device, const lv_device_product *product, uint64_t *ticket,
                             lever_error *error) {
    hand.clock.now_ns += hand.run_ns;
    hand.runs++;
    hand.last = *product;
    if (product->matrix.rows_count > hand.largest_rows) hand.largest_rows = (uint32_t)product->matrix.rows_count;
    return hand.real->run(device, product, ticket, error);
}

/* Spoils what only large matrices show. */
static lever_status hand_read(lv_device_buffer *buffer, uint64_t offset, float *values, size_t count,
                              lever_error *error) {
    hand.clock.now_ns += hand.read_ns;
    const lever_status status = hand.real->read(buffer, offset, values, count, error);
    if (hand.last.matrix.rows_count <= 64) return status;
    if (hand.last.bucket < hand.unsteady_below) values[0] = nextafterf(values[0], INFINITY);
    if (hand.wrong_from > 0 && hand.last.matrix.rows_count > hand.wrong_from) values[count - 1] += 1000;
    return status;
}

static void take_line(void *user, lever_log_level level, const char *line) {
    (void)user;
    assert_int_equal(level, LEVER_LOG_DEBUG);
    snprintf(hand.last_line, sizeof(hand.last_line), "%s", line);
}

typedef struct {
    bool forced, measures, own_bits;
    const char *device, *model; /* NULL: the device to test with, the pair's target */
    lv_buckets buckets;         /* that were left */
} way;

/* Tries the device for the pair's target. The hand stays as it is, but for what it saw. */
static lv_device_findings try_it(way *w) {
    static lv_device_ops ops;
    lever_error error;
    parts p;
    parts_open(&p, w->model ? w->model : PAIR_TARGET, false);
    lv_device *device = NULL;
    CHECK_OK(lv_device_open(&device, w->device ? w->device : "test", NULL, NULL, &error));
    hand.real = device->ops;
    hand.prepared = hand.runs = hand.largest_rows = 0;
    ops = *device->ops;
    ops.buffer_open = hand_buffer_open;
    ops.prepare = hand_prepare;
    ops.upload = hand_upload;
    ops.run = hand_run;
    ops.read = hand_read;
    device->ops = &ops;
    device->facts.measures = w->measures;
    device->facts.same_bits = !w->own_bits;
    const lv_clock clock = lv_clock_of_virtual(&hand.clock);
    const lv_log log = {take_line, NULL};
    const lv_device_probe_options options = {
        .weights = p.weights,
        .kernels = lv_kernels_best(),
        .threads = 1,
        .forced = w->forced,
        .clock = &clock,
        .log = &log,
    };
    lv_device_findings findings;
    CHECK_OK(lv_device_probe(device, &options, &findings, &error));
    w->buckets = device->facts.buckets;
    lv_device_close(&device);
    parts_close(&p);
    return findings;
}

static int begin(void **state) {
    (void)state;
    memset(&hand, 0, sizeof(hand));
    return 0;
}

/* --- Results ----------------------------------------------------------------------------------------------------- */

static void test_a_good_device(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        way w = {.forced = i % 2, .own_bits = i / 2};
        const lv_device_findings findings = try_it(&w);
        assert_int_equal(findings.verdict, LV_DEVICE_STREAMS);
        assert_string_equal(findings.reason, "");
        assert_int_equal(w.buckets.count, 6);
        assert_int_equal(hand.largest_rows, 256); /* of the model's own shapes */
    }
}

/* Buckets in which a row has other bits, be it in a large matrix only, are not used. */
static void test_unsteady_buckets_go(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        hand.unsteady_below = 16;
        way w = {.own_bits = i};
        assert_int_equal(try_it(&w).verdict, LV_DEVICE_STREAMS);
        assert_int_equal(w.buckets.count, 3);
        assert_int_equal(w.buckets.rows[0], 16);
    }
}

static void test_wrong_results_of_a_large_matrix(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        hand.wrong_from = 128;
        way w = {.own_bits = i};
        const lv_device_findings findings = try_it(&w);
        assert_int_equal(findings.verdict, LV_DEVICE_REFUSED);
        assert_string_equal(findings.reason, "its results are wrong");
    }
}

/* --- Costs: on this clock the CPU takes nothing ------------------------------------------------------------------ */

static void test_costs_come_first(void **state) {
    (void)state;
    hand.run_ns = SECOND;
    hand.wrong_from = 1;
    way w = {.measures = true};
    const lv_device_findings findings = try_it(&w);
    assert_int_equal(findings.verdict, LV_DEVICE_UNSUITED);
    assert_non_null(strstr(findings.reason, "64 rows of them 1000.00 ms; the CPU takes 0.00 ms"));
    assert_int_equal(hand.prepared, 1);
    assert_int_equal(hand.runs, 3);
    assert_int_equal(hand.last.bucket, 64);
    assert_int_equal(hand.last.matrix.rows_count, 256);

    hand.run_ns = 0;
    hand.upload_ns = SECOND / 10;
    hand.wrong_from = 0;
    assert_int_equal(try_it(&w).verdict, LV_DEVICE_HOLDS);
    w.forced = true;
    assert_int_equal(try_it(&w).verdict, LV_DEVICE_STREAMS);
}

/* The CPU's product is ggml's there, and is compared with all the same: the largest matrix is of such a type. */
static void test_costs_of_a_type_without_a_kernel(void **state) {
    (void)state;
    static const char *const devices[] = {"CPU", "test:floats"};
    for (size_t i = 0; i < 2; i++) {
        hand.run_ns = SECOND;
        way w = {.measures = true,
                 .own_bits = true,
                 .device = devices[i],
                 .model = LEVER_TINY_DIR "/llama-foreign-types.gguf"};
        const lv_device_findings findings = try_it(&w);
        assert_int_equal(findings.verdict, LV_DEVICE_UNSUITED);
        assert_non_null(strstr(findings.reason, "64 rows of them 1000.00 ms; the CPU takes 0.00 ms"));
        assert_false(lv_kernel_supports(hand.last.matrix.type, hand.last.matrix.row_elements));
        hand.run_ns = 0;
        assert_int_equal(try_it(&w).verdict, LV_DEVICE_STREAMS);
    }
}

/* --- Time -------------------------------------------------------------------------------------------------------- */

/* Whatever step takes long is the last one, and is named: in the finding, and in the log before it was taken. */
static void test_trying_ends(void **state) {
    (void)state;
    const struct {
        uint64_t *ns;
        const char *step;
    } steps[] = {{&hand.open_ns, "opening buffers"},
                 {&hand.prepare_ns, "preparing"},
                 {&hand.upload_ns, "uploading"},
                 {&hand.run_ns, "running"},
                 {&hand.read_ns, "reading results"}};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        char reason[256];
        snprintf(
            reason, sizeof(reason),
            "trying it took %s s, %s at last, and 20 s are the most; if its driver was compiling, the next try takes "
            "less",
            steps[i].ns == &hand.open_ns ? "75.0" : "25.0", steps[i].step);
        begin(NULL);
        *steps[i].ns = (uint64_t)25 * SECOND;
        way w = {.forced = true};
        const lv_device_findings findings = try_it(&w);
        assert_int_equal(findings.verdict, LV_DEVICE_REFUSED);
        assert_string_equal(findings.reason, reason);
        assert_non_null(strstr(hand.last_line, steps[i].step));
        assert_non_null(strstr(hand.last_line, "device test: trying q4_0 with 128 rows of 128"));
    }
}

/* Many steps that are not long in themselves. */
static void test_trying_adds_up(void **state) {
    (void)state;
    hand.run_ns = (uint64_t)3 * SECOND;
    way w = {.forced = true};
    const lv_device_findings findings = try_it(&w);
    assert_int_equal(findings.verdict, LV_DEVICE_REFUSED);
    assert_int_equal(hand.runs, 7);
    assert_non_null(strstr(findings.reason, "took 21.0 s, running at last"));
    hand.run_ns = SECOND / 100;
    assert_int_equal(try_it(&w).verdict, LV_DEVICE_STREAMS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_good_device, begin),
        cmocka_unit_test_setup(test_unsteady_buckets_go, begin),
        cmocka_unit_test_setup(test_wrong_results_of_a_large_matrix, begin),
        cmocka_unit_test_setup(test_costs_come_first, begin),
        cmocka_unit_test_setup(test_costs_of_a_type_without_a_kernel, begin),
        cmocka_unit_test_setup(test_trying_ends, begin),
        cmocka_unit_test_setup(test_trying_adds_up, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
