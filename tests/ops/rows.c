/* rows.c -- tests the ops of Transformers that work on rows against naive references in double,
 * with central differences for the gradients. */
#include "rows_run.h"

static const double TOLERANCE = 2e-5;

/* ---- layer_norm ---- */
typedef struct norm_case {
    const char *name;
    int64_t n, d;
    bool rms, bias;
    float eps;
} norm_case;

static const norm_case norm_cases[] = {
    {"one number", 1, 1, false, true, 1e-2f},
    {"one row", 1, 7, false, true, 1e-6f},
    {"one column", 5, 1, false, true, 1e-2f},
    {"odd sizes", 3, 13, false, true, 1e-5f},
    {"no bias", 9, 8, false, false, 1e-5f},
    {"large eps", 9, 8, false, true, 0.5f},
    {"several chunks", 70, 33, false, true, 1e-6f},
    {"unequal chunks", 2085, 5, false, true, 1e-6f},
    {"wide", 2, 1030, false, true, 1e-6f},
    {"rms, one number", 1, 1, true, false, 0.1f},
    {"rms, odd sizes", 3, 13, true, false, 1e-5f},
    {"rms, bias", 9, 8, true, true, 1e-5f},
    {"rms, several chunks", 70, 33, true, false, 1e-6f},
};

static double norm_reference(void *ctx)
{
    const rows_run *t = ctx;
    const norm_case *c = t->test_case;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++) {
        const double *x = t->h.x[t->in[0]] + i * t->d;
        double mean = 0.0, variance = 0.0;
        for (int64_t k = 0; k < t->d && !c->rms; k++) mean += x[k] / (double)t->d;
        for (int64_t k = 0; k < t->d; k++) variance += (x[k] - mean) * (x[k] - mean) / (double)t->d;
        for (int64_t k = 0; k < t->d; k++)
            total += (double)t->h.r[i * t->d + k] *
                     ((x[k] - mean) / sqrt(variance + (double)c->eps) * t->h.x[t->in[1]][k] +
                      (c->bias ? t->h.x[t->in[2]][k] : 0.0));
    }
    return total;
}

static rd_var *norm_of(rows_run *t, rd_var *x)
{
    const norm_case *c = t->test_case;
    const rd_layer_norm a = {.eps = c->eps, .rms = c->rms};
    return rd_op_layer_norm(t->h.tape, &a, x, h_var(&t->h, t->in[1]), h_var(&t->h, t->in[2]));
}
static rd_var *norm_apply(rows_run *t)
{
    return norm_of(t, h_var(&t->h, t->in[0]));
}

static void norm_init(rows_run *t, const void *test_case, int threads)
{
    const norm_case *c = test_case;
    *t = (rows_run){.apply = norm_apply, .test_case = c, .n = c->n, .d = c->d};
    h_init_as(&t->h, threads, false);
    t->in[0] = h_input(&t->h, c->n, c->d);
    t->in[1] = h_input(&t->h, 0, c->d);
    t->in[2] = c->bias ? h_input(&t->h, 0, c->d) : -1;
    h_fill(&t->h, 1.5, c->n * c->d);
}

static void test_norm(void **state)
{
    rows_run t;
    norm_init(&t, *state, 1);
    rd_var *y = norm_apply(&t);
    /* The gradient of a lone number is 0: rounding errors times 1 / sqrt(eps) remain. */
    h_check(&t.h, h_weighted(&t.h, &y, 1), norm_reference, &t, t.d > 1 ? TOLERANCE : 5e-3);
    h_free(&t.h);
}

static void test_norm_threads(void **state)
{
    (void)state;
    for (int k = 6; k < 9; k++) rows_same_bytes(norm_init, &norm_cases[k]);
}

static void test_norm_no_rows(void **state)
{
    rows_run t;
    (void)state;
    norm_init(&t, &norm_cases[3], 1);
    rows_check_none(&t, norm_of(&t, rows_none(&t, t.in[0])));
    h_free(&t.h);
}

/* Numbers near 10,000 that differ by about 0.01: mean(x^2) - mean^2 has no right digit in float32,
 * and a mean in float32 is off by a part of the differences. */
