/* schedule.c -- the learning rate as a pure function of the step.
 *
 * lr_1 is the schedule that the config writes, for one rank. Step s of N ranks has seen what step s N of one rank has
 * seen, so
 *   lr_N(s) = f(N) lr_1(s N),   f(N) = N (linear) or sqrt(N),
 * and a boundary b of the config lies at step b / N. "none" leaves lr_1 as it is, for configs scaled by hand. What the
 * config writes in epochs needs no such law: an epoch is a pass over the data for any number of ranks. */
#include "rd/optim.h"
#include <math.h>
#include <string.h>
#include <strings.h>

static const char *const scalings[] = {"linear", "sqrt", "none", NULL};
static const char *const policies[] = {"decay", "piecewise", "polynomial", "cosine", NULL};
static const char *const units[] = {"epochs", "steps", NULL};
static const char *const monitors[] = {"loss", "figure", NULL};

enum { TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH };
static const double pi = 3.14159265358979323846;

#define T rd_schedule_config
#define MAX_STEP 1e15 /* exact in double, also times a number of ranks */
static const rd_option rows[] = {
    RD_OPT_REAL(T, learning_rate, learning_rate, NULL, 0.0, 1e6,
                "rate of one rank, before lr_scaling; --lr replaces it; "
                "piecewise_learning_rate_schedule can give it",
                RD_REQUIRED(TRAINING)),
    RD_OPT_CHOICE(T, lr_policy, lr_policy, NULL, policies,
                  "how the rate changes; default: piecewise where piecewise_learning_rate_schedule "
                  "is given, else decay "
                  "(use_decay and its keys)"),
    RD_OPT_BOOL(T, use_decay, use_decay, "false",
                "turns the decay on; it needs the next five keys"),
    RD_OPT_INT(T, begin_decay_at, begin_decay_at, NULL, 0, MAX_STEP,
               "first step of the decay, in steps of one rank", RD_GIVEN(T, has_begin)),
    RD_OPT_INT(T, decay_steps, decay_steps, NULL, 1, MAX_STEP,
               "length of a decay period, in steps of one rank", RD_GIVEN(T, has_steps)),
    RD_OPT_REAL(T, decay_rate, decay_rate, NULL, 1e-12, 1e6, "factor of a decay period",
                RD_GIVEN(T, has_rate)),
    RD_OPT_BOOL(T, use_staircase_decay, use_staircase_decay, NULL,
                "decays at the end of each period instead of all the time",
                RD_GIVEN(T, has_staircase)),
    RD_OPT_REAL(
        T, min_learning_rate, min_learning_rate, NULL, 0.0, 1e6,
        "lower bound of the rate while use_decay is on, and where polynomial and cosine end "
        "(default 0); before "
        "lr_scaling",
        RD_GIVEN(T, has_min)),
    RD_OPT_STRING(T, piecewise_learning_rate_schedule, piecewise_learning_rate_schedule, NULL,
                  "piecewise: rate;boundary;rate;boundary;rate, as \"0.1;30;0.01;60;0.001\", rates "
                  "of one rank, "
                  "before lr_scaling"),
    RD_OPT_CHOICE(T, lr_boundary_unit, lr_boundary_unit, "\"epochs\"", units,
                  "what the boundaries of piecewise count: epochs, or steps of one rank"),
    RD_OPT_REAL(
        T, decay_begin_epoch, decay_begin_epoch, NULL, 0.0, 1e9,
        "polynomial, cosine: epoch at which the rate begins to fall; default: warmup_epochs",
        RD_GIVEN(T, has_begin_epoch)),
    RD_OPT_REAL(
        T, decay_end_epoch, decay_end_epoch, NULL, 0.0, 1e9,
        "polynomial, cosine: epoch at which min_learning_rate is reached; default: num_epochs, "
        "or the end of the run. "
        "begin_decay_at and decay_steps say both in steps of one rank instead",
        RD_GIVEN(T, has_end_epoch)),
    RD_OPT_REAL(T, lr_power, lr_power, "1.0", 0.0, 100.0, "polynomial: the power of what is left"),
    RD_OPT_CHOICE(T, lr_scaling, lr_scaling, "\"linear\"", scalings,
                  "factor on the rate for N ranks: linear N, sqrt the root of N, none 1 and steps "
                  "as written"),
    RD_OPT_INT(
        T, warmup_steps, warmup_steps, "0", 0, MAX_STEP,
        "the factor of lr_scaling grows from 1 to its full value in so many steps of one rank"),
    RD_OPT_REAL(
        T, warmup_epochs, warmup_epochs, "0.0", 0.0, 1e6,
        "the same in epochs, step by step, as in Horovod's examples; not with warmup_steps"),
    RD_OPT_REAL(
        T, warmup_start, warmup_start, NULL, 0.0, 1.0,
        "share of the full rate at which the warm-up begins; default: 1 / factor of lr_scaling, "
        "that is the rate of "
        "one rank",
        RD_GIVEN(T, has_warmup_start)),
    RD_OPT_REAL(
        T, plateau_factor, plateau_factor, NULL, 0.0, 0.999999,
        "turns reduce on plateau on: the rate is multiplied by this when evaluations no longer "
        "improve (train_eval "
        "mode)",
        RD_GIVEN(T, has_plateau)),
    RD_OPT_INT(T, plateau_patience, plateau_patience, "10", 1, 1e9,
               "evaluations without an improvement before the rate falls"),
    RD_OPT_REAL(T, plateau_min_delta, plateau_min_delta, "1e-4", 0.0, 1e9,
                "what counts as an improvement"),
    RD_OPT_INT(T, plateau_cooldown, plateau_cooldown, "0", 0, 1e9,
               "evaluations after the rate fell that do not count"),
    RD_OPT_REAL(T, plateau_min_lr, plateau_min_lr, "0.0", 0.0, 1e6,
                "the plateau rule goes no lower than this, before lr_scaling"),
    RD_OPT_CHOICE(
        T, plateau_monitor, plateau_monitor, "\"loss\"", monitors,
        "what is watched: the evaluation's loss, or its first figure (accuracy, BLEU, ...)"),
    RD_OPT_END};

