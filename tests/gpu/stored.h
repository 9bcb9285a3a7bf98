/* stored.h -- numbers that a GPU stores with 16 bits, on the CPU: float32 numbers and gradients,
 * rounded at the same places. */
#ifndef RD_TESTS_GPU_STORED_H
#define RD_TESTS_GPU_STORED_H

#include "rd/tape.h"
#include <math.h>
#include <string.h>

/* the 16-bit type of the GPU's mixed products */
static rd_element narrow_type;

static double roundoff(void)
{
    return narrow_type == RD_BFLOAT16 ? 0x1p-8 : 0x1p-11;
}

/* Returns the nearest number of the type, ties to even. No number in these tests comes near its
 * largest. */
static float rounded(float x)
{
    const int digits = narrow_type == RD_BFLOAT16 ? 8 : 11,
              least = narrow_type == RD_BFLOAT16 ? -133 : -24;
    int e;
    if (x == 0.0f) return x;
    (void)frexpf(x, &e);
    const double unit = ldexp(1.0, e - digits > least ? e - digits : least);
    return (float)(rint((double)x / unit) * unit);
}

typedef struct stored_attr {
    int n_dim;
    int64_t dim[4];
    bool relu;
} stored_attr;

/* Computes y = R(x). A GPU adds a bias or relu to the stored number: R(max(R(x) + b, 0)). y has the
 * shape of the attribute. */
static rd_code stored_infer(rd_call *c, rd_status *st)
{
    const stored_attr *a = c->attr;
    const rd_var *x = c->in[0];
    rd_var *y = c->out[0];
    (void)st;
    y->n_dim = a->n_dim;
    memcpy(y->dim, a->dim, sizeof a->dim);
    y->rows = a->n_dim ? a->dim[0] * a->dim[1] * a->dim[2] : x->rows;
    y->cols = a->n_dim ? a->dim[3] : x->cols;
    return RD_OK;
}
static rd_code stored_forward(rd_call *c, rd_status *st)
{
    const stored_attr *a = c->attr;
    const rd_var *x = c->in[0], *b = c->in[1], *y = c->out[0];
    (void)st;
    for (int64_t i = 0; i < y->rows * y->cols; i++) {
        float v = rounded(x->v[i]);
        if (b) v += b->v[i % y->cols];
        if (a->relu && v < 0.0f) v = 0.0f;
        y->v[i] = rounded(v);
    }
    return RD_OK;
}
static rd_code stored_backward(rd_call *c, rd_status *st)
{
    const stored_attr *a = c->attr;
    const rd_var *x = c->in[0], *b = c->in[1], *y = c->out[0];
    (void)st;
    for (int64_t i = 0; i < y->rows * y->cols; i++) {
        const float d = a->relu && !(y->v[i] > 0.0f) ? 0.0f : rounded(y->g[i]);
        if (x->g) x->g[i] += d;
        if (b && b->g) b->g[i % y->cols] += d;
    }
    return RD_OK;
}
static const rd_op stored_op = {.name = "stored",
                                .infer = stored_infer,
                                .kernel = {[RD_CPU] = {stored_forward, stored_backward}}};

#endif
