/* optim.h -- optimizers, learning-rate schedules, clipping, weight decay, LARS, loss scaling.
 *
 * An optimizer is one file in runner/optim/optimizers; make writes the registry. Formulas are those
 * of TF 1.4 as OpenSeq2Seq used it; for images those of tf_cnn_benchmarks and Horovod's
 * examples. */
#ifndef RD_OPTIM_H
#define RD_OPTIM_H

#include "rd/backend_kind.h"
#include "rd/comm.h"
#include "rd/options.h"
#include "rd/params.h"
#include "rd/shard.h"
#include "rd/strbuf.h"

RD_C_BEGIN

/* ---- schedule: pure functions ---- */
typedef enum rd_lr_policy {
    RD_LR_DECAY,
    RD_LR_PIECEWISE,
    RD_LR_POLYNOMIAL,
    RD_LR_COSINE,
    RD_LR_INV_SQRT,
    RD_LR_WSD
} rd_lr_policy;
typedef enum rd_lr_inv_sqrt { RD_INV_SQRT_SOCKEYE, RD_INV_SQRT_FAIRSEQ } rd_lr_inv_sqrt;
typedef enum rd_lr_scaling { RD_SCALE_LINEAR, RD_SCALE_SQRT, RD_SCALE_NONE } rd_lr_scaling;
typedef enum rd_lr_unit { RD_LR_EPOCHS, RD_LR_STEPS } rd_lr_unit;
typedef enum rd_lr_monitor { RD_MONITOR_LOSS, RD_MONITOR_FIGURE } rd_lr_monitor;

typedef struct rd_schedule_config {
    double learning_rate;   /* rate of one rank, before lr_scaling */
    rd_lr_policy lr_policy; /* set if has_policy; see rd_schedule_policy */
    bool use_decay, use_staircase_decay;
    int64_t begin_decay_at, decay_steps; /* in steps of one rank */
    double decay_rate, min_learning_rate;
    const char *piecewise_learning_rate_schedule; /* "rate;boundary;rate;...;rate" */
    rd_lr_unit lr_boundary_unit;
    double decay_begin_epoch, decay_end_epoch, lr_power, decay_fraction;
    rd_lr_inv_sqrt inv_sqrt_form;
    double warmup_init_lr;
    rd_lr_scaling lr_scaling;
    int64_t warmup_steps; /* in steps of one rank; the factor increases from 1 to f(N) */
    double warmup_epochs, warmup_start;
    double plateau_factor, plateau_min_delta, plateau_min_lr;
    int64_t plateau_patience, plateau_cooldown; /* numbers of evaluations */
    rd_lr_monitor plateau_monitor;
    bool plateau_restore;
    /* Whether the config has the key. */
    bool has_policy, has_begin, has_steps, has_rate, has_staircase, has_min, has_begin_epoch,
        has_end_epoch, has_warmup_start, has_plateau, has_fraction, has_init_lr;

    /* No keys. The caller sets these fields when it knows the data. */

    /* Number of steps of all ranks in an epoch. 0: unknown; all schedules in epochs then stay at
     * epoch 0. */
    double epoch_steps;
    /* End of polynomial, cosine and wsd if decay_end_epoch is missing. */
    double end_epoch;
    /* The step since which the number of ranks and the batch size are those of today, and the steps
     * of one rank and the passes over the data before it. All 0: since the first step. */
    int64_t origin_step;
    double origin_base, origin_epoch;
} rd_schedule_config;

/* The keys that all policies read. All rows of these groups fill an rd_schedule_config. */
extern const rd_option_group rd_group_schedule;
/* [rd_lr_policy] the keys of each policy. */
extern const rd_option_group rd_group_policy[6];
/* Reads all seven groups. */
rd_code rd_schedule_read(const rd_config *cfg, rd_mode mode, rd_schedule_config *out,
                         rd_status *st);
/* Returns the policy: lr_policy if it is given, else piecewise if there is a piecewise schedule,
 * else decay. */
rd_lr_policy rd_schedule_policy(const rd_schedule_config *c);
/* Checks keys that need or exclude each other. RD_EUSAGE. cfg: for messages; NULL is allowed. */
rd_code rd_schedule_check(const rd_schedule_config *c, const rd_config *cfg, rd_status *st);
/* Writes the first rate of piecewise_learning_rate_schedule to *out. Returns false if the text is
 * NULL or does not begin with a number. */
