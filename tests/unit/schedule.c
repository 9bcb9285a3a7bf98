/* schedule.c -- tests the learning-rate schedule: OpenSeq2Seq's hvd8x config, the scaling laws,
 * warm-up, missing keys, the banner's lines. */
#include "rd/optim.h"
#include "rd/strbuf.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HVD8X                                                                                   \
    .learning_rate = 0.0022627417, .use_decay = true, .use_staircase_decay = true,              \
    .begin_decay_at = 26372, .decay_steps = 4395, .decay_rate = 0.5, .min_learning_rate = 1e-5, \
    .has_begin = true, .has_steps = true, .has_rate = true, .has_staircase = true, .has_min = true
#define SMOOTH                                                                         \
    .learning_rate = 0.1, .use_decay = true, .begin_decay_at = 100, .decay_steps = 50, \
    .decay_rate = 0.25

static const rd_schedule_config hvd8x = {HVD8X, .lr_scaling = RD_SCALE_NONE};
static const rd_schedule_config hvd8x_linear = {HVD8X, .lr_scaling = RD_SCALE_LINEAR};
static const rd_schedule_config hvd8x_sqrt = {HVD8X, .lr_scaling = RD_SCALE_SQRT};
static const rd_schedule_config smooth = {SMOOTH, .min_learning_rate = 1e-3,
                                          .lr_scaling = RD_SCALE_LINEAR};
static const rd_schedule_config constant = {
    .learning_rate = 0.001, .min_learning_rate = 0.5, .lr_scaling = RD_SCALE_LINEAR};
static const rd_schedule_config constant_sqrt = {.learning_rate = 0.001,
                                                 .lr_scaling = RD_SCALE_SQRT};
static const rd_schedule_config constant_none = {
    .learning_rate = 0.001, .lr_scaling = RD_SCALE_NONE, .warmup_steps = 100};
static const rd_schedule_config warm = {
    .learning_rate = 0.001, .lr_scaling = RD_SCALE_LINEAR, .warmup_steps = 800};
static const rd_schedule_config warm_sqrt = {
    .learning_rate = 0.001, .lr_scaling = RD_SCALE_SQRT, .warmup_steps = 800};
static const rd_schedule_config high_floor = {SMOOTH, .min_learning_rate = 0.2,
                                              .lr_scaling = RD_SCALE_LINEAR};

/* One rank for 40 steps, which were 0.4 epochs; since then more ranks, for which an epoch has 25
 * steps. Step s of 4 ranks is then step 40 + 4 (s - 40) of one rank: step 55 is step 100. */
#define MOVED .origin_step = 40, .origin_base = 40, .origin_epoch = 0.4, .epoch_steps = 25
static const rd_schedule_config moved_decay = {SMOOTH, MOVED, .min_learning_rate = 1e-3};
static const rd_schedule_config moved_decay_sqrt = {SMOOTH, MOVED, .min_learning_rate = 1e-3,
                                                    .lr_scaling = RD_SCALE_SQRT};
static const rd_schedule_config moved_decay_none = {SMOOTH, MOVED, .min_learning_rate = 1e-3,
                                                    .lr_scaling = RD_SCALE_NONE};
static const rd_schedule_config moved_pieces = {
    .learning_rate = 0.1,
    .piecewise_learning_rate_schedule = "0.1;100;0.01;160;0.001",
    .lr_boundary_unit = RD_LR_STEPS,
    MOVED};
static const rd_schedule_config moved_pieces_by_epochs = {
    .learning_rate = 0.1, .piecewise_learning_rate_schedule = "0.1;1;0.01;3;0.001", MOVED};
static const rd_schedule_config moved_polynomial = {.learning_rate = 0.1,
                                                    .has_policy = true,
                                                    .lr_policy = RD_LR_POLYNOMIAL,
                                                    .lr_power = 2.0,
                                                    .has_begin = true,
                                                    .begin_decay_at = 20,
                                                    .has_steps = true,
                                                    .decay_steps = 160,
                                                    MOVED};
static const rd_schedule_config moved_polynomial_by_epochs = {.learning_rate = 0.1,
                                                              .has_policy = true,
                                                              .lr_policy = RD_LR_POLYNOMIAL,
                                                              .lr_power = 1.0,
                                                              .end_epoch = 2,
                                                              MOVED};
