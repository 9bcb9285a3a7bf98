/* short_output.c -- tests the logits of a shortlist against all logits in double. They are the same
 * bytes for both layouts of the table, for other sentences beside them, and for other numbers of
 * threads. */
#include "rd/nn.h"
#include "rd/philox.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 2000, X = 37, /* three blocks of the table */ SENTENCES = 4, ROWS = 9, N = 5, END = 2 };

static float uniform(uint32_t i, uint32_t j)
{
    uint32_t r[4];
    rd_philox((const uint32_t[]){i, j, 0, 0}, rd_key_make(3, RD_RNG_TEST, 0, 0), r);
    return (float)((double)r[0] / 2147483648.0 - 1.0);
}

/* Sentences with an odd and an even number of tokens, with few of them, and with all. */
static const int64_t row_sentence[ROWS] = {0, 0, 0, 1, 2, 2, 2, 2, 3};
static int64_t at[SENTENCES + 1];
static int32_t ids[SENTENCES * V];
static float w_rows[V * X], w_columns[X * V], bias[V], x[(ROWS + RD_SLACK_ROWS) * X];

static void make_values(void)
{
    int64_t n = 0;
    for (int s = 0; s < SENTENCES; s++) {
        at[s] = n;
        for (int32_t v = 0; v < V; v++)
            if (v < 4 || s == 3 || (s < 2 && uniform(100 + (uint32_t)s, (uint32_t)v) > 0.2f))
                ids[n++] = v;
    }
    at[SENTENCES] = n;
    for (uint32_t v = 0; v < V; v++) {
        bias[v] = uniform(1, v);
        for (uint32_t k = 0; k < X; k++)
            w_rows[v * X + k] = w_columns[k * V + v] = uniform(2, v * X + k);
    }
    for (uint32_t i = 0; i < ROWS * X; i++) x[i] = uniform(4, i);
}

typedef struct found {
    int32_t id[ROWS * N];
    float logp[ROWS * N], end[ROWS];
} found;

typedef struct short_case {
    const char *name;
    bool rows, bias;
    float temperature;
    int n_barred;
    bool int8;
} short_case;
static const short_case cases[] = {
    {"a table of rows", true, false, 1, 0, false},
    {"a table of columns", false, false, 1, 0, false},
    {"a bias and a temperature", true, true, 2.5f, 0, false},
    {"barred tokens", false, true, 1, 3, false},
    {"int8", true, true, 1, 0, true},
};

/* Computes rows [from, from + n). */
static void search_rows(const short_case *c, int threads, int64_t from, int64_t n, found *f)
{
    rd_status st = {0};
    rd_backend *be;
    rd_arena *a;
    rd_short_output *s;
    const rd_output_table t = {.w = c->rows ? w_rows : w_columns,
                               .rows = c->rows,
                               .bias = c->bias ? bias : NULL,
                               .X = X,
                               .V = V,
                               .temperature = c->temperature};
    const rd_token_sets sets = {at, ids};
    const rd_search_best best = {.n = N,
                                 .end = END,
                                 .id = f->id,
                                 .logp = f->logp,
                                 .end_logp = f->end,
                                 .barred = {0, 1, 3},
                                 .n_barred = c->n_barred};
    must_do(rd_backend_cpu_new(threads, false, &be, &st), &st);
    rd_backend_set_int8(be, c->int8);
    must_do(rd_arena_new(4096, &a, &st), &st);
    must_do(rd_short_output_new(a, be, &t, SENTENCES, &sets, ROWS, &s, &st), &st);
    for (int i = 0; i < 2; i++) /* the second step begins anew */
        must_do(rd_short_output_best(s, n, x + from * X, row_sentence + from, &best, &st), &st);
    rd_arena_free(a);
    rd_backend_free(be);
}

typedef struct word {
    double logp;
    int32_t id;
} word;
static int better_first(const void *a, const void *b)
{
    const word *p = a, *q = b;
    return p->logp > q->logp ? -1 : p->logp < q->logp;
}

static double product(const float *w, const float *of)
{
    double z = 0.0;
    for (int i = 0; i < X; i++) z += (double)w[i] * (double)of[i];
    return z;
}

/* Returns the product of the rounded vectors. */
static double product8(const float *w, const float *of)
{
    int8_t a[X], b[X];
    int32_t sum = 0;
    const double scale = (double)rd_int8_row(X, w, a) * (double)rd_int8_row(X, of, b);
    for (int i = 0; i < X; i++) sum += a[i] * b[i];
    return (double)sum * scale;
}

static void check_row(const short_case *c, const found *f, int64_t row)
{
    const int64_t s = row_sentence[row], n = at[s + 1] - at[s];
    word want[V], got[N];
    double sum = 0.0, end = 0.0;
    int64_t m = 0;
    for (int64_t k = 0; k < n; k++) {
        const int32_t v = ids[at[s] + k];
        double z = c->bias ? (double)bias[v] : 0.0;
        z += c->int8 ? product8(w_rows + v * X, x + row * X) : product(w_rows + v * X, x + row * X);
        z /= (double)c->temperature;
        sum += exp(z);
        if (v == END)
            end = z;
        else if (c->n_barred == 0 || (v != 0 && v != 1 && v != 3))
            want[m++] = (word){z, v};
    }
    qsort(want, (size_t)m, sizeof *want, better_first);
    for (int i = 0; i < N; i++) got[i] = (word){(double)f->logp[row * N + i], f->id[row * N + i]};
    qsort(got, N, sizeof *got, better_first);
    for (int i = 0; i < N; i++) {
        assert_int_equal(got[i].id, i < m ? want[i].id : -1);
        if (i < m && !(fabs(got[i].logp - (want[i].logp - log(sum))) < 1e-5))
            fail_msg("got %.9g, want %.9g", got[i].logp, want[i].logp - log(sum));
    }
    assert_true(fabs((double)f->end[row] - (end - log(sum))) < 1e-5);
}

static void test_logits(void **state)
{
    const short_case *c = *state;
    found all = {0}, other = {0};
    short_case turned = *c;
    make_values();
    turned.rows = !c->rows;
    search_rows(c, 1, 0, ROWS, &all);
    for (int64_t row = 0; row < ROWS; row++) check_row(c, &all, row);
    search_rows(c, 3, 0, ROWS, &other);
    assert_memory_equal(&all, &other, sizeof all);
    if (!c->int8) search_rows(&turned, 2, 0, ROWS, &other);
    assert_memory_equal(&all, &other, sizeof all);
    memset(&other, 0, sizeof other);
    search_rows(c, 1, 3, 1, &other); /* one sentence alone */
    assert_memory_equal(other.id, all.id + 3 * N, N * sizeof *other.id);
    assert_memory_equal(other.logp, all.logp + 3 * N, N * sizeof *other.logp);
    assert_memory_equal(other.end, all.end + 3, sizeof *other.end);
}

RD_TESTS("ops: short output", TEST_ROWS(test_logits, cases))
