/* adamw.c -- Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101) in the
 * form of torch.optim.AdamW: epsilon is added to the root of the corrected moment.
 *   m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2
 *   w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w),   t from 1
 * The moments do not include the decay. */
#include "adam.h"
#include "rd/optim.h"
#include <math.h>

static void adamw_update(const rd_update *u)
{
    const adamw_keys *k = u->own;
    const double t = (double)u->t;
    const float alpha = (float)(u->lr / (1.0 - pow(k->beta1, t)));
    const float root = (float)(1.0 / sqrt(1.0 - pow(k->beta2, t)));
    const float b1 = (float)k->beta1, c1 = (float)(1.0 - k->beta1);
    const float b2 = (float)k->beta2, c2 = (float)(1.0 - k->beta2);
    const float eps = (float)k->epsilon, shrink = (float)(u->lr * u->decay);
    float *restrict w = u->w, *restrict m = u->slot[0], *restrict v = u->slot[1];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float mi = b1 * m[i] + c1 * g[i];
        const float vi = b2 * v[i] + c2 * (g[i] * g[i]);
        m[i] = mi;
        v[i] = vi;
        w[i] -= alpha * mi / (sqrtf(vi) * root + eps) + shrink * w[i];
    }
}

static bool adamw_decays(const void *own, const rd_param *p)
{
    const adamw_keys *k = own;
    return k->decay_exclude == ADAMW_EXCLUDE_NONE ||
           (p->n_dim >= 2 && !(p->flags & RD_PARAM_NO_DECAY));
}

static const char *const adamw_excludes[] = {
    [ADAMW_EXCLUDE_1D] = "1d", [ADAMW_EXCLUDE_NONE] = "none", NULL};
static const rd_option adamw_rows[] = {
    RD_ADAM_ROWS(adamw_keys),
    RD_OPT_ENUM(adamw_keys, decay_exclude, decay_exclude, "\"1d\"", adamw_excludes,
                "adamw: what weight_decay leaves out. 1d: biases, the factors of norms and all "
                "variables of fewer than two dimensions; none: nothing"),
    RD_OPT_END};
static const rd_option_group adamw_group = {"adamw", "optimizer adamw", adamw_rows,
                                            sizeof(adamw_keys)};

RD_OPTIMIZER(adamw) = {.name = "adamw",
                       .about = "Adam with decoupled weight decay, as in PyTorch",
                       .own = &adamw_group,
                       .n_slots = 2,
                       .slot_name = {"m", "v"},
                       .decays = adamw_decays,
                       .update = adamw_update,
                       .gpu_update = RD_GPU_ENTRY(rd_cuda_update_adamw)};
