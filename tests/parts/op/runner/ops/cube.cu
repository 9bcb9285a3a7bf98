/* cube.cu -- the kernels of cube.c for a GPU. */
#include "rd/ops.h"
#include "../engine/gpu/kernel.h"

static __global__ void cube_forward(int64_t n, const float *__restrict__ x, float *__restrict__ y)
{
    for (RD_EACH(i, n)) y[i] = x[i] * x[i] * x[i];
}

static __global__ void cube_backward(int64_t n, const float *__restrict__ x,
                                     const float *__restrict__ dy, float *__restrict__ dx)
{
    for (RD_EACH(i, n)) dx[i] += 3.0f * x[i] * x[i] * dy[i];
}

extern "C" rd_code rd_cuda_cube_forward(rd_call *c, rd_status *st)
{
    const int64_t n = c->in[0]->rows * c->in[0]->cols;
    return RD_LAUNCH(rd_gpu_of(c->be), st, cube_forward, rd_grid(n), RD_BLOCK, 0, n, c->in[0]->v,
                     c->out[0]->v);
}

extern "C" rd_code rd_cuda_cube_backward(rd_call *c, rd_status *st)
{
    const int64_t n = c->in[0]->rows * c->in[0]->cols;
    if (!c->in[0]->g) return RD_OK;
    return RD_LAUNCH(rd_gpu_of(c->be), st, cube_backward, rd_grid(n), RD_BLOCK, 0, n, c->in[0]->v,
                     c->out[0]->g, c->in[0]->g);
}
