/* elementwise_avx512.c - see elementwise_impl.h. */
#include "compute/kernels/elementwise_impl.h"

extern const lv_elementwise lv_elementwise_avx512;
const lv_elementwise lv_elementwise_avx512 = LV_ELEMENTWISE_TABLE("avx512");
