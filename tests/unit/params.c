/* params.c -- tests first values of parameters against the moments of their distributions. */
#include "rd/params.h"
#include "test.h"
#include <math.h>
#include <string.h>

enum { N = 200001 }; /* odd: normals come in pairs */

typedef struct moments {
    double mean, std, most;
    double beyond; /* share of the values that are more than one standard deviation away from 0 */
} moments;

static moments moments_of(const float *x, int64_t n)
{
    moments m = {0};
    for (int64_t i = 0; i < n; i++) {
        m.mean += (double)x[i] / (double)n;
        m.std += (double)x[i] * (double)x[i] / (double)n;
        m.most = fmax(m.most, fabs((double)x[i]));
    }
    m.std = sqrt(m.std);
    for (int64_t i = 0; i < n; i++) m.beyond += fabs((double)x[i]) > m.std ? 1.0 / (double)n : 0.0;
    return m;
}

/* Uniform in -l .. l: l / sqrt(3), 42.26 % beyond. Glorot: l = sqrt(6 / (in + out)). A normal one:
 * 31.73 % beyond. One that is cut at two standard deviations has 0.87962566 of its deviation, and
 * P(0.8796 < |z| < 2) / P(|z| < 2) = 34.95 % beyond. */
static struct row {
    const char *name;
    rd_init init;
    double init_scale, std, beyond, most;
} rows[] = {
    {"uniform", {.kind = RD_INIT_UNIFORM, .value = 0.5}, NAN, 0.28867513, 0.42264973, 0.5},
    {"glorot",
     {.kind = RD_INIT_GLOROT, .fan_in = 100, .fan_out = 50},
     NAN,
     0.11547005,
     0.42264973,
     0.2},
    {"glorot with init_scale",
     {.kind = RD_INIT_GLOROT, .fan_in = 100, .fan_out = 50},
     0.08,
     0.04618802,
     0.42264973,
     0.08},
    {"normal", {.kind = RD_INIT_NORMAL, .value = 3.0}, NAN, 3.0, 0.31731051, 18.0},
    {"truncated", {.kind = RD_INIT_TRUNCATED, .value = 3.0}, NAN, 2.63887698, 0.34946, 6.0},
};

static rd_params *made(const rd_init *init, double init_scale, uint64_t seed, const char *name)
{
    rd_status st = {0};
    rd_params *p;
    rd_param *q;
    must_do(rd_params_new(&p, &st), &st);
    must_do(rd_params_add(p, name, 1, (int64_t[]){N}, *init, 0, &q, &st), &st);
    must_do(rd_params_seal(p, seed, init_scale, &st), &st);
    return p;
}

static void check_init(void **state)
{
    const struct row *r = *state;
    rd_params *p = made(&r->init, r->init_scale, 1, "w"),
              *again = made(&r->init, r->init_scale, 1, "w"),
              *other = made(&r->init, r->init_scale, 2, "w"),
              *named = made(&r->init, r->init_scale, 1, "v");
    const float *x = rd_params_values(p);
    const moments m = moments_of(x, N);
    /* Four standard deviations of each estimate, or more. */
    assert_float_equal(m.mean / r->std, 0.0, 0.009);
    assert_float_equal(m.std / r->std, 1.0, 0.01);
    assert_float_equal(m.beyond, r->beyond, 0.005);
    assert_true(m.most <= r->most * (1.0 + 1e-6) && m.most > r->most * 0.66);
    assert_memory_equal(x, rd_params_values(again), N * sizeof *x);
    assert_memory_not_equal(x, rd_params_values(other), 16 * sizeof *x);
    assert_memory_not_equal(x, rd_params_values(named), 16 * sizeof *x);
    assert_true(x[0] != x[1] && x[N - 1] != 0.0f);
    rd_params_free(p);
    rd_params_free(again);
    rd_params_free(other);
    rd_params_free(named);
}

/* Running statistics are no parameters that a model is said to have. */
static void test_count(void **state)
{
    (void)state;
    rd_status st = {0};
    rd_params *p;
    rd_param *w, *mean;
    must_do(rd_params_new(&p, &st), &st);
    must_do(rd_params_add(p, "w", 2, (int64_t[]){7, 3},
                          (rd_init){.kind = RD_INIT_CONST, .value = 2}, 0, &w, &st),
            &st);
    must_do(rd_params_add_state(p, "mean", 5, 0.25, 0.9, &mean, &st), &st);
    must_do(rd_params_seal(p, 1, NAN, &st), &st);
    assert_int_equal(rd_params_count(p), 21);
    assert_true(rd_params_trained_span(p) >= 21 && rd_params_span(p) >= 26);
    for (int i = 0; i < 21; i++) assert_true(rd_params_values(p)[w->offset + i] == 2.0f);
    for (int i = 0; i < 5; i++) assert_true(rd_params_values(p)[mean->offset + i] == 0.25f);
    assert_true(mean->offset >= rd_params_trained_span(p));
    rd_params_free(p);
}

/* A frozen parameter has values behind all others, and neither gradient nor slot. Updates do not
 * change its version; it is no embedding whose rows are exchanged. */
static void test_frozen(void **state)
{
    enum { LONG = 1000 };
    (void)state;
    rd_status st = {0};
    rd_params *p;
    rd_param *table, *w, *mean;
    const rd_init init = {.kind = RD_INIT_CONST, .value = 2};
    must_do(rd_params_new(&p, &st), &st);
    must_do(rd_params_add(p, "table", 2, (int64_t[]){LONG, 3}, init, RD_PARAM_ROWS, &table, &st),
            &st);
    must_do(rd_params_add_state(p, "mean", 5, 0.25, 0.9, &mean, &st), &st);
    must_do(rd_params_add(p, "w", 2, (int64_t[]){7, 3}, init, 0, &w, &st), &st);
    rd_params_freeze(p, table);
    must_do(rd_params_seal(p, 1, NAN, &st), &st);
    must_do(rd_params_slots(p, 2, rd_params_trained_span(p), &st), &st);
    assert_int_equal(table->flags, RD_PARAM_FROZEN);
    assert_true(rd_param_trains(w) && !rd_param_trains(table) && !rd_param_trains(mean));
    assert_int_equal(rd_params_count(p), 21);
    assert_int_equal(rd_params_total(p), 3 * LONG + 21);
    assert_int_equal(rd_params_trained_span(p), 32);
    assert_int_equal(rd_params_grad_span(p), 48);
    assert_true(rd_params_span(p) == 48 + (3 * LONG + 15) / 16 * 16 && table->offset == 48);
    for (int i = 0; i < 3 * LONG; i++) assert_true(rd_params_values(p)[table->offset + i] == 2.0f);
    const uint64_t before = rd_params_version_of(p, table);
    rd_params_updated(p);
    assert_true(rd_params_version_of(p, table) == before);
    assert_true(rd_params_version_of(p, w) == before + 1 && rd_params_version(p) == before + 1);
    rd_params_touch(p);
    assert_true(rd_params_version_of(p, table) == before + 2);
    rd_params_free(p);
}

RD_TESTS("params", TEST_ROWS(check_init, rows), TEST(test_count), TEST(test_frozen))
