/* schedule.c -- the learning rate as a pure function of the step.
 *
 * lr_1 is the schedule of the config, for one rank. Step s of N ranks has seen as much data as step
 * s N of one rank, so
 *   lr_N(s) = f(N) lr_1(s N),   f(N) = N (linear) or sqrt(N).
 * A boundary b of the config is at step b / N. lr_scaling none uses lr_1 unchanged, for configs
 * that were scaled by hand. Boundaries in epochs need no such rule: an epoch is one pass over the
 * data for any number of ranks.
 *
 * If N or the batch size changed at step o, when one rank would have done b steps for the samples
 * so far, the position is b + (s - o) N in place of s N. */
#include "rd/optim.h"
#include <math.h>

static const char *const scalings[] = {
    [RD_SCALE_LINEAR] = "linear", [RD_SCALE_SQRT] = "sqrt", [RD_SCALE_NONE] = "none", NULL};
static const char *const policies[] = {[RD_LR_DECAY] = "decay",
                                       [RD_LR_PIECEWISE] = "piecewise",
                                       [RD_LR_POLYNOMIAL] = "polynomial",
                                       [RD_LR_COSINE] = "cosine",
                                       [RD_LR_INV_SQRT] = "inv_sqrt",
                                       [RD_LR_WSD] = "wsd",
                                       NULL};
static const char *const units[] = {[RD_LR_EPOCHS] = "epochs", [RD_LR_STEPS] = "steps", NULL};
static const char *const inv_sqrt_forms[] = {
    [RD_INV_SQRT_SOCKEYE] = "sockeye", [RD_INV_SQRT_FAIRSEQ] = "fairseq", NULL};
static const char *const monitors[] = {
    [RD_MONITOR_LOSS] = "loss", [RD_MONITOR_FIGURE] = "figure", NULL};

enum { TRAINING = RD_MODE_TRAIN | RD_MODE_TRAIN_EVAL | RD_MODE_BENCH };
static const double pi = 3.14159265358979323846;

#define T rd_schedule_config
#define MAX_STEP 1e15 /* exact in double, also times a number of ranks */
static const rd_option rows[] = {
    RD_OPT_REAL(T, learning_rate, learning_rate, NULL, 0.0, 1e6,
                "learning rate of one rank, before lr_scaling. --lr replaces it; "
                "piecewise_learning_rate_schedule can give it",
                RD_REQUIRED(TRAINING)),
    RD_OPT_ENUM(T, lr_policy, lr_policy, NULL, policies,
                "how the rate changes. Without it: piecewise if piecewise_learning_rate_schedule "
                "is given, else decay (use_decay and its keys)",
                RD_GIVEN(T, has_policy)),
    RD_OPT_ENUM(T, lr_scaling, lr_scaling, "\"linear\"", scalings,
                "factor on the rate for N ranks. linear: N; sqrt: the square root of N; none: 1, "
                "and boundaries count steps as written"),
    RD_OPT_INT(T, warmup_steps, warmup_steps, "0", 0, MAX_STEP,
               "length of the warm-up, in which the factor of lr_scaling grows from 1 to its full "
               "value. In steps of one rank; 0: none. inv_sqrt: length of its warm-up"),
    RD_OPT_REAL(T, warmup_epochs, warmup_epochs, "0.0", 0.0, 1e6,
                "length of the warm-up in epochs; the factor grows with every step, as in "
                "Horovod's examples. Not with warmup_steps"),
    RD_OPT_REAL(T, warmup_start, warmup_start, NULL, 0.0, 1.0,
                "share of the full rate at which the warm-up begins. Without it: 1 / factor of "
                "lr_scaling, which is the rate of one rank. 1 / (warmup_steps + 1) gives the rates "
                "of nanoGPT",
                RD_GIVEN(T, has_warmup_start)),
    RD_OPT_REAL(T, plateau_factor, plateau_factor, NULL, 1e-9, 0.999999,
                "turns on reduce on plateau (train_eval mode): the rate is multiplied by this when "
                "evaluations no longer improve",
                RD_GIVEN(T, has_plateau)),
    RD_OPT_INT(T, plateau_patience, plateau_patience, "10", 1, 1e9,
               "number of evaluations without an improvement before the rate falls"),
    RD_OPT_REAL(T, plateau_min_delta, plateau_min_delta, "1e-4", 0.0, 1e9,
                "smallest change that counts as an improvement"),
    RD_OPT_INT(T, plateau_cooldown, plateau_cooldown, "0", 0, 1e9,
               "number of evaluations that do not count after the rate fell"),
    RD_OPT_REAL(T, plateau_min_lr, plateau_min_lr, "0.0", 0.0, 1e6,
                "the plateau rule does not go below this rate, before lr_scaling"),
    RD_OPT_ENUM(T, plateau_monitor, plateau_monitor, "\"loss\"", monitors,
                "the value that the plateau rule watches. loss: of the evaluation; figure: the "
                "evaluation's first figure (accuracy, BLEU, ...)"),
    RD_OPT_BOOL(T, plateau_restore, plateau_restore, "false",
                "when the plateau rule lowers the rate, training goes on with the weights and the "
                "optimizer's state of the best checkpoint, as in Sockeye"),
    RD_OPT_END};
