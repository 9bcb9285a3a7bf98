/* lr_policies.c -- compares schedules and the plateau rule with torch, Horovod and Keras.
 *
 * make_lr_policies.py made the values. The keys go through the option table, like those of a
 * config. */
#include "rd/optim.h"
#include "test.h"
#include "lr_policies_values.h"
#include <math.h>
#include <string.h>

/* Both sides use doubles; torch's cosine is a recursion of 50 steps. */
static const double tolerance = 1e-12;

static rd_config *read_keys(const char *keys, rd_schedule_config *c)
{
    const rd_option_group *groups[] = {
        &rd_group_schedule,  &rd_group_policy[0], &rd_group_policy[1], &rd_group_policy[2],
        &rd_group_policy[3], &rd_group_policy[4], &rd_group_policy[5]};
    rd_config *cfg = NULL;
    rd_status st = {0};
    assert_int_equal(rd_config_new("keys", keys, strlen(keys), groups, 7, false, &cfg, &st), RD_OK);
    assert_int_equal(rd_schedule_read(cfg, RD_MODE_TRAIN, c, &st), RD_OK);
    if (rd_schedule_check(c, cfg, &st) != RD_OK) print_error("%s\n", st.msg);
    assert_int_equal(st.code, RD_OK);
    return cfg;
}

static void close_to(const char *name, int at, double got, double want)
{
    if (!(fabs(got - want) <= tolerance * fmax(1.0, fabs(want))))
        print_error("%s: at %d %.17g, expected %.17g\n", name, at, got, want);
    assert_true(fabs(got - want) <= tolerance * fmax(1.0, fabs(want)));
}

static void check_schedule(void **state)
{
    const struct golden_schedule *g = *state;
    rd_schedule_config c;
    rd_config *cfg = read_keys(g->keys, &c);
    c.epoch_steps = g->epoch_steps;
    c.end_epoch = g->end_epoch;
    for (int i = 0; i < g->n; i++) {
        const int S = (int)g->epoch_steps, s = g->step[i];
        /* First as in the trainer, from the position in the epoch. Then from the step alone. */
        const rd_schedule_point p = {.step = s,
                                     .n_ranks = g->n_ranks,
                                     .epoch = (double)(s / S) + (double)(s % S) / S,
                                     .part = 1.0 / S,
                                     .multiplier = 1.0};
        close_to(g->name, s, rd_schedule_rate(&c, &p), g->rate[i]);
        close_to(g->name, s, rd_schedule_at(&c, s, g->n_ranks), g->rate[i]);
    }
    rd_config_free(cfg);
}

static void check_plateau(void **state)
{
    const struct golden_plateau *g = *state;
    rd_schedule_config c;
    rd_config *cfg = read_keys(g->keys, &c);
    rd_plateau p;
    rd_plateau_start(&p);
    rd_schedule_point at = {.n_ranks = 1};
    double before = c.learning_rate;
    for (int i = 0; i < g->n; i++) {
        at.multiplier = p.factor;
        const bool fell = rd_plateau_update(&c, &p, g->value[i], g->higher,
                                            rd_schedule_rate(&c, &at), false);
        at.multiplier = p.factor;
        const double now = rd_schedule_rate(&c, &at);
        close_to(g->name, i, now, g->rate[i]);
        assert_true(fell == (now < before));
        before = now;
    }
    rd_config_free(cfg);
}

RD_TESTS("lr policies", TEST_ROWS(check_schedule, schedules), TEST_ROWS(check_plateau, plateaus))
