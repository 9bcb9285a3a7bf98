/* ssru.cu -- the recurrence of ssru.c on a GPU. A thread owns one column of one sequence and goes
 * through its rows in order. */
#include "../engine/gpu/rows_grid.h"
#include "ssru.h"

typedef struct ssru_gpu {
    int64_t n, d;
    const int64_t *first, *len;  /* [n] */
    const float *u, *z, *before; /* before NULL: zeros */
    float *c;
    const float *dc;
    rd_ssru_gradient grad[RD_SSRU_INPUTS];
} ssru_gpu;

static __device__ inline float gate(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

static __device__ inline void give(const rd_ssru_gradient &to, int64_t i, float x)
{
    if (to.g) to.g[i] = to.add ? to.g[i] + x : x;
}

static __global__ void ssru_fwd(ssru_gpu j)
{
    for (RD_EACH_ROW(s, j.n))
        for (RD_EACH_COLUMN(k, j.d)) {
            float c = j.before ? j.before[s * j.d + k] : 0.0f;
            for (int64_t t = 0; t < j.len[s]; t++) {
                const int64_t i = (j.first[s] + t) * j.d + k;
                const float f = gate(j.z[i]);
                c = f * c + (1.0f - f) * j.u[i];
                j.c[i] = c;
            }
        }
}

static __global__ void ssru_bwd(ssru_gpu j)
{
    for (RD_EACH_ROW(s, j.n))
        for (RD_EACH_COLUMN(k, j.d)) {
            const float before = j.before ? j.before[s * j.d + k] : 0.0f;
            float e = 0.0f;
            for (int64_t t = j.len[s] - 1; t >= 0; t--) {
                const int64_t i = (j.first[s] + t) * j.d + k;
                const float f = gate(j.z[i]), g = j.dc[i] + e, rest = (1.0f - f) * g,
                            p = t > 0 ? j.c[i - j.d] : before;
                give(j.grad[0], i, rest);
                give(j.grad[1], i, f * rest * (p - j.u[i]));
                e = f * g;
            }
            give(j.grad[2], s * j.d + k, e);
        }
}

static rd_code ssru_fill(rd_call *c, ssru_gpu *j, rd_status *st)
{
    const rd_ssru *a = static_cast<const rd_ssru *>(c->attr);
    const size_t bytes = (size_t)a->n * sizeof *a->first;
    j->n = a->n;
    j->d = c->in[0]->cols;
    j->u = c->in[0]->v;
    j->z = c->in[1]->v;
    j->before = c->in[2] ? c->in[2]->v : NULL;
    j->c = c->out[0]->v;
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->first, bytes, &j->first, st));
    return rd_call_lend(c, c->device_scratch, a->len, bytes, &j->len, st);
}

extern "C" rd_code rd_cuda_ssru_forward(rd_call *c, rd_status *st)
{
    ssru_gpu j = {};
    if (c->in[0]->rows == 0) return RD_OK;
    RD_TRY_OR_RETURN(ssru_fill(c, &j, st));
    return RD_LAUNCH(rd_gpu_of(c->be), st, ssru_fwd, rd_rows_grid(j.n, j.d), rd_rows_block(j.d), 0,
                     j);
}

extern "C" rd_code rd_cuda_ssru_backward(rd_call *c, rd_status *st)
{
    ssru_gpu j = {};
    if (static_cast<const rd_ssru *>(c->attr)->n == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_ssru_gradients(c, j.grad, st));
    RD_TRY_OR_RETURN(ssru_fill(c, &j, st));
    j.dc = c->out[0]->g;
    return RD_LAUNCH(rd_gpu_of(c->be), st, ssru_bwd, rd_rows_grid(j.n, j.d), rd_rows_block(j.d), 0,
                     j);
}
