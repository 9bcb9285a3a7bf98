/* kernel_call.h -- a kernel launch as bytes. kernel.h makes it; a gpu starts it, at once or in a
 * graph.
 *
 * Padding is zero, so equal launches have equal bytes. */
#ifndef RD_KERNEL_CALL_H
#define RD_KERNEL_CALL_H

#include "rd/gpu.h"

RD_C_BEGIN

enum { RD_MOST_PARAMS = 16, RD_PARAM_ALIGN = 16 };

typedef struct rd_kernel_call {
    const char *name;
    const void *function; /* for CUDA */
    /* for host code: runs one thread; else NULL */
    void (*call)(const void *function, void *const *param);
    /* n: number of parameters; at: their offsets in bytes from the start of this struct */
    uint32_t n, at[RD_MOST_PARAMS];
    /* The fields above stay unchanged in a graph. */
    uint32_t grid[3], block[3], shared;
} rd_kernel_call;

static inline void rd_kernel_params(const rd_kernel_call *c, void **param)
{
    for (uint32_t i = 0; i < c->n; i++) param[i] = (void *)((uintptr_t)c + c->at[i]);
}

/* Launches a kernel. bytes: size of the call and its parameters, which are copied. */
rd_code rd_gpu_launch(rd_gpu *g, const rd_kernel_call *c, size_t bytes, rd_status *st);

RD_C_END
#endif
