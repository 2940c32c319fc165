/* What stands between the products: right against double precision, and the same bits in every instruction set, where a
 * run begins and ends, and in place. */
#include "compute/kernels/elementwise.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "support/check.h"

enum { WIDTH_MAX = 8960, WIDTHS_COUNT = 104 };

/* 1 to 100, then those of real models, and what is no multiple of a vector behind it. */
static size_t width_at(size_t index) {
    static const size_t large[] = {576, 1536, 4097, WIDTH_MAX};
    return index < 100 ? index + 1 : large[index - 100];
}

static uint64_t seed_now;

static uint32_t draw(void) { /* a 64-bit linear congruential generator, high bits */
    seed_now = seed_now * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed_now >> 33);
}

static float draw_float(float range) {
    return range * ((float)(draw() % 2000001) / 1000000.0f - 1.0f);
}

static float *new_floats(size_t count) {
    float *floats = malloc(count * sizeof(float));
    assert_non_null(floats);
    return floats;
}

/* What a damaged file or an overflow may bring. */
static const float strange[] = {NAN,      INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45f, -1e-45f, -0.0f,
                                86.9999f, -87.0f,   88.0f,     -104.0f, 1e20f,    -1e20f,  2e38f,  0.0f,    -1.0f};

static void fill(float *floats, size_t count, float range, bool with_strange) {
    for (size_t i = 0; i < count; i++) {
        floats[i] = draw_float(range);
        if (with_strange && draw() % 5 == 0) floats[i] = strange[draw() % (sizeof strange / sizeof *strange)];
    }
}

/* The sign and the payload of what is not a number are nobody's business. */
static void check_same(const float *found, const float *wanted, size_t count, const char *what, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (isnan(found[i]) && isnan(wanted[i])) continue;
        if (memcmp(&found[i], &wanted[i], sizeof(float)) == 0) continue;
        fail_msg("%s, %s, %zu numbers: number %zu is %.9g, wanted %.9g", name, what, count, i, (double)found[i],
                 (double)wanted[i]);
    }
}

static const lv_elementwise *portable(void) {
    size_t last = 0;
    while (lv_elementwise_at(last + 1)) last++;
    return lv_elementwise_at(last);
}

static void test_choice(void **state) {
    (void)state;
    assert_ptr_equal(lv_elementwise_best(), lv_elementwise_at(0));
    assert_string_equal(portable()->name, "portable");
    for (size_t i = 0; lv_elementwise_at(i); i++) print_message("%s\n", lv_elementwise_at(i)->name);
}

/* --- The same bits ----------------------------------------------------------------------------------------------- */

typedef struct {
    float *a, *b, *mine, *portable;
} buffers;

static void buffers_open(buffers *b) {
    float **all[] = {&b->a, &b->b, &b->mine, &b->portable};
    for (size_t i = 0; i < 4; i++) *all[i] = new_floats(3 * WIDTH_MAX);
}

static void buffers_close(buffers *b) {
    free(b->a);
    free(b->b);
    free(b->mine);
    free(b->portable);
}

static void check_norm_bits(const lv_elementwise *e, buffers *b, size_t width, bool with_strange) {
    fill(b->a, 3 * width, 30, with_strange);
    fill(b->b, width, 2, with_strange);
    portable()->norm(b->a, b->b, 1e-6f, width, 3, b->portable);
    e->norm(b->a, b->b, 1e-6f, width, 3, b->mine);
    check_same(b->mine, b->portable, 3 * width, "norm", e->name);
    e->norm(b->a + width, b->b, 1e-6f, width, 1, b->mine);
    check_same(b->mine, b->portable + width, width, "norm of a row alone", e->name);
    memcpy(b->mine, b->a, 3 * width * sizeof(float));
    e->norm(b->mine, b->b, 1e-6f, width, 3, b->mine);
    check_same(b->mine, b->portable, 3 * width, "norm in place", e->name);
}

