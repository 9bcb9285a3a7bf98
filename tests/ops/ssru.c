/* ssru.c -- tests the recurrence of simpler simple recurrent units against its formula in double,
 * with central differences for the gradients. */
#include "harness.h"

enum { MOST_SEQ = 5 };
static const double TOLERANCE = 2e-5;

typedef struct ssru_case {
    const char *name;
    int64_t d, n, len[MOST_SEQ];
    bool before; /* the first state is an input */
    double scale;
} ssru_case;

static const ssru_case cases[] = {
    {"one number", 1, 1, {1}, false, 1.5},
    {"one row, state", 7, 1, {1}, true, 1.5},
    {"one sentence", 8, 1, {9}, false, 1.5},
    {"three sentences", 13, 3, {7, 1, 12}, false, 1.5},
    {"three sentences, states", 13, 3, {7, 1, 12}, true, 1.5},
    {"an empty sentence", 9, 4, {3, 0, 5, 1}, true, 1.5},
    {"a whole block", 64, 2, {5, 4}, true, 1.5},
    {"one column more", 65, 2, {5, 4}, true, 1.5},
    {"several blocks", 200, 5, {30, 1, 9, 17, 2}, true, 1.5},
    {"long", 3, 2, {300, 151}, true, 1.5},
    {"wide gates", 9, 3, {7, 1, 12}, true, 12.0},
};

typedef struct ssru_test {
    harness h;
    const ssru_case *c;
    int u, z, before; /* inputs; before -1: none */
    int64_t first[MOST_SEQ], N;
    rd_ssru a;
} ssru_test;

static double ssru_reference(void *ctx)
{
    const ssru_test *t = ctx;
    const int64_t d = t->c->d;
    double total = 0.0;
    for (int64_t s = 0; s < t->c->n; s++)
        for (int64_t k = 0; k < d; k++) {
            double c = t->before < 0 ? 0.0 : t->h.x[t->before][s * d + k];
            for (int64_t i = 0; i < t->c->len[s]; i++) {
                const int64_t at = (t->first[s] + i) * d + k;
                const double f = 1.0 / (1.0 + exp(-t->h.x[t->z][at]));
                c = f * c + (1.0 - f) * t->h.x[t->u][at];
                total += (double)t->h.r[at] * c;
            }
        }
    return total;
}

static void ssru_init(ssru_test *t, const ssru_case *c, int threads)
{
    *t = (ssru_test){.c = c, .before = -1};
    for (int64_t s = 0; s < c->n; s++) {
        t->first[s] = t->N;
        t->N += c->len[s];
    }
    t->a = (rd_ssru){c->n, t->first, c->len};
    h_init_as(&t->h, threads, false);
    t->u = h_input(&t->h, t->N, c->d);
    t->z = h_input(&t->h, t->N, c->d);
    if (c->before) t->before = h_input(&t->h, c->n, c->d);
    h_fill(&t->h, c->scale, t->N * c->d);
}

static rd_var *ssru_apply(ssru_test *t)
{
    return rd_op_ssru(t->h.tape, &t->a, h_var(&t->h, t->u), h_var(&t->h, t->z),
                      h_var(&t->h, t->before));
}

static void test_ssru(void **state)
{
    ssru_test t;
    ssru_init(&t, *state, 1);
    rd_var *y = ssru_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), ssru_reference, &t, TOLERANCE);
    h_free(&t.h);
}

static double ssru_twice_reference(void *ctx)
{
    return 2.0 * ssru_reference(ctx);
}

/* Twice on the same inputs: the gradients of both are added. */
static void test_twice(void **state)
{
    ssru_test t;
    (void)state;
    ssru_init(&t, &cases[4], 1);
    const size_t n = (size_t)t.h.n_r;
    t.h.r = realloc(t.h.r, 2 * n * sizeof *t.h.r);
    memcpy(t.h.r + n, t.h.r, n * sizeof *t.h.r);
    /* Inputs that are results: their gradients are first written, then added to. */
    int64_t *at = malloc(n * sizeof *at);
    for (size_t i = 0; i < n; i++) at[i] = (int64_t)i;
    rd_var *x[3] = {h_var(&t.h, t.u), h_var(&t.h, t.z), h_var(&t.h, t.before)}, *y[2];
    for (int i = 0; i < 3; i++)
        x[i] = rd_op_pick(t.h.tape, 1, &x[i], (const int64_t *[]){at}, i < 2 ? t.N : t.c->n);
    for (int i = 0; i < 2; i++) y[i] = rd_op_ssru(t.h.tape, &t.a, x[0], x[1], x[2]);
    h_check(&t.h, h_weighted(&t.h, y, 2), ssru_twice_reference, &t, TOLERANCE);
    free(at);
    h_free(&t.h);
}

