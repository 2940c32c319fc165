/* The timing model of the phones against numbers that were worked out independently for the same formulas, and against
 * what was published; and passes whose times follow by hand. */
#include <math.h>

#include "phone/method.h"
#include "phone/pipeline.h"
#include "support/check.h"

#define GB 1e9
#define MIB 1048576.0

enum { PHONES = 3 };

static const char *const names[2][PHONES] = {{"oneplus12:root", "magicv5:root", "honor500pro:root"},
                                             {"oneplus12:app", "magicv5:app", "honor500pro:app"}};

static lv_phone_profile load(const char *name) {
    lv_phone_profile profile;
    lever_error error;
    CHECK_OK(lv_phone_profile_load(&profile, name, &error));
    return profile;
}

static lv_phone_shape shape_of(const char *name) {
    lv_phone_shape shape;
    lever_error error;
    CHECK_OK(lv_phone_shape_find(&shape, name, &error));
    return shape;
}

static void check_near(double got, double wanted, double share, const char *what) {
    if (fabs(got / wanted - 1) > share) fail_msg("%s: %g, wanted %g within %g %%", what, got, wanted, share * 100);
}

static double pass_seconds(const char *phone, const char *model, double rows, double pinned_share) {
    const lv_phone_profile p = load(phone);
    const lv_phone_shape shape = shape_of(model);
    lv_phone_pipeline pipeline;
    lv_phone_pipeline_init(&pipeline, &p, &shape, (uint32_t)lround(pinned_share * shape.layers_count), 0);
    const lv_phone_pass pass = {.rows = rows, .speed = 1};
    return lv_phone_pipeline_pass(&pipeline, &p, &shape, &pass).end;
}

/* --- Against the table ------------------------------------------------------------------------------------------- */

static void test_sanity_table(void **state) {
    (void)state;
    const lv_phone_load idle = LV_PHONE_IDLE;
    const lv_phone_shape target = shape_of("llama-3.1-8b-q4_0"), draft = shape_of("llama-3.2-1b-q4_0");
    const lv_phone_profile oneplus = load("oneplus12:root"), magic = load("magicv5:root"), app = load("oneplus12:app");
    const lv_phone_method *ar = lv_phone_method_find("ar");
    const struct {
        const char *what;
        double got, wanted;
    } cases[] = {
        {"8B resident, NPU, OnePlus 12", lv_phone_method_run(ar, &oneplus, &target, &draft, 1).seconds, 0.0875},
        {"8B resident, NPU, 8 Elite", lv_phone_method_run(ar, &magic, &target, &draft, 1).seconds, 0.083},
        {"8B resident, CPU", lv_phone_forward_cpu(&oneplus, &target, 1, 1, &idle).seconds, 0.117},
        {"8B resident, NPU that unpacks", lv_phone_method_run(ar, &app, &target, &draft, 1).seconds, 0.206},
        {"128 rows", pass_seconds("oneplus12:root", "llama-3.1-8b-q4_0", 128, 1), 0.271},
        {"1B draft, CPU", lv_phone_forward_cpu(&oneplus, &draft, 1, 1, &idle).seconds, 0.021},
        {"head, 1 row", lv_phone_head(&oneplus, &target, 1, &idle), 0.0115},
        {"head, 16 rows", lv_phone_head(&oneplus, &target, 16, &idle), 0.099},
        {"head, 64 rows", lv_phone_head(&oneplus, &target, 64, &idle), 0.396},
        {"pass, 64 rows", pass_seconds("oneplus12:root", "llama-3.1-8b-q4_0", 64, 1), 0.136},
        {"pass, 64 rows, unpacking", pass_seconds("oneplus12:app", "llama-3.1-8b-q4_0", 64, 1), 0.195},
        {"8B streamed, OnePlus 12", lv_phone_method_run(ar, &oneplus, &target, &draft, 0).seconds, 1.166},
        {"8B streamed, app", lv_phone_method_run(ar, &app, &target, &draft, 0).seconds, 1.570},
        {"8B half streamed", lv_phone_method_run(ar, &oneplus, &target, &draft, 0.5).seconds, 0.593},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_near(cases[i].got, cases[i].wanted, 0.02, cases[i].what);
    }
    const lv_phone_work npu = {.seconds = 1, .npu_seconds = 1}, cpu = {.seconds = 1, .cpu_seconds = 1};
    check_near(lv_phone_joules(&oneplus, &npu), 4.8, 0.02, "watts, NPU");
    check_near(lv_phone_joules(&oneplus, &cpu), 8.2, 0.02, "watts, CPU");
}

