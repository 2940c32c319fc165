/* A session's virtual clock: models played by the test, a phone whose numbers are round, and times that follow by hand.
 */
#include "engine/simulation.h"

#include <math.h>

#include "spec/drafting.h"
#include "support/check.h"

/* A layer of the target is read in 2 s and computed in 1 s (2 s behind 32 rows), a row of the head takes 0.5 s; the
 * draft takes 0.25 s on the CPU whatever the rows. */
static lv_phone make_phone(uint32_t pinned_layers) {
    lv_phone phone;
    lever_error error;
    CHECK_OK(lv_phone_profile_load(&phone.profile, "oneplus12", &error));
    lv_phone_profile *p = &phone.profile;
    p->flash_sequential = p->flash_iops = p->flash_iops_least = 1e15;
    p->flash_request = p->read_block;
    p->read_queue = p->read_lanes = 1;
    p->flash_copy = 0;
    p->memory_copies = 0;
    p->memory_bandwidth = 1e12;
    p->npu_bandwidth = 2;       /* the draft's four layers of a byte would take 2 s: it stays on the CPU */
    p->npu_arithmetic = 2 * 32; /* of one weight, a tile of rows in a second */
    p->npu_dequantise = 0;
    p->npu_crossing = p->npu_io_loss = 0;
    p->cpu_bandwidth = 4 / 0.25; /* bytes/s: four layers of a byte in 0.25 s */
    p->cpu_bandwidth_share = 1;
    p->cpu_arithmetic = 1e15;
    p->cpu_layer = 0;
    p->head_arithmetic = 4; /* two operations for each of a row's weights */
    p->power_base = 1;
    p->power_npu = 2;
    p->power_cpu = 4;
    p->power_reader = 8;
    p->energy_flash = 16;
    p->energy_memory = 0;
    p->heat_capacity = 1e12;
    phone.target = (lv_phone_shape){.layers_count = 4, .layer_weights = 1, .layer_bytes = 2, .head_weights = 1};
    phone.draft = (lv_phone_shape){.layers_count = 4, .layer_weights = 1e-9, .layer_bytes = 1};
    phone.pinned_layers = pinned_layers;
    phone.pinned_share = 0;
    return phone;
}

/* --- The models -------------------------------------------------------------------------------------------------- */

typedef struct {
    lv_simulation *simulation;
    uint32_t ahead_forwards; /* made when drafting ahead ends */
    uint32_t verified, committed, kept;
} played;

static lever_status play_verify(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                                const lv_pause *pause, lever_error *error) {
    (void)tree, (void)nodes, (void)split;
    ((played *)user)->verified = count;
    uint32_t keep[LV_PRUNING_ROWS_MAX], keep_count;
    return pause ? pause->middle(pause->user, NULL, keep, &keep_count, error) : LEVER_OK;
}

static lever_status play_middle(void *user, const lv_pruning_source *source, uint32_t keep[LV_PRUNING_ROWS_MAX],
                                uint32_t *keep_count, lever_error *error) {
    (void)source, (void)error;
    *keep_count = ((const played *)user)->kept;
    for (uint32_t i = 0; i < *keep_count; i++) keep[i] = i;
    return LEVER_OK;
}

static lever_status play_head(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count,
                              lever_error *error) {
    (void)user, (void)tree, (void)nodes, (void)error;
    return count > 0 ? LEVER_OK : LEVER_E_INTERNAL;
}

static int32_t play_token(void *user, const lv_tree *tree, uint32_t node, uint32_t index) {
    (void)user, (void)tree, (void)node;
    return (int32_t)index + 7;
}

static void play_commit(void *user, const lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    (void)tree, (void)path;
    ((played *)user)->committed = path_count;
}

static lever_status play_expand(void *user, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                                uint32_t *expanded, double *seconds, lever_error *error) {
    (void)tree, (void)nodes, (void)error;
    *expanded = count;
    *seconds = lv_simulation_forward(((played *)user)->simulation, count, count, split);
    return LEVER_OK;
}