bool rd_schedule_first_rate(const char *piecewise, double *out);
enum { RD_MAX_PIECES = 32 };
/* A piecewise constant schedule. rate[i] is used until at[i]; the last rate has no end. */
typedef struct rd_pieces {
    int n;
    double rate[RD_MAX_PIECES], at[RD_MAX_PIECES];
} rd_pieces;
/* Parses piecewise_learning_rate_schedule. RD_EUSAGE. */
rd_code rd_schedule_pieces(const char *text, rd_pieces *out, rd_status *st);

/* A step of a run with N ranks. S: number of steps in an epoch. */
typedef struct rd_schedule_point {
    int64_t step; /* from 0: the step whose update uses the rate */
    int n_ranks;
    double epoch;      /* passes over the data before this step: e + b / S for batch b of epoch e */
    double part;       /* share of an epoch that this step is: 1 / S */
    double multiplier; /* rd_plateau.factor; 0: 1 */
} rd_schedule_point;
/* Returns the rate of a step, lr_N = F(N) lr_1(x, epoch). x is the number of steps that one rank
 * needs for the samples before step s: s N if the number of ranks never changed, else
 *   x = origin_base + (s - origin_step) N.
 * F is the warm-up's ramp up to f(N):
 *   warmup_steps W:  F = b + (f(N) - b) x / W                while x < W
 *   warmup_epochs W: F = b + (f(N) - b) (epoch + part) / W   while epoch < W
 * b is warmup_start f(N) if that key is given, else 1. With epochs this is what Horovod's callback
 * does for each batch. For lr_scaling none the rate is F lr_1(s, epoch). lr_1 of inv_sqrt has a
 * warm-up, and F is f(N). */
double rd_schedule_rate(const rd_schedule_config *c, const rd_schedule_point *p);
/* Returns whether the step is in the warm-up, in which the rate grows. */
bool rd_schedule_warming(const rd_schedule_config *c, const rd_schedule_point *p);
/* Returns lr_1(s) for a real-valued s. A schedule in epochs uses the epoch s / epoch_steps. */
double rd_schedule_base(const rd_schedule_config *c, double step);
/* Returns the epoch at which polynomial, cosine or wsd begins to fall, if it counts in epochs. */
double rd_schedule_begin_epoch(const rd_schedule_config *c);
/* Returns f(N), the factor of lr_scaling for n_ranks ranks. */
double rd_schedule_factor(const rd_schedule_config *c, int n_ranks);
/* Returns the step of n_ranks ranks at which one rank has done `base` steps. -1: a step before
 * origin_step. For lr_scaling none: base. */
int64_t rd_schedule_step(const rd_schedule_config *c, int64_t base, int n_ranks);
/* Returns rd_schedule_rate at the point that epoch_steps and the origin give. It is right while the
 * number of ranks does not change after origin_step. */
double rd_schedule_at(const rd_schedule_config *c, int64_t step, int n_ranks);
/* Returns whether the config has a warm-up that changes no rate: lr_scaling none has no factor to
 * grow, and warmup_start is not given. */
bool rd_schedule_idle_warmup(const rd_schedule_config *c);
/* Appends the lines of the banner: base rate, factor, effective rate, and each boundary before and
 * after scaling (end of the warm-up, begin of the decay, first periods, the step that reaches the
 * floor, pieces). */
void rd_schedule_describe(const rd_schedule_config *c, int n_ranks, rd_strbuf *out);

/* ---- reduce on plateau, as Keras' callback of 2018 ---- */
/* The state of the rule, which checkpoints save. It is equal on all ranks. */
typedef struct rd_plateau {
    double factor;    /* on the rate; 1 at first */
    double best;      /* best value so far, if has_best */
    int64_t wait;     /* number of evaluations in a row without an improvement */
    int64_t cooldown; /* number of evaluations that still do not count */
    int64_t cuts;     /* number of times the factor fell */
    bool has_best;
} rd_plateau;
/* Sets the state before the first evaluation. */
void rd_plateau_start(rd_plateau *p);
/* Updates the state with the value of one evaluation. Returns whether the factor decreased. rate:
 * the present rate, before lr_scaling. warming: the rate still grows, so evaluations without an
 * improvement count, but the factor stays. Does nothing if plateau_factor is not given. */
