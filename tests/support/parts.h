/* parts.h - the parts that a forward pass needs, over a model file, without an engine.
 *
 * Every function fails the running test, with the library's message, when it cannot do its work. */
#ifndef LV_TESTS_PARTS_H
#define LV_TESTS_PARTS_H

#include "compute/forward.h"

enum { PARTS_SLOTS = 64 };

typedef struct {
    lv_gguf *gguf;
    lv_model *model;
    lv_weights *weights;
    lv_store *store; /* everything is pinned; there is a ring all the same */
    lv_kv kv;        /* of PARTS_SLOTS slots */
} parts;

void parts_open(parts *p, const char *path, bool with_head);
void parts_close(parts *p);

/* Packs a model file into the scratch folder; returns its path there, in `packed`. */
const char *parts_pack(const char *path, char *packed, size_t capacity);

/* Options for passes over the parts: one thread, 8 rows at once, the head's rows by threes. */
lv_forward_options parts_forward_options(const parts *p);

/* Computes the layers of a pass over a text from its beginning, at most PARTS_SLOTS tokens. */
void parts_run(parts *p, lv_forward *forward, const int32_t *tokens, uint32_t tokens_count);

#endif
