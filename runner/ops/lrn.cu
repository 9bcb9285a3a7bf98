/* lrn.cu -- lrn on a GPU; the formulas are those of lrn.c. */
#include "../engine/gpu/element_device.h"
#include "shared/image_op.h"
#include "../engine/gpu/rows_grid.h"

/* Computes s of channel c from the C channels of a pixel. */
template <typename T>
static __device__ float response(const rd_lrn &a, int64_t C, int64_t c, const T *__restrict__ x)
{
    float sum = 0.0f;
    for (int64_t j = c > a.radius ? c - a.radius : 0; j <= c + a.radius && j < C; j++) {
        const float v = rd_get(x + j);
        sum += v * v;
    }
    return a.bias + a.alpha * sum;
}

template <typename T>
static __global__ void lrn(rd_lrn a, int64_t pixels, int64_t C, const T *__restrict__ x,
                           T *__restrict__ y)
{
    for (RD_EACH_ROW(p, pixels))
        for (RD_EACH_COLUMN(c, C)) {
            const T *from = x + p * C;
            rd_put(y + p * C + c, rd_get(from + c) * powf(response(a, C, c, from), -a.beta));
        }
}

template <bool ADD, typename T>
static __global__ void lrn_back(rd_lrn a, int64_t pixels, int64_t C, const T *__restrict__ x,
                                const T *__restrict__ dy, T *__restrict__ dx)
{
    for (RD_EACH_ROW(p, pixels))
        for (RD_EACH_COLUMN(c, C)) {
            const T *from = x + p * C, *d = dy + p * C;
            float sum = 0.0f;
            for (int64_t j = c > a.radius ? c - a.radius : 0; j <= c + a.radius && j < C; j++) {
                const float s = response(a, C, j, from);
                sum += rd_get(d + j) * powf(s, -a.beta) * rd_get(from + j) / s;
            }
            const float g = rd_get(d + c) * powf(response(a, C, c, from), -a.beta) -
                            2.0f * a.alpha * a.beta * rd_get(from + c) * sum;
            rd_put(dx + p * C + c, ADD ? rd_get(dx + p * C + c) + g : g);
        }
}

template <typename T>
static rd_code lrn_of(rd_gpu *gpu, const rd_lrn &a, int64_t pixels, int64_t channels, const void *x,
                      void *y, rd_status *st)
{
    return RD_LAUNCH(gpu, st, lrn<T>, rd_rows_grid(pixels, channels), rd_rows_block(channels), 0, a,
                     pixels, channels, static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T>
static rd_code lrn_back_of(rd_gpu *gpu, const rd_lrn &a, int64_t pixels, int64_t channels,
                           const void *x, const void *dy, void *dx, bool add, rd_status *st)
{
    const dim3 grid = rd_rows_grid(pixels, channels), block = rd_rows_block(channels);
    const T *v = static_cast<const T *>(x), *d = static_cast<const T *>(dy);
    T *to = static_cast<T *>(dx);
    if (add)
        return RD_LAUNCH(gpu, st, (lrn_back<true, T>), grid, block, 0, a, pixels, channels, v, d,
                         to);
    return RD_LAUNCH(gpu, st, (lrn_back<false, T>), grid, block, 0, a, pixels, channels, v, d, to);
}

extern "C" rd_code rd_cuda_lrn_forward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    const rd_lrn a = *static_cast<const rd_lrn *>(c->attr);
    RD_BY_ELEMENT(x->type, lrn_of<T>(rd_gpu_of(c->be), a, x->dim[0] * x->dim[1] * x->dim[2],
                                     x->dim[3], x->values, c->out[0]->values, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_lrn_backward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    const rd_lrn a = *static_cast<const rd_lrn *>(c->attr);
    void *dx;
    bool add;
    RD_TRY_OR_RETURN(rd_call_grad(c, 0, &dx, &add, st));
    if (!dx) return RD_OK;
    RD_BY_ELEMENT(x->type, lrn_back_of<T>(rd_gpu_of(c->be), a, x->dim[0] * x->dim[1] * x->dim[2],
                                          x->dim[3], x->values, c->out[0]->grads, dx, add, st));
    return RD_OK;
}
