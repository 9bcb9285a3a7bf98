/* adam.c -- Kingma and Ba 2015 (arXiv:1412.6980) in the form before their section 2.1, which
 * TensorFlow has: epsilon stands outside the bias correction.
 *   m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2
 *   w -= lr sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps),   t from 1
 * Rows of embeddings without a token decay their moments too, as TensorFlow's sparse Adam does. */
#include "adam.h"
#include "rd/optim.h"
#include <math.h>

static void adam_update(const rd_update *u)
{
    const adam_keys *k = u->own;
    const double t = (double)u->t;
    const float alpha = (float)(u->lr * sqrt(1.0 - pow(k->beta2, t)) / (1.0 - pow(k->beta1, t)));
    const float b1 = (float)k->beta1, c1 = (float)(1.0 - k->beta1);
    const float b2 = (float)k->beta2, c2 = (float)(1.0 - k->beta2);
    const float eps = (float)k->epsilon;
    float *restrict w = u->w, *restrict m = u->slot[0], *restrict v = u->slot[1];
    const float *restrict g = u->g;
    for (int64_t i = u->lo; i < u->hi; i++) {
        const float mi = b1 * m[i] + c1 * g[i];
        const float vi = b2 * v[i] + c2 * (g[i] * g[i]);
        m[i] = mi;
        v[i] = vi;
        w[i] -= alpha * mi / (sqrtf(vi) + eps);
    }
}

static const rd_option adam_rows[] = {RD_ADAM_ROWS(adam_keys), RD_OPT_END};
static const rd_option_group adam_group = {"adam", "optimizer adam", adam_rows, sizeof(adam_keys)};

RD_OPTIMIZER(adam) = {.name = "adam",
                      .about = "Kingma and Ba 2015, epsilon outside the bias correction",
                      .own = &adam_group,
                      .n_slots = 2,
                      .slot_name = {"m", "v"},
                      .update = adam_update,
                      .gpu_update = RD_GPU_ENTRY(rd_cuda_update_adam)};
