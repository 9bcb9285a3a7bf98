/* sgd.c -- plain gradient descent.   w -= lr g */
#include "rd/optim.h"

static void sgd_update(const rd_update *u)
{
    const float lr = (float)u->lr;
    float *restrict w = u->w;
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) w[i] -= lr * g[i];
}

RD_OPTIMIZER(sgd) = {.name = "sgd",
                     .about = "w -= lr g",
                     .update = sgd_update,
                     .gpu_update = RD_GPU_ENTRY(rd_cuda_update_sgd)};
