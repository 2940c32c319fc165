/* cpu.h - what this processor can do, as far as files of this folder were compiled for it. Pure; any thread. */
#ifndef LV_COMPUTE_KERNELS_CPU_H
#define LV_COMPUTE_KERNELS_CPU_H

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

static inline bool lv_cpu_has_f16c(void) {
#if defined(__clang__) /* does not know the name */
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
#else
    return __builtin_cpu_supports("f16c");
#endif
}

/* The builtins also look whether the system saves the registers, and ask the processor only once. */
static inline bool lv_cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && lv_cpu_has_f16c();
}

static inline bool lv_cpu_has_avx512(void) {
    return lv_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

#endif
