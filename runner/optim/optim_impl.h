/* optim_impl.h -- what optim.c, optim_sweeps.c (one update), optim_gpu.cu (the same on a GPU) and optim_share.c (who does which part of it, in whose
 * memory) share. */
#ifndef RD_OPTIM_IMPL_H
#define RD_OPTIM_IMPL_H

#include "rd/optim.h"

enum { RD_OPTIM_LANES = 16 };

typedef struct rd_optim_block {
    int64_t lo, n; /* elements [lo, lo + n) of the arenas, all of one parameter */
    int param;
    int64_t row; /* as in rd_update */
} rd_optim_block;

typedef struct rd_optim_blocks {
    rd_optim_block *at; /* owned */
    int64_t n;
    int64_t longest; /* elements */
    int64_t *
        own; /* owned, [n]: which of them this rank does; all, until a host's ranks share the work */
    int64_t n_own;
} rd_optim_blocks;

/* What one step gives to the sweeps. */
typedef struct rd_optim_job {
    int64_t t;
    double lr;
    float scale;
    bool weights; /* the first sweep sums squares of weights, too */
} rd_optim_job;

/* The sweeps on one kind of backend. */
typedef struct rd_optim_sweeps {
    /* Makes o->gpu: lists and sums in the memory of the parameters' GPU. Nothing on a CPU. */
    rd_code (*open)(rd_optim *o, rd_status *st);
    void (*close)(rd_optim *o);
    /* Both sweeps. Fills all of stats. */
    rd_code (*step)(rd_optim *o, const rd_optim_job *job, rd_optim_stats *stats, rd_status *st);
    /* Writes rd_optim_block_sum of the values of each block of the update (on a CPU: of this rank's blocks). */
    rd_code (*sums)(rd_optim *o, uint64_t *sum, rd_status *st);
} rd_optim_sweeps;

struct rd_optim {
    const rd_optim_sweeps *sweeps; /* of the backend that the parameters are on */
    rd_optim_config c;
    const rd_optimizer_def *def;
    rd_params *p; /* borrowed */
    int first_slot, n_threads;
    bool trust, decay;            /* a factor for each parameter; weight decay */
    rd_optim_blocks norm, update; /* update is cut at rows where the optimizer skips some */
    double *g_sq,
        *w_sq; /* [norm.n]: sums of squares of a block; in the shared memory where there is one */
    double *g_norm; /* owned, [parameters] */
    float *factor;  /* owned, [parameters]: LARS */
    float *
        scratch; /* owned, [n_threads * update.longest]: what the optimizer is given for the gradient */
    double last_norm; /* grad_norm of the last step; NAN: none yet */
    /* Where the ranks of a host share weights, slots and the work (else NULL, and all of it is this rank's): */
    rd_comm *comm; /* borrowed */
    void *shared;  /* owned: values, slots, g_sq, w_sq, sum */
    size_t shared_bytes;
    int64_t own_lo, own_hi; /* elements of the arenas: this rank does the blocks that begin here */
    uint64_t *
        sum; /* [update.n]: rd_optim_block_sum of the values, as they were at version sum_version */
    uint64_t sum_version; /* of the parameters; 0: there are no sums yet */
    int64_t
        damaged; /* lowest block of this rank whose values were others than its sum says; -1: none */
    struct rd_optim_gpu *gpu; /* owned by sweeps->open and close; NULL on a CPU */
};

RD_C_BEGIN

/* Checksum of n values, bit for bit. */
uint64_t rd_optim_block_sum(const float *x, int64_t n);
bool rd_optim_sums_hold(const rd_optim *o); /* does sum describe the present values? */
/* Is it a running statistic, which no optimizer updates? */
static inline bool rd_optim_is_state(const rd_optim *o, int param)
{
    return (rd_params_at(o->p, param)->flags & RD_PARAM_STATE) != 0;
}
bool rd_optim_decays(const rd_optim *o, int param);
/* What the caller of rd_optim_step learns of the first sweep. Returns the factor of clipping. */
double rd_optim_report(rd_optim *o, rd_optim_stats *stats);
/* The sums of this rank's blocks; what differs from those that the last update left is noted. */
rd_code rd_optim_sum_own(rd_optim *o, uint64_t *sum, rd_status *st);
extern const rd_optim_sweeps rd_optim_cpu_sweeps; /* optim_sweeps.c */
extern const rd_optim_sweeps rd_optim_gpu_sweeps; /* optim_gpu.cu */
extern const double rd_optim_lars_unknown;        /* factor where a norm is zero */

RD_C_END

#endif
