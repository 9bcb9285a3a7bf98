/* loss_sum.h -- for kernels of losses: one block sums doubles in a fixed order. */
#ifndef RD_LOSS_SUM_H
#define RD_LOSS_SUM_H

#include "../../engine/gpu/kernel.h"

enum { RD_LOSS_THREADS = 512 };

/* Sums gridDim.x arrays, one block each: sum[k] = x[k n] + ... + x[(k + 1) n - 1]. The first sum is
 * also stored in *loss. */
static __global__ void rd_loss_sum(int64_t n, const double *__restrict__ x,
                                   double *__restrict__ sum, float *__restrict__ loss)
{
    const double *from = x + blockIdx.x * n;
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += from[i];
    s = rd_block_sum(s);
    if (threadIdx.x != 0) return;
    sum[blockIdx.x] = s;
    if (blockIdx.x == 0) *loss = (float)s;
}

#endif
