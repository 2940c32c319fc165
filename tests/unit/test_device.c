/* The device to test with: what it computes, every rule that it watches over, and how it fails. And ggml's own CPU
 * backend as a device: the path that every device of ggml's takes. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ledger.h"
#include "compute/device_server.h"
#include "compute/device_test.h"
#include "ggml.h"
#include "support/check.h"

enum { ELEMENTS = 256, ROWS = 32, BUCKET = 4 };

static const lv_device_matrix matrix = {GGML_TYPE_Q4_0, ELEMENTS, ROWS};

typedef struct {
    lv_device *device;
    lv_device_buffer *weights, *in, *out;
    uint8_t rows[ELEMENTS * ROWS];
    float values[BUCKET * ELEMENTS], results[BUCKET * ROWS];
} bench;

static float noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)((double)*state / 2147483648.0 - 1.0);
}

static void make_rows(uint32_t seed, uint8_t *rows) {
    float *floats = malloc(sizeof(float) * ELEMENTS * ROWS);
    assert_non_null(floats);
    for (size_t i = 0; i < (size_t)ELEMENTS * ROWS; i++) floats[i] = noise(&seed);
    ggml_quantize_chunk(GGML_TYPE_Q4_0, floats, rows, 0, ROWS, ELEMENTS, NULL);
    free(floats);
}

static void open_bench(bench *b, const char *name) {
    lever_error error;
    memset(b, 0, sizeof(*b));
    CHECK_OK(lv_device_open(&b->device, name, NULL, NULL, &error));
    CHECK_OK(lv_device_buffer_open(b->device, 16384, &b->weights, &error));
    CHECK_OK(lv_device_buffer_open(b->device, 16384, &b->in, &error));
    CHECK_OK(lv_device_buffer_open(b->device, 16384, &b->out, &error));
    make_rows(1, b->rows);
    uint32_t seed = 5;
    for (size_t i = 0; i < BUCKET * ELEMENTS; i++) b->values[i] = noise(&seed);
}

static void close_bench(bench *b) {
    lv_device_buffer_close(&b->weights);
    lv_device_buffer_close(&b->in);
    lv_device_buffer_close(&b->out);
    lv_device_close(&b->device);
}

static lv_device_product product_of(const bench *b) {
    return (lv_device_product){.matrix = matrix, .bucket = BUCKET, .weights = b->weights, .in = b->in, .out = b->out};
}

/* Everything up to the run. */
static void load(bench *b, lv_weight_layout layout) {
    lever_error error;
    uint8_t tiles[ELEMENTS * ROWS];
    const size_t tile_bytes = ggml_row_size(GGML_TYPE_Q4_0, ELEMENTS) * LV_TILE_ROWS;
    for (size_t t = 0; t < ROWS / LV_TILE_ROWS; t++) {
        lv_tile_pack(GGML_TYPE_Q4_0, ELEMENTS, b->rows + t * tile_bytes, tiles + t * tile_bytes);
    }
    CHECK_OK(lv_device_prepare(b->device, &matrix, BUCKET, &error));
    CHECK_OK(lv_device_clear(b->weights, &error));
    CHECK_OK(lv_device_upload(b->weights, 0, &matrix, layout, layout == LV_LAYOUT_TILES ? tiles : b->rows, &error));
    CHECK_OK(lv_device_write(b->in, 0, b->values, BUCKET * ELEMENTS, &error));
}

static void run(bench *b) {
    lever_error error;
    uint64_t ticket = 0;
    const lv_device_product product = product_of(b);
    CHECK_OK(lv_device_run(b->device, &product, &ticket, &error));
    CHECK_OK(lv_device_wait(b->device, ticket, &error));
    CHECK_OK(lv_device_read(b->out, 0, b->results, BUCKET * ROWS, &error));
}

