/* optim_gpu.h -- the arguments of the kernels that do the update of optim_sweeps.c on a GPU. */
#ifndef RD_OPTIM_GPU_H
#define RD_OPTIM_GPU_H

#include "optim_impl.h"

/* A block, as in rd_optim_block. */
typedef struct rd_gpu_block {
    int64_t lo, at;
    int32_t n, param, row;
} rd_gpu_block;

typedef struct rd_gpu_param {
    float decay;      /* weight decay that the gradient gets; 0: none */
    float decoupled;  /* weight decay that the rule gets; 0: none */
    float keep, rest; /* the update of a running statistic is v = keep v + rest g */
    int32_t state;    /* RD_PARAM_STATE: a running statistic */
    int32_t no_decay; /* RD_PARAM_NO_DECAY */
    int32_t first, n; /* first block in the list for norms, and number of blocks */
} rd_gpu_param;

/* The result of the first sweep, in GPU memory. The update reads it there, and the host gets a copy
 * after the step. The sum of squares of each parameter's gradient follows it in memory. */
typedef struct rd_gpu_outcome {
    double total;   /* sum of squares of all gradients after scaling */
    double decayed; /* sum of squares of the weights with weight decay */
    float clip;     /* factor of clipping */
    int32_t finite; /* 0: the update does nothing */
    /* n - b, b: the lowest of the n blocks that does not have its checksum; 0: there is none */
    int32_t damaged;
    int32_t unused;
} rd_gpu_outcome;

/* The arguments of a kernel. All pointers are GPU memory. */
typedef struct rd_gpu_arrays {
    const rd_gpu_block *block; /* those that this rank updates */
    int64_t n_blocks;
    const rd_gpu_param *param;
    const float *factor; /* factor of LARS by parameter; NULL: 1 */
    const rd_gpu_outcome *outcome;
    float *w, *g, *slot[3];
    float scale;
    int32_t zero; /* 1: the update leaves zeros in g; 0: the scaled and clipped gradient */
} rd_gpu_arrays;

/* One update. The fields are those of rd_update; `on`: arguments of the kernel. */
struct rd_optim_sweep {
    const rd_optim_config *c;
    const void *own;
    double lr;
    int64_t t;
    rd_gpu_arrays on;
};

#endif
