/* adam.cu -- the rule of adam.c on a GPU. */
#include "adam.h"
#include "../update_kernel.h"

namespace
{
struct adam {
    enum { SLOTS = 2 };
    float alpha, b1, c1, b2, c2, eps;
    adam(const rd_optim_sweep *s)
    {
        const adam_keys *k = static_cast<const adam_keys *>(s->own);
        const double t = (double)s->t;
        alpha = (float)(s->lr * sqrt(1.0 - pow(k->beta2, t)) / (1.0 - pow(k->beta1, t)));
        b1 = (float)k->beta1;
        c1 = (float)(1.0 - k->beta1);
        b2 = (float)k->beta2;
        c2 = (float)(1.0 - k->beta2);
        eps = (float)k->epsilon;
    }
    __device__ void operator()(float &w, float g, float *slot) const
    {
        const float m = b1 * slot[0] + c1 * g, v = b2 * slot[1] + c2 * (g * g);
        slot[0] = m;
        slot[1] = v;
        w -= alpha * m / (sqrtf(v) + eps);
    }
};
} // namespace

RD_GPU_RULE(adam)
