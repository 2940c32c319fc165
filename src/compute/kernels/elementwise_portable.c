/* elementwise_portable.c - for every processor; and the choice of the best. */
#include "compute/kernels/elementwise_impl.h"

static const lv_elementwise portable = LV_ELEMENTWISE_TABLE("portable");

#if defined(__x86_64__)
#include "compute/kernels/cpu.h"

extern const lv_elementwise lv_elementwise_avx512, lv_elementwise_avx2;

const lv_elementwise *lv_elementwise_at(size_t index) {
    const lv_elementwise *found[3];
    size_t count = 0;
    if (lv_cpu_has_avx512()) found[count++] = &lv_elementwise_avx512;
    if (lv_cpu_has_avx2()) found[count++] = &lv_elementwise_avx2;
    found[count++] = &portable;
    return index < count ? found[index] : NULL;
}
#else
const lv_elementwise *lv_elementwise_at(size_t index) {
    return index == 0 ? &portable : NULL;
}
#endif

const lv_elementwise *lv_elementwise_best(void) {
    return lv_elementwise_at(0);
}
