/* kernel_emulated.h -- what a .cu file needs to be compiled as host code; g++ reads it before the
 * file.
 *
 * Blocks run one after the other. The threads of a block are fibers of one thread of the process
 * (see blocks_emulated.cc).
 *
 * The emulation is stricter than a GPU where a mistake would only sometimes show there. These are
 * failures (RD_EBUG) with the kernel's name:
 *   - threads that wait for ever at different barriers or in different shuffles;
 *   - a shuffle that reads a lane which takes no part;
 *   - a launch that no GPU accepts;
 *   - a host pointer among the arguments.
 *
 * Dynamic shared memory is filled with NaN before each block. RD_EMULATED_ORDER=backwards or
 * =random runs blocks and threads in another order: if results change, a barrier is missing. */
#ifndef RD_KERNEL_EMULATED_H
#define RD_KERNEL_EMULATED_H

#include "rd/gpu.h"
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include <utility>

#define RD_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

/* ---- built-in types ---- */
#define RD_EMULATED_VECTOR(T, name, bytes2, bytes4)          \
    struct name##1                                           \
    {                                                        \
        T x;                                                 \
    };                                                       \
    struct alignas(bytes2) name##2                           \
    {                                                        \
        T x, y;                                              \
    };                                                       \
    struct name##3                                           \
    {                                                        \
        T x, y, z;                                           \
    };                                                       \
    struct alignas(bytes4) name##4                           \
    {                                                        \
        T x, y, z, w;                                        \
    };                                                       \
    static inline name##1 make_##name##1(T x)                \
    {                                                        \
        return {x};                                          \
    }                                                        \
    static inline name##2 make_##name##2(T x, T y)           \
    {                                                        \
        return {x, y};                                       \
    }                                                        \
    static inline name##3 make_##name##3(T x, T y, T z)      \
    {                                                        \
        return {x, y, z};                                    \
    }                                                        \
    static inline name##4 make_##name##4(T x, T y, T z, T w) \
    {                                                        \
        return {x, y, z, w};                                 \
    }
RD_EMULATED_VECTOR(char, char, 2, 4)
RD_EMULATED_VECTOR(unsigned char, uchar, 2, 4)
RD_EMULATED_VECTOR(short, short, 4, 8)
RD_EMULATED_VECTOR(unsigned short, ushort, 4, 8)
RD_EMULATED_VECTOR(int, int, 8, 16)
RD_EMULATED_VECTOR(unsigned int, uint, 8, 16)
RD_EMULATED_VECTOR(float, float, 8, 16)
RD_EMULATED_VECTOR(long long, longlong, 16, 16)
RD_EMULATED_VECTOR(unsigned long long, ulonglong, 16, 16)
RD_EMULATED_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern uint3 threadIdx, blockIdx; /* of the running fiber */
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- launches ---- */
extern "C" {
/* Returns false, with a failure in st, if p is host memory. */
bool rd_emulated_argument(rd_gpu *gpu, rd_status *st, const char *kernel, int i, const void *p,
                          bool sure);
/* Introduces a kernel before its launch: the function that runs one thread, and the bytes of its n
 * parameters. */
void rd_emulated_kernel(const void *function, const char *name,
                        void (*call)(const void *, void *const *), const size_t *bytes, size_t n);
void *rd_emulated_shared(void);
void rd_emulated_barrier(const char *where);
/* Exchanges a value within a warp. op 0: a shuffle from lane src; 1: a ballot; 2: only waits. */
uint64_t rd_emulated_warp(int op, unsigned mask, uint64_t value, int src, const char *where);
}

/* Passes arguments to a kernel by value, evaluated once, as in a launch. A pointer must be a device
 * pointer. In a structure, words that are addresses of host memory are found. */
template <typename T>
static inline bool rd_emulated_check(rd_gpu *gpu, rd_status *st, const char *kernel, int i,
                                     const T &x)
{
    if constexpr (std::is_pointer_v<T>) {
        return rd_emulated_argument(gpu, st, kernel, i, reinterpret_cast<const void *>(x), true);
    } else if constexpr (std::is_class_v<T>) {
        T bare = x; /* its padding is no pointer */
        __builtin_clear_padding(&bare);
        for (size_t k = 0; alignof(T) >= alignof(void *) && k + sizeof(void *) <= sizeof(T);
             k += sizeof(void *)) {
            const void *p;
            memcpy(&p, reinterpret_cast<const char *>(&bare) + k, sizeof p);
            if (!rd_emulated_argument(gpu, st, kernel, i, p, false)) return false;
        }
    }
    return true;
}

template <typename... P, size_t... I>
static inline void rd_emulated_call_of(const void *f, void *const *param, std::index_sequence<I...>)
{
    (void)param;
    reinterpret_cast<void (*)(P...)>(const_cast<void *>(f))(*static_cast<P *>(param[I])...);
}
template <typename... P> static void rd_emulated_call(const void *f, void *const *param)
{
    rd_emulated_call_of<P...>(f, param, std::index_sequence_for<P...>());
}
/* Returns the function that runs one thread of a kernel with these parameters. */
template <typename... P> static inline auto rd_emulated_caller(const void *f, const char *name)
{
    static const size_t bytes[] = {sizeof(P)..., 0};
    rd_emulated_kernel(f, name, rd_emulated_call<P...>, bytes, sizeof...(P));
    return rd_emulated_call<P...>;
}

#define RD_SHARED(type, name) type *name = reinterpret_cast<type *>(rd_emulated_shared())

