/* optim.h -- optimizers (one file each in runner/optim/optimizers; make writes the registry), learning-rate schedules, clipping,
 * weight decay, LARS, loss scaling. Formulas: TF 1.4 as OpenSeq2Seq used it; of images, as tf_cnn_benchmarks and Horovod's
 * examples have them. */
#ifndef RD_OPTIM_H
#define RD_OPTIM_H

#include "rd/backend_kind.h"
#include "rd/comm.h"
#include "rd/options.h"
#include "rd/params.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* ---- schedule: pure functions ---- */
typedef enum rd_lr_policy {
    RD_LR_DECAY,
    RD_LR_PIECEWISE,
    RD_LR_POLYNOMIAL,
    RD_LR_COSINE
} rd_lr_policy;
typedef enum rd_lr_scaling { RD_SCALE_LINEAR, RD_SCALE_SQRT, RD_SCALE_NONE } rd_lr_scaling;
typedef enum rd_lr_unit { RD_LR_EPOCHS, RD_LR_STEPS } rd_lr_unit;
typedef enum rd_lr_monitor { RD_MONITOR_LOSS, RD_MONITOR_FIGURE } rd_lr_monitor;

typedef struct rd_schedule_config {
    double learning_rate;
    /* Counts if has_policy; see rd_schedule_policy. */
    rd_lr_policy lr_policy;
    bool use_decay, use_staircase_decay;
    int64_t begin_decay_at, decay_steps;
    double decay_rate, min_learning_rate;
    const char *piecewise_learning_rate_schedule; /* "rate;boundary;rate;...;rate" */
    rd_lr_unit lr_boundary_unit;
    double decay_begin_epoch, decay_end_epoch, lr_power;
    rd_lr_scaling lr_scaling;
    /* In steps of one rank's schedule; the factor ramps from 1 to f(N). */
    int64_t warmup_steps;
    double warmup_epochs, warmup_start;
    double plateau_factor, plateau_min_delta, plateau_min_lr;
    int64_t plateau_patience, plateau_cooldown;
    rd_lr_monitor plateau_monitor;
    bool has_policy, has_begin, has_steps, has_rate, has_staircase, has_min, has_begin_epoch,
        has_end_epoch, has_warmup_start, has_plateau;

    /* No keys: known once the data is. */

    /* Steps of all ranks in an epoch. 0: unknown; what the config writes in epochs stays at epoch 0. */
    double epoch_steps;
    /* Where polynomial and cosine end without decay_end_epoch. */
    double end_epoch;
} rd_schedule_config;

/* The keys that every policy reads, and those of one policy. All rows fill an rd_schedule_config. */
extern const rd_option_group rd_group_schedule;
/* [rd_lr_policy] */
extern const rd_option_group rd_group_policy[4];
/* Reads all five groups. */
rd_code rd_schedule_read(const rd_config *cfg, rd_mode mode, rd_schedule_config *out,
                         rd_status *st);
/* Returns the policy: lr_policy if it is given, else piecewise if there is a piecewise schedule, else
 * decay. */
rd_lr_policy rd_schedule_policy(const rd_schedule_config *c);
/* Checks keys that need or exclude each other. RD_EUSAGE. */
rd_code rd_schedule_check(const rd_schedule_config *c, const rd_config *cfg, rd_status *st);
/* Takes the first rate of piecewise_learning_rate_schedule. False: it is NULL or does not begin with
 * a number. */
bool rd_schedule_first_rate(const char *piecewise, double *out);
enum { RD_MAX_PIECES = 32 };
/* rate[i] holds until at[i]; the last rate has no end. */
typedef struct rd_pieces {
    int n;
    double rate[RD_MAX_PIECES], at[RD_MAX_PIECES];
} rd_pieces;
/* Parses piecewise_learning_rate_schedule. RD_EUSAGE. */
rd_code rd_schedule_pieces(const char *text, rd_pieces *out, rd_status *st);

typedef struct rd_schedule_point {
    int64_t step; /* from 0: the step whose update the rate is for */
    int n_ranks;
    double epoch; /* passes over the data before this step: e + b / S for batch b of S in epoch e */
    double part;  /* of an epoch that this step is: 1 / S */
    double multiplier; /* rd_plateau.factor; 0: 1 */
} rd_schedule_point;
/* lr_N = F(N) lr_1(s N, epoch), where F is the warm-up's ramp up to f(N); lr_1(s, epoch) for lr_scaling none.
 *   warmup_steps W:  F = b + (f(N) - b) s N / W            while s N < W
 *   warmup_epochs W: F = b + (f(N) - b) (epoch + part) / W while epoch < W: what Horovod's callback does for each batch
 * with b = 1, or warmup_start f(N) where that is given. */
