/* harness.h -- one way to test any op.
 *
 * The op's inputs are parameters. Its result is weighted with fixed random numbers and summed. A
 * naive reference in double checks the value directly, and the gradients by central differences
 * of the reference. RD_TEST_DEVICE=cuda: the same on a GPU.
 *
 * On 16-bit elements (a GPU in mixed) differences of the op itself are useless: the op is a
 * staircase with steps as high as the last place of the number. The reference is no staircase.
 * h_shorten makes inputs and weights of the result that 16 bits hold. The op then rounds only
 * what it stores: each number of its result and of its gradients once, by at most the unit
 * roundoff u times the number. u is 2^-8 for the 8 digits of bfloat16 and 2^-11 for the 11 of
 * float16. So
 *
 *     |g - difference| <= u |difference|
 *
 * for each element alone, plus the error that float32 sums may have, and likewise for elements
 * of the result. Gradients that stay float32 (of gamma, beta, bias) get no u. */
#ifndef RD_TESTS_OPS_HARNESS_H
#define RD_TESTS_OPS_HARNESS_H

#include "rd/image.h"
#include "rd/ops.h"
#include "rd/philox.h"
#include "test.h"
#include "test_device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    rd_var *y[2]; /* what was last weighted */
} harness;

/* ---- on a GPU ---- */
/* By the values of cudnn_rnn: float32, mixed. Made when first wanted. */
static rd_gpu *h_gpus[RD_RNN_ON + 1][2];
static inline void h_free_gpus(void)
{
    for (int i = 0; i <= RD_RNN_ON; i++)
        for (int k = 0; k < 2; k++) rd_gpu_free(h_gpus[i][k]);
}

static inline void h_gpu_backend_rnn(int threads, bool mixed, rd_rnn_asked rnn, rd_backend **be,
                                     rd_status *st)
{
    static bool begun;
    if (!begun) (void)atexit(h_free_gpus);
    begun = true;
    if (!h_gpus[rnn][mixed])
        rd_gpu_new(0, &(rd_gpu_options){.mixed = mixed, .rnn = rnn}, &h_gpus[rnn][mixed], st);
    must(st);
    rd_backend_gpu_new(h_gpus[rnn][mixed], threads, be, st);
}

static inline void h_gpu_backend(int threads, bool mixed, rd_backend **be, rd_status *st)
{
    h_gpu_backend_rnn(threads, mixed, rnn_asked(), be, st);
}

static inline void h_use_gpu(harness *h, rd_status *st)
{
    if (rd_gpu_of(h->be)) rd_params_use_gpu(h->ps, rd_gpu_of(h->be), st);
}

/* The backend that the tests are for; the caller frees it. */
static inline void h_backend(int threads, bool mixed, rd_backend **be)
{
    rd_status st = {0};
    if (test_on_gpu())
        h_gpu_backend(threads, mixed, be, &st);
    else
        rd_backend_cpu_new(threads, mixed, be, &st);
    must(&st);
}

/* For tests of what the CPU's backend alone has. */
static inline void h_cpu_alone(void)
{
    if (test_on_gpu()) skip();
}

/* be: freed by h_free. */
static inline void h_init_with(harness *h, rd_backend *be)
{
    rd_status st = {0};
    memset(h, 0, sizeof *h);
    rd_params_new(&h->ps, &st);
    must(&st);
    h->be = be;
}

static inline void h_init_as(harness *h, int threads, bool mixed)
{
    rd_backend *be;
    h_backend(threads, mixed, &be);
    h_init_with(h, be);
}

static inline void h_init(harness *h)
{
    h_init_as(h, 1, false);
}

/* Declares an input of rows x cols (rows 0: a vector, cols 0: a scalar). */
static inline int h_input(harness *h, int64_t rows, int64_t cols)
{
    rd_status st = {0};
    char name[16];
    const int64_t dim[2] = {rows ? rows : cols, cols};
    snprintf(name, sizeof name, "in%d", h->n);
    rd_params_add(h->ps, name,
                  rows   ? 2
                  : cols ? 1
                         : 0,
                  dim, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &h->p[h->n], &st);
    must(&st);
    return h->n++;
}

/* Fills all inputs with uniform numbers in [-scale, scale), and the weights of a result of n_r
 * elements in [-1, 1). */
