/* adamw.cu -- the rule of adamw.c on a GPU. */
#include "adam.h"
#include "../update_kernel.h"

namespace
{
struct adamw {
    enum { SLOTS = 2 };
    float alpha, root, b1, c1, b2, c2, eps;
    double lr;
    adamw(const rd_optim_sweep *s)
    {
        const adamw_keys *k = static_cast<const adamw_keys *>(s->own);
        const double t = (double)s->t;
        lr = s->lr;
        alpha = (float)(s->lr / (1.0 - pow(k->beta1, t)));
        root = (float)(1.0 / sqrt(1.0 - pow(k->beta2, t)));
        b1 = (float)k->beta1;
        c1 = (float)(1.0 - k->beta1);
        b2 = (float)k->beta2;
        c2 = (float)(1.0 - k->beta2);
        eps = (float)k->epsilon;
    }
    __device__ void operator()(float &w, float g, float *slot, float decay) const
    {
        const float m = b1 * slot[0] + c1 * g, v = b2 * slot[1] + c2 * (g * g);
        slot[0] = m;
        slot[1] = v;
        w -= alpha * m / (sqrtf(v) * root + eps) + (float)(lr * (double)decay) * w;
    }
};
} // namespace

RD_GPU_RULE(adamw)