static const rd_schedule_config moved_cosine = {.learning_rate = 0.1,
                                                .has_policy = true,
                                                .lr_policy = RD_LR_COSINE,
                                                .has_begin = true,
                                                .begin_decay_at = 20,
                                                .has_steps = true,
                                                .decay_steps = 160,
                                                MOVED};
static const rd_schedule_config moved_wsd = {.learning_rate = 0.1,
                                             .has_policy = true,
                                             .lr_policy = RD_LR_WSD,
                                             .decay_fraction = 0.5,
                                             .end_epoch = 4,
                                             MOVED};
static const rd_schedule_config moved_sockeye = {.learning_rate = 0.6,
                                                 .has_policy = true,
                                                 .lr_policy = RD_LR_INV_SQRT,
                                                 .warmup_steps = 100,
                                                 MOVED};
static const rd_schedule_config moved_fairseq = {.learning_rate = 0.1,
                                                 .has_policy = true,
                                                 .lr_policy = RD_LR_INV_SQRT,
                                                 .inv_sqrt_form = RD_INV_SQRT_FAIRSEQ,
                                                 .warmup_init_lr = 0.02,
                                                 .warmup_steps = 100,
                                                 MOVED};
static const rd_schedule_config moved_fairseq_none = {.learning_rate = 0.1,
                                                      .has_policy = true,
                                                      .lr_policy = RD_LR_INV_SQRT,
                                                      .inv_sqrt_form = RD_INV_SQRT_FAIRSEQ,
                                                      .warmup_steps = 100,
                                                      .lr_scaling = RD_SCALE_NONE,
                                                      MOVED};
static const rd_schedule_config moved_warm = {.learning_rate = 0.001, .warmup_steps = 120, MOVED};
static const rd_schedule_config moved_warm_by_epochs = {
    .learning_rate = 0.001, .warmup_epochs = 2, MOVED};

