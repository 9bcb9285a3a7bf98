/* borrow.c -- tests borrowed gradients: the memory of the parameters' gradients holds values of the
 * forward pass, and afterwards the same gradients, to the last bit, as without. */
#include "harness.h"

enum {
    ROWS = 64,
    WIDTH = 120, /* a vector of it leaves a gap behind its gradient */
    WORDS = 300,
    LAYERS = 6,
    PARTS = 4, /* parameters of a layer */
    N_PARAMS = PARTS * LAYERS + 6
};

typedef struct borrow_row {
    const char *name;
    bool forget, segments, tied;
    int again; /* a layer that has the weights of the first layer, too; 0: none */
} borrow_row;

static const borrow_row borrow_rows[] = {
    {"borrow: values kept", false, false, false, 0},
    {"borrow: values forgotten", true, false, false, 0},
    {"borrow: segments", false, true, false, 0},
    {"borrow: tied output", true, false, true, 0},
    {"borrow: weights used twice", false, false, false, 4},
    {"borrow: weights used twice, forgotten, tied", true, false, true, 3},
    {"borrow: segments, weights used twice", false, true, true, LAYERS - 1},
};

typedef struct network {
    harness h;
    const borrow_row *row;
    int table, head, unused, gain, bias, vector;
    int32_t id[ROWS], target[ROWS];
    int calls[N_PARAMS];
} network;

static void network_count(void *ctx, rd_param *p)
{
    ((network *)ctx)->calls[p->index]++;
}

static void network_init(network *c, const borrow_row *row)
{
    memset(c, 0, sizeof *c);
    c->row = row;
    h_init(&c->h);
    c->table = h_input(&c->h, WORDS, WIDTH);
    for (int l = 0; l < LAYERS; l++) {
        h_input(&c->h, 0, WIDTH);
        h_input(&c->h, 0, WIDTH);
        h_input(&c->h, WIDTH, 2 * WIDTH);
        h_input(&c->h, 2 * WIDTH, WIDTH);
    }
    c->gain = h_input(&c->h, 0, WIDTH);
    c->unused = h_input(&c->h, WIDTH, WIDTH);
    c->bias = h_input(&c->h, 0, WIDTH);
    c->head = h_input(&c->h, WIDTH, WORDS);
    c->vector = h_input(&c->h, 0, 0);
    h_fill(&c->h, 0.2, ROWS * WIDTH);
    rd_tape_on_grad_ready(c->h.tape, network_count, c);
    for (int i = 0; i < ROWS; i++) {
        c->id[i] = i * 7 % WORDS;
        c->target[i] = i * 11 % WORDS;
    }
}

typedef struct network_layer {
    network *c;
    int first; /* its first parameter */
} network_layer;

static rd_var *layer_apply(rd_tape *t, const void *ctx, rd_var *const *in)
{
    static int64_t sample[ROWS], position[ROWS];
    const network_layer *l = ctx;
    harness *h = &l->c->h;
    const bool forget = l->c->row->forget;
    const rd_layer_norm norm = {.eps = 1e-5f};
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    const rd_residual inside = {.drop = {.seed = 5, .keep = 0.8f, .site = (uint64_t)l->first},
                                .sample = sample,
                                .position = position};
    for (int i = 0; i < ROWS; i++) position[i] = i;
    rd_var *y = rd_op_layer_norm(t, &norm, in[0], h_var(h, l->first), h_var(h, l->first + 1));
    rd_var *u = rd_op_linear(t, y, h_var(h, l->first + 2), NULL);
    if (forget) rd_tape_forget(t, y);
    rd_var *f = rd_op_activate(t, RD_ACT_GELU_TANH, u);
    rd_var *v = rd_op_residual(t, &inside, NULL, f);
    rd_var *z = rd_op_linear(t, v, h_var(h, l->first + 3), NULL);
    if (forget) rd_tape_forget(t, v);
    if (forget) rd_tape_forget(t, f);
    return rd_op_residual(t, &plain, in[0], z);
}

static rd_var *network_loss(network *c)
{
    rd_tape *t = c->h.tape;
    const rd_layer_norm norm = {.eps = 1e-5f};
    const rd_xent a = {.target = c->target, .temperature = 1.0f, .by_rows = c->row->tied};
    rd_var *x = rd_op_embed(t, h_var(&c->h, c->table), c->id, ROWS);
    for (int l = 0; l < LAYERS; l++) {
        network_layer layer = {c, 1 + PARTS * l};
        rd_var *const in[] = {x};
        x = c->row->segments ? rd_tape_recompute(t, layer_apply, &layer, sizeof layer, in, 1)
                             : layer_apply(t, &layer, in);
        if (l == 0 || l != c->row->again) continue;
        rd_var *const next[] = {x};
        layer.first = 1;
        x = c->row->segments ? rd_tape_recompute(t, layer_apply, &layer, sizeof layer, next, 1)
                             : layer_apply(t, &layer, next);
    }
    x = rd_op_layer_norm(t, &norm, x, h_var(&c->h, c->gain), h_var(&c->h, c->bias));
    return rd_op_softmax_xent(t, &a, x, h_var(&c->h, c->row->tied ? c->table : c->head));
}

