/* simulation.c - the virtual clock is a number of seconds that only moves here.
 *
 * A pass takes its time when somebody asks for the time, not when it is computed: how long the draft went on beside it
 * is known only then. Whatever goes on counts as work of the NPU, the cores, the reader and the flash, from which
 * energy and heat follow; the heat of one cycle slows the next. */
#include "engine/simulation.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* --- The phone --------------------------------------------------------------------------------------------------- */

lever_status lv_phone_open(lv_phone **out, const char *wanted, lv_ledger *ledger, lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof(lv_phone), "a simulated phone", error));
    *out = memory;
    return lv_phone_profile_load(&(*out)->profile, wanted, error);
}

void lv_phone_close(lv_phone **phone) {
    lv_free(*phone);
    *phone = NULL;
}

static void add_tensor(lv_phone_shape *shape, const lv_tensor *tensor) {
    shape->layer_weights += (double)(tensor->dims[0] * tensor->rows_count);
    shape->layer_bytes += (double)tensor->bytes;
}

/* A layer is the mean of the model's layers. */
static void shape_of_model(lv_phone_shape *shape, const lv_model *model) {
    const lv_hparams *h = &model->hparams;
    *shape = (lv_phone_shape){
        .layers_count = h->layers_count,
        .head_weights = (double)h->vocabulary * h->embedding,
        .head_bytes = (double)model->output->bytes,
        .width = h->embedding,
        .key_value_width = (double)h->kv_heads_count * h->head_dim,
        .vocabulary = h->vocabulary,
    };
    for (uint32_t i = 0; i < h->layers_count; i++) {
        const lv_layer *layer = &model->layers[i];
        const lv_tensor *const matrices[] = {layer->attn_q,   layer->attn_k, layer->attn_v,  layer->attn_output,
                                             layer->ffn_gate, layer->ffn_up, layer->ffn_down};
        for (size_t m = 0; m < sizeof(matrices) / sizeof(matrices[0]); m++) add_tensor(shape, matrices[m]);
    }
    shape->layer_weights /= shape->layers_count;
    shape->layer_bytes /= shape->layers_count;
    memcpy(shape->name, "as the model", sizeof("as the model"));
}

lever_status lv_phone_set_models(lv_phone *phone, const lv_model *target, const lv_model *draft, const char *shapes,
                                 lever_error *error) {
    char first[sizeof(phone->target.name)] = "";
    const char *second = NULL;
    if (shapes) {
        const size_t length = strcspn(shapes, ",");
        if (length >= sizeof(first)) return lv_fail(error, LEVER_E_ARGUMENT, "'%s' is no shape that is known", shapes);
        memcpy(first, shapes, length);
        if (shapes[length] == ',') second = shapes + length + 1;
    }
    shape_of_model(&phone->target, target);
    phone->model_layers = target->hparams.layers_count;
    if (first[0]) LV_TRY(lv_phone_shape_find(&phone->target, first, error));
    if (draft) {
        shape_of_model(&phone->draft, draft);
        if (second) LV_TRY(lv_phone_shape_find(&phone->draft, second, error));
        const double rows = lv_draft_model_head_rows(draft);
        const double bytes = (double)lv_draft_head_bytes(draft->output, &lv_draft_model_head_shape);
        lv_phone_shape_cut_head(&phone->draft, rows, bytes / rows / draft->hparams.embedding);
    } else if (second) {
        LV_TRY(lv_phone_shape_find(&phone->draft, second, error)); /* checked in any case, and not used */
    }
    phone->pinned_layers = (uint32_t)lround(phone->pinned_share * phone->target.layers_count);
    return LEVER_OK;
}

/* --- The simulation ---------------------------------------------------------------------------------------------- */

struct lv_simulation {
    const lv_phone *phone;
    lv_spans *spans; /* NULL: nothing is recorded */
    lv_clock clock;
    double now; /* seconds */
    lv_phone_pipeline pipeline;
    double temperature, speed, context;
    double beside_slowdown; /* of drafting beside a pass, where one processor has both */
    bool began;             /* the first cycle */
    lv_target target;       /* the real ones */
    lv_drafter drafter;

