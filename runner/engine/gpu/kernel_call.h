/* kernel_call.h -- a launch of a kernel as bytes: what kernel.h makes of it, and what a gpu starts, at once or as part
 * of a graph. Padding is zero, so that equal launches are equal bytes. */
#ifndef RD_KERNEL_CALL_H
#define RD_KERNEL_CALL_H

#include "rd/gpu.h"

RD_C_BEGIN

enum { RD_MOST_PARAMS = 16, RD_PARAM_ALIGN = 16 };

typedef struct rd_kernel_call {
    const char *name;
    const void *function; /* for CUDA */
    void (*call)(const void *function,
                 void *const *param); /* of host code: one thread; else NULL */
    uint32_t n, at[RD_MOST_PARAMS]; /* parameters, and where they begin behind the start of this */
    /* What is above stays the same in a graph. */
    uint32_t grid[3], block[3], shared;
} rd_kernel_call;

static inline void rd_kernel_params(const rd_kernel_call *c, void **param)
{
    for (uint32_t i = 0; i < c->n; i++) param[i] = (void *)((uintptr_t)c + c->at[i]);
}

/* bytes: of the call and its parameters; they are copied. */
rd_code rd_gpu_launch(rd_gpu *g, const rd_kernel_call *c, size_t bytes, rd_status *st);

RD_C_END
#endif
