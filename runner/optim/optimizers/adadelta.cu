/* adadelta.cu -- the rule of adadelta.c on a GPU. */
#include "adadelta.h"
#include "../update_kernel.h"

namespace
{
struct adadelta {
    enum { SLOTS = 2 };
    float lr, eps, rho, rest;
    adadelta(const rd_optim_sweep *s)
    {
        const adadelta_keys *k = static_cast<const adadelta_keys *>(s->own);
        lr = (float)s->lr;
        eps = (float)k->epsilon;
        rho = (float)k->rho;
        rest = (float)(1.0 - k->rho);
    }
    __device__ void operator()(float &w, float g, float *slot) const
    {
        const float a = rho * slot[0] + rest * (g * g), d = slot[1];
        const float u = sqrtf(d + eps) / sqrtf(a + eps) * g;
        slot[0] = a;
        slot[1] = rho * d + rest * (u * u);
        w -= lr * u;
    }
};
} // namespace

RD_GPU_RULE(adadelta)
