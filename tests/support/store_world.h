/* store_world.h - a small model file whose every byte is known, and a store over it.
 *
 * The byte at offset o of the file is a function of o, so any block can be checked without a copy of the file. The file
 * has LAYERS layers of four small matrices that share a block and three larger ones that take two blocks each, a head
 * of three blocks, and a look-up table. */
#ifndef LV_TESTS_STORE_WORLD_H
#define LV_TESTS_STORE_WORLD_H

#include "flash/store.h"

enum { WORLD_LAYERS = 5, WORLD_ITEMS = WORLD_LAYERS * 7 + 1, WORLD_BLOCKS_MAX = 64, WORLD_BLOCK_BYTES = 256 << 10 };

/* Writes the model; `packed`: as a packed file, with checksums. */
void world_write(const char *path, bool packed);
uint8_t world_byte(uint64_t offset);

typedef struct {
    lv_gguf *gguf;
    lv_layout *layout;
    lv_store *store;
    lv_layout_item items[WORLD_ITEMS];
    bool pinned[WORLD_BLOCKS_MAX];
} world;

typedef struct {
    uint32_t slots, lanes;
    bool keeps;
    lv_pacer *pacer;
    uint32_t pinned; /* every how many-th block, the head's too; 0: none */
    bool transform;  /* pinned blocks are turned over, bit by bit */
    bool buffered;   /* do not try O_DIRECT */
    bool verify;
    lv_ledger *ledger;
    const lv_clock *clock; /* NULL: the real one */
    lever_progress_fn progress;
    void *progress_user;
    const atomic_bool *cancel;
    const lv_log *log;
} world_options;

/* Like any opening: on failure nothing is left. */
lever_status world_open(world *w, const char *path, const world_options *options, lever_error *error);
void world_close(world *w);

/* Whether the lease shows the bytes that stand in the file (turned over, if it says so). */
bool world_lease_is_right(const world *w, const lv_lease *lease);

/* Acquires, checks and releases every block in order, the head's too if `head`. A block with the wrong bytes fails the
 * running test. */
lever_status world_pass(world *w, bool head, lever_error *error);

#endif
