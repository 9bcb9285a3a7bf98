/* ssru.cu -- the recurrence of ssru.c on a GPU. A thread owns one column of one sequence and goes
 * through its rows in order. The state between rows is float32. T is the type of all arrays. */
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/rows_grid.h"
#include "ssru.h"

template <typename T> struct ssru_gpu {
    int64_t n, d;
    const int64_t *first, *len; /* [n] */
    const T *u, *z, *before;    /* before NULL: zeros */
    T *c;
    const T *dc;
    rd_ssru_gradient grad[RD_SSRU_INPUTS];
};

static __device__ inline float gate(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

template <typename T>
static __device__ inline void give(const rd_ssru_gradient &to, int64_t i, float x)
{
    T *g = static_cast<T *>(to.g);
    if (g) rd_put(g + i, to.add ? rd_get(g + i) + x : x);
}

template <typename T> static __global__ void ssru_fwd(ssru_gpu<T> j)
{
    for (RD_EACH_ROW(s, j.n))
        for (RD_EACH_COLUMN(k, j.d)) {
            float c = j.before ? rd_get(j.before + s * j.d + k) : 0.0f;
            for (int64_t t = 0; t < j.len[s]; t++) {
                const int64_t i = (j.first[s] + t) * j.d + k;
                const float f = gate(rd_get(j.z + i));
                c = f * c + (1.0f - f) * rd_get(j.u + i);
                rd_put(j.c + i, c);
            }
        }
}

template <typename T> static __global__ void ssru_bwd(ssru_gpu<T> j)
{
    for (RD_EACH_ROW(s, j.n))
        for (RD_EACH_COLUMN(k, j.d)) {
            const float before = j.before ? rd_get(j.before + s * j.d + k) : 0.0f;
            float e = 0.0f;
            for (int64_t t = j.len[s] - 1; t >= 0; t--) {
                const int64_t i = (j.first[s] + t) * j.d + k;
                const float f = gate(rd_get(j.z + i)), g = rd_get(j.dc + i) + e,
                            rest = (1.0f - f) * g, p = t > 0 ? rd_get(j.c + i - j.d) : before;
                give<T>(j.grad[0], i, rest);
                give<T>(j.grad[1], i, f * rest * (p - rd_get(j.u + i)));
                e = f * g;
            }
            give<T>(j.grad[2], s * j.d + k, e);
        }
}

template <typename T> static rd_code ssru_fill(rd_call *c, ssru_gpu<T> *j, rd_status *st)
{
    const rd_ssru *a = static_cast<const rd_ssru *>(c->attr);
    const size_t bytes = (size_t)a->n * sizeof *a->first;
    j->n = a->n;
    j->d = c->in[0]->cols;
    j->u = static_cast<const T *>(c->in[0]->values);
    j->z = static_cast<const T *>(c->in[1]->values);
    j->before = c->in[2] ? static_cast<const T *>(c->in[2]->values) : NULL;
    j->c = static_cast<T *>(c->out[0]->values);
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->first, bytes, &j->first, st));
    return rd_call_lend(c, c->device_scratch, a->len, bytes, &j->len, st);
}

template <typename T> static rd_code ssru_forward(rd_call *c, rd_status *st)
{
    ssru_gpu<T> j = {};
    if (c->in[0]->rows == 0) return RD_OK;
    RD_TRY_OR_RETURN(ssru_fill(c, &j, st));
    return RD_LAUNCH(rd_gpu_of(c->be), st, ssru_fwd<T>, rd_rows_grid(j.n, j.d), rd_rows_block(j.d),
                     0, j);
}

template <typename T> static rd_code ssru_backward(rd_call *c, rd_status *st)
{
    ssru_gpu<T> j = {};
    if (static_cast<const rd_ssru *>(c->attr)->n == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_ssru_gradients(c, j.grad, st));
    RD_TRY_OR_RETURN(ssru_fill(c, &j, st));
    j.dc = static_cast<const T *>(c->out[0]->grads);
    return RD_LAUNCH(rd_gpu_of(c->be), st, ssru_bwd<T>, rd_rows_grid(j.n, j.d), rd_rows_block(j.d),
                     0, j);
}

extern "C" rd_code rd_cuda_ssru_forward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, (ssru_forward<T>(c, st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_ssru_backward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, (ssru_backward<T>(c, st)));
    return RD_OK;
}
