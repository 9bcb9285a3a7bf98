/* shortcut.cu -- shortcut on a GPU; the formulas are those of shortcut.c. */
#include "../engine/gpu/element_device.h"
#include "shortcut.h"
#include "../engine/gpu/rows_grid.h"

struct shape {
    int64_t n, h, w, c; /* of x */
    int64_t stride, oh, ow, co;
    int64_t before; /* number of new channels before the old channels */
};

template <typename T>
static __global__ void shortcut(shape s, const T *__restrict__ x, T *__restrict__ y)
{
    for (RD_EACH_ROW(r, s.n * s.oh * s.ow)) {
        const int64_t q = r % s.ow, p = r / s.ow % s.oh, i = r / s.ow / s.oh;
        const T *from = x + ((i * s.h + p * s.stride) * s.w + q * s.stride) * s.c;
        for (RD_EACH_COLUMN(d, s.co)) {
            const int64_t c = d - s.before;
            rd_put(y + r * s.co + d, c >= 0 && c < s.c ? rd_get(from + c) : 0.0f);
        }
    }
}

template <bool ADD, typename T>
static __global__ void shortcut_back(shape s, const T *__restrict__ dy, T *__restrict__ dx)
{
    for (RD_EACH_ROW(r, s.n * s.h * s.w)) {
        const int64_t b = r % s.w, a = r / s.w % s.h, i = r / s.w / s.h;
        const bool used = a % s.stride == 0 && b % s.stride == 0;
        if (ADD && !used) continue;
        const T *from = dy + ((i * s.oh + a / s.stride) * s.ow + b / s.stride) * s.co + s.before;
        for (RD_EACH_COLUMN(c, s.c)) {
            const float d = used ? rd_get(from + c) : 0.0f;
            rd_put(dx + r * s.c + c, ADD ? rd_get(dx + r * s.c + c) + d : d);
        }
    }
}

template <typename T>
static rd_code shortcut_of(rd_gpu *gpu, const shape &k, const void *x, void *y, rd_status *st)
{
    return RD_LAUNCH(gpu, st, shortcut<T>, rd_rows_grid(k.n * k.oh * k.ow, k.co),
                     rd_rows_block(k.co), 0, k, static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T>
static rd_code shortcut_back_of(rd_gpu *gpu, const shape &k, const void *dy, void *dx, bool add,
                                rd_status *st)
{
    const dim3 grid = rd_rows_grid(k.n * k.h * k.w, k.c), block = rd_rows_block(k.c);
    const T *d = static_cast<const T *>(dy);
    T *to = static_cast<T *>(dx);
    if (add) return RD_LAUNCH(gpu, st, (shortcut_back<true, T>), grid, block, 0, k, d, to);
    return RD_LAUNCH(gpu, st, (shortcut_back<false, T>), grid, block, 0, k, d, to);
}

static shape shape_of(const rd_call *c)
{
    const rd_shortcut *a = static_cast<const rd_shortcut *>(c->attr);
    const int64_t *x = c->in[0]->dim, *y = c->out[0]->dim;
    return {x[0], x[1], x[2], x[3], a->stride, y[1], y[2], y[3], (y[3] - x[3]) / 2};
}

extern "C" rd_code rd_cuda_shortcut_forward(rd_call *c, rd_status *st)
{
    const shape s = shape_of(c);
    RD_BY_ELEMENT(c->in[0]->type,
                  shortcut_of<T>(rd_gpu_of(c->be), s, c->in[0]->values, c->out[0]->values, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_shortcut_backward(rd_call *c, rd_status *st)
{
    const shape s = shape_of(c);
    void *dx;
    bool add;
    RD_TRY_OR_RETURN(rd_call_grad(c, 0, &dx, &add, st));
    if (!dx) return RD_OK;
    RD_BY_ELEMENT(c->in[0]->type,
                  shortcut_back_of<T>(rd_gpu_of(c->be), s, c->out[0]->grads, dx, add, st));
    return RD_OK;
}
