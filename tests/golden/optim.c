/* optim.c -- compares ten steps of every optimizer with torch and NumPy in float64
 * (make_optim.py). */
#include "rd/optim.h"
#include "test.h"
#include "optim_defaults.h"
#include "optim_values.h"
#include "test_device.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Ten float32 steps and float64, with values of order one: three times the largest difference,
 * 1.9e-7. */
static const double tolerance = 6e-7;

/* Multiplies gradients by `scale`; the optimizer divides by it. */
static void run(const struct golden *k, double scale)
{
    rd_status st = {0};
    rd_params *p = NULL;
    rd_optim *o = NULL;
    rd_param *table, *bias;
    const int64_t dim[] = {ROWS, COLS}, n_bias[] = {BIAS};
    const rd_init zero = {.kind = RD_INIT_CONST};
    rd_optim_config c;
    must_do(optim_from_keys(k->optimizer, k->keys, &c, &st), &st);
    assert_int_equal(rd_params_new(&p, &st), RD_OK);
    assert_int_equal(rd_params_add(p, "table", 2, dim, zero, RD_PARAM_ROWS, &table, &st), RD_OK);
    assert_int_equal(rd_params_add(p, "bias", 1, n_bias, zero, RD_PARAM_NO_DECAY, &bias, &st),
                     RD_OK);
    assert_int_equal(rd_params_seal(p, 1, NAN, &st), RD_OK);
    assert_int_equal(test_use_device(p, &st), RD_OK);
    assert_int_equal(rd_optim_new(&c, p, 1, &o, &st), RD_OK);
    float *w = rd_params_values(p), *g = rd_params_grads(p);
    int64_t at[N];
    for (int i = 0; i < N; i++)
        at[i] = i < ROWS * COLS ? table->offset + i : bias->offset + i - ROWS * COLS;
    for (int i = 0; i < N; i++) w[at[i]] = (float)first[i];
    double worst = 0.0;
    for (int s = 0; s < STEPS; s++) {
        const double *gs = k->sparse ? sparse_grads[s] : grads[s];
        for (int i = 0; i < N; i++) g[at[i]] = (float)(gs[i] * scale);
        rd_optim_stats stats = {0};
        test_written(p);
        assert_int_equal(
            rd_optim_step(o, s + 1, k->lr * pow(k->falling, s), 1.0 / scale, &stats, &st), RD_OK);
        assert_true(stats.finite);
        test_fetch(p);
        for (int i = 0; i < N; i++) {
            const double gap = fabs((double)w[at[i]] - k->after[s][i]) /
                               fmax(1.0, fabs(k->after[s][i]));
            worst = gap > worst || isnan(gap) ? gap : worst;
            if (!(gap <= tolerance))
                print_error("%s: step %d, element %d: %.9g, expected %.9g\n", k->name, s + 1, i,
                            (double)w[at[i]], k->after[s][i]);
            assert_true(gap <= tolerance);
        }
    }
    print_message("%s: largest gap %.2g\n", k->name, worst);
    rd_optim_free(o);
    rd_params_free(p);
}

static void check(void **state)
{
    run(*state, 1.0);
    run(*state, 1024.0); /* a power of two has no effect, as loss_scale */
}

RD_TESTS("optim golden", TEST_ROWS(check, golden))