static void play_ahead_begin(void *user, const lv_drafting *drafting, const lv_drafting_view *view, double seconds) {
    (void)user, (void)drafting, (void)view, (void)seconds;
}

static lever_status play_ahead_end(void *user, lever_error *error) {
    const played *p = user;
    (void)error;
    for (uint32_t i = 0; i < p->ahead_forwards; i++) lv_simulation_forward(p->simulation, 1, 1, LV_SPLIT_ONE);
    return LEVER_OK;
}

static void play_drafter_commit(void *user, lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    (void)user, (void)tree, (void)path, (void)path_count;
}

static void play_rerooted(void *user, lv_tree *tree) {
    (void)user, (void)tree;
}

typedef struct {
    lv_phone phone;
    played models;
    lv_simulation *simulation;
    lv_target target;
    lv_drafter drafter;
    lv_costs costs;
} world;

/* What drafting ahead is said to keep by whoever learned it on another machine. */
static const double others_kept = 1.25;

static void open_world_recorded(world *w, uint32_t pinned_layers, lv_spans *spans) {
    memset(w, 0, sizeof(*w));
    w->phone = make_phone(pinned_layers);
    lever_error error;
    CHECK_OK(lv_simulation_open(&w->simulation, &w->phone, spans, NULL, &error));
    w->models.simulation = w->simulation;
    const lv_target target = {&w->models, play_verify, play_head, play_token, play_commit, NULL};
    const lv_drafter drafter = {&w->models,    play_expand, play_ahead_begin, play_ahead_end, play_drafter_commit,
                                play_rerooted, NULL};
    w->target = lv_simulation_target(w->simulation, &target);
    w->drafter = lv_simulation_drafter(w->simulation, &drafter);
    lv_simulation_begin_answer(w->simulation);
    w->costs.ahead.kept[0] = w->costs.ahead.kept[1] = others_kept;
    w->costs.frozen = true; /* as a file of costs makes them */
    lv_simulation_begin_cycle(w->simulation, 0, &w->costs);
}

static void open_world(world *w, uint32_t pinned_layers) {
    open_world_recorded(w, pinned_layers, NULL);
}

static double now(const world *w) {
    const lv_clock *clock = lv_simulation_clock(w->simulation);
    const double seconds = w->target.now(w->target.user);
    CHECK_DOUBLE(lv_seconds(lv_clock_now_ns(clock)), seconds, 1e-8);
    return seconds;
}

static void draft_once(world *w, uint32_t width) {
    uint32_t expanded;
    double seconds;
    lever_error error;
    CHECK_OK(w->drafter.expand(w->drafter.user, NULL, NULL, width, LV_SPLIT_ALL, &expanded, &seconds, &error));
    assert_int_equal(expanded, width);
    CHECK_DOUBLE(seconds, 0.25, 1e-6);
}

static void verify(world *w, uint32_t nodes, bool ahead) {
    lever_error error;
    if (ahead) w->drafter.ahead_begin(w->drafter.user, NULL, NULL, 1);
    CHECK_OK(w->target.verify(w->target.user, NULL, NULL, nodes, LV_SPLIT_ALL, NULL, &error));
    if (ahead) CHECK_OK(w->drafter.ahead_end(w->drafter.user, &error));
    assert_int_equal(w->models.verified, nodes);
}

static void head(world *w, uint32_t rows) {
    lever_error error;
    CHECK_OK(w->target.head(w->target.user, NULL, NULL, rows, &error));
}

/* --- Tests ------------------------------------------------------------------------------------------------------- */

