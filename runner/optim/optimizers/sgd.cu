/* sgd.cu -- the rule of sgd.c on a GPU. */
#include "../update_kernel.h"

namespace
{
struct sgd {
    enum { SLOTS = 0 };
    float lr;
    sgd(const rd_optim_sweep *s) : lr((float)s->lr) {}
    __device__ void operator()(float &w, float g, float *) const { w -= lr * g; }
};
} // namespace

RD_GPU_RULE(sgd)