static const struct row {
    const char *name;
    const rd_schedule_config *c;
    int64_t step;
    int n;
    double want;
} rows[] = {
    {"more ranks: the first step", &moved_decay, 40, 4, 0.4},
    {"more ranks: last step before the decay", &moved_decay, 54, 4, 0.4},
    {"more ranks: two periods", &moved_decay, 80, 4, 4 * 0.1 / 16},
    {"more ranks: the floor", &moved_decay, 1000, 4, 4e-3},
    {"more ranks, sqrt: two periods", &moved_decay_sqrt, 80, 4, 2 * 0.1 / 16},
    {"more ranks, none: the step as written", &moved_decay_none, 125, 4, 0.05},
    {"fewer ranks: two periods", &moved_decay, 200, 1, 0.1 / 16},
    {"more ranks, pieces: before", &moved_pieces, 54, 4, 0.4},
    {"more ranks, pieces: first boundary", &moved_pieces, 55, 4, 0.04},
    {"more ranks, pieces: second boundary", &moved_pieces, 70, 4, 0.004},
    {"more ranks, pieces by epochs: before", &moved_pieces_by_epochs, 54, 4, 0.4},
    {"more ranks, pieces by epochs: first boundary", &moved_pieces_by_epochs, 55, 4, 0.04},
    {"more ranks, pieces by epochs: second boundary", &moved_pieces_by_epochs, 105, 4, 0.004},
    {"more ranks, polynomial: half way", &moved_polynomial, 55, 4, 4 * 0.1 / 4},
    {"more ranks, polynomial: end", &moved_polynomial, 75, 4, 0.0},
    {"more ranks, polynomial by epochs: half way", &moved_polynomial_by_epochs, 55, 4, 0.2},
    {"more ranks, cosine: half way", &moved_cosine, 55, 4, 0.2},
    {"more ranks, cosine: three quarters", &moved_cosine, 65, 4, 0.4 * 0.14644660940672624},
    /* The decay is epochs 2 to 4, and step 80 is epoch 2. A quarter of it is done at step 92.5. */
    {"more ranks, wsd: last step before the decay", &moved_wsd, 79, 4, 0.4},
    {"more ranks, wsd: the decay begins", &moved_wsd, 80, 4, 0.4},
    {"more ranks, wsd: 18 % of the decay", &moved_wsd, 89, 4, 0.4 * (1 - 0.42426406871192851)},
    {"more ranks, wsd: end", &moved_wsd, 130, 4, 0.0},
    /* Step 44 is step 56 of one rank, and the 57th. */
    {"more ranks, inv_sqrt of Sockeye: warm-up", &moved_sockeye, 44, 4, 4 * 0.6 * 57 / 1000},
    {"more ranks, inv_sqrt of Sockeye: falls", &moved_sockeye, 130, 4,
     4 * 0.6 / 20.024984394500787 /* root of 401 */},
    {"more ranks, inv_sqrt of fairseq: warm-up", &moved_fairseq, 50, 4, 4 * (0.02 + 0.08 * 0.8)},
    {"more ranks, inv_sqrt of fairseq: highest", &moved_fairseq, 55, 4, 0.4},
    {"more ranks, inv_sqrt of fairseq: half", &moved_fairseq, 130, 4, 0.2},
    {"more ranks, inv_sqrt of fairseq, none: half", &moved_fairseq_none, 400, 4, 0.05},
    {"more ranks, warm-up: a third", &moved_warm, 40, 4, 0.002},
    {"more ranks, warm-up: last step", &moved_warm, 59, 4, 0.001 * (1 + 3 * 116.0 / 120)},
    {"more ranks, warm-up: done", &moved_warm, 60, 4, 0.004},
    {"more ranks, warm-up by epochs", &moved_warm_by_epochs, 55, 4, 0.001 * (1 + 3 * 1.04 / 2)},
    {"hvd8x first step", &hvd8x, 0, 8, 0.0022627417},
    {"hvd8x last step before the decay", &hvd8x, 26371, 8, 0.0022627417},
    {"hvd8x decay begins with power 0", &hvd8x, 26372, 8, 0.0022627417},
    {"hvd8x end of the first period", &hvd8x, 30766, 8, 0.0022627417},
    {"hvd8x first halving", &hvd8x, 30767, 8, 0.00113137085},
    {"hvd8x seventh halving", &hvd8x, 61531, 8, 0.0022627417 / 128},
    {"hvd8x floor at the eighth", &hvd8x, 61532, 8, 1e-5},
    {"hvd8x floor stays", &hvd8x, 300000, 8, 1e-5},
    {"linear: last step at full rate, 2 ranks", &hvd8x_linear, 15383, 2, 2 * 0.0022627417},
    {"linear: first halving, 2 ranks", &hvd8x_linear, 15384, 2, 0.0022627417},
    {"linear: last step at full rate, 4 ranks", &hvd8x_linear, 7691, 4, 4 * 0.0022627417},
    {"linear: first halving, 4 ranks", &hvd8x_linear, 7692, 4, 2 * 0.0022627417},
    {"linear: last step at full rate, 8 ranks", &hvd8x_linear, 3845, 8, 8 * 0.0022627417},
    {"linear: first halving, 8 ranks", &hvd8x_linear, 3846, 8, 4 * 0.0022627417},
    {"linear: the floor is scaled too", &hvd8x_linear, 7692, 8, 8e-5},
    {"linear: before the floor", &hvd8x_linear, 7691, 8, 8 * 0.0022627417 / 128},
    {"sqrt: full rate, 4 ranks", &hvd8x_sqrt, 7691, 4, 2 * 0.0022627417},
    {"sqrt: first halving, 4 ranks", &hvd8x_sqrt, 7692, 4, 0.0022627417},
    {"sqrt: floor, 4 ranks", &hvd8x_sqrt, 15383, 4, 2e-5},
    {"one rank is the config, linear", &hvd8x_linear, 30767, 1, 0.00113137085},
    {"one rank is the config, sqrt", &hvd8x_sqrt, 30767, 1, 0.00113137085},
    {"smooth, half a period", &smooth, 125, 1, 0.05},
    {"smooth, one period", &smooth, 150, 1, 0.025},
    {"smooth, half a period, 2 ranks", &smooth, 63, 2,
     2 * 0.1 * 0.48632747370614275}, /* 0.25 ^ (26 / 50) */
    {"constant ignores the floor", &constant, 1000000, 1, 0.001},
    {"constant, linear, 2", &constant, 5, 2, 0.002},
    {"constant, linear, 4", &constant, 5, 4, 0.004},
    {"constant, linear, 8", &constant, 5, 8, 0.008},
    {"constant, sqrt, 2", &constant_sqrt, 5, 2, 0.0014142135623730951},
    {"constant, sqrt, 4", &constant_sqrt, 5, 4, 0.002},
    {"constant, sqrt, 8", &constant_sqrt, 5, 8, 0.0028284271247461903},
    {"constant, none, 8", &constant_none, 0, 8, 0.001},
    {"warm-up starts at the base rate", &warm, 0, 8, 0.001},
    {"warm-up half way, 8 ranks", &warm, 50, 8, 0.0045},
    {"warm-up ends, 8 ranks", &warm, 100, 8, 0.008},
    {"warm-up half way, 4 ranks", &warm, 100, 4, 0.0025},
    {"warm-up of one rank is flat", &warm, 10, 1, 0.001},
    {"warm-up half way, sqrt, 4 ranks", &warm_sqrt, 100, 4, 0.0015},
    {"floor above the rate holds from step 0", &high_floor, 0, 1, 0.2},
};

