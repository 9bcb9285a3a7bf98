/* rotary.c -- tests rotary positions and norms of heads against a naive reference in double, with
 * central differences for the gradients, and values of published formulas. */
#include "rows_run.h"

static const double TOLERANCE = 2e-5;
enum { MOST_ROWS = 150, MOST_HALF = 64 };

typedef struct rotary_case {
    const char *name;
    int64_t n, q, k, head, rest; /* rest: columns behind the heads */
    bool gains, turns;
} rotary_case;

static const rotary_case cases[] = {
    {"queries and keys", 9, 2, 1, 8, 8, false, true},
    {"gains", 9, 2, 1, 8, 8, true, true},
    {"gains, no positions", 9, 2, 2, 6, 12, true, false},
    {"head of two", 5, 3, 1, 2, 2, true, true},
    {"one row", 1, 1, 1, 4, 0, true, true},
    {"queries alone", 7, 3, 0, 10, 3, false, true},
    {"many rows", 150, 2, 1, 64, 64, true, true},
    {"many rows, no gains", 150, 2, 1, 64, 64, false, true},
};

static int64_t position[MOST_ROWS];
static double rate[MOST_HALF];

static int64_t columns_of(const rotary_case *c)
{
    return (c->q + c->k) * c->head + c->rest;
}

/* Element j of a row of the result, for row i of x. */
static double element_of(const rows_run *t, int64_t i, int64_t j)
{
    const rotary_case *c = t->test_case;
    const int64_t h = j / c->head, k = j % c->head, half = c->head / 2;
    const double *x = t->h.x[t->in[0]] + i * columns_of(c);
    if (h >= c->q + c->k) return x[j];
    double z[2] = {x[h * c->head + k % half], x[h * c->head + half + k % half]};
    if (c->gains) {
        const double *gain = t->h.x[t->in[h < c->q ? 1 : 2]];
        double sum = 0.0;
        for (int64_t e = 0; e < c->head; e++) sum += x[h * c->head + e] * x[h * c->head + e];
        const double r = 1.0 / sqrt(sum / (double)c->head + 1e-5);
        z[0] *= r * gain[k % half];
        z[1] *= r * gain[half + k % half];
    }
    const double angle = c->turns ? (double)position[i] * rate[k % half] : 0.0;
    return k < half ? z[0] * cos(angle) - z[1] * sin(angle) : z[1] * cos(angle) + z[0] * sin(angle);
}

static double reference(void *ctx)
{
    const rows_run *t = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = 0; j < t->d; j++)
            total += (double)t->h.r[i * t->d + j] * element_of(t, i, j);
    return total;
}

static rd_rotary attr_of(const rotary_case *c)
{
    return (rd_rotary){.n_heads = c->q,
                       .n_kv_heads = c->k,
                       .head = c->head,
                       .position = position,
                       .rate = c->turns ? rate : NULL,
                       .eps = 1e-5f};
}

static rd_var *rotary_of(rows_run *t, rd_var *x)
{
    const rotary_case *c = t->test_case;
    const rd_rotary a = attr_of(c);
    return rd_op_rotary(t->h.tape, &a, x, c->gains ? h_var(&t->h, t->in[1]) : NULL,
                        c->gains ? h_var(&t->h, t->in[2]) : NULL);
}

/* x is the result of another op: without gains it is overwritten. */
static rd_var *rotary_apply(rows_run *t)
{
    rd_var *x = h_var(&t->h, t->in[0]);
    int64_t *all;
    rd_status st = {0};
    rd_arena_get(rd_tape_arena(t->h.tape), MOST_ROWS * sizeof *all, &all, &st);
    must(&st);
    for (int64_t i = 0; i < t->n; i++) all[i] = i;
    return rotary_of(t, rd_op_pick(t->h.tape, 1, &x, (const int64_t *[]){all}, t->n));
}

static void rotary_init(rows_run *t, const void *test_case, int threads)
{
    const rotary_case *c = test_case;
    *t = (rows_run){.apply = rotary_apply, .test_case = c, .n = c->n, .d = columns_of(c)};
    for (int i = 0; i < MOST_ROWS; i++) position[i] = (i * 7 + 3) % 40;
    for (int k = 0; k < MOST_HALF; k++) rate[k] = pow(10000.0, -2.0 * k / (double)c->head);
    h_init_as(&t->h, threads, false);
    t->in[0] = h_input(&t->h, c->n, t->d);
    t->in[1] = c->gains ? h_input(&t->h, 0, c->head) : -1;
    t->in[2] = c->gains ? h_input(&t->h, 0, c->head) : -1;
    h_fill(&t->h, 1.5, c->n * t->d);
}

