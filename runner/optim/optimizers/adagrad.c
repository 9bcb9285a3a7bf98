/* adagrad.c -- Duchi et al. 2011, as TensorFlow 1.4 has it: a starts at 0.1, without an epsilon.
 *   a += g^2,   w -= lr g / sqrt(a) */
#include "rd/optim.h"
#include <math.h>

typedef struct adagrad_keys {
    double init;
} adagrad_keys;

static void adagrad_update(const rd_update *u)
{
    const float lr = (float)u->lr;
    float *restrict w = u->w, *restrict a = u->slot[0];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float ai = a[i] + g[i] * g[i];
        a[i] = ai;
        w[i] -= lr * g[i] / sqrtf(ai);
    }
}

static double adagrad_slot_init(const void *own, int slot)
{
    const adagrad_keys *k = own;
    (void)slot;
    return k->init;
}

static const rd_option adagrad_rows[] = {RD_OPT_REAL(adagrad_keys, adagrad_init, init, "0.1", 1e-30,
                                                     1e30,
                                                     "adagrad: first value of the accumulator"),
                                         RD_OPT_END};
static const rd_option_group adagrad_group = {"adagrad", "optimizer adagrad", adagrad_rows,
                                              sizeof(adagrad_keys)};

RD_OPTIMIZER(adagrad) = {.name = "adagrad",
                         .about = "a += g^2; w -= lr g / sqrt(a)",
                         .own = &adagrad_group,
                         .n_slots = 1,
                         .slot_name = {"accumulator"},
                         .slot_init = adagrad_slot_init,
                         .update = adagrad_update,
                         .gpu_update = RD_GPU_ENTRY(rd_cuda_update_adagrad)};
