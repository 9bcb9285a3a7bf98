/* lars.c -- You et al. 2017 (arXiv:1708.03888) in the form with which MLPerf trains ResNet-50: the
 * rate is inside the momentum.
 *   v = mu v + lr r (g + wd w),   w -= v,   v starts at 0
 * g is already r (g + wd w) here, because the caller knows the norms (see
 * rd_optimizer_def.trust_ratio). For biases and the factors of norms it is the plain gradient. */
#include "rd/optim.h"

typedef struct lars_keys {
    double eta, epsilon;
} lars_keys;

static rd_trust_ratio lars_trust_ratio(const void *own)
{
    const lars_keys *k = own;
    return (rd_trust_ratio){k->eta, k->epsilon};
}

static void lars_update(const rd_update *u)
{
    const float lr = (float)u->lr, mu = (float)u->c->opt_momentum;
    float *restrict w = u->w, *restrict v = u->slot[0];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float vi = mu * v[i] + lr * g[i];
        v[i] = vi;
        w[i] -= vi;
    }
}

static const rd_option lars_rows[] = {
    RD_OPT_REAL(lars_keys, lars_eta, eta, "0.001", 0.0, 1e6,
                "lars: the trust ratio of a variable is lars_eta |w| / (|g| + weight_decay |w| + "
                "lars_epsilon)"),
    RD_OPT_REAL(lars_keys, lars_epsilon, epsilon, "0.0", 0.0, 1e6,
                "lars: added to the denominator of the trust ratio"),
    RD_OPT_END};
static const rd_option_group lars_group = {"lars", "optimizer lars", lars_rows, sizeof(lars_keys)};

RD_OPTIMIZER(lars) = {.name = "lars",
                      .about = "You et al. 2017: a trust ratio for each variable",
                      .group = &rd_group_momentum,
                      .own = &lars_group,
                      .n_slots = 1,
                      .slot_name = {"momentum"},
                      .trust_ratio = lars_trust_ratio,
                      .update = lars_update,
                      .gpu_update = RD_GPU_ENTRY(rd_cuda_update_lars)};
