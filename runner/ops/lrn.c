/* lrn.c -- local response normalisation over channels (Krizhevsky et al. 2012, 3.3), as TensorFlow
 * has it:
 *   s_c = bias + alpha sum of x_j^2 over |j - c| <= radius,  y_c = x_c s_c^-beta
 *   dx_c = dy_c s_c^-beta - 2 alpha beta x_c sum of dy_j x_j s_j^(-beta - 1) over |j - c| <= radius
 * Backward computes s again: that is cheaper than to keep it. */
#include "shared/image_op.h"
#include <inttypes.h>
#include <math.h>

enum { MOST_CHANNELS = 4096 };

static rd_code lrn_infer(rd_call *c, rd_status *st)
{
    const rd_lrn *a = c->attr;
    const rd_var *x = c->in[0];
    RD_TRY(rd_op_image_check("lrn", x, st));
    if (a->radius < 0 || !(a->bias > 0.0f) || !(a->alpha >= 0.0f) || x->dim[3] > MOST_CHANNELS)
        return rd_fail(st, RD_EBUG,
                       "lrn: radius %" PRId64 ", bias %g, alpha %g for %" PRId64 " channels",
                       a->radius, (double)a->bias, (double)a->alpha, x->dim[3]);
    rd_op_like(c->out[0], x);
    c->out[0]->rectified = false;
done:
    return st->code;
}

typedef struct lrn_job {
    const rd_lrn *a;
    rd_image_view v;
    const float *x, *dy;
    float *out; /* y, or dx */
    bool add;
} lrn_job;

/* Index of channel c in a pixel. */
static inline int64_t lrn_channel(const rd_image_view *v, int64_t c)
{
    return c / v->B * v->P * v->B + c % v->B;
}

/* Computes s_c from the n channels of a pixel. */
static inline float lrn_sum(const rd_lrn *a, const float *x, int64_t n, int64_t c)
{
    const int64_t lo = c > a->radius ? c - a->radius : 0,
                  hi = c + a->radius < n - 1 ? c + a->radius : n - 1;
    float sum = 0.0f;
    for (int64_t j = lo; j <= hi; j++) sum += x[j] * x[j];
    return a->bias + a->alpha * sum;
}

static void lrn_forward_pixel(const lrn_job *j, const float *x, float *y)
{
    const rd_image_view *v = &j->v;
    float in[MOST_CHANNELS];
    for (int64_t c = 0; c < v->c; c++) in[c] = x[lrn_channel(v, c)];
    for (int64_t c = 0; c < v->c; c++)
        y[lrn_channel(v, c)] = in[c] * powf(lrn_sum(j->a, in, v->c, c), -j->a->beta);
    for (int64_t c = v->c; c < v->K * v->B; c++) y[lrn_channel(v, c)] = 0.0f;
}

static void lrn_backward_pixel(const lrn_job *j, const float *x, const float *dy, float *dx)
{
    const rd_image_view *v = &j->v;
    const rd_lrn *a = j->a;
    float in[MOST_CHANNELS], direct[MOST_CHANNELS], part[MOST_CHANNELS];
    for (int64_t c = 0; c < v->c; c++) in[c] = x[lrn_channel(v, c)];
    for (int64_t c = 0; c < v->c; c++) {
        const float s = lrn_sum(a, in, v->c, c), g = dy[lrn_channel(v, c)] * powf(s, -a->beta);
        direct[c] = g;
        part[c] = g * in[c] / s;
    }
    for (int64_t c = 0; c < v->c; c++) {
        const int64_t lo = c > a->radius ? c - a->radius : 0,
                      hi = c + a->radius < v->c - 1 ? c + a->radius : v->c - 1;
        float sum = 0.0f, *to = dx + lrn_channel(v, c);
        for (int64_t k = lo; k <= hi; k++) sum += part[k];
        const float d = direct[c] - 2.0f * a->alpha * a->beta * in[c] * sum;
        *to = j->add ? *to + d : d;
    }
    for (int64_t c = v->c; c < v->K * v->B; c++) dx[lrn_channel(v, c)] = 0.0f;
}

static void lrn_part(void *ctx, int64_t lo, int64_t hi)
{
    const lrn_job *j = ctx;
    for (int64_t u = lo; u < hi; u++) {
        const int64_t at = u / j->v.P * j->v.sample + u % j->v.P * j->v.B;
        if (j->dy)
            lrn_backward_pixel(j, j->x + at, j->dy + at, j->out + at);
        else
            lrn_forward_pixel(j, j->x + at, j->out + at);
    }
}

static rd_code lrn_forward(rd_call *c, rd_status *st)
{
    lrn_job j = {
        .a = c->attr, .v = rd_image_view_of(c->in[0]), .x = c->in[0]->v, .out = c->out[0]->v};
    (void)st;
    rd_parallel(c->be, j.v.n * j.v.P, 64, lrn_part, &j);
    return RD_OK;
}

static rd_code lrn_backward(rd_call *c, rd_status *st)
{
    lrn_job j = {
        .a = c->attr, .v = rd_image_view_of(c->in[0]), .x = c->in[0]->v, .dy = c->out[0]->g};
    RD_TRY(rd_call_grad(c, 0, &j.out, &j.add, st));
    if (j.out) rd_parallel(c->be, j.v.n * j.v.P, 64, lrn_part, &j);
done:
    return st->code;
}

RD_OP(lrn) = {.name = "lrn",
              .about = "local response normalisation over channels",
              .infer = lrn_infer,
              .kernel = {[RD_CPU] = {lrn_forward, lrn_backward}, [RD_GPU] = RD_GPU_KERNEL(lrn)},
              .narrow = RD_NARROW(0),
              .own_grads = true};

rd_var *rd_op_lrn(rd_tape *t, const rd_lrn *a, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_lrn, a, sizeof *a, &x, 1, NULL, 1) : NULL;
}