/* A column of one sentence by hand, with gates of sigmoid(log 3) = 3/4 and sigmoid(0) = 1/2:
 * c_0 = 3/4 (4) + 1/4 (-8) = 1, c_1 = 1/2 (1) + 1/2 (3) = 2, c_2 = 3/4 (2) + 1/4 (-10) = -1. */
static void test_known(void **state)
{
    static const ssru_case known = {"known", 1, 1, {3}, true, 1.0};
    static const float u[] = {-8.0f, 3.0f, -10.0f}, want[] = {1.0f, 2.0f, -1.0f};
    const float log3 = logf(3.0f), z[] = {log3, 0.0f, log3};
    ssru_test t;
    (void)state;
    ssru_init(&t, &known, 1);
    float *v = test_values(t.h.ps);
    memcpy(v + t.h.p[t.u]->offset, u, sizeof u);
    memcpy(v + t.h.p[t.z]->offset, z, sizeof z);
    v[t.h.p[t.before]->offset] = 4.0f;
    rd_params_touch(t.h.ps);
    float *c = h_read(&t.h, ssru_apply(&t), false);
    for (int i = 0; i < 3; i++) assert_float_equal(c[i], want[i], 1e-5);
    free(c);
    h_free(&t.h);
}

/* States and gradients have the same bytes on 1, 2, 3 and 4 threads. */
static void test_threads(void **state)
{
    static const int which[] = {5, 8, 9};
    (void)state;
    for (size_t w = 0; w < sizeof which / sizeof *which; w++) {
        float *first = NULL, *first_g = NULL;
        for (int threads = 1; threads <= 4; threads++) {
            ssru_test t;
            rd_status st = {0};
            ssru_init(&t, &cases[which[w]], threads);
            rd_var *y = ssru_apply(&t), *loss = h_weighted(&t.h, &y, 1);
            float *v = h_read(&t.h, y, false);
            rd_tape_backward(t.h.tape, loss, &st);
            must(&st);
            const size_t bytes = (size_t)rd_params_span(t.h.ps) * sizeof(float);
            float *g = malloc(bytes);
            memcpy(g, test_grads(t.h.ps), bytes);
            if (!first) first = v, first_g = g;
            assert_memory_equal(v, first, (size_t)(t.N * t.c->d) * sizeof *v);
            assert_memory_equal(g, first_g, bytes);
            if (v != first) free(v), free(g);
            h_free(&t.h);
        }
        free(first);
        free(first_g);
    }
}

/* Decoding: a sentence in steps of one row, each from the state of the step before, gives the bytes
 * of the whole sentence. So does a sentence alone. */
static void test_steps(void **state)
{
    ssru_test all, one;
    ssru_case step = {"a step", 13, 1, {1}, true, 1.5}, alone = {"alone", 13, 1, {7}, true, 1.5};
    (void)state;
    ssru_init(&all, &cases[4], 1);
    float *v = h_read(&all.h, ssru_apply(&all), false), now[13];
    const float *in = test_values(all.h.ps);
    const size_t row = sizeof now;
    memcpy(now, in + all.h.p[all.before]->offset, row);
    for (int64_t i = 0; i < 7; i++) {
        ssru_init(&one, &step, 1);
        float *to = test_values(one.h.ps);
        memcpy(to + one.h.p[one.u]->offset, in + all.h.p[all.u]->offset + i * 13, row);
        memcpy(to + one.h.p[one.z]->offset, in + all.h.p[all.z]->offset + i * 13, row);
        memcpy(to + one.h.p[one.before]->offset, now, row);
        rd_params_touch(one.h.ps);
        rd_tape_reset(one.h.tape, false, false);
        float *c = h_read(&one.h, ssru_apply(&one), false);
        assert_memory_equal(c, v + i * 13, row);
        memcpy(now, c, row);
        free(c);
        h_free(&one.h);
    }
    ssru_init(&one, &alone, 1);
    float *to = test_values(one.h.ps);
    memcpy(to + one.h.p[one.u]->offset, in + all.h.p[all.u]->offset, 7 * row);
    memcpy(to + one.h.p[one.z]->offset, in + all.h.p[all.z]->offset, 7 * row);
    memcpy(to + one.h.p[one.before]->offset, in + all.h.p[all.before]->offset, row);
    rd_params_touch(one.h.ps);
    float *c = h_read(&one.h, ssru_apply(&one), false);
    assert_memory_equal(c, v, 7 * row);
    free(c);
    free(v);
    h_free(&one.h);
    h_free(&all.h);
}

