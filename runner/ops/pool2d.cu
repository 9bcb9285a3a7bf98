/* pool2d.cu -- pool2d on a GPU; the formulas are those of pool2d.c.
 *
 * In forward, a thread computes V neighbouring channels of a pixel of the result. In backward, it
 * computes V neighbouring channels of a pixel of x: it adds the gradients of the windows around the
 * pixel, in (row, column) order of the windows. Each number is written once.
 *
 * Of each maximum forward keeps the index in the window: one byte per element for windows up to 15
 * x 15, otherwise two bytes. If backward also goes through the relu that made x (x is rectified), a
 * maximum that is not above 0 has no index. Backward then need not read y. */
#include "rd/image.h"
#include "shared/channels.h"

/* V indices that are loaded and stored at once. */
template <typename P, int V> struct alignas(sizeof(P) * V) places {
    P at[V];
};

template <typename T> struct pool {
    int64_t C;
    int64_t total; /* vectors of the result in forward, of x in backward */
    int h, w, oh, ow;
    int size, stride, top, left;
    const T *x;
    T *y;
    void *place; /* index of the maximum in its window, stored like y */
    bool rectified;
    const T *dy;
    T *dx;
    bool add;
};

/* Return the rows or columns [first, end) of a window that begins at `at` in an image of `most`,
 * counted from the first row or column of the window. */
static __device__ inline int window_first(int at)
{
    return at < 0 ? -at : 0;
}
static __device__ inline int window_end(int at, int size, int most)
{
    return size < most - at ? size : most - at;
}

/* Return the windows [first, last] that contain `at`. Window i begins at i stride - pad. */
template <typename T> static __device__ inline int first_with(const pool<T> &j, int at, int pad)
{
    /* Last begin of a window that ends before `at`, counted with the padding. */
    const int before = at + pad - j.size;
    return before < 0 ? 0 : before / j.stride + 1;
}
template <typename T>
static __device__ inline int last_with(const pool<T> &j, int at, int pad, int windows)
{
    const int i = (at + pad) / j.stride;
    return i < windows ? i : windows - 1;
}

/* Pixel (p, q) of sample i, and first channel c, of a vector. */
typedef struct pixel {
    int64_t i, c;
    int p, q;
} pixel;
/* Returns the pixel of vector e of images of h x w with C channels. */
template <int V> static __device__ inline pixel pixel_of(int64_t e, int64_t C, int h, int w)
{
    const int64_t t = e / (C / V), u = t / w, i = u / h;
    pixel x;
    x.c = (e - t * (C / V)) * V;
    x.q = (int)(t - u * w);
    x.p = (int)(u - i * h);
    x.i = i;
    return x;
}

template <int V, typename P, typename T>
static __global__ void __launch_bounds__(RD_BLOCK) max_forward(pool<T> j)
{
    for (RD_EACH(e, j.total)) {
        const pixel o = pixel_of<V>(e, j.C, j.oh, j.ow);
        const int u = o.p * j.stride - j.top, v = o.q * j.stride - j.left;
        const int r0 = window_first(u), r1 = window_end(u, j.size, j.h), s0 = window_first(v),
                  s1 = window_end(v, j.size, j.w);
        rd_lanes<V> best = {};
        int at[V] = {};
        for (int r = r0; r < r1; r++)
            for (int s = s0; s < s1; s++) {
                const rd_lanes<V> x =
                    rd_lanes_get<V>(j.x + ((o.i * j.h + u + r) * j.w + v + s) * j.C + o.c);
                const bool first = r == r0 && s == s0;
                for (int l = 0; l < V; l++)
                    if (first || x.at[l] > best.at[l] || isnan(x.at[l])) {
                        best.at[l] = x.at[l];
                        at[l] = r * j.size + s;
                    }
            }
        rd_lanes_put<V>(j.y + e * V, best);
        if (!j.place) continue;
        places<P, V> to;
        for (int l = 0; l < V; l++)
            to.at[l] = j.rectified && !(best.at[l] > 0.0f) ? (P) ~(P)0 : (P)at[l];
        reinterpret_cast<places<P, V> *>(j.place)[e] = to;
    }
}

template <int V, typename P, typename T>
static __global__ void __launch_bounds__(RD_BLOCK) max_backward(pool<T> j)
{
    for (RD_EACH(e, j.total)) {
        const pixel x = pixel_of<V>(e, j.C, j.h, j.w);
        const int p1 = last_with(j, x.p, j.top, j.oh), q0 = first_with(j, x.q, j.left),
                  q1 = last_with(j, x.q, j.left, j.ow);
        rd_lanes<V> sum = {};
        if (j.add) sum = rd_lanes_get<V>(j.dx + e * V);
        for (int p = first_with(j, x.p, j.top); p <= p1; p++)
            for (int q = q0; q <= q1; q++) {
                const int64_t o = ((x.i * j.oh + p) * j.ow + q) * j.C + x.c;
                const int here = (x.p + j.top - p * j.stride) * j.size + x.q + j.left -
                                 q * j.stride;
                const places<P, V> at = *reinterpret_cast<const places<P, V> *>(
                    reinterpret_cast<const P *>(j.place) + o);
                const rd_lanes<V> d = rd_lanes_get<V>(j.dy + o);
                for (int l = 0; l < V; l++)
                    if ((int)at.at[l] == here) sum.at[l] += d.at[l];
            }
        rd_lanes_put<V>(j.dx + e * V, sum);
    }
}