const rd_option_group rd_group_schedule = {"schedule", "Learning rate", rows, sizeof(T)};

/* ---- the keys of one policy. Several policies share rows ---- */

#define BEGIN                                                        \
    RD_OPT_INT(T, begin_decay_at, begin_decay_at, NULL, 0, MAX_STEP, \
               "first step of the decay, in steps of one rank", RD_GIVEN(T, has_begin), CARRIED)
#define STEPS                                                                              \
    RD_OPT_INT(T, decay_steps, decay_steps, NULL, 1, MAX_STEP,                             \
               "length of a decay period, in steps of one rank. polynomial, cosine, wsd: " \
               "length of the whole way down",                                             \
               RD_GIVEN(T, has_steps), CARRIED)
#define MIN_RATE                                                                                 \
    RD_OPT_REAL(T, min_learning_rate, min_learning_rate, NULL, 0.0, 1e6,                         \
                "lower bound of the rate while use_decay is on, before lr_scaling. polynomial, " \
                "cosine, wsd: the rate at the end, 0 without this key. inv_sqrt: lower bound "   \
                "after the warm-up",                                                             \
                RD_GIVEN(T, has_min), CARRIED)
#define BEGIN_EPOCH                                                                         \
    RD_OPT_REAL(T, decay_begin_epoch, decay_begin_epoch, NULL, 0.0, 1e9,                    \
                "polynomial, cosine, wsd: epoch at which the rate begins to fall. Without " \
                "it: warmup_epochs; wsd: decay_fraction says it",                           \
                RD_GIVEN(T, has_begin_epoch))
#define END_EPOCH                                                                                 \
    RD_OPT_REAL(                                                                                  \
        T, decay_end_epoch, decay_end_epoch, NULL, 0.0, 1e9,                                      \
        "polynomial, cosine, wsd: epoch at which the rate reaches min_learning_rate. "            \
        "Without it: num_epochs, or the end of the run. begin_decay_at and decay_steps say both " \
        "in steps of one rank instead",                                                           \
        RD_GIVEN(T, has_end_epoch))
/* OpenSeq2Seq's configs have these keys whether they take effect or not. */
#define CARRIED RD_CARRIED

static const rd_option decay_rows[] = {
    RD_OPT_BOOL(T, use_decay, use_decay, "false",
                "turns on the decay, which then needs begin_decay_at, decay_steps, decay_rate, "
                "use_staircase_decay and min_learning_rate",
                CARRIED),
    BEGIN,
    STEPS,
    RD_OPT_REAL(T, decay_rate, decay_rate, NULL, 1e-12, 1e6,
                "factor on the rate in each decay period", RD_GIVEN(T, has_rate), CARRIED),
    RD_OPT_BOOL(T, use_staircase_decay, use_staircase_decay, NULL,
                "the rate falls at the end of each period instead of at every step",
                RD_GIVEN(T, has_staircase), CARRIED),
    MIN_RATE,
    RD_OPT_END};
static const rd_option piecewise_rows[] = {
    RD_OPT_STRING(T, piecewise_learning_rate_schedule, piecewise_learning_rate_schedule, NULL,
                  "piecewise: rate;boundary;rate;boundary;rate, as \"0.1;30;0.01;60;0.001\". Rates "
                  "of one rank, before lr_scaling"),
    RD_OPT_ENUM(T, lr_boundary_unit, lr_boundary_unit, "\"epochs\"", units,
                "unit of the boundaries of piecewise: epochs, or steps of one rank"),
    RD_OPT_END};