static void test_norm_far_from_zero(void **state)
{
    static const norm_case far = {"far", 3, 517, false, true, 1e-6f};
    rows_run t;
    (void)state;
    norm_init(&t, &far, 1);
    float *x = test_values(t.h.ps) + t.h.p[t.in[0]]->offset;
    for (int64_t i = 0; i < far.n * far.d; i++)
        t.h.x[t.in[0]][i] = (double)(x[i] = 1e4f + 0.01f * x[i]);
    rd_params_touch(t.h.ps);
    float *y = h_read(&t.h, norm_apply(&t), false);
    memset(t.h.r, 0, (size_t)t.h.n_r * sizeof *t.h.r);
    for (int64_t i = 0; i < far.n * far.d; i += 7) {
        t.h.r[i] = 1.0f;
        assert_float_equal(y[i], norm_reference(&t), 1e-5);
        t.h.r[i] = 0.0f;
    }
    free(y);
    h_free(&t.h);
}

static void test_norm_refused(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        rows_run t;
        rd_status st = {0};
        rd_layer_norm a = {.eps = 1e-5f};
        norm_init(&t, &norm_cases[3], 1);
        if (k == 0) a.eps = 0.0f;
        assert_null(rd_op_layer_norm(t.h.tape, &a, h_var(&t.h, t.in[0]),
                                     h_var(&t.h, t.in[k == 1 ? 0 : 1]),
                                     h_var(&t.h, t.in[k == 2 ? 0 : 2])));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        h_free(&t.h);
    }
}

/* ---- activate ---- */
typedef struct act_case {
    const char *name;
    rd_activation f;
    int64_t n, d;
} act_case;

static const act_case act_cases[] = {
    {"relu", RD_ACT_RELU, 5, 7},
    {"relu2", RD_ACT_RELU2, 5, 7},
    {"gelu_tanh", RD_ACT_GELU_TANH, 5, 7},
    {"gelu_erf", RD_ACT_GELU_ERF, 5, 7},
    {"silu", RD_ACT_SILU, 5, 7},
    {"gelu_tanh, one number", RD_ACT_GELU_TANH, 1, 1},
    {"gelu_erf, one row", RD_ACT_GELU_ERF, 1, 33},
    {"silu, one column", RD_ACT_SILU, 33, 1},
    {"gelu_tanh, many", RD_ACT_GELU_TANH, 130, 129},
    {"gelu_erf, many", RD_ACT_GELU_ERF, 130, 129},
    {"silu, many", RD_ACT_SILU, 130, 129},
    {"relu2, many", RD_ACT_RELU2, 130, 129},
};