/* Gates far from zero are 0 and 1 without NaN, and so are their gradients. */
static void test_far(void **state)
{
    static const ssru_case far = {"far", 4, 1, {2}, true, 1.0};
    static const float z[] = {200.0f, -200.0f, 1e30f, -1e30f, 200.0f, -200.0f, 1e30f, -1e30f};
    ssru_test t;
    rd_status st = {0};
    (void)state;
    ssru_init(&t, &far, 1);
    float *v = test_values(t.h.ps);
    const float *u = v + t.h.p[t.u]->offset, *before = v + t.h.p[t.before]->offset;
    memcpy(v + t.h.p[t.z]->offset, z, sizeof z);
    rd_params_touch(t.h.ps);
    rd_var *y = ssru_apply(&t), *loss = h_weighted(&t.h, &y, 1);
    float *c = h_read(&t.h, y, false);
    rd_tape_backward(t.h.tape, loss, &st);
    must(&st);
    const float *g = test_grads(t.h.ps);
    for (int i = 0; i < 8; i++) {
        assert_float_equal(c[i], (i % 2 ? u[i] : before[i % 4]), 1e-6);
        assert_float_equal(g[t.h.p[t.z]->offset + i], 0.0, 1e-6);
        assert_float_equal(g[t.h.p[t.u]->offset + i], (i % 2 ? t.h.r[i] : 0.0f), 1e-6);
    }
    free(c);
    h_free(&t.h);
}

static void test_no_rows(void **state)
{
    static const int64_t none[] = {0};
    ssru_test t;
    rd_status st = {0};
    (void)state;
    ssru_init(&t, &cases[3], 1);
    rd_var *x[2] = {h_var(&t.h, t.u), h_var(&t.h, t.z)};
    for (int i = 0; i < 2; i++) x[i] = rd_op_pick(t.h.tape, 1, &x[i], (const int64_t *[]){none}, 0);
    rd_var *y = rd_op_ssru(t.h.tape, &(rd_ssru){0, none, none}, x[0], x[1], NULL);
    rd_tape_check(t.h.tape, &st);
    must(&st);
    assert_int_equal(y->rows, 0);
    rd_tape_backward(t.h.tape, h_weighted(&t.h, &y, 1), &st);
    must(&st);
    for (int64_t i = 0; i < rd_params_span(t.h.ps); i++) assert_true(test_grads(t.h.ps)[i] == 0.0f);
    h_free(&t.h);
}

/* Wrong shapes are RD_EBUG, with a message that names the numbers. */
static void test_refused(void **state)
{
    static const char *const says[] = {
        "13 columns",          "2x13",       "one variable is two of its inputs",
        "one variable is two", "has 7 rows", "has -1",
        "19 of 20 rows",       "sequence 1"};
    (void)state;
    for (int k = 0; k < 8; k++) {
        ssru_test t;
        rd_status st = {0};
        int64_t len[] = {7, 1, 12}, first[] = {0, 7, 8};
        ssru_init(&t, &cases[4], 1);
        rd_var *u = h_var(&t.h, t.u), *z = h_var(&t.h, t.z), *before = h_var(&t.h, t.before);
        t.a.len = len;
        t.a.first = first;
        if (k == 0) before = rd_op_pick(t.h.tape, 1, &z, (const int64_t *[]){first}, 2);
        if (k == 1) z = rd_op_pick(t.h.tape, 1, &z, (const int64_t *[]){first}, 2);
        if (k == 2) z = u;
        if (k == 3) before = u;
        if (k == 4) first[0] = 1;
        if (k == 5) len[0] = -1;
        if (k == 6) len[2] = 11;
        if (k == 7) first[1] = 6;
        assert_null(rd_op_ssru(t.h.tape, &t.a, u, z, before));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        if (!strstr(st.msg, says[k])) fail_msg("case %d: %s", k, st.msg);
        h_free(&t.h);
    }
}

RD_TESTS("ssru", TEST_ROWS(test_ssru, cases), TEST(test_twice), TEST(test_known),
         TEST(test_threads), TEST(test_steps), TEST(test_far), TEST(test_no_rows),
         TEST(test_refused))