template <int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK) mean_forward(pool<T> j)
{
    for (RD_EACH(e, j.total)) {
        const pixel o = pixel_of<V>(e, j.C, j.oh, j.ow);
        const int u = o.p * j.stride - j.top, v = o.q * j.stride - j.left;
        const int r0 = window_first(u), r1 = window_end(u, j.size, j.h), s0 = window_first(v),
                  s1 = window_end(v, j.size, j.w);
        rd_lanes<V> sum = {};
        for (int r = r0; r < r1; r++)
            for (int s = s0; s < s1; s++) {
                const rd_lanes<V> x =
                    rd_lanes_get<V>(j.x + ((o.i * j.h + u + r) * j.w + v + s) * j.C + o.c);
                for (int l = 0; l < V; l++) sum.at[l] += x.at[l];
            }
        for (int l = 0; l < V; l++) sum.at[l] /= (float)((r1 - r0) * (s1 - s0));
        rd_lanes_put<V>(j.y + e * V, sum);
    }
}

template <int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK, 4) mean_backward(pool<T> j)
{
    for (RD_EACH(e, j.total)) {
        const pixel x = pixel_of<V>(e, j.C, j.h, j.w);
        const int p1 = last_with(j, x.p, j.top, j.oh), q0 = first_with(j, x.q, j.left),
                  q1 = last_with(j, x.q, j.left, j.ow);
        rd_lanes<V> sum = {};
        if (j.add) sum = rd_lanes_get<V>(j.dx + e * V);
        for (int p = first_with(j, x.p, j.top); p <= p1; p++)
            for (int q = q0; q <= q1; q++) {
                const int u = p * j.stride - j.top, v = q * j.stride - j.left;
                const int rows = window_end(u, j.size, j.h) - window_first(u),
                          columns = window_end(v, j.size, j.w) - window_first(v);
                const rd_lanes<V> d = rd_lanes_get<V>(j.dy + ((x.i * j.oh + p) * j.ow + q) * j.C +
                                                      x.c);
                for (int l = 0; l < V; l++) sum.at[l] += d.at[l] / (float)(rows * columns);
            }
        rd_lanes_put<V>(j.dx + e * V, sum);
    }
}

template <typename T> static bool small_place(const pool<T> &j)
{
    return j.size <= 15;
}

template <typename T> static pool<T> pool_of(const rd_call *c)
{
    const rd_pool *a = (const rd_pool *)c->attr;
    const rd_var *x = c->in[0], *y = c->out[0];
    pool<T> j = {};
    j.C = x->dim[3];
    j.h = (int)x->dim[1];
    j.w = (int)x->dim[2];
    j.oh = (int)y->dim[1];
    j.ow = (int)y->dim[2];
    j.size = (int)a->size;
    j.stride = (int)a->stride;
    j.top = (int)a->pad_top;
    j.left = (int)a->pad_left;
    j.rectified = y->rectified;
    return j;
}

template <typename T> static rd_code pool2d_cuda_forward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_var *x = c->in[0], *y = c->out[0];
    const bool max = ((const rd_pool *)c->attr)->kind == RD_POOL_MAX;
    const int64_t n = y->rows * y->cols;
    pool<T> j = pool_of<T>(c);
    j.x = static_cast<const T *>(x->values);
    j.y = static_cast<T *>(y->values);
    j.total = n / rd_columns_lanes(j.C);
    if (max && c->keep)
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)n * (small_place(j) ? 1 : 2),
                                      &j.place, st));
    c->saved = j.place;
    if (!max)
        RD_LANES(j.C, RD_LAUNCH(gpu, st, (mean_forward<V, T>), rd_grid(j.total), RD_BLOCK, 0, j));
    else if (small_place(j))
        RD_LANES(j.C, RD_LAUNCH(gpu, st, (max_forward<V, uint8_t, T>), rd_grid(j.total), RD_BLOCK,
                                0, j));
    else
        RD_LANES(j.C, RD_LAUNCH(gpu, st, (max_forward<V, uint16_t, T>), rd_grid(j.total), RD_BLOCK,
                                0, j));
    return RD_OK;
}

template <typename T> static rd_code pool2d_cuda_backward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    rd_var *x = c->in[0];
    const rd_var *y = c->out[0];
    const bool max = ((const rd_pool *)c->attr)->kind == RD_POOL_MAX;
    pool<T> j = pool_of<T>(c);
    j.dy = static_cast<const T *>(y->grads);
    j.place = c->saved;
    RD_TRY_OR_RETURN(rd_call_grad(c, 0, &j.dx, &j.add, st));
    if (!j.dx) return RD_OK;
    j.total = x->rows * x->cols / rd_columns_lanes(j.C);
    if (!max)
        RD_LANES(j.C, RD_LAUNCH(gpu, st, (mean_backward<V, T>), rd_grid(j.total), RD_BLOCK, 0, j));
    else if (small_place(j))
        RD_LANES(j.C, RD_LAUNCH(gpu, st, (max_backward<V, uint8_t, T>), rd_grid(j.total), RD_BLOCK,
                                0, j));
    else
        RD_LANES(j.C, RD_LAUNCH(gpu, st, (max_backward<V, uint16_t, T>), rd_grid(j.total), RD_BLOCK,
                                0, j));
    x->g_masked = y->rectified && !j.add;
    return RD_OK;
}

extern "C" rd_code rd_cuda_pool2d_forward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, pool2d_cuda_forward<T>(c, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_pool2d_backward(rd_call *c, rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type, pool2d_cuda_backward<T>(c, st));
    return RD_OK;
}