static double act_of(rd_activation f, double x)
{
    switch (f) {
    case RD_ACT_RELU:
        return x > 0.0 ? x : 0.0;
    case RD_ACT_RELU2:
        return x > 0.0 ? x * x : 0.0;
    case RD_ACT_GELU_TANH:
        /* (1 + tanh(u)) / 2 without loss of digits */
        return x /
               (1.0 + exp(-2.0 * sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case RD_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case RD_ACT_SILU:
        return x / (1.0 + exp(-x));
    }
    return NAN;
}

static double act_reference(void *ctx)
{
    const rows_run *t = ctx;
    const act_case *c = t->test_case;
    double total = 0.0;
    for (int64_t i = 0; i < t->n * t->d; i++)
        total += (double)t->h.r[i] * act_of(c->f, t->h.x[t->in[0]][i]);
    return total;
}

static rd_var *act_apply(rows_run *t)
{
    return rd_op_activate(t->h.tape, ((const act_case *)t->test_case)->f, h_var(&t->h, t->in[0]));
}

static void act_init(rows_run *t, const void *test_case, int threads)
{
    const act_case *c = test_case;
    *t = (rows_run){.apply = act_apply, .test_case = c, .n = c->n, .d = c->d};
    h_init_as(&t->h, threads, false);
    t->in[0] = h_input(&t->h, c->n, c->d);
    h_fill(&t->h, 4.0, c->n * c->d);
}

static void test_act(void **state)
{
    rows_run t;
    act_init(&t, *state, 1);
    rd_var *y = act_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), act_reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* The gradient is written over that of the result, or added: x is used twice. */
static void test_act_twice(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++) {
        rows_run t;
        act_init(&t, &act_cases[k], 1);
        rd_var *x = h_var(&t.h, t.in[0]);
        x = rd_op_pick(t.h.tape, 1, &x, (const int64_t *[]){(const int64_t[]){0, 1, 2, 3, 4}}, 5);
        rd_var *y[2] = {rd_op_activate(t.h.tape, act_cases[k].f, x),
                        rd_op_activate(t.h.tape, act_cases[k].f, x)};
        t.h.r = realloc(t.h.r, 2 * 35 * sizeof *t.h.r);
        memcpy(t.h.r + 35, t.h.r, 35 * sizeof *t.h.r);
        rd_var *loss = h_weighted(&t.h, y, 2);
        /* the reference: once, with twice the weights */
        rd_status st = {0};
        rd_tape_backward(t.h.tape, loss, &st);
        must(&st);
        const float *g = test_grads(t.h.ps) + t.h.p[t.in[0]]->offset;
        for (int64_t i = 0; i < 35; i++) {
            double *at = &t.h.x[t.in[0]][i];
            const double was = *at, step = 1e-5;
            *at = was + step;
            const double up = act_reference(&t);
            *at = was - step;
            const double down = act_reference(&t);
            *at = was;
            assert_float_equal(g[i], (up - down) / step, 1e-4);
        }
        h_free(&t.h);
    }
}

static void test_act_threads(void **state)
{
    (void)state;
    for (int k = 8; k < 12; k++) rows_same_bytes(act_init, &act_cases[k]);
}

/* Applies f to n numbers, at most 1000. g: their slopes. */
static void act_values(rd_activation f, int64_t n, const float *x, float *y, float *g)
{
    const act_case c = {"", f, 1, n};
    rows_run t;
    rd_status st = {0};
    act_init(&t, &c, 1);
    memcpy(test_values(t.h.ps) + t.h.p[t.in[0]]->offset, x, (size_t)n * sizeof *x);
    rd_params_touch(t.h.ps);
    for (int64_t i = 0; i < n; i++) t.h.r[i] = 1.0f;
    rd_var *out = act_apply(&t);
    float *v = h_read(&t.h, out, false);
    memcpy(y, v, (size_t)n * sizeof *y);
    rd_tape_backward(t.h.tape, h_weighted(&t.h, &out, 1), &st);
    must(&st);
    memcpy(g, test_grads(t.h.ps) + t.h.p[t.in[0]]->offset, (size_t)n * sizeof *g);
    free(v);
    h_free(&t.h);
}

/* Values of PyTorch 2, in float64. */
static void test_act_known(void **state)
{
    static const struct {
        float x;
        double tanh_form, erf_form;
    } gelu[] = {{-3.0f, -0.003637392, -0.004049694},
                {-1.0f, -0.158808009, -0.158655254},
                {0.5f, 0.345714010, 0.345731231},
                {1.0f, 0.841191991, 0.841344746},
                {2.0f, 1.954597694, 1.954499736}};
    static const struct {
        float x;
        double y;
    } silu[] = {{-1.0f, -0.268941421}, {0.5f, 0.311229666}, {3.0f, 2.857722380}};
    float y, g;
    (void)state;
    for (int i = 0; i < 5; i++) {
        act_values(RD_ACT_GELU_TANH, 1, &gelu[i].x, &y, &g);
        assert_float_equal(y / gelu[i].tanh_form, 1.0, 1e-6);
        act_values(RD_ACT_GELU_ERF, 1, &gelu[i].x, &y, &g);
        assert_float_equal(y / gelu[i].erf_form, 1.0, 1e-6);
    }
    for (int i = 0; i < 3; i++) {
        act_values(RD_ACT_SILU, 1, &silu[i].x, &y, &g);
        assert_float_equal(y / silu[i].y, 1.0, 1e-6);
    }
}

/* The relative error, from large negative to large positive numbers. */
static void test_act_tails(void **state)
{
    enum { N = 1000 };
    static const rd_activation all[] = {RD_ACT_GELU_TANH, RD_ACT_GELU_ERF, RD_ACT_SILU};
    static float x[N], y[N], g[N];
    (void)state;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < N; i++) x[i] = -95.0f + 0.1f * (float)i + 0.001f;
        for (int i = 0; i < N && k < 2; i++) x[i] = -14.0f + 0.02f * (float)i + 0.001f;
        act_values(all[k], N, x, y, g);
        for (int i = 0; i < N; i++) {
            const double want = act_of(all[k], (double)x[i]);
            if (!(fabs((double)y[i] - want) <= 2e-6 * fabs(want) + 2e-36))
                fail_msg("function %d of %.9g: got %.9g, want %.9g (%.3g)", (int)all[k],
                         (double)x[i], (double)y[i], want, (double)y[i] / want - 1.0);
        }
    }
}

/* Numbers without bounds: slopes are 0 and 1, and NaN stays NaN. */
static void test_act_far(void **state)
{
    static const float x[] = {-1e30f, -1e13f, -200.0f, 200.0f, 1e13f, 1e18f, INFINITY, NAN};
    float y[8], g[8];
    (void)state;
    for (int k = RD_ACT_RELU; k <= RD_ACT_SILU; k++) {
        act_values((rd_activation)k, 8, x, y, g);
        for (int i = 0; i < 8; i++) {
            const float want = i < 3 ? 0.0f : k == RD_ACT_RELU2 ? x[i] * x[i] : x[i];
            if (i < 7 && !(y[i] == want))
                fail_msg("function %d of %g: %g", k, (double)x[i], (double)y[i]);
            if (i < 7 && k != RD_ACT_RELU2 && !(g[i] == (i < 3 ? 0.0f : 1.0f)))
                fail_msg("slope of function %d at %g: %g", k, (double)x[i], (double)g[i]);
        }
        assert_true(isnan(y[7]));
    }
}

