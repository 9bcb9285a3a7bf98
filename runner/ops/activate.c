/* activate.c -- activation functions, element by element: y = f(x), dx += f'(x) dy. Backward
 * computes f'(x) from x.
 *
 * gelu and silu have the form x s(x), where s goes to 0 like an exponential for large -x. So s
 * comes from exponentials alone: 1 + tanh or 1 + erf would lose all digits there. The arguments of
 * these exponentials are large, and exp makes their absolute error its relative error. So they stay
 * products of two floats, which lose nothing when the multiple of log 2 is taken off. */
#include "activate.h"
#include "rd/vecmath.h"

/* Returns x y + z, rounded once: as rd_fmaf, on every CPU. */
static inline float activate_fma(float x, float y, float z)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(x, y, z);
#else
    return (float)((double)x * (double)y + (double)z);
#endif
}

/* Returns exp(u v + w) for a small w; u v + w is between -87.5 and 88. */
static inline float activate_exp(float u, float v, float w)
{
    /* The product of r and 0.693359375, nine bits, is exact. */
    const float r = __builtin_rintf(activate_fma(u, v, w) * 1.44269504088896341f),
                f = activate_fma(u, v, r * -0.693359375f);
    return rd_exp_reduced(activate_fma(r, 2.12194440e-4f, f) + w, r);
}

/* Limits x to [-most, most]. */
static inline float activate_limit(float x, float most)
{
    const float y = x > most ? most : x;
    return y < -most ? -most : y;
}

/* Beyond these, functions and slopes are 0 or those of x in float32. */
#define ACTIVATE_TANH_MOST 9.98f
#define ACTIVATE_ERF_MOST 13.0f
#define ACTIVATE_SILU_MOST 87.0f

/* Returns exp(-x (C1 + C3 x^2)) = (1 - tanh(u)) / (1 + tanh(u)) of gelu_tanh; |x| is at most
 * ACTIVATE_TANH_MOST. The factor in brackets is computed as two floats. */
static inline float activate_tanh_exp(float x)
{
    const float c1 = (float)RD_GELU_C1, c1_rest = (float)(RD_GELU_C1 - (double)c1),
                c3 = (float)RD_GELU_C3, c3_rest = (float)(RD_GELU_C3 - (double)c3);
    const float s = x * x, s_rest = activate_fma(x, x, -s), q = c3 * s,
                q_rest = activate_fma(c3, s, -q) +
                         rd_fmaf(c3, s_rest, rd_fmaf(c3_rest, s, c1_rest));
    /* Knuth's sum of two floats. */
    const float t = c1 + q, b = t - c1, t_rest = ((c1 - (t - b)) + (q - b)) + q_rest;
    return activate_exp(-x, t, -x * t_rest);
}

static inline float activate_gelu_tanh(float x)
{
    const float e = activate_tanh_exp(activate_limit(x, ACTIVATE_TANH_MOST));
    return x * (x < -ACTIVATE_TANH_MOST ? 0.0f : 1.0f / (1.0f + e));
}
static inline float activate_gelu_tanh_slope(float x0)
{
    const float x = activate_limit(x0, ACTIVATE_TANH_MOST), e = activate_tanh_exp(x),
                s = x0 < -ACTIVATE_TANH_MOST ? 0.0f : 1.0f / (1.0f + e),
                slope = rd_fmaf(3.0f * (float)RD_GELU_C3, x * x, (float)RD_GELU_C1);
    return s + x * slope * s * (e * s);
}

/* Returns erfc(|x| / sqrt(2)) / 2 = Phi(-|x|): t exp(p(t) - x^2 / 2) / 2 with t = 1 / (1 + z / 2)
 * (Press et al. 1992, Numerical Recipes in C, erfcc, relative error 1.2e-7). |x| is at most
 * ACTIVATE_ERF_MOST. */
