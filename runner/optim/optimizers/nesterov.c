/* nesterov.c -- Nesterov's momentum in the form of Sutskever et al. 2013 that TensorFlow
 * (use_nesterov) and PyTorch have: the step looks ahead along the momentum.
 *   a = mu a + g,   w -= lr (g + mu a),   a starts at 0
 * Rows of embeddings without a token keep weight and a, as with momentum. */
#include "rd/optim.h"

static void nesterov_update(const rd_update *u)
{
    const float lr = (float)u->lr, mu = (float)u->c->opt_momentum;
    float *restrict w = u->w, *restrict a = u->slot[0];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float ai = mu * a[i] + g[i];
        a[i] = ai;
        w[i] -= lr * (g[i] + mu * ai);
    }
}

RD_OPTIMIZER(nesterov) = {.name = "nesterov",
                          .about = "a = opt_momentum a + g; w -= lr (g + opt_momentum a)",
                          .group = &rd_group_momentum,
                          .n_slots = 1,
                          .slot_name = {"momentum"},
                          .skips_zero_rows = true,
                          .update = nesterov_update,
                          .gpu_update = RD_GPU_ENTRY(rd_cuda_update_nesterov)};