double rd_schedule_rate(const rd_schedule_config *c, const rd_schedule_point *p);
/* lr_1(s), real-valued s; what goes by epochs takes s / epoch_steps for the epoch. */
double rd_schedule_base(const rd_schedule_config *c, double step);
double rd_schedule_factor(const rd_schedule_config *c, int n_ranks); /* f(N) */
/* rd_schedule_rate at the point that epoch_steps gives: right as long as the number of ranks has not changed. */
double rd_schedule_at(const rd_schedule_config *c, int64_t step, int n_ranks);
/* Lines for the banner: base lr, factor, effective lr, each boundary (warm-up end, begin of decay, first halvings or periods,
 * the step at which the floor is reached, pieces) before and after scaling. */
void rd_schedule_describe(const rd_schedule_config *c, int n_ranks, rd_strbuf *out);

/* ---- reduce on plateau, as Keras' callback of 2018 ---- */
typedef struct rd_plateau { /* all of it is saved in checkpoints; all ranks hold the same one */
    double factor, best;    /* factor: on the rate, 1 at first */
    int64_t wait, cooldown, cuts;
    bool has_best;
} rd_plateau;
void rd_plateau_start(rd_plateau *p);
/* One evaluation. rate: the present one, before lr_scaling. True: the factor falls. Without plateau_factor nothing happens. */
bool rd_plateau_update(const rd_schedule_config *c, rd_plateau *p, double value,
                       bool higher_is_better, double rate);

/* ---- optimizers ---- */
typedef struct rd_optim_config {
    const char *optimizer;
    double opt_momentum, adam_beta1, adam_beta2, adam_epsilon, adagrad_init, adadelta_rho,
        adadelta_epsilon;
    double rmsprop_decay, rmsprop_momentum, rmsprop_epsilon, lars_eta, lars_epsilon;
    double max_grad_norm, lars_nu, loss_scale, weight_decay;
    bool has_max_grad_norm, has_lars_nu, has_loss_scale;
    bool weight_decay_all; /* decays RD_PARAM_NO_DECAY too */
} rd_optim_config;
/* The keys that every optimizer reads. The others are in the optimizers' own groups. All rows fill an
 * rd_optim_config. */
extern const rd_option_group rd_group_optim;
/* opt_momentum, which several optimizers read. */
extern const rd_option_group rd_group_momentum;
/* Reads the keys of all optimizers. */
rd_code rd_optim_read(const rd_config *cfg, rd_mode mode, rd_optim_config *out, rd_status *st);
/* Keys that exclude each other (RD_EUSAGE): lars_nu, or the optimizer lars, with max_grad_norm; lars_nu with weight_decay
 * or the optimizer lars. */
rd_code rd_optim_check(const rd_optim_config *c, const rd_config *cfg, rd_status *st);

typedef struct
    rd_update { /* one call of an optimizer: elements [lo, hi) of arrays that begin at one and the same parameter element */
    const rd_optim_config *c;
    double lr;
    int64_t t;    /* from 1 */
    float *w, *g; /* g is read only: histograms want it afterwards */
    float *slot[3];
    int64_t lo, hi;
    int64_t
        row; /* > 0: [lo, hi) is whole rows of this many elements; the caller left out those without a gradient */
} rd_update;
typedef struct rd_optim_sweep rd_optim_sweep; /* runner/optim/optim_gpu.h */
typedef struct rd_optimizer_def {
    const char *name, *about;
    /* The keys that it reads, which other optimizers may read too, and keys that it alone reads. NULL: none. */
    const rd_option_group *group, *own;
    int n_slots;
    const char *slot_name[3]; /* "m" "v": names in checkpoints are <param>/<slot> */
    double (*slot_init)(const rd_optim_config *c, int slot); /* NULL: 0 */
    bool skips_zero_rows; /* wants update.row for RD_PARAM_ROWS */
    bool
        trust_ratio; /* g comes times LARS' ratio r = lars_eta |w| / (|g| + weight_decay |w| + lars_epsilon), of each
                                   parameter without RD_PARAM_NO_DECAY; r = 1 where a norm is zero */
    void (*update)(
        const rd_update *
            u); /* vectorisable loop; the arithmetic is the same for every way of cutting [lo, hi) */
    /* Queues the same for all parameters on a GPU; see x.cu. RD_GPU_ENTRY(rd_cuda_update_x). */
    rd_code (*gpu_update)(rd_gpu *g, const rd_optim_sweep *s, rd_status *st);
} rd_optimizer_def;

