/* signum.c -- Bernstein et al. 2018 (arXiv:1802.04434): a template of an optimizer with its own
 * key.
 *   m = mu m + (1 - mu) g,   w -= lr sign(m),   m starts at 0 */
#include "signum.h"
#include "rd/optim.h"

static void signum_update(const rd_update *u)
{
    const signum_keys *k = u->own;
    const float lr = (float)u->lr, mu = (float)k->momentum, rest = (float)(1.0 - k->momentum);
    float *restrict w = u->w, *restrict m = u->slot[0];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float mi = mu * m[i] + rest * g[i];
        m[i] = mi;
        w[i] -= mi > 0.0f ? lr : mi < 0.0f ? -lr : 0.0f;
    }
}

static const rd_option signum_rows[] = {
    RD_OPT_REAL(signum_keys, signum_momentum, momentum, "0.9", 0.0, 1.0,
                "signum: share of the mean gradient that is kept"),
    RD_OPT_END};
static const rd_option_group signum_group = {"signum", "optimizer signum", signum_rows,
                                             sizeof(signum_keys)};

RD_OPTIMIZER(signum) = {.name = "signum",
                        .about = "Bernstein et al. 2018: the sign of the mean gradient",
                        .own = &signum_group,
                        .n_slots = 1,
                        .slot_name = {"momentum"},
                        .update = signum_update,
                        .gpu_update = RD_GPU_ENTRY(rd_cuda_update_signum)};