static void test_flash_rates(void **state) {
    (void)state;
    static const struct {
        const char *phone;
        double block, queue, lanes, range, wanted; /* MiB/s */
    } cases[] = {
        {"oneplus12:app", 4 * MIB, 1, 1, 4 * GB, 1817},
        {"oneplus12:app", 4 * MIB, 2, 2, 4 * GB, 2448},
        {"oneplus12:app", 4 * MIB, 4, 4, 4 * GB, 2375},
        {"oneplus12:app", 4 * MIB, 8, 8, 4 * GB, 2228},
        {"oneplus12:app", 4 * MIB, 16, 16, 4 * GB, 2228},
        {"oneplus12:root", 4096, 40, 1, 0.134 * GB, 1.04 * GB / MIB},
        {"oneplus12:root", 4096, 40, 1, 0.537 * GB, 0.82 * GB / MIB},
        {"oneplus12:root", 4096, 32, 1, 4 * GB, 0.44 * GB / MIB},
        {"oneplus12:root", 65536, 32, 1, 4 * GB, 2.45 * GB / MIB},
        {"oneplus12:root", MIB, 1, 2, 4 * GB, 2.56 * GB / MIB},
        {"oneplus12:root", MIB, 4, 2, 4 * GB, 3.41 * GB / MIB},
        {"honor500pro:app", MIB, 4, 2, 4 * GB, 2.36 * GB / MIB},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const lv_phone_profile p = load(cases[i].phone);
        const double rate =
            lv_phone_flash_rate(&p, cases[i].block, cases[i].queue, cases[i].lanes, cases[i].range) / MIB;
        check_near(rate, cases[i].wanted, 0.02, cases[i].phone);
    }
    lv_phone_profile p = load("oneplus12");
    const double whole = lv_phone_read_rate(&p, 4 * GB);
    p.flash_fragmentation = 0.9;
    check_near(lv_phone_read_rate(&p, 4 * GB), 0.9 * whole, 1e-9, "fragmentation");
    p.flash_core = 0.708;
    assert_true(lv_phone_read_rate(&p, 4 * GB) < 0.9 * whole);
}

/* Milliseconds of a token and the gain over plain decoding, by the share that is pinned. */
static void test_methods(void **state) {
    (void)state;
    static const struct {
        const char *phone;
        int percent;
        double ar, lever; /* ms */
        double chain_gain, edge_gain, lever_gain;
    } cases[] = {
        {"oneplus12:root", 0, 1166, 407, 1.91, 2.19, 2.86},  {"oneplus12:root", 25, 880, 325, 1.85, 2.05, 2.71},
        {"oneplus12:root", 50, 592, 241, 1.74, 1.83, 2.45},  {"oneplus12:root", 75, 310, 159, 1.49, 1.40, 1.94},
        {"oneplus12:root", 90, 148, 113, 1.13, 0.91, 1.32},  {"oneplus12:root", 100, 87.5, 95, 0.85, 0.62, 0.92},
        {"oneplus12:app", 0, 1569, 544, 1.96, 2.31, 2.89},   {"oneplus12:app", 50, 800, 321, 1.82, 2.00, 2.49},
        {"oneplus12:app", 100, 206, 148, 1.30, 1.12, 1.39},  {"magicv5:root", 0, 1133, 381, 1.95, 2.30, 2.97},
        {"magicv5:app", 75, 418, 190, 1.71, 1.80, 2.20},     {"honor500pro:root", 25, 903, 314, 1.91, 2.21, 2.87},
        {"honor500pro:app", 0, 1681, 556, 2.00, 2.43, 3.02},
    };
    const lv_phone_shape target = shape_of("llama-3.1-8b-q4_0"), draft = shape_of("llama-3.2-1b-q4_0");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const lv_phone_profile p = load(cases[i].phone);
        double seconds[4];
        static const char *const methods[] = {"ar", "chain", "edge", "lever"};
        for (size_t m = 0; m < 4; m++) {
            const lv_phone_method *method = lv_phone_method_find(methods[m]);
            seconds[m] = lv_phone_method_run(method, &p, &target, &draft, cases[i].percent / 100.0).seconds;
        }
        check_near(seconds[0], cases[i].ar / 1e3, 0.02, cases[i].phone);
        check_near(seconds[3], cases[i].lever / 1e3, 0.02, cases[i].phone);
        check_near(seconds[0] / seconds[1], cases[i].chain_gain, 0.02, cases[i].phone);
        check_near(seconds[0] / seconds[2], cases[i].edge_gain, 0.02, cases[i].phone);
        check_near(seconds[0] / seconds[3], cases[i].lever_gain, 0.02, cases[i].phone);
    }
    assert_null(lv_phone_method_find("other"));
}

