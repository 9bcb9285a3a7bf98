/* kernel.h -- what .cu files share: launches of kernels, sums over a block, philox on the device.
 *
 * A .cu file contains kernels and the functions that start them, as extern "C". Its host code
 * leaves with RD_TRY_OR_RETURN, because C++ allows no goto over initialisations.
 *
 * tests/support/emulated also compiles the file as host code, so it uses only what the emulation
 * has: threadIdx, blockIdx, blockDim, gridDim (x, y, z), RD_SHARED, __shared__ arrays of constant
 * size, __syncthreads, __shfl_xor_sync, __shfl_down_sync, __shfl_sync, __ballot_sync with all 32
 * lanes, atomicAdd on float and int, atomicMax, atomicOr on int, and the mathematical functions.
 * All threads of a block must reach the same __syncthreads.
 *
 * Sums have a fixed order. There is no atomicAdd on floating-point numbers whose order could affect
 * a result. */
#ifndef RD_KERNEL_H
#define RD_KERNEL_H

#include "kernel_call.h"
#include <math.h>
#include <string.h>
#include <type_traits>

#define RD_TRY_OR_RETURN(call)                \
    do {                                      \
        if ((call) != RD_OK) return st->code; \
    } while (0)

#ifndef RD_EMULATED
#include <cuda_runtime.h>
/* Declares the dynamic shared memory of a kernel, as one array or several arrays cut by hand. */
#define RD_SHARED(type, name)                                \
    extern __shared__ __align__(16) unsigned char rd_smem[]; \
    type *name = reinterpret_cast<type *>(rd_smem)
#endif

/* RD_LAUNCH(gpu, st, kernel, grid, block, shared bytes, arguments...) is an expression of type
 * rd_code. grid and block: dim3 or a number. Nothing happens for an empty grid (0). */
#define RD_LAUNCH(gpu, st, kernel, grid, block, shared, ...) \
    rd_launch((gpu), (st), #kernel, dim3(grid), dim3(block), (shared), kernel, __VA_ARGS__)

template <typename P> static inline void rd_pack(rd_kernel_call *c, size_t *at, P x)
{
    static_assert(std::is_trivially_copyable<P>::value && alignof(P) <= RD_PARAM_ALIGN,
                  "a kernel gets plain values");
    if constexpr (std::is_class<P>::value) __builtin_clear_padding(&x);
    c->at[c->n++] = (uint32_t)*at;
    memcpy(reinterpret_cast<char *>(c) + *at, &x, sizeof x);
    *at += (sizeof x + RD_PARAM_ALIGN - 1) / RD_PARAM_ALIGN * RD_PARAM_ALIGN;
}

template <typename... P, typename... A>
static inline rd_code rd_launch(rd_gpu *gpu, rd_status *st, const char *name, dim3 grid, dim3 block,
                                size_t shared, void (*kernel)(P...), A... a)
{
    static_assert(sizeof...(P) == sizeof...(A) && sizeof...(P) <= RD_MOST_PARAMS,
                  "as many arguments as parameters");
    constexpr size_t head = (sizeof(rd_kernel_call) + RD_PARAM_ALIGN - 1) / RD_PARAM_ALIGN *
                            RD_PARAM_ALIGN;
    alignas(
        RD_PARAM_ALIGN) unsigned char bytes[head + ((sizeof(P) + RD_PARAM_ALIGN) + ... + 0)] = {};
    rd_kernel_call *c = reinterpret_cast<rd_kernel_call *>(bytes);
    size_t at = head;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return RD_OK;
    c->name = name;
    c->function = reinterpret_cast<const void *>(kernel);
    c->grid[0] = grid.x, c->grid[1] = grid.y, c->grid[2] = grid.z;
    c->block[0] = block.x, c->block[1] = block.y, c->block[2] = block.z;
    c->shared = (uint32_t)shared;
#ifdef RD_EMULATED
    c->call = rd_emulated_caller<P...>(c->function, name);
    int i = 0;
    bool fine = true;
    ((fine = fine && rd_emulated_check<P>(gpu, st, name, ++i, a)), ...);
    if (!fine) return st->code;
#endif
    (rd_pack<P>(c, &at, a), ...);
    return rd_gpu_launch(gpu, c, at, st);
}

enum { RD_BLOCK = 256 };
/* Returns the number of blocks for a grid-stride loop over n elements. The blocks fill any GPU, and
 * all of them can start at once. */
static inline unsigned rd_grid(int64_t n, int per_block = RD_BLOCK)
{
    const int64_t b = (n + per_block - 1) / per_block;
    return (unsigned)(b < 4096 ? b : 4096);
}
/* The head of a grid-stride loop, for (RD_EACH(i, n)), in a kernel started with rd_grid(n). */
#define RD_EACH(i, n)                                           \
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; \
    i < (n);                                                    \
    i += (int64_t)gridDim.x * blockDim.x

/* Returns the sum over the threads of a warp, in a fixed tree. Each thread gets it. */
template <typename T> static __device__ inline T rd_warp_sum(T x)
{
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Joins x of all threads of the block, two at a time in a fixed tree. Every thread gets the result.
 * The block has a multiple of 32 threads, at most 1024; all of them call it. Join: a struct with
 * static T of(T, T). */
template <typename Join, typename T> static __device__ inline T rd_block_join(T x)
{
    __shared__ T part[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = (blockDim.x + 31) / 32;
    for (int d = 16; d > 0; d >>= 1) x = Join::of(x, __shfl_xor_sync(0xffffffffu, x, d));
    __syncthreads();
    if (lane == 0) part[warp] = x;
    __syncthreads();
    T all = part[0];
    for (int w = 1; w < n; w++) all = Join::of(all, part[w]);
    return all;
}
struct rd_join_sum {
    template <typename T> static __device__ inline T of(T x, T y) { return x + y; }
};
/* The maximum; NaN wins. */
struct rd_join_max {
    static __device__ inline float of(float x, float y) { return y > x || isnan(y) ? y : x; }
};
struct rd_join_least {
    static __device__ inline int of(int x, int y) { return y < x ? y : x; }
};
template <typename T> static __device__ inline T rd_block_sum(T x)
{
    return rd_block_join<rd_join_sum>(x);
}
static __device__ inline float rd_block_max(float x)
{
    return rd_block_join<rd_join_max>(x);
}
static __device__ inline int rd_block_least(int x)
{
    return rd_block_join<rd_join_least>(x);
}

#endif