static void test_schedule(void **state) {
    (void)state;
    world w;
    open_world(&w, 0);
    draft_once(&w, 1);
    draft_once(&w, 4);
    CHECK_DOUBLE(now(&w), 0.5, 1e-6);
    /* The reader began at 0: layers arrive at 2, 4, 6 and 8, and are computed at 3, 5, 7 and 9. */
    verify(&w, 3, false);
    CHECK_DOUBLE(now(&w), 9, 1e-6);
    CHECK_DOUBLE(now(&w), 9, 1e-6);
    head(&w, 1);
    CHECK_DOUBLE(now(&w), 9.5, 1e-6);
    head(&w, 3);
    CHECK_DOUBLE(now(&w), 11, 1e-6);
    /* Meanwhile the next layers arrive at 10 and 12; with drafting to 11.25 the pass begins at the first, computed at
     * 12.25; the second at 13.25, a third at 14.25 (its slot is free at 12.25) and a fourth at 16.25: done at 17.25. */
    draft_once(&w, 1);
    verify(&w, 0, false);
    CHECK_DOUBLE(now(&w), 17.25, 1e-6);
    /* 33 rows are computed as 64, 2 s a layer, as long as a read takes: they arrive at 18.25, 20.25, 22.25, 24.25. */
    verify(&w, 32, false);
    CHECK_DOUBLE(now(&w), 26.25, 1e-6);
    lv_simulation_close(&w.simulation);
}

/* The draft beside a pass: hidden as long as the pass lasts, and no longer. */
static void test_ahead(void **state) {
    (void)state;
    static const struct {
        uint32_t forwards;
        double end;
    } cases[] = {{0, 9}, {30, 9}, {36, 9}, {40, 10}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        open_world(&w, 0);
        w.models.ahead_forwards = cases[i].forwards;
        verify(&w, 3, true);
        CHECK_DOUBLE(now(&w), cases[i].end, 1e-6);
        lv_simulation_close(&w.simulation);
    }
}

/* Rows that are cut away in the middle of the real target are cut away as deep in the simulated one. */
static void test_cut(void **state) {
    (void)state;
    world w;
    open_world(&w, 4);
    w.phone.model_layers = 12;
    w.models.kept = 30;
    const lv_pause pause = {.layers_before = 9, .user = &w.models, .middle = play_middle};
    lever_error error;
    CHECK_OK(w.target.verify(w.target.user, NULL, NULL, 63, LV_SPLIT_ALL, &pause, &error));
    CHECK_DOUBLE(now(&w), 3 * 2 + 1, 1e-6);
    verify(&w, 63, false);
    CHECK_DOUBLE(now(&w), 7 + 4 * 2, 1e-6);
    lever_statistics s = {0};
    lv_simulation_fill(w.simulation, &s);
    assert_int_equal(s.nodes_padded, 1); /* half a row in the mean over layers, rounded */
    lv_simulation_close(&w.simulation);
}

static void test_costs(void **state) {
    (void)state;
    world w;
    open_world(&w, 0);
    assert_true(w.costs.frozen);
    CHECK_DOUBLE(w.costs.io_seconds, 8, 1e-6);
    CHECK_DOUBLE(w.costs.ring_seconds, 4, 1e-6);
    for (size_t split = 0; split < LV_SPLITS_COUNT; split++) {
        CHECK_DOUBLE(lv_cost_curve_at(&w.costs.layers[split], 32), 4, 1e-6);
        CHECK_DOUBLE(lv_cost_curve_at(&w.costs.layers[split], 64), 8, 1e-6);
        CHECK_DOUBLE(lv_cost_curve_at(&w.costs.draft[split], 8), 0.25, 1e-6);
    }
    CHECK_DOUBLE(lv_cost_curve_at(&w.costs.head, 4), 2, 1e-6);
    lv_simulation_close(&w.simulation);
    open_world(&w, 4);
    CHECK_DOUBLE(w.costs.io_seconds, 0, 0);
    CHECK_DOUBLE(w.costs.ring_seconds, 0, 0);
    lv_simulation_close(&w.simulation);
}

/* Of another machine's costs not even the record of drafting ahead is kept; from then on it is virtual time's. */
static void test_record_of_drafting_ahead(void **state) {
    (void)state;
    world w;
    open_world(&w, 0);
    CHECK_DOUBLE(w.costs.ahead.kept[0], 0, 0);
    CHECK_DOUBLE(w.costs.ahead.kept[1], 0, 0);
    w.costs.ahead.kept[1] = 0.5;
    lv_simulation_begin_cycle(w.simulation, 0, &w.costs);
    CHECK_DOUBLE(w.costs.ahead.kept[1], 0.5, 0);
    lv_simulation_close(&w.simulation);
}

