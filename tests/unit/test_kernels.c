/* The kernels: every instruction set, layout, batch and range of tiles against the portable set, bit for bit; the
 * portable set against sums in double precision and against ggml; rounding and decoding against ggml, byte for byte. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "compute/kernels/half.h"
#include "compute/kernels/kernel.h"
#include "compute/kernels/tile.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const int32_t types[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q5_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};

/* --- Data that a seed repeats --- */

static uint64_t random_state = 1;

static uint32_t random_next(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static float random_float(void) {
    return (float)random_next() / 1073741824.0f - 1.0f;
}

static void *allocate(size_t bytes) {
    void *memory = NULL; /* of exactly this size, so that the address sanitizer sees a byte too many */
    assert_int_equal(posix_memalign(&memory, 64, bytes), 0);
    memset(memory, 0, bytes);
    return memory;
}

static void fill_floats(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = random_float() * (random_next() % 64 == 0 ? 20.0f : 1.0f);
}

static size_t row_bytes_of(int32_t type, size_t row_elements) {
    return ggml_row_size((enum ggml_type)type, (int64_t)row_elements);
}

/* Where the halves of a block stand: scale, and minimum or the same again. */
static void scale_places(int32_t type, size_t places[2]) {
    places[0] = places[1] = type == GGML_TYPE_Q6_K ? 208 : 0;
    if (type == GGML_TYPE_Q4_K) places[1] = 2;
}

static void set_scales(int32_t type, uint8_t *block, float scale, float minimum) {
    size_t places[2];
    scale_places(type, places);
    const uint16_t halves[2] = {lv_half_from_float(scale), lv_half_from_float(minimum)};
    memcpy(block + places[1], &halves[1], 2);
    memcpy(block + places[0], &halves[0], 2);
}

/* Random bits for quants and sub-scales, so that every value occurs, and scales of a sane size. */
static uint8_t *random_weights(int32_t type, size_t rows_count, size_t row_elements) {
    const size_t bytes = rows_count * row_bytes_of(type, row_elements);
    const size_t block_bytes = ggml_type_size((enum ggml_type)type);
    uint8_t *weights = allocate(bytes);
    for (size_t i = 0; i < bytes; i++) weights[i] = (uint8_t)(random_next() >> 8);
    for (size_t i = 0; i < bytes; i += block_bytes) set_scales(type, weights + i, random_float(), random_float());
    return weights;
}

/* A weight matrix in both layouts and a batch of rounded activations. */
typedef struct {
    int32_t type;
    size_t rows_count, row_elements, batch_count, stride;
    uint8_t *rows, *tiles; /* tiles: of the rows that fill whole tiles */
    float *floats;         /* batch_count rows */
    uint8_t *rounded;
} problem;

static void round_batch(const lv_kernels *kernels, problem *p) {
    const lv_activation_format format = lv_kernel_activation(p->type);
    const size_t groups_count = p->row_elements / lv_group_elements(format);
    for (size_t b = 0; b < p->batch_count; b++)
        lv_activation_round(kernels, format, p->floats + b * p->row_elements, p->row_elements,
                            p->rounded + b * p->stride, 0, groups_count);
}

static void problem_open(problem *p, int32_t type, size_t rows_count, size_t row_elements, size_t batch_count) {
    *p = (problem){.type = type, .rows_count = rows_count, .row_elements = row_elements, .batch_count = batch_count};
    const size_t row_bytes = row_bytes_of(type, row_elements);
    p->stride = lv_activation_row_bytes(lv_kernel_activation(type), row_elements);
    p->rows = random_weights(type, rows_count, row_elements);
    p->tiles = allocate(rows_count * row_bytes + 1);
    for (size_t r = 0; r + LV_TILE_ROWS <= rows_count; r += LV_TILE_ROWS)
        lv_tile_pack(type, row_elements, p->rows + r * row_bytes, p->tiles + r * row_bytes);
    p->floats = allocate(batch_count * row_elements * sizeof(float));
    fill_floats(p->floats, batch_count * row_elements);
    p->rounded = allocate(batch_count * p->stride);
    round_batch(lv_kernels_at(0), p);
}

static void problem_close(problem *p) {
    free(p->rows);
    free(p->tiles);
    free(p->floats);
    free(p->rounded);
}

static const lv_kernels *portable_set(void) {
    size_t index = 0;
    while (lv_kernels_at(index + 1) != NULL) index++;
    return lv_kernels_at(index);
}

static lv_product product_of(const problem *p, lv_weight_layout layout, size_t batch_count, float *out) {
    return (lv_product){
        .type = p->type,
        .layout = layout,
        .weights = layout == LV_LAYOUT_ROWS ? p->rows : p->tiles,
        .rows_count = layout == LV_LAYOUT_ROWS ? p->rows_count : p->rows_count / LV_TILE_ROWS * LV_TILE_ROWS,
        .row_elements = p->row_elements,
        .activations = p->rounded,
        .activation_stride = p->stride,
        .batch_count = batch_count,
        .out = out,
        .out_stride = p->rows_count,
    };
}

static void run(const lv_kernels *kernels, const lv_product *product, size_t tile_first, size_t tiles_count) {
    void *scratch = allocate(lv_kernel_scratch_bytes(product->row_elements));
    lv_product_run(kernels, product, tile_first, tiles_count, scratch);
    free(scratch);
}

static void run_all(const lv_kernels *kernels, const lv_product *product) {
    run(kernels, product, 0, (product->rows_count + LV_TILE_ROWS - 1) / LV_TILE_ROWS);
}

static void assert_same_bits(const float *expected, const float *found, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(expected + i, found + i, sizeof(float)) != 0)
            fail_msg("%s: value %zu is %.9g, expected %.9g", what, i, (double)found[i], (double)expected[i]);
    }
}