static void compute_on_cpu(const bench *b, float *out) {
    const lv_kernels *kernels = lv_kernels_best();
    const size_t stride = lv_activation_row_bytes(LV_ACTIVATION_32, ELEMENTS);
    uint8_t *rounded = aligned_alloc(64, stride * BUCKET);
    void *scratch = aligned_alloc(64, (lv_kernel_scratch_bytes(ELEMENTS) + 63) / 64 * 64);
    assert_true(rounded && scratch);
    for (size_t i = 0; i < BUCKET; i++) {
        lv_activation_round(kernels, LV_ACTIVATION_32, b->values + i * ELEMENTS, ELEMENTS, rounded + i * stride, 0,
                            ELEMENTS / 32);
    }
    const lv_product product = {.type = GGML_TYPE_Q4_0,
                                .layout = LV_LAYOUT_ROWS,
                                .weights = b->rows,
                                .rows_count = ROWS,
                                .row_elements = ELEMENTS,
                                .activations = rounded,
                                .activation_stride = stride,
                                .batch_count = BUCKET,
                                .out = out,
                                .out_stride = ROWS};
    lv_product_run(kernels, &product, 0, ROWS / LV_TILE_ROWS, scratch);
    free(rounded);
    free(scratch);
}

static void test_computes_what_the_cpu_does(void **state) {
    (void)state;
    bench b;
    float wanted[BUCKET * ROWS];
    open_bench(&b, "test");
    assert_true(b.device->facts.same_bits);
    for (uint32_t seed = 1; seed < 4; seed++) { /* into the same buffer each time */
        make_rows(seed, b.rows);
        compute_on_cpu(&b, wanted);
        load(&b, seed % 2 ? LV_LAYOUT_ROWS : LV_LAYOUT_TILES);
        run(&b);
        assert_memory_equal(b.results, wanted, sizeof(wanted));
    }
    close_bench(&b);
}

static void test_many_runs_are_queued(void **state) {
    (void)state;
    bench b;
    lever_error error;
    float wanted[BUCKET * ROWS];
    open_bench(&b, "test");
    load(&b, LV_LAYOUT_ROWS);
    compute_on_cpu(&b, wanted);
    lv_device_product product = product_of(&b);
    uint64_t ticket = 0, before = 0;
    for (uint32_t i = 0; i < 300; i++) {
        product.out_offset = i % 8 * sizeof(wanted);
        CHECK_OK(lv_device_run(b.device, &product, &ticket, &error));
        assert_true(ticket > before);
        before = ticket;
    }
    CHECK_OK(lv_device_wait(b.device, ticket, &error));
    for (uint32_t i = 0; i < 8; i++) {
        CHECK_OK(lv_device_read(b.out, i * sizeof(wanted), b.results, BUCKET * ROWS, &error));
        assert_memory_equal(b.results, wanted, sizeof(wanted));
    }
    close_bench(&b);
}

/* It tells what its runs cost, in each bucket, whatever they took; without costs it tells nothing. */
static void test_tells_its_costs(void **state) {
    (void)state;
    lever_error error;
    bench b;
    open_bench(&b, "test:costs=70+5,buckets=4+9");
    assert_true(b.device->facts.tells && !b.device->facts.measures);
    b.device->facts.buckets = (lv_buckets){.rows = {9}, .count = 1}; /* as when one was taken away */
    assert_int_equal(lv_device_spent_ns(b.device), 0);
    float rows[9 * ELEMENTS] = {0};
    CHECK_OK(lv_device_prepare(b.device, &matrix, 9, &error));
    CHECK_OK(lv_device_upload(b.weights, 0, &matrix, LV_LAYOUT_ROWS, b.rows, &error));
    CHECK_OK(lv_device_write(b.in, 0, rows, 9 * ELEMENTS, &error));
    lv_device_product product = product_of(&b);
    product.bucket = 9;
    for (uint64_t i = 1; i < 4; i++) {
        uint64_t ticket;
        CHECK_OK(lv_device_run(b.device, &product, &ticket, &error));
        CHECK_OK(lv_device_wait(b.device, ticket, &error));
        assert_int_equal(lv_device_spent_ns(b.device), 5 * i);
    }
    close_bench(&b);
    open_bench(&b, "test:buckets=4+9,costs=70+5");
    load(&b, LV_LAYOUT_ROWS);
    run(&b);
    run(&b);
    assert_int_equal(lv_device_spent_ns(b.device), 140);
    close_bench(&b);
    open_bench(&b, "test");
    load(&b, LV_LAYOUT_ROWS);
    run(&b);
    assert_int_equal(lv_device_spent_ns(b.device), 0);
    close_bench(&b);
}