/* Whatever the batch shapes: a pass is expected to take what it takes. */
static void test_costs_of_any_shape(void **state) {
    (void)state;
    static const struct {
        lv_buckets buckets;
        double tile;
    } cases[] = {
        {{{1, 20, 64}, 3}, 1},
        {{{1, 20, 64}, 3}, 4},
        {{{3, 40}, 2}, 1},
        {{{1, 8, 16, 32, 64, 96}, 6}, 32},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t rows = 1; rows <= 64; rows++) {
            world w;
            open_world(&w, 4); /* computing is all there is */
            w.phone.profile.npu_buckets = cases[i].buckets;
            w.phone.profile.npu_tile = cases[i].tile;
            lv_simulation_begin_cycle(w.simulation, 0, &w.costs);
            const double expected = lv_costs_pass(&w.costs, LV_SPLIT_ALL, rows, 0);
            verify(&w, rows - 1, false);
            const double got = now(&w);
            if (fabs(got - expected) > 1e-6) fail_msg("case %zu, %u rows: %g, expected %g", i, rows, got, expected);
            lv_simulation_close(&w.simulation);
        }
    }
}

/* Costs are those of the rows that the NPU computes, and a tree is cut down to them where its last node brings less
 * than what the padding takes. */
static void test_buckets(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t pinned_layers;
        float last; /* what the 32nd node is worth: with the root it is the 33rd row */
        uint32_t wanted;
    } cases[] = {
        {"computing takes the time, and twice of it", 4, 0.4f, 31},
        {"reading takes as long", 0, 0.4f, 32},
        {"reading takes as long, for next to nothing", 0, 0.001f, 32},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world w;
        open_world(&w, cases[i].pinned_layers);
        w.phone.profile.head_arithmetic = 1e15; /* else the reader would fill the ring meanwhile */
        lv_simulation_begin_cycle(w.simulation, 0, &w.costs);
        assert_int_equal(w.costs.buckets.count, w.phone.profile.npu_buckets.count);
        CHECK_DOUBLE(lv_costs_pass(&w.costs, LV_SPLIT_ALL, 32, 0), w.costs.io_seconds > 0 ? 8 : 4, 1e-6);
        CHECK_DOUBLE(lv_costs_pass(&w.costs, LV_SPLIT_ALL, 33, 0), 8, 1e-6);
        CHECK_DOUBLE(lv_costs_pass(&w.costs, LV_SPLIT_ALL, 65, 0), 12, 1e-6);
        lv_drafting drafting;
        lv_drafting_init(&drafting, LEVER_STRATEGY_CHAIN);
        const lv_drafting_view view = {.costs = &w.costs, .split = LV_SPLIT_ALL};
        float weights[32];
        for (uint32_t n = 0; n < 31; n++) weights[n] = 0.4f;
        weights[31] = cases[i].last;
        const uint32_t got = lv_drafting_fit(&drafting, &view, weights, 32);
        if (got != cases[i].wanted) fail_msg("%s: %u nodes", cases[i].name, got);
        lv_simulation_close(&w.simulation);
    }
}