/* --- Tests --- */

static void sets_are_listed_best_first(void **state) {
    (void)state;
    assert_ptr_equal(lv_kernels_best(), lv_kernels_at(0));
    assert_string_equal(lv_kernels_name(portable_set()), "portable");
    size_t count = 0;
    while (lv_kernels_at(count) != NULL)
        print_message("set %zu: %s\n", count, lv_kernels_name(lv_kernels_at(count))), count++;
    assert_null(lv_kernels_at(count + 1));
}

static void types_and_row_sizes_are_judged(void **state) {
    (void)state;
    assert_true(lv_kernel_supports(GGML_TYPE_Q4_0, 896));
    assert_true(lv_kernel_supports(GGML_TYPE_Q5_0, 32));
    assert_false(lv_kernel_supports(GGML_TYPE_Q8_0, 33));
    assert_false(lv_kernel_supports(GGML_TYPE_Q4_0, 0));
    assert_true(lv_kernel_supports(GGML_TYPE_Q4_K, 1536));
    assert_false(lv_kernel_supports(GGML_TYPE_Q6_K, 896));
    assert_false(lv_kernel_supports(GGML_TYPE_F16, 1024));
    assert_false(lv_kernel_supports(GGML_TYPE_Q4_1, 1024));
    assert_false(lv_kernel_supports(-1, 1024));
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const lv_type_traits *traits = &lv_kernel_traits[lv_kernel_type_of(types[t])];
        assert_int_equal(traits->block_bytes, ggml_type_size((enum ggml_type)types[t]));
        assert_int_equal(lv_group_elements(traits->activation), ggml_blck_size((enum ggml_type)types[t]));
        assert_int_equal(lv_kernel_block_bytes(lv_kernel_type_of(types[t])), traits->block_bytes);
    }
}

static void halves_convert_as_in_ggml(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        const float expected = ggml_fp16_to_fp32((ggml_fp16_t)half);
        const float found = lv_half_to_float((uint16_t)half);
        if (isnan(expected)) {
            assert_true(isnan(found));
            continue;
        }
        assert_same_bits(&expected, &found, 1, "half to float");
        /* the value itself, both neighbours, and the ties between it and the next half */
        const float next = lv_half_to_float((uint16_t)(half + 1));
        const float candidates[] = {expected, nextafterf(expected, 1e9f), nextafterf(expected, -1e9f),
                                    (expected + next) / 2, nextafterf((expected + next) / 2, 0.0f)};
        for (size_t i = 0; i < COUNT_OF(candidates); i++) {
            if (isnan(candidates[i])) continue;
            assert_int_equal(lv_half_from_float(candidates[i]), ggml_fp32_to_fp16(candidates[i]));
        }
    }
}

