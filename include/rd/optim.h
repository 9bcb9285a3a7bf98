/* optim.h -- optimizers (one file each in runner/optim/optimizers; make writes the registry), learning-rate schedules, clipping,
 * LARS, loss scaling. Formulas: TF 1.4 as OpenSeq2Seq used it. */
#ifndef RD_OPTIM_H
#define RD_OPTIM_H

#include "rd/options.h"
#include "rd/params.h"

RD_C_BEGIN

/* ---- schedule: pure functions ---- */
typedef struct rd_schedule_config {
    double learning_rate;
    bool use_decay, use_staircase_decay;
    int64_t begin_decay_at, decay_steps;
    double decay_rate, min_learning_rate;
    const char *lr_scaling;     /* "linear" "sqrt" "none" */
    int64_t warmup_steps;       /* of one rank's schedule; the factor ramps from 1 to f(N) */
    bool has_begin, has_steps, has_rate, has_staircase, has_min;
} rd_schedule_config;
extern const rd_option_group rd_group_schedule;
rd_code rd_schedule_check(const rd_schedule_config *c, const rd_config *cfg, rd_status *st); /* conditional keys, RD_EUSAGE */
double rd_schedule_base(const rd_schedule_config *c, double step); /* lr_1(s), real-valued s */
double rd_schedule_factor(const rd_schedule_config *c, int n_ranks); /* f(N) */
/* lr_N(s) = f(N) lr_1(s N) for linear and sqrt, with the factor ramped from 1 to f(N) over the first warmup_steps / N steps;
 * lr_1(s) for none. step from 0: the value the update of step s uses. */
double rd_schedule_at(const rd_schedule_config *c, int64_t step, int n_ranks);
/* Lines for the banner: base lr, factor, effective lr, each boundary (warm-up end, begin of decay, first halvings or periods,
 * the step at which the floor is reached) before and after scaling. */
void rd_schedule_describe(const rd_schedule_config *c, int n_ranks, void *strbuf);

/* ---- optimizers ---- */
typedef struct rd_optim_config {
    const char *optimizer;
    double opt_momentum, adam_beta1, adam_beta2, adam_epsilon, adagrad_init, adadelta_rho, adadelta_epsilon;
    double max_grad_norm, lars_nu, loss_scale;
    bool has_max_grad_norm, has_lars_nu;
} rd_optim_config;
extern const rd_option_group rd_group_optim;
rd_code rd_optim_check(const rd_optim_config *c, const rd_config *cfg, rd_status *st); /* lars_nu with max_grad_norm: error */

typedef struct rd_update {      /* one call of an optimizer: elements [lo, hi) of arrays that begin at one and the same parameter element */
    const rd_optim_config *c;
    double lr;
    int64_t t;                  /* from 1 */
    float *w, *g;               /* g is read only: histograms want it afterwards */
    float *slot[3];
    int64_t lo, hi;
    int64_t row;                /* > 0: [lo, hi) is whole rows of this many elements; the caller left out those without a gradient */
} rd_update;
typedef struct rd_optimizer_def {
    const char *name, *about;
    int n_slots;
    const char *slot_name[3];   /* "m" "v": names in checkpoints are <param>/<slot> */
    double (*slot_init)(const rd_optim_config *c, int slot); /* NULL: 0 */
    bool skips_zero_rows;       /* wants update.row for RD_PARAM_ROWS */
    void (*update)(const rd_update *u); /* vectorisable loop; the arithmetic is the same for every way of cutting [lo, hi) */
} rd_optimizer_def;
const rd_optimizer_def *rd_optimizer_find(const char *name); /* without regard to case; NULL: unknown */
const rd_optimizer_def *const *rd_optimizer_defs(int *n);

typedef struct rd_optim rd_optim;
/* Makes the slots in `p` (sealed). Both borrowed. n_threads: of own loops. */
rd_code rd_optim_new(const rd_optim_config *c, rd_params *p, int n_threads, rd_optim **out, rd_status *st);
void rd_optim_free(rd_optim *o);
const rd_optimizer_def *rd_optim_def(const rd_optim *o);

typedef struct rd_optim_stats {
    bool finite;                  /* false: nothing was changed */
    double grad_norm;             /* after scaling by grad_scale, before clipping */
    double clipped_norm;
    double *param_norm;           /* optional, [rd_params_n]: gradient norm of each parameter after clipping, before LARS */
} rd_optim_stats;
/* One update, in the order of OpenSeq2Seq 5.1: grads *= grad_scale (1 / (loss_scale * weight)); norm; clip or LARS; update;
 * rd_params_touch. Gradients hold the scaled, clipped values afterwards (before LARS). Norms are sums in double in a fixed order (per
 * parameter, blocks of 4096), so the same for any number of threads. Not finite: stats->finite false, parameters and slots unchanged. */
rd_code rd_optim_step(rd_optim *o, int64_t t, double lr, double grad_scale, rd_optim_stats *stats, rd_status *st);

RD_C_END
#endif