    struct {
        bool is_open; /* a pass was computed, and has not taken its time yet */
        double rows, rows_after, drafting_seconds;
        uint32_t cut_layer; /* from which on rows_after are computed; 0: none was cut away */
    } pass;
    lv_pause pause, real_pause;

    lv_phone_work work, draft_work; /* since they were counted last; draft_work is the draft's thread's too */
    double draft_seconds;           /* of all forwards; ever growing */
    double ahead_from;              /* draft_seconds when drafting ahead began */
    double counted_until;

    struct {
        double joules, reader_seconds, compute_seconds, head_seconds, bytes_read, padded_rows;
    } answer;
};

static uint64_t nanoseconds(double seconds) {
    return (uint64_t)(seconds * 1e9 + 0.5);
}

static uint64_t clock_now_ns(void *user) {
    const lv_simulation *s = user;
    return nanoseconds(s->now);
}

lever_status lv_simulation_open(lv_simulation **out, const lv_phone *phone, lv_spans *spans, lv_ledger *ledger,
                                lever_error *error) {
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_SESSION, 1, sizeof(lv_simulation), "a simulation", error));
    lv_simulation *s = memory;
    s->phone = phone;
    s->spans = spans;
    s->clock = (lv_clock){clock_now_ns, s};
    s->temperature = phone->profile.heat_ambient;
    s->speed = 1;
    lv_phone_pipeline_init(&s->pipeline, &phone->profile, &phone->target, phone->pinned_layers, 0);
    s->pipeline.on_cores = phone->npu == LEVER_PHONE_NPU_NONE;
    s->pipeline.is_shared = phone->npu == LEVER_PHONE_NPU_NONE || phone->npu == LEVER_PHONE_NPU_BOTH;
    s->beside_slowdown = 1;
    *out = s;
    return LEVER_OK;
}

void lv_simulation_close(lv_simulation **simulation) {
    lv_free(*simulation);
    *simulation = NULL;
}

const lv_clock *lv_simulation_clock(const lv_simulation *s) {
    return &s->clock;
}

/* --- Work -------------------------------------------------------------------------------------------------------- */

static void record(const lv_simulation *s, uint32_t track, const char *name, double number, double begin, double end) {
    const lv_span span = {name, track, (uint32_t)number, nanoseconds(begin), nanoseconds(end)};
    lv_spans_add(s->spans, &span);
}

static void record_layer(void *user, const lv_phone_layer_times *times) {
    const lv_simulation *s = user;
    if (times->is_read) record(s, LV_TRACK_LANE, "read layer", times->layer, times->read_begin, times->read_end);
    record(s, LV_TRACK_MAIN, "layer", times->layer, times->begin, times->end);
}

static lv_phone_load load_of(const lv_simulation *s, bool reads) {
    const lv_phone *phone = s->phone;
    const bool streams = phone->pinned_layers < (uint32_t)phone->target.layers_count;
    const double range = phone->target.layer_bytes * phone->target.layers_count;
    return (lv_phone_load){
        .flash_rate = reads && streams ? lv_phone_read_rate(&phone->profile, range) : 0,
        .speed = s->speed,
        .context = s->context,
    };
}

static void run_pass(lv_simulation *s, lv_phone_pass pass) {
    pass.begin = s->now;
    pass.speed = s->speed;
    pass.context = s->context;
    pass.on_layer = record_layer;
    pass.user = s;
    const lv_phone_pass_times times =
        lv_phone_pipeline_pass(&s->pipeline, &s->phone->profile, &s->phone->target, &pass);
    const lv_phone_work work = {
        .npu_seconds = s->pipeline.on_cores ? 0 : times.compute_seconds,
        .cpu_seconds = s->pipeline.on_cores ? times.compute_seconds : 0,
        .reader_seconds = times.reader_seconds,
        .bytes_read = times.bytes_read,
    };
    lv_phone_work_add(&s->work, &work);
    s->answer.reader_seconds += times.reader_seconds;
    s->answer.compute_seconds += times.compute_seconds;
    s->answer.bytes_read += times.bytes_read;
    s->answer.padded_rows += times.padded_rows / s->phone->target.layers_count;
    s->now = fmax(times.end, s->now + pass.drafting_seconds);
    record(s, LV_TRACK_MAIN, "pass rows", pass.rows, pass.begin, s->now);
}

