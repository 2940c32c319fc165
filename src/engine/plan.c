/* plan.c - the choice goes from the least that works upwards: first what a conversation needs (context), then what
 * keeps the disk busy (slots of the ring), then rows of a pass, then the head, then layers.
 *
 * Each step takes a share of what is left, so that a small budget is not spent on one thing. The head comes before the
 * layers only because it is of one piece: a pinned byte saves a read byte of each pass wherever it lies.
 *
 * A cache of the blocks used last gets what would be pinned, as slots behind those that the ring has anyway. All else
 * is chosen as if the layers were pinned, so that a comparison is one of what the memory holds and of nothing else.
 *
 * A draft is one row: what the target gets is chosen from what it leaves. Whether it is worth its memory is a guess
 * from rates and from what real pairs gave; costs that are measured while running come too late for a decision about
 * memory.
 */
#include "engine/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/thread.h"
#include "engine/draft_model.h"
#include "engine/session_state.h"
#include "flash/ring.h"
#include "spec/candidates.h"

enum {
    CONTEXT_DEFAULT = 4096,
    CONTEXT_LEAST = 512,
    SLOTS_LEAST = 2,
    SLOTS_MOST = 8,
    ROWS_LEAST = 16,
    LOGITS_ROWS = 8,
    EMBEDDING_ROWS = 256,        /* that are kept: a text repeats its tokens */
    EMBEDDING_ROWS_DRAFT = 2048, /* a tree repeats the candidates of the last ones */
    TREE_SLOTS = 64,
    STACK_TOUCHED_BYTES = 64 << 10, /* of a thread's stack that ggml starts */
};

/* What the system's allocator and the rounding to pages add to what is booked. Measured below 4 MiB. */
static const uint64_t slack_bytes = (uint64_t)6 << 20;

/* What a pass over a tree costs beside one over a row: for choosing between a draft and more of the target in memory.
 */
#define TREE_PASS_FACTOR 1.6
#define TREE_HEAD_FACTOR 1.3

/* Of a session with a draft: the speculation itself, and what is rounded up. Generous. */
static const uint64_t speculation_bytes = (uint64_t)512 << 10;

/* Ends of the range are told with this much to spare: the process itself is not of the same size each time. */
static const uint64_t spare_bytes = (uint64_t)1 << 20;

/* How many rows a pass may take, and how many are computed at once: from the best to the least. */
static const struct {
    uint32_t rows_max, batch_rows;
} row_choices[] = {{1024, 128}, {1024, 64}, {512, 64}, {256, 64}, {64, 64}, {32, 32}, {ROWS_LEAST, ROWS_LEAST}};

enum { ROW_CHOICES_COUNT = sizeof(row_choices) / sizeof(row_choices[0]) };

/* One way to spend the memory. */
typedef struct {
    uint32_t context_tokens;
    uint32_t slots_count;
    uint32_t rows_choice;
    bool head_pinned;
} layout_choice;

/* --- Sizes ------------------------------------------------------------------------------------------------------- */

uint64_t lv_plan_slack_bytes(void) {
    return slack_bytes;
}

uint32_t lv_plan_cache_slots(uint32_t context_tokens) {
    return context_tokens + TREE_SLOTS;
}

static uint64_t cache_bytes(const lv_model *model, uint32_t context_tokens) {
    const lv_kv_shape shape = {.layers_count = model->hparams.layers_count,
                               .slots_count = lv_plan_cache_slots(context_tokens),
                               .kv_heads_count = model->hparams.kv_heads_count,
                               .head_dim = model->hparams.head_dim};
    return lv_area_booked_bytes((size_t)lv_kv_bytes(&shape));
}

static uint64_t logits_bytes(const lv_model *model) {
    return (uint64_t)model->hparams.vocabulary * sizeof(float) + lv_sampler_bytes((int32_t)model->hparams.vocabulary);
}

static uint64_t session_table_bytes(uint32_t context_tokens) {
    return (uint64_t)context_tokens * sizeof(int32_t) + LV_PLAN_ANSWER_BYTES + sizeof(lever_session) + lv_tree_bytes() +
           4096;
}

