/* signum.cu -- the rule of signum.c on a GPU. */
#include "signum.h"
#include "../update_kernel.h"

namespace
{
struct signum {
    enum { SLOTS = 1 };
    float lr, mu, rest;
    signum(const rd_optim_sweep *s)
    {
        const signum_keys *k = static_cast<const signum_keys *>(s->own);
        lr = (float)s->lr;
        mu = (float)k->momentum;
        rest = (float)(1.0 - k->momentum);
    }
    __device__ void operator()(float &w, float g, float *slot) const
    {
        const float m = mu * slot[0] + rest * g;
        slot[0] = m;
        w -= m > 0.0f ? lr : m < 0.0f ? -lr : 0.0f;
    }
};
} // namespace

RD_GPU_RULE(signum)
