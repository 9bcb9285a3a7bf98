/* activate.cu -- activation functions on a GPU: the formulas of activate.c. */
#include "../engine/gpu/kernel.h"
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

template <rd_activation F>
static __global__ void activate_fwd(int64_t n, const float *__restrict__ x, float *__restrict__ y)
{
    for (RD_EACH(i, n)) y[i] = value_of<F>(x[i]);
}

/* dx may be dy. */
template <rd_activation F>
static __global__ void activate_bwd(int64_t n, const float *__restrict__ x, const float *dy,
                                    float *dx, bool add)
{
    for (RD_EACH(i, n)) {
        const float d = dy[i] * slope_of<F>(x[i]);
        dx[i] = add ? dx[i] + d : d;
    }
}

#define BY_FUNCTION(f, kernel, ...)                                                       \
    ((f) == RD_ACT_GELU_TANH  ? RD_LAUNCH(gpu, st, kernel<RD_ACT_GELU_TANH>, __VA_ARGS__) \
     : (f) == RD_ACT_GELU_ERF ? RD_LAUNCH(gpu, st, kernel<RD_ACT_GELU_ERF>, __VA_ARGS__)  \
     : (f) == RD_ACT_SILU     ? RD_LAUNCH(gpu, st, kernel<RD_ACT_SILU>, __VA_ARGS__)      \
                              : RD_LAUNCH(gpu, st, kernel<RD_ACT_RELU2>, __VA_ARGS__))

extern "C" rd_code rd_cuda_activate_forward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_activation f = *static_cast<const rd_activation *>(c->attr);
    const int64_t n = rd_op_elements(c->in[0]);
    return BY_FUNCTION(f, activate_fwd, rd_grid(n), RD_BLOCK, 0, n, c->in[0]->v, c->out[0]->v);
}

extern "C" rd_code rd_cuda_activate_backward(rd_call *c, rd_status *st)
{
    rd_gpu *gpu = rd_gpu_of(c->be);
    const rd_activation f = *static_cast<const rd_activation *>(c->attr);
    const int64_t n = rd_op_elements(c->in[0]);
    const float *dy = c->out[0]->g;
    float *dx;
    bool add;
    RD_TRY_OR_RETURN(rd_activate_gradient(c, &dx, &add, st));
    if (!dx) return RD_OK;
    return BY_FUNCTION(f, activate_bwd, rd_grid(n), RD_BLOCK, 0, n, c->in[0]->v, dy, dx, add);
}