static inline void h_fill(harness *h, double scale, int64_t n_r)
{
    rd_status st = {0};
    rd_params_seal(h->ps, 0, NAN, &st);
    must(&st);
    for (int i = 0; i < h->n; i++) {
        float *w = test_values(h->ps) + h->p[i]->offset;
        h->x[i] = malloc((size_t)h->p[i]->n * sizeof(double));
        rd_philox_uniform(rd_key_make(7, RD_RNG_TEST, (uint64_t)i, 0), 0, h->p[i]->n, w);
        for (int64_t k = 0; k < h->p[i]->n; k++)
            h->x[i][k] = w[k] = (float)((2.0 * (double)w[k] - 1.0) * scale);
    }
    h->n_r = n_r;
    h->r = malloc((size_t)(n_r + 8) * sizeof(float));
    rd_philox_uniform(rd_key_make(8, RD_RNG_TEST, 0, 0), 0, n_r, h->r);
    for (int64_t k = 0; k < n_r; k++) h->r[k] = 2.0f * h->r[k] - 1.0f;
    rd_params_touch(h->ps);
    h_use_gpu(h, &st);
    rd_tape_new(h->be, h->ps, &h->tape, &st);
    must(&st);
    rd_tape_reset(h->tape, true, true);
}

/* Inputs and weights of the result become multiples of 1/64, which 16 bits hold exactly. */
static inline void h_shorten(harness *h)
{
    float *v = test_values(h->ps);
    for (int i = 0; i < h->n; i++)
        for (int64_t k = 0; k < h->p[i]->n; k++) {
            float *x = &v[h->p[i]->offset + k];
            h->x[i][k] = *x = rintf(*x * 64.0f) / 64.0f;
        }
    for (int64_t k = 0; k < h->n_r; k++) h->r[k] = rintf(h->r[k] * 64.0f) / 64.0f;
    rd_params_touch(h->ps);
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

/* A result (or its gradient) on the host; the caller frees it. */
static inline float *h_read(harness *h, const rd_var *x, bool gradient)
{
    rd_status st = {0};
    float *out = malloc((size_t)(x->rows * x->cols + 1) * sizeof *out);
    rd_tape_read(h->tape, x, gradient, out, &st);
    must(&st);
    return out;
}

static inline float h_scalar(harness *h, const rd_var *x)
{
    float *v = h_read(h, x, false), s = v[0];
    free(v);
    return s;
}

/* ---- the weighted sum as an op: (1, 1) = sum_i r_i x_i over up to two inputs ---- */
static inline rd_code ws_infer(rd_call *c, rd_status *st)
{
    (void)st;
    c->out[0]->rows = c->out[0]->cols = 1;
    return RD_OK;
}
/* On the host, with copies where the backend has memory of its own. */
static inline rd_code ws_forward(rd_call *c, rd_status *st)
{
    const float *r = *(float *const *)c->attr;
    double s = 0.0;
    for (int k = 0; k < c->n_in; k++) {
        const int64_t n = c->in[k]->rows * c->in[k]->cols;
        float *x;
        RD_TRY(rd_arena_get(c->scratch, (size_t)n * sizeof *x, &x, st));
        RD_TRY(rd_backend_download(c->be, x, c->in[k]->v, (size_t)n * sizeof *x, st));
        for (int64_t i = 0; i < n; i++) s += (double)*r++ * (double)x[i];
    }
    RD_TRY(rd_backend_upload(c->be, c->out[0]->v, &(float){(float)s}, sizeof(float), st));
done:
    return st->code;
}
static inline rd_code ws_backward(rd_call *c, rd_status *st)
{
    const float *r = *(float *const *)c->attr;
    float seed;
    RD_TRY(rd_backend_download(c->be, &seed, c->out[0]->g, sizeof seed, st));
    for (int k = 0; k < c->n_in; k++) {
        const int64_t n = c->in[k]->rows * c->in[k]->cols;
        float *g;
        RD_TRY(rd_arena_get(c->scratch, (size_t)n * sizeof *g, &g, st));
        RD_TRY(rd_backend_download(c->be, g, c->in[k]->g, (size_t)n * sizeof *g, st));
        for (int64_t i = 0; i < n; i++) g[i] += *r++ * seed;
        RD_TRY(rd_backend_upload(c->be, c->in[k]->g, g, (size_t)n * sizeof *g, st));
    }
done:
    return st->code;
}
static const rd_op weighted_sum = {
    .name = "weighted_sum", .infer = ws_infer, .kernel = RD_EVERY_BACKEND(ws_forward, ws_backward)};

static inline rd_var *h_weighted(harness *h, rd_var *const *y, int n)
{
    for (int k = 0; k < n && k < 2; k++) h->y[k] = y[k];
    return rd_tape_apply(h->tape, &weighted_sum, &h->r, sizeof h->r, y, n, NULL, 1);
}

/* ---- 16-bit elements ---- */
/* Of the backend in mixed; 0: it has none. */
static inline double h_roundoff(const harness *h)
{
    const rd_element e = rd_backend_activations(h->be);
    return e == RD_BFLOAT16 ? 0x1p-8 : e == RD_FLOAT16 ? 0x1p-11 : 0.0;
}

/* x in these. */
static inline rd_var *h_narrowed(harness *h, rd_var *x)
{
    return rd_op_cast(h->tape, x, rd_backend_activations(h->be));
}

/* What an op stored as 16 bits; unit 0: nothing. */
typedef struct h_stored {
    double unit;        /* roundoff */
    unsigned gradients; /* bit i: that of input i */
    int result;         /* roundings of each element of the result */
} h_stored;

/* The result's elements, one by one: the reference is linear in their weights. */
static inline void h_check_result(harness *h, double (*reference)(void *ctx), void *ctx,
                                  double rtol, double unit)
{
    const int64_t n = h->y[0]->rows * h->y[0]->cols;
    float *y = h_read(h, h->y[0], false);
    double most = 1e-3;
    for (int64_t k = 0; k < n; k++) most = fmax(most, fabs((double)y[k]));
    for (int64_t probe = 0; probe < PROBES && probe < n; probe++) {
        const int64_t k = (int64_t)rd_permute(rd_key_make(10, RD_RNG_TEST, 0, 0), (uint64_t)n,
                                              (uint64_t)probe);
        const float r = h->r[k];
        h->r[k] = 1.0f;
        const double with = reference(ctx);
        h->r[k] = 0.0f;
        const double want = with - reference(ctx);
        h->r[k] = r;
        if (!(fabs((double)y[k] - want) <= rtol * most + unit * fabs(want)))
            fail_msg("element %d of the result: got %.9g, want %.9g", (int)k, (double)y[k], want);
    }
    free(y);
}

/* reference(ctx): the same scalar from h->x in double. */
static inline void h_check_stored(harness *h, rd_var *loss, double (*reference)(void *ctx),
                                  void *ctx, double rtol, h_stored stored)
{
    rd_status st = {0};
    rd_tape_check(h->tape, &st);
    must(&st);
    /* Backward uses the memory of results for gradients. */
    if (stored.unit > 0.0) h_check_result(h, reference, ctx, rtol, stored.result * stored.unit);
    rd_tape_backward(h->tape, loss, &st);
    must(&st);
    const double want = reference(ctx), got = (double)h_scalar(h, loss);
    if (!(stored.unit > 0.0) && !(fabs(got - want) <= rtol * fmax(1.0, fabs(want))))
        fail_msg("value: got %.9g, want %.9g", got, want);
    for (int i = 0; i < h->n; i++) {
        const float *g = test_grads(h->ps) + h->p[i]->offset;
        double most = 1e-3, worst = 0.0;
        const int64_t n = h->p[i]->n;
        for (int64_t k = 0; k < n; k++) most = fmax(most, fabs((double)g[k]));
        for (int64_t probe = 0; probe < PROBES && probe < n; probe++) {
            const int64_t k =
                n <= PROBES ? probe
                            : (int64_t)(rd_permute(rd_key_make(9, RD_RNG_TEST, (uint64_t)i, 0),
                                                   (uint64_t)n, (uint64_t)probe));
            const double x = h->x[i][k], step = 1e-5;
            h->x[i][k] = x + step;
            const double up = reference(ctx);
            h->x[i][k] = x - step;
            const double down = reference(ctx);
            h->x[i][k] = x;
            const double slope = (up - down) / (2.0 * step),
                         rounds = stored.gradients >> i & 1 ? stored.unit * fabs(slope) : 0.0;
            const double gap = fabs(slope - (double)g[k]) - rounds;
            worst = gap > worst || isnan(gap) ? gap : worst;
        }
        if (!(worst <= rtol * most))
            fail_msg("gradient of input %d: off by %.3g of %.3g", i, worst, most);
    }
}

static inline void h_check(harness *h, rd_var *loss, double (*reference)(void *ctx), void *ctx,
                           double rtol)
{
    h_check_stored(h, loss, reference, ctx, rtol, (h_stored){0});
}

#endif
