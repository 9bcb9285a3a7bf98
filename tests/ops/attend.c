/* attend.c -- tests attention against a naive reference in double: whole rows of probabilities, the
 * masks of rd_philox_keep, and central differences for the gradients. */
#include "harness.h"

enum { MOST_SEQ = 4 };
static const double TOLERANCE = 2e-5;

typedef struct attend_case {
    const char *name;
    int64_t n_heads, n_kv_heads, head;
    int64_t n, q_len[MOST_SEQ], k_len[MOST_SEQ];
    bool causal, fused; /* fused: one variable has queries, keys and values */
    float keep;
} attend_case;

static const attend_case cases[] = {
    {"one row", 1, 1, 8, 1, {1}, {1}, true, true, 1.0f},
    {"self, three lengths", 2, 2, 8, 3, {7, 1, 8}, {7, 1, 8}, false, true, 1.0f},
    {"causal, three lengths", 2, 2, 24, 3, {63, 1, 9}, {63, 1, 9}, true, true, 1.0f},
    {"cross", 2, 2, 8, 3, {5, 9, 1}, {11, 1, 3}, false, false, 1.0f},
    {"cross, no query of one", 2, 2, 8, 3, {5, 0, 1}, {11, 2, 3}, false, false, 1.0f},
    {"grouped heads", 6, 2, 8, 2, {9, 17}, {9, 17}, true, true, 1.0f},
    {"one key head", 3, 1, 16, 2, {4, 5}, {6, 70}, false, false, 1.0f},
    {"block edges 64", 1, 1, 64, 1, {64}, {64}, true, true, 1.0f},
    {"block edges 65", 1, 1, 80, 1, {65}, {65}, true, true, 1.0f},
    {"two key blocks", 1, 1, 8, 2, {130, 3}, {257, 129}, false, false, 1.0f},
    {"causal, two key blocks", 1, 1, 8, 1, {257}, {257}, true, true, 1.0f},
    {"causal, keys before", 2, 2, 8, 2, {3, 70}, {9, 140}, true, false, 1.0f},
    {"wide head", 1, 1, 128, 1, {9}, {12}, false, false, 1.0f},
    {"odd head", 3, 3, 5, 2, {9, 4}, {9, 4}, true, true, 1.0f},
    {"dropout", 2, 2, 8, 3, {7, 1, 70}, {7, 1, 70}, false, true, 0.9f},
    {"dropout, causal", 2, 2, 8, 2, {13, 150}, {13, 150}, true, true, 0.5f},
    {"dropout, cross, grouped", 4, 2, 8, 2, {13, 5}, {3, 140}, false, false, 0.8f},
    {"dropout, heads of 24", 1, 1, 24, 1, {63}, {64}, false, false, 0.9f},
    {"dropout, heads of 64", 2, 2, 64, 1, {65}, {65}, true, true, 0.9f},
    {"dropout, heads of 80", 1, 1, 80, 1, {64}, {64}, true, true, 0.9f},
    {"dropout, heads of 128", 1, 1, 128, 2, {8, 1}, {7, 65}, false, false, 0.9f},
    {"dropout, causal, 1024 rows", 1, 1, 8, 1, {1024}, {1024}, true, true, 0.9f},
};

/* Inputs that are sums: their gradients are in memory that is not zero. twice: each input has two
 * readers. */
typedef struct sum_case {
    const char *name;
    attend_case c;
    bool twice;
} sum_case;

static const sum_case sum_cases[] = {
    {"sums", {"", 4, 2, 8, 2, {9, 70}, {9, 70}, true, true, 0.9f}, false},
    {"sums, cross", {"", 2, 2, 32, 2, {9, 5}, {7, 140}, false, false, 1.0f}, false},
    {"sums, no query of one", {"", 2, 2, 8, 3, {5, 0, 1}, {9, 2, 3}, false, false, 1.0f}, false},
    {"sums, two readers", {"", 2, 2, 8, 2, {9, 4}, {9, 4}, true, true, 1.0f}, true},
    {"sums, cross, two readers", {"", 2, 1, 8, 2, {9, 4}, {3, 5}, false, false, 1.0f}, true},
};

