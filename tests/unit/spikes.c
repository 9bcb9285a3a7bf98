/* spikes.c -- tests the limit of a spike against the z-score itself. */
#include "../../runner/run/spikes.h"
#include "test.h"
#include <math.h>

enum { N = RUN_SPIKES };

static double number(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return (double)(*s >> 8) / 16777216.0;
}

/* The z-score of x among the N - 1 newest values and x, as llm.c computes it. */
static double score(const double *newest, double x)
{
    double sum = x, squares = 0.0;
    for (int i = 0; i < N - 1; i++) sum += newest[i];
    const double mean = sum / N;
    for (int i = 0; i < N - 1; i++) squares += (newest[i] - mean) * (newest[i] - mean);
    squares += (x - mean) * (x - mean);
    return (x - mean) / sqrt(squares / N);
}

static void test_limit(void **state)
{
    static const double limits[] = {0.5, 1.0, 3.0, 6.0, 10.0, 11.0};
    uint32_t seed = 7;
    run_spikes s = {0};
    double all[1000];
    int n = 0;
    (void)state;
    for (int step = 0; step < 700; step++) {
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            const double most = spikes_most(&s, limits[k]);
            if (n < N) {
                assert_true(isinf(most));
                continue;
            }
            const double *newest = all + n - (N - 1), gap = 1e-6;
            assert_true(fabs(score(newest, most) - limits[k]) < 1e-6);
            assert_true(score(newest, most - gap) < limits[k]);
            assert_true(score(newest, most + gap) > limits[k]);
        }
        spikes_add(&s, NAN); /* left out */
        spikes_add(&s, INFINITY);
        all[n] = 4.0 + number(&seed) + (step % 97 == 0 ? 5.0 : 0.0) - 0.002 * step;
        spikes_add(&s, all[n++]);
        assert_int_equal(s.n, n);
    }
}

static void test_no_limit(void **state)
{
    run_spikes s = {0};
    (void)state;
    for (int i = 0; i < N; i++) spikes_add(&s, i < N - 1 ? 2.0 : 9.0);
    assert_true(isfinite(spikes_most(&s, 3.0)));
    assert_true(isinf(spikes_most(&s, 0.0)));
    assert_true(isinf(spikes_most(&s, 12.0))); /* no z-score of 128 values is larger than 11.27 */
    for (int i = 0; i < N; i++) spikes_add(&s, 2.0);
    assert_true(isinf(spikes_most(&s, 3.0))); /* all are equal */
}

RD_TESTS("spikes", TEST(test_limit), TEST(test_no_limit))