/* Values by hand: a rate that the plateau rule has lowered; a cosine behind a warm-up in steps. */
static const rd_schedule_config floor_of_cuts = {
    .learning_rate = 0.1,
    .piecewise_learning_rate_schedule = "0.1;100;0.0001",
    .lr_boundary_unit = RD_LR_STEPS,
    .lr_scaling = RD_SCALE_LINEAR,
    .has_plateau = true,
    .plateau_min_lr = 0.001};
static const rd_schedule_config cosine_by_steps = {.learning_rate = 0.2,
                                                   .has_policy = true,
                                                   .lr_policy = RD_LR_COSINE,
                                                   .has_steps = true,
                                                   .decay_steps = 200,
                                                   .warmup_steps = 100,
                                                   .lr_scaling = RD_SCALE_LINEAR};
static const struct point {
    const char *name;
    const rd_schedule_config *c;
    rd_schedule_point p;
    double want;
} points[] = {
    {"no cut", &floor_of_cuts, {.step = 0, .n_ranks = 1, .multiplier = 1.0}, 0.1},
    {"a cut", &floor_of_cuts, {.step = 0, .n_ranks = 1, .multiplier = 0.1}, 0.01},
    {"cuts down to the floor", &floor_of_cuts, {.n_ranks = 1, .multiplier = 1e-4}, 0.001},
    {"the floor of two ranks", &floor_of_cuts, {.n_ranks = 2, .multiplier = 1e-4}, 0.002},
    {"a schedule below the floor", &floor_of_cuts, {.step = 100, .n_ranks = 1}, 1e-4},
    {"which a cut does not raise",
     &floor_of_cuts,
     {.step = 100, .n_ranks = 1, .multiplier = 0.1},
     1e-4},
    {"nor with two ranks", &floor_of_cuts, {.step = 50, .n_ranks = 2, .multiplier = 0.1}, 2e-4},
    {"the cosine begins after the warm-up", &cosine_by_steps, {.step = 100, .n_ranks = 1}, 0.2},
    {"a quarter of the way",
     &cosine_by_steps,
     {.step = 150, .n_ranks = 1},
     0.2 * 0.85355339059327373}, /* (1 + cos(pi / 4)) / 2 */
    {"half of it", &cosine_by_steps, {.step = 200, .n_ranks = 1}, 0.1},
    {"half of it with two ranks", &cosine_by_steps, {.step = 100, .n_ranks = 2}, 0.2},
};

static void check_point(void **state)
{
    const struct point *r = *state;
    const double got = rd_schedule_rate(r->c, &r->p);
    if (!(fabs(got - r->want) <= 1e-12 * r->want)) fail_msg("%.17g, expected %.17g", got, r->want);
}

static void check_row(void **state)
{
    const struct row *r = *state;
    const double got = rd_schedule_at(r->c, r->step, r->n);
    if (!(fabs(got - r->want) <= 1e-12 * r->want))
        print_error("%s: %.17g, expected %.17g\n", r->name, got, r->want);
    assert_true(fabs(got - r->want) <= 1e-12 * r->want);
}

/* The law itself, at every step of a whole schedule. */
static void test_law(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n *= 2)
        for (int64_t s = 0; s < 70000 / n; s++) {
            assert_true(rd_schedule_at(&hvd8x_linear, s, n) ==
                        n * rd_schedule_base(&hvd8x, (double)(s * n)));
            assert_true(rd_schedule_at(&hvd8x_sqrt, s, n) ==
                        sqrt(n) * rd_schedule_base(&hvd8x, (double)(s * n)));
            assert_true(rd_schedule_at(&hvd8x, s, n) == rd_schedule_base(&hvd8x, (double)s));
        }
}