const rd_option_group rd_group_schedule = {"schedule", "Learning rate", rows, sizeof(T)};

rd_lr_policy rd_schedule_policy(const rd_schedule_config *c)
{
    if (!c->lr_policy) return c->piecewise_learning_rate_schedule ? RD_LR_PIECEWISE : RD_LR_DECAY;
    for (int i = 0; policies[i]; i++)
        if (strcasecmp(policies[i], c->lr_policy) == 0) return (rd_lr_policy)i;
    return RD_LR_DECAY;
}

static bool by_steps(const rd_schedule_config *c) /* polynomial, cosine */
{
    return c->has_begin || c->has_steps;
}

static double decayed(const rd_schedule_config *c, double step)
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

/* Share of the way of polynomial and cosine that is done, 0 .. 1. */
static double way(const rd_schedule_config *c, double step, double epoch)
{
    double begin, end, x = epoch;
    if (by_steps(c)) {
        begin = (double)(c->has_begin ? c->begin_decay_at : c->warmup_steps);
        end = begin + (double)c->decay_steps;
        x = step;
    } else {
        begin = c->has_begin_epoch ? c->decay_begin_epoch : c->warmup_epochs;
        end = c->has_end_epoch ? c->decay_end_epoch : c->end_epoch;
    }
    if (end <= begin) return x >= end && end > 0.0 ? 1.0 : 0.0;
    return fmin(1.0, fmax(0.0, (x - begin) / (end - begin)));
}

/* lr_1(step, epoch) */
static double base_rate(const rd_schedule_config *c, double step, double epoch)
{
    const double first = c->learning_rate, last = c->min_learning_rate;
    rd_pieces pieces;
    rd_status st = {0};
    switch (rd_schedule_policy(c)) {
    case RD_LR_DECAY:
        break;
    case RD_LR_POLYNOMIAL:
        return last + (first - last) * pow(1.0 - way(c, step, epoch), c->lr_power);
    case RD_LR_COSINE:
        return last + (first - last) * 0.5 * (1.0 + cos(pi * way(c, step, epoch)));
    case RD_LR_PIECEWISE:
        if (rd_schedule_pieces(c->piecewise_learning_rate_schedule, &pieces, &st) != RD_OK)
            return first;
        const double x = c->lr_boundary_unit && strcasecmp(c->lr_boundary_unit, "steps") == 0
                             ? step
                             : epoch;
        int i = 0;
        while (i + 1 < pieces.n && x >= pieces.at[i]) i++;
        return pieces.rate[i];
    }
    return decayed(c, step);
}

static bool schedule_scaled(const rd_schedule_config *c)
{
    return !c->lr_scaling || strcasecmp(c->lr_scaling, "none") != 0;
}

double rd_schedule_factor(const rd_schedule_config *c, int n_ranks)
{
    if (!schedule_scaled(c)) return 1.0;
    return c->lr_scaling && strcasecmp(c->lr_scaling, "sqrt") == 0 ? sqrt((double)n_ranks)
                                                                   : (double)n_ranks;
}

/* The factor of this step: f(N) after the warm-up. */
static double ramp(const rd_schedule_config *c, const rd_schedule_point *p, double step)
{
    const double f = rd_schedule_factor(c, p->n_ranks);
    const double first = c->has_warmup_start ? c->warmup_start * f : 1.0;
    if (step < (double)c->warmup_steps && (schedule_scaled(c) || c->has_warmup_start))
        return first + (f - first) * step / (double)c->warmup_steps;
    if (p->epoch < c->warmup_epochs)
        return first + (f - first) * fmin(1.0, (p->epoch + p->part) / c->warmup_epochs);
    return f;
}

double rd_schedule_rate(const rd_schedule_config *c, const rd_schedule_point *p)
{
    const double step = schedule_scaled(c) ? (double)p->step * p->n_ranks : (double)p->step;
    double lr = base_rate(c, step, p->epoch);
    if (p->multiplier > 0.0 && p->multiplier < 1.0)
        lr = fmax(lr * p->multiplier, fmin(lr, c->plateau_min_lr));
    return ramp(c, p, step) * lr;
}

double rd_schedule_base(const rd_schedule_config *c, double step)
{
    return base_rate(c, step, c->epoch_steps > 0.0 ? step / c->epoch_steps : 0.0);
}

double rd_schedule_at(const rd_schedule_config *c, int64_t step, int n_ranks)
{
    rd_schedule_point p = {.step = step, .n_ranks = n_ranks};
    if (c->epoch_steps > 0.0) {
        p.epoch = (double)step / c->epoch_steps;
        p.part = 1.0 / c->epoch_steps;
    }
    return rd_schedule_rate(c, &p);
}