bool rd_plateau_update(const rd_schedule_config *c, rd_plateau *p, double value,
                       bool higher_is_better, double rate, bool warming);

/* ---- optimizers ---- */
/* The keys that one optimizer alone reads: memory for the struct of its group `own`, which only its
 * own files know. Numbers, flags and enums; no strings. */
enum { RD_OPTIM_OWN_BYTES = 128 };
typedef union rd_optim_own {
    double real;
    int64_t integer;
    unsigned char bytes[RD_OPTIM_OWN_BYTES];
} rd_optim_own;

typedef struct rd_optim_config {
    const char *optimizer;
    double opt_momentum;
    double max_grad_norm, lars_nu, loss_scale, weight_decay;
    double ema; /* 0: the optimizer keeps no average of the weights */
    bool has_max_grad_norm, has_lars_nu, has_loss_scale;
    bool weight_decay_all; /* decays RD_PARAM_NO_DECAY too; not for decoupled decay */
    bool has_own; /* `own` was read from a config; otherwise rd_optim_new fills in defaults */
    bool sharded; /* rd_optim_shard makes the slots, not rd_optim_new */
    rd_optim_own own;
} rd_optim_config;
/* The keys that every optimizer reads. They fill an rd_optim_config, as opt_momentum does, which
 * several optimizers read. An optimizer's own keys fill a struct of its file. */
extern const rd_option_group rd_group_optim;
extern const rd_option_group rd_group_momentum;
/* Reads rd_group_optim, and the keys of the optimizer that the config names. */
rd_code rd_optim_read(const rd_config *cfg, rd_mode mode, rd_optim_config *out, rd_status *st);
/* Refuses keys that exclude each other (RD_EUSAGE): max_grad_norm beside lars_nu or the optimizer
 * lars; lars_nu beside weight_decay or the optimizer lars; weight_decay_all beside decoupled
 * decay. */
rd_code rd_optim_check(const rd_optim_config *c, const rd_config *cfg, rd_status *st);

/* One call of an optimizer, for the elements [lo, hi) of arrays that begin at the same element of
 * the parameters. */
typedef struct rd_update {
    const rd_optim_config *c;
    const void *own; /* struct of the optimizer's group `own` */
    double lr;
    double decay; /* decoupled weight decay of this parameter; 0: none, or `decays` is NULL */
    int64_t t;    /* number of the step, from 1 */
    float *w;     /* weights */
    float *g;     /* gradient; read only, because histograms read it afterwards */
    float *slot[3];
    int64_t lo, hi;
    int64_t row; /* > 0: [lo, hi) is whole rows of this size, each with a gradient that is not 0 */
} rd_update;
typedef struct rd_trust_ratio {
    double eta, epsilon;
} rd_trust_ratio;
typedef struct rd_optim_sweep rd_optim_sweep; /* runner/optim/optim_gpu.h */
typedef struct rd_optimizer_def {
    const char *name, *about;
    /* The keys that it reads, which other optimizers may read too, and keys that it alone reads.
     * NULL: none. */
    const rd_option_group *group, *own;
    int n_slots;
    const char *slot_name[3]; /* "m" "v": names in checkpoints are <param>/<slot> */
    /* Returns the first value of a slot's elements. own: as in rd_update. NULL: 0. */
    double (*slot_init)(const void *own, int slot);
    bool skips_zero_rows; /* wants update.row for RD_PARAM_ROWS */
    /* Returns eta and epsilon of LARS' trust ratio
     *   r = eta |w| / (|g| + weight_decay |w| + epsilon),   1 if a norm is zero.
     * update then gets r (g + weight_decay w) for the gradient of each parameter without
     * RD_PARAM_NO_DECAY. own: as in rd_update. NULL: no trust ratio. */
    rd_trust_ratio (*trust_ratio)(const void *own);
    /* Returns whether weight_decay applies to a parameter that is trained. It is then decoupled:
     * the gradient does not include it, and update gets it. own: as in rd_update. NULL: the
     * gradient includes the decay. */
    bool (*decays)(const void *own, const rd_param *p);
    /* A loop that the compiler vectorises. The arithmetic does not depend on how [lo, hi) is
     * cut. */
    void (*update)(const rd_update *u);
    /* Queues the update of all parameters on a GPU; see x.cu. Made with RD_GPU_ENTRY. */
    rd_code (*gpu_update)(rd_gpu *g, const rd_optim_sweep *s, rd_status *st);
} rd_optimizer_def;

