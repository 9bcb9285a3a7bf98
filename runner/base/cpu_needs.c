/* cpu_needs.c -- compares the compiler's instruction sets with those of the CPU.
 *
 * A build with -march=native is often copied to hosts with older CPUs. The function itself is
 * compiled for every x86-64 CPU. */
#include "rd/cpu_needs.h"
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
/* One row: a feature that the compiler was allowed to use. */
#define ROW(name, feature) \
    if (!__builtin_cpu_supports(feature) || (absent && strcmp(absent, name) == 0)) return name;

__attribute__((target("arch=x86-64"))) const char *rd_cpu_lacks(const char *absent)
{
    __builtin_cpu_init();
    (void)absent; /* unused without any of the features */
#ifdef __SSE4_2__
    ROW("SSE4.2", "sse4.2")
#endif
#ifdef __AVX__
    ROW("AVX", "avx")
#endif
#ifdef __FMA__
    ROW("FMA", "fma")
#endif
#ifdef __BMI2__
    ROW("BMI2", "bmi2")
#endif
#ifdef __AVX2__
    ROW("AVX2", "avx2")
#endif
#ifdef __AVX512F__
    ROW("AVX-512F", "avx512f")
#endif
#ifdef __AVX512BW__
    ROW("AVX-512BW", "avx512bw")
#endif
#ifdef __AVX512DQ__
    ROW("AVX-512DQ", "avx512dq")
#endif
#ifdef __AVX512VL__
    ROW("AVX-512VL", "avx512vl")
#endif
#ifdef __AVX512VNNI__
    ROW("AVX-512 VNNI", "avx512vnni")
#endif
#ifdef __AVX512BF16__
    ROW("AVX-512 BF16", "avx512bf16")
#endif
    return NULL;
}
#else
const char *rd_cpu_lacks(const char *absent)
{
    (void)absent;
    return NULL;
}
#endif
