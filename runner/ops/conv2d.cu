/* conv2d.cu -- conv2d on a GPU: the convolutions of gpu.h, and kernels for bias and relu.
 *
 * Memory of these kernels: with a bias or relu, forward reads and writes y. Backward reads dy once
 * for the bias. If it must go back through the relu, it also reads y and writes dy. Without bias
 * and relu no such kernel runs. */
#include "rd/image.h"
#include "shared/channels.h"

template <int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK)
    bias_relu(rd_columns k, const float *bias, bool relu, T *y)
{
    enum { U = 4 };
    const rd_strip s = rd_strip_of<V>(k);
    rd_lanes<V> b = {};
    if (bias && s.inside) b = rd_lanes_get<V>(bias + s.c);
    for (int64_t r = s.first; r < s.end; r += U * s.step) {
        rd_lanes<V> v[U] = {};
#pragma unroll
        for (int u = 0; u < U; u++)
            if (r + u * s.step < s.end) v[u] = rd_lanes_get<V>(y + (r + u * s.step) * k.C + s.c);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * s.step >= s.end) break;
            for (int l = 0; l < V; l++) {
                v[u].at[l] += b.at[l];
                if (relu && v[u].at[l] < 0.0f) v[u].at[l] = 0.0f; /* NaN stays NaN */
            }
            rd_lanes_put<V>(y + (r + u * s.step) * k.C + s.c, v[u]);
        }
    }
}

/* With y: sets g to 0 unless y > 0. With part: sums g over the rows of each slice. */
template <int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK)
    mask_and_sum(rd_columns k, const T *y, T *g, double *part)
{
    /* A float32 sum has RUN * U rows. */
    enum { U = 2, RUN = 32 };
    const rd_strip s = rd_strip_of<V>(k);
    float runs[V] = {};
    for (int64_t r = s.first; r < s.end;) {
        float a[V] = {};
        for (int i = 0; i < RUN && r < s.end; i++, r += U * s.step) {
            rd_lanes<V> d[U] = {}, v[U] = {};
#pragma unroll
            for (int u = 0; u < U; u++)
                if (r + u * s.step < s.end) {
                    d[u] = rd_lanes_get<V>(g + (r + u * s.step) * k.C + s.c);
                    if (y) v[u] = rd_lanes_get<V>(y + (r + u * s.step) * k.C + s.c);
                }
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (r + u * s.step >= s.end) break;
                for (int l = 0; l < V; l++) {
                    if (y && !(v[u].at[l] > 0.0f)) d[u].at[l] = 0.0f;
                    a[l] += d[u].at[l];
                }
                if (y) rd_lanes_put<V>(g + (r + u * s.step) * k.C + s.c, d[u]);
            }
        }
        for (int l = 0; l < V; l++) runs[l] += a[l];
    }
    if (!part) return;
    double sum[V];
    for (int l = 0; l < V; l++) sum[l] = (double)runs[l];
    rd_down_sum(sum, k.across);
    if ((int)threadIdx.x < k.across && s.inside)
        for (int l = 0; l < V; l++) part[s.part * k.C + s.c + l] = sum[l];
}

static __global__ void __launch_bounds__(RD_BLOCK)
    conv2d_add_slices(rd_columns k, const double *part, float *out)
{
    const int64_t c = (int64_t)blockIdx.y * RD_SLICES_ACROSS + threadIdx.x % RD_SLICES_ACROSS;
    const double sum = rd_slices_sum(k, part, c);
    if (threadIdx.x < RD_SLICES_ACROSS && c < k.C) out[c] += (float)sum;
}

static rd_gpu_conv conv_of(const rd_call *c)
{
    const rd_conv *a = (const rd_conv *)c->attr;
    const rd_var *x = c->in[0], *W = c->in[1], *y = c->out[0];
    rd_gpu_conv g = {};
    g.n = x->dim[0], g.h = x->dim[1], g.w = x->dim[2], g.ci = x->dim[3];
    g.kh = W->dim[0], g.kw = W->dim[1], g.co = W->dim[3];
    g.oh = y->dim[1], g.ow = y->dim[2];
    g.stride = a->stride;
    g.type = x->type;
    g.pad_top = a->pad_top, g.pad_left = a->pad_left, g.pad_bottom = a->pad_bottom,
    g.pad_right = a->pad_right;
    return g;
}

template <typename T>
static rd_code conv2d_finish(rd_gpu *gpu, const rd_columns &k, const rd_var *b, bool relu, void *y,
                             rd_status *st)
{
    RD_LANES(k.C, RD_LAUNCH(gpu, st, (bias_relu<V, T>), rd_columns_grid(k), RD_BLOCK, 0, k,
                            b ? b->v : NULL, relu, static_cast<T *>(y)));
    return RD_OK;
}

template <typename T>
static rd_code conv2d_mask_and_sum(rd_gpu *gpu, const rd_columns &k, const void *y, void *g,
                                   double *part, rd_status *st)
{
    RD_LANES(k.C, RD_LAUNCH(gpu, st, (mask_and_sum<V, T>), rd_columns_grid(k), RD_BLOCK, 0, k,
                            static_cast<const T *>(y), static_cast<T *>(g), part));
    return RD_OK;
}

extern "C" rd_code rd_cuda_conv2d_forward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_gpu_conv g = conv_of(c);
    const bool relu = ((const rd_conv *)c->attr)->relu;
    const rd_var *y = c->out[0], *b = c->in[2];
    if (g.n == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_gpu_conv_forward(gpu, &g, c->in[0]->values, c->in[1]->v, y->values, st));
    if (!b && !relu) return RD_OK;
    const rd_columns k = rd_columns_of(g.co, y->rows, y->rows);
    RD_BY_ELEMENT(g.type, conv2d_finish<T>(gpu, k, b, relu, y->values, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_conv2d_backward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_gpu_conv g = conv_of(c);
    const rd_var *y = c->out[0];
    const bool mask = ((const rd_conv *)c->attr)->relu && !y->g_masked;
    float *dW, *db;
    void *dx;
    bool add, had;
    RD_TRY_OR_RETURN(rd_call_grad(c, 1, &dW, &had, st));
    RD_TRY_OR_RETURN(rd_call_grad(c, 2, &db, &had, st));
    RD_TRY_OR_RETURN(rd_call_grad(c, 0, &dx, &add, st));
    if (g.n == 0) return RD_OK;
    if (mask || db) {
        const rd_columns k = rd_columns_of(g.co, y->rows, y->rows);
        double *part = NULL;
        if (db)
            RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch,
                                          (size_t)(k.slices * k.C) * sizeof *part, &part, st));
        RD_BY_ELEMENT(g.type,
                      conv2d_mask_and_sum<T>(gpu, k, mask ? y->values : NULL, y->grads, part, st));
        if (db)
            RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, conv2d_add_slices, rd_slices_grid(k), RD_BLOCK, 0,
                                       k, part, db));
    }
    if (dW) RD_TRY_OR_RETURN(rd_gpu_conv_weights(gpu, &g, c->in[0]->values, y->grads, dW, st));
    if (dx) RD_TRY_OR_RETURN(rd_gpu_conv_data(gpu, &g, y->grads, c->in[1]->v, dx, add, st));
    return RD_OK;
}