static void run_head(lv_simulation *s, double rows) {
    const lv_phone_load load = load_of(s, false);
    const double seconds = lv_phone_head(&s->phone->profile, &s->phone->target, rows, &load);
    const double begin = s->now;
    s->work.cpu_seconds += seconds;
    s->answer.head_seconds += seconds;
    s->now += seconds;
    record(s, LV_TRACK_MAIN, "head rows", rows, begin, s->now);
}

/* The pass that was computed takes its time. */
static void settle_pass(lv_simulation *s) {
    if (!s->pass.is_open) return;
    s->pass.is_open = false;
    run_pass(s, (lv_phone_pass){.rows = s->pass.rows,
                                .cut_layer = s->pass.cut_layer,
                                .cut_rows = s->pass.rows_after,
                                .drafting_seconds = s->pass.drafting_seconds});
}

/* Energy and heat of what was done since the last time. The profile's power is that at full speed. */
static void count_work(lv_simulation *s) {
    settle_pass(s);
    lv_phone_work_add(&s->work, &s->draft_work);
    s->work.seconds = s->now - s->counted_until;
    const double joules = lv_phone_joules(&s->phone->profile, &s->work);
    s->answer.joules += joules * s->speed * s->speed;
    if (s->work.seconds > 0) {
        s->temperature = lv_phone_warm(&s->phone->profile, s->temperature, joules / s->work.seconds, s->work.seconds);
    }
    s->speed = lv_phone_speed_at(&s->phone->profile, s->temperature);
    s->counted_until = s->now;
    memset(&s->work, 0, sizeof(s->work));
    memset(&s->draft_work, 0, sizeof(s->draft_work));
}

/* By whom it is: in front of a pass by whoever is faster, beside it by the cores, as far as the NPU may have it. */
static lv_phone_forward draft_forward(const lv_simulation *s, double rows, double head_rows, bool is_beside) {
    const lv_phone_profile *profile = &s->phone->profile;
    const lv_phone_shape *draft = &s->phone->draft;
    const lv_phone_load load = load_of(s, is_beside);
    lv_phone_forward one;
    if (s->phone->npu == LEVER_PHONE_NPU_BOTH) {
        one = lv_phone_forward_npu(profile, draft, rows, head_rows, &load);
    } else if (s->phone->npu == LEVER_PHONE_NPU_AUTO && !is_beside) {
        one = lv_phone_forward_best(profile, draft, rows, head_rows, &load);
    } else {
        one = lv_phone_forward_cpu(profile, draft, rows, head_rows, &load);
    }
    if (is_beside) one.seconds *= s->beside_slowdown;
    return one;
}

static double forward(lv_simulation *s, double rows, double head_rows, bool is_beside) {
    const lv_phone_forward one = draft_forward(s, rows, head_rows, is_beside);
    s->draft_work.npu_seconds += one.npu_seconds;
    s->draft_work.cpu_seconds += one.cpu_seconds;
    s->draft_seconds += one.seconds;
    return one.seconds;
}

/* In front of a pass the clock has not moved yet; beside one it stands at the beginning of the pass. */
double lv_simulation_forward(void *user, uint32_t rows, uint32_t head_rows, lv_split split) {
    lv_simulation *s = user;
    const double before = s->draft_seconds - s->ahead_from;
    const double seconds = forward(s, rows, head_rows, split == LV_SPLIT_ONE);
    if (split == LV_SPLIT_ONE) {
        record(s, LV_TRACK_DRAFT, "draft rows", rows, s->now + before, s->now + (s->draft_seconds - s->ahead_from));
    } else {
        record(s, LV_TRACK_MAIN, "draft rows", rows, s->now, s->now + seconds);
    }
    return seconds;
}

/* --- Costs ------------------------------------------------------------------------------------------------------- */

static void fill_draft_curves(const lv_simulation *s, lv_costs *costs) {
    if (s->phone->draft.layers_count <= 0) return;
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        const double rows = lv_cost_point_rows(i);
        costs->draft[LV_SPLIT_ONE].seconds[i] = draft_forward(s, rows, rows, true).seconds;
        costs->draft[LV_SPLIT_ALL].seconds[i] = draft_forward(s, rows, rows, false).seconds;
    }
}

