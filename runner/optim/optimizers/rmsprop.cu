/* rmsprop.cu -- the rule of rmsprop.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct rmsprop {
    enum { SLOTS = 2 };
    float lr, mu, eps, decay, rest;
    rmsprop(const rd_optim_sweep *s)
        : lr((float)s->lr), mu((float)s->c->rmsprop_momentum), eps((float)s->c->rmsprop_epsilon),
          decay((float)s->c->rmsprop_decay), rest((float)(1.0 - s->c->rmsprop_decay))
    {
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
