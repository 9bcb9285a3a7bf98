/* adagrad.cu -- the rule of adagrad.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct adagrad {
    enum { SLOTS = 1 };
    float lr;
    adagrad(const rd_optim_sweep *s) : lr((float)s->lr) {}
    __device__ void operator()(float &w, float g, float *slot) const
    {
        slot[0] += g * g;
        w -= lr * g / sqrtf(slot[0]);
    }
};
} // namespace

RD_GPU_RULE(adagrad)
