/* bench_table.c - see bench_table.h. */
#include "bench_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { TASKS_MAX = 16, CELL_BYTES = 48 };

/* The rows that a table shows: those of one budget, temperature and length. */
typedef struct {
    const bench_outcome *outcome;
    size_t budget, temperature, length;
    const char *tasks[TASKS_MAX];
    size_t tasks_count;
    double *values; /* room for as many as there are cases */
} table;

static int compare(const void *a, const void *b) {
    const double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

double bench_median(double *values, size_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void find_tasks(table *t) {
    const bench_prompts *prompts = t->outcome->prompts;
    t->tasks_count = 0;
    for (size_t i = 0; i < prompts->count && t->tasks_count < TASKS_MAX; i++) {
        bool seen = false;
        for (size_t j = 0; j < t->tasks_count && !seen; j++) seen = strcmp(t->tasks[j], prompts->data[i].task) == 0;
        if (!seen) t->tasks[t->tasks_count++] = prompts->data[i].task;
    }
}

/* Is this case an answer of the table by an arm, of a task (NULL: of any)? */
static bool belongs(const table *t, size_t index, size_t arm, const char *task) {
    const bench_case *c = &t->outcome->cases[index];
    return c->budget == t->budget && c->temperature == t->temperature && c->length == t->length && c->arm == arm &&
           (task == NULL || strcmp(t->outcome->prompts->data[c->prompt].task, task) == 0) &&
           t->outcome->results[index].status == BENCH_OK;
}

/* The result of another arm in the same round; NULL when there is none. */
static const bench_result *beside(const bench_outcome *o, size_t index, size_t arm) {
    for (size_t i = 0; i < o->count; i++) {
        if (o->cases[i].round == o->cases[index].round && o->cases[i].arm == arm && o->results[i].status == BENCH_OK) {
            return &o->results[i];
        }
    }
    return NULL;
}

static size_t collect_rates(const table *t, size_t arm, const char *task) {
    size_t count = 0;
    for (size_t i = 0; i < t->outcome->count; i++) {
        if (belongs(t, i, arm, task)) t->values[count++] = t->outcome->results[i].decode_tokens_per_second;
    }
    return count;
}

/* Mean over the tasks of the median ratio to another arm; 0 when a task has no pair. */
static double mean_ratio(const table *t, size_t arm, size_t base) {
    double sum = 0;
    for (size_t task = 0; task < t->tasks_count; task++) {
        size_t count = 0;
        for (size_t i = 0; i < t->outcome->count; i++) {
            if (!belongs(t, i, arm, t->tasks[task])) continue;
            const bench_result *other = beside(t->outcome, i, base);
            if (other == NULL || other->decode_tokens_per_second <= 0) continue;
            t->values[count++] = t->outcome->results[i].decode_tokens_per_second / other->decode_tokens_per_second;
        }
        if (count == 0) return 0;
        sum += bench_median(t->values, count);
    }
    return sum / (double)t->tasks_count;
}

static double mean_of(const table *t, size_t arm, size_t offset) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < t->outcome->count; i++) {
        if (!belongs(t, i, arm, NULL)) continue;
        double value;
        memcpy(&value, (const char *)&t->outcome->results[i] + offset, sizeof value);
        sum += value;
        count++;
    }
    return count > 0 ? sum / (double)count : 0;
}

/* What ratios are taken to: the plain arm, else the last one. */
static size_t base_arm(const bench_lists *lists) {
    for (size_t i = 0; i < lists->arms_count; i++) {
        if (!lists->arms[i].drafts) return i;
    }
    return lists->arms_count - 1;
}

/* Why an arm has no value, from the first of its rows that failed. */
static const char *first_reason(const table *t, size_t arm) {
    for (size_t i = 0; i < t->outcome->count; i++) {
        const bench_case *c = &t->outcome->cases[i];
        if (c->arm == arm && c->budget == t->budget && t->outcome->results[i].status == BENCH_FAILED) {
            return t->outcome->results[i].reason;
        }
    }
    return "not measured";
}