static void test_prompt(void **state) {
    (void)state;
    world w;
    open_world(&w, 4);
    w.phone.draft.head_weights = 1; /* 0.5 s a row, which no prompt asks for */
    const uint64_t begin = lv_clock_now_ns(lv_simulation_clock(w.simulation));
    lv_simulation_prompt(w.simulation, 64, 64, 0); /* 8 s of computing, nothing is read */
    CHECK_DOUBLE(now(&w), 8, 1e-6);
    lv_simulation_prompt(w.simulation, 10, 74, 1);
    CHECK_DOUBLE(now(&w), 12.5, 1e-6);
    lv_simulation_draft_prompt(w.simulation, 74, begin); /* beside it */
    CHECK_DOUBLE(now(&w), 12.5, 1e-6);
    const uint64_t late = lv_clock_now_ns(lv_simulation_clock(w.simulation));
    lv_simulation_draft_prompt(w.simulation, 74, late);
    CHECK_DOUBLE(now(&w), 12.75, 1e-6);
    /* A forward that catches up with text as well: the nodes alone go through the head. */
    CHECK_DOUBLE(lv_simulation_forward(w.simulation, 7, 2, LV_SPLIT_ALL), 0.25 + 2 * 0.5, 1e-6);
    CHECK_DOUBLE(lv_simulation_forward(w.simulation, 7, 0, LV_SPLIT_ONE), 0.25, 1e-6);
    lv_simulation_prompt(w.simulation, 3, 77, 3); /* a score wants the logits of all */
    CHECK_DOUBLE(now(&w), 12.75 + 4 + 3 * 0.5, 1e-6);
    lv_simulation_close(&w.simulation);
}

/* --- The timeline ------------------------------------------------------------------------------------------------ */

static void check_spans(lv_spans *spans, const lv_span *wanted, size_t wanted_count) {
    lv_span got;
    for (size_t i = 0; i < wanted_count; i++) {
        assert_true(lv_spans_take(spans, &got));
        const lv_span *w = &wanted[i];
        if (strcmp(got.name, w->name) != 0 || got.track != w->track || got.number != w->number ||
            got.begin_ns != w->begin_ns || got.end_ns != w->end_ns) {
            fail_msg("span %zu is %s %u of track %u, %g to %g s; wanted %s %u of %u, %g to %g s", i, got.name,
                     got.number, got.track, (double)got.begin_ns / 1e9, (double)got.end_ns / 1e9, w->name, w->number,
                     w->track, (double)w->begin_ns / 1e9, (double)w->end_ns / 1e9);
        }
    }
    assert_false(lv_spans_take(spans, &got));
}

#define MS(milliseconds) ((milliseconds)*UINT64_C(1000000))
#define READ(layer, begin, end) \
    { "read layer", LV_TRACK_LANE, layer, MS(begin), MS(end) }
#define LAYER(layer, begin, end) \
    { "layer", LV_TRACK_MAIN, layer, MS(begin), MS(end) }

/* The schedule of test_schedule as a viewer shows it: the reader works beside the layers, the head and the draft. */
static void test_timeline(void **state) {
    (void)state;
    static const lv_span first[] = {
        {"draft rows", LV_TRACK_MAIN, 1, MS(0), MS(250)},
        READ(0, 0, 2000),
        LAYER(0, 2000, 3000),
        READ(1, 2000, 4000),
        LAYER(1, 4000, 5000),
        READ(2, 4000, 6000),
        LAYER(2, 6000, 7000),
        READ(3, 6000, 8000),
        LAYER(3, 8000, 9000),
        {"pass rows", LV_TRACK_MAIN, 4, MS(250), MS(9000)},
        {"head rows", LV_TRACK_MAIN, 3, MS(9000), MS(10500)},
    };
    /* The ring is full from 12 s on, with the pass at its beginning, and the draft beside it until 11 s. */
    static const lv_span second[] = {
        {"draft rows", LV_TRACK_DRAFT, 1, MS(10500), MS(10750)},
        {"draft rows", LV_TRACK_DRAFT, 1, MS(10750), MS(11000)},
        READ(0, 8000, 10000),
        LAYER(0, 10500, 11500),
        READ(1, 10000, 12000),
        LAYER(1, 12000, 13000),
        READ(2, 12000, 14000),
        LAYER(2, 14000, 15000),
        READ(3, 14000, 16000),
        LAYER(3, 16000, 17000),
        {"pass rows", LV_TRACK_MAIN, 1, MS(10500), MS(17000)},
    };
    lv_spans *spans;
    lever_error error;
    CHECK_OK(lv_spans_open(&spans, NULL, &error));
    world w;
    open_world_recorded(&w, 0, spans);
    draft_once(&w, 1);
    verify(&w, 3, false);
    head(&w, 3);
    check_spans(spans, first, sizeof(first) / sizeof(first[0]));
    w.models.ahead_forwards = 2;
    verify(&w, 0, true);
    CHECK_DOUBLE(now(&w), 17, 1e-6);
    check_spans(spans, second, sizeof(second) / sizeof(second[0]));
    lv_simulation_close(&w.simulation);

    /* With everything in memory nothing is read; the draft's prompt lies beside the target's. */
    static const lv_span prompt[] = {
        LAYER(0, 0, 1000),
        LAYER(1, 1000, 2000),
        LAYER(2, 2000, 3000),
        LAYER(3, 3000, 4000),
        {"pass rows", LV_TRACK_MAIN, 5, MS(0), MS(4000)},
        {"draft rows", LV_TRACK_DRAFT, 4, MS(0), MS(250)},
    };
    open_world_recorded(&w, 4, spans);
    lv_simulation_prompt(w.simulation, 5, 5, 0);
    lv_simulation_draft_prompt(w.simulation, 4, 0);
    check_spans(spans, prompt, sizeof(prompt) / sizeof(prompt[0]));
    lv_simulation_close(&w.simulation);
    lv_spans_close(&spans);
}