/* --- Rules: each is broken once, and afterwards the device still works ------------------------------------------- */

typedef struct {
    const char *message;
    lever_status (*broken)(bench *b, lever_error *error);
} rule;

static lever_status run_changed(bench *b, const lv_device_product *product, lever_error *error) {
    uint64_t ticket;
    return lv_device_run(b->device, product, &ticket, error);
}

static lever_status too_large(bench *b, lever_error *error) {
    lv_device_buffer *buffer;
    return lv_device_buffer_open(b->device, LV_DEVICE_TEST_BUFFER_BYTES + 1, &buffer, error);
}
static lever_status of_nothing(bench *b, lever_error *error) {
    lv_device_buffer *buffer;
    return lv_device_buffer_open(b->device, 0, &buffer, error);
}
static lever_status other_bucket(bench *b, lever_error *error) {
    return lv_device_prepare(b->device, &matrix, 5, error);
}
static lever_status run_other_bucket(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.bucket = 3;
    return run_changed(b, &product, error);
}
static lever_status other_type(bench *b, lever_error *error) {
    return lv_device_prepare(b->device, &(lv_device_matrix){GGML_TYPE_Q2_K, ELEMENTS, ROWS}, BUCKET, error);
}
static lever_status part_of_a_tile(bench *b, lever_error *error) {
    return lv_device_upload(b->out, 0, &(lv_device_matrix){GGML_TYPE_Q4_0, ELEMENTS, 20}, LV_LAYOUT_ROWS, b->rows,
                            error);
}
static lever_status upload_unprepared(bench *b, lever_error *error) {
    return lv_device_upload(b->out, 0, &(lv_device_matrix){GGML_TYPE_Q4_0, ELEMENTS, 16}, LV_LAYOUT_ROWS, b->rows,
                            error);
}
static lever_status unprepared(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.bucket = 1;
    return run_changed(b, &product, error);
}
static lever_status unaligned_upload(bench *b, lever_error *error) {
    return lv_device_upload(b->out, 64, &matrix, LV_LAYOUT_ROWS, b->rows, error);
}
static lever_status unaligned_run(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.out_offset = 4;
    return run_changed(b, &product, error);
}
static lever_status beyond_upload(bench *b, lever_error *error) {
    return lv_device_upload(b->out, 16384 - 128, &matrix, LV_LAYOUT_ROWS, b->rows, error);
}
static lever_status beyond_write(bench *b, lever_error *error) {
    return lv_device_write(b->in, 16384 - 128, b->values, ELEMENTS, error);
}
static lever_status beyond_read(bench *b, lever_error *error) {
    return lv_device_read(b->out, 16384, b->results, 1, error);
}
static lever_status beyond_run(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.out_offset = 16384 - 128;
    return run_changed(b, &product, error);
}
static lever_status over_others(bench *b, lever_error *error) {
    return lv_device_upload(b->weights, 128, &matrix, LV_LAYOUT_ROWS, b->rows, error);
}
static lever_status weights_elsewhere(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.weights_offset = 8192;
    return run_changed(b, &product, error);
}
static lever_status weights_of_another_shape(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.matrix.rows_count = 16;
    const lever_status status = lv_device_prepare(b->device, &product.matrix, BUCKET, error);
    return status != LEVER_OK ? status : run_changed(b, &product, error);
}
static lever_status rows_into_weights(bench *b, lever_error *error) {
    return lv_device_write(b->weights, 0, b->values, ELEMENTS, error);
}
static lever_status results_into_weights(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.out = b->weights;
    return run_changed(b, &product, error);
}
static lever_status read_weights(bench *b, lever_error *error) {
    return lv_device_read(b->weights, 0, b->results, 1, error);
}
static lever_status unwritten_rows(bench *b, lever_error *error) {
    lv_device_product product = product_of(b);
    product.in_offset = ELEMENTS * sizeof(float);
    return run_changed(b, &product, error);
}
static lever_status touched_early(bench *b, lv_device_buffer *buffer, lever_error *error) {
    const lv_device_product product = product_of(b);
    uint64_t ticket = 0;
    lever_error own;
    if (lv_device_run(b->device, &product, &ticket, &own) != LEVER_OK) fail_msg("%s", own.message);
    const lever_status status = buffer == b->weights ? lv_device_clear(buffer, error)
                                : buffer == b->in    ? lv_device_write(buffer, 0, b->values, 1, error)
                                                     : lv_device_read(buffer, 0, b->results, 1, error);
    if (lv_device_wait(b->device, ticket, &own) != LEVER_OK) fail_msg("%s", own.message);
    return status;
}
static lever_status weights_too_early(bench *b, lever_error *error) {
    return touched_early(b, b->weights, error);
}
static lever_status rows_too_early(bench *b, lever_error *error) {
    return touched_early(b, b->in, error);
}
static lever_status results_too_early(bench *b, lever_error *error) {
    return touched_early(b, b->out, error);
}
static lever_status unknown_ticket(bench *b, lever_error *error) {
    return lv_device_wait(b->device, UINT64_MAX, error);
}
static lever_status buffer_of_another(bench *b, lever_error *error) {
    bench other;
    open_bench(&other, "test");
    lv_device_product product = product_of(b);
    product.out = other.out;
    const lever_status status = run_changed(b, &product, error);
    close_bench(&other);
    return status;
}