static void test_missing_keys(void **state)
{
    (void)state;
    rd_status st = {0};
    assert_int_equal(rd_schedule_check(&hvd8x, NULL, &st), RD_OK);
    assert_int_equal(rd_schedule_check(&constant, NULL, &st), RD_OK);
    rd_schedule_config c = hvd8x;
    c.has_rate = false;
    assert_int_equal(rd_schedule_check(&c, NULL, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "'decay_rate' is missing"));
    st = (rd_status){0};
    c.has_min = c.has_begin = c.has_steps = c.has_staircase = false;
    assert_int_equal(rd_schedule_check(&c, NULL, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, "'begin_decay_at', 'decay_steps', 'decay_rate', "
                                   "'use_staircase_decay', 'min_learning_rate' are"));
}

/* What excludes or needs what: all keys are named, with where they stand. */
static const struct bad {
    const char *keys, *one, *other;
} bads[] = {
    {"\"warmup_steps\": 5, \"warmup_epochs\": 1", "'warmup_steps' (x.json:1:24)",
     "'warmup_epochs' (x.json:1:43)"},
    {"\"warmup_start\": 0.5", "'warmup_start'", "'warmup_epochs'"},
    {"\"lr_policy\": \"cosine\", \"use_decay\": true", "'lr_policy'", "'use_decay'"},
    {"\"piecewise_learning_rate_schedule\": \"1;2;0.1\", \"use_decay\": true",
     "'piecewise_learning_rate_schedule'", "'use_decay'"},
    {"\"lr_policy\": \"cosine\", \"piecewise_learning_rate_schedule\": \"1;2;0.1\"", "'lr_policy'",
     "'piecewise_learning_rate_schedule'"},
    {"\"lr_policy\": \"decay\", \"piecewise_learning_rate_schedule\": \"1;2;0.1\"", "'lr_policy'",
     "'piecewise_learning_rate_schedule'"},
    {"\"lr_policy\": \"piecewise\"", "'lr_policy'", "'piecewise_learning_rate_schedule'"},
    {"\"piecewise_learning_rate_schedule\": \"0.5;2;0.1\"", "'learning_rate' is 1",
     "begins with 0.5"},
    {"\"piecewise_learning_rate_schedule\": \"1;2;0.1\", \"min_learning_rate\": 0.1",
     "'min_learning_rate'", "'piecewise_learning_rate_schedule'"},
    {"\"piecewise_learning_rate_schedule\": \"1;2\"", "'piecewise_learning_rate_schedule'",
     "not a boundary and a rate"},
    {"\"piecewise_learning_rate_schedule\": \"1;30;0.1;30;0.01\"", "boundary 30",
     "boundaries rise"},
    {"\"piecewise_learning_rate_schedule\": \"1;30;1e-300\"", "the rate 1e-300", "float32"},
    {"\"piecewise_learning_rate_schedule\": \"1;30;1e300\"", "the rate 1e+300", "1e6"},
    {"\"piecewise_learning_rate_schedule\": \"1;30;x\"", "\"x\"", "rate"},
    {"\"piecewise_learning_rate_schedule\": \"1,30,0.1\"", "\"1,30,0.1\"", "rate;boundary;rate"},
    {"\"piecewise_learning_rate_schedule\": \"\"", "'piecewise_learning_rate_schedule'",
     "rate;boundary;rate"},
    {"\"piecewise_learning_rate_schedule\": \"1;nan;1\"", "nan", "rate;boundary;rate"},
    {"\"decay_end_epoch\": 5", "'decay_end_epoch'", "cosine"},
    {"\"lr_policy\": \"cosine\", \"decay_end_epoch\": 5, \"decay_steps\": 7", "'decay_end_epoch'",
     "'decay_steps'"},
    {"\"lr_policy\": \"cosine\", \"begin_decay_at\": 5", "'begin_decay_at'", "'decay_steps'"},
    {"\"lr_policy\": \"cosine\", \"decay_begin_epoch\": 5, \"decay_end_epoch\": 5",
     "'decay_end_epoch'", "'decay_begin_epoch'"},
    {"\"lr_policy\": \"polynomial\", \"min_learning_rate\": 2", "'min_learning_rate'",
     "'learning_rate'"},
    {"\"plateau_patience\": 3", "'plateau_patience'", "'plateau_factor'"},
    {"\"lr_policy\": \"wsd\", \"decay_steps\": 5", "'decay_steps'", "'begin_decay_at'"},
    {"\"lr_policy\": \"wsd\", \"begin_decay_at\": 5", "'begin_decay_at'", "'decay_steps'"},
    {"\"lr_policy\": \"wsd\", \"begin_decay_at\": 5, \"decay_steps\": 9, \"decay_fraction\": 0.1",
     "'decay_fraction'", "'begin_decay_at'"},
    {"\"lr_policy\": \"wsd\", \"decay_begin_epoch\": 5, \"decay_fraction\": 0.1",
     "'decay_fraction'", "'decay_begin_epoch'"},
    {"\"lr_policy\": \"wsd\", \"begin_decay_at\": 5, \"decay_steps\": 9, \"decay_end_epoch\": 2",
     "'decay_steps'", "'decay_end_epoch'"},
    {"\"lr_policy\": \"wsd\", \"min_learning_rate\": 2", "'min_learning_rate'", "'learning_rate'"},
    {"\"lr_policy\": \"wsd\", \"use_decay\": true", "'lr_policy'", "'use_decay'"},
    {"\"lr_policy\": \"wsd\", \"piecewise_learning_rate_schedule\": \"1;2;0.1\"", "'lr_policy'",
     "'piecewise_learning_rate_schedule'"},
    {"\"lr_policy\": \"inv_sqrt\", \"use_decay\": true", "'lr_policy'", "'use_decay'"},
    {"\"lr_policy\": \"inv_sqrt\", \"piecewise_learning_rate_schedule\": \"1;2;0.1\"",
     "'lr_policy'", "'piecewise_learning_rate_schedule'"},
    {"\"lr_policy\": \"inv_sqrt\", \"warmup_epochs\": 2", "'lr_policy'", "'warmup_steps'"},
    {"\"lr_policy\": \"inv_sqrt\", \"warmup_steps\": 2, \"warmup_start\": 0.0", "'warmup_start'",
     "'warmup_init_lr'"},
    {"\"lr_policy\": \"inv_sqrt\", \"warmup_init_lr\": 0.0", "'warmup_init_lr'", "fairseq"},
    {"\"lr_policy\": \"inv_sqrt\", \"inv_sqrt_form\": \"fairseq\"", "'inv_sqrt_form'",
     "'warmup_steps'"},
    {"\"lr_policy\": \"inv_sqrt\", \"inv_sqrt_form\": \"fairseq\", \"warmup_steps\": 9, "
     "\"warmup_init_lr\": 2",
     "'warmup_init_lr'", "'learning_rate'"},
    {"\"lr_policy\": \"inv_sqrt\", \"warmup_steps\": 400, \"min_learning_rate\": 0.06",
     "'min_learning_rate' 0.06", "0.05"},
    {"\"lr_policy\": \"inv_sqrt\", \"decay_end_epoch\": 5", "'decay_end_epoch'", "wsd"},
};