/* Begins the definition of an optimizer: RD_OPTIMIZER(id) = {...}; in a file of
 * runner/optim/optimizers. make finds it and writes the registry. */
#define RD_OPTIMIZER(id)                                                            \
    rd_code rd_cuda_update_##id(rd_gpu *g, const rd_optim_sweep *s, rd_status *st); \
    const rd_optimizer_def rd_optimizer_##id
const rd_optimizer_def *rd_optimizer_find(
    const char *name); /* without regard to case; NULL: unknown */
const rd_optimizer_def *const *rd_optimizer_defs(int *n);

typedef struct rd_optim rd_optim;
/* Makes the slots in `p` (sealed). Both borrowed. n_threads: of own loops. Where p has a GPU (rd_params_use_gpu, before) the update
 * is done there; results agree with the host's to the rounding of float32. */
rd_code rd_optim_new(const rd_optim_config *c, rd_params *p, int n_threads, rd_optim **out,
                     rd_status *st);
void rd_optim_free(rd_optim *o);
const rd_optimizer_def *rd_optim_def(const rd_optim *o);

typedef struct rd_optim_stats {
    bool finite;      /* false: nothing was changed */
    double grad_norm; /* after scaling by grad_scale, before clipping; without weight decay */
    double clipped_norm;
    double *
        param_norm; /* in, optional, [rd_params_n]: gradient norm of each parameter after clipping, before weight
                                     decay and LARS; 0 of running statistics */
    bool want_l2;    /* in: fill l2; the same on all ranks that share */
    bool want_grads; /* in: see rd_optim_step; for ranks that share */
    double l2; /* weight_decay / 2 * sum of squares of the decayed weights, before the update */
} rd_optim_stats;
/* One update, in the order of OpenSeq2Seq 5.1: grads *= grad_scale (1 / (loss_scale * weight)); norm; clip; g + weight_decay w
 * (L2, so adam's moments see it; not in the printed loss); LARS; update; running statistics v = momentum v + (1 - momentum) g;
 * rd_params_touch. Gradients hold the scaled, clipped values afterwards (before decay and LARS). Norms are sums in double in a
 * fixed order (per parameter, blocks of 4096), so the same for any number of threads. Not finite, running statistics included:
 * stats->finite false, parameters and slots unchanged.
 * After rd_optim_share: collective among the ranks of a host, with the same t, lr, grad_scale and gradients; each updates its
 * share and all see the whole. The bytes are the same as without. Then a rank's gradients outside its share stay unscaled, but
 * where it asks for all with want_grads. */
rd_code rd_optim_step(rd_optim *o, int64_t t, double lr, double grad_scale, rd_optim_stats *stats,
                      rd_status *st);
double rd_optim_norm(const rd_optim *o); /* grad_norm of the last step; NAN: none yet */

/* Collective among the ranks of a host, which hold the same values and slots: from now on there is one copy of both, in memory
 * that they share (until rd_optim_free, which leaves rd_params_values and the slots NULL), and the work of rd_optim_step is
 * shared. Where that cannot be, nothing changes and why says the reason ("" for a rank that is alone). Whoever writes values
 * afterwards does so with no other rank reading them, and rd_params_touch on all. */
rd_code rd_optim_share(rd_optim *o, rd_comm *c, char why[200], rd_status *st);
void rd_optim_unshare(
    rd_optim
        *o); /* as rd_optim_free does; not collective, nothing happens where nothing is shared */
bool rd_optim_is_shared(const rd_optim *o);
/* A checksum of each parameter's values, [rd_params_n]: the same wherever the bytes are. Collective among the ranks of a host that
 * share. *damaged: a parameter of whose values this rank has seen that they are not what the last update left (now, or before an
 * update since), -1: none; only ranks that share see that, each in its share. */
rd_code rd_optim_checksums(rd_optim *o, uint64_t *of_param, int *damaged, rd_status *st);

RD_C_END
#endif
