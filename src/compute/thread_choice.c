/* thread_choice.c - one thread takes at most as many times longer as there are threads. If even that fits the time that
 * reading takes, nothing is lost by trying; if computing then turns out to be the bottleneck, all threads come back for
 * a while. */
#include "compute/thread_choice.h"

enum {
    FIT_PERCENT = 110,       /* the bound is pessimistic: a product is limited by memory before threads are */
    WAIT_LEAST_PERCENT = 15, /* of a pass of a single thread that is not the bottleneck */
    REST_PASSES = 64,
};

void lv_thread_choice_update(lv_thread_choice *choice, uint64_t pass_ns, uint64_t compute_ns, uint64_t wait_ns) {
    if (choice->threads <= 1 || pass_ns == 0) return;
    if (choice->single) {
        if (wait_ns * 100 < pass_ns * WAIT_LEAST_PERCENT) {
            choice->single = false;
            choice->rest = REST_PASSES;
        }
        return;
    }
    if (choice->rest > 0) {
        choice->rest--;
        return;
    }
    choice->single = compute_ns * choice->threads * 100 <= pass_ns * FIT_PERCENT;
}