static void test_act_no_rows(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++) {
        rows_run t;
        act_init(&t, &act_cases[k], 1);
        rows_check_none(&t, rd_op_activate(t.h.tape, act_cases[k].f, rows_none(&t, t.in[0])));
        h_free(&t.h);
    }
}

/* ---- multiply ---- */
typedef struct mul_case {
    const char *name;
    int64_t n, d;
    bool square; /* both factors are one variable */
} mul_case;

static const mul_case mul_cases[] = {
    {"product", 5, 7, false},
    {"one number", 1, 1, false},
    {"many", 130, 129, false},
    {"square", 9, 13, true},
};

static double mul_reference(void *ctx)
{
    const rows_run *t = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < t->n * t->d; i++)
        total += (double)t->h.r[i] * t->h.x[t->in[0]][i] * t->h.x[t->in[1]][i];
    return total;
}

static rd_var *mul_apply(rows_run *t)
{
    return rd_op_multiply(t->h.tape, h_var(&t->h, t->in[0]), h_var(&t->h, t->in[1]));
}

static void mul_init(rows_run *t, const void *test_case, int threads)
{
    const mul_case *c = test_case;
    *t = (rows_run){.apply = mul_apply, .test_case = c, .n = c->n, .d = c->d};
    h_init_as(&t->h, threads, false);
    t->in[0] = t->in[1] = h_input(&t->h, c->n, c->d);
    if (!c->square) t->in[1] = h_input(&t->h, c->n, c->d);
    h_fill(&t->h, 2.0, c->n * c->d);
}

static void test_mul(void **state)
{
    rows_run t;
    mul_init(&t, *state, 1);
    rd_var *y = mul_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), mul_reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* The gradient of the result becomes that of a factor, or is added to what it has. */
static void test_mul_twice(void **state)
{
    (void)state;
    for (int square = 0; square < 2; square++) {
        rows_run t;
        rd_status st = {0};
        mul_init(&t, &mul_cases[square ? 3 : 0], 1);
        const int64_t n = t.n * t.d;
        static const int64_t order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
        rd_var *a = h_var(&t.h, t.in[0]), *b = h_var(&t.h, t.in[1]);
        a = rd_op_pick(t.h.tape, 1, &a, (const int64_t *[]){order}, t.n);
        b = square ? a : rd_op_pick(t.h.tape, 1, &b, (const int64_t *[]){order}, t.n);
        rd_var *y[2] = {rd_op_multiply(t.h.tape, a, b), rd_op_multiply(t.h.tape, a, b)};
        t.h.r = realloc(t.h.r, (size_t)(2 * n + 8) * sizeof *t.h.r);
        memcpy(t.h.r + n, t.h.r, (size_t)n * sizeof *t.h.r);
        must_do(rd_tape_backward(t.h.tape, h_weighted(&t.h, y, 2), &st), &st);
        for (int k = 0; k < 2 - square; k++) {
            const float *g = test_grads(t.h.ps) + t.h.p[t.in[k]]->offset;
            for (int64_t i = 0; i < n; i++) {
                const double want = 2.0 * (1 + square) * (double)t.h.r[i] * t.h.x[t.in[1 - k]][i];
                if (!(fabs((double)g[i] - want) <= 1e-6 * (1.0 + fabs(want))))
                    fail_msg("gradient %d of factor %d: %g, want %g", (int)i, k, (double)g[i],
                             want);
            }
        }
        h_free(&t.h);
    }
}

static void test_mul_threads(void **state)
{
    (void)state;
    rows_same_bytes(mul_init, &mul_cases[2]);
}

static void test_mul_no_rows(void **state)
{
    rows_run t;
    (void)state;
    mul_init(&t, &mul_cases[0], 1);
    rows_check_none(&t, rd_op_multiply(t.h.tape, rows_none(&t, t.in[0]), rows_none(&t, t.in[1])));
    h_free(&t.h);
}

static void test_mul_refused(void **state)
{
    rows_run t;
    rd_status st = {0};
    (void)state;
    mul_init(&t, &mul_cases[0], 1);
    assert_null(rd_op_multiply(t.h.tape, h_var(&t.h, t.in[0]), rows_none(&t, t.in[1])));
    assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
    assert_non_null(strstr(st.msg, "multiply: 5x7 does not fit 0x7"));
    h_free(&t.h);
}