uint64_t lv_plan_session_bytes(const lv_model *model, uint32_t context_tokens) {
    return cache_bytes(model, context_tokens) + logits_bytes(model) + session_table_bytes(context_tokens);
}

uint64_t lv_plan_draft_session_bytes(const lv_model *target, const lv_model *draft, uint32_t context_tokens) {
    const uint32_t rows = lv_draft_model_head_rows(draft);
    const uint64_t tables = lv_candidates_bytes(rows) + rows * sizeof(int32_t) + context_tokens * sizeof(int32_t);
    return lv_speculation_rest_bytes(draft, context_tokens, target->hparams.vocabulary) + tables + speculation_bytes +
           LV_THREAD_STACK_BYTES;
}

/* Generous: what is missing here is missing when a session opens. */
uint64_t lv_plan_store_bytes(const lv_layout *layout) {
    return ((uint64_t)1 << 20) + layout->blocks_count * (uint64_t)256 +
           (layout->layer_bytes + layout->head_bytes) / 8192;
}

uint64_t lv_plan_stack_bytes(uint32_t lanes, uint32_t threads) {
    return lanes * (uint64_t)LV_THREAD_STACK_BYTES + threads * (uint64_t)STACK_TOUCHED_BYTES;
}

uint64_t lv_plan_head_bytes(const lv_layout *layout) {
    uint64_t bytes = 0;
    for (uint32_t b = layout->head_block_first; b < layout->blocks_count; b++) {
        bytes += lv_block_memory_bytes(&layout->blocks[b]);
    }
    return bytes;
}

static uint64_t layers_memory_bytes(const lv_layout *layout) {
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < layout->head_block_first; b++) bytes += lv_block_memory_bytes(&layout->blocks[b]);
    return bytes;
}

uint64_t lv_plan_pins(const lv_layout *layout, bool head_pinned, uint64_t pin_bytes, bool *pinned) {
    memset(pinned, 0, layout->blocks_count * sizeof(*pinned));
    lv_pin_spread(layout, pin_bytes, pinned);
    uint64_t bytes = 0;
    for (uint32_t b = layout->head_block_first; b < layout->blocks_count; b++) pinned[b] = head_pinned;
    for (uint32_t b = 0; b < layout->blocks_count; b++) {
        if (pinned[b]) bytes += lv_block_memory_bytes(&layout->blocks[b]);
    }
    return bytes;
}

/* The most blocks that one stage of a layer (attention or feed-forward) lies in. */
static uint32_t stage_blocks_max(const lv_layout *layout) {
    uint32_t most = 1, run = 0;
    uint32_t layer = UINT32_MAX, group = UINT32_MAX;
    for (uint32_t b = 0; b < layout->head_block_first; b++) {
        const lv_segment *first = &layout->segments[layout->blocks[b].segment_first];
        const lv_layout_item *item = &layout->items[first->item];
        run = item->layer == layer && item->group == group ? run + 1 : 1;
        layer = item->layer;
        group = item->group;
        if (run > most) most = run;
    }
    return most;
}

/* --- The table --------------------------------------------------------------------------------------------------- */

static void add_row(lever_plan *table, lv_category category, uint64_t bytes) {
    if (bytes == 0) return;
    table->rows[table->rows_count].category = lv_category_name(category);
    table->rows[table->rows_count++].bytes = bytes;
    table->total_bytes += bytes;
}

/* From here on `in` says what is planned for: a draft that stands in it is in memory. */
static uint32_t logits_rows(const lv_plan_input *in) {
    return in->draft.model ? LV_HEAD_ROWS_MAX : LOGITS_ROWS;
}

static uint32_t embedding_rows(const lv_plan_input *in) {
    return in->draft.model ? EMBEDDING_ROWS_DRAFT : EMBEDDING_ROWS;
}

static uint64_t draft_bytes(const lv_plan_input *in, uint32_t context_tokens) {
    if (!in->draft.model) return 0;
    const uint64_t session = lv_plan_draft_session_bytes(in->model, in->draft.model, context_tokens);
    return in->draft.bytes + in->sessions_max * (session + in->draft.session_bytes);
}