/* What was published of the three phones: mean ratios of speed with nothing pinned, and less energy. */
static void test_published_ratios(void **state) {
    (void)state;
    static const struct {
        const char *method;
        double wanted;
    } cases[] = {{"ar", 2.93}, {"chain", 1.50}, {"edge", 1.27}};
    const lv_phone_shape target = shape_of("llama-3.1-8b-q4_0"), draft = shape_of("llama-3.2-1b-q4_0");
    const lv_phone_method *lever = lv_phone_method_find("lever");
    for (size_t section = 0; section < 2; section++) {
        for (size_t i = 0; i < 3; i++) {
            double sum = 0;
            for (size_t n = 0; n < PHONES; n++) {
                const lv_phone_profile p = load(names[section][n]);
                const lv_phone_method_times ours = lv_phone_method_run(lever, &p, &target, &draft, 0);
                const lv_phone_method_times other =
                    lv_phone_method_run(lv_phone_method_find(cases[i].method), &p, &target, &draft, 0);
                sum += other.seconds / ours.seconds;
                if (i == 0) assert_true(ours.joules <= 0.6 * other.joules);
            }
            check_near(sum / PHONES, cases[i].wanted, 0.05, cases[i].method);
        }
    }
}

/* --- By hand ----------------------------------------------------------------------------------------------------- */

/* A phone without anything but what is under test: one layer reads in 2 s and computes in 1 s. */
static lv_phone_profile plain_phone(void) {
    lv_phone_profile p = load("oneplus12");
    p.flash_sequential = 1e15;
    p.flash_iops = p.flash_iops_least = 1e15;
    p.flash_request = p.read_block; /* seconds of a request: one byte a second */
    p.read_queue = 1;
    p.read_lanes = 1;
    p.flash_copy = 0;
    p.ring_layers = 2;
    p.memory_copies = 0;
    p.memory_bandwidth = 100;
    p.npu_bandwidth = 2;
    p.npu_crossing = 0;
    p.npu_io_loss = 0;
    p.npu_arithmetic = 1e15;
    p.npu_dequantise = 0;
    p.cpu_bandwidth = 99;
    p.cpu_bandwidth_share = 1;
    return p;
}

static const lv_phone_shape plain_shape = {
    .layers_count = 4, .layer_weights = 2, .layer_bytes = 2, .head_weights = 1, .head_bytes = 1, .width = 1};

static void test_pipeline_by_hand(void **state) {
    (void)state;
    const lv_phone_profile p = plain_phone();
    lv_phone_pipeline pl;
    lv_phone_pipeline_init(&pl, &p, &plain_shape, 0, 0);
    check_near(lv_phone_pipeline_read(&pl, &p, &plain_shape), 8, 1e-6, "reading a pass");
    check_near(lv_phone_pipeline_compute(&pl, &p, &plain_shape, 1, 1, 0, false), 4, 1e-6, "computing a pass");
    /* Reads end at 2, 4, 6 and 8; computing at 3, 5, 7 and 9. */
    lv_phone_pass pass = {.rows = 1, .speed = 1};
    lv_phone_pass_times t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
    check_near(t.end, 9, 1e-6, "the first pass");
    check_near(t.wait_seconds, 5, 1e-6, "waiting");
    check_near(t.compute_seconds, 4, 1e-6, "computing");
    check_near(t.reader_seconds, 8, 1e-6, "reading");
    check_near(t.bytes_read, 8, 1e-6, "bytes");
    /* The reader goes on: the next layers arrive at 10 and 12 whenever the pass begins; then the ring is full. */
    pass.begin = t.end;
    t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
    check_near(t.end, 17, 1e-6, "the next pass at once");
    pass.begin = 100; /* both slots are full: computing ends at 101, reads at 103 and 104 (slots free at 101 and 102) */
    t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
    check_near(t.end, 106, 1e-6, "a pass after a long rest");
    check_near(t.wait_seconds, 2, 1e-6, "waiting after a long rest");
}