static size_t grads_bytes(const network *c)
{
    return (size_t)rd_params_grad_span(c->h.ps) * sizeof(float);
}

/* Gradients begin as NaN where the tape zeroes them, else as 0. */
static void begin_borrowed(network *c)
{
    float *g = test_grads(c->h.ps);
    memset(g, 0xff, grads_bytes(c));
    rd_tape_borrow_grads(c->h.tape);
    for (int i = 0; i < c->h.n; i++)
        if (!rd_tape_borrows(c->h.tape, c->h.p[i]))
            memset(g + c->h.p[i]->offset, 0, (size_t)rd_params_place(c->h.p[i]) * sizeof(float));
}

static void one_step(network *c, float *loss, float *grads)
{
    rd_status st = {0};
    memset(c->calls, 0, sizeof c->calls);
    rd_var *y = network_loss(c);
    must_do(rd_tape_check(c->h.tape, &st), &st);
    *loss = h_scalar(&c->h, y);
    must_do(rd_tape_backward(c->h.tape, y, &st), &st);
    memcpy(grads, test_grads(c->h.ps), grads_bytes(c));
    for (int i = 0; i < c->h.n; i++) {
        const bool used = i != c->unused && i != c->vector && (i != c->head || !c->row->tied);
        assert_int_equal(c->calls[i], used);
        assert_false(rd_tape_borrows(c->h.tape, c->h.p[i]));
    }
}

static void test_borrow(void **state)
{
    const borrow_row *row = *state;
    network c;
    float loss[3], *g[3];
    h_cpu_alone();
    network_init(&c, row);
    /* Steps 0 and 2 do not borrow, step 1 does. */
    for (int k = 0; k < 3; k++) {
        g[k] = malloc(grads_bytes(&c));
        if (k == 1)
            begin_borrowed(&c);
        else
            memset(test_grads(c.h.ps), 0, grads_bytes(&c));
        rd_tape_reset(c.h.tape, true, true);
        one_step(&c, &loss[k], g[k]);
        assert_true(k == 0 ? rd_tape_borrowed_peak(c.h.tape) == 0
                           : rd_tape_borrowed_peak(c.h.tape) >=
                                 (size_t)LAYERS / 2 * ROWS * WIDTH * sizeof(float));
    }
    assert_true(loss[0] == loss[1] && loss[0] == loss[2]);
    assert_memory_equal(g[0], g[1], grads_bytes(&c));
    assert_memory_equal(g[0], g[2], grads_bytes(&c));
    assert_true(g[0][c.h.p[1]->offset] != 0.0f);
    for (int k = 0; k < 3; k++) free(g[k]);
    h_free(&c.h);
}

/* The values of most layers need no memory of their own. */
static void test_less_memory(void **state)
{
    size_t peak[2];
    (void)state;
    h_cpu_alone();
    for (int k = 0; k < 2; k++) {
        network c;
        float loss;
        network_init(&c, &borrow_rows[0]);
        float *g = malloc(grads_bytes(&c));
        memset(test_grads(c.h.ps), 0, grads_bytes(&c));
        if (k == 1) begin_borrowed(&c);
        rd_tape_reset(c.h.tape, true, true);
        one_step(&c, &loss, g);
        peak[k] = rd_arena_peak(rd_tape_arena(c.h.tape));
        free(g);
        h_free(&c.h);
    }
    if (!(peak[1] < peak[0] / 2)) fail_msg("%zu bytes, and %zu without", peak[1], peak[0]);
}

/* Without a backward pass the caller gets zeros, and the next step computes as ever. */
static void test_no_backward(void **state)
{
    network c;
    float loss[2], *g[2];
    (void)state;
    h_cpu_alone();
    network_init(&c, &borrow_rows[1]);
    for (int k = 0; k < 2; k++) {
        g[k] = calloc(1, grads_bytes(&c));
        if (k == 1) {
            begin_borrowed(&c);
            rd_tape_reset(c.h.tape, true, true);
            assert_non_null(rd_op_embed(c.h.tape, h_var(&c.h, c.table), c.id, ROWS));
            rd_tape_return_grads(c.h.tape);
            assert_memory_equal(g[1], test_grads(c.h.ps), grads_bytes(&c));
        }
        memset(test_grads(c.h.ps), 0, grads_bytes(&c));
        rd_tape_reset(c.h.tape, true, true);
        one_step(&c, &loss[k], g[k]);
    }
    assert_memory_equal(g[0], g[1], grads_bytes(&c));
    for (int k = 0; k < 2; k++) free(g[k]);
    h_free(&c.h);
}

RD_TESTS("borrow", TEST_ROWS(test_borrow, borrow_rows), TEST(test_less_memory),
         TEST(test_no_backward))