/* Everything but the layers' pinned blocks. */
static void fill_table(const lv_plan_input *in, const layout_choice *c, lever_plan *table) {
    const uint32_t rows_max = row_choices[c->rows_choice].rows_max, batch = row_choices[c->rows_choice].batch_rows;
    const lv_forward_bytes forward =
        lv_forward_estimate(in->model, rows_max, batch, logits_rows(in), in->threads, embedding_rows(in));
    table->rows_count = 0;
    table->total_bytes = 0;
    add_row(table, LV_MEM_PROGRAM, in->program_bytes);
    add_row(table, LV_MEM_VOCABULARY, in->vocabulary_bytes);
    add_row(table, LV_MEM_METADATA, in->metadata_bytes);
    add_row(table, LV_MEM_KV, in->sessions_max * cache_bytes(in->model, c->context_tokens));
    add_row(table, LV_MEM_LOGITS, in->sessions_max * logits_bytes(in->model));
    add_row(table, LV_MEM_SESSION, in->sessions_max * session_table_bytes(c->context_tokens) + in->reserve_bytes);
    add_row(table, LV_MEM_WORKSPACE, forward.workspace_bytes + rows_max * sizeof(lv_row));
    add_row(table, LV_MEM_GRAPH, forward.graph_bytes);
    add_row(table, LV_MEM_EMBEDDING, forward.embedding_bytes);
    add_row(table, LV_MEM_STACKS, lv_plan_stack_bytes(in->lanes, in->threads));
    table->draft_bytes = draft_bytes(in, c->context_tokens);
    add_row(table, LV_MEM_DRAFT, table->draft_bytes);
    add_row(table, LV_MEM_DEVICE, in->device_bytes + (in->draft.model ? in->draft.device_bytes : 0));
    add_row(table, LV_MEM_SLACK, slack_bytes);
    add_row(table, LV_MEM_RING, c->slots_count * in->layout->slot_bytes);
    if (c->head_pinned) add_row(table, LV_MEM_HEAD, lv_plan_head_bytes(in->layout));
}

static uint64_t total_of(const lv_plan_input *in, const layout_choice *c) {
    lever_plan table;
    fill_table(in, c, &table);
    return table.total_bytes;
}

/* --- The choice -------------------------------------------------------------------------------------------------- */

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t left_after(const lv_plan_input *in, const layout_choice *c) {
    const uint64_t total = total_of(in, c);
    return total >= in->budget_bytes ? 0 : in->budget_bytes - total;
}

/* The largest usual context that takes at most a third of what is left. */
static void choose_context(const lv_plan_input *in, layout_choice *c) {
    if (in->context_tokens) return;
    static const uint32_t sizes[] = {4096, 3072, 2048, 1536, 1024, 768};
    const uint64_t allowed = left_after(in, c) / 3;
    const uint64_t now = lv_plan_session_bytes(in->model, c->context_tokens);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i] > in->model->hparams.context_train || sizes[i] <= c->context_tokens) continue;
        if (in->sessions_max * (lv_plan_session_bytes(in->model, sizes[i]) - now) <= allowed) {
            c->context_tokens = sizes[i];
            return;
        }
    }
}

/* As many slots as hide the unevenness of computing, an eighth of the layers' bytes at most, a quarter of what is left.
 */
static void choose_ring(const lv_plan_input *in, layout_choice *c) {
    const uint64_t slot = in->layout->slot_bytes;
    if (in->ring_bytes) {
        const uint64_t wanted = in->ring_bytes / slot;
        c->slots_count = wanted > SLOTS_LEAST ? (uint32_t)min_u64(wanted, in->layout->blocks_count + 2) : SLOTS_LEAST;
        return;
    }
    const uint64_t allowed = min_u64(in->layout->layer_bytes / 8, left_after(in, c) / 4 + SLOTS_LEAST * slot);
    uint64_t slots = allowed / slot;
    /* Under a budget a pinned block beats a slot beyond these few. */
    if (in->budget_bytes != LV_LEDGER_UNLIMITED) slots = min_u64(slots, SLOTS_MOST);
    if (slots < SLOTS_LEAST) slots = SLOTS_LEAST;
    c->slots_count = (uint32_t)slots;
}

