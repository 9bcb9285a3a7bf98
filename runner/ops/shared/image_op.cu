/* image_op.cu -- the elementwise passes of image_op.h on a GPU. Memory bounds the speed of all of
 * them: each tensor is read once and written once. */
#include "../../engine/gpu/element_device.h"
#include "image_op.h"
#include "../../engine/gpu/rows_grid.h"

/* ---- elementwise: y = f(a, b, y) ---- */
/* TWO: f reads b. OLD: f reads y. */
struct relu_of {
    enum { TWO = 0, OLD = 0 };
    static __device__ float of(float a, float, float) { return a < 0.0f ? 0.0f : a; }
};
struct sum_of {
    enum { TWO = 1, OLD = 0 };
    static __device__ float of(float a, float b, float) { return a + b; }
};
struct relu_sum_of {
    enum { TWO = 1, OLD = 0 };
    static __device__ float of(float a, float b, float) { return relu_of::of(a + b, 0.0f, 0.0f); }
};
struct mask_of {
    enum { TWO = 0, OLD = 1 };
    static __device__ float of(float a, float, float y) { return a > 0.0f ? y : 0.0f; }
};
struct masked_of {
    enum { TWO = 1, OLD = 0 };
    static __device__ float of(float a, float b, float) { return a > 0.0f ? b : 0.0f; }
};
struct masked_add_of {
    enum { TWO = 1, OLD = 1 };
    static __device__ float of(float a, float b, float y) { return y + (a > 0.0f ? b : 0.0f); }
};
struct copy_of {
    enum { TWO = 0, OLD = 0 };
    static __device__ float of(float a, float, float) { return a; }
};
struct add_of {
    enum { TWO = 0, OLD = 1 };
    static __device__ float of(float a, float, float y) { return y + a; }
};

template <class F, typename T>
static __device__ inline void one_element(int64_t i, const T *a, const T *b, T *y)
{
    rd_put(y + i,
           F::of(rd_get(a + i), F::TWO ? rd_get(b + i) : 0.0f, F::OLD ? rd_get(y + i) : 0.0f));
}

template <class F, typename T>
static __global__ void elements(int64_t n, const T *a, const T *b, T *y)
{
    for (RD_EACH(i, n)) one_element<F>(i, a, b, y);
}

/* Computes V elements (16 bytes) at a time. The first threads also compute the last n % V. */
template <class F, int V, typename T>
static __global__ void elements_by(int64_t n, const T *a, const T *b, T *y)
{
    for (RD_EACH(i, n / V)) {
        const rd_lanes<V> p = rd_lanes_get<V>(a + i * V);
        rd_lanes<V> q = {}, old = {};
        if (F::TWO) q = rd_lanes_get<V>(b + i * V);
        if (F::OLD) old = rd_lanes_get<V>(y + i * V);
        for (int l = 0; l < V; l++) old.at[l] = F::of(p.at[l], q.at[l], old.at[l]);
        rd_lanes_put<V>(y + i * V, old);
    }
    for (RD_EACH(i, n % V)) one_element<F>(n / V * V + i, a, b, y);
}

template <class F, typename T>
static rd_code launch_elements_of(rd_gpu *gpu, int64_t n, const void *a, const void *b, void *y,
                                  rd_status *st)
{
    enum { V = 16 / sizeof(T) };
    const T *p = static_cast<const T *>(a), *q = static_cast<const T *>(b);
    T *to = static_cast<T *>(y);
    if (rd_by_four(a) && rd_by_four(b) && rd_by_four(y))
        return RD_LAUNCH(gpu, st, (elements_by<F, V, T>), rd_grid((n + V - 1) / V), RD_BLOCK, 0, n,
                         p, q, to);
    return RD_LAUNCH(gpu, st, (elements<F, T>), rd_grid(n), RD_BLOCK, 0, n, p, q, to);
}

template <class F>
static rd_code launch_elements(rd_gpu *gpu, rd_element type, int64_t n, const void *a,
                               const void *b, void *y, rd_status *st)
{
    RD_BY_ELEMENT(type, (launch_elements_of<F, T>(gpu, n, a, b, y, st)));
    return RD_OK;
}

static rd_code launch_relu(rd_backend *be, rd_element type, int64_t n, const void *x, void *y,
                           rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(be);
    return launch_elements<relu_of>(gpu, type, n, x, NULL, y, st);
}

static rd_code launch_sum(rd_backend *be, rd_element type, int64_t n, const void *a, const void *b,
                          bool relu, void *y, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(be);
    return relu ? launch_elements<relu_sum_of>(gpu, type, n, a, b, y, st)
                : launch_elements<sum_of>(gpu, type, n, a, b, y, st);
}

static rd_code launch_mask(rd_backend *be, rd_element type, int64_t n, const void *y, void *g,
                           rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(be);
    return launch_elements<mask_of>(gpu, type, n, y, NULL, g, st);
}

static rd_code launch_masked(rd_backend *be, rd_element type, int64_t n, const void *y,
                             const void *g, void *out, bool add, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(be);
    return add ? launch_elements<masked_add_of>(gpu, type, n, y, g, out, st)
               : launch_elements<masked_of>(gpu, type, n, y, g, out, st);
}

static rd_code launch_copy(rd_backend *be, rd_element type, int64_t n, const void *x, void *out,
                           bool add, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(be);
    return add ? launch_elements<add_of>(gpu, type, n, x, NULL, out, st)
               : launch_elements<copy_of>(gpu, type, n, x, NULL, out, st);
}

const rd_element_kernels rd_cuda_elements = {launch_relu, launch_sum, launch_mask, launch_masked,
                                             launch_copy};
