/* activate.cu -- activation functions on a GPU: the formulas of activate.c. */
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/rows_grid.h"
#include "activate.h"

/* Beyond this exp is 0 in float32. */
#define LEAST_EXP (-87.0f)

/* Returns exp(x) with a relative error that does not grow with -x: x is used as two floats. */
static __device__ inline float exp_of(double x)
{
    const double a = x > 88.0 ? 88.0 : x;
    const float hi = (float)a, lo = (float)(a - (double)hi);
    return hi < LEAST_EXP ? 0.0f : expf(hi) * (1.0f + lo);
}

static __device__ inline float limited(float x, float most)
{
    const float y = x > most ? most : x;
    return y < -most ? -most : y;
}

/* exp(-x (C1 + C3 x^2)) */
static __device__ inline float tanh_exp(float x)
{
    const double v = (double)x;
    return exp_of(-v * (RD_GELU_C1 + RD_GELU_C3 * v * v));
}

/* exp(plus - x^2 / 2) */
static __device__ inline float square_exp(float x, float plus)
{
    return exp_of((double)plus - 0.5 * (double)x * (double)x);
}

static __device__ inline float phi(float x)
{
    const float z = fabsf(x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    const float q = 0.5f * t * square_exp(x, p);
    return x > 0.0f ? 1.0f - q : q;
}

/* 1 / (1 + e), where e is exp of at most 88: 0 beyond 87. */
static __device__ inline float share(float e)
{
    return e > 6e37f ? 0.0f : 1.0f / (1.0f + e);
}

template <rd_activation F> static __device__ inline float value_of(float x)
{
    if (F == RD_ACT_RELU2) return x < 0.0f ? 0.0f : x * x;
    if (F == RD_ACT_GELU_ERF) return x * phi(limited(x, 64.0f));
    const float e = F == RD_ACT_SILU ? exp_of(-(double)x) : tanh_exp(limited(x, 64.0f));
    return x * share(e);
}

template <rd_activation F> static __device__ inline float slope_of(float x0)
{
    if (F == RD_ACT_RELU2) return x0 < 0.0f ? 0.0f : 2.0f * x0;
    const float x = limited(x0, F == RD_ACT_SILU ? 88.0f : 32.0f);
    if (F == RD_ACT_GELU_ERF) return phi(x) + x * 0.39894228040143268f * square_exp(x, 0.0f);
    const float e = F == RD_ACT_SILU ? exp_of(-(double)x) : tanh_exp(x), s = share(e),
                slope = F == RD_ACT_SILU ? 1.0f
                                         : (float)RD_GELU_C1 + 3.0f * (float)RD_GELU_C3 * x * x;
    return s + x * slope * s * (e * s);
}

template <rd_activation F, int V, typename T>
static __device__ inline void activate_lanes(const T *x, T *y)
{
    rd_lanes<V> v = rd_lanes_get<V>(x);
    for (int l = 0; l < V; l++) v.at[l] = value_of<F>(v.at[l]);
    rd_lanes_put<V>(y, v);
}

template <rd_activation F, int V, typename T>
static __device__ inline void activate_lanes_back(const T *x, const T *dy, T *dx, bool add)
{
    const rd_lanes<V> v = rd_lanes_get<V>(x);
    rd_lanes<V> d = rd_lanes_get<V>(dy), old = {};
    if (add) old = rd_lanes_get<V>(dx);
    for (int l = 0; l < V; l++) {
        d.at[l] *= slope_of<F>(v.at[l]);
        if (add) d.at[l] = old.at[l] + d.at[l];
    }
    rd_lanes_put<V>(dx, d);
}

/* V elements (a multiple of 16 bytes, or one) at a time. The first threads also compute the last
 * n % V. */
template <rd_activation F, int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK)
    activate_fwd(int64_t n, const T *__restrict__ x, T *__restrict__ y)
{
    for (RD_EACH(i, n / V)) activate_lanes<F, V>(x + i * V, y + i * V);
    for (RD_EACH(i, n % V)) activate_lanes<F, 1>(x + n / V * V + i, y + n / V * V + i);
}

/* dx may be dy. */
template <rd_activation F, int V, typename T>
static __global__ void __launch_bounds__(RD_BLOCK)
    activate_bwd(int64_t n, const T *__restrict__ x, const T *dy, T *dx, bool add)
{
    for (RD_EACH(i, n / V)) activate_lanes_back<F, V>(x + i * V, dy + i * V, dx + i * V, add);
    for (RD_EACH(i, n % V)) {
        const int64_t at = n / V * V + i;
        activate_lanes_back<F, 1>(x + at, dy + at, dx + at, add);
    }
}

template <rd_activation F, typename T>
static rd_code activate_launch(rd_gpu *gpu, int64_t n, const void *x, void *y, rd_status *st)
{
    enum { V = 16 / sizeof(T) };
    const T *a = static_cast<const T *>(x);
    T *b = static_cast<T *>(y);
    if (rd_by_four(x) && rd_by_four(y))
        return RD_LAUNCH(gpu, st, (activate_fwd<F, V, T>), rd_grid((n + V - 1) / V), RD_BLOCK, 0, n,
                         a, b);
    return RD_LAUNCH(gpu, st, (activate_fwd<F, 1, T>), rd_grid(n), RD_BLOCK, 0, n, a, b);
}

template <rd_activation F, typename T>
static rd_code activate_launch_back(rd_gpu *gpu, int64_t n, const void *x, const void *dy, void *dx,
                                    bool add, rd_status *st)
{
    enum { V = 16 / sizeof(T) };
    const T *a = static_cast<const T *>(x), *b = static_cast<const T *>(dy);
    T *to = static_cast<T *>(dx);
    if (rd_by_four(x) && rd_by_four(dy) && rd_by_four(dx))
        return RD_LAUNCH(gpu, st, (activate_bwd<F, V, T>), rd_grid((n + V - 1) / V), RD_BLOCK, 0, n,
                         a, b, to, add);
    return RD_LAUNCH(gpu, st, (activate_bwd<F, 1, T>), rd_grid(n), RD_BLOCK, 0, n, a, b, to, add);
}

#define BY_FUNCTION(f, launch, ...)                                      \
    ((f) == RD_ACT_GELU_TANH  ? launch<RD_ACT_GELU_TANH, T>(__VA_ARGS__) \
     : (f) == RD_ACT_GELU_ERF ? launch<RD_ACT_GELU_ERF, T>(__VA_ARGS__)  \
     : (f) == RD_ACT_SILU     ? launch<RD_ACT_SILU, T>(__VA_ARGS__)      \
                              : launch<RD_ACT_RELU2, T>(__VA_ARGS__))

extern "C" rd_code rd_cuda_activate_forward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_activation f = *static_cast<const rd_activation *>(c->attr);
    const rd_var *x = c->in[0], *y = c->out[0];
    RD_BY_ELEMENT(x->type, BY_FUNCTION(f, activate_launch, gpu, rd_op_elements(x), x->values,
                                       y->values, st));
    return RD_OK;
}

extern "C" rd_code rd_cuda_activate_backward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_activation f = *static_cast<const rd_activation *>(c->attr);
    const rd_var *x = c->in[0];
    const void *dy = c->out[0]->grads;
    void *dx;
    bool add;
    RD_TRY_OR_RETURN(rd_activate_gradient(c, &dx, &add, st));
    if (!dx) return RD_OK;
    RD_BY_ELEMENT(x->type, BY_FUNCTION(f, activate_launch_back, gpu, rd_op_elements(x), x->values,
                                       dy, dx, add, st));
    return RD_OK;
}
