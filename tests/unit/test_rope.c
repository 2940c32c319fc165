/* Angles against those of ggml's rope: a pair (1, 0) is turned to the cosine and the sine themselves. */
#include "compute/rope.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "compute/kernels/elementwise.h"
#include "ggml-cpu.h"
#include "support/check.h"

enum { POSITIONS_COUNT = 48, DIMS_MAX = 256 };

/* Small ones, powers of two and their neighbours, and up to 40000. */
static int32_t position_at(size_t index) {
    static const int32_t some[] = {0,    1,    2,    3,    5,    7,    15,   16,    17,    100,   255,   256,
                                   1000, 2047, 2048, 4095, 4096, 8191, 8192, 10000, 16384, 20000, 32767, 32768};
    const size_t count = sizeof some / sizeof *some;
    return index < count ? some[index] : (int32_t)(40000 - 317 * (POSITIONS_COUNT - 1 - index));
}

typedef struct {
    const char *name;
    lv_rope rope;
    bool factors;
} rope_case;

static const rope_case cases[] = {
    {"plain", {LV_ROPE_HALVES, 128, 32768, 1e6f, 1, 0, 1, 32, 1}, false},
    {"neighbours", {LV_ROPE_ADJACENT, 64, 8192, 1e5f, 1, 0, 1, 32, 1}, false},
    {"linear", {LV_ROPE_ADJACENT, 128, 4096, 1e4f, 0.25f, 0, 1, 32, 1}, false},
    {"an odd factor", {LV_ROPE_HALVES, 80, 4096, 1e4f, 1 / 3.0f, 0, 1, 32, 1}, false},
    {"factors", {LV_ROPE_ADJACENT, 128, 131072, 5e5f, 1, 0, 1, 32, 1}, true},
    {"yarn", {LV_ROPE_HALVES, 128, 32768, 1e6f, 0.25f, 1, 0.878f, 32, 1}, false},
    {"yarn of neighbours", {LV_ROPE_ADJACENT, 96, 4096, 1e4f, 0.125f, 1, 1.25f, 32, 1}, false},
    {"yarn with factors", {LV_ROPE_HALVES, 64, 8192, 1e4f, 0.5f, 1, 1, 32, 1}, true},
    {"the smallest head", {LV_ROPE_HALVES, 2, 64, 1e4f, 1, 0, 1, 32, 1}, false},
    {"a large head", {LV_ROPE_HALVES, DIMS_MAX, 40960, 1e6f, 1, 0, 1, 32, 1}, false},
};

/* As those of Llama 3: 1 for pairs that turn often, 8 for slow ones. */
static void fill_factors(float *factors, uint32_t pairs) {
    for (uint32_t i = 0; i < pairs; i++) factors[i] = 1 + 7 * (float)i / (float)pairs;
}

/* Turns `values`, one head for each position, as ggml does. */
static void turn_by_ggml(const rope_case *c, const float *factors, float *values) {
    const uint32_t dims = c->rope.dims;
    struct ggml_context *context = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    assert_non_null(context);
    struct ggml_tensor *heads = ggml_new_tensor_3d(context, GGML_TYPE_F32, dims, 1, POSITIONS_COUNT);
    struct ggml_tensor *positions = ggml_new_tensor_1d(context, GGML_TYPE_I32, POSITIONS_COUNT);
    struct ggml_tensor *ff = NULL;
    memcpy(heads->data, values, (size_t)POSITIONS_COUNT * dims * sizeof(float));
    for (size_t p = 0; p < POSITIONS_COUNT; p++) ((int32_t *)positions->data)[p] = position_at(p);
    if (factors) {
        ff = ggml_new_tensor_1d(context, GGML_TYPE_F32, dims / 2);
        memcpy(ff->data, factors, dims / 2 * sizeof(float));
    }
    struct ggml_tensor *turned = ggml_rope_ext(
        context, heads, positions, ff, (int)dims, (int)c->rope.pairing, (int)c->rope.context_original, c->rope.base,
        c->rope.scale, c->rope.extrapolation_factor, c->rope.attention_factor, c->rope.beta_fast, c->rope.beta_slow);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, turned);
    assert_int_equal(ggml_graph_compute_with_ctx(context, graph, 1), GGML_STATUS_SUCCESS);
    memcpy(values, turned->data, (size_t)POSITIONS_COUNT * dims * sizeof(float));
    ggml_free(context);
}

static void turn_by_ours(const rope_case *c, const float *factors, float *values) {
    float angles[DIMS_MAX];
    for (size_t p = 0; p < POSITIONS_COUNT; p++) {
        lv_rope_angles(&c->rope, factors, (uint32_t)position_at(p), angles);
        lv_elementwise_best()->rope(values + p * c->rope.dims, 1, c->rope.dims, c->rope.dims,
                                    c->rope.pairing == LV_ROPE_HALVES, angles);
    }
}

/* ggml may be compiled with contraction, which moves an angle of YaRN's by a unit in its last place: the larger the
 * angle, the more that moves its cosine. All other angles have the same bits. */
static double slack_of(const rope_case *c, int32_t position) {
    if (c->rope.extrapolation_factor == 0) return 0;
    return 2 * ((double)FLT_EPSILON * position + (double)FLT_EPSILON);
}

static void check_case(const rope_case *c) {
    const uint32_t dims = c->rope.dims, pairs = dims / 2;
    const size_t count = (size_t)POSITIONS_COUNT * dims;
    float factors[DIMS_MAX / 2], *wanted = calloc(count, sizeof(float)), *found = calloc(count, sizeof(float));
    assert_true(wanted && found);
    fill_factors(factors, pairs);
    for (size_t p = 0; p < POSITIONS_COUNT; p++) {
        for (uint32_t i = 0; i < pairs; i++) wanted[p * dims + (c->rope.pairing == LV_ROPE_HALVES ? i : 2 * i)] = 1;
    }
    memcpy(found, wanted, count * sizeof(float));
    turn_by_ggml(c, c->factors ? factors : NULL, wanted);
    turn_by_ours(c, c->factors ? factors : NULL, found);
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double off = fabs((double)found[i] - (double)wanted[i]);
        const int32_t position = position_at(i / dims);
        if (off > worst) worst = off;
        if (off <= slack_of(c, position)) continue;
        fail_msg("%s: position %d, number %zu: %.9g, ggml has %.9g", c->name, position, i % dims, (double)found[i],
                 (double)wanted[i]);
    }
    print_message("%-20s off by %.2g at most\n", c->name, worst);
    free(wanted);
    free(found);
}

static void test_against_ggml(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
}

/* Whatever the position, a pair keeps its length. */
static void test_lengths(void **state) {
    (void)state;
    const lv_rope *rope = &cases[5].rope; /* yarn */
    const double length = (double)rope->attention_factor * (1 + 0.1 * log(1 / (double)rope->scale));
    float angles[DIMS_MAX];
    for (size_t p = 0; p < POSITIONS_COUNT; p++) {
        lv_rope_angles(rope, NULL, (uint32_t)position_at(p), angles);
        for (uint32_t i = 0; i < rope->dims / 2; i++) {
            assert_true(fabs(hypot((double)angles[2 * i], (double)angles[2 * i + 1]) - length) < 1e-6);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_ggml),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