/* ---- residual ---- */
typedef struct res_case {
    const char *name;
    int64_t n, d;
    bool alone; /* no x */
    float keep;
} res_case;

static const res_case res_cases[] = {
    {"no dropout", 9, 8, false, 1.0f},
    {"dropout", 9, 8, false, 0.9f},
    {"odd width", 9, 13, false, 0.5f},
    {"one number", 1, 1, false, 0.5f},
    {"one row", 1, 300, false, 0.8f},
    {"many rows", 150, 40, false, 0.7f},
    {"alone", 9, 13, true, 0.6f},
    {"alone, no dropout", 9, 13, true, 1.0f},
    {"alone, many rows", 150, 33, true, 0.9f},
};

enum { RES_MOST = 150 };
/* Sentences of 70, 1, 5, 70, 1, ... rows. Every third sentence begins at position 1000. */
static int64_t res_sample[RES_MOST], res_position[RES_MOST];
static void res_list(void)
{
    static const int64_t length[] = {70, 1, 5};
    int64_t s = 0, p = 0;
    for (int64_t i = 0; i < RES_MOST; i++, p++) {
        if (p == length[s % 3]) s++, p = 0;
        res_sample[i] = 5 + 1000 * s + (INT64_C(1) << 33);
        res_position[i] = p + (s % 3 == 2 ? 1000 : 0);
    }
}

static rd_residual res_attr(const res_case *c)
{
    return (rd_residual){.drop = {.seed = 5, .epoch = 2, .site = 7, .keep = c->keep},
                         .sample = res_sample,
                         .position = res_position};
}

static double res_reference(void *ctx)
{
    const rows_run *t = ctx;
    const res_case *c = t->test_case;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++) {
        uint8_t keep[512];
        rd_philox_keep(rd_key_make(5, RD_RNG_DROPOUT, 7, 2), (uint64_t)res_sample[i],
                       (uint32_t)res_position[i], c->keep, t->d, keep);
        for (int64_t k = 0; k < t->d; k++)
            total += (double)t->h.r[i * t->d + k] *
                     ((c->alone ? 0.0 : t->h.x[t->in[1]][i * t->d + k]) +
                      (keep[k] ? t->h.x[t->in[0]][i * t->d + k] / (double)c->keep : 0.0));
    }
    return total;
}

static rd_var *res_apply(rows_run *t)
{
    const rd_residual a = res_attr(t->test_case);
    return rd_op_residual(t->h.tape, &a, h_var(&t->h, t->in[1]), h_var(&t->h, t->in[0]));
}

static void res_init(rows_run *t, const void *test_case, int threads)
{
    const res_case *c = test_case;
    *t = (rows_run){.apply = res_apply, .test_case = c, .n = c->n, .d = c->d};
    res_list();
    h_init_as(&t->h, threads, false);
    t->in[0] = h_input(&t->h, c->n, c->d);
    t->in[1] = c->alone ? -1 : h_input(&t->h, c->n, c->d);
    h_fill(&t->h, 1.5, c->n * c->d);
}

static void test_res(void **state)
{
    rows_run t;
    res_init(&t, *state, 1);
    rd_var *y = res_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), res_reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* On results of other ops the gradient is written in place, or added where they have one. */
static void test_res_results(void **state)
{
    const res_case *c = *state;
    (void)state;
    for (int k = 0; k < 3; k++) {
        rows_run t;
        rd_status st = {0};
        int64_t all[RES_MOST];
        for (int64_t i = 0; i < RES_MOST; i++) all[i] = i;
        res_init(&t, c, 1);
        const rd_residual a = res_attr(c);
        rd_var *z = h_var(&t.h, t.in[0]), *x = h_var(&t.h, t.in[1]);
        z = rd_op_pick(t.h.tape, 1, &z, (const int64_t *[]){all}, t.n);
        if (x) x = rd_op_pick(t.h.tape, 1, &x, (const int64_t *[]){all}, t.n);
        /* 0: each once; 1: z is x also; 2: both have a second use */
        rd_var *y[2] = {rd_op_residual(t.h.tape, &a, k == 1 && x ? z : x, z), NULL};
        const int n = k == 2 ? 2 : 1;
        if (n == 2) y[1] = rd_op_residual(t.h.tape, &a, x, z);
        const size_t bytes = (size_t)(t.n * t.d) * sizeof *t.h.r;
        t.h.r = realloc(t.h.r, 2 * bytes);
        memcpy(t.h.r + t.n * t.d, t.h.r, bytes);
        rd_tape_backward(t.h.tape, h_weighted(&t.h, y, n), &st);
        must(&st);
        const float *g = test_grads(t.h.ps);
        for (int64_t i = 0; i < t.n; i++) {
            uint8_t keep[512];
            rd_philox_keep(rd_key_make(5, RD_RNG_DROPOUT, 7, 2), (uint64_t)res_sample[i],
                           (uint32_t)res_position[i], c->keep, t.d, keep);
            for (int64_t e = i * t.d; e < (i + 1) * t.d; e++) {
                const double r = (double)t.h.r[e] * n,
                             dz = keep[e % t.d] ? r / (double)c->keep : 0.0;
                assert_float_equal(g[t.h.p[t.in[0]]->offset + e], dz + (k == 1 && x ? r : 0.0),
                                   1e-5);
                if (x) assert_float_equal(g[t.h.p[t.in[1]]->offset + e], k == 1 ? 0.0 : r, 1e-5);
            }
        }
        h_free(&t.h);
    }
}