static void test_rotary(void **state)
{
    rows_run t;
    rotary_init(&t, *state, 1);
    rd_var *y = rotary_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* On a parameter the gradient is added; x is also used twice. */
static void test_twice(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        float *once = NULL;
        for (int n = 1; n <= 2; n++) {
            rows_run t;
            rd_status st = {0};
            rotary_init(&t, &cases[k], 1);
            const int64_t all = t.n * t.d;
            t.h.r = realloc(t.h.r, (size_t)(2 * all) * sizeof *t.h.r);
            memcpy(t.h.r + all, t.h.r, (size_t)all * sizeof *t.h.r);
            rd_var *x = h_var(&t.h, t.in[0]);
            rd_var *y[2] = {rotary_of(&t, x), n == 2 ? rotary_of(&t, x) : NULL};
            rd_tape_backward(t.h.tape, h_weighted(&t.h, y, n), &st);
            must(&st);
            const int64_t span = rd_params_span(t.h.ps);
            if (!once) {
                once = malloc((size_t)span * sizeof *once);
                memcpy(once, test_grads(t.h.ps), (size_t)span * sizeof *once);
            }
            for (int64_t i = 0; i < span; i++)
                assert_float_equal(test_grads(t.h.ps)[i], (float)n * once[i], 1e-4);
            h_free(&t.h);
        }
        free(once);
    }
}

/* (1, 2, 3, 4), head 4, position 3, theta 10000: values of transformers' Llama. */
static void test_known(void **state)
{
    static const double want[] = {-1.413353, 1.879118, -2.828857, 4.058191};
    static const rotary_case c = {"", 1, 1, 0, 4, 0, false, true};
    rows_run t;
    (void)state;
    rotary_init(&t, &c, 1);
    position[0] = 3;
    for (int k = 0; k < 4; k++) test_values(t.h.ps)[t.h.p[t.in[0]]->offset + k] = (float)(k + 1);
    rd_params_touch(t.h.ps);
    float *y = h_read(&t.h, rotary_apply(&t), false);
    for (int k = 0; k < 4; k++) assert_float_equal(y[k], want[k], 2e-6);
    free(y);
    h_free(&t.h);
}

/* Positions up to a million. */
static void test_far(void **state)
{
    rows_run t;
    (void)state;
    rotary_init(&t, &cases[0], 1);
    for (int i = 0; i < 9; i++) position[i] = i % 2 ? 1000000 - i : 131071;
    float *y = h_read(&t.h, rotary_apply(&t), false);
    for (int64_t i = 0; i < t.n; i++)
        for (int64_t j = 0; j < t.d; j++)
            assert_float_equal(y[i * t.d + j], element_of(&t, i, j), 2e-6);
    free(y);
    h_free(&t.h);
}

static void test_threads(void **state)
{
    (void)state;
    for (int k = 6; k < 8; k++) rows_same_bytes(rotary_init, &cases[k]);
}

static void test_no_rows(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        rows_run t;
        rotary_init(&t, &cases[k], 1);
        rows_check_none(&t, rotary_of(&t, rows_none(&t, t.in[0])));
        h_free(&t.h);
    }
}

static void test_refused(void **state)
{
    (void)state;
    for (int k = 0; k < 6; k++) {
        rows_run t;
        rd_status st = {0};
        rotary_init(&t, &cases[1], 1);
        rd_rotary a = attr_of(&cases[1]);
        rd_var *gain[2] = {h_var(&t.h, t.in[1]), h_var(&t.h, t.in[2])};
        if (k == 0) a.head = 7;
        if (k == 1) a.n_heads = 4;
        if (k == 2) a.eps = 0.0f;
        if (k == 3) position[8] = -1;
        if (k == 4) gain[1] = NULL;
        if (k == 5) a.head = 6;
        assert_null(rd_op_rotary(t.h.tape, &a, h_var(&t.h, t.in[0]), gain[0], gain[1]));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        h_free(&t.h);
    }
}

RD_TESTS("rotary", TEST_ROWS(test_rotary, cases), TEST(test_twice), TEST(test_known),
         TEST(test_far), TEST(test_threads), TEST(test_no_rows), TEST(test_refused))
