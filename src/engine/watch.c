/* watch.c - short of memory is who has less than a twentieth of it free, who waits for it, or whose cgroup throttles.
 * Then what is missing is given up at once, at least a sixteenth of what is used. It comes back slowly, when twice the
 * reserve was free for two seconds: a system that swings must not be pushed. Each look then grants a quarter of what is
 * free beyond that, without what was granted before and has not been taken yet: blocks are pinned only as they pass. */
#include "engine/watch.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "engine/engine_state.h"
#include "engine/residency.h"

enum { LOOK_MS = 200, CALM_LOOKS = 10, RESERVE_SHARE = 20, STEP_SHARE = 16, GROWTH_SHARE = 4 };

#define RESERVE_BYTES_MAX ((uint64_t)512 << 20)
#define STALLED_SHARE 0.1

struct lv_watch {
    lever_engine *engine;
    lv_watch_state state;
    lv_system_pressure before;
    uint64_t before_ns;
    lv_thread thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quits;
};

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t lv_watch_next(lv_watch_state *s, const lv_watch_reading *r, uint64_t limit_bytes) {
    const uint64_t reserve = smaller(r->total_bytes / RESERVE_SHARE, RESERVE_BYTES_MAX);
    const bool tight = r->usable_bytes < reserve || r->stalled_share > STALLED_SHARE || r->throttled;
    if (tight) {
        s->calm_looks = 0;
        const uint64_t missing = r->usable_bytes < reserve ? reserve - r->usable_bytes : 0;
        const uint64_t step = larger(missing, s->used_bytes / STEP_SHARE);
        const uint64_t now = smaller(limit_bytes, s->used_bytes + s->idle_bytes);
        return larger(now > step ? now - step : 0, smaller(s->least_bytes, limit_bytes));
    }
    if (r->usable_bytes < 2 * reserve || limit_bytes >= s->most_bytes) {
        s->calm_looks = 0;
        return limit_bytes;
    }
    if (++s->calm_looks < CALM_LOOKS) return limit_bytes;
    const uint64_t open = limit_bytes > s->used_bytes ? limit_bytes - s->used_bytes : 0;
    const uint64_t free_bytes = r->usable_bytes - 2 * reserve;
    const uint64_t spare = free_bytes > open ? (free_bytes - open) / GROWTH_SHARE : 0;
    if (s->most_bytes - limit_bytes > spare) return limit_bytes + spare;
    return s->most_bytes;
}

static void read_system(lv_watch *w, lv_watch_reading *reading) {
    lv_system_memory memory;
    lv_system_pressure now;
    lv_system_memory_read("", &memory);
    lv_system_pressure_read("", &now);
    const uint64_t now_ns = lv_clock_now_ns(&lv_clock_real);
    const double seconds = lv_seconds(now_ns - w->before_ns);
    *reading = (lv_watch_reading){.usable_bytes = memory.usable_bytes, .total_bytes = memory.total_bytes};
    if (w->before_ns > 0 && seconds > 0) {
        if (now.stalled_us > w->before.stalled_us) {
            reading->stalled_share = (double)(now.stalled_us - w->before.stalled_us) * 1e-6 / seconds;
        }
        reading->throttled = now.high_events > w->before.high_events;
    }
    w->before = now;
    w->before_ns = now_ns;
}

static void look(lv_watch *w) {
    lever_engine *engine = w->engine;
    lv_watch_reading reading;
    read_system(w, &reading);
    if (reading.total_bytes == 0) return; /* the system says nothing */
    lv_budget budget;
    lv_budget_get(engine, &budget);
    w->state.used_bytes = budget.used_bytes;
    w->state.idle_bytes = budget.idle_bytes;
    w->state.least_bytes = budget.least_bytes - smaller(budget.draft_bytes, budget.least_bytes);
    w->state.most_bytes = budget.most_bytes;
    const uint64_t next = lv_watch_next(&w->state, &reading, budget.limit_bytes);
    const bool follows = next != budget.limit_bytes && lv_budget_follow(engine, next);
    if (atomic_load(&engine->draft_unwanted)) lv_residency_give_way(engine);
    if (!follows) return;
    lv_log_write(&engine->log, LEVER_LOG_INFO, "memory: %llu MiB usable; the budget is %llu MiB now",
                 (unsigned long long)(reading.usable_bytes >> 20), (unsigned long long)(next >> 20));
}

static void *run(void *user) {
    lv_watch *w = user;
    pthread_mutex_lock(&w->lock);
    while (!w->quits) {
        pthread_mutex_unlock(&w->lock);
        look(w);
        pthread_mutex_lock(&w->lock);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000L;
        }
        if (!w->quits) pthread_cond_timedwait(&w->changed, &w->lock, &until);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

lever_status lv_watch_open(lv_watch **out, lever_engine *engine, lv_ledger *ledger, lever_error *error) {
    *out = NULL;
    void *memory = NULL;
    LV_TRY(lv_alloc_checked(&memory, ledger, LV_MEM_METADATA, 1, sizeof(lv_watch), "watching memory", error));
    lv_watch *w = memory;
    w->engine = engine;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    const lever_status status = lv_thread_start(&w->thread, ledger, run, w, "lever-watch", error);
    *out = w;
    if (status != LEVER_OK) lv_watch_close(out);
    return status;
}

void lv_watch_close(lv_watch **out) {
    if (!out || !*out) return;
    lv_watch *w = *out;
    if (w->thread.running) {
        pthread_mutex_lock(&w->lock);
        w->quits = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        lv_thread_join(&w->thread);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    lv_free(w);
    *out = NULL;
}
