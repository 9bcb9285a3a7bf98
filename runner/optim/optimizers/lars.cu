/* lars.cu -- the rule of lars.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct lars {
    enum { SLOTS = 1 };
    float lr, mu;
    lars(const rd_optim_sweep *s) : lr((float)s->lr), mu((float)s->c->opt_momentum) {}
    __device__ void operator()(float &w, float g, float *slot) const
    {
        slot[0] = mu * slot[0] + lr * g;
        w -= slot[0];
    }
};
} // namespace

RD_GPU_RULE(lars)