/* Begins the definition of an optimizer: RD_OPTIMIZER(id) = {...}; in a file of
 * runner/optim/optimizers. make finds it and writes the registry. */
#define RD_OPTIMIZER(id)                                                            \
    rd_code rd_cuda_update_##id(rd_gpu *g, const rd_optim_sweep *s, rd_status *st); \
    const rd_optimizer_def rd_optimizer_##id
/* Returns the optimizer of this name in upper or lower case; NULL: unknown. */
const rd_optimizer_def *rd_optimizer_find(const char *name);
/* Returns all n optimizers. */
const rd_optimizer_def *const *rd_optimizer_defs(int *n);

typedef struct rd_optim rd_optim;
/* Makes an optimizer and its slots in `p`, which is sealed and borrowed. n_threads: number of
 * threads of loops. If p has a GPU (rd_params_use_gpu, called before), the GPU does the update. Its
 * results agree with those of the CPU up to the rounding of float32. The caller owns *out. */
rd_code rd_optim_new(const rd_optim_config *c, rd_params *p, int n_threads, rd_optim **out,
                     rd_status *st);
void rd_optim_free(rd_optim *o); /* NULL is fine */
/* Returns the definition of the optimizer in use. */
const rd_optimizer_def *rd_optim_def(const rd_optim *o);

/* Returns the number of slots, and the name of slot k in checkpoints: those of the definition, and
 * "ema" as the last one if the config has ema. */
int rd_optim_n_slots(const rd_optim *o);
const char *rd_optim_slot_name(const rd_optim *o, int k);
/* Returns the number in rd_params of the slot with the average of the weights; -1: none. Update t,
 * from 0, moves the average by d (w - average), with
 *     d = max(ema, 9 / (t + 10)),
 * as Marian does: at first it follows the weights closely. */
int rd_optim_ema_slot(const rd_optim *o);
/* Begins the average with the present weights of the host's memory. */
void rd_optim_start_ema(rd_optim *o);
/* Exchanges the weights and their average. A second call undoes the first one. Between the two
 * there is no rd_optim_step, rd_optim_checksums or save. Collective among the ranks of a host that
 * share. Does nothing without an average. */
rd_code rd_optim_swap_ema(rd_optim *o, rd_status *st);

/* What rd_optim_step reports. The caller sets the fields marked "in". */
typedef struct rd_optim_stats {
    bool finite; /* false: a gradient or running statistic is not finite, and nothing was changed */
    double most_norm;    /* in: nothing is changed if grad_norm is larger; 0: no limit */
    bool spike;          /* nothing was changed for that reason; `finite` is false then, too */
    double grad_norm;    /* norm after scaling by grad_scale, before clipping and weight decay */
    double clipped_norm; /* the same norm after clipping */
    /* In, optional: an array [rd_params_n] for the gradient norm of each parameter after clipping,
     * before weight decay and LARS; 0 for running statistics. */
    double *param_norm;
    bool want_l2;    /* in: compute l2; equal on all ranks that share */
    bool want_grads; /* in: see rd_optim_step; for ranks that share */
    /* In: an update on a GPU leaves zeros in place of all gradients. A CPU ignores it. Without an
     * update, gradients stay as they are. */
    bool zero_grads;
    /* weight_decay / 2 * sum of squares of the decayed weights, before the update. 0 for decoupled
     * decay, which no loss has. */
    double l2;
} rd_optim_stats;
/* Does one update, in the order of OpenSeq2Seq:
 *   1. gradients *= grad_scale, which is 1 / (loss_scale * weight)
 *   2. norm, clipping
 *   3. g + weight_decay w (L2: adam's moments include it, the printed loss does not), unless the
 *      optimizer decouples the decay
 *   4. LARS, the optimizer's rule
 *   5. running statistics v = momentum v + (1 - momentum) g
 *   6. rd_params_touch
 * Afterwards gradients hold the scaled and clipped values, without decay and LARS. Norms are sums
 * in double in a fixed order (per parameter, blocks of 4096), so the number of threads does not
 * change them. If a gradient or a running statistic is not finite, stats->finite is false and
 * nothing changes.
 *
 * After rd_optim_share it is collective among the ranks of a host, with the same t, lr, grad_scale
 * and gradients. Each rank updates its share, and all see the whole. The bytes are the same as
 * without sharing. A rank's gradients outside its share stay unscaled, unless want_grads asks for
 * all. */