/* Rows beyond one batch need the blocks of a stage all at once, and one more for the reader. A tree with its root wants
 * more rows than TREE_SLOTS: with a draft the least such choice is taken wherever it fits. */
static void choose_rows(const lv_plan_input *in, layout_choice *c) {
    const uint32_t stage = stage_blocks_max(in->layout);
    const uint64_t left = left_after(in, c), now = total_of(in, c);
    for (uint32_t i = 0; i < ROW_CHOICES_COUNT; i++) {
        layout_choice tried = *c;
        tried.rows_choice = i;
        if (row_choices[i].rows_max > row_choices[i].batch_rows) {
            if (tried.slots_count < stage + 1) {
                if (in->ring_bytes) continue;
                tried.slots_count = stage + 1;
            }
        }
        const bool for_tree = in->draft.model && row_choices[i].rows_max > TREE_SLOTS &&
                              (i + 1 == ROW_CHOICES_COUNT || row_choices[i + 1].rows_max <= TREE_SLOTS);
        const uint64_t allowed = for_tree ? left : left / 4;
        if (i + 1 < ROW_CHOICES_COUNT && total_of(in, &tried) > now + allowed) continue;
        *c = tried;
        return;
    }
}

static layout_choice least_choice(const lv_plan_input *in) {
    layout_choice c = {.context_tokens = in->context_tokens, .slots_count = SLOTS_LEAST};
    if (!c.context_tokens) c.context_tokens = min_u32(CONTEXT_LEAST, in->model->hparams.context_train);
    c.rows_choice = ROW_CHOICES_COUNT - 1;
    if (in->ring_bytes) choose_ring(in, &c);
    return c;
}

/* More slots than hold everything that streams are of no use. */
static void give_to_ring(const lv_plan_input *in, layout_choice *c, uint64_t bytes) {
    const uint32_t most = c->head_pinned ? in->layout->head_block_first : in->layout->blocks_count;
    if (c->slots_count >= most) return;
    const uint64_t more = bytes / (in->layout->slot_bytes + sizeof(lv_slot));
    c->slots_count += (uint32_t)min_u64(more, most - c->slots_count);
}

/* What the layers take when all of them are in memory, beside what is chosen already. */
static uint64_t all_layers_bytes(const lv_plan_input *in, const layout_choice *c) {
    if (in->cache == LEVER_CACHE_PIN) return layers_memory_bytes(in->layout);
    const uint32_t slots = in->layout->head_block_first;
    return c->slots_count >= slots ? 0 : (slots - c->slots_count) * (in->layout->slot_bytes + sizeof(lv_slot));
}

/* Everything pinned, the largest context and rows: an upper end for the table. */
static uint64_t all_bytes(const lv_plan_input *in) {
    lv_plan_input unlimited = *in;
    unlimited.budget_bytes = LV_LEDGER_UNLIMITED;
    layout_choice c = least_choice(&unlimited);
    choose_context(&unlimited, &c);
    choose_ring(&unlimited, &c);
    choose_rows(&unlimited, &c);
    c.head_pinned = true;
    return total_of(&unlimited, &c) + all_layers_bytes(in, &c);
}

static void estimate_speed(const lv_plan_input *in, lever_plan *table) {
    table->io_bytes_per_second = in->io_bytes_per_second;
    table->memory_bytes_per_second = in->memory_bytes_per_second;
    double seconds = 0;
    if (table->pass_read_bytes > 0) {
        if (in->io_bytes_per_second <= 0) return;
        seconds = (double)table->pass_read_bytes / in->io_bytes_per_second;
    }
    if (in->memory_bytes_per_second > 0) {
        const double computing = (double)(table->layer_bytes + table->head_bytes) / in->memory_bytes_per_second;
        /* Reading and computing overlap, but both pass through the same memory. */
        seconds = seconds > computing ? seconds : computing;
    } else if (table->pass_read_bytes == 0) {
        return;
    }
    if (seconds > 0) table->tokens_per_second = 1.0 / seconds;
}

