/* harness.h -- one way to test any op: its inputs are parameters, its result is weighted with fixed random numbers and
 * summed. The fast op's value and gradients are held against a naive reference in double: the value directly, the
 * gradients against central differences of the reference. */
#ifndef RD_TESTS_OPS_HARNESS_H
#define RD_TESTS_OPS_HARNESS_H

#include "rd/ops.h"
#include "rd/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_INPUTS = 64, PROBES = 12 /* elements of each input whose gradient is checked */ };

typedef struct harness {
    rd_params *ps;
    rd_backend *be;
    rd_tape *tape;
    int n;
    rd_param *p[MOST_INPUTS];
    double *x[MOST_INPUTS]; /* the inputs in double, for the reference */
    float *r;               /* weights of the result */
    int64_t n_r;
} harness;

static inline void must(const rd_status *st)
{
    if (st->code != RD_OK) fail_msg("%s (%s)", st->msg, st->where);
}

static inline void h_init(harness *h)
{
    rd_status st = {0};
    memset(h, 0, sizeof *h);
    rd_params_new(&h->ps, &st);
    rd_backend_cpu_new(1, false, &h->be, &st);
    must(&st);
}

/* Declares an input of rows x cols (rows 0: a vector, cols 0: a scalar). */
static inline int h_input(harness *h, int64_t rows, int64_t cols)
{
    rd_status st = {0};
    char name[16];
    const int64_t dim[2] = {rows ? rows : cols, cols};
    snprintf(name, sizeof name, "in%d", h->n);
    rd_params_add(h->ps, name, rows ? 2 : cols ? 1 : 0, dim, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &h->p[h->n], &st);
    must(&st);
    return h->n++;
}

/* Fills all inputs with uniform numbers in [-scale, scale), and the weights of a result of n_r elements in [-1, 1). */
static inline void h_fill(harness *h, double scale, int64_t n_r)
{
    rd_status st = {0};
    rd_params_seal(h->ps, 0, NAN, &st);
    must(&st);
    for (int i = 0; i < h->n; i++) {
        float *w = rd_params_values(h->ps) + h->p[i]->offset;
        h->x[i] = malloc((size_t)h->p[i]->n * sizeof(double));
        rd_philox_uniform(rd_key_make(7, RD_RNG_TEST, (uint64_t)i, 0), 0, h->p[i]->n, w);
        for (int64_t k = 0; k < h->p[i]->n; k++) h->x[i][k] = w[k] = (float)((2.0 * (double)w[k] - 1.0) * scale);
    }
    h->n_r = n_r;
    h->r = malloc((size_t)(n_r + 8) * sizeof(float));
    rd_philox_uniform(rd_key_make(8, RD_RNG_TEST, 0, 0), 0, n_r, h->r);
    for (int64_t k = 0; k < n_r; k++) h->r[k] = 2.0f * h->r[k] - 1.0f;
    rd_params_touch(h->ps);
    rd_tape_new(h->be, h->ps, &h->tape, &st);
    must(&st);
    rd_tape_reset(h->tape, true, true);
}

static inline void h_free(harness *h)
{
    rd_tape_free(h->tape);
    rd_backend_free(h->be);
    rd_params_free(h->ps);
    for (int i = 0; i < h->n; i++) free(h->x[i]);
    free(h->r);
}

static inline rd_var *h_var(harness *h, int i)
{
    return i < 0 ? NULL : rd_tape_param(h->tape, h->p[i]);
}

/* ---- the weighted sum as an op: (1, 1) = sum_i r_i x_i over up to two inputs ---- */
static inline rd_code ws_infer(rd_call *c, rd_status *st)
{
    (void)st;
    c->out[0]->rows = c->out[0]->cols = 1;
    return RD_OK;
}
static inline rd_code ws_forward(rd_call *c, rd_status *st)
{
    const float *r = *(float *const *)c->attr;
    double s = 0.0;
    (void)st;
    for (int k = 0; k < c->n_in; k++)
        for (int64_t i = 0; i < c->in[k]->rows * c->in[k]->cols; i++) s += (double)*r++ * (double)c->in[k]->v[i];
    c->out[0]->v[0] = (float)s;
    return RD_OK;
}
static inline rd_code ws_backward(rd_call *c, rd_status *st)
{
    const float *r = *(float *const *)c->attr;
    (void)st;
    for (int k = 0; k < c->n_in; k++)
        for (int64_t i = 0; i < c->in[k]->rows * c->in[k]->cols; i++) c->in[k]->g[i] += *r++ * c->out[0]->g[0];
    return RD_OK;
}
static const rd_op weighted_sum = {.name = "weighted_sum", .infer = ws_infer, .cpu = {ws_forward, ws_backward}};

static inline rd_var *h_weighted(harness *h, rd_var *const *y, int n)
{
    return rd_tape_apply(h->tape, &weighted_sum, &h->r, sizeof h->r, y, n, NULL, 1);
}

/* reference(ctx): the same scalar from h->x in double. */
static inline void h_check(harness *h, rd_var *loss, double (*reference)(void *ctx), void *ctx, double rtol)
{
    rd_status st = {0};
    rd_tape_check(h->tape, &st);
    must(&st);
    rd_tape_backward(h->tape, loss, &st);
    must(&st);
    const double want = reference(ctx), got = (double)loss->v[0];
    if (!(fabs(got - want) <= rtol * fmax(1.0, fabs(want)))) fail_msg("value: got %.9g, want %.9g", got, want);
    for (int i = 0; i < h->n; i++) {
        const float *g = rd_params_grads(h->ps) + h->p[i]->offset;
        double most = 1e-3, worst = 0.0;
        const int64_t n = h->p[i]->n;
        for (int64_t k = 0; k < n; k++) most = fmax(most, fabs((double)g[k]));
        for (int64_t probe = 0; probe < PROBES && probe < n; probe++) {
            const int64_t k =
                n <= PROBES
                    ? probe
                    : (int64_t)(rd_permute(rd_key_make(9, RD_RNG_TEST, (uint64_t)i, 0), (uint64_t)n, (uint64_t)probe));
            const double x = h->x[i][k], step = 1e-5;
            h->x[i][k] = x + step;
            const double up = reference(ctx);
            h->x[i][k] = x - step;
            const double down = reference(ctx);
            h->x[i][k] = x;
            const double gap = fabs((up - down) / (2.0 * step) - (double)g[k]);
            worst = gap > worst || isnan(gap) ? gap : worst;
        }
        if (!(worst <= rtol * most)) fail_msg("gradient of input %d: off by %.3g of %.3g", i, worst, most);
    }
}

#endif
