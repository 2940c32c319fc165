/* barrier.c - the last to arrive opens the next round; who sleeps is woken by a futex. */
#include "compute/barrier.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Some tens of microseconds: longer than steps of even work are apart, shorter than what a scheduler takes. */
enum { SPINS = 2000 };

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static void sleep_while(lv_barrier *barrier, unsigned round) {
    atomic_fetch_add(&barrier->sleepers, 1);
    while (atomic_load(&barrier->round) == round) {
        (void)syscall(SYS_futex, &barrier->round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
    }
    atomic_fetch_sub(&barrier->sleepers, 1);
}

void lv_barrier_wait(lv_barrier *barrier, uint32_t threads) {
    if (threads <= 1) return;
    const unsigned round = atomic_load(&barrier->round);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == threads) {
        atomic_store(&barrier->arrived, 0);
        atomic_fetch_add(&barrier->round, 1);
        if (atomic_load(&barrier->sleepers) > 0) {
            (void)syscall(SYS_futex, &barrier->round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        }
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&barrier->round, memory_order_acquire) != round) return;
        relax();
    }
    sleep_while(barrier, round);
}