static const rd_option polynomial_rows[] = {
    BEGIN,
    STEPS,
    MIN_RATE,
    BEGIN_EPOCH,
    END_EPOCH,
    RD_OPT_REAL(T, lr_power, lr_power, "1.0", 0.0, 100.0,
                "polynomial: exponent of the share of the way that is left"),
    RD_OPT_END};
static const rd_option cosine_rows[] = {BEGIN, STEPS, MIN_RATE, BEGIN_EPOCH, END_EPOCH, RD_OPT_END};
static const rd_option inv_sqrt_rows[] = {
    MIN_RATE,
    RD_OPT_ENUM(T, inv_sqrt_form, inv_sqrt_form, "\"sockeye\"", inv_sqrt_forms,
                "inv_sqrt: what learning_rate and warmup_steps w mean. sockeye, as inv-sqrt-decay "
                "there: learning_rate min(1, t / w) / sqrt(max(t, w)), with step t from 1. "
                "fairseq, as inverse_sqrt there: learning_rate is the highest rate, of step w "
                "from 0; then it falls as sqrt(w / step)"),
    RD_OPT_REAL(T, warmup_init_lr, warmup_init_lr, "0.0", 0.0, 1e6,
                "inv_sqrt in the form fairseq: rate of the first step", RD_GIVEN(T, has_init_lr)),
    RD_OPT_END};
static const rd_option wsd_rows[] = {
    BEGIN,
    STEPS,
    MIN_RATE,
    BEGIN_EPOCH,
    END_EPOCH,
    RD_OPT_REAL(T, decay_fraction, decay_fraction, "0.2", 1e-6, 1.0,
                "wsd: the decay is this last part of the run, which ends at decay_end_epoch, "
                "num_epochs or the last step. Not with begin_decay_at or decay_begin_epoch",
                RD_GIVEN(T, has_fraction)),
    RD_OPT_END};

const rd_option_group rd_group_policy[] = {
    [RD_LR_DECAY] = {"decay", "learning rate: exponential decay, as in OpenSeq2Seq", decay_rows,
                     sizeof(T)},
    [RD_LR_PIECEWISE] = {"piecewise", "learning rate: constant between boundaries", piecewise_rows,
                         sizeof(T)},
    [RD_LR_POLYNOMIAL] = {"polynomial", "learning rate: a power of the way that is left",
                          polynomial_rows, sizeof(T)},
    [RD_LR_COSINE] = {"cosine", "learning rate: half a period of a cosine", cosine_rows, sizeof(T)},
    [RD_LR_INV_SQRT] = {"inv_sqrt",
                        "learning rate: warm-up, then the inverse square root of the step",
                        inv_sqrt_rows, sizeof(T)},
    [RD_LR_WSD] = {"wsd", "learning rate: warm-up, stable, then down as 1 - sqrt", wsd_rows,
                   sizeof(T)},
};

rd_code rd_schedule_read(const rd_config *cfg, rd_mode mode, rd_schedule_config *out, rd_status *st)
{
    RD_TRY(rd_config_read(cfg, &rd_group_schedule, mode, out, st));
    for (int i = 0; policies[i]; i++)
        RD_TRY(rd_config_read_more(cfg, &rd_group_policy[i], mode, out, st));
done:
    return st->code;
}

rd_lr_policy rd_schedule_policy(const rd_schedule_config *c)
{
    if (c->has_policy) return c->lr_policy;
    return c->piecewise_learning_rate_schedule ? RD_LR_PIECEWISE : RD_LR_DECAY;
}

static bool by_steps(const rd_schedule_config *c) /* polynomial, cosine, wsd */
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

double rd_schedule_begin_epoch(const rd_schedule_config *c)
{
    if (c->has_begin_epoch) return c->decay_begin_epoch;
    if (rd_schedule_policy(c) != RD_LR_WSD) return c->warmup_epochs;
    return (1.0 - c->decay_fraction) * (c->has_end_epoch ? c->decay_end_epoch : c->end_epoch);
}