static const rule rules[] = {
    {"the most is 1073741824", too_large},
    {"a buffer of 0 bytes", of_nothing},
    {"not one of its buckets", other_bucket},
    {"not one of its buckets", run_other_bucket},
    {"of a kind that it does not run", other_type},
    {"of a kind that it does not run", part_of_a_tile},
    {"a shape were not prepared", upload_unprepared},
    {"a shape was not prepared", unprepared},
    {"not aligned", unaligned_upload},
    {"not aligned", unaligned_run},
    {"beyond its buffer", beyond_upload},
    {"beyond its buffer", beyond_write},
    {"beyond its buffer", beyond_read},
    {"beyond its buffer", beyond_run},
    {"uploaded over others", over_others},
    {"no weights were uploaded there", weights_elsewhere},
    {"have another shape", weights_of_another_shape},
    {"into a buffer of weights", rows_into_weights},
    {"would overwrite weights", results_into_weights},
    {"cannot be read back", read_weights},
    {"padding included", unwritten_rows},
    {"wait first", weights_too_early},
    {"wait first", rows_too_early},
    {"wait first", results_too_early},
    {"never given out", unknown_ticket},
    {"belongs to another device", buffer_of_another},
};

static void test_every_rule(void **state) {
    (void)state;
    bench b;
    float wanted[BUCKET * ROWS];
    open_bench(&b, "test");
    load(&b, LV_LAYOUT_ROWS);
    compute_on_cpu(&b, wanted);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        lever_error error;
        CHECK_FAILS(rules[i].broken(&b, &error), LEVER_E_ARGUMENT, rules[i].message);
        run(&b);
        assert_memory_equal(b.results, wanted, sizeof(wanted));
    }
    close_bench(&b);
}

static void test_too_many_matrices(void **state) {
    (void)state;
    lever_error error;
    bench b;
    open_bench(&b, "test");
    lv_device_buffer *buffer = NULL;
    CHECK_OK(lv_device_buffer_open(b.device, 1 << 20, &buffer, &error));
    const lv_device_matrix small = {GGML_TYPE_Q4_0, 32, 16};
    CHECK_OK(lv_device_prepare(b.device, &small, BUCKET, &error));
    for (uint64_t i = 0; i < 64; i++) {
        CHECK_OK(lv_device_upload(buffer, i * 512, &small, LV_LAYOUT_ROWS, b.rows, &error));
    }
    CHECK_FAILS(lv_device_upload(buffer, 64 * 512, &small, LV_LAYOUT_ROWS, b.rows, &error), LEVER_E_ARGUMENT,
                "too many matrices");
    lv_device_buffer_close(&buffer);
    close_bench(&b);
}

