/* momentum.c -- heavy ball, not Nesterov.
 *   a = mu a + g,   w -= lr a,   a starts at 0
 * TensorFlow gives it sparse gradients of embeddings, so rows without a token of the batch keep
 * weight and a. */
#include "rd/optim.h"

static void momentum_update(const rd_update *u)
{
    const float lr = (float)u->lr, mu = (float)u->c->opt_momentum;
    float *restrict w = u->w, *restrict a = u->slot[0];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float ai = mu * a[i] + g[i];
        a[i] = ai;
        w[i] -= lr * ai;
    }
}

/* OpenSeq2Seq's configs have opt_momentum beside any optimizer. */
static const rd_option momentum_rows[] = {
    RD_OPT_REAL(rd_optim_config, opt_momentum, opt_momentum, "0.9", 0.0, 1.0,
                "momentum, nesterov, lars: share of the last step that is kept", RD_CARRIED),
    RD_OPT_END};
const rd_option_group rd_group_momentum = {"momentum", "optimizers momentum, nesterov and lars",
                                           momentum_rows, sizeof(rd_optim_config)};

RD_OPTIMIZER(momentum) = {.name = "momentum",
                          .about = "a = opt_momentum a + g; w -= lr a",
                          .group = &rd_group_momentum,
                          .n_slots = 1,
                          .slot_name = {"momentum"},
                          .skips_zero_rows = true,
                          .update = momentum_update,
                          .gpu_update = RD_GPU_ENTRY(rd_cuda_update_momentum)};
