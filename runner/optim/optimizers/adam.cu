/* adam.cu -- the rule of adam.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct adam {
    enum { SLOTS = 2 };
    float alpha, b1, c1, b2, c2, eps;
    adam(const rd_optim_sweep *s)
    {
        const rd_optim_config *c = s->c;
        const double t = (double)s->t;
        alpha = (float)(s->lr * sqrt(1.0 - pow(c->adam_beta2, t)) / (1.0 - pow(c->adam_beta1, t)));
        b1 = (float)c->adam_beta1;
        c1 = (float)(1.0 - c->adam_beta1);
        b2 = (float)c->adam_beta2;
        c2 = (float)(1.0 - c->adam_beta2);
        eps = (float)c->adam_epsilon;
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