static void test_statistics(void **state) {
    (void)state;
    world w;
    open_world(&w, 0);
    draft_once(&w, 1);
    verify(&w, 3, false);
    head(&w, 2);
    lever_statistics s = {0};
    lv_simulation_fill(w.simulation, &s);
    assert_int_equal(s.bytes_read, 8);
    CHECK_DOUBLE(s.io_seconds, 8, 1e-6);
    CHECK_DOUBLE(s.compute_seconds, 4, 1e-6);
    CHECK_DOUBLE(s.head_seconds, 1, 1e-6);
    assert_int_equal(s.nodes_padded, 28);
    /* 10 s on, 4 s the NPU, 0.25 and 1 s the cores, 8 s the reader, 8 bytes. */
    CHECK_DOUBLE(s.energy_joules, 10 + 2 * 4 + 4 * 1.25 + 8 * 8 + 16 * 8, 1e-4);
    assert_true(s.energy_is_simulated);
    CHECK_DOUBLE(s.phone_speed, 1, 0);
    /* The next answer counts anew. */
    lv_simulation_begin_answer(w.simulation);
    head(&w, 1);
    lv_simulation_fill(w.simulation, &s);
    assert_int_equal(s.bytes_read, 0);
    CHECK_DOUBLE(s.energy_joules, 0.5 + 4 * 0.5, 1e-6);
    lv_simulation_close(&w.simulation);
}

/* A small phone gets hot at once: it ends at the speed where what it takes is what it gives off, and the costs say so.
 */
static void test_heat(void **state) {
    (void)state;
    world w;
    open_world(&w, 4);
    w.phone.profile.heat_capacity = 1;
    w.phone.profile.power_npu = 100;
    double last = lv_cost_curve_at(&w.costs.layers[LV_SPLIT_ALL], 1);
    for (uint32_t cycle = 0; cycle < 20; cycle++) {
        verify(&w, 0, false);
        lv_simulation_begin_cycle(w.simulation, 0, &w.costs);
    }
    lever_statistics s;
    lv_simulation_fill(w.simulation, &s);
    CHECK_DOUBLE(s.phone_speed, w.phone.profile.heat_speed_least, 1e-9);
    assert_true(s.phone_temperature > w.phone.profile.heat_full);
    CHECK_DOUBLE(lv_cost_curve_at(&w.costs.layers[LV_SPLIT_ALL], 1), last / w.phone.profile.heat_speed_least, 1e-6);
    lv_simulation_close(&w.simulation);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_record_of_drafting_ahead),
        cmocka_unit_test(test_costs_of_any_shape),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_heat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
