/* sampling.c -- tests how tokens are drawn. The rows of the table are those of
 * tests/support/make_sampling_golden.py. */
#include "rd/search.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample_row {
    const float *x;
    int64_t n;
    double temperature;
    int64_t top_k;
    double top_p, u;
    int32_t want;
} sample_row;
#include "sampling_golden.inc"

static void test_table(void **state)
{
    int32_t scratch[512];
    (void)state;
    assert_true(sizeof sample_rows / sizeof *sample_rows >= 1000);
    for (size_t i = 0; i < sizeof sample_rows / sizeof *sample_rows; i++) {
        const sample_row *r = &sample_rows[i];
        const rd_sampling s = {.temperature = r->temperature, .top_k = r->top_k, .top_p = r->top_p};
        const int32_t got = rd_search_sample(&s, r->n, r->x, r->u, scratch);
        if (got != r->want)
            fail_msg("row %zu (n %d, t %g, k %d, p %g, u %g): got token %d, want %d", i, (int)r->n,
                     r->temperature, (int)r->top_k, r->top_p, r->u, got, r->want);
    }
}

/* The published example: of .5 .3 .15 .05 the smallest set that reaches .7 has two tokens. */
static void test_top_p(void **state)
{
    const float x[] = {logf(0.5f), logf(0.3f), logf(0.15f), logf(0.05f)};
    const rd_sampling s = {.temperature = 1, .top_p = 0.7};
    int32_t scratch[4];
    int seen[4] = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) seen[rd_search_sample(&s, 4, x, i / 1000.0, scratch)]++;
    assert_in_range(seen[0], 624, 626); /* .5 / .8 */
    assert_in_range(seen[1], 374, 376);
}

static void test_nothing(void **state)
{
    const float none[] = {-INFINITY, -INFINITY};
    const rd_sampling s = {.temperature = 1, .top_p = 1};
    int32_t scratch[2];
    (void)state;
    assert_int_equal(rd_search_sample(&s, 2, none, 0.5, scratch), -1);
    assert_int_equal(rd_search_sample(&s, 0, none, 0.5, scratch), -1);
}

/* ---- in search ---- */

enum { V = 7, END = 2, SENTENCES = 3000 };
static const float logits[V] = {0.5f, -1.0f, 0.0f, 1.0f, 0.25f, -0.5f, -3.0f};

static rd_code flat_step(void *ctx, int64_t n, const int32_t *ids, const int64_t *parent,
                         const int64_t *sentence, const rd_search_best *out, rd_status *st)
{
    (void)ctx, (void)ids, (void)parent, (void)sentence;
    for (int64_t i = 0; i < n; i++) {
        float x[V];
        memcpy(x, logits, sizeof x);
        rd_search_best_rows(out, i, 1, V, x);
    }
    return st->code;
}

static void search_drawn(rd_arena *a, const rd_search_rules *r, int64_t n, rd_hypothesis *out)
{
    static int64_t limit[SENTENCES];
    rd_status st = {0};
    for (int i = 0; i < SENTENCES; i++) limit[i] = 4;
    must_do(rd_search(a, n, limit, V, 1, END, r, flat_step, NULL, out, &st), &st);
}

/* Tokens have their probabilities, at each position. */
static void test_frequencies(void **state)
{
    static rd_hypothesis out[SENTENCES];
    const rd_search_rules r = {.samples = true,
                               .form = RD_LENGTH_FAIRSEQ,
                               .barred = {1},
                               .n_barred = 1,
                               .min_length = 1,
                               .sampling = {.temperature = 1, .top_p = 1, .seed = 5}};
    rd_status st = {0};
    rd_arena *a;
    double sum = 0.0, sum_all = 0.0;
    (void)state;
    must_do(rd_arena_new(4096, &a, &st), &st);
    search_drawn(a, &r, SENTENCES, out);
    for (int v = 0; v < V; v++) sum_all += exp((double)logits[v]);
    for (int position = 0; position < 2; position++) {
        double chi = 0.0, n = 0.0, seen[V] = {0};
        sum = 0.0;
        for (int i = 0; i < SENTENCES; i++)
            if (out[i].n >= position) {
                seen[out[i].n > position ? out[i].ids[position] : END]++;
                n++;
            }
        for (int v = 0; v < V; v++)
            if (v != 1 && !(v == END && position == 0)) sum += exp((double)logits[v]);
        assert_true(seen[1] == 0.0 && (position > 0 || seen[END] == 0.0));
        for (int v = 0; v < V; v++) {
            const double want = n * exp((double)logits[v]) / sum;
            if (v != 1 && !(v == END && position == 0))
                chi += (seen[v] - want) * (seen[v] - want) / want;
        }
        if (chi > 25.0) fail_msg("position %d: chi square %.1f", position, chi); /* 5 free, 1e-4 */
    }
    for (int i = 0; i < 50; i++) { /* the score is that of the model, not of what was allowed */
        double want = (double)logits[END] - log(sum_all);
        for (int64_t k = 0; k < out[i].n; k++) want += (double)logits[out[i].ids[k]] - log(sum_all);
        if (!(fabs(out[i].score - want) < 1e-5))
            fail_msg("score: got %.9g, want %.9g", out[i].score, want);
    }
    rd_arena_free(a);
}

static bool same_text(const rd_hypothesis *a, const rd_hypothesis *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
}

/* A text is a function of the seed and the sentence's number. */
static void test_numbers(void **state)
{
    static rd_hypothesis all[100], other[100];
    rd_search_rules r = {.samples = true, .sampling = {.temperature = 1, .top_p = 1, .seed = 5}};
    const int64_t number[3] = {70, 3, 41};
    int different = 0;
    rd_status st = {0};
    rd_arena *a;
    (void)state;
    must_do(rd_arena_new(4096, &a, &st), &st);
    search_drawn(a, &r, 100, all);
    for (int i = 1; i < 100; i++) different += !same_text(&all[0], &all[i]);
    assert_true(different > 60);
    r.number = number;
    search_drawn(a, &r, 3, other);
    for (int i = 0; i < 3; i++) assert_true(same_text(&other[i], &all[number[i]]));
    r.number = NULL;
    r.sampling.before = 90;
    search_drawn(a, &r, 10, other);
    for (int i = 0; i < 10; i++) assert_true(same_text(&other[i], &all[90 + i]));
    r.sampling.before = 0;
    r.sampling.seed = 6;
    search_drawn(a, &r, 100, other);
    different = 0;
    for (int i = 0; i < 100; i++) different += !same_text(&all[i], &other[i]);
    assert_true(different > 60);
    rd_arena_free(a);
}

RD_TESTS("ops: sampling", TEST(test_table), TEST(test_top_p), TEST(test_nothing),
         TEST(test_frequencies), TEST(test_numbers))