/* --- Failing ----------------------------------------------------------------------------------------------------- */

static void test_a_failed_run_is_the_end(void **state) {
    (void)state;
    bench b;
    lever_error error;
    open_bench(&b, "test:fail=3");
    load(&b, LV_LAYOUT_ROWS);
    run(&b);
    run(&b);
    const lv_device_product product = product_of(&b);
    uint64_t ticket = 0;
    CHECK_OK(lv_device_run(b.device, &product, &ticket, &error));
    CHECK_FAILS(lv_device_wait(b.device, ticket, &error), LEVER_E_IO, "a run has failed");
    CHECK_FAILS(lv_device_run(b.device, &product, &ticket, &error), LEVER_E_IO, "it has failed");
    CHECK_FAILS(lv_device_read(b.out, 0, b.results, 1, &error), LEVER_E_IO, "it has failed");
    CHECK_FAILS(lv_device_write(b.in, 0, b.values, 1, &error), LEVER_E_IO, "it has failed");
    close_bench(&b);
}

/* After a device was prepared nothing takes memory, and preparing takes what it said before. */
static void test_nothing_is_taken_after_preparing(void **state) {
    (void)state;
    static const char *const names[] = {"test", "CPU"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        lever_error error;
        bench b;
        memset(&b, 0, sizeof(b));
        lv_ledger *ledger = lv_ledger_create(8 << 20);
        CHECK_OK(lv_device_open(&b.device, names[i], ledger, NULL, &error));
        const uint64_t before = lv_ledger_used(ledger);
        const lv_device_matrix smaller = {GGML_TYPE_Q4_0, ELEMENTS, 16};
        uint64_t most = lv_device_prepare_bytes(b.device, &smaller, 1);
        CHECK_OK(lv_device_prepare(b.device, &smaller, 1, &error));
        assert_true(lv_ledger_used(ledger) > before && lv_ledger_used(ledger) <= before + most);
        /* The bench's bucket need not be one of a device of ggml's, which computes any number of rows. */
        if (lv_device_prepare_bytes(b.device, &matrix, BUCKET) > most) {
            most = lv_device_prepare_bytes(b.device, &matrix, BUCKET);
        }
        CHECK_OK(lv_device_prepare(b.device, &matrix, BUCKET, &error));
        assert_true(lv_ledger_used(ledger) <= before + most);
        CHECK_OK(lv_device_buffer_open(b.device, 16384, &b.weights, &error));
        CHECK_OK(lv_device_buffer_open(b.device, 16384, &b.in, &error));
        CHECK_OK(lv_device_buffer_open(b.device, 16384, &b.out, &error));
        CHECK_OK(lv_ledger_set_limit(ledger, lv_ledger_used(ledger), &error));
        make_rows(1, b.rows);
        load(&b, LV_LAYOUT_TILES);
        run(&b);
        close_bench(&b);
        lv_ledger_free(ledger);
    }
}

static void test_memory_is_booked(void **state) {
    (void)state;
    lever_error error;
    lv_ledger *ledger = lv_ledger_create(8 << 20);
    lv_device *device = NULL;
    lv_device_buffer *buffer = NULL, *second = NULL;
    CHECK_OK(lv_device_open(&device, "test", ledger, NULL, &error));
    CHECK_OK(lv_device_buffer_open(device, 4 << 20, &buffer, &error));
    assert_true(lv_ledger_used_by(ledger, LV_MEM_DEVICE) >= 4 << 20);
    CHECK_FAILS(lv_device_buffer_open(device, 6 << 20, &second, &error), LEVER_E_BUDGET, "device");
    lv_device_buffer_close(&buffer);
    lv_device_close(&device);
    assert_int_equal(lv_ledger_used_by(ledger, LV_MEM_DEVICE), 0);
    lv_ledger_free(ledger);
}