static void packing_is_undone_by_unpacking(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const size_t row_elements = 512, bytes = LV_TILE_ROWS * row_bytes_of(types[t], row_elements);
        uint8_t *rows = random_weights(types[t], LV_TILE_ROWS, row_elements);
        uint8_t *tile = allocate(bytes), *again = allocate(bytes);
        lv_tile_pack(types[t], row_elements, rows, tile);
        lv_tile_unpack(types[t], row_elements, tile, again);
        assert_memory_equal(rows, again, bytes);
        assert_memory_not_equal(rows, tile, bytes);
        free(rows);
        free(tile);
        free(again);
    }
}

/* The order of bytes in a tile is a file format: it must not change unnoticed. */
static void tile_bytes_stay_where_they_are(void **state) {
    (void)state;
    static const uint64_t expected[COUNT_OF(types)] = {0xdcd5cbd9840e0cbdu, 0x6610e0d4ede945fbu, 0xa0091956d1407005u,
                                                       0x4c02f817e0cfba25u, 0x3f3fefcb44d64185u};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const size_t row_elements = 256, bytes = LV_TILE_ROWS * row_bytes_of(types[t], row_elements);
        uint8_t *rows = allocate(bytes), *tile = allocate(bytes);
        for (size_t i = 0; i < bytes; i++) rows[i] = (uint8_t)(i * 131 + i / 256 * 29);
        lv_tile_pack(types[t], row_elements, rows, tile);
        uint64_t hash = 14695981039346656037u; /* FNV-1a */
        for (size_t i = 0; i < bytes; i++) hash = (hash ^ tile[i]) * 1099511628211u;
        if (hash != expected[t])
            fail_msg("%s: the bytes of a tile moved (0x%016llxu); LV_PACK_VERSION must move with them",
                     ggml_type_name((enum ggml_type)types[t]), (unsigned long long)hash);
        free(rows);
        free(tile);
    }
}

static void rows_decode_as_in_ggml(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const size_t rows_count = 32, row_elements = 512, row_bytes = row_bytes_of(types[t], row_elements);
        problem p;
        problem_open(&p, types[t], rows_count, row_elements, 1);
        float *expected = allocate(row_elements * sizeof(float)), *found = allocate(row_elements * sizeof(float));
        for (size_t r = 0; r < rows_count; r++) {
            ggml_get_type_traits((enum ggml_type)types[t])
                ->to_float(p.rows + r * row_bytes, expected, (int64_t)row_elements);
            lv_row_to_float(types[t], LV_LAYOUT_ROWS, p.rows, r, row_elements, found);
            assert_same_bits(expected, found, row_elements, "row in place");
            lv_row_to_float(types[t], LV_LAYOUT_TILES, p.tiles, r, row_elements, found);
            assert_same_bits(expected, found, row_elements, "row of a tile");
        }
        free(expected);
        free(found);
        problem_close(&p);
    }
}

/* Activations of every kind: ordinary, ties, zeros, huge, tiny, both signs of the largest. */
static void fill_hard_floats(float *values, size_t count) {
    fill_floats(values, count);
    for (size_t g = 0; g + 256 <= count; g += 256) {
        float *x = values + g;
        switch (g / 256 % 8) {
        case 1: /* ties: largest 127, the others n + 0.5 */
            for (size_t i = 0; i < 256; i++) x[i] = (float)(int32_t)(i - 128) + 0.5f;
            x[7] = -127.0f;
            for (size_t i = 0; i < 256; i += 32) x[i] = 127.0f;
            break;
        case 2:
            memset(x, 0, 256 * sizeof(float));
            break;
        case 3:
            for (size_t i = 0; i < 256; i++) x[i] *= 1e36f;
            break;
        case 4:
            for (size_t i = 0; i < 256; i++) x[i] *= 1e-7f;
            break;
        case 5: /* the largest occurs with both signs: the first decides */
            for (size_t i = 0; i < 256; i++) x[i] *= 0.05f;
            x[3] = g / 256 % 16 < 8 ? -2.0f : 2.0f;
            x[100] = x[200] = -x[3];
            break;
        case 6:
            for (size_t i = 0; i < 256; i++) x[i] = i % 5 == 0 ? -0.0f : -fabsf(x[i]);
            break;
        default:
            break;
        }
    }
}