typedef struct attend_test {
    harness h;
    const attend_case *c;
    rd_attend a;
    int q, kv;
    int64_t q_first[MOST_SEQ], k_first[MOST_SEQ], sample[MOST_SEQ], Nq, Nk, q_cols, k_cols;
} attend_test;

/* The sum over all outputs times their weights. */
static double attend_reference(void *ctx)
{
    const attend_test *t = ctx;
    const rd_attend *a = &t->a;
    const double *q = t->h.x[t->q], *kv = t->h.x[t->kv];
    double total = 0.0;
    for (int64_t s = 0; s < a->n; s++)
        for (int64_t h = 0; h < a->n_heads; h++)
            for (int64_t i = 0; i < a->q_len[s]; i++) {
                const int64_t g = h / (a->n_heads / a->n_kv_heads), row = a->q_first[s] + i,
                              seen = a->causal ? i + a->k_len[s] - a->q_len[s] + 1 : a->k_len[s];
                double p[1024], sum = 0.0, top = -INFINITY;
                uint8_t keep[1024];
                for (int64_t k = 0; k < seen; k++) {
                    p[k] = 0.0;
                    for (int64_t c = 0; c < a->head; c++)
                        p[k] += q[row * t->q_cols + a->q_at + h * a->head + c] *
                                kv[(a->k_first[s] + k) * t->k_cols + a->k_at + g * a->head + c];
                    p[k] *= (double)a->scale;
                    top = fmax(top, p[k]);
                }
                for (int64_t k = 0; k < seen; k++) sum += p[k] = exp(p[k] - top);
                rd_philox_keep(rd_key_make(a->drop.seed, RD_RNG_DROPOUT, a->drop.site + (uint64_t)h,
                                           a->drop.epoch),
                               (uint64_t)a->sample[s], (uint32_t)i, a->drop.keep, seen, keep);
                for (int64_t k = 0; k < seen; k++) {
                    const double w = keep[k] ? p[k] / sum / (double)a->drop.keep : 0.0;
                    for (int64_t c = 0; c < a->head; c++)
                        total += w *
                                 kv[(a->k_first[s] + k) * t->k_cols + a->v_at + g * a->head + c] *
                                 (double)t->h.r[row * a->n_heads * a->head + h * a->head + c];
                }
            }
    return total;
}

/* unused: columns of no use beside queries or keys. */
static void attend_init_as(attend_test *t, const attend_case *c, int threads, int64_t unused)
{
    const int64_t wq = c->n_heads * c->head, wk = c->n_kv_heads * c->head;
    *t = (attend_test){.c = c};
    for (int64_t s = 0; s < c->n; s++) {
        t->q_first[s] = t->Nq;
        t->k_first[s] = t->Nk;
        t->sample[s] = 1000 * (s + 1) + (INT64_C(1) << 33);
        t->Nq += c->q_len[s];
        t->Nk += c->k_len[s];
    }
    t->q_cols = c->fused ? wq + 2 * wk : wq + 3 * unused;
    t->k_cols = c->fused ? t->q_cols : 2 * wk + unused;
    t->a = (rd_attend){.n_heads = c->n_heads,
                       .n_kv_heads = c->n_kv_heads,
                       .head = c->head,
                       .q_at = c->fused ? 0 : 3 * unused,
                       .k_at = c->fused ? wq : wk + unused, /* values first */
                       .v_at = c->fused ? wq + wk : 0,
                       .scale = 1.0f / sqrtf((float)c->head),
                       .causal = c->causal,
                       .n = c->n,
                       .q_first = t->q_first,
                       .q_len = c->q_len,
                       .k_first = t->k_first,
                       .k_len = c->k_len,
                       .sample = t->sample,
                       .drop = {.seed = 5, .epoch = 2, .site = 7, .keep = c->keep}};
    h_init_as(&t->h, threads, false);
    t->q = t->kv = h_input(&t->h, t->Nq, t->q_cols);
    if (!c->fused) t->kv = h_input(&t->h, t->Nk, t->k_cols);
    h_fill(&t->h, 1.5, t->Nq * wq);
}

static void attend_init(attend_test *t, const attend_case *c, int threads)
{
    attend_init_as(t, c, threads, 1);
}