rd_code rd_optim_step(rd_optim *o, int64_t t, double lr, double grad_scale, rd_optim_stats *stats,
                      rd_status *st);
/* Returns grad_norm of the last step; NAN: there was no step. */
double rd_optim_norm(const rd_optim *o);

/* Moves values and slots to one copy that the ranks of a host share, and divides the work of
 * rd_optim_step among them. Collective among the ranks of a host, which hold the same values and
 * slots. rd_optim_free ends the sharing and leaves rd_params_values and the slots NULL. If sharing
 * is not possible, nothing changes and `why` gets the reason ("" for a rank that is alone). A rank
 * may write values afterwards only while no other rank reads them, and all ranks call
 * rd_params_touch then. */
rd_code rd_optim_share(rd_optim *o, rd_comm *c, char why[200], rd_status *st);
/* Returns the n elements of the arenas at which no block of the optimizer is divided, ascending,
 * for rd_shard_plan. The caller frees *out. */
rd_code rd_optim_cuts(const rd_optim *o, int64_t **out, int64_t *n, rd_status *st);
/* Makes the slots after rd_optim_new with `sharded`, and divides the work of rd_optim_step between
 * hosts: each keeps and updates the pieces of s that are its own. s NULL: there is one host, which
 * keeps all. Then shares as rd_optim_share does, where s says so. s is borrowed and outlives o.
 *
 * Collective among all ranks, as are rd_optim_step and rd_optim_swap_ema from now on. Gradients are
 * those of rd_shard_flow; with want_grads, whole ones. The bytes are the same as without. RD_EENV:
 * the ranks of a host cannot share the memory.
 *
 * On GPUs each rank counts as a host (rd_shard_plan.stripe), s is not NULL, and gradients are whole
 * sums. rd_optim_step then has no message. After a finite step the caller copies each rank's pieces
 * of the GPU's values to the other GPUs, and calls rd_optim_guard. */
rd_code rd_optim_shard(rd_optim *o, rd_comm *c, rd_shard *s, char why[200], rd_status *st);
/* Leaves checksums of the weights, which the next step compares, where rd_optim_step has not done
 * so: on GPUs that keep parts of the slots. Else it does nothing. */
rd_code rd_optim_guard(rd_optim *o, rd_status *st);
/* Returns the division; NULL: none. */
rd_shard *rd_optim_shard_of(const rd_optim *o);
/* Returns the elements of a slot that this process's host keeps: all of them without a division. */
int64_t rd_optim_kept(const rd_optim *o);
/* Copies n elements of slot k, from element lo of the arenas on, to those of them that this rank
 * keeps: among ranks that share, the lowest of the host keeps all. */
void rd_optim_put_slot(rd_optim *o, int k, int64_t lo, int64_t n, const float *from);
/* Fills x[0, n) with the values that slot k has before the first update from element lo of the
 * arenas on; `values`: the weights there. */
void rd_optim_first_slot(const rd_optim *o, int k, int64_t n, const float *values, float *x);
/* Ends the sharing as rd_optim_free does. Not collective. Does nothing if nothing is shared. */
void rd_optim_unshare(rd_optim *o);
/* Returns whether the ranks of the host share values and slots. */
bool rd_optim_is_shared(const rd_optim *o);
/* Fills a checksum of each parameter's values, [rd_params_n]; equal bytes have equal checksums.
 * Of a shared copy, the first rank of the host alone fills those of frozen parameters. Collective
 * among the ranks of a host that share. *damaged: a parameter whose values this rank
 * found changed since the last update, now or before an earlier update; -1: none. Only ranks that
 * share can find a change, each in its share, and GPUs that keep parts of the slots. */
rd_code rd_optim_checksums(rd_optim *o, uint64_t *of_param, int *damaged, rd_status *st);

RD_C_END
#endif