static void activations_are_rounded_as_in_ggml(void **state) {
    (void)state;
    enum { ELEMENTS = 256 * 800 };
    float *values = allocate(ELEMENTS * sizeof(float));
    fill_hard_floats(values, ELEMENTS);
    const size_t bytes_32 = lv_activation_row_bytes(LV_ACTIVATION_32, ELEMENTS);
    const size_t bytes_256 = lv_activation_row_bytes(LV_ACTIVATION_256, ELEMENTS);
    lv_group_32 *ours_32 = allocate(bytes_32);
    lv_group_256 *ours_256 = allocate(bytes_256);
    uint8_t *q8_0 = allocate(ELEMENTS / 32 * 34), *q8_k = allocate(ELEMENTS / 256 * 292);
    ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(values, q8_0, ELEMENTS);
    ggml_get_type_traits_cpu(GGML_TYPE_Q8_K)->from_float(values, q8_k, ELEMENTS);

    lv_activation_round(portable_set(), LV_ACTIVATION_32, values, ELEMENTS, ours_32, 0, ELEMENTS / 32);
    for (size_t g = 0; g < ELEMENTS / 32; g++) {
        const float scale = ggml_fp16_to_fp32(lv_load_u16(q8_0 + 34 * g));
        assert_memory_equal(ours_32[g].quants, q8_0 + 34 * g + 2, 32);
        assert_same_bits(&scale, &ours_32[g].scale, 1, "scale of 32");
    }

    lv_activation_round(portable_set(), LV_ACTIVATION_256, values, ELEMENTS, ours_256, 0, ELEMENTS / 256);
    for (size_t g = 0; g < ELEMENTS / 256; g++) {
        const uint8_t *block = q8_k + 292 * g;
        assert_memory_equal(ours_256[g].quants, block + 4, 256);
        assert_memory_equal(&ours_256[g].scale, block, 4);
        for (size_t j = 0; j < 16; j++) {
            const int16_t sum = (int16_t)lv_load_u16(block + 260 + 2 * j);
            assert_int_equal(ours_256[g].seeds_16[j], -32 * sum);
        }
    }
    free(values);
    free(ours_32);
    free(ours_256);
    free(q8_0);
    free(q8_k);
}

static void every_set_rounds_to_the_same_bytes(void **state) {
    (void)state;
    enum { ELEMENTS = 256 * 64 };
    float *values = allocate(ELEMENTS * sizeof(float));
    fill_hard_floats(values, ELEMENTS);
    values[256 * 8 + 3] = INFINITY; /* what is not finite must not differ either */
    values[256 * 9 + 40] = NAN;
    values[256 * 16] = -INFINITY;
    for (size_t i = 0; i < 256; i++) values[256 * 17 + i] = NAN;
    for (size_t i = 0; i < 256; i++) values[256 * 18 + i] = random_float() * 1e-40f;
    for (int f = 0; f < 2; f++) {
        const lv_activation_format format = (lv_activation_format)f;
        const size_t bytes = lv_activation_row_bytes(format, ELEMENTS);
        const size_t groups_count = ELEMENTS / lv_group_elements(format);
        uint8_t *expected = allocate(bytes), *found = allocate(bytes);
        lv_activation_round(portable_set(), format, values, ELEMENTS, expected, 0, groups_count);
        for (size_t s = 0; lv_kernels_at(s) != NULL; s++) {
            memset(found, 0, bytes);
            /* in two parts, as two threads do it */
            lv_activation_round(lv_kernels_at(s), format, values, ELEMENTS, found, 0, 5);
            lv_activation_round(lv_kernels_at(s), format, values, ELEMENTS, found, 5, groups_count - 5);
            assert_memory_equal(expected, found, bytes);
        }
        free(expected);
        free(found);
    }
    free(values);
}