/* Drafting beside a pass on the processor that has its layers: what they leave idle is the draft's, and half of it is
 * in any case. The last pass says how much that is. */
static double beside_slowdown(const lv_simulation *s, double read) {
    const lv_phone *phone = s->phone;
    if (!s->pipeline.is_shared) return 1;
    const double rows = fmax(s->pass.rows, 1);
    const double compute =
        lv_phone_pipeline_compute(&s->pipeline, &phone->profile, &phone->target, rows, s->speed, s->context, false);
    return 1 / fmax(0.5, 1 - compute / fmax(compute, read));
}

void lv_simulation_begin_cycle(lv_simulation *s, size_t context, lv_costs *costs) {
    const lv_phone *phone = s->phone;
    count_work(s);
    s->context = (double)context;
    const double read = lv_phone_pipeline_read(&s->pipeline, &phone->profile, &phone->target);
    const double streamed = phone->target.layers_count - phone->pinned_layers;
    /* What drafting ahead gave so far in virtual time. */
    const lv_ahead_record ahead = s->began ? costs->ahead : (lv_ahead_record){0};
    s->began = true;
    lv_costs_init(costs, 1, 1, 1, read, 0);
    costs->ahead = ahead;
    s->beside_slowdown = beside_slowdown(s, read);
    if (streamed > 0) costs->ring_seconds = read * fmin(1, s->pipeline.ring_count / streamed);
    const lv_phone_load load = load_of(s, false);
    /* The curves hold what so many computed rows take: whoever asks has padded to a batch shape. */
    for (size_t i = 0; i < LV_COST_POINTS; i++) {
        const double rows = lv_cost_point_rows(i);
        for (size_t split = 0; split < LV_SPLITS_COUNT; split++) {
            costs->layers[split].seconds[i] = lv_phone_pipeline_compute(
                &s->pipeline, &phone->profile, &phone->target, rows, s->speed, s->context, split == LV_SPLIT_ONE);
        }
        costs->head.seconds[i] = lv_phone_head(&phone->profile, &phone->target, rows, &load);
    }
    fill_draft_curves(s, costs);
    if (!s->pipeline.on_cores) costs->buckets = phone->profile.npu_buckets;
    costs->frozen = true;
}

/* --- Both sides of a cycle --------------------------------------------------------------------------------------- */

/* The layer of the simulated target that lies as deep as one of the real target. */
static uint32_t layer_of(const lv_phone *phone, uint32_t layer) {
    const double share = (double)layer / phone->model_layers;
    return (uint32_t)fmax(1, round(share * phone->target.layers_count));
}

static lever_status sim_middle(void *user, const lv_pruning_source *source, uint32_t keep[LV_PRUNING_ROWS_MAX],
                               uint32_t *keep_count, lever_error *error) {
    lv_simulation *s = user;
    LV_TRY(s->real_pause.middle(s->real_pause.user, source, keep, keep_count, error));
    s->pass.rows_after = *keep_count;
    s->pass.cut_layer = layer_of(s->phone, s->pause.layers_before);
    return LEVER_OK;
}

static lever_status sim_verify(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                               const lv_pause *pause, lever_error *error) {
    lv_simulation *s = user;
    s->pass.cut_layer = 0;
    if (pause) {
        s->real_pause = s->pause = *pause;
        s->pause.user = s;
        s->pause.middle = sim_middle;
    }
    LV_TRY(s->target.verify(s->target.user, tree, nodes, count, split, pause ? &s->pause : NULL, error));
    s->pass.is_open = true;
    s->pass.rows = count + 1;
    s->pass.drafting_seconds = 0;
    return LEVER_OK;
}

static lever_status sim_head(void *user, const lv_tree *tree, const uint32_t *nodes, uint32_t count,
                             lever_error *error) {
    lv_simulation *s = user;
    LV_TRY(s->target.head(s->target.user, tree, nodes, count, error));
    settle_pass(s);
    run_head(s, count);
    return LEVER_OK;
}

static int32_t sim_token(void *user, const lv_tree *tree, uint32_t node, uint32_t index) {
    const lv_simulation *s = user;
    return s->target.token(s->target.user, tree, node, index);
}

