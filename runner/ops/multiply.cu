/* multiply.cu -- multiply on a GPU: the formulas of multiply.c. */
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/rows_grid.h"
#include "multiply.h"
#include "shared/image_op.h"

template <int V, typename T>
static __device__ inline void multiply_lanes(const T *a, const T *b, T *y, bool add)
{
    rd_lanes<V> p = rd_lanes_get<V>(a), old = {};
    const rd_lanes<V> q = rd_lanes_get<V>(b);
    if (add) old = rd_lanes_get<V>(y);
    for (int l = 0; l < V; l++) {
        const float x = p.at[l] * q.at[l];
        p.at[l] = add ? old.at[l] + x : x;
    }
    rd_lanes_put<V>(y, p);
}

/* V elements (16 bytes, or one) at a time. The first threads also compute the last n % V. */
template <int V, typename T>
static __global__ void multiply_each(int64_t n, const T *a, const T *b, T *y, bool add)
{
    for (RD_EACH(i, n / V)) multiply_lanes<V>(a + i * V, b + i * V, y + i * V, add);
    for (RD_EACH(i, n % V)) {
        const int64_t at = n / V * V + i;
        multiply_lanes<1>(a + at, b + at, y + at, add);
    }
}

template <typename T>
static rd_code multiply_launch(rd_gpu *gpu, const rd_multiply_pass *p, rd_status *st)
{
    enum { V = 16 / sizeof(T) };
    const T *a = static_cast<const T *>(p->a), *b = static_cast<const T *>(p->b);
    T *y = static_cast<T *>(p->y);
    if (rd_by_four(a) && rd_by_four(b) && rd_by_four(y))
        return RD_LAUNCH(gpu, st, (multiply_each<V, T>), rd_grid((p->n + V - 1) / V), RD_BLOCK, 0,
                         p->n, a, b, y, p->add);
    return RD_LAUNCH(gpu, st, (multiply_each<1, T>), rd_grid(p->n), RD_BLOCK, 0, p->n, a, b, y,
                     p->add);
}

static rd_code multiply_pass(rd_call *c, const rd_multiply_pass *p, rd_status *st)
{
    RD_BY_ELEMENT(c->out[0]->type, (multiply_launch<T>(rd_gpu_of(c->be), p, st)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_multiply_forward(rd_call *c, rd_status *st)
{
    const rd_multiply_pass p = rd_multiply_forward_pass(c);
    return multiply_pass(c, &p, st);
}

extern "C" rd_code rd_cuda_multiply_backward(rd_call *c, rd_status *st)
{
    return rd_multiply_back(c, multiply_pass, st);
}