/* One type: all sets, layouts and batches of 1 to 33 give the bits that the portable set gives for each row alone. */
static void check_equality(int32_t type, size_t rows_count, size_t row_elements) {
    enum { BATCH = 33 };
    problem p;
    problem_open(&p, type, rows_count, row_elements, BATCH);
    const size_t values_count = BATCH * rows_count;
    float *expected = allocate(values_count * sizeof(float)), *found = allocate(values_count * sizeof(float));
    for (size_t b = 0; b < BATCH; b++) {
        lv_product one = product_of(&p, LV_LAYOUT_ROWS, 1, expected + b * rows_count);
        one.activations = p.rounded + b * p.stride;
        run_all(portable_set(), &one);
    }

    for (size_t s = 0; lv_kernels_at(s) != NULL; s++) {
        const lv_kernels *kernels = lv_kernels_at(s);
        for (int layout = 0; layout < 2; layout++) {
            const size_t step = kernels == portable_set() ? 8 : 1; /* it is slow, and has no blocks of columns */
            for (size_t batch = 1; batch <= BATCH; batch += step) {
                memset(found, 0xff, values_count * sizeof(float));
                const lv_product product = product_of(&p, (lv_weight_layout)layout, batch, found);
                run_all(kernels, &product);
                char what[96];
                snprintf(what, sizeof(what), "%s, %s, layout %d, %zu columns", ggml_type_name((enum ggml_type)type),
                         lv_kernels_name(kernels), layout, batch);
                for (size_t b = 0; b < batch; b++)
                    assert_same_bits(expected + b * rows_count, found + b * rows_count, product.rows_count, what);
            }
        }
    }
    free(expected);
    free(found);
    problem_close(&p);
}

static void every_set_layout_and_batch_gives_the_same_bits(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        check_equality(types[t], 16, 256);
        check_equality(types[t], 37, 1536); /* a chunk and a half, and a tile of five rows */
        check_equality(types[t], 3, 2304);
    }
    check_equality(GGML_TYPE_Q4_0, 48, 896);
    check_equality(GGML_TYPE_Q5_0, 33, 32);
    check_equality(GGML_TYPE_Q8_0, 17, 1056);
}

/* More columns than a panel holds. */
static void large_batches_give_the_same_bits(void **state) {
    (void)state;
    enum { BATCH = 300, ROWS = 19, ELEMENTS = 1280 };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        problem p;
        problem_open(&p, types[t], ROWS, ELEMENTS, BATCH);
        float *expected = allocate(BATCH * ROWS * sizeof(float)), *found = allocate(BATCH * ROWS * sizeof(float));
        for (size_t b = 0; b < BATCH; b++) {
            lv_product one = product_of(&p, LV_LAYOUT_ROWS, 1, expected + b * ROWS);
            one.activations = p.rounded + b * p.stride;
            run_all(lv_kernels_best(), &one);
        }
        for (size_t s = 0; lv_kernels_at(s) != NULL; s++) {
            const lv_product product = product_of(&p, LV_LAYOUT_ROWS, BATCH, found);
            run_all(lv_kernels_at(s), &product);
            assert_same_bits(expected, found, BATCH * ROWS, lv_kernels_name(lv_kernels_at(s)));
        }
        free(expected);
        free(found);
        problem_close(&p);
    }
}

