/* rmsprop.cu -- the rule of rmsprop.c on a GPU. */
#include "rmsprop.h"
#include "../update_kernel.h"

namespace
{
struct rmsprop {
    enum { SLOTS = 2 };
    float lr, mu, eps, decay, rest;
    rmsprop(const rd_optim_sweep *s)
    {
        const rmsprop_keys *k = static_cast<const rmsprop_keys *>(s->own);
        lr = (float)s->lr;
        mu = (float)k->momentum;
        eps = (float)k->epsilon;
        decay = (float)k->decay;
        rest = (float)(1.0 - k->decay);
    }
    __device__ void operator()(float &w, float g, float *slot) const
    {
        slot[0] = decay * slot[0] + rest * (g * g);
        slot[1] = mu * slot[1] + lr * g / sqrtf(slot[0] + eps);
        w -= slot[1];
    }
};
} // namespace

RD_GPU_RULE(rmsprop)
