/* patience.c -- tests early stopping, and its series with the plateau rule. The rates are those of
 * Sockeye's plateau-reduce (2e-4, times 0.7 after 8 checkpoints, end after 32), by the formula
 * 2e-4 * 0.7^k. */
#include "../../runner/run/patience.h"
#include "test.h"
#include <math.h>

static const rd_schedule_config sockeye = {
    .learning_rate = 2e-4, .has_plateau = true, .plateau_factor = 0.7, .plateau_patience = 8};

static double rate_of(const rd_schedule_config *c, const rd_plateau *p, int64_t step)
{
    const rd_schedule_point at = {.step = step, .n_ranks = 1, .multiplier = p->factor};
    return rd_schedule_rate(c, &at);
}

/* Counts an evaluation by both rules, as a training does. Returns whether the rate fell. */
static bool count(const rd_schedule_config *c, rd_plateau *p, run_patience *s, double value,
                  int64_t step)
{
    const rd_schedule_point at = {.step = step, .n_ranks = 1, .multiplier = p->factor};
    patience_update(s, value, false, 0.0);
    return rd_plateau_update(c, p, value, false, rd_schedule_rate(c, &at),
                             rd_schedule_warming(c, &at));
}

static void test_series(void **state)
{
    static const struct {
        int64_t not_improved;
        double rate;
    } golden[] = {{0, 2.0000e-4},  {7, 2.0000e-4},  {8, 1.4000e-4},  {15, 1.4000e-4},
                  {16, 9.8000e-5}, {24, 6.8600e-5}, {31, 6.8600e-5}, {32, 4.8020e-5}};
    const run_config c = {.stop_patience = 32};
    rd_plateau p;
    run_progress at = {.step = 5};
    size_t k = 0;
    (void)state;
    rd_plateau_start(&p);
    for (int64_t n = 0; n <= 32; n++) {
        /* An equal figure is no improvement, nor is a worse one. */
        const bool fell = count(&sockeye, &p, &at.patience, n % 2 ? 3.0 : 3.0 + (double)n, 0);
        assert_int_equal(at.patience.wait, n);
        assert_int_equal(fell, n > 0 && n % 8 == 0);
        if (golden[k].not_improved == n) {
            assert_true(fabs(rate_of(&sockeye, &p, 0) - golden[k].rate) < 1e-12);
            k++;
        }
        assert_int_equal(patience_ends(&c, &at, 1.0), n == 32);
    }
    assert_int_equal(k, sizeof golden / sizeof *golden);
}

/* However small the gain, the count begins anew. NaN is no gain, and not the first best figure. */
static void test_strict(void **state)
{
    run_patience p = {0};
    (void)state;
    patience_update(&p, NAN, false, 0.0);
    assert_false(p.has_best);
    assert_int_equal(p.wait, 1);
    patience_update(&p, 1.0, false, 0.0);
    assert_int_equal(p.wait, 0);
    patience_update(&p, 1.0, false, 0.0);
    patience_update(&p, NAN, false, 0.0);
    patience_update(&p, INFINITY, false, 0.0);
    assert_int_equal(p.wait, 3);
    patience_update(&p, nextafter(1.0, 0.0), false, 0.0);
    assert_int_equal(p.wait, 0);
    p = (run_patience){0};
    patience_update(&p, 1.0, true, 0.0);
    patience_update(&p, nextafter(1.0, 0.0), true, 0.0);
    assert_int_equal(p.wait, 1);
    patience_update(&p, nextafter(1.0, 2.0), true, 0.0);
    assert_int_equal(p.wait, 0);
    assert_true(p.best > 1.0);
}

/* Evaluations in a warm-up count, but the rate falls at the first one after it. */
static void test_warm_up(void **state)
{
    rd_schedule_config c = sockeye;
    rd_plateau p;
    run_patience s = {0};
    (void)state;
    c.has_policy = true;
    c.lr_policy = RD_LR_INV_SQRT;
    c.warmup_steps = 1000;
    rd_plateau_start(&p);
    (void)count(&c, &p, &s, 1.0, 100);
    for (int k = 0; k < 12; k++) assert_false(count(&c, &p, &s, 2.0, 999));
    assert_true(p.factor == 1.0);
    assert_true(count(&c, &p, &s, 2.0, 1000));
    assert_int_equal(s.wait, 13);
    for (int k = 0; k < 7; k++) assert_false(count(&c, &p, &s, 2.0, 2000));
    assert_true(count(&c, &p, &s, 2.0, 2000));
    assert_true(fabs(p.factor - 0.49) < 1e-12);
    /* lr_scaling none without a start has no warm-up, so nothing is held back. */
    const rd_schedule_point early = {.step = 5, .n_ranks = 4, .epoch = 0.5};
    rd_schedule_config none = {.warmup_steps = 1000, .lr_scaling = RD_SCALE_NONE};
    assert_false(rd_schedule_warming(&none, &early));
    none.lr_scaling = RD_SCALE_LINEAR;
    assert_true(rd_schedule_warming(&none, &early));
    none.warmup_steps = 20; /* step 5 of four ranks is step 20 of one */
    assert_false(rd_schedule_warming(&none, &early));
    none = (rd_schedule_config){.warmup_epochs = 0.6};
    assert_true(rd_schedule_warming(&none, &early));
    none.warmup_epochs = 0.5;
    assert_false(rd_schedule_warming(&none, &early));
}

static struct row {
    const char *name;
    int64_t patience, wait, min_steps, min_samples, min_epochs;
    bool ends;
} rows[] = {
    {"the last one", 3, 3, 0, 0, 0, true},        {"one before", 3, 2, 0, 0, 0, false},
    {"no early stopping", 0, 99, 0, 0, 0, false}, {"steps reached", 3, 4, 50, 0, 0, true},
    {"steps hold", 3, 4, 51, 0, 0, false},        {"samples reached", 3, 3, 0, 800, 0, true},
    {"samples hold", 3, 3, 0, 801, 0, false},     {"epochs reached", 3, 3, 0, 0, 2, true},
    {"epochs hold", 3, 3, 0, 0, 3, false},        {"one of three holds", 1, 9, 50, 800, 3, false},
};

/* 50 steps, 800 samples, 2.5 epochs are done. */
static void check_row(void **state)
{
    const struct row *r = *state;
    const run_config c = {.stop_patience = r->patience,
                          .min_steps = r->min_steps,
                          .min_samples = r->min_samples,
                          .min_epochs = r->min_epochs};
    run_progress at = {.step = 50, .all_samples = 800, .patience = {.wait = r->wait}};
    assert_int_equal(patience_ends(&c, &at, 2.5), r->ends);
    /* A later start ends only a training that an earlier one has ended. */
    assert_false(patience_holds(&c, &at));
    at.patience.stopped = true;
    assert_int_equal(patience_holds(&c, &at), r->patience > 0 && r->wait >= r->patience);
}

RD_TESTS("patience", TEST(test_series), TEST(test_strict), TEST(test_warm_up),
         TEST_ROWS(check_row, rows))