static void test_res_threads(void **state)
{
    (void)state;
    rows_same_bytes(res_init, &res_cases[5]);
    rows_same_bytes(res_init, &res_cases[8]);
}

/* A row has the same bytes wherever it is in the batch, and dropout is off outside of training. */
static void test_res_place(void **state)
{
    static const int64_t sample[] = {7, 7, 3}, position[] = {1, 0, 1}, turned[] = {3, 7, 7},
                         turned_position[] = {1, 0, 1};
    static const res_case c = {"", 3, 21, true, 0.5f};
    (void)state;
    rows_run t;
    res_init(&t, &c, 1);
    rd_residual a = res_attr(&c);
    rd_var *z = h_var(&t.h, t.in[0]);
    z = rd_op_pick(t.h.tape, 1, &z, (const int64_t *[]){(const int64_t[]){0, 0, 0}}, 3);
    a.sample = sample;
    a.position = position;
    float *v = h_read(&t.h, rd_op_residual(t.h.tape, &a, NULL, z), false);
    a.sample = turned;
    a.position = turned_position;
    float *w = h_read(&t.h, rd_op_residual(t.h.tape, &a, NULL, z), false);
    for (int i = 0; i < 3; i++) assert_memory_equal(v + i * 21, w + (2 - i) * 21, 21 * sizeof *v);
    /* other positions and samples have other masks */
    assert_memory_not_equal(v, v + 21, 21 * sizeof *v);
    assert_memory_not_equal(v, v + 42, 21 * sizeof *v);
    free(v);
    free(w);
    rd_tape_reset(t.h.tape, true, false);
    a.sample = a.position = NULL;
    z = h_var(&t.h, t.in[0]);
    v = h_read(&t.h, rd_op_residual(t.h.tape, &a, z, z), false);
    for (int i = 0; i < 63; i++) assert_true(v[i] == 2.0f * (float)t.h.x[t.in[0]][i]);
    free(v);
    h_free(&t.h);
}

static void test_res_no_rows(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        rows_run t;
        res_init(&t, &res_cases[k], 1);
        const rd_residual a = res_attr(&res_cases[k]);
        rows_check_none(&t, rd_op_residual(t.h.tape, &a, rows_none(&t, t.in[1]),
                                           rows_none(&t, t.in[0])));
        h_free(&t.h);
    }
}

static void test_res_refused(void **state)
{
    static const int64_t wrong[] = {0, 1, -1, 3, 4, 5, 6, 7, 8},
                         far[] = {0, 1, INT64_C(1) << 32, 3, 4, 5, 6, 7, 8};
    (void)state;
    for (int k = 0; k < 6; k++) {
        rows_run t;
        rd_status st = {0};
        rd_residual a = res_attr(&res_cases[1]);
        res_init(&t, &res_cases[1], 1);
        if (k == 0) a.drop.keep = 0.0f;
        if (k == 1) a.sample = NULL;
        if (k == 2) a.position = NULL;
        if (k == 3) a.position = wrong;
        if (k == 4) a.position = far;
        assert_null(rd_op_residual(t.h.tape, &a,
                                   k == 5 ? rows_none(&t, t.in[1]) : h_var(&t.h, t.in[1]),
                                   h_var(&t.h, t.in[0])));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        h_free(&t.h);
    }
}

/* ---- positions ---- */
typedef struct pos_case {
    const char *name;
    rd_sinusoid layout;
    int64_t n, d;
    float scale;
} pos_case;

