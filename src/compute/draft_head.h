/* draft_head.h - the head of a draft model for some tokens only: exact all the same, since the target decides.
 *
 * A draft's step spends a third of its time on a head of 152k rows, of which few ever win. This one holds the rows of
 * the first tokens of the vocabulary (byte-pair vocabularies are numbered by how frequent a piece is), and extra rows
 * for tokens of the prompt and of the answer that lie beyond. They may be kept in a smaller type than that of the file.
 * Owns its rows, in tiles where the type has a kernel, booked as LV_MEM_DRAFT. One thread at a time; rows are read from
 * the file when they are added.
 *
 *     rows:  [0, tokens_first): token == row    [tokens_first, rows_count): extras, token from a table */
#ifndef LV_COMPUTE_DRAFT_HEAD_H
#define LV_COMPUTE_DRAFT_HEAD_H

#include "flash/store.h"

typedef struct lv_draft_head lv_draft_head;

typedef struct {
    uint32_t tokens_first, extras_max; /* rounded up to multiples of 16 and bounded by the vocabulary (all of it: no
                                          extras) */
    bool small; /* rows beyond 4 bits a weight become Q4_0, where that is possible and not all of the vocabulary is
                   kept: a whole head has the bits of the model's own */
} lv_draft_head_shape;

/* `output` is the model's output matrix. `cancel` (may be NULL) ends the reading with LEVER_E_CANCELLED. */
uint64_t lv_draft_head_bytes(const lv_tensor *output, const lv_draft_head_shape *shape);
lever_status lv_draft_head_open(lv_draft_head **head, const lv_tensor *output, lv_store *store,
                                const lv_draft_head_shape *shape, const atomic_bool *cancel, lv_ledger *ledger,
                                lever_error *error);
void lv_draft_head_close(lv_draft_head **head);

/* Makes sure that these tokens have rows. When there is no room the extras that were added first leave. Reads from the
 * file only what is missing; tokens out of the vocabulary are ignored. */
lever_status lv_draft_head_add(lv_draft_head *head, const int32_t *tokens, size_t tokens_count, lever_error *error);

/* Grows whenever the token of some row changes. */
uint64_t lv_draft_head_version(const lv_draft_head *head);

uint32_t lv_draft_head_rows_count(const lv_draft_head *head); /* a multiple of 16; unused extras have token -1 */
int32_t lv_draft_head_token(const lv_draft_head *head, uint32_t row);

/* For forward.c: the matrix as one run of rows. */
const lv_tensor *lv_draft_head_tensor(const lv_draft_head *head);
const uint8_t *lv_draft_head_data(const lv_draft_head *head);

#endif
