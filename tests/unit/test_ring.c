/* The sequence of reads, driven by a random consumer and random lanes: a slot that is leased or read into is nobody
 * else's, what is asked for always comes, and in the order of use nothing is read twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "flash/ring.h"

#define BLOCKS 12u
#define HEAD_FIRST 10u
#define SLOTS_MAX 6u

static lv_block blocks[BLOCKS];
static const lv_layout layout = {.blocks = blocks, .blocks_count = BLOCKS, .head_block_first = HEAD_FIRST};

static uint32_t draw(uint64_t seed, uint32_t *counter, uint32_t below) {
    const uint32_t words[4] = {(*counter)++, 0, 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, 17};
    return lv_philox(words, key).word[0] % below;
}

static lv_ring open_ring(uint32_t slots) {
    lv_ring ring;
    lever_error error;
    assert_int_equal(lv_ring_open(&ring, &layout, slots, NULL, &error), LEVER_OK);
    return ring;
}

/* Takes everything that can be taken, and returns the blocks in order. */
static uint32_t take_all(lv_ring *ring, uint32_t *taken, uint32_t *slots) {
    uint32_t count = 0;
    while (lv_ring_take(ring, &slots[count])) {
        taken[count] = ring->slots[slots[count]].block;
        count++;
    }
    return count;
}