static const pos_case pos_cases[] = {
    {"pairs", RD_SINUSOID_PAIRS, 9, 8, 2.8284271f},
    {"halves", RD_SINUSOID_HALVES, 9, 8, 2.8284271f},
    {"t2t", RD_SINUSOID_T2T, 9, 8, 2.8284271f},
    {"t2t, odd width", RD_SINUSOID_T2T, 9, 7, 1.5f},
    {"t2t, one column", RD_SINUSOID_T2T, 9, 1, 1.5f},
    {"t2t, two columns", RD_SINUSOID_T2T, 9, 2, 1.5f},
    {"pairs, two columns", RD_SINUSOID_PAIRS, 9, 2, 1.0f},
    {"halves, one row", RD_SINUSOID_HALVES, 1, 30, 1.0f},
    {"halves, many rows", RD_SINUSOID_HALVES, 150, 66, 8.0f},
};

/* Element k of the encoding of a position, straight from the formulas of the papers. */
static double pos_element(rd_sinusoid layout, int64_t d, double p, int64_t k)
{
    const int64_t half = d / 2;
    if (layout == RD_SINUSOID_PAIRS) {
        const double angle = p / pow(10000.0, 2.0 * (double)(k / 2) / (double)d);
        return k % 2 ? cos(angle) : sin(angle);
    }
    if (k >= 2 * half) return 0.0;
    const double i = (double)(k % half),
                 angle = layout == RD_SINUSOID_HALVES
                             ? p / pow(10000.0, 2.0 * i / (double)d)
                             : p / pow(10000.0, i / (half > 1 ? (double)(half - 1) : 1.0));
    return k < half ? sin(angle) : cos(angle);
}

/* Positions of several sentences, not in order, some far beyond any table. */
static int64_t pos_position[RES_MOST];
static void pos_list(void)
{
    static const int64_t first[] = {3, 0, 10000, 1, 1000000};
    for (int64_t i = 0; i < RES_MOST; i++) pos_position[i] = first[i % 5] + i / 5 % 7;
}

static double pos_reference(void *ctx)
{
    const rows_run *t = ctx;
    const pos_case *c = t->test_case;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->d; k++)
            total += (double)t->h.r[i * t->d + k] *
                     ((double)c->scale * t->h.x[t->in[0]][i * t->d + k] +
                      pos_element(c->layout, t->d, (double)pos_position[i], k));
    return total;
}

static rd_var *pos_of(rows_run *t, rd_var *x)
{
    const pos_case *c = t->test_case;
    const rd_positions a = {c->layout, c->scale, pos_position};
    return rd_op_positions(t->h.tape, &a, x);
}
static rd_var *pos_apply(rows_run *t)
{
    return pos_of(t, h_var(&t->h, t->in[0]));
}

static void pos_init(rows_run *t, const void *test_case, int threads)
{
    const pos_case *c = test_case;
    *t = (rows_run){.apply = pos_apply, .test_case = c, .n = c->n, .d = c->d};
    pos_list();
    h_init_as(&t->h, threads, false);
    t->in[0] = h_input(&t->h, c->n, c->d);
    h_fill(&t->h, 1.5, c->n * c->d);
}

static void test_pos(void **state)
{
    rows_run t;
    pos_init(&t, *state, 1);
    rd_var *y = pos_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), pos_reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* On the result of another op the gradient is scaled in place, or added where there is one. */
static void test_pos_results(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        rows_run t;
        rd_status st = {0};
        int64_t all[9];
        for (int64_t i = 0; i < 9; i++) all[i] = i;
        pos_init(&t, &pos_cases[1], 1);
        rd_var *x = h_var(&t.h, t.in[0]);
        x = rd_op_pick(t.h.tape, 1, &x, (const int64_t *[]){all}, 9);
        rd_var *y[2] = {pos_of(&t, x), n == 2 ? pos_of(&t, x) : NULL};
        t.h.r = realloc(t.h.r, 2 * 72 * sizeof *t.h.r);
        memcpy(t.h.r + 72, t.h.r, 72 * sizeof *t.h.r);
        rd_tape_backward(t.h.tape, h_weighted(&t.h, y, n), &st);
        must(&st);
        for (int i = 0; i < 72; i++)
            assert_float_equal(test_grads(t.h.ps)[t.h.p[t.in[0]]->offset + i],
                               n * 2.8284271 * (double)t.h.r[i], 1e-5);
        h_free(&t.h);
    }
}

/* Rows of published code for width 8 and position 3, and of Sockeye and tensor2tensor for width 512
 * and position 10. */