/* Any range of tiles writes its own rows and nothing else; weights may stand at any address. */
static void ranges_of_tiles_write_only_their_rows(void **state) {
    (void)state;
    enum { ROWS = 75, ELEMENTS = 512, BATCH = 3 };
    static const size_t ranges[][2] = {{0, 1}, {1, 3}, {4, 1}, {2, 0}, {3, 2}, {4, 9}, {0, 5}};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        problem p;
        problem_open(&p, types[t], ROWS, ELEMENTS, BATCH);
        float whole[BATCH * ROWS], part[BATCH * ROWS];
        const size_t bytes = ROWS * row_bytes_of(types[t], ELEMENTS);
        uint8_t *shifted = allocate(bytes + 1);
        for (size_t s = 0; lv_kernels_at(s) != NULL; s++) {
            for (int layout = 0; layout < 2; layout++) {
                lv_product product = product_of(&p, (lv_weight_layout)layout, BATCH, whole);
                run_all(lv_kernels_at(s), &product);
                memcpy(shifted + 1, product.weights, bytes);
                product.weights = shifted + 1;
                product.out = part;
                for (size_t i = 0; i < COUNT_OF(ranges); i++) {
                    memset(part, 0x55, sizeof(part));
                    run(lv_kernels_at(s), &product, ranges[i][0], ranges[i][1]);
                    for (size_t v = 0; v < BATCH * ROWS; v++) {
                        const size_t row = v % ROWS, tile = row / LV_TILE_ROWS;
                        const bool inside =
                            row < product.rows_count && tile >= ranges[i][0] && tile < ranges[i][0] + ranges[i][1];
                        uint32_t untouched = 0x55555555u;
                        if (inside)
                            assert_memory_equal(&whole[v], &part[v], sizeof(float));
                        else
                            assert_memory_equal(&untouched, &part[v], sizeof(float));
                    }
                }
            }
        }
        free(shifted);
        problem_close(&p);
    }
}

static void bias_is_added_to_the_finished_sum(void **state) {
    (void)state;
    enum { ROWS = 21, BATCH = 2 };
    problem p;
    problem_open(&p, GGML_TYPE_Q4_0, ROWS, 256, BATCH);
    float plain[BATCH * ROWS], biased[BATCH * ROWS], bias[ROWS];
    fill_floats(bias, ROWS);
    lv_product product = product_of(&p, LV_LAYOUT_ROWS, BATCH, plain);
    run_all(lv_kernels_best(), &product);
    product.out = biased;
    product.bias = bias;
    run_all(lv_kernels_best(), &product);
    for (size_t v = 0; v < BATCH * ROWS; v++) plain[v] += bias[v % ROWS];
    assert_same_bits(plain, biased, BATCH * ROWS, "bias");
    problem_close(&p);
}

/* Against sums in double precision of ggml's floats times the rounded activations, and against ggml's own product. */
static void products_are_right(void **state) {
    (void)state;
    enum { ROWS = 32, ELEMENTS = 4096 };
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        const enum ggml_type type = (enum ggml_type)types[t];
        const struct ggml_type_traits_cpu *cpu = ggml_get_type_traits_cpu(type);
        const size_t row_bytes = row_bytes_of(types[t], ELEMENTS);
        problem p;
        problem_open(&p, types[t], ROWS, ELEMENTS, 1);
        float out[ROWS], *w = allocate(ELEMENTS * sizeof(float)), *a = allocate(ELEMENTS * sizeof(float));
        uint8_t *rounded = allocate(ggml_row_size(cpu->vec_dot_type, ELEMENTS));
        const lv_product product = product_of(&p, LV_LAYOUT_ROWS, 1, out);
        run_all(portable_set(), &product);

        ggml_get_type_traits_cpu(cpu->vec_dot_type)->from_float(p.floats, rounded, ELEMENTS);
        if (cpu->vec_dot_type == GGML_TYPE_Q8_K) /* has no to_float */
            for (size_t i = 0; i < ELEMENTS; i++) {
                const lv_group_256 *group = (const lv_group_256 *)(void *)p.rounded + i / 256;
                a[i] = group->scale * (float)group->quants[i % 256];
            }
        else
            ggml_get_type_traits(cpu->vec_dot_type)->to_float(rounded, a, ELEMENTS);

        double worst_double = 0, worst_ggml = 0;
        for (size_t r = 0; r < ROWS; r++) {
            ggml_get_type_traits(type)->to_float(p.rows + r * row_bytes, w, ELEMENTS);
            double sum = 0, size = 0;
            for (size_t i = 0; i < ELEMENTS; i++) {
                sum += (double)w[i] * (double)a[i];
                size += fabs((double)w[i] * (double)a[i]);
            }
            float ggml_sum;
            cpu->vec_dot(ELEMENTS, &ggml_sum, 0, p.rows + r * row_bytes, 0, rounded, 0, 1);
            worst_double = fmax(worst_double, fabs(sum - (double)out[r]) / size);
            worst_ggml = fmax(worst_ggml, fabs((double)ggml_sum - (double)out[r]) / size);
        }
        print_message("%s: largest difference to double %.2g, to ggml %.2g of the sum of magnitudes\n",
                      ggml_type_name(type), worst_double, worst_ggml);
        assert_true(worst_double < 1e-6);
        assert_true(worst_ggml < 1e-6);
        free(w);
        free(a);
        free(rounded);
        problem_close(&p);
    }
}