static rd_var *attend_apply(attend_test *t)
{
    return rd_op_attend(t->h.tape, &t->a, h_var(&t->h, t->q), h_var(&t->h, t->kv));
}

/* Fills free memory of the tape with large numbers. */
static void attend_soil(attend_test *t)
{
    rd_arena *a = rd_tape_arena(t->h.tape);
    const rd_mark mark = rd_arena_mark(a);
    const size_t bytes = (size_t)4 << 20;
    rd_status st = {0};
    void *p;
    must_do(rd_arena_get(a, bytes, &p, &st), &st);
    memset(p, 0x7e, bytes);
    rd_arena_rewind(a, mark);
}

/* The same on sums: y = attend(x + 0), or (attend(x + 0) + attend(x + 0)) / 2. */
static rd_var *attend_apply_sums(attend_test *t, bool twice)
{
    const rd_residual plain = {.drop = {.keep = 1.0f}};
    static const int64_t row[4096];
    const rd_positions half = {RD_SINUSOID_NONE, 0.5f, row};
    rd_tape *tape = t->h.tape;
    attend_soil(t);
    rd_var *q = rd_op_residual(tape, &plain, NULL, h_var(&t->h, t->q)),
           *kv = t->c->fused ? q : rd_op_residual(tape, &plain, NULL, h_var(&t->h, t->kv)),
           *y = rd_op_attend(tape, &t->a, q, kv);
    if (!twice) return y;
    return rd_op_positions(tape, &half,
                           rd_op_residual(tape, &plain, y, rd_op_attend(tape, &t->a, q, kv)));
}

static void test_attend(void **state)
{
    attend_test t;
    attend_init(&t, *state, 1);
    rd_var *y = attend_apply(&t);
    h_check(&t.h, h_weighted(&t.h, &y, 1), attend_reference, &t, TOLERANCE);
    h_free(&t.h);
}

static void test_sums(void **state)
{
    const sum_case *c = *state;
    attend_test t;
    attend_init_as(&t, &c->c, 1, 0);
    rd_var *y = attend_apply_sums(&t, c->twice);
    h_check(&t.h, h_weighted(&t.h, &y, 1), attend_reference, &t, TOLERANCE);
    h_free(&t.h);
}

/* Output and gradients have the same bytes on 1, 2 and 4 threads, and without a backward pass. */
static void test_threads(void **state)
{
    static const int threads[] = {1, 2, 4};
    float *first = NULL, *first_g = NULL;
    (void)state;
    for (int k = 0; k < 3; k++) {
        attend_test t;
        rd_status st = {0};
        attend_init(&t, &cases[15], threads[k]);
        rd_var *y = attend_apply(&t), *loss = h_weighted(&t.h, &y, 1);
        float *v = h_read(&t.h, y, false);
        const size_t n = (size_t)(y->rows * y->cols) * sizeof *v,
                     n_g = (size_t)t.h.p[0]->n * sizeof(float);
        rd_tape_backward(t.h.tape, loss, &st);
        must(&st);
        float *g = malloc(n_g);
        memcpy(g, test_grads(t.h.ps) + t.h.p[0]->offset, n_g);
        if (!first) first = v, first_g = g;
        assert_memory_equal(v, first, n);
        assert_memory_equal(g, first_g, n_g);
        if (v != first) free(v), free(g);
        h_free(&t.h);
    }
    free(first);
    free(first_g);
}

/* A sequence alone gives the bytes that it gives among others. */
static void test_alone(void **state)
{
    attend_test all, one;
    attend_case c = cases[2];
    (void)state;
    attend_init(&all, &cases[2], 1);
    float *v = h_read(&all.h, attend_apply(&all), false);
    c.n = 1;
    attend_init(&one, &c, 1);
    float *w = h_read(&one.h, attend_apply(&one), false);
    assert_memory_equal(v, w, (size_t)(c.q_len[0] * c.n_heads * c.head) * sizeof *v);
    free(v);
    free(w);
    h_free(&all.h);
    h_free(&one.h);
}

