/* global_mean.cu -- global_mean on a GPU; the formulas are those of global_mean.c. */
#include "../engine/gpu/element_device.h"
#include "shared/image_op.h"
#include "../engine/gpu/rows_grid.h"

/* Sums in the order of the pixels. Eight loads are under way at a time. */
template <typename T>
static __global__ void mean(int64_t n, int64_t P, int64_t C, const T *__restrict__ x,
                            T *__restrict__ y)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(c, C)) {
            const T *from = x + i * P * C + c;
            float sum = 0.0f;
#pragma unroll 8
            for (int64_t p = 0; p < P; p++) sum += rd_get(from + p * C);
            rd_put(y + i * C + c, sum / (float)P);
        }
}

template <bool ADD, typename T>
static __global__ void pixel_mean_back(int64_t pixels, int64_t P, int64_t C, float scale,
                                       const T *__restrict__ dy, T *__restrict__ dx)
{
    for (RD_EACH_ROW(p, pixels)) {
        const int64_t i = p / P;
        for (RD_EACH_COLUMN(c, C)) {
            const float d = rd_get(dy + i * C + c) * scale;
            rd_put(dx + p * C + c, ADD ? rd_get(dx + p * C + c) + d : d);
        }
    }
}

template <typename T>
static rd_code pixel_mean_of(rd_gpu *gpu, int64_t n, int64_t pixels, int64_t channels,
                             const void *x, void *y, rd_status *st)
{
    return RD_LAUNCH(gpu, st, mean<T>, rd_rows_grid(n, channels), rd_rows_block(channels), 0, n,
                     pixels, channels, static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T>
static rd_code mean_back_of(rd_gpu *gpu, int64_t n, int64_t pixels, int64_t channels,
                            const void *dy, void *dx, bool add, rd_status *st)
{
    const dim3 grid = rd_rows_grid(n * pixels, channels), block = rd_rows_block(channels);
    const float scale = 1.0f / (float)pixels;
    const T *d = static_cast<const T *>(dy);
    T *to = static_cast<T *>(dx);
    if (add)
        return RD_LAUNCH(gpu, st, (pixel_mean_back<true, T>), grid, block, 0, n * pixels, pixels,
                         channels, scale, d, to);
    return RD_LAUNCH(gpu, st, (pixel_mean_back<false, T>), grid, block, 0, n * pixels, pixels,
                     channels, scale, d, to);
}

extern "C" rd_code rd_cuda_global_mean_forward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    const int64_t pixels = x->dim[1] * x->dim[2];
    RD_BY_ELEMENT(x->type, pixel_mean_of<T>(rd_gpu_of(c->be), x->dim[0], pixels, x->dim[3],
                                            x->values, c->out[0]->values, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_global_mean_backward(rd_call *c, rd_status *st)
{
    const rd_var *x = c->in[0];
    const int64_t pixels = x->dim[1] * x->dim[2];
    void *dx;
    bool add;
    RD_TRY_OR_RETURN(rd_call_grad(c, 0, &dx, &add, st));
    if (!dx) return RD_OK;
    RD_BY_ELEMENT(x->type, mean_back_of<T>(rd_gpu_of(c->be), x->dim[0], pixels, x->dim[3],
                                           c->out[0]->grads, dx, add, st));
    return RD_OK;
}
