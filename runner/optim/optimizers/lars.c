/* lars.c -- You et al. 2017 (arXiv:1708.03888) as MLPerf trains ResNet-50 with it: the rate is inside the momentum.
 *   v = mu v + lr r (g + wd w),   w -= v,   v starts at 0
 * What comes as g here is r (g + wd w): the caller knows the norms (rd_optimizer_def.trust_ratio). Biases and the
 * factors of norms come as plain g. */
#include "rd/optim.h"

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
    RD_OPT_REAL(rd_optim_config, lars_eta, lars_eta, "0.001", 0.0, 1e6,
                "lars: the trust ratio of a variable is lars_eta |w| / (|g| + weight_decay |w| + "
                "lars_epsilon)"),
    RD_OPT_REAL(rd_optim_config, lars_epsilon, lars_epsilon, "0.0", 0.0, 1e6,
                "lars: added to the denominator of the trust ratio"),
    RD_OPT_END};
static const rd_option_group lars_group = {"lars", "optimizer lars", lars_rows,
                                           sizeof(rd_optim_config)};

RD_OPTIMIZER(lars) = {.name = "lars",
                      .about = "You et al. 2017: a trust ratio for each variable",
                      .group = &rd_group_momentum,
                      .own = &lars_group,
                      .n_slots = 1,
                      .slot_name = {"momentum"},
                      .trust_ratio = true,
                      .update = lars_update,
                      .gpu_update = RD_GPU_ENTRY(rd_cuda_update_lars)};