static void test_pinned_and_ring(void **state) {
    (void)state;
    lv_phone_profile p = plain_phone();
    static const struct {
        uint32_t pinned, ring;
        double npu_bandwidth, end; /* of the first pass */
    } cases[] = {
        {4, 2, 2, 4},    /* nothing is read */
        {2, 2, 2, 6},    /* 0 and 2 are streamed, arrive at 2 and 4, and are computed at 3 and 5; 3 follows */
        {0, 2, 0.5, 18}, /* a layer computes in 4 s: the first arrives at 2, then computing is the limit */
        {0, 3, 0.5, 18},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        p.ring_layers = cases[i].ring;
        p.npu_bandwidth = cases[i].npu_bandwidth;
        lv_phone_pipeline pl;
        lv_phone_pipeline_init(&pl, &p, &plain_shape, cases[i].pinned, 0);
        const lv_phone_pass pass = {.rows = 1, .speed = 1};
        const lv_phone_pass_times t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
        CHECK_DOUBLE(t.end, cases[i].end, 1e-6);
        CHECK_DOUBLE(t.bytes_read, 2.0 * (4 - cases[i].pinned), 1e-6);
    }
}

/* Drafting beside takes memory bandwidth; rows that were cut away are not computed; padding is counted. */
static void test_beside_and_cut(void **state) {
    (void)state;
    lv_phone_profile p = plain_phone();
    lv_phone_pipeline pl;
    lv_phone_pipeline_init(&pl, &p, &plain_shape, 4, 0);
    lv_phone_pass pass = {.rows = 1, .speed = 1, .drafting_seconds = 1.5};
    /* 1 of 100 is left of the bandwidth, but at least 5: with 2 wanted it is 2 all the same; then 4 are wanted. */
    CHECK_DOUBLE(lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass).end, 4, 1e-6);
    p.npu_bandwidth = 10; /* alone 0.2 s a layer, beside 0.4 (5 are left) */
    pass.drafting_seconds = 0.5;
    CHECK_DOUBLE(lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass).end, 0.4 + 0.4 + 0.2 + 0.2, 1e-6);

    p = plain_phone();
    p.npu_arithmetic = 128; /* 2 * 2 weights * 32 rows in a second */
    pass = (lv_phone_pass){.rows = 33, .speed = 1};
    lv_phone_pass_times t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
    CHECK_DOUBLE(t.end, 8, 1e-6);
    CHECK_DOUBLE(t.padded_rows, 4 * 31, 1e-6);
    pass.cut_layer = 1;
    pass.cut_rows = 32;
    t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
    CHECK_DOUBLE(t.end, 2 + 3, 1e-6);
    CHECK_DOUBLE(t.padded_rows, 31, 1e-6);
    pass.speed = 0.5; /* arithmetic halves: it is twice as slow */
    CHECK_DOUBLE(lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass).end, 10, 1e-6);
}

/* Without an NPU the cores have the layers, whose rows are not padded; and who drafts beside a pass on the processor
 * that has its layers leaves them half of it. */
static void test_one_processor_for_both(void **state) {
    (void)state;
    lv_phone_profile p = plain_phone();
    p.cpu_layer = 0;
    p.cpu_arithmetic = 132; /* 2 * 2 weights * 33 rows in a second */
    lv_phone_pipeline pl;
    lv_phone_pipeline_init(&pl, &p, &plain_shape, 4, 0);
    pl.on_cores = true;
    lv_phone_pass pass = {.rows = 33, .speed = 1};
    lv_phone_pass_times t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
    CHECK_DOUBLE(t.end, 4, 1e-6);
    CHECK_DOUBLE(t.compute_seconds, 4, 1e-6);
    CHECK_DOUBLE(t.padded_rows, 0, 0);
    CHECK_DOUBLE(lv_phone_pipeline_compute(&pl, &p, &plain_shape, 33, 1, 0, false), 4, 1e-6);
    static const struct {
        double drafting, end;
    } cases[] = {{0, 4}, {1.5, 5}, {2.5, 6}, {100, 8}}; /* a layer that begins beside takes 2 s instead of 1 */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int on_cores = 0; on_cores < 2; on_cores++) {
            pl.on_cores = on_cores;
            pl.is_shared = true;
            pass = (lv_phone_pass){.rows = on_cores ? 33 : 1, .speed = 1, .drafting_seconds = cases[i].drafting};
            t = lv_phone_pipeline_pass(&pl, &p, &plain_shape, &pass);
            CHECK_DOUBLE(t.end, cases[i].end, 1e-6);
            CHECK_DOUBLE(t.compute_seconds, 4, 1e-6); /* the other half is the draft's */
            CHECK_DOUBLE(lv_phone_pipeline_compute(&pl, &p, &plain_shape, pass.rows, 1, 0, true), 8, 1e-6);
        }
    }
}