/* Every field at its end: nothing overflows on the way, in no set. */
static void extremes_are_finite_and_equal(void **state) {
    (void)state;
    enum { ROWS = 16, ELEMENTS = 4096, BATCH = 4 };
    static const float scales[] = {0.0f, 65504.0f, -65504.0f, 0x1p-24f};
    static const uint8_t bytes[] = {0x00, 0xff, 0x80, 0x7f};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        problem p;
        problem_open(&p, types[t], ROWS, ELEMENTS, BATCH);
        const size_t weight_bytes = ROWS * row_bytes_of(types[t], ELEMENTS);
        const size_t block_bytes = ggml_type_size((enum ggml_type)types[t]);
        /* the scale of 32 is a half; no sum may pass the largest float by right */
        const float huge = lv_kernel_activation(types[t]) == LV_ACTIVATION_32 ? 8e6f : 1e24f;
        for (size_t i = 0; i < BATCH * ELEMENTS; i++) {
            const float largest = i / ELEMENTS < 2 ? huge : 127.0f;
            p.floats[i] = i / ELEMENTS % 2 == 0 ? largest : i % 2 == 0 ? -largest : largest;
        }
        round_batch(portable_set(), &p);

        for (size_t k = 0; k < COUNT_OF(scales) * COUNT_OF(bytes); k++) {
            memset(p.rows, bytes[k % 4], weight_bytes);
            for (size_t i = 0; i < weight_bytes; i += block_bytes)
                set_scales(types[t], p.rows + i, scales[k / 4], scales[k / 4]);
            lv_tile_pack(types[t], ELEMENTS, p.rows, p.tiles);
            float expected[BATCH * ROWS], found[BATCH * ROWS];
            lv_product product = product_of(&p, LV_LAYOUT_ROWS, BATCH, expected);
            run_all(portable_set(), &product);
            for (size_t v = 0; v < BATCH * ROWS; v++) assert_true(isfinite(expected[v]));
            for (size_t s = 0; lv_kernels_at(s) != NULL; s++) {
                product = product_of(&p, LV_LAYOUT_TILES, BATCH, found);
                run_all(lv_kernels_at(s), &product);
                assert_same_bits(expected, found, BATCH * ROWS, lv_kernels_name(lv_kernels_at(s)));
            }
        }
        problem_close(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_listed_best_first),
        cmocka_unit_test(types_and_row_sizes_are_judged),
        cmocka_unit_test(halves_convert_as_in_ggml),
        cmocka_unit_test(packing_is_undone_by_unpacking),
        cmocka_unit_test(tile_bytes_stay_where_they_are),
        cmocka_unit_test(rows_decode_as_in_ggml),
        cmocka_unit_test(activations_are_rounded_as_in_ggml),
        cmocka_unit_test(every_set_rounds_to_the_same_bytes),
        cmocka_unit_test(every_set_layout_and_batch_gives_the_same_bits),
        cmocka_unit_test(large_batches_give_the_same_bits),
        cmocka_unit_test(ranges_of_tiles_write_only_their_rows),
        cmocka_unit_test(bias_is_added_to_the_finished_sum),
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(extremes_are_finite_and_equal),
    };
    ggml_cpu_init(); /* fills the tables that its conversions use */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
