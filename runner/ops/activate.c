/* activate.c -- activation functions, element by element: y = f(x), dx += f'(x) dy. Backward
 * computes f'(x) from x.
 *
 * gelu and silu have the form x s(x), where s goes to 0 like an exponential for large -x. So s
 * comes from exponentials alone: 1 + tanh or 1 + erf would lose all digits there. The arguments of
 * these exponentials are large, and exp makes their absolute error its relative error. So they are
 * computed in double and used as two floats. */
#include "activate.h"
#include "rd/vecmath.h"

/* Beyond this exp is 0 in float32. */
#define LEAST_EXP (-87.0)

/* Returns exp(x) with a relative error that does not grow with -x. */
static inline float activate_exp(double x)
{
    const double a = x > 88.0 ? 88.0 : x;
    const float hi = (float)a, lo = (float)(a - (double)hi);
    const float y = rd_expf(hi) * (1.0f + lo);
    return a < LEAST_EXP ? 0.0f : y;
}

/* Limits x to [-most, most], where f'(x) is 0 or 1 in float32: products with x stay finite. */
static inline float activate_limit(float x, float most)
{
    const float y = x > most ? most : x;
    return y < -most ? -most : y;
}

/* Returns a with 1 / (1 + exp(-a)) = (1 + tanh(u)) / 2 of gelu_tanh. */
static inline double activate_tanh_arg(float x)
{
    const double v = (double)x;
    return v * (RD_GELU_C1 + RD_GELU_C3 * v * v);
}

static inline float activate_gelu_tanh(float x)
{
    const double a = activate_tanh_arg(x);
    const float s = 1.0f / (1.0f + activate_exp(-a));
    return x * (a < LEAST_EXP ? 0.0f : s);
}
static inline float activate_gelu_tanh_slope(float x0)
{
    const float x = activate_limit(x0, 32.0f);
    const double a = activate_tanh_arg(x);
    const float e = activate_exp(-a), s = a < LEAST_EXP ? 0.0f : 1.0f / (1.0f + e),
                slope = (float)RD_GELU_C1 + 3.0f * (float)RD_GELU_C3 * x * x;
    return s + x * slope * s * (e * s);
}

/* Returns erfc(|x| / sqrt(2)) / 2 = Phi(-|x|): t exp(p(t) - x^2 / 2) / 2 with t = 1 / (1 + z / 2)
 * (Press et al. 1992, Numerical Recipes in C, erfcc, relative error 1.2e-7). */
static inline float activate_tail(float x)
{
    const float z = __builtin_fabsf(x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.5f * z);
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
    return 0.5f * t * activate_exp((double)p - 0.5 * (double)x * (double)x);
}
static inline float activate_phi(float x)
{
    const float q = activate_tail(x);
    return x > 0.0f ? 1.0f - q : q;
}
static inline float activate_gelu_erf(float x)
{
    return x * activate_phi(x);
}
static inline float activate_gelu_erf_slope(float x0)
{
    const float x = activate_limit(x0, 32.0f);
    return activate_phi(x) + x * 0.39894228040143268f * activate_exp(-0.5 * (double)x * (double)x);
}

static inline float activate_silu(float x)
{
    return x * (x < (float)LEAST_EXP ? 0.0f : rd_sigmoidf(x));
}
static inline float activate_silu_slope(float x0)
{
    const float x = activate_limit(x0, 88.0f), e = rd_expf(-x),
                s = x < (float)LEAST_EXP ? 0.0f : 1.0f / (1.0f + e);
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
    RD_TRY(rd_activate_gradient(c, &j.y, &j.add, st));
    if (j.y) rd_parallel(c->be, rd_op_elements(c->in[0]), GRAIN, activate_backward_part, &j);
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
    .own_grads = true,
    .reads_out = RD_READS_NOTHING,
    .again = activate_again};

rd_var *rd_op_activate(rd_tape *t, rd_activation f, rd_var *x)
{
    if (f == RD_ACT_RELU) return rd_op_relu(t, x);
    return x ? rd_tape_apply(t, &rd_op_def_activate, &f, sizeof f, &x, 1, NULL, 1) : NULL;
}
