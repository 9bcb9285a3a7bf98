/* loss_sum.h -- for kernels of losses: sums of doubles by one block, in a fixed order. */
#ifndef RD_LOSS_SUM_H
#define RD_LOSS_SUM_H

#include "../../engine/cuda/kernel.h"

enum { RD_LOSS_THREADS = 512 };

/* A block for each of gridDim.x arrays: sum[k] = x[k n] + ... + x[(k + 1) n - 1]. The first one's goes to *loss, too. */
static __global__ void rd_loss_sum(int64_t n, const double *__restrict__ x, double *__restrict__ sum, float *__restrict__ loss)
{
    const double *from = x + blockIdx.x * n;
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += from[i];
    s = rd_block_sum(s);
    if (threadIdx.x != 0) return;
    sum[blockIdx.x] = s;
    if (blockIdx.x == 0) *loss = (float)s;
}

/* The smallest of the block's numbers, and every thread gets it. */
static __device__ inline int rd_block_least(int x)
{
    __shared__ int part[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = (blockDim.x + 31) / 32;
    for (int d = 16; d > 0; d >>= 1) {
        const int y = __shfl_xor_sync(0xffffffffu, x, d);
        x = y < x ? y : x;
    }
    __syncthreads();
    if (lane == 0) part[warp] = x;
    __syncthreads();
    int least = part[0];
    for (int w = 1; w < n; w++) least = part[w] < least ? part[w] : least;
    return least;
}

#endif
