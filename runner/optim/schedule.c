/* schedule.c -- the learning rate as a pure function of the step.
 *
 * lr_1 is the schedule that the config writes, for one rank. Step s of N ranks has seen what step s N of one rank has
 * seen, so
 *   lr_N(s) = f(N) lr_1(s N),   f(N) = N (linear) or sqrt(N),
 * and a boundary b of the config lies at step b / N. "none" leaves lr_1 as it is, for configs scaled by hand. */
#include "rd/optim.h"
#include "rd/strbuf.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const scalings[] = {"linear", "sqrt", "none", NULL};

enum { TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH };
#define T rd_schedule_config
#define MAX_STEP 1e15 /* exact in double, also times a number of ranks */
#define GIVEN(ky, ty, has, lo, hi, hlp)                                                                                \
    {                                                                                                                  \
        .key = #ky, .type = (ty), .at = offsetof(T, ky), .given_at = offsetof(T, has), .min = (lo), .max = (hi),       \
        .help = (hlp)                                                                                                  \
    }

static const rd_option rows[] = {
    RD_OPT_(T, learning_rate, learning_rate, RD_REAL, NULL, TRAINING, 0.0, 1e6, NULL,
            "rate of one rank, before lr_scaling; --lr replaces it"),
    RD_OPT_BOOL(T, use_decay, use_decay, "false", "turns the decay on; it needs the next five keys"),
    GIVEN(begin_decay_at, RD_INT, has_begin, 0, MAX_STEP, "first step of the decay, in steps of one rank"),
    GIVEN(decay_steps, RD_INT, has_steps, 1, MAX_STEP, "length of a decay period, in steps of one rank"),
    GIVEN(decay_rate, RD_REAL, has_rate, 1e-12, 1e6, "factor of a decay period"),
    GIVEN(use_staircase_decay, RD_BOOL, has_staircase, 0, 0,
          "decays at the end of each period instead of all the time"),
    GIVEN(min_learning_rate, RD_REAL, has_min, 0.0, 1e6,
          "lower bound of the rate while use_decay is on, before lr_scaling"),
    RD_OPT_CHOICE(T, lr_scaling, lr_scaling, "\"linear\"", scalings,
                  "factor on the rate for N ranks: linear N, sqrt the root of N, none 1 and steps as written"),
    RD_OPT_INT(T, warmup_steps, warmup_steps, "0", 0, MAX_STEP,
               "the factor of lr_scaling grows from 1 to its full value in so many steps of one rank"),
    RD_OPT_END};

const rd_option_group rd_group_schedule = {"schedule", "Learning rate", rows, sizeof(T)};

rd_code rd_schedule_check(const rd_schedule_config *c, const rd_config *cfg, rd_status *st)
{
    if (!c->use_decay) return RD_OK;
    const struct {
        const char *key;
        bool has;
    } need[] = {{"begin_decay_at", c->has_begin},
                {"decay_steps", c->has_steps},
                {"decay_rate", c->has_rate},
                {"use_staircase_decay", c->has_staircase},
                {"min_learning_rate", c->has_min}};
    char missing[128] = "";
    int n = 0;
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (!need[i].has) {
            const size_t used = strlen(missing);
            snprintf(missing + used, sizeof missing - used, "%s'%s'", n++ ? ", " : "", need[i].key);
        }
    if (n == 0) return RD_OK;
    return rd_fail(st, RD_EUSAGE, "%s: 'use_decay' is true and %s %s missing; add %s or set 'use_decay' to false",
                   cfg ? rd_config_where(cfg, "use_decay") : "config", missing, n == 1 ? "is" : "are",
                   n == 1 ? "it" : "them");
}

double rd_schedule_base(const rd_schedule_config *c, double step)
{
    if (!c->use_decay) return c->learning_rate;
    double lr = c->learning_rate;
    if (step >= (double)c->begin_decay_at) {
        double p = (step - (double)c->begin_decay_at) / (double)c->decay_steps;
        if (c->use_staircase_decay) p = floor(p);
        lr *= pow(c->decay_rate, p);
    }
    return fmax(lr, c->min_learning_rate);
}

static bool scaled(const rd_schedule_config *c)
{
    return !c->lr_scaling || strcasecmp(c->lr_scaling, "none") != 0;
}

double rd_schedule_factor(const rd_schedule_config *c, int n_ranks)
{
    if (!scaled(c)) return 1.0;
    return c->lr_scaling && strcasecmp(c->lr_scaling, "sqrt") == 0 ? sqrt((double)n_ranks) : (double)n_ranks;
}

double rd_schedule_at(const rd_schedule_config *c, int64_t step, int n_ranks)
{
    if (!scaled(c)) return rd_schedule_base(c, (double)step);
    const double s = (double)step * n_ranks;
    double f = rd_schedule_factor(c, n_ranks);
    if (s < (double)c->warmup_steps) f = 1.0 + (f - 1.0) * s / (double)c->warmup_steps;
    return f * rd_schedule_base(c, s);
}

/* First step of one rank at which the decay has reached the floor; -1: never. */
static int64_t floor_step(const rd_schedule_config *c)
{
    const double far = MAX_STEP;
    if (rd_schedule_base(c, 0.0) <= c->min_learning_rate) return 0;
    if (c->decay_rate >= 1.0 || rd_schedule_base(c, far) > c->min_learning_rate) return -1;
    int64_t lo = 0, hi = (int64_t)far; /* above the floor at lo, on it at hi */
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (rd_schedule_base(c, (double)mid) > c->min_learning_rate)
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

static void boundary(const rd_schedule_config *c, int n_ranks, const char *what, int64_t base, rd_strbuf *b)
{
    const int64_t step = scaled(c) ? (base + n_ranks - 1) / n_ranks : base;
    rd_strbuf_printf(b, "  %-18s step %lld", what, (long long)step);
    if (step != base) rd_strbuf_printf(b, " (config: %lld)", (long long)base);
    rd_strbuf_printf(b, ", rate %.6g\n", rd_schedule_at(c, step, n_ranks));
}

void rd_schedule_describe(const rd_schedule_config *c, int n_ranks, void *strbuf)
{
    rd_strbuf *b = strbuf;
    const double f = rd_schedule_factor(c, n_ranks);
    rd_strbuf_printf(b, "config %.6g, lr_scaling %s for %d rank%s: factor %.6g, effective %.6g\n", c->learning_rate,
                     c->lr_scaling ? c->lr_scaling : "linear", n_ranks, n_ranks == 1 ? "" : "s", f,
                     f * c->learning_rate);
    if (c->warmup_steps > 0 && f > 1.0) boundary(c, n_ranks, "warm-up ends", c->warmup_steps, b);
    if (!c->use_decay) return;
    const int64_t at_floor = floor_step(c);
    if (at_floor == 0) {
        rd_strbuf_printf(b, "  min_learning_rate %.6g is not below learning_rate: it is the rate of every step\n",
                         c->min_learning_rate);
        return;
    }
    boundary(c, n_ranks, "decay begins", c->begin_decay_at, b);
    for (int k = 1; k <= 3; k++) {
        const int64_t at = c->begin_decay_at + k * c->decay_steps;
        char what[32];
        snprintf(what, sizeof what, "decay period %d", k);
        if (at_floor < 0 || at < at_floor) boundary(c, n_ranks, what, at, b);
    }
    if (at_floor > 0) boundary(c, n_ranks, "floor reached", at_floor, b);
}