/* Returns the share of a polynomial, cosine or wsd schedule that is done, 0 .. 1. */
static double way(const rd_schedule_config *c, double step, double epoch)
{
    double begin, end, x = epoch;
    if (by_steps(c)) {
        begin = (double)(c->has_begin ? c->begin_decay_at : c->warmup_steps);
        end = begin + (double)c->decay_steps;
        x = step;
    } else {
        begin = rd_schedule_begin_epoch(c);
        end = c->has_end_epoch ? c->decay_end_epoch : c->end_epoch;
    }
    if (end <= begin) return x >= end && end > 0.0 ? 1.0 : 0.0;
    return fmin(1.0, fmax(0.0, (x - begin) / (end - begin)));
}

/* Returns the rate of inv_sqrt. Sockeye counts steps from 1, fairseq from 0. */
static double inv_sqrt_rate(const rd_schedule_config *c, double step)
{
    const double w = (double)c->warmup_steps, lr = c->learning_rate;
    if (c->inv_sqrt_form == RD_INV_SQRT_FAIRSEQ) {
        if (step < w) return c->warmup_init_lr + (lr - c->warmup_init_lr) * step / w;
        return fmax(c->min_learning_rate, lr * sqrt(w / step));
    }
    const double t = step + 1.0;
    if (t < w) return lr * t / w / sqrt(w);
    return fmax(c->min_learning_rate, lr / sqrt(t));
}

/* Returns lr_1(step, epoch). */
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
    case RD_LR_WSD:
        return last + (first - last) * (1.0 - sqrt(way(c, step, epoch)));
    case RD_LR_INV_SQRT:
        return inv_sqrt_rate(c, step);
    case RD_LR_PIECEWISE:
        if (rd_schedule_pieces(c->piecewise_learning_rate_schedule, &pieces, &st) != RD_OK)
            return first;
        const double x = c->lr_boundary_unit == RD_LR_STEPS ? step : epoch;
        int i = 0;
        while (i + 1 < pieces.n && x >= pieces.at[i]) i++;
        return pieces.rate[i];
    }
    return decayed(c, step);
}

static bool schedule_scaled(const rd_schedule_config *c)
{
    return c->lr_scaling != RD_SCALE_NONE;
}

double rd_schedule_factor(const rd_schedule_config *c, int n_ranks)
{
    if (!schedule_scaled(c)) return 1.0;
    return c->lr_scaling == RD_SCALE_SQRT ? sqrt((double)n_ranks) : (double)n_ranks;
}

/* Is the step in the warm-up that counts in steps? */
static bool warms_by_steps(const rd_schedule_config *c, double step)
{
    return step < (double)c->warmup_steps &&
           (schedule_scaled(c) || c->has_warmup_start || rd_schedule_policy(c) == RD_LR_INV_SQRT);
}

/* Returns the factor of this step: f(N) after the warm-up. */
static double ramp(const rd_schedule_config *c, const rd_schedule_point *p, double step)
{
    const double f = rd_schedule_factor(c, p->n_ranks);
    const double first = c->has_warmup_start ? c->warmup_start * f : 1.0;
    if (rd_schedule_policy(c) == RD_LR_INV_SQRT) return f; /* its warm-up is its own */
    if (warms_by_steps(c, step)) return first + (f - first) * step / (double)c->warmup_steps;
    if (p->epoch < c->warmup_epochs)
        return first + (f - first) * fmin(1.0, (p->epoch + p->part) / c->warmup_epochs);
    return f;
}

int64_t rd_schedule_step(const rd_schedule_config *c, int64_t base, int n_ranks)
{
    if (!schedule_scaled(c)) return base;
    if (c->origin_step == 0) return (base + n_ranks - 1) / n_ranks;
    const double more = ceil(((double)base - c->origin_base) / n_ranks);
    return more < 0.0 ? -1 : c->origin_step + (int64_t)more;
}

/* Returns the step of one rank. */
static double step_of_one(const rd_schedule_config *c, const rd_schedule_point *p)
{
    return schedule_scaled(c) ? c->origin_base + (double)(p->step - c->origin_step) * p->n_ranks
                              : (double)p->step;
}

bool rd_schedule_warming(const rd_schedule_config *c, const rd_schedule_point *p)
{
    return warms_by_steps(c, step_of_one(c, p)) || p->epoch < c->warmup_epochs;
}

double rd_schedule_rate(const rd_schedule_config *c, const rd_schedule_point *p)
{
    const double step = step_of_one(c, p);
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
        p.epoch = c->origin_epoch + (double)(step - c->origin_step) / c->epoch_steps;
        p.part = 1.0 / c->epoch_steps;
    }
    return rd_schedule_rate(c, &p);
}