static void test_pos_known(void **state)
{
    static const double row[3][8] = {
        {0.141120, -0.989992, 0.295520, 0.955336, 0.029996, 0.999550, 0.003000, 0.999996},
        {0.141120, 0.295520, 0.029996, 0.003000, -0.989992, 0.955336, 0.999550, 0.999996},
        {0.141120, 0.138798, 0.006463, 0.000300, -0.989992, 0.990321, 0.999979, 1.000000}};
    static const struct {
        rd_sinusoid layout;
        int at;
        double value;
    } wide[] = {{RD_SINUSOID_HALVES, 0, -0.544021},   {RD_SINUSOID_HALVES, 1, -0.220023},
                {RD_SINUSOID_HALVES, 255, 0.001037},  {RD_SINUSOID_HALVES, 256, -0.839072},
                {RD_SINUSOID_HALVES, 257, -0.975495}, {RD_SINUSOID_T2T, 1, -0.218695},
                {RD_SINUSOID_T2T, 257, -0.975793}};
    (void)state;
    for (int k = 0; k < 10; k++) {
        const bool is_wide = k >= 3;
        const pos_case c = {"", is_wide ? wide[k - 3].layout : (rd_sinusoid)k, 1, is_wide ? 512 : 8,
                            0.0f};
        rows_run t;
        pos_init(&t, &c, 1);
        pos_position[0] = is_wide ? 10 : 3;
        float *y = h_read(&t.h, pos_apply(&t), false);
        for (int i = 0; i < 8 && !is_wide; i++) assert_float_equal(y[i], row[k][i], 1e-6);
        if (is_wide) assert_float_equal(y[wide[k - 3].at], wide[k - 3].value, 1e-6);
        free(y);
        h_free(&t.h);
    }
}

/* Each element alone, for positions up to 10^12. */
static void test_pos_far(void **state)
{
    static const int64_t far[] = {0, 511, 100000, INT64_C(1) << 31, INT64_C(1000000000000)};
    (void)state;
    for (int k = 0; k < 3; k++) {
        const pos_case c = {"", (rd_sinusoid)k, 5, 16, 0.0f};
        rows_run t;
        pos_init(&t, &c, 1);
        for (int i = 0; i < 5; i++) pos_position[i] = far[i];
        float *y = h_read(&t.h, pos_apply(&t), false);
        /* the angle itself is a double with 53 bits */
        for (int i = 0; i < 80; i++)
            assert_float_equal(y[i], pos_element(c.layout, 16, (double)far[i / 16], i % 16),
                               i < 64 ? 2e-6 : 2e-3);
        free(y);
        h_free(&t.h);
    }
}

static void test_pos_threads(void **state)
{
    (void)state;
    rows_same_bytes(pos_init, &pos_cases[8]);
}

static void test_pos_no_rows(void **state)
{
    rows_run t;
    (void)state;
    pos_init(&t, &pos_cases[0], 1);
    rows_check_none(&t, pos_of(&t, rows_none(&t, t.in[0])));
    h_free(&t.h);
}

static void test_pos_refused(void **state)
{
    static const pos_case odd[] = {{"", RD_SINUSOID_PAIRS, 3, 7, 1.0f},
                                   {"", RD_SINUSOID_HALVES, 3, 7, 1.0f},
                                   {"", RD_SINUSOID_PAIRS, 3, 8, 1.0f}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        rows_run t;
        rd_status st = {0};
        pos_init(&t, &odd[k], 1);
        if (k == 2) pos_position[1] = -1;
        assert_null(pos_apply(&t));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        h_free(&t.h);
    }
}

RD_TESTS("rows", TEST_ROWS(test_norm, norm_cases), TEST(test_norm_threads), TEST(test_norm_no_rows),
         TEST(test_norm_far_from_zero), TEST(test_norm_refused), TEST_ROWS(test_act, act_cases),
         TEST(test_act_twice), TEST(test_act_threads), TEST(test_act_known), TEST(test_act_tails),
         TEST(test_act_far), TEST(test_act_no_rows), TEST_ROWS(test_mul, mul_cases),
         TEST(test_mul_twice), TEST(test_mul_threads), TEST(test_mul_no_rows),
         TEST(test_mul_refused), TEST_ROWS(test_res, res_cases),
         TEST_ROWS(test_res_results, res_cases), TEST(test_res_threads), TEST(test_res_place),
         TEST(test_res_no_rows), TEST(test_res_refused), TEST_ROWS(test_pos, pos_cases),
         TEST(test_pos_results), TEST(test_pos_known), TEST(test_pos_far), TEST(test_pos_threads),
         TEST(test_pos_no_rows), TEST(test_pos_refused))
