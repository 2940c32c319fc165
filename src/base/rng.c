/* rng.c - Philox4x32 with ten rounds, and Gumbel noise from it. */
#include "base/rng.h"

#include <math.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

lv_philox_block lv_philox(const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = UINT64_C(0xD2511F53) * c0;
        uint64_t product1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += UINT32_C(0x9E3779B9); /* the golden ratio and the square root of three, as in the paper */
        k1 += UINT32_C(0xBB67AE85);
    }
    return (lv_philox_block){{c0, c1, c2, c3}};
}

double lv_gumbel(uint64_t seed, uint64_t position, int32_t token) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)token, (uint32_t)position, (uint32_t)(position >> 32), 0};
    lv_philox_block block = lv_philox(counter, key);
    uint64_t bits = (uint64_t)block.word[1] << 32 | block.word[0];
    /* An odd multiple of 2^-53: exact in a double, and never 0 or 1. */
    double u = (double)(bits >> 11 | 1) * 0x1p-53;
    return -log(-log(u));
}

/* Of 53 bits: a seed must come back unharmed from a JSON reader that keeps numbers as doubles. */
uint64_t lv_seed_draw(void) {
    uint64_t seed = 0;
#ifdef SYS_getrandom
    if (syscall(SYS_getrandom, &seed, sizeof seed, 1 /* GRND_NONBLOCK */) == (long)sizeof seed) return seed >> 11;
#endif
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint32_t counter[4] = {(uint32_t)now.tv_nsec, (uint32_t)now.tv_sec, (uint32_t)getpid(), 0};
    const uint32_t key[2] = {0, 0};
    lv_philox_block block = lv_philox(counter, key);
    return ((uint64_t)block.word[1] << 32 | block.word[0]) >> 11;
}