/* ---- waiting for each other ---- */
#define RD_EMULATED_HERE (__FILE__ ":" RD_STR(__LINE__))
#define __syncthreads() rd_emulated_barrier(RD_EMULATED_HERE)
#define __syncwarp(...) \
    ((void)rd_emulated_warp(2, rd_emulated_mask(__VA_ARGS__), 0, 0, RD_EMULATED_HERE))
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline unsigned rd_emulated_mask(unsigned mask = 0xffffffffu)
{
    return mask;
}

static inline int rd_emulated_lane()
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}
template <typename T>
static inline T rd_emulated_shuffle(unsigned mask, T x, int src, const char *where)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles exchange 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = rd_emulated_warp(0, mask, bits, src, where);
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Lanes are divided into segments of `width`. A read outside the segment gives the lane's own
 * value. */
static inline int rd_emulated_xor(int d, int width = 32)
{
    const int lane = rd_emulated_lane(), src = lane ^ d;
    return src / width > lane / width ? lane : src;
}
static inline int rd_emulated_down(int d, int width = 32)
{
    const int lane = rd_emulated_lane();
    return lane % width + d < width ? lane + d : lane;
}
static inline int rd_emulated_up(int d, int width = 32)
{
    const int lane = rd_emulated_lane();
    return lane % width >= d ? lane - d : lane;
}
static inline int rd_emulated_index(int i, int width = 32)
{
    const int lane = rd_emulated_lane();
    return lane / width * width + (int)((unsigned)i % (unsigned)width);
}
#define __shfl_xor_sync(mask, x, ...) \
    rd_emulated_shuffle((mask), (x), rd_emulated_xor(__VA_ARGS__), RD_EMULATED_HERE)
#define __shfl_down_sync(mask, x, ...) \
    rd_emulated_shuffle((mask), (x), rd_emulated_down(__VA_ARGS__), RD_EMULATED_HERE)
#define __shfl_up_sync(mask, x, ...) \
    rd_emulated_shuffle((mask), (x), rd_emulated_up(__VA_ARGS__), RD_EMULATED_HERE)
#define __shfl_sync(mask, x, ...) \
    rd_emulated_shuffle((mask), (x), rd_emulated_index(__VA_ARGS__), RD_EMULATED_HERE)
#define __ballot_sync(mask, p) \
    ((unsigned)rd_emulated_warp(1, (mask), (p) ? 1 : 0, 0, RD_EMULATED_HERE))
#define __any_sync(mask, p) (__ballot_sync((mask), (p)) != 0)
#define __all_sync(mask, p) (__ballot_sync((mask), !(p)) == 0)
static inline unsigned __activemask()
{
    return 0xffffffffu;
}

/* ---- atomics: only one fiber runs at a time ---- */
#define RD_EMULATED_ATOMIC(name, result)                                      \
    template <typename T> static inline T name(T *p, std::common_type_t<T> x) \
    {                                                                         \
        const T old = *p;                                                     \
        *p = (T)(result);                                                     \
        return old;                                                           \
    }
RD_EMULATED_ATOMIC(atomicAdd, old + x)
RD_EMULATED_ATOMIC(atomicSub, old - x)
RD_EMULATED_ATOMIC(atomicMax, x > old ? x : old)
RD_EMULATED_ATOMIC(atomicMin, x < old ? x : old)
RD_EMULATED_ATOMIC(atomicOr, old | x)
RD_EMULATED_ATOMIC(atomicAnd, old &x)
RD_EMULATED_ATOMIC(atomicXor, old ^ x)
RD_EMULATED_ATOMIC(atomicExch, x)
template <typename T>
static inline T atomicCAS(T *p, std::common_type_t<T> compare, std::common_type_t<T> x)
{
    const T old = *p;
    if (old == compare) *p = x;
    return old;
}

/* ---- functions that C has not ---- */
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T x)
{
    *p = x;
}
template <typename T> static inline void __stcg(T *p, T x)
{
    *p = x;
}

template <typename To, typename From> static inline To rd_emulated_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x)
{
    return rd_emulated_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return rd_emulated_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return rd_emulated_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return rd_emulated_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return rd_emulated_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return rd_emulated_bits<double>(x);
}
static inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}
static inline int __float2int_rz(float x)
{
    return (int)x;
}
static inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}
static inline int __float2int_ru(float x)
{
    return (int)ceilf(x);
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((uint64_t)a * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float __saturatef(float x)
{
    return x > 0.0f ? x < 1.0f ? x : 1.0f : 0.0f;
} /* NaN: 0 */
/* Functions with one rounding each, never joined to a fused operation. */
template <typename T> static inline T rd_emulated_rounded(T x)
{
    asm("" : "+x"(x));
    return x;
}
static inline float __fadd_rn(float a, float b)
{
    return rd_emulated_rounded(rd_emulated_rounded(a) + b);
}
static inline float __fsub_rn(float a, float b)
{
    return rd_emulated_rounded(rd_emulated_rounded(a) - b);
}
static inline float __fmul_rn(float a, float b)
{
    return rd_emulated_rounded(a * b);
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return rd_emulated_rounded(rd_emulated_rounded(a) + b);
}
static inline double __dmul_rn(double a, double b)
{
    return rd_emulated_rounded(a * b);
}

#define RD_EMULATED_LEAST(T)      \
    static inline T min(T a, T b) \
    {                             \
        return b < a ? b : a;     \
    }                             \
    static inline T max(T a, T b) \
    {                             \
        return a < b ? b : a;     \
    }
RD_EMULATED_LEAST(int)
RD_EMULATED_LEAST(unsigned)
RD_EMULATED_LEAST(long)
RD_EMULATED_LEAST(unsigned long)
RD_EMULATED_LEAST(long long)
RD_EMULATED_LEAST(unsigned long long)
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

#endif