static uint64_t read_bytes_of_pass(const lv_plan_input *in, const lv_plan_choice *choice) {
    const uint32_t streamed = choice->head_pinned ? in->layout->head_block_first : in->layout->blocks_count;
    uint64_t read = choice->head_pinned ? 0 : in->layout->head_bytes;
    if (in->cache == LEVER_CACHE_LRU && choice->slots_count >= streamed) return 0;
    return read + in->layout->layer_bytes - choice->table.pinned_bytes;
}

/* `layers_bytes`: what the layers get. */
static void finish_choice(const lv_plan_input *in, const layout_choice *chosen, uint64_t layers_bytes,
                          lv_plan_choice *choice) {
    lever_plan *table = &choice->table;
    layout_choice spent = *chosen;
    const layout_choice *c = &spent;
    const bool pins = in->cache == LEVER_CACHE_PIN;
    if (!pins) give_to_ring(in, &spent, layers_bytes);
    fill_table(in, c, table);
    table->cache = in->cache;
    choice->context_tokens = table->context_tokens = c->context_tokens;
    choice->slots_count = c->slots_count;
    choice->rows_max = table->prefill_rows = row_choices[c->rows_choice].rows_max;
    choice->batch_rows = row_choices[c->rows_choice].batch_rows;
    choice->logits_rows = logits_rows(in);
    choice->embedding_rows = embedding_rows(in);
    table->draft_used = in->draft.model != NULL;
    choice->leases_max = chosen->slots_count / 2;
    choice->head_pinned = table->head_pinned = c->head_pinned;
    choice->pin_bytes = pins ? min_u64(layers_bytes, layers_memory_bytes(in->layout)) : 0;
    add_row(table, LV_MEM_PINNED, choice->pin_bytes);
    /* Memory of a pinned block is its bytes rounded to pages: near enough for a table. */
    table->pinned_bytes = min_u64(choice->pin_bytes, in->layout->layer_bytes);
    table->ring_bytes = c->slots_count * in->layout->slot_bytes;
    table->pass_read_bytes = read_bytes_of_pass(in, choice);
    estimate_speed(in, table);
}

static lever_status refuse(const lv_plan_input *in, const lever_plan *table, const char *why, lever_error *error) {
    char budget[32], least[32], all[32];
    lv_format_size(in->budget_bytes, budget, sizeof(budget));
    lv_format_size(table->least_bytes, least, sizeof(least));
    lv_format_size(table->all_bytes, all, sizeof(all));
    return lv_fail(
        error, LEVER_E_BUDGET,
        "%s: the budget is %s (%llu bytes)%s, the least that would do is %s (%llu bytes) with a context of %u "
        "tokens, and everything would stay in memory from %s on; raise --ram, or lower --ctx",
        why, budget, (unsigned long long)in->budget_bytes, in->budget_is_default ? " (a share of the free memory)" : "",
        least, (unsigned long long)table->least_bytes, table->least_context_tokens, all);
}

static uint64_t with_spare(uint64_t bytes) {
    return (bytes + 2 * spare_bytes - 1) / spare_bytes * spare_bytes;
}

/* The smallest budget that works. */
static uint64_t needed_bytes(const lv_plan_input *in, const layout_choice *least) {
    const uint64_t running = total_of(in, least);
    const uint64_t loading = in->program_bytes + in->metadata_bytes + in->vocabulary_peak_bytes + slack_bytes;
    uint64_t most = running > loading ? running : loading;
    if (in->draft.model) {
        const uint64_t comparing =
            in->program_bytes + in->metadata_bytes + in->vocabulary_bytes + in->draft.compare_bytes + slack_bytes;
        if (comparing > most) most = comparing;
    }
    return most;
}

