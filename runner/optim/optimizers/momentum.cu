/* momentum.cu -- the rule of momentum.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct momentum {
    enum { SLOTS = 1 };
    float lr, mu;
    momentum(const rd_optim_sweep *s) : lr((float)s->lr), mu((float)s->c->opt_momentum) {}
    __device__ void operator()(float &w, float g, float *slot) const
    {
        slot[0] = mu * slot[0] + g;
        w -= lr * slot[0];
    }
};
} // namespace

RD_GPU_RULE(momentum)