static void the_sequence_skips_what_is_not_read(void **state) {
    (void)state;
    const struct {
        uint32_t resident; /* bit mask */
        bool head_wanted;
        uint32_t first[6];
        uint32_t count;
    } cases[] = {{0x000, false, {0, 1, 2, 3, 4, 5}, 6},
                 {0x3f5, false, {1, 3, 1, 3, 1, 3}, 6},
                 {0x3f0, true, {0, 1, 2, 3, 10, 11}, 6},
                 {0xbff, true, {10, 10, 10, 10, 10, 10}, 6},
                 {0x3ff, false, {0}, 0},
                 {0xfff, true, {0}, 0},
                 {0xc00 | 0x3fe, true, {0, 0, 0, 0, 0, 0}, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lv_ring ring = open_ring(6);
        for (uint32_t b = 0; b < BLOCKS; b++) ring.resident[b] = (cases[i].resident >> b & 1) != 0;
        ring.head_wanted = cases[i].head_wanted;
        uint32_t taken[SLOTS_MAX] = {0}, slots[SLOTS_MAX + 1];
        assert_int_equal(take_all(&ring, taken, slots), cases[i].count);
        assert_memory_equal(taken, cases[i].first, cases[i].count * sizeof(uint32_t));
        lv_ring_close(&ring);
    }
}

static void a_jump_empties_the_ring_but_not_the_leases(void **state) {
    (void)state;
    lv_ring ring = open_ring(4);
    uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
    assert_int_equal(take_all(&ring, taken, slots), 4);
    for (uint32_t i = 0; i < 3; i++) lv_ring_finish(&ring, slots[i], 0, LEVER_OK, NULL); /* block 3 is being read */
    assert_int_equal(lv_ring_want(&ring, 0, &slot), LV_WANT_LEASED);
    assert_int_equal(lv_ring_want(&ring, 7, &slot), LV_WANT_PENDING);
    assert_int_equal(ring.slots[slots[0]].state, LV_SLOT_LEASED);
    assert_int_equal(ring.slots[slots[3]].state, LV_SLOT_ABANDONED);
    assert_int_equal(take_all(&ring, taken, slots), 2);
    assert_int_equal(taken[0], 7);
    assert_int_equal(taken[1], 8);
    assert_int_equal(lv_ring_want(&ring, 7, &slot), LV_WANT_PENDING);
    lv_ring_finish(&ring, 3, 0, LEVER_OK, NULL); /* the abandoned one */
    assert_int_equal(ring.slots[3].state, LV_SLOT_FREE);
    lv_ring_close(&ring);
}

static void a_failure_is_told_once_and_read_anew(void **state) {
    (void)state;
    lv_ring ring = open_ring(2);
    uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
    const lever_error error = {LEVER_E_IO, "the disk is gone"};
    assert_int_equal(take_all(&ring, taken, slots), 2);
    lv_ring_finish(&ring, slots[0], 0, LEVER_E_IO, &error);
    lv_ring_finish(&ring, slots[1], 0, LEVER_OK, NULL);
    assert_false(lv_ring_try(&ring, 0, &slot));
    assert_int_equal(lv_ring_want(&ring, 0, &slot), LV_WANT_FAILED);
    assert_string_equal(ring.slots[slot].error.message, "the disk is gone");
    lv_ring_restart(&ring, 0);
    assert_int_equal(take_all(&ring, taken, slots), 2);
    assert_int_equal(taken[0], 0);
    lv_ring_close(&ring);
}

static void leasing_more_than_there_is_is_told(void **state) {
    (void)state;
    lv_ring ring = open_ring(2);
    uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
    assert_int_equal(take_all(&ring, taken, slots), 2);
    lv_ring_finish(&ring, slots[0], 0, LEVER_OK, NULL);
    lv_ring_finish(&ring, slots[1], 0, LEVER_OK, NULL);
    assert_int_equal(lv_ring_want(&ring, 0, &slot), LV_WANT_LEASED);
    assert_true(lv_ring_try(&ring, 1, &slot));
    assert_int_equal(lv_ring_want(&ring, 2, &slot), LV_WANT_STUCK);
    lv_ring_release(&ring, slot);
    assert_int_equal(lv_ring_want(&ring, 2, &slot), LV_WANT_PENDING);
    lv_ring_close(&ring);
}

/* With few streamed blocks the ring holds one of them twice: the older entry is the one to take. */
static void the_nearer_of_two_is_taken(void **state) {
    (void)state;
    lv_ring ring = open_ring(2);
    for (uint32_t b = 0; b < HEAD_FIRST; b++) ring.resident[b] = b != 4;
    uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
    assert_int_equal(take_all(&ring, taken, slots), 2);
    for (uint32_t i = 0; i < 2; i++) lv_ring_finish(&ring, slots[i], 0, LEVER_OK, NULL);
    for (uint32_t pass = 0; pass < 5; pass++) {
        assert_int_equal(lv_ring_want(&ring, 4, &slot), LV_WANT_LEASED);
        assert_int_equal(ring.slots[1 - slot].state, LV_SLOT_READY);
        assert_true(ring.slots[slot].sequence < ring.slots[1 - slot].sequence);
        lv_ring_release(&ring, slot);
        assert_int_equal(take_all(&ring, taken, slots), 1);
        lv_ring_finish(&ring, slots[0], 0, LEVER_OK, NULL);
    }
    lv_ring_close(&ring);
}

/* A head that is asked for without being wanted is read to its end, once. */
static void an_unwanted_head_is_read_once(void **state) {
    (void)state;
    lv_ring ring = open_ring(4);
    for (uint32_t b = 0; b < HEAD_FIRST; b++) ring.resident[b] = true;
    uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
    assert_int_equal(take_all(&ring, taken, slots), 0);
    assert_int_equal(lv_ring_want(&ring, HEAD_FIRST, &slot), LV_WANT_PENDING);
    assert_int_equal(take_all(&ring, taken, slots), 2);
    assert_int_equal(taken[0], HEAD_FIRST);
    assert_int_equal(taken[1], HEAD_FIRST + 1);
    lv_ring_close(&ring);
}

/* In the order of use every streamed block is taken once a pass. */
static void nothing_is_read_twice_in_order(void **state) {
    (void)state;
    for (uint32_t slots_count = 2; slots_count <= SLOTS_MAX; slots_count++) {
        lv_ring ring = open_ring(slots_count);
        ring.resident[3] = ring.resident[9] = true;
        uint32_t taken_count = 0, wanted_count = 0;
        for (uint32_t pass = 0; pass < 3; pass++) {
            for (uint32_t block = 0; block < HEAD_FIRST; block++) {
                if (ring.resident[block]) continue;
                uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
                uint32_t count = take_all(&ring, taken, slots);
                for (uint32_t i = 0; i < count; i++) lv_ring_finish(&ring, slots[i], 0, LEVER_OK, NULL);
                taken_count += count;
                wanted_count++;
                assert_int_equal(lv_ring_want(&ring, block, &slot), LV_WANT_LEASED);
                assert_int_equal(ring.slots[slot].block, block);
                lv_ring_release(&ring, slot);
            }
        }
        assert_true(taken_count < wanted_count + slots_count);
        lv_ring_close(&ring);
    }
}

/* --- A cache of the blocks used last ------------------------------------------------------------------------------ */

enum { CIRCLE = 10, CIRCLES = 4 };

/* A textbook's: blocks from the one used last to the one used the longest ago, which goes first. Returns the hits. */
static uint32_t replay_textbook(uint32_t capacity) {
    uint32_t held[CIRCLE], count = 0, hits = 0;
    for (uint32_t use = 0; use < CIRCLE * CIRCLES; use++) {
        uint32_t at = 0;
        while (at < count && held[at] != use % CIRCLE) at++;
        if (at < count) {
            hits++;
        } else if (count < capacity) {
            count++;
        } else {
            at = count - 1;
        }
        memmove(held + 1, held, at * sizeof(held[0]));
        held[0] = use % CIRCLE;
    }
    return hits;
}

/* The same with a ring, whose lanes run `ahead` blocks in front of the consumer. Returns the hits; *reads as many
 * blocks as were read, whether they were used yet or not. */
static uint32_t replay_ring(uint32_t slots_count, uint32_t ahead, uint32_t *reads) {
    static lv_block circle[CIRCLE];
    static const lv_layout round = {.blocks = circle, .blocks_count = CIRCLE, .head_block_first = CIRCLE};
    lv_ring ring;
    lever_error error;
    for (uint32_t i = 0; i < CIRCLE; i++) circle[i].bytes = 1;
    assert_int_equal(lv_ring_open(&ring, &round, slots_count, NULL, &error), LEVER_OK);
    ring.keeps = true;
    *reads = 0;
    for (uint32_t use = 0; use < CIRCLE * CIRCLES; use++) {
        uint32_t slot = 0;
        while (ring.sequence_next < use + ahead && lv_ring_take(&ring, &slot)) {
            lv_ring_finish(&ring, slot, 0, LEVER_OK, NULL);
            *reads += 1;
        }
        assert_int_equal(lv_ring_want(&ring, use % CIRCLE, &slot), LV_WANT_LEASED);
        assert_int_equal(ring.slots[slot].block, use % CIRCLE);
        lv_ring_release(&ring, slot);
    }
    const uint32_t hits = (uint32_t)ring.hit_bytes;
    lv_ring_close(&ring);
    return hits;
}

/* Layers are used in a circle, so what was used last is never what comes next: no hit until all fit. That holds for a
 * cache that reads what it misses, and for a ring that reads ahead. */
static void a_circle_hits_as_in_the_textbook(void **state) {
    (void)state;
    for (uint32_t slots = 2; slots <= CIRCLE; slots++) {
        const uint32_t hits = replay_textbook(slots);
        assert_int_equal(hits, slots < CIRCLE ? 0 : CIRCLE * (CIRCLES - 1));
        for (uint32_t ahead = 1; ahead <= slots; ahead++) {
            uint32_t reads;
            assert_int_equal(replay_ring(slots, ahead, &reads), hits);
            const uint32_t used = CIRCLE * CIRCLES - hits;
            assert_true(reads >= used && reads <= used + (hits > 0 ? 0 : ahead - 1));
        }
    }
}

/* What a jump passes over is still there, also for a block whose reading nobody waited for. */
static void a_cache_keeps_what_a_jump_passes_over(void **state) {
    (void)state;
    lv_ring ring = open_ring(4);
    ring.keeps = true;
    uint32_t taken[SLOTS_MAX], slots[SLOTS_MAX + 1], slot = 0;
    const lever_error error = {LEVER_E_IO, "broken"};
    assert_int_equal(take_all(&ring, taken, slots), 4);
    for (uint32_t i = 0; i < 2; i++) lv_ring_finish(&ring, slots[i], 0, LEVER_OK, NULL);
    assert_int_equal(lv_ring_want(&ring, 7, &slot), LV_WANT_PENDING);
    lv_ring_finish(&ring, slots[2], 0, LEVER_OK, NULL);
    lv_ring_finish(&ring, slots[3], 0, LEVER_E_IO, &error);
    assert_int_equal(lv_ring_want(&ring, 1, &slot), LV_WANT_LEASED);
    assert_int_equal(lv_ring_want(&ring, 2, &slot), LV_WANT_LEASED); /* with 1, in the sequence */
    assert_int_equal(lv_ring_want(&ring, 3, &slot), LV_WANT_PENDING);
    assert_int_equal(take_all(&ring, taken, slots), 2);
    assert_int_equal(taken[0], 3);
    assert_int_equal(slots[0], 3); /* which holds nothing; block 0 was there the longest */
    assert_int_equal(slots[1], 0);
    lv_ring_close(&ring);
}

/* --- Anything ----------------------------------------------------------------------------------------------------- */

/* A model of the world: who writes into which slot, who holds which. */
static void random_walk(uint64_t seed) {
    uint32_t counter = 0, slots_count = 2 + draw(seed, &counter, SLOTS_MAX - 1);
    lv_ring ring = open_ring(slots_count);
    ring.keeps = seed % 2 == 0;
    bool reading[SLOTS_MAX] = {false}, leased[SLOTS_MAX] = {false};
    uint32_t holds[SLOTS_MAX] = {0}; /* the block that was last read into the slot */
    uint32_t leases = 0, wanted = LV_BLOCK_NONE, patience = 0;
    const lever_error error = {LEVER_E_IO, "broken"};

    for (uint32_t step = 0; step < 4000; step++) {
        uint32_t slot = 0, dice = draw(seed, &counter, 100);
        if (dice < 30) {
            if (lv_ring_take(&ring, &slot)) {
                assert_false(reading[slot]);
                assert_false(leased[slot]);
                assert_false(ring.resident[ring.slots[slot].block]);
                reading[slot] = true;
                holds[slot] = ring.slots[slot].block;
            }
        } else if (dice < 55) {
            slot = draw(seed, &counter, slots_count);
            bool fails = draw(seed, &counter, 10) == 0;
            if (reading[slot]) lv_ring_finish(&ring, slot, 0, fails ? LEVER_E_IO : LEVER_OK, fails ? &error : NULL);
            reading[slot] = false;
        } else if (dice < 80) {
            if (wanted == LV_BLOCK_NONE) {
                uint32_t next = draw(seed, &counter, 4) ? (ring.block_last + 1) % BLOCKS : draw(seed, &counter, BLOCKS);
                if (!ring.resident[next]) wanted = next;
                patience = 0;
            }
            if (wanted != LV_BLOCK_NONE) {
                lv_want want = lv_ring_want(&ring, wanted, &slot);
                assert_int_equal(want == LV_WANT_STUCK, leases == slots_count && want != LV_WANT_LEASED);
                if (want == LV_WANT_LEASED) {
                    assert_false(reading[slot]);
                    assert_false(leased[slot]);
                    assert_int_equal(holds[slot], wanted);
                    leased[slot] = true;
                    leases++;
                }
                if (want == LV_WANT_FAILED) lv_ring_restart(&ring, wanted);
                if (want != LV_WANT_PENDING) wanted = LV_BLOCK_NONE;
                assert_true(++patience < 200); /* it comes, however the lanes are scheduled */
            }
        } else if (dice < 95) {
            slot = draw(seed, &counter, slots_count);
            if (leased[slot]) lv_ring_release(&ring, slot), leases--;
            leased[slot] = false;
        } else if (dice < 97) {
            ring.head_wanted = !ring.head_wanted;
        } else {
            uint32_t block = draw(seed, &counter, BLOCKS);
            if (block != wanted) ring.resident[block] = !ring.resident[block];
        }
        assert_int_equal(ring.leased_count, leases);
    }
    lv_ring_close(&ring);
}

static void any_order_works(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) random_walk(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sequence_skips_what_is_not_read),
        cmocka_unit_test(a_jump_empties_the_ring_but_not_the_leases),
        cmocka_unit_test(a_failure_is_told_once_and_read_anew),
        cmocka_unit_test(leasing_more_than_there_is_is_told),
        cmocka_unit_test(the_nearer_of_two_is_taken),
        cmocka_unit_test(an_unwanted_head_is_read_once),
        cmocka_unit_test(nothing_is_read_twice_in_order),
        cmocka_unit_test(a_circle_hits_as_in_the_textbook),
        cmocka_unit_test(a_cache_keeps_what_a_jump_passes_over),
        cmocka_unit_test(any_order_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
