/* adadelta.c -- Zeiler 2012 (arXiv:1212.5701), with a rate in front as in TensorFlow.
 *   a = rho a + (1 - rho) g^2
 *   u = sqrt(d + eps) / sqrt(a + eps) g
 *   d = rho d + (1 - rho) u^2
 *   w -= lr u
 * Rows of embeddings without a token keep weight, a and d. */
#include "adadelta.h"
#include "rd/optim.h"
#include <math.h>

static void adadelta_update(const rd_update *u)
{
    const adadelta_keys *k = u->own;
    const float lr = (float)u->lr, eps = (float)k->epsilon;
    const float rho = (float)k->rho, rest = (float)(1.0 - k->rho);
    float *restrict w = u->w, *restrict a = u->slot[0], *restrict d = u->slot[1];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float ai = rho * a[i] + rest * (g[i] * g[i]);
        const float ui = sqrtf(d[i] + eps) / sqrtf(ai + eps) * g[i];
        a[i] = ai;
        d[i] = rho * d[i] + rest * (ui * ui);
        w[i] -= lr * ui;
    }
}

static const rd_option adadelta_rows[] = {RD_OPT_REAL(adadelta_keys, adadelta_rho, rho, "0.95", 0.0,
                                                      1.0, "adadelta: decay of both accumulators"),
                                          RD_OPT_REAL(adadelta_keys, adadelta_epsilon, epsilon,
                                                      "1e-8", 1e-30, 1e6,
                                                      "adadelta: added under both roots"),
                                          RD_OPT_END};
static const rd_option_group adadelta_group = {"adadelta", "optimizer adadelta", adadelta_rows,
                                               sizeof(adadelta_keys)};

RD_OPTIMIZER(adadelta) = {.name = "adadelta",
                          .about = "Zeiler 2012",
                          .own = &adadelta_group,
                          .n_slots = 2,
                          .slot_name = {"accumulator", "update"},
                          .skips_zero_rows = true,
                          .update = adadelta_update,
                          .gpu_update = RD_GPU_ENTRY(rd_cuda_update_adadelta)};