static void check_bad(void **state)
{
    const struct bad *b = *state;
    const rd_option_group *groups[] = {
        &rd_group_schedule,  &rd_group_policy[0], &rd_group_policy[1], &rd_group_policy[2],
        &rd_group_policy[3], &rd_group_policy[4], &rd_group_policy[5]};
    char text[300];
    rd_config *cfg = NULL;
    rd_schedule_config c;
    rd_status st = {0};
    snprintf(text, sizeof text, "{\"learning_rate\": 1.0, %s}", b->keys);
    assert_int_equal(rd_config_new("x.json", text, strlen(text), groups, 7, false, &cfg, &st),
                     RD_OK);
    assert_int_equal(rd_schedule_read(cfg, RD_MODE_TRAIN, &c, &st), RD_OK);
    assert_int_equal(rd_schedule_check(&c, cfg, &st), RD_EUSAGE);
    if (!strstr(st.msg, b->one) || !strstr(st.msg, b->other))
        print_error("%s: %s\n", b->keys, st.msg);
    assert_non_null(strstr(st.msg, b->one));
    assert_non_null(strstr(st.msg, b->other));
    rd_config_free(cfg);
}

static const rd_schedule_config pieces = {
    .learning_rate = 0.1,
    .piecewise_learning_rate_schedule = "0.1;30;0.01;60;0.001",
    .warmup_epochs = 5,
    .epoch_steps = 100};
static const rd_schedule_config pieces_by_steps = {
    .learning_rate = 0.1,
    .piecewise_learning_rate_schedule = "0.1;1001;0.01",
    .lr_boundary_unit = RD_LR_STEPS,
    .epoch_steps = 100};
static const rd_schedule_config cosine = {.learning_rate = 0.2,
                                          .has_policy = true,
                                          .lr_policy = RD_LR_COSINE,
                                          .warmup_epochs = 10,
                                          .warmup_start = 0.0,
                                          .has_warmup_start = true,
                                          .lr_scaling = RD_SCALE_NONE,
                                          .epoch_steps = 100,
                                          .end_epoch = 90};