static void check_pair_bits(const lv_elementwise *e, buffers *b, size_t count, bool with_strange) {
    fill(b->a, count, 40, with_strange);
    fill(b->b, count, 10, with_strange);
    memcpy(b->mine, b->a, count * sizeof(float));
    memcpy(b->portable, b->a, count * sizeof(float));
    portable()->swiglu(b->portable, b->b, count);
    e->swiglu(b->mine, b->b, count);
    check_same(b->mine, b->portable, count, "swiglu", e->name);

    memcpy(b->mine, b->a, count * sizeof(float));
    memcpy(b->portable, b->a, count * sizeof(float));
    portable()->add(b->portable, b->b, count);
    const size_t part = count / 3; /* as threads share it */
    e->add(b->mine, b->b, part);
    e->add(b->mine + part, b->b + part, count - part);
    check_same(b->mine, b->portable, count, "add in two parts", e->name);
}

static void check_rope_bits(const lv_elementwise *e, buffers *b, size_t dims, bool with_strange) {
    const size_t heads = 3, head_dim = dims + 3;
    fill(b->b, dims, 1, with_strange);
    for (int halves = 0; halves < 2; halves++) {
        fill(b->a, heads * head_dim, 20, with_strange);
        memcpy(b->mine, b->a, heads * head_dim * sizeof(float));
        memcpy(b->portable, b->a, heads * head_dim * sizeof(float));
        portable()->rope(b->portable, heads, head_dim, dims, halves, b->b);
        for (size_t h = 0; h < heads; h++) e->rope(b->mine + h * head_dim, 1, head_dim, dims, halves, b->b);
        check_same(b->mine, b->portable, heads * head_dim, halves ? "rope of halves" : "rope of neighbours", e->name);
    }
}

static void test_same_bits(void **state) {
    (void)state;
    buffers b;
    buffers_open(&b);
    for (size_t i = 0; lv_elementwise_at(i); i++) {
        for (size_t w = 0; w < 2 * WIDTHS_COUNT; w++) {
            const bool with_strange = w >= WIDTHS_COUNT;
            const size_t width = width_at(w % WIDTHS_COUNT);
            seed_now = w;
            check_norm_bits(lv_elementwise_at(i), &b, width, with_strange);
            check_pair_bits(lv_elementwise_at(i), &b, width, with_strange);
            if (width <= 576) check_rope_bits(lv_elementwise_at(i), &b, 2 * width, with_strange);
        }
    }
    buffers_close(&b);
}

/* --- Right ------------------------------------------------------------------------------------------------------- */

static double ulp_of(double value) {
    const float magnitude = (float)fabs(value);
    return (double)nextafterf(magnitude, INFINITY) - (double)magnitude;
}

static void check_norm_row(const lv_elementwise *e, size_t width, float range, float epsilon) {
    float *in = new_floats(width), *weight = new_floats(width), *out = new_floats(width);
    fill(in, width, range, false);
    fill(weight, width, 2, false);
    e->norm(in, weight, epsilon, width, 1, out);
    double sum = 0;
    for (size_t i = 0; i < width; i++) sum += (double)in[i] * (double)in[i];
    const double scale = 1 / sqrt(sum / (double)width + (double)epsilon);
    for (size_t i = 0; i < width; i++) {
        /* Six roundings of half a unit: mean, sum, root, quotient, two products; the first two are halved by the root.
         * A unit of one number is up to two of another. */
        const double wanted = (double)in[i] * scale * (double)weight[i];
        if (fabs((double)out[i] - wanted) > 5 * ulp_of(wanted)) {
            fail_msg("%s, width %zu, range %g: number %zu is %.9g, wanted %.9g", e->name, width, (double)range, i,
                     (double)out[i], wanted);
        }
    }
    free(in);
    free(weight);
    free(out);
}

