/* rmsprop.c -- Tieleman and Hinton 2012, as TensorFlow has it: epsilon under the root, the rate
 * inside the momentum, and a mean square that starts at 1.
 *   s = decay s + (1 - decay) g^2,   m = mu m + lr g / sqrt(s + eps),   w -= m
 * Rows of embeddings without a token keep weight, s and m. */
#include "rmsprop.h"
#include "rd/optim.h"
#include <math.h>

static double rmsprop_slot_init(const void *own, int slot)
{
    (void)own;
    return slot == 0 ? 1.0 : 0.0;
}

static void rmsprop_update(const rd_update *u)
{
    const rmsprop_keys *k = u->own;
    const float lr = (float)u->lr, mu = (float)k->momentum, eps = (float)k->epsilon;
    const float decay = (float)k->decay, rest = (float)(1.0 - k->decay);
    float *restrict w = u->w, *restrict s = u->slot[0], *restrict m = u->slot[1];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float si = decay * s[i] + rest * (g[i] * g[i]);
        const float mi = mu * m[i] + lr * g[i] / sqrtf(si + eps);
        s[i] = si;
        m[i] = mi;
        w[i] -= mi;
    }
}

static const rd_option rmsprop_rows[] = {
    RD_OPT_REAL(rmsprop_keys, rmsprop_decay, decay, "0.9", 0.0, 1.0,
                "rmsprop: decay of the mean square"),
    RD_OPT_REAL(rmsprop_keys, rmsprop_momentum, momentum, "0.9", 0.0, 1.0,
                "rmsprop: share of the last step that is kept"),
    RD_OPT_REAL(rmsprop_keys, rmsprop_epsilon, epsilon, "1.0", 1e-30, 1e6,
                "rmsprop: added under the root. 1.0 as in tf_cnn_benchmarks; the default of "
                "TensorFlow is 1e-10"),
    RD_OPT_END};
static const rd_option_group rmsprop_group = {"rmsprop", "optimizer rmsprop", rmsprop_rows,
                                              sizeof(rmsprop_keys)};

RD_OPTIMIZER(rmsprop) = {.name = "rmsprop",
                         .about = "Tieleman and Hinton 2012, with momentum",
                         .own = &rmsprop_group,
                         .n_slots = 2,
                         .slot_name = {"rms", "momentum"},
                         .slot_init = rmsprop_slot_init,
                         .skips_zero_rows = true,
                         .update = rmsprop_update,
                         .gpu_update = RD_GPU_ENTRY(rd_cuda_update_rmsprop)};
