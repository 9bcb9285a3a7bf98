/* taken.c -- memory that the tape uses twice: ops that overwrite the values of an input, and
 * gradients in the memory of values and gradients that are no longer needed. */
#include "harness.h"

enum { ROWS = 40, IN = 24, WIDE = 160, LAYERS = 6 };

typedef struct chain {
    harness h;
    float *x; /* the rows of the first product */
    int64_t sample[ROWS], position[ROWS];
    rd_var *hidden; /* output of the last layer's first product */
    size_t forward; /* bytes of the step after forward */
} chain;

static void chain_init(chain *c)
{
    memset(c, 0, sizeof *c);
    h_init(&c->h);
    for (int l = 0; l < LAYERS; l++) {
        h_input(&c->h, IN, WIDE);
        h_input(&c->h, 0, WIDE);
        h_input(&c->h, WIDE, IN);
    }
    h_fill(&c->h, 0.4, ROWS * IN);
    c->x = calloc((ROWS + RD_SLACK_ROWS) * IN, sizeof *c->x);
    rd_philox_uniform(rd_key_make(9, RD_RNG_TEST, 0, 0), 0, ROWS * IN, c->x);
    for (int64_t i = 0; i < ROWS; i++) c->sample[i] = 3 + i / 8, c->position[i] = i % 8;
}

static void chain_free(chain *c)
{
    h_free(&c->h);
    free(c->x);
}

/* y = x + drop(W2 drop(relu(W1 x + b))) for each layer. apart: another op reads each array first,
 * so none is overwritten. */
static rd_var *chain_apply(chain *c, bool apart)
{
    rd_tape *t = c->h.tape;
    rd_residual r = {.drop = {.seed = 5, .epoch = 2, .keep = 0.7f},
                     .sample = c->sample,
                     .position = c->position};
    const rd_positions p = {RD_SINUSOID_HALVES, 1.5f, c->position};
    rd_var *x = rd_tape_const(t, c->x, ROWS, IN);
    for (int l = 0; l < LAYERS; l++) {
        rd_var *z = rd_op_linear(t, x, h_var(&c->h, 3 * l), h_var(&c->h, 3 * l + 1));
        c->hidden = z;
        if (apart) rd_op_activate(t, RD_ACT_SILU, z);
        z = rd_op_relu(t, z);
        if (apart) rd_op_activate(t, RD_ACT_SILU, z);
        r.drop.site++;
        z = rd_op_linear(t, rd_op_residual(t, &r, NULL, z), h_var(&c->h, 3 * l + 2), NULL);
        if (apart) rd_op_activate(t, RD_ACT_SILU, z);
        z = rd_op_positions(t, &p, z);
        if (apart) rd_op_activate(t, RD_ACT_SILU, z);
        r.drop.site++;
        x = rd_op_residual(t, &r, x, z);
    }
    c->forward = rd_arena_used(rd_tape_device_arena(t));
    return x;
}

/* Returns the result, and all gradients behind it. */
static float *chain_run(chain *c, bool apart, int64_t *n)
{
    rd_status st = {0};
    rd_var *y = chain_apply(c, apart);
    rd_tape_check(c->h.tape, &st);
    must(&st);
    const int64_t span = rd_params_span(c->h.ps);
    float *v = h_read(&c->h, y, false), *out = malloc((size_t)(ROWS * IN + span) * sizeof *out);
    memcpy(out, v, ROWS * IN * sizeof *v);
    free(v);
    must_do(rd_tape_backward(c->h.tape, h_weighted(&c->h, &y, 1), &st), &st);
    must_do(rd_params_sync_to_host(c->h.ps, RD_GRADS, &st), &st);
    memcpy(out + ROWS * IN, rd_params_grads(c->h.ps), (size_t)span * sizeof *out);
    *n = ROWS * IN + span;
    return out;
}

static void test_overwritten(void **state)
{
    chain a, b;
    int64_t n, m;
    (void)state;
    chain_init(&a);
    chain_init(&b);
    float *x = chain_run(&a, false, &n), *y = chain_run(&b, true, &m);
    assert_int_equal(n, m);
    int64_t zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        zeros += x[i] == 0.0f;
        assert_true(x[i] == y[i]);
    }
    assert_true(zeros < n / 4);
    if (!test_on_gpu()) assert_true(a.forward < b.forward / 2);
    free(x);
    free(y);
    chain_free(&a);
    chain_free(&b);
}