static void test_names(void **state) {
    (void)state;
    static const char *const wrong[] = {"test:align=192", "test:align=8192",
                                        "test:takes=0",   "test:takes=1,takes=1",
                                        "test:",          "test:fail=0",
                                        "test:fail=x",    "test:quick",
                                        "test:buckets=",  "test:buckets=4+2",
                                        "test:costs=",    "test:costs=0",
                                        "test:costs=1-2", "test:costs=1+1000000000001",
                                        "test:buckets=0", "test:buckets=1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17"};
    lever_error error;
    lv_device *device = NULL;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_FAILS(lv_device_open(&device, wrong[i], NULL, NULL, &error), LEVER_E_ARGUMENT, "allowed are fail=N");
        assert_null(device);
    }
    CHECK_FAILS(lv_device_open(&device, "tester", NULL, NULL, &error), LEVER_E_ARGUMENT, "there are: cpu, test, CPU");
    CHECK_FAILS(lv_device_open(&device, "test:costs=1+2", NULL, NULL, &error), LEVER_E_ARGUMENT,
                "2 costs are given for 6 buckets");
    assert_null(device);
    CHECK_OK(lv_device_open(&device, "test:small,buckets=2+6", NULL, NULL, &error));
    assert_false(device->facts.tells || device->facts.measures);
    assert_int_equal(device->facts.buckets.count, 2);
    assert_int_equal(device->facts.buckets.rows[1], 6);
    assert_int_equal(device->facts.buffer_bytes_max, 65536);
    lv_device_close(&device);
    CHECK_OK(lv_device_open(&device, "test:align=512,takes=2", NULL, NULL, &error));
    assert_int_equal(device->facts.alignment, 512);
    lv_device_close(&device);
    assert_true(lv_device_is_cpu(NULL));
    assert_true(lv_device_is_cpu("cpu"));
    assert_false(lv_device_is_cpu("test"));
}

/* --- What is named by a file, or by a server ---------------------------------------------------------------------- */

/* What the loader of ggml says is part of the message, and not printed. */
static void test_files_that_are_no_backend(void **state) {
    (void)state;
    lever_error error;
    lv_device *device = NULL;
    CHECK_FAILS(lv_device_open(&device, "/nowhere/libggml-x.so", NULL, NULL, &error), LEVER_E_ARGUMENT,
                "cannot open shared object file");
    CHECK_FAILS(lv_device_open(&device, LEVER_SOURCE_DIR "/README.md", NULL, NULL, &error), LEVER_E_ARGUMENT,
                "the device '" LEVER_SOURCE_DIR "/README.md': no backend of ggml can be loaded from it; ");
    assert_null(device);
}

/* A socket of the loopback; with `listens`, connections to it are taken. */
static int open_socket(bool listens, char *address, size_t address_bytes) {
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(own);
    assert_true(descriptor >= 0);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&own, bytes), 0);
    if (listens) assert_int_equal(listen(descriptor, 1), 0);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&own, &bytes), 0);
    snprintf(address, address_bytes, "127.0.0.1:%u", ntohs(own.sin_port));
    return descriptor;
}

static void test_servers(void **state) {
    (void)state;
    static const char *const wrong[] = {"nothing", "", ":1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "a:1x"};
    lever_error error;
    char address[64];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_FAILS(lv_device_server_check(wrong[i], 1000, &error), LEVER_E_ARGUMENT, "which is HOST:PORT");
    }
    int server = open_socket(false, address, sizeof(address));
    CHECK_FAILS(lv_device_server_check(address, 1000, &error), LEVER_E_ARGUMENT, "Connection refused");
    close(server);
    server = open_socket(true, address, sizeof(address));
    CHECK_OK(lv_device_server_check(address, 1000, &error));
    const int client = accept(server, NULL, NULL);
    char byte;
    assert_int_equal(read(client, &byte, 1), 0); /* nothing was said, and it is closed */
    close(client);
    close(server);
}

/* --- A device of ggml's ------------------------------------------------------------------------------------------ */

