/* ssru.c -- the recurrence of simpler simple recurrent units (Kim et al. 2019). Forward:
 *
 *     c_t = f_t c_{t-1} + (1 - f_t) u_t,   f_t = sigmoid(z_t)
 *
 * Backward, from the last row of a sequence to its first; e_t is the gradient of c_t that later
 * rows leave:
 *
 *     e_t = dc_t + f_{t+1} e_{t+1},   du_t = (1 - f_t) e_t
 *     dz_t = f_t (1 - f_t) (c_{t-1} - u_t) e_t,   the gradient of the state before is f_0 e_0
 *
 * No column and no sequence reads another one. A thread gets whole blocks of columns of a
 * sequence, so no number depends on the number of threads. */
#include "ssru.h"
#include "rd/vecmath.h"
#include <inttypes.h>

enum { BLOCK = 64 /* columns */, GRAIN = 4096 /* elements for a thread */ };

static rd_code ssru_infer(rd_call *c, rd_status *st)
{
    const rd_ssru *a = c->attr;
    const rd_var *u = c->in[0], *z = c->in[1], *before = c->in[2];
    int64_t next = 0;
    if (u == z || u == before || z == before)
        return rd_fail(st, RD_EBUG, "ssru: one variable is two of its inputs");
    if (u->rows != z->rows || u->cols != z->cols)
        return rd_fail(st, RD_EBUG,
                       "ssru: gates of %" PRId64 "x%" PRId64 " do not fit %" PRId64 "x%" PRId64,
                       z->rows, z->cols, u->rows, u->cols);
    if (before && (before->rows != a->n || before->cols != u->cols))
        return rd_fail(st, RD_EBUG,
                       "ssru: states of %" PRId64 "x%" PRId64 " do not fit %" PRId64
                       " sequences of %" PRId64 " columns",
                       before->rows, before->cols, a->n, u->cols);
    if (z->type != u->type || (before && before->type != u->type))
        return rd_fail(st, RD_EBUG, "ssru: the inputs have different element types");
    for (int64_t s = 0; s < a->n; s++) {
        if (a->first[s] != next || a->len[s] < 0)
            return rd_fail(st, RD_EBUG,
                           "ssru: sequence %" PRId64 " has %" PRId64 " rows from row %" PRId64, s,
                           a->len[s], a->first[s]);
        next += a->len[s];
    }
    if (next != u->rows)
        return rd_fail(st, RD_EBUG, "ssru: the sequences have %" PRId64 " of %" PRId64 " rows",
                       next, u->rows);
    c->out[0]->rows = u->rows;
    c->out[0]->cols = u->cols;
    c->out[0]->type = u->type;
    return RD_OK;
}

typedef struct ssru_job {
    const rd_ssru *a;
    int64_t d, n_blocks;
    const float *u, *z, *before; /* before NULL: zeros */
    float *c;
    const float *dc;
    rd_ssru_gradient grad[RD_SSRU_INPUTS];
} ssru_job;

static const float ssru_zeros[BLOCK];

/* Returns the block of the state before row t of sequence s. k0: its first column. */
static const float *ssru_previous(const ssru_job *j, int64_t s, int64_t t, int64_t k0)
{
    if (t > 0) return j->c + (j->a->first[s] + t - 1) * j->d + k0;
    return j->before ? j->before + s * j->d + k0 : ssru_zeros;
}

/* lo and hi count blocks, sequence after sequence. */
static void ssru_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const ssru_job *j = ctx;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t s = i / j->n_blocks, k0 = i % j->n_blocks * BLOCK,
                      n = j->d - k0 < BLOCK ? j->d - k0 : BLOCK;
        for (int64_t t = 0; t < j->a->len[s]; t++) {
            const int64_t at = (j->a->first[s] + t) * j->d + k0;
            const float *p = ssru_previous(j, s, t, k0), *u = j->u + at, *z = j->z + at;
            float *c = j->c + at;
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                const float f = rd_sigmoidf(z[k]);
                c[k] = f * p[k] + (1.0f - f) * u[k];
            }
        }
    }
}

/* Writes or adds n numbers. */
static inline void ssru_give(const rd_ssru_gradient *to, int64_t at, int64_t n, const float *x)
{
    if (!to->g) return;
    float *g = (float *)to->g + at;
    if (to->add)
        for (int64_t k = 0; k < n; k++) g[k] += x[k];
    else
        for (int64_t k = 0; k < n; k++) g[k] = x[k];
}

static void ssru_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const ssru_job *j = ctx;
    float e[BLOCK], du[BLOCK], dz[BLOCK]; /* e: f_{t+1} e_{t+1} */
    for (int64_t i = lo; i < hi; i++) {
        const int64_t s = i / j->n_blocks, k0 = i % j->n_blocks * BLOCK,
                      n = j->d - k0 < BLOCK ? j->d - k0 : BLOCK;
        for (int64_t k = 0; k < n; k++) e[k] = 0.0f;
        for (int64_t t = j->a->len[s] - 1; t >= 0; t--) {
            const int64_t at = (j->a->first[s] + t) * j->d + k0;
            const float *p = ssru_previous(j, s, t, k0), *u = j->u + at, *z = j->z + at,
                        *dc = j->dc + at;
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                const float f = rd_sigmoidf(z[k]), g = dc[k] + e[k], rest = (1.0f - f) * g;
                du[k] = rest;
                dz[k] = f * rest * (p[k] - u[k]);
                e[k] = f * g;
            }
            ssru_give(&j->grad[0], at, n, du);
            ssru_give(&j->grad[1], at, n, dz);
        }
        ssru_give(&j->grad[2], s * j->d + k0, n, e);
    }
}

static void ssru_run(rd_call *c, ssru_job *j, void (*part)(void *, int64_t, int64_t))
{
    const rd_var *u = c->in[0];
    j->a = c->attr;
    j->d = u->cols;
    j->n_blocks = (u->cols + BLOCK - 1) / BLOCK;
    j->u = u->v;
    j->z = c->in[1]->v;
    j->before = c->in[2] ? c->in[2]->v : NULL;
    j->c = c->out[0]->v;
    const int64_t rows = u->rows / (j->a->n + 1) + 1; /* of a usual sequence */
    rd_parallel(c->be, j->a->n * j->n_blocks, GRAIN / (rows * BLOCK) + 1, part, j);
}

static rd_code ssru_forward(rd_call *c, rd_status *st)
{
    ssru_job j = {0};
    ssru_run(c, &j, ssru_forward_part);
    return st->code;
}

static rd_code ssru_backward(rd_call *c, rd_status *st)
{
    ssru_job j = {.dc = c->out[0]->g};
    RD_TRY(rd_ssru_gradients(c, j.grad, st));
    ssru_run(c, &j, ssru_backward_part);
done:
    return st->code;
}

RD_OP(ssru) = {.name = "ssru",
               .about = "recurrence of simpler simple recurrent units",
               .infer = ssru_infer,
               .kernel = {[RD_CPU] = {ssru_forward, ssru_backward}, [RD_GPU] = RD_GPU_KERNEL(ssru)},
               .narrow = RD_NARROW(0) | RD_NARROW(1) | RD_NARROW(2),
               .own_grads = true};

rd_var *rd_op_ssru(rd_tape *t, const rd_ssru *a, rd_var *u, rd_var *z, rd_var *before)
{
    rd_var *in[RD_SSRU_INPUTS] = {u, z, before};
    return u && z ? rd_tape_apply(t, &rd_op_def_ssru, a, sizeof *a, in, RD_SSRU_INPUTS, NULL, 1)
                  : NULL;
}
