/* ledger.h - the one account of the process's memory.
 *
 * Owns the numbers, not the memory: who wants memory reserves it here first, may be refused, and releases it when the
 * memory is back with the system. The sum of all categories never exceeds the limit. Thread-safe; a call never blocks
 * longer than a few instructions. The ledger must outlive everything that is booked in it.
 *
 *     reserve --(refused: LEVER_E_BUDGET)        settle: an upper bound becomes what was measured
 *        |                                        |
 *        v                                        v
 *     used[category] ............................ release */
#ifndef LV_BASE_LEDGER_H
#define LV_BASE_LEDGER_H

#include "base/status.h"

#define LV_LEDGER_CATEGORIES(X)                                                                             \
    X(LV_MEM_PROGRAM, "program and libraries") /* code, what was there before lever took anything */        \
    X(LV_MEM_VOCABULARY, "vocabulary")         /* libllama's own; an upper bound, then settled */           \
    X(LV_MEM_METADATA, "model metadata")       /* tensor tables, block tables, resident norms and biases */ \
    X(LV_MEM_RING, "ring of blocks")                                                                        \
    X(LV_MEM_PINNED, "pinned layers")                                                                       \
    X(LV_MEM_HEAD, "output head")                                                                           \
    X(LV_MEM_EMBEDDING, "embeddings")                                                                       \
    X(LV_MEM_KV, "key/value cache")                                                                         \
    X(LV_MEM_WORKSPACE, "activations")                                                                      \
    X(LV_MEM_GRAPH, "graphs")                                                                               \
    X(LV_MEM_LOGITS, "logits and sampling")                                                                 \
    X(LV_MEM_STACKS, "thread stacks")                                                                       \
    X(LV_MEM_SESSION, "sessions")                                                                           \
    X(LV_MEM_DRAFT, "draft model")                                                                          \
    X(LV_MEM_DEVICE, "device buffers") /* of an accelerator, those that hold weights above all */           \
    X(LV_MEM_SLACK, "allocator slack") /* what the system's allocator and page rounding add */

typedef enum {
#define LV_LEDGER_ENUM(name, text) name,
    LV_LEDGER_CATEGORIES(LV_LEDGER_ENUM)
#undef LV_LEDGER_ENUM
        LV_MEM_CATEGORIES_COUNT
} lv_category;

#define LV_LEDGER_UNLIMITED UINT64_MAX

typedef struct lv_ledger lv_ledger;

/* NULL when the system refuses memory. */
lv_ledger *lv_ledger_create(uint64_t limit_bytes);
void lv_ledger_free(lv_ledger *ledger); /* NULL is accepted; asserts that nothing but LV_MEM_PROGRAM is booked */

/* LEVER_E_BUDGET, with category, wanted, used and limit in the message, when it does not fit. A NULL ledger grants
 * everything (tests, tools without a budget). */
lever_status lv_ledger_reserve(lv_ledger *ledger, lv_category category, uint64_t bytes, lever_error *error);
void lv_ledger_release(lv_ledger *ledger, lv_category category, uint64_t bytes);

/* Books without asking: for facts that cannot be refused (a measurement above its bound). May pass the limit; the next
 * reserve is then refused. */
void lv_ledger_book(lv_ledger *ledger, lv_category category, uint64_t bytes);

/* Refused (LEVER_E_BUDGET) when more than `limit_bytes` is in use; the limit then stays. */
lever_status lv_ledger_set_limit(lv_ledger *ledger, uint64_t limit_bytes, lever_error *error);

uint64_t lv_ledger_limit(const lv_ledger *ledger);
uint64_t lv_ledger_used(const lv_ledger *ledger);
uint64_t lv_ledger_used_by(const lv_ledger *ledger, lv_category category);
uint64_t lv_ledger_peak(const lv_ledger *ledger);
uint64_t lv_ledger_free_bytes(const lv_ledger *ledger);
const char *lv_category_name(lv_category category);

#endif