static void test_backward_memory(void **state)
{
    chain c;
    int64_t n;
    (void)state;
    chain_init(&c);
    free(chain_run(&c, false, &n));
    const size_t after = rd_arena_used(rd_tape_device_arena(c.h.tape));
    /* The gradients of about one layer are new memory. */
    assert_true(after < c.forward + 2 * c.forward / LAYERS);
    chain_free(&c);
}

/* ---- the memory of values that three variables have in turn ---- */

typedef struct relay {
    harness h;
    float *x;
    int64_t sample[ROWS], position[ROWS];
} relay;

static void relay_init(relay *c)
{
    memset(c, 0, sizeof *c);
    h_init(&c->h);
    h_input(&c->h, IN, WIDE);
    h_input(&c->h, IN, WIDE);
    h_input(&c->h, WIDE, WIDE);
    h_input(&c->h, WIDE, IN);
    h_fill(&c->h, 0.3, ROWS * IN);
    c->x = calloc((ROWS + RD_SLACK_ROWS) * IN, sizeof *c->x);
    rd_philox_uniform(rd_key_make(9, RD_RNG_TEST, 0, 0), 0, ROWS * IN, c->x);
    for (int64_t i = 0; i < ROWS; i++) c->position[i] = i;
}

/* W4 drop(relu(W3 c)), where c are the states of a recurrence over W1 x and W2 x. Returns the bytes
 * that backward needed, and in *grads the gradients. */
static size_t relay_run(relay *c, bool apart, float **grads)
{
    static const int64_t first = 0, len = ROWS;
    const rd_ssru a = {1, &first, &len};
    const rd_residual r = {
        .drop = {.seed = 5, .keep = 0.7f}, .sample = c->sample, .position = c->position};
    rd_status st = {0};
    rd_tape *t = c->h.tape;
    rd_var *x = rd_tape_const(t, c->x, ROWS, IN);
    rd_var *s = rd_op_ssru(t, &a, rd_op_linear(t, x, h_var(&c->h, 0), NULL),
                           rd_op_linear(t, x, h_var(&c->h, 1), NULL), NULL);
    rd_var *y = rd_op_linear(t, s, h_var(&c->h, 2), NULL);
    if (apart) rd_op_activate(t, RD_ACT_SILU, y);
    y = rd_op_relu(t, y);
    if (apart) rd_op_activate(t, RD_ACT_SILU, y);
    y = rd_op_linear(t, rd_op_residual(t, &r, NULL, y), h_var(&c->h, 3), NULL);
    rd_var *loss = h_weighted(&c->h, &y, 1);
    rd_tape_check(t, &st);
    must(&st);
    const size_t forward = rd_arena_used(rd_tape_device_arena(t));
    must_do(rd_tape_backward(t, loss, &st), &st);
    must_do(rd_params_sync_to_host(c->h.ps, RD_GRADS, &st), &st);
    const size_t bytes = (size_t)rd_params_span(c->h.ps) * sizeof **grads;
    *grads = malloc(bytes);
    memcpy(*grads, rd_params_grads(c->h.ps), bytes);
    return rd_arena_used(rd_tape_device_arena(t)) - forward;
}

/* Backward of the recurrence needs two new arrays at once. One is the gradient of the rectified
 * rows; the other one is their values, which the product owns again when its backward is done. */
static void test_ownership_returns(void **state)
{
    relay a, b;
    float *x, *y;
    (void)state;
    relay_init(&a);
    relay_init(&b);
    const size_t need = relay_run(&a, false, &x);
    relay_run(&b, true, &y);
    for (int64_t i = 0; i < rd_params_span(a.h.ps); i++) assert_true(x[i] == y[i]);
    const size_t array = rd_arena_bytes(rd_tape_device_arena(a.h.tape),
                                        (ROWS + RD_SLACK_ROWS) * WIDE * sizeof(float));
    if (!test_on_gpu() && !(need >= 2 * array && need < 3 * array))
        fail_msg("backward needed %zu bytes; an array has %zu", need, array);
    free(x);
    free(y);
    h_free(&a.h);
    h_free(&b.h);
    free(a.x);
    free(b.x);
}

static void test_read_of_taken(void **state)
{
    chain c;
    rd_status st = {0};
    (void)state;
    h_cpu_alone();
    chain_init(&c);
    assert_non_null(chain_apply(&c, false));
    assert_null(rd_op_relu(c.h.tape, c.hidden));
    assert_int_equal(rd_tape_check(c.h.tape, &st), RD_EBUG);
    assert_non_null(strstr(st.msg, "has overwritten the values of input 0"));
    chain_free(&c);
}

RD_TESTS("ops: taken", TEST(test_overwritten), TEST(test_backward_memory),
         TEST(test_ownership_returns), TEST(test_read_of_taken))