/* Sums that single precision could not hold are fine: squares are added in double precision. */
static void test_norm_is_right(void **state) {
    (void)state;
    static const float ranges[] = {1, 300, 1e-4f, 1e18f, 1e19f};
    for (size_t i = 0; lv_elementwise_at(i); i++) {
        for (size_t w = 0; w < WIDTHS_COUNT; w++) {
            seed_now = w;
            for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
                check_norm_row(lv_elementwise_at(i), width_at(w), ranges[r], 1e-6f);
            }
        }
    }
    const float zeros[3] = {0}, weight[3] = {1, 2, 3};
    float out[3] = {7, 7, 7};
    lv_elementwise_best()->norm(zeros, weight, 1e-5f, 3, 1, out);
    check_same(out, zeros, 3, "norm of zeros", lv_elementwise_best()->name);
}

static void test_swiglu_is_right(void **state) {
    (void)state;
    enum { STEPS = 400001, RUN = 4001 };
    float *gate = new_floats(RUN), *out = new_floats(RUN), *up = new_floats(RUN);
    for (size_t i = 0; lv_elementwise_at(i); i++) {
        double worst = 0;
        for (size_t first = 0; first < STEPS; first += RUN) {
            for (size_t k = 0; k < RUN; k++) {
                gate[k] = (float)(-100.0 + 200.0 * (double)(first + k) / (STEPS - 1));
                up[k] = k % 2 ? 1.0f : -1.5f;
            }
            memcpy(out, gate, RUN * sizeof(float));
            lv_elementwise_at(i)->swiglu(out, up, RUN);
            for (size_t k = 0; k < RUN; k++) {
                /* exp is cut off at -87, where the exact result is a few hundred times the smallest normal number. */
                const double x = (double)gate[k], wanted = x / (1 + exp(-x)) * (double)up[k];
                if (gate[k] <= -87.0f) {
                    assert_true(out[k] == 0.0f && fabs(wanted) < 3e-36);
                    continue;
                }
                const double off = fabs((double)out[k] - wanted) / ulp_of(wanted);
                if (off > worst) worst = off;
                if (off > 4) {
                    fail_msg("%s: swiglu of %.9g is %.9g, wanted %.9g", lv_elementwise_at(i)->name, x, (double)out[k],
                             wanted);
                }
            }
        }
        print_message("%s: swiglu is off by %.2f units in the last place at most\n", lv_elementwise_at(i)->name, worst);
    }
    free(gate);
    free(out);
    free(up);
}

static void test_swiglu_of_strange_numbers(void **state) {
    (void)state;
    float gate[6] = {0.0f, INFINITY, NAN, 1e30f, -1e30f, FLT_MAX};
    const float up[6] = {5, 1, 1, 2, 2, 2}, wanted[6] = {0.0f, INFINITY, NAN, 2e30f, -0.0f, INFINITY};
    lv_elementwise_best()->swiglu(gate, up, 6);
    check_same(gate, wanted, 6, "swiglu", lv_elementwise_best()->name);
}

static void test_rope_turns(void **state) {
    (void)state;
    /* Two pairs: a quarter turn, and none; what lies behind dims stays. */
    const float angles[4] = {0, 1, 1, 0};
    float halves[5] = {2, 3, 5, 7, 9}, neighbours[5] = {2, 3, 5, 7, 9};
    const float wanted_halves[5] = {-5, 3, 2, 7, 9}, wanted_neighbours[5] = {-3, 2, 5, 7, 9};
    lv_elementwise_best()->rope(halves, 1, 5, 4, 1, angles);
    lv_elementwise_best()->rope(neighbours, 1, 5, 4, 0, angles);
    check_same(halves, wanted_halves, 5, "rope of halves", "best");
    check_same(neighbours, wanted_neighbours, 5, "rope of neighbours", "best");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_norm_is_right),
        cmocka_unit_test(test_swiglu_is_right),
        cmocka_unit_test(test_swiglu_of_strange_numbers),
        cmocka_unit_test(test_rope_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
