/* adadelta.cu -- the rule of adadelta.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct adadelta {
    enum { SLOTS = 2 };
    float lr, eps, rho, rest;
    adadelta(const rd_optim_sweep *s)
        : lr((float)s->lr), eps((float)s->c->adadelta_epsilon), rho((float)s->c->adadelta_rho),
          rest((float)(1.0 - s->c->adadelta_rho))
    {
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
