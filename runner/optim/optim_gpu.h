/* optim_gpu.h -- the update of optim_sweeps.c on a GPU: what its kernels are given. */
#ifndef RD_OPTIM_GPU_H
#define RD_OPTIM_GPU_H

#include "optim_impl.h"

typedef struct rd_gpu_block { /* rd_optim_block */
    int64_t lo;
    int32_t n, param, row;
} rd_gpu_block;

typedef struct rd_gpu_param {
    float decay;      /* weight decay; 0: none */
    float keep, rest; /* of a running statistic: v = keep v + rest g */
    int32_t state, no_decay;
    int32_t first, n; /* its blocks in the list for norms */
} rd_gpu_param;

/* Of the first sweep, on the device; the update reads it there, and the host has a copy after the step. The sums of squares of each
 * parameter's gradient lie behind it. */
typedef struct rd_gpu_outcome {
    double total, decayed; /* sums of squares: gradients after scaling; decayed weights */
    float clip;
    int32_t finite;
} rd_gpu_outcome;

/* What a kernel gets: pointers of the device. */
typedef struct rd_gpu_arrays {
    const rd_gpu_block *block;
    int64_t n_blocks;
    const rd_gpu_param *param;
    const float *factor; /* LARS, by parameter; NULL: 1 */
    const rd_gpu_outcome *outcome;
    float *w, *g, *slot[3];
    float scale;
} rd_gpu_arrays;

struct rd_optim_sweep { /* as in rd_update */
    const rd_optim_config *c;
    double lr;
    int64_t t;
    rd_gpu_arrays on;
};

#endif