static void print_rate(FILE *out, const table *t, size_t arm, const char *task) {
    char cell[CELL_BYTES] = "-";
    const size_t count = collect_rates(t, arm, task);
    const double median = bench_median(t->values, count);
    if (count == 1) snprintf(cell, sizeof cell, "%.2f", median);
    if (count > 1) snprintf(cell, sizeof cell, "%.2f (%.2f-%.2f)", median, t->values[0], t->values[count - 1]);
    fprintf(out, "  %-20s", cell);
}

static void print_arm(FILE *out, const table *t, size_t arm, size_t base) {
    const bench_lists *lists = t->outcome->lists;
    fprintf(out, "%-22s", lists->arms[arm].name);
    if (collect_rates(t, arm, NULL) == 0) {
        fprintf(out, "  %s\n", first_reason(t, arm));
        return;
    }
    for (size_t i = 0; i < t->tasks_count; i++) print_rate(out, t, arm, t->tasks[i]);
    const double ratio = mean_ratio(t, arm, base);
    char cell[CELL_BYTES] = "-", size[32];
    if (ratio > 0) snprintf(cell, sizeof cell, "%.2f", ratio);
    fprintf(out, "  %8s  %12.2f  %s\n", cell, mean_of(t, arm, offsetof(bench_result, tokens_per_cycle)),
            lv_format_size((uint64_t)mean_of(t, arm, offsetof(bench_result, bytes_per_token)), size, sizeof size));
}

static void print_one(FILE *out, table *t) {
    const bench_lists *lists = t->outcome->lists;
    const size_t base = base_arm(lists);
    char over[CELL_BYTES];
    fprintf(out, "\nbudget %s, temperature %g, %u tokens: tokens a second, median (least-most)\n",
            lists->budgets[t->budget].name, (double)lists->temperatures[t->temperature], lists->lengths[t->length]);
    fprintf(out, "%-22s", "");
    for (size_t i = 0; i < t->tasks_count; i++) fprintf(out, "  %-20.20s", t->tasks[i]);
    snprintf(over, sizeof over, "/ %.20s", lists->arms[base].name);
    fprintf(out, "  %8s  %12s  %s\n", over, "tokens/cycle", "read/token");
    for (size_t arm = 0; arm < lists->arms_count; arm++) print_arm(out, t, arm, base);
}

void bench_table_print(FILE *out, const bench_outcome *outcome) {
    table t = {.outcome = outcome};
    t.values = calloc(outcome->count + 1, sizeof *t.values);
    if (t.values == NULL) return;
    find_tasks(&t);
    for (t.budget = 0; t.budget < outcome->lists->budgets_count; t.budget++) {
        for (t.temperature = 0; t.temperature < outcome->lists->temperatures_count; t.temperature++) {
            for (t.length = 0; t.length < outcome->lists->lengths_count; t.length++) print_one(out, &t);
        }
    }
    free(t.values);
}

size_t bench_count_differing(const bench_outcome *outcome, char message[BENCH_MESSAGE_BYTES]) {
    size_t differing = 0, last_round = SIZE_MAX;
    for (size_t i = 1; i < outcome->count; i++) {
        const bench_case *c = &outcome->cases[i];
        if (outcome->results[i].status != BENCH_OK || c->round == last_round) continue;
        for (size_t j = i; j > 0 && outcome->cases[j - 1].round == c->round; j--) {
            const bench_result *other = &outcome->results[j - 1];
            if (other->status != BENCH_OK) continue;
            if (strcmp(other->tokens_sha256, outcome->results[i].tokens_sha256) == 0) continue;
            if (differing++ == 0) {
                snprintf(message, BENCH_MESSAGE_BYTES, "%s and %s wrote different texts for %s",
                         outcome->lists->arms[outcome->cases[j - 1].arm].name, outcome->lists->arms[c->arm].name,
                         outcome->prompts->data[c->prompt].id);
            }
            last_round = c->round;
            break;
        }
    }
    return differing;
}