static const rd_schedule_config watched = {.learning_rate = 1.0,
                                           .has_plateau = true,
                                           .plateau_factor = 0.1,
                                           .plateau_patience = 10,
                                           .plateau_min_delta = 1e-4,
                                           .plateau_min_lr = 0.001};
static const rd_schedule_config no_ramp = {
    .learning_rate = 1.0, .lr_scaling = RD_SCALE_NONE, .warmup_epochs = 5};

static const rd_schedule_config sockeye = {.learning_rate = 0.06325,
                                           .has_policy = true,
                                           .lr_policy = RD_LR_INV_SQRT,
                                           .warmup_steps = 4000,
                                           .lr_scaling = RD_SCALE_NONE};
static const rd_schedule_config sockeye_flat = {.learning_rate = 0.5,
                                                .has_policy = true,
                                                .lr_policy = RD_LR_INV_SQRT,
                                                .min_learning_rate = 0.1};
static const rd_schedule_config fairseq = {.learning_rate = 5e-4,
                                           .has_policy = true,
                                           .lr_policy = RD_LR_INV_SQRT,
                                           .inv_sqrt_form = RD_INV_SQRT_FAIRSEQ,
                                           .warmup_init_lr = 1e-7,
                                           .warmup_steps = 4000,
                                           .min_learning_rate = 1e-4};
static const rd_schedule_config llmc_wsd = {.learning_rate = 6e-4,
                                            .has_policy = true,
                                            .lr_policy = RD_LR_WSD,
                                            .decay_fraction = 0.2,
                                            .warmup_steps = 699,
                                            .warmup_start = 1.0 / 700,
                                            .has_warmup_start = true,
                                            .lr_scaling = RD_SCALE_NONE,
                                            .epoch_steps = 18865,
                                            .end_epoch = 1};
