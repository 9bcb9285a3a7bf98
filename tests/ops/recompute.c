/* recompute.c -- tests segments, whose values backward computes again: gradients against central
 * differences of a reference in double, and against the same ops without segments. */
#include "harness.h"

enum { N = 7, D = 9, DEPTH = 3 };

typedef struct chain {
    harness h;
    int x, w, b, z;
} chain;

/* x + silu(x W + b) + z; all segments have the same W and b. */
static rd_var *chain_part(rd_tape *t, const void *ctx, rd_var *const *in)
{
    const chain *c = *(const chain *const *)ctx;
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    rd_var *y = rd_op_linear(t, in[0], rd_tape_param(t, c->h.p[c->w]),
                             rd_tape_param(t, c->h.p[c->b]));
    y = rd_op_residual(t, &plain, in[0], rd_op_activate(t, RD_ACT_SILU, y));
    return rd_op_residual(t, &plain, y, in[1]);
}

static double chain_reference(void *ctx)
{
    const chain *c = ctx;
    double total = 0.0;
    for (int i = 0; i < N; i++) {
        double x[D], y[D];
        for (int k = 0; k < D; k++) x[k] = c->h.x[c->x][i * D + k];
        for (int part = 0; part < DEPTH; part++) {
            for (int k = 0; k < D; k++) {
                double v = c->h.x[c->b][k];
                for (int q = 0; q < D; q++) v += x[q] * c->h.x[c->w][q * D + k];
                y[k] = x[k] + v / (1.0 + exp(-v)) + c->h.x[c->z][i * D + k];
            }
            memcpy(x, y, sizeof x);
        }
        for (int k = 0; k < D; k++) total += (double)c->h.r[i * D + k] * x[k];
    }
    return total;
}

static void chain_init(chain *c)
{
    memset(c, 0, sizeof *c);
    h_init(&c->h);
    c->x = h_input(&c->h, N, D);
    c->w = h_input(&c->h, D, D);
    c->b = h_input(&c->h, 0, D);
    c->z = h_input(&c->h, N, D);
    h_fill(&c->h, 0.6, N * D);
}

/* z is a parameter, x a result. */
static rd_var *chain_apply(chain *c, bool segments)
{
    static const int64_t at[] = {0, 1, 2, 3, 4, 5, 6};
    rd_var *x = h_var(&c->h, c->x);
    x = rd_op_pick(c->h.tape, 1, &x, (const int64_t *[]){at}, N);
    for (int part = 0; part < DEPTH; part++) {
        rd_var *const in[] = {x, h_var(&c->h, c->z)};
        x = segments ? rd_tape_recompute(c->h.tape, chain_part, &c, sizeof c, in, 2)
                     : chain_part(c->h.tape, &c, in);
    }
    return x;
}

static void test_gradients(void **state)
{
    chain c;
    (void)state;
    chain_init(&c);
    rd_var *y = chain_apply(&c, true);
    h_check(&c.h, h_weighted(&c.h, &y, 1), chain_reference, &c, 2e-5);
    h_free(&c.h);
}

static void count(void *ctx, rd_param *p)
{
    ((int *)ctx)[p->index]++;
}

/* The same bytes as without segments, and one call for each parameter. */
static void test_same_bytes(void **state)
{
    float *v[2], *g[2];
    size_t bytes = 0;
    (void)state;
    for (int k = 0; k < 2; k++) {
        chain c;
        rd_status st = {0};
        int calls[4] = {0};
        chain_init(&c);
        rd_tape_on_grad_ready(c.h.tape, count, calls);
        rd_var *y = chain_apply(&c, k == 1), *loss = h_weighted(&c.h, &y, 1);
        v[k] = h_read(&c.h, y, false);
        rd_tape_backward(c.h.tape, loss, &st);
        must(&st);
        bytes = (size_t)rd_params_span(c.h.ps) * sizeof(float);
        g[k] = malloc(bytes);
        memcpy(g[k], test_grads(c.h.ps), bytes);
        for (int i = 0; i < 4; i++) assert_int_equal(calls[i], 1);
        h_free(&c.h);
    }
    assert_memory_equal(v[0], v[1], N * D * sizeof(float));
    assert_memory_equal(g[0], g[1], bytes);
    for (int k = 0; k < 2; k++) {
        free(v[k]);
        free(g[k]);
    }
}

/* A tape that does not record gives the same values. A segment that the loss does not use gets no
 * gradient. */
static void test_unused(void **state)
{
    chain c;
    rd_status st = {0};
    (void)state;
    chain_init(&c);
    float *v = h_read(&c.h, chain_apply(&c, true), false);
    rd_var *other = h_var(&c.h, c.z);
    rd_tape_backward(c.h.tape, h_weighted(&c.h, &other, 1), &st);
    must(&st);
    for (int i = 0; i < c.h.n; i++)
        for (int64_t k = 0; k < c.h.p[i]->n; k++)
            assert_true(test_grads(c.h.ps)[c.h.p[i]->offset + k] == (i == c.z ? c.h.r[k] : 0.0f));
    rd_tape_reset(c.h.tape, false, false);
    float *w = h_read(&c.h, chain_apply(&c, true), false);
    assert_memory_equal(v, w, N * D * sizeof *v);
    free(v);
    free(w);
    h_free(&c.h);
}

static rd_var *inner(rd_tape *t, const void *ctx, rd_var *const *in)
{
    return rd_tape_recompute(t, chain_part, ctx, sizeof(chain *), in, 2);
}
static rd_var *nothing(rd_tape *t, const void *ctx, rd_var *const *in)
{
    (void)t, (void)ctx;
    return in[0];
}
static rd_var *narrow(rd_tape *t, const void *ctx, rd_var *const *in)
{
    static const int64_t at[] = {0, 1};
    (void)ctx;
    return rd_op_pick(t, 1, in, (const int64_t *[]){at}, 2);
}

static void test_refused(void **state)
{
    static rd_segment *const all[] = {inner, nothing, narrow, chain_part, chain_part};
    static const int n_in[] = {2, 2, 2, 0, RD_SEGMENT_IN + 1};
    (void)state;
    for (int k = 0; k < 5; k++) {
        chain c, *at = &c;
        rd_status st = {0};
        chain_init(&c);
        rd_var *x = h_var(&c.h, c.x), *z = h_var(&c.h, c.z), *const in[] = {x, z, x, z, x};
        assert_null(rd_tape_recompute(c.h.tape, all[k], &at, sizeof at, in, n_in[k]));
        assert_int_equal(rd_tape_check(c.h.tape, &st), RD_EBUG);
        assert_non_null(strstr(st.msg, "recompute"));
        h_free(&c.h);
    }
}

RD_TESTS("recompute", TEST(test_gradients), TEST(test_same_bytes), TEST(test_unused),
         TEST(test_refused))