static void fill_ends(const lv_plan_input *in, lever_plan *table) {
    memset(table, 0, sizeof(*table));
    const layout_choice least = least_choice(in);
    table->budget_bytes = in->budget_bytes;
    table->budget_is_default = in->budget_is_default;
    table->least_context_tokens = least.context_tokens;
    table->least_bytes = with_spare(needed_bytes(in, &least));
    table->all_bytes = with_spare(all_bytes(in));
    table->layers_count = in->model->hparams.layers_count;
    table->layer_bytes = in->layout->layer_bytes;
    table->head_bytes = in->layout->head_bytes;
}

/* --target-ram: that share of the layers, and the head, or nothing. */
static lever_status choose_share(const lv_plan_input *in, layout_choice *c, lv_plan_choice *choice,
                                 lever_error *error) {
    c->head_pinned = true;
    const uint64_t layers = layers_memory_bytes(in->layout);
    const uint64_t wanted = (uint64_t)((double)layers * in->target_ram_percent / 100.0);
    lv_plan_input rest = *in;
    const uint64_t fixed = wanted + lv_plan_head_bytes(in->layout);
    if (rest.budget_bytes != LV_LEDGER_UNLIMITED) {
        rest.budget_bytes = rest.budget_bytes > fixed ? rest.budget_bytes - fixed : 0;
    }
    c->head_pinned = false;
    if (left_after(&rest, c) == 0) {
        c->head_pinned = true;
        finish_choice(in, c, wanted, choice);
        char why[128];
        snprintf(why, sizeof(why), "%d %% of the layers and the head in memory take %llu bytes in all",
                 in->target_ram_percent, (unsigned long long)choice->table.total_bytes);
        return refuse(in, &choice->table, why, error);
    }
    choose_context(&rest, c);
    choose_ring(&rest, c);
    choose_rows(&rest, c);
    c->head_pinned = true;
    finish_choice(in, c, wanted, choice);
    return LEVER_OK;
}

/* The best choice for what stands in `in`, the draft included. */
static lever_status choose(const lv_plan_input *in, lv_plan_choice *choice, lever_error *error) {
    memset(choice, 0, sizeof(*choice));
    fill_ends(in, &choice->table);
    layout_choice c = least_choice(in);
    if (in->context_tokens > in->model->hparams.context_train) {
        finish_choice(in, &c, 0, choice);
        return lv_fail(error, LEVER_E_ARGUMENT,
                       "a context of %u tokens was asked for, but the model was trained for %u; give --ctx %u or less",
                       in->context_tokens, in->model->hparams.context_train, in->model->hparams.context_train);
    }
    if (in->budget_bytes < needed_bytes(in, &c)) {
        finish_choice(in, &c, 0, choice);
        return refuse(in, &choice->table, "the memory budget is too small", error);
    }
    if (in->target_ram_percent >= 0) return choose_share(in, &c, choice, error);
    choose_context(in, &c);
    choose_ring(in, &c);
    choose_rows(in, &c);
    c.head_pinned = true;
    if (total_of(in, &c) > in->budget_bytes) c.head_pinned = false;
    finish_choice(in, &c, left_after(in, &c), choice);
    return LEVER_OK;
}

/* --- With a draft, or without ------------------------------------------------------------------------------------ */

/* Reading and computing overlap. `passes` is what computing takes in units of one row's time. */
static double layers_seconds(const lv_plan_rates *rates, uint64_t bytes, double passes) {
    const double io = (double)rates->read_bytes / lv_plan_rate_or(rates->io_bytes_per_second, LV_PLAN_IO_ASSUMED);
    const double memory =
        passes * (double)bytes / lv_plan_rate_or(rates->memory_bytes_per_second, LV_PLAN_MEMORY_ASSUMED);
    return io > memory ? io : memory;
}

double lv_plan_speed_plain(const lv_plan_rates *rates) {
    const double seconds = layers_seconds(rates, rates->layer_bytes + rates->head_bytes, 1.0);
    return seconds > 0 ? 1.0 / seconds : 0;
}