static const struct banner {
    const char *name;
    const rd_schedule_config *c;
    int n;
    const char *want;
} banners[] = {
    {"banner: constant", &constant, 1,
     "config 0.001, lr_scaling linear for 1 rank: factor 1, effective 0.001\n"},
    {"banner: warm-up", &warm, 8,
     "config 0.001, lr_scaling linear for 8 ranks: factor 8, effective 0.008\n"
     "  warm-up ends       step 100 (config: 800), rate 0.008\n"},
    {"banner: boundaries of 8 ranks", &hvd8x_linear, 8,
     "config 0.00226274, lr_scaling linear for 8 ranks: factor 8, effective 0.0181019\n"
     "  decay begins       step 3297 (config: 26372), rate 0.0181019\n"
     "  decay period 1     step 3846 (config: 30767), rate 0.00905097\n"
     "  decay period 2     step 4396 (config: 35162), rate 0.00452548\n"
     "  decay period 3     step 4945 (config: 39557), rate 0.00226274\n"
     "  floor reached      step 7692 (config: 61532), rate 8e-05\n"},
    {"banner: none keeps the steps", &hvd8x, 8,
     "config 0.00226274, lr_scaling none for 8 ranks: factor 1, effective 0.00226274\n"
     "  decay begins       step 26372, rate 0.00226274\n"
     "  decay period 1     step 30767, rate 0.00113137\n"
     "  decay period 2     step 35162, rate 0.000565685\n"
     "  decay period 3     step 39557, rate 0.000282843\n"
     "  floor reached      step 61532, rate 1e-05\n"},
    {"banner: floor above the rate", &high_floor, 1,
     "config 0.1, lr_scaling linear for 1 rank: factor 1, effective 0.1\n"
     "  min_learning_rate 0.2 is not below learning_rate: it is the rate of every step\n"},
    {"banner: pieces", &pieces, 4,
     "config 0.1, lr_scaling linear for 4 ranks: factor 4, effective 0.4\n"
     "  warm-up ends       epoch 5 = step 500, rate 0.4\n"
     "  then 0.01          epoch 30 = step 3000, rate 0.04\n"
     "  then 0.001         epoch 60 = step 6000, rate 0.004\n"},
    {"banner: pieces by steps", &pieces_by_steps, 2,
     "config 0.1, lr_scaling linear for 2 ranks: factor 2, effective 0.2\n"
     "  then 0.01          step 501 (config: 1001), rate 0.02\n"},
    {"banner: cosine", &cosine, 8,
     "config 0.2, lr_scaling none for 8 ranks: factor 1, effective 0.2\n"
     "  warm-up begins     rate 0\n"
     "  warm-up ends       epoch 10 = step 1000, rate 0.2\n"
     "  cosine begins      epoch 10 = step 1000, rate 0.2\n"
     "  half way           epoch 50 = step 5000, rate 0.1\n"
     "  end reached        epoch 90 = step 9000, rate 0\n"},
    {"banner: inv_sqrt", &sockeye, 8,
     "config 0.06325, lr_scaling none for 8 ranks: factor 1, effective 0.06325\n"
     "  warm-up begins     step 0, rate 2.50018e-07\n"
     "  highest rate       step 3999, rate 0.00100007\n"
     "  half of it         step 15999, rate 0.000500035\n"},
    {"banner: inv_sqrt without a warm-up, with a floor", &sockeye_flat, 1,
     "config 0.5, lr_scaling linear for 1 rank: factor 1, effective 0.5\n"
     "  highest rate       step 0, rate 0.5\n"
     "  half of it         step 3, rate 0.25\n"
     "  floor reached      step 24, rate 0.1\n"},
    {"banner: inv_sqrt of fairseq", &fairseq, 2,
     "config 0.0005, lr_scaling linear for 2 ranks: factor 2, effective 0.001\n"
     "  warm-up begins     step 0, rate 2e-07\n"
     "  highest rate       step 2000 (config: 4000), rate 0.001\n"
     "  half of it         step 8000 (config: 16000), rate 0.0005\n"
     "  floor reached      step 50000 (config: 100000), rate 0.0002\n"},
    {"banner: wsd", &llmc_wsd, 4,
     "config 0.0006, lr_scaling none for 4 ranks: factor 1, effective 0.0006\n"
     "  warm-up begins     rate 8.57143e-07\n"
     "  warm-up ends       step 699, rate 0.0006\n"
     "  wsd decay begins   epoch 0.8 = step 15092, rate 0.0006\n"
     "  half way           epoch 0.9 = step 16979, rate 0.00017568\n"
     "  end reached        epoch 1 = step 18865, rate 0\n"},
    {"banner: more ranks", &moved_decay, 4,
     "config 0.1, lr_scaling linear for 4 ranks: factor 4, effective 0.4\n"
     "  decay begins       step 55 (config: 100), rate 0.4\n"
     "  decay period 1     step 68 (config: 150), rate 0.0946058\n"
     "  decay period 2     step 80 (config: 200), rate 0.025\n"
     "  decay period 3     step 93 (config: 250), rate 0.00591286\n"
     "  floor reached      step 97 (config: 267), rate 0.004\n"},
    {"banner: more ranks, by epochs", &moved_pieces_by_epochs, 4,
     "config 0.1, lr_scaling linear for 4 ranks: factor 4, effective 0.4\n"
     "  then 0.01          epoch 1 = step 55, rate 0.04\n"
     "  then 0.001         epoch 3 = step 105, rate 0.004\n"},
    {"banner: a boundary before the change", &moved_polynomial, 4,
     "config 0.1, lr_scaling linear for 4 ranks: factor 4, effective 0.4\n"
     "  polynomial begins  passed (config: 20)\n"
     "  half way           step 55 (config: 100), rate 0.1\n"
     "  end reached        step 75 (config: 180), rate 0\n"},
    {"banner: plateau", &watched, 8,
     "config 1, lr_scaling linear for 8 ranks: factor 8, effective 8\n"
     "  plateau: times 0.1 after 10 evaluations without a gain of 0.0001, not below 0.008\n"},
    {"banner: a warm-up that cannot be", &no_ramp, 8,
     "config 1, lr_scaling none for 8 ranks: factor 1, effective 1\n"
     "  no warm-up: lr_scaling none has no factor to grow; warmup_start says where it begins\n"},
};

static void check_banner(void **state)
{
    const struct banner *b = *state;
    rd_strbuf s = {0};
    rd_schedule_describe(b->c, b->n, &s);
    assert_string_equal(rd_strbuf_str(&s), b->want);
    rd_strbuf_release(&s);
}

RD_TESTS("schedule", TEST_ROWS(check_row, rows), TEST_ROWS(check_point, points),
         TEST_ROWS(check_banner, banners), TEST(test_law), TEST(test_missing_keys),
         TEST_ROWS_BY(check_bad, bads, keys))