static void sim_commit(void *user, const lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    const lv_simulation *s = user;
    s->target.commit(s->target.user, tree, path, path_count);
}

static double sim_now(void *user) {
    lv_simulation *s = user;
    settle_pass(s);
    return s->now;
}

lv_target lv_simulation_target(lv_simulation *s, const lv_target *inner) {
    s->target = *inner;
    return (lv_target){
        .user = s,
        .verify = sim_verify,
        .head = sim_head,
        .token = sim_token,
        .commit = sim_commit,
        .now = sim_now,
    };
}

static lever_status sim_expand(void *user, lv_tree *tree, const uint32_t *nodes, uint32_t count, lv_split split,
                               uint32_t *expanded, double *seconds, lever_error *error) {
    lv_simulation *s = user;
    LV_TRY(s->drafter.expand(s->drafter.user, tree, nodes, count, split, expanded, seconds, error));
    s->now += *seconds;
    return LEVER_OK;
}

static void sim_ahead_begin(void *user, const lv_drafting *drafting, const lv_drafting_view *view, double seconds) {
    lv_simulation *s = user;
    s->ahead_from = s->draft_seconds;
    s->drafter.ahead_begin(s->drafter.user, drafting, view, seconds);
}

static lever_status sim_ahead_end(void *user, lever_error *error) {
    lv_simulation *s = user;
    const lever_status status = s->drafter.ahead_end(s->drafter.user, error);
    s->pass.drafting_seconds = s->draft_seconds - s->ahead_from;
    return status;
}

static void sim_drafter_commit(void *user, lv_tree *tree, const uint32_t *path, uint32_t path_count) {
    const lv_simulation *s = user;
    s->drafter.commit(s->drafter.user, tree, path, path_count);
}

static void sim_rerooted(void *user, lv_tree *tree) {
    const lv_simulation *s = user;
    s->drafter.rerooted(s->drafter.user, tree);
}

static void sim_scored(void *user, const lv_pruning_view *view) {
    const lv_simulation *s = user;
    s->drafter.scored(s->drafter.user, view);
}

lv_drafter lv_simulation_drafter(lv_simulation *s, const lv_drafter *inner) {
    s->drafter = *inner;
    return (lv_drafter){
        .user = s,
        .expand = sim_expand,
        .ahead_begin = sim_ahead_begin,
        .ahead_end = sim_ahead_end,
        .commit = sim_drafter_commit,
        .rerooted = sim_rerooted,
        .scored = inner->scored ? sim_scored : NULL,
    };
}

/* --- Prompts ----------------------------------------------------------------------------------------------------- */

void lv_simulation_prompt(lv_simulation *s, size_t rows, size_t context, size_t head_rows) {
    settle_pass(s);
    s->context = (double)context;
    run_pass(s, (lv_phone_pass){.rows = (double)rows});
    if (head_rows > 0) run_head(s, (double)head_rows);
}

/* The NPU has time for it while the target waits for flash; where it has not, the time is added in part only. */
void lv_simulation_draft_prompt(lv_simulation *s, size_t rows, uint64_t begin_ns) {
    if (rows == 0) return;
    const double begin = (double)begin_ns * 1e-9, end = begin + forward(s, (double)rows, 0, false);
    record(s, LV_TRACK_DRAFT, "draft rows", (double)rows, begin, end);
    s->now = fmax(s->now, end);
}

/* --- Statistics -------------------------------------------------------------------------------------------------- */

void lv_simulation_begin_answer(lv_simulation *s) {
    count_work(s);
    memset(&s->answer, 0, sizeof(s->answer));
}

void lv_simulation_fill(lv_simulation *s, lever_statistics *statistics) {
    count_work(s);
    statistics->bytes_read = (uint64_t)s->answer.bytes_read;
    statistics->io_seconds = s->answer.reader_seconds;
    statistics->compute_seconds = s->answer.compute_seconds;
    statistics->head_seconds = s->answer.head_seconds;
    statistics->nodes_padded = (uint64_t)(s->answer.padded_rows + 0.5);
    statistics->energy_joules = s->answer.joules;
    statistics->energy_is_simulated = true;
    statistics->phone_temperature = s->temperature;
    statistics->phone_speed = s->speed;
}
