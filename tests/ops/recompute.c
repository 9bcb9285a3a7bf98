/* recompute.c -- tests values that backward computes again, of segments and of forgotten variables:
 * gradients against central differences of a reference in double, and against the same ops whose
 * values are kept. */
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

/* ---- forgotten variables ---- */

enum { ROWS = 48, WIDTH = 104, BLOCKS = 4 };

typedef struct blocks {
    harness h;
    float *x;
    int64_t sample[ROWS], position[ROWS];
    rd_var *forgotten;
} blocks;

typedef struct block_row {
    const char *name;
    rd_activation f;
    float keep;
    bool post;  /* the norm follows the sum */
    int spared; /* arrays of a block that are not kept on a CPU */
} block_row;

static block_row block_rows[] = {
    {"forget: relu", RD_ACT_RELU, 0.7f, false, 1},
    {"forget: gelu, dropout", RD_ACT_GELU_TANH, 0.7f, false, 2},
    {"forget: silu, no dropout", RD_ACT_SILU, 1.0f, false, 2},
    {"forget: relu squared, norm behind", RD_ACT_RELU2, 0.6f, true, 2},
};

static void blocks_init(blocks *c)
{
    memset(c, 0, sizeof *c);
    h_init(&c->h);
    for (int l = 0; l < BLOCKS; l++) {
        h_input(&c->h, 0, WIDTH);
        h_input(&c->h, 0, WIDTH);
        h_input(&c->h, WIDTH, WIDTH);
        h_input(&c->h, WIDTH, WIDTH);
    }
    h_fill(&c->h, 0.3, ROWS * WIDTH);
    c->x = calloc((ROWS + RD_SLACK_ROWS) * WIDTH, sizeof *c->x);
    rd_philox_uniform(rd_key_make(9, RD_RNG_TEST, 0, 0), 0, ROWS * WIDTH, c->x);
    for (int64_t i = 0; i < ROWS; i++) c->position[i] = i;
}

/* x + W2 drop(f(W1 norm(x))) for each block, or the norm behind the sum. */
static rd_var *blocks_apply(blocks *c, const block_row *row, bool forget)
{
    rd_tape *t = c->h.tape;
    const rd_layer_norm n = {.eps = 1e-5f};
    rd_residual inside = {
        .drop = {.seed = 5, .keep = row->keep}, .sample = c->sample, .position = c->position};
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    rd_var *x = rd_tape_const(t, c->x, ROWS, WIDTH);
    for (int l = 0; l < BLOCKS; l++) {
        rd_var *gain = h_var(&c->h, 4 * l), *bias = h_var(&c->h, 4 * l + 1), *y = x;
        if (!row->post) y = rd_op_layer_norm(t, &n, x, gain, bias);
        rd_var *u = rd_op_linear(t, y, h_var(&c->h, 4 * l + 2), NULL);
        if (forget && !row->post) rd_tape_forget(t, y);
        rd_var *f = rd_op_activate(t, row->f, u);
        inside.drop.site++;
        rd_var *v = rd_op_residual(t, &inside, NULL, f);
        rd_var *z = rd_op_linear(t, v, h_var(&c->h, 4 * l + 3), NULL);
        if (forget) rd_tape_forget(t, v);
        if (forget) rd_tape_forget(t, f);
        z = rd_op_residual(t, &plain, x, z);
        if (forget && row->post && l > 0) rd_tape_forget(t, x);
        x = row->post ? rd_op_layer_norm(t, &n, z, gain, bias) : z;
        c->forgotten = y;
    }
    return x;
}

static void test_forget(void **state)
{
    const block_row *row = *state;
    float *v[2], *g[2];
    size_t bytes = 0, used[2], whole[2], array = 0;
    for (int k = 0; k < 2; k++) {
        blocks c;
        rd_status st = {0};
        blocks_init(&c);
        rd_var *y = blocks_apply(&c, row, k == 1), *loss = h_weighted(&c.h, &y, 1);
        rd_tape_check(c.h.tape, &st);
        must(&st);
        v[k] = h_read(&c.h, y, false);
        used[k] = rd_arena_used(rd_tape_device_arena(c.h.tape));
        must_do(rd_tape_backward(c.h.tape, loss, &st), &st);
        must_do(rd_params_sync_to_host(c.h.ps, RD_GRADS, &st), &st);
        bytes = (size_t)rd_params_span(c.h.ps) * sizeof(float);
        g[k] = malloc(bytes);
        memcpy(g[k], test_grads(c.h.ps), bytes);
        whole[k] = rd_arena_used(rd_tape_device_arena(c.h.tape));
        array = rd_arena_bytes(rd_tape_device_arena(c.h.tape),
                               (ROWS + RD_SLACK_ROWS) * WIDTH * sizeof(float));
        h_free(&c.h);
        free(c.x);
    }
    assert_memory_equal(v[0], v[1], ROWS * WIDTH * sizeof(float));
    assert_memory_equal(g[0], g[1], bytes);
    /* The first block's arrays are new memory, and so is what is in use at the end. */
    if (!(used[1] + (size_t)((BLOCKS - 1) * row->spared) * array <= used[0]))
        fail_msg("forward: %zu bytes, and %zu without; an array has %zu", used[1], used[0], array);
    if (!(whole[1] < whole[0]))
        fail_msg("with backward: %zu bytes, and %zu without", whole[1], whole[0]);
    for (int k = 0; k < 2; k++) {
        free(v[k]);
        free(g[k]);
    }
}

static void test_read_of_forgotten(void **state)
{
    blocks c;
    rd_status st = {0};
    (void)state;
    blocks_init(&c);
    assert_non_null(blocks_apply(&c, &block_rows[0], true));
    assert_null(rd_op_activate(c.h.tape, RD_ACT_SILU, c.forgotten));
    assert_int_equal(rd_tape_check(c.h.tape, &st), RD_EBUG);
    assert_non_null(strstr(st.msg, "op 'activate': the values of input 0 are forgotten"));
    h_free(&c.h);
    free(c.x);
}

/* Without a backward pass, and for values that no op can compute again, nothing is forgotten. */
static void test_not_forgotten(void **state)
{
    blocks c;
    (void)state;
    blocks_init(&c);
    rd_tape_forget(c.h.tape, NULL);
    rd_var *y = rd_op_linear(c.h.tape, rd_tape_const(c.h.tape, c.x, ROWS, WIDTH), h_var(&c.h, 2),
                             NULL);
    rd_tape_forget(c.h.tape, y);
    assert_non_null(y->values);
    /* A sum would ask for both of its inputs again. */
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    rd_var *x = rd_tape_const(c.h.tape, c.x, ROWS, WIDTH);
    y = rd_op_residual(c.h.tape, &plain, x, rd_op_activate(c.h.tape, RD_ACT_SILU, y));
    rd_tape_forget(c.h.tape, y);
    assert_non_null(y->values);
    rd_tape_reset(c.h.tape, false, false);
    assert_non_null(blocks_apply(&c, &block_rows[1], true));
    assert_non_null(c.forgotten->values);
    h_free(&c.h);
    free(c.x);
}

RD_TESTS("recompute", TEST(test_gradients), TEST(test_same_bytes), TEST(test_unused),
         TEST(test_refused), TEST_ROWS(test_forget, block_rows), TEST(test_read_of_forgotten),
         TEST(test_not_forgotten))