static inline float activate_tail(float x)
{
    const float z = __builtin_fabsf(x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = rd_fmaf(p, t, -0.82215223f);
    p = rd_fmaf(p, t, 1.48851587f);
    p = rd_fmaf(p, t, -1.13520398f);
    p = rd_fmaf(p, t, 0.27886807f);
    p = rd_fmaf(p, t, -0.18628806f);
    p = rd_fmaf(p, t, 0.09678418f);
    p = rd_fmaf(p, t, 0.37409196f);
    p = rd_fmaf(p, t, 1.00002368f);
    p = rd_fmaf(p, t, -1.26551223f);
    return 0.5f * t * activate_exp(-0.5f * x, x, p);
}
/* Returns Phi(x), of x limited as above; x0: x without limits. */
static inline float activate_phi(float x, float x0)
{
    const float q = x0 < -ACTIVATE_ERF_MOST ? 0.0f : activate_tail(x);
    return x > 0.0f ? 1.0f - q : q;
}
static inline float activate_gelu_erf(float x)
{
    return x * activate_phi(activate_limit(x, ACTIVATE_ERF_MOST), x);
}
static inline float activate_gelu_erf_slope(float x0)
{
    const float x = activate_limit(x0, ACTIVATE_ERF_MOST),
                density = 0.39894228040143268f * activate_exp(-0.5f * x, x, 0.0f);
    return activate_phi(x, x0) + (x0 < -ACTIVATE_ERF_MOST ? 0.0f : x * density);
}

static inline float activate_silu(float x)
{
    return x * (x < -ACTIVATE_SILU_MOST ? 0.0f : rd_sigmoidf(x));
}
static inline float activate_silu_slope(float x0)
{
    const float x = activate_limit(x0, 88.0f), e = rd_expf(-x),
                s = x < -ACTIVATE_SILU_MOST ? 0.0f : 1.0f / (1.0f + e);
    return s * (1.0f + x * (e * s));
}

static inline float activate_relu2(float x)
{
    const float y = x < 0.0f ? 0.0f : x;
    return y * y;
}
static inline float activate_relu2_slope(float x)
{
    return x < 0.0f ? 0.0f : 2.0f * x;
}

typedef struct activate_job {
    rd_activation f;
    const float *x, *dy;
    float *y; /* in backward dx; may be dy */
    bool add;
} activate_job;

#define ACTIVATE_EACH(result)                                                  \
    do {                                                                       \
        _Pragma("omp simd") for (int64_t i = lo; i < hi; i++) y[i] = (result); \
    } while (0)

static void activate_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const activate_job *j = ctx;
    const float *restrict x = j->x;
    float *restrict y = j->y;
    switch (j->f) {
    case RD_ACT_GELU_TANH:
        ACTIVATE_EACH(activate_gelu_tanh(x[i]));
        break;
    case RD_ACT_GELU_ERF:
        ACTIVATE_EACH(activate_gelu_erf(x[i]));
        break;
    case RD_ACT_SILU:
        ACTIVATE_EACH(activate_silu(x[i]));
        break;
    case RD_ACT_RELU2:
        ACTIVATE_EACH(activate_relu2(x[i]));
        break;
    case RD_ACT_RELU:
        break; /* the op relu */
    }
}

#define ACTIVATE_BACK(slope)                           \
    do {                                               \
        if (j->add)                                    \
            ACTIVATE_EACH(y[i] + dy[i] * slope(x[i])); \
        else                                           \
            ACTIVATE_EACH(dy[i] * slope(x[i]));        \
    } while (0)

static void activate_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const activate_job *j = ctx;
    const float *x = j->x, *dy = j->dy;
    float *y = j->y;
    switch (j->f) {
    case RD_ACT_GELU_TANH:
        ACTIVATE_BACK(activate_gelu_tanh_slope);
        break;
    case RD_ACT_GELU_ERF:
        ACTIVATE_BACK(activate_gelu_erf_slope);
        break;
    case RD_ACT_SILU:
        ACTIVATE_BACK(activate_silu_slope);
        break;
    case RD_ACT_RELU2:
        ACTIVATE_BACK(activate_relu2_slope);
        break;
    case RD_ACT_RELU:
        break; /* the op relu */
    }
}

static rd_code activate_infer(rd_call *c, rd_status *st)
{
    (void)st;
    rd_op_like(c->out[0], c->in[0]);
    return RD_OK;
}

enum { GRAIN = 4096 };

static rd_code activate_forward(rd_call *c, rd_status *st)
{
    activate_job j = {.f = *(const rd_activation *)c->attr, .x = c->in[0]->v, .y = c->out[0]->v};
    rd_parallel(c->be, rd_op_elements(c->in[0]), GRAIN, activate_forward_part, &j);
    return st->code;
}

static rd_code activate_backward(rd_call *c, rd_status *st)
{
    activate_job j = {.f = *(const rd_activation *)c->attr, .x = c->in[0]->v, .dy = c->out[0]->g};
    void *dx;
    RD_TRY(rd_activate_gradient(c, &dx, &j.add, st));
    j.y = dx;
    if (dx) rd_parallel(c->be, rd_op_elements(c->in[0]), GRAIN, activate_backward_part, &j);
done:
    return st->code;
}

static bool activate_again(const rd_call *c)
{
    (void)c;
    return true;
}

RD_OP(activate) = {
    .name = "activate",
    .about = "gelu, silu, relu squared",
    .infer = activate_infer,
    .kernel =
        {[RD_CPU] = {activate_forward, activate_backward}, [RD_GPU] = RD_GPU_KERNEL(activate)},
    .narrow = RD_NARROW(0),
    .own_grads = true,
    .reads_out = RD_READS_NOTHING,
    .again = activate_again};

rd_var *rd_op_activate(rd_tape *t, rd_activation f, rd_var *x)
{
    if (f == RD_ACT_RELU) return rd_op_relu(t, x);
    return x ? rd_tape_apply(t, &rd_op_def_activate, &f, sizeof f, &x, 1, NULL, 1) : NULL;
}