double lv_plan_speed_with_draft(const lv_plan_rates *rates) {
    /* Tokens of a cycle, and steps of the draft that they cost where none is hidden: from short trees to long ones, as
     * measured on pairs of one family. The best of them is what a tree that is chosen by cost comes to. */
    static const struct {
        double tokens, steps;
    } cycles[] = {{2.6, 2.0}, {3.3, 2.5}, {5.0, 4.0}, {7.0, 6.0}, {8.5, 7.0}};
    const double memory = lv_plan_rate_or(rates->memory_bytes_per_second, LV_PLAN_MEMORY_ASSUMED);
    const double step = (double)rates->step_bytes / memory + LV_PLAN_STEP_SECONDS;
    const double pass = layers_seconds(rates, rates->layer_bytes, TREE_PASS_FACTOR) +
                        TREE_HEAD_FACTOR * (double)rates->head_bytes / memory;
    double best = 0;
    for (size_t i = 0; i < sizeof(cycles) / sizeof(cycles[0]); i++) {
        const double speed = cycles[i].tokens / (cycles[i].steps * step + pass);
        if (speed > best) best = speed;
    }
    return best;
}

static lv_plan_rates rates_of(const lv_plan_input *in, const lever_plan *table) {
    return (lv_plan_rates){
        .read_bytes = table->pass_read_bytes,
        .layer_bytes = table->layer_bytes,
        .head_bytes = table->head_bytes,
        .step_bytes = in->draft.step_bytes,
        .io_bytes_per_second = in->io_bytes_per_second,
        .memory_bytes_per_second = in->memory_bytes_per_second,
    };
}

/* Whether the plan with the draft is the better one; if not, the other one's table says why. */
static bool draft_pays(const lv_plan_input *in, const lv_plan_choice *with, lv_plan_choice *without) {
    if (in->draft.forced || in->target_ram_percent >= 0) return true;
    const lv_plan_rates plainly = rates_of(in, &without->table), drafted = rates_of(in, &with->table);
    const double plain = lv_plan_speed_plain(&plainly), speed = lv_plan_speed_with_draft(&drafted);
    if (speed >= plain) return true;
    snprintf(
        without->table.draft_reason, sizeof(without->table.draft_reason),
        "leaving the draft out is predicted to be faster: %.1f tokens/s plain, %.1f with it; --force-draft keeps it",
        plain, speed);
    return false;
}

/* The least that target and draft want together. */
static uint64_t least_with_draft(const lv_plan_input *in) {
    const layout_choice least = least_choice(in);
    return with_spare(needed_bytes(in, &least));
}

lever_status lv_plan_choose(const lv_plan_input *in, lv_plan_choice *choice, lever_error *error) {
    lv_plan_input alone = *in, both = *in;
    alone.draft.model = NULL;
    LV_TRY(choose(&alone, choice, error));
    if (!in->draft.model) return LEVER_OK;

    lv_plan_choice with;
    both.context_tokens = choice->context_tokens; /* a draft is not paid for with context */
    const lever_status status = choose(&both, &with, error);
    with.table.least_bytes = choice->table.least_bytes;
    with.table.least_context_tokens = choice->table.least_context_tokens;
    if (status == LEVER_OK) {
        if (draft_pays(in, &with, choice)) *choice = with;
        return LEVER_OK;
    }
    if (in->draft.forced) {
        *choice = with;
        lv_error_prefix(error, "with the draft model in memory, ");
        return status;
    }
    lv_error_clear(error);
    char least[32];
    lv_format_size(least_with_draft(&both), least, sizeof(least));
    snprintf(choice->table.draft_reason, sizeof(choice->table.draft_reason),
             "the draft is left out: the budget cannot hold it beside the target, both together want %s%s", least,
             in->target_ram_percent >= 0 ? " and the layers asked for" : "");
    return LEVER_OK;
}

lever_status lv_plan_choose_within(lv_plan_input *in, uint64_t room_bytes, lv_plan_choice *choice, lever_error *error) {
    LV_TRY(lv_plan_choose(in, choice, error));
    if (choice->table.total_bytes <= room_bytes) return LEVER_OK;
    in->budget_bytes = room_bytes;
    const lever_status status = lv_plan_choose(in, choice, error);
    if (status == LEVER_E_BUDGET) {
        lv_error_prefix(error,
                        "the system, or the cgroup, has less memory free than the budget allows; with what there "
                        "is, ");
    }
    return status;
}