static void test_buckets(void **state) {
    (void)state;
    const lv_phone_profile p = load("oneplus12");
    static const struct {
        double rows, padded;
    } cases[] = {{1, 32},  {8, 32},   {9, 32},    {32, 32},   {33, 64},   {64, 64},  {65, 96},
                 {96, 96}, {97, 128}, {128, 128}, {129, 160}, {256, 256}, {257, 288}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_DOUBLE(lv_phone_padded_rows(&p, cases[i].rows), cases[i].padded, 1e-9);
    }
    /* Who computes a forward of the draft: kernels that unpack weights take long whatever the rows. */
    const lv_phone_load idle = LV_PHONE_IDLE;
    const lv_phone_shape draft = shape_of("llama-3.2-1b-q4_0");
    const lv_phone_profile app = load("oneplus12:app");
    assert_true(lv_phone_forward_best(&app, &draft, 1, 1, &idle).npu_seconds == 0);
    assert_true(lv_phone_forward_best(&app, &draft, 16, 16, &idle).npu_seconds > 0);
    assert_true(lv_phone_forward_best(&p, &draft, 1, 1, &idle).npu_seconds > 0);
}

/* The head is charged for the rows that it takes, whatever the layers compute; and an NPU's layer for its own shape. */
static void test_rows_of_the_head(void **state) {
    (void)state;
    const lv_phone_load idle = LV_PHONE_IDLE;
    const lv_phone_shape draft = shape_of("llama-3.2-1b-q4_0");
    const lv_phone_profile p = load("oneplus12");
    lv_phone_forward (*const by[])(const lv_phone_profile *, const lv_phone_shape *, double, double,
                                   const lv_phone_load *) = {lv_phone_forward_cpu, lv_phone_forward_npu};
    for (size_t i = 0; i < 2; i++) {
        const lv_phone_forward none = by[i](&p, &draft, 1000, 0, &idle), five = by[i](&p, &draft, 1000, 5, &idle);
        const double head = lv_phone_head(&p, &draft, 5, &idle);
        CHECK_DOUBLE(five.seconds - none.seconds, head, 1e-9);
        CHECK_DOUBLE(five.cpu_seconds - none.cpu_seconds, head, 1e-9);
        CHECK_DOUBLE(five.npu_seconds - none.npu_seconds, 0, 0);
        CHECK_DOUBLE(none.npu_seconds + none.cpu_seconds, none.seconds, 1e-9);
    }
    CHECK_DOUBLE(lv_phone_head(&p, &draft, 0, &idle), 0, 0);
    /* A prompt of a thousand tokens: what the draft's layers take, no head. */
    CHECK_DOUBLE(lv_phone_forward_best(&p, &draft, 1000, 0, &idle).seconds,
                 draft.layers_count * lv_phone_npu_layer(&p, &draft, 1000, &idle), 1e-9);
}

static void test_heat(void **state) {
    (void)state;
    const lv_phone_profile p = load("oneplus12");
    static const struct {
        double watts, seconds, temperature, speed;
    } cases[] = {{3.2, 600, 34.9, 1},     {3.2, 1799, 37.1, 1},   {4.8, 300, 35.3, 1},    {4.8, 600, 39.7, 0.97},
                 {4.8, 1200, 40.7, 0.93}, {8.2, 300, 41.8, 0.88}, {8.2, 1200, 44.1, 0.78}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const double temperature = lv_phone_warm(&p, p.heat_ambient, cases[i].watts, cases[i].seconds);
        check_near(temperature, cases[i].temperature, 0.02, "temperature");
        check_near(lv_phone_speed_at(&p, temperature), cases[i].speed, 0.02, "speed");
    }
    CHECK_DOUBLE(lv_phone_speed_at(&p, 80), p.heat_speed_least, 1e-9);
    CHECK_DOUBLE(lv_phone_warm(&p, 30, 0, 100000), p.heat_ambient, 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sanity_table),
        cmocka_unit_test(test_flash_rates),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_published_ratios),
        cmocka_unit_test(test_pipeline_by_hand),
        cmocka_unit_test(test_pinned_and_ring),
        cmocka_unit_test(test_beside_and_cut),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_rows_of_the_head),
        cmocka_unit_test(test_heat),
        cmocka_unit_test(test_one_processor_for_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