/* Decoding: one query for each sequence, whose keys are picked from a cache. */
static void test_key_row(void **state)
{
    static const int32_t row[] = {4, 0, 2, 2, 1, 5, 3};
    static const int64_t q_len[] = {1, 1}, k_first[] = {0, 3}, k_len[] = {3, 4};
    attend_case c = {"cache", 2, 1, 8, 2, {1, 1}, {3, 3}, false, false, 1.0f};
    attend_test t;
    (void)state;
    attend_init(&t, &c, 1);
    rd_tape_reset(t.h.tape, false, false);
    t.a.key_row = row;
    t.a.n_key_row = 7;
    t.a.q_len = q_len;
    t.a.k_first = k_first;
    t.a.k_len = k_len;
    rd_var *y = attend_apply(&t);
    float *v = h_read(&t.h, y, false);
    /* the reference reads the picked rows from a copy */
    double *kv = t.h.x[t.kv], picked[7 * 17];
    for (int i = 0; i < 7; i++) memcpy(picked + i * 17, kv + row[i] * 17, 17 * sizeof *kv);
    t.h.x[t.kv] = picked;
    for (int64_t i = 0; i < 2 * 16; i++) {
        memset(t.h.r, 0, 2 * 16 * sizeof *t.h.r);
        t.h.r[i] = 1.0f;
        assert_float_equal(v[i], attend_reference(&t), TOLERANCE);
    }
    t.h.x[t.kv] = kv;
    free(v);
    h_free(&t.h);
}

static const attend_case row_cases[] = {
    {"rows, head 1", 4, 2, 1, 3, {1, 1, 1}, {1, 9, 140}, false, false, 1.0f},
    {"rows, head 5", 3, 3, 5, 3, {1, 1, 1}, {4, 3, 33}, true, false, 1.0f},
    {"rows, head 16", 6, 2, 16, 3, {1, 1, 1}, {2, 5, 64}, false, false, 1.0f},
    {"rows, head 24", 6, 3, 24, 3, {1, 1, 1}, {7, 8, 20}, false, false, 1.0f},
    {"rows, head 80", 2, 1, 80, 3, {1, 1, 1}, {6, 1, 30}, true, false, 1.0f},
    {"rows, 70 heads", 70, 35, 8, 2, {1, 1}, {3, 11}, false, false, 1.0f},
};

/* One query for each sequence without a backward pass: the same numbers as the reference, and the
 * same bytes on 1, 2 and 3 threads. */
static void test_rows(void **state)
{
    float *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        attend_test t;
        attend_init(&t, *state, threads);
        rd_tape_reset(t.h.tape, false, false);
        rd_var *y = attend_apply(&t);
        const double got = (double)h_scalar(&t.h, h_weighted(&t.h, &y, 1)),
                     want = attend_reference(&t);
        if (!(fabs(got - want) <= TOLERANCE * fmax(1.0, fabs(want))))
            fail_msg("value: got %.9g, want %.9g", got, want);
        float *v = h_read(&t.h, y, false);
        if (!first) first = v;
        assert_memory_equal(v, first, (size_t)(y->rows * y->cols) * sizeof *v);
        if (v != first) free(v);
        h_free(&t.h);
    }
    free(first);
}

/* Wrong shapes are RD_EBUG. */
static void test_refused(void **state)
{
    (void)state;
    for (int k = 0; k < 7; k++) {
        attend_test t;
        rd_status st = {0};
        int64_t len[] = {4, 9, 1};
        static const int32_t far[] = {99};
        attend_init(&t, &cases[3], 1);
        if (k == 0) t.a.n_kv_heads = 3;
        if (k == 1) t.a.v_at = 18;
        if (k == 2) t.a.q_len = len;   /* a row without a sequence */
        if (k == 3) t.a.causal = true; /* fewer keys than queries */
        if (k == 4) t.a.q_at = -1;
        if (k == 5) t.a.drop.keep = 0.0f;
        if (k == 6) t.a.key_row = far, t.a.n_key_row = 1; /* while recording */
        assert_null(attend_apply(&t));
        assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
        h_free(&t.h);
    }
}

RD_TESTS("attend", TEST_ROWS(test_attend, cases), TEST_ROWS(test_sums, sum_cases),
         TEST(test_threads), TEST(test_alone), TEST(test_key_row), TEST_ROWS(test_rows, row_cases),
         TEST(test_refused))