static void check_own_bits(bench *b) {
    float wanted[BUCKET * ROWS];
    assert_false(b->device->facts.same_bits);
    for (uint32_t seed = 1; seed < 4; seed++) {
        make_rows(seed, b->rows);
        compute_on_cpu(b, wanted);
        load(b, seed % 2 ? LV_LAYOUT_ROWS : LV_LAYOUT_TILES);
        run(b);
        for (size_t i = 0; i < BUCKET * ROWS; i++) {
            if (!(b->results[i] - wanted[i] < 0.5f && wanted[i] - b->results[i] < 0.5f))
                fail_msg("seed %u: %g for %g", seed, (double)b->results[i], (double)wanted[i]);
        }
    }
}

/* The device to test with has such bits too, when it multiplies floats. */
static void test_floats(void **state) {
    (void)state;
    bench b;
    open_bench(&b, "test:floats");
    check_own_bits(&b);
    close_bench(&b);
}

static void test_ggml_backend(void **state) {
    (void)state;
    bench b;
    lever_error error;
    open_bench(&b, "CPU");
    check_own_bits(&b);
    lv_device_buffer *buffer = NULL;
    CHECK_FAILS(lv_device_upload(b.weights, 16384, &matrix, LV_LAYOUT_ROWS, b.rows, &error), LEVER_E_ARGUMENT, "fit");
    CHECK_FAILS(lv_device_buffer_open(b.device, 0, &buffer, &error), LEVER_E_ARGUMENT, "0 bytes");
    close_bench(&b);
}

/* Two blocks that begin alike, one after the other in the same buffer: as the types of a matrix change from layer to
 * layer. And more matrices than a buffer holds. */
static void test_ggml_backend_takes_other_weights(void **state) {
    (void)state;
    static const lv_device_matrix parts[][3] = {
        {{GGML_TYPE_Q4_0, ELEMENTS, 16}, {GGML_TYPE_Q4_0, ELEMENTS, 16}, {GGML_TYPE_Q4_0, ELEMENTS, 16}},
        {{GGML_TYPE_Q4_0, ELEMENTS, 16}, {GGML_TYPE_F32, ELEMENTS, 2}, {GGML_TYPE_Q8_0, 32, 16}},
        {{GGML_TYPE_Q4_0, ELEMENTS, 16}, {GGML_TYPE_Q4_0, ELEMENTS, 16}, {GGML_TYPE_Q4_0, ELEMENTS, 16}},
    };
    bench b;
    lever_error error;
    open_bench(&b, "CPU");
    for (size_t block = 0; block < sizeof(parts) / sizeof(parts[0]); block++) {
        CHECK_OK(lv_device_clear(b.weights, &error));
        for (uint64_t i = 0; i < 3; i++) {
            CHECK_OK(lv_device_prepare(b.device, &parts[block][i], BUCKET, &error));
            CHECK_OK(lv_device_upload(b.weights, i * 4096, &parts[block][i], LV_LAYOUT_ROWS, b.rows, &error));
        }
    }
    CHECK_OK(lv_device_clear(b.weights, &error));
    for (uint64_t i = 0; i < 64; i++) {
        CHECK_OK(lv_device_upload(b.weights, i * 64, &parts[1][2], LV_LAYOUT_ROWS, b.rows, &error));
    }
    CHECK_FAILS(lv_device_upload(b.weights, 8192, &parts[1][2], LV_LAYOUT_ROWS, b.rows, &error), LEVER_E_ARGUMENT,
                "too many matrices");
    load(&b, LV_LAYOUT_TILES);
    run(&b);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_computes_what_the_cpu_does),
        cmocka_unit_test(test_many_runs_are_queued),
        cmocka_unit_test(test_tells_its_costs),
        cmocka_unit_test(test_every_rule),
        cmocka_unit_test(test_too_many_matrices),
        cmocka_unit_test(test_a_failed_run_is_the_end),
        cmocka_unit_test(test_nothing_is_taken_after_preparing),
        cmocka_unit_test(test_memory_is_booked),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_files_that_are_no_backend),
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_ggml_backend),
        cmocka_unit_test(test_ggml_backend_takes_other_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
