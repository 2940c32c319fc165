/* elementwise_avx2.c - see elementwise_impl.h. */
#include "compute/kernels/elementwise_impl.h"

extern const lv_elementwise lv_elementwise_avx2;
const lv_elementwise lv_elementwise_avx2 = LV_ELEMENTWISE_TABLE("avx2");
