/* optim_impl.h -- the struct of an optimizer and its blocks, for the files of this folder:
 * optim.c makes it, optim_sweeps.c does an update on a CPU and optim_gpu.cu on a GPU,
 * optim_share.c divides blocks and memory among the ranks of a host, and optim_shard.c among
 * hosts. */
#ifndef RD_OPTIM_IMPL_H
#define RD_OPTIM_IMPL_H

#include "rd/optim.h"

enum { RD_OPTIM_LANES = 16 };

typedef struct rd_optim_block {
    int64_t lo, n; /* elements [lo, lo + n) of the arenas, all of one parameter */
    int param;     /* index of that parameter */
    int64_t row;   /* as in rd_update */
    int64_t at;    /* first element in a slot: lo, or less if the host keeps a part of the slots */
    int host;      /* the host that updates the block; 0 without a division between hosts */
} rd_optim_block;

typedef struct rd_optim_blocks {
    rd_optim_block *at; /* owned */
    int64_t n;
    int64_t longest; /* number of elements of the largest block */
    /* Owned; the first n_own entries are the blocks that this rank updates: all blocks, unless
     * ranks or hosts share the work. */
    int64_t *own;
    int64_t n_own;
} rd_optim_blocks;

/* The checksum of a frozen parameter. */
typedef struct rd_optim_frozen {
    uint64_t version; /* rd_params_version_of its values; 0: none yet */
    uint64_t sum;
} rd_optim_frozen;

/* The arguments of one step, for the sweeps. */
typedef struct rd_optim_job {
    int64_t t;    /* number of the step, from 1 */
    double lr;    /* learning rate */
    float scale;  /* factor on all gradients */
    bool weights; /* the first sweep also sums squares of weights */
} rd_optim_job;

/* The sweeps of one kind of backend. */
typedef struct rd_optim_sweeps {
    /* Makes o->gpu: lists and sums in the memory of the parameters' GPU. Called when it is known
     * which blocks this rank updates. Does nothing on a CPU. */
    rd_code (*open)(rd_optim *o, rd_status *st);
    void (*close)(rd_optim *o);
    /* Does both sweeps and fills all of *stats. */
    rd_code (*step)(rd_optim *o, const rd_optim_job *job, rd_optim_stats *stats, rd_status *st);
    /* Writes rd_optim_block_sum of the values of each block of the update; on a CPU, of each block
     * of this rank. */
    rd_code (*sums)(rd_optim *o, uint64_t *sum, rd_status *st);
    rd_code (*guard)(rd_optim *o, rd_status *st); /* see rd_optim_guard */
} rd_optim_sweeps;

struct rd_optim {
    const rd_optim_sweeps *sweeps; /* those of the parameters' backend */
    rd_optim_config c;
    const rd_optimizer_def *def;
    rd_params *p;           /* borrowed */
    int first_slot;         /* number of the optimizer's first slot in p */
    bool ema;               /* the slot after those of the definition has averages of the weights */
    bool swapped;           /* that slot has the weights now; see rd_optim_swap_ema */
    bool sums_held;         /* before that, o->sum described the weights */
    int n_threads;          /* number of threads of a sweep */
    bool trust;             /* LARS: each parameter has a factor */
    bool decay;             /* weight decay is on, and the gradient includes it */
    bool decoupled;         /* weight decay is on, and the optimizer decouples it */
    rd_optim_blocks norm;   /* the blocks of norms */
    rd_optim_blocks update; /* the blocks of the update; whole rows if the optimizer skips rows */
    /* [norm.n] sums of squares of gradients and weights of each block. Owned; or a part of the
     * shared memory. */
    double *g_sq, *w_sq;
    double *g_norm;          /* owned; norm of the gradient by parameter */
    float *factor;           /* owned; factor of LARS by parameter */
    float *scratch;          /* owned; for each thread the gradient after decay and LARS */
    rd_optim_frozen *frozen; /* owned; by parameter; NULL: no checksums yet */
    double last_norm;        /* grad_norm of the last step; NAN: no step yet */

    /* Only if the ranks of a host share weights, slots and work. Else the pointers are NULL, and
     * this rank does all the work. */

    rd_comm *comm;          /* borrowed */
    void *shared;           /* owned; values, slots, g_sq, w_sq and sum */
    size_t shared_bytes;    /* size of that memory */
    int64_t own_lo, own_hi; /* this rank does the blocks that begin at elements [own_lo, own_hi) */
    uint64_t *sum;          /* [update.n] rd_optim_block_sum of the values at sum_version */
    uint64_t sum_version;   /* version of the parameters; 0: there are no sums yet */
    int64_t damaged;        /* lowest block of this rank with another checksum; -1: none */
    /* On GPUs that keep parts of the slots, o->gpu has the sums of sum_version. */

    /* Blocks of the update whose checksums this rank computes: all; or those in its range, those
     * that other hosts update included. Owned; [n_guard]. */
    int64_t *guard;
    int64_t n_guard;

    /* Only if hosts keep parts of the slots, see optim_shard.c. */

    rd_shard *shard; /* borrowed; NULL: each host keeps all */
    int *norm_host;  /* owned; [norm.n]; host of each block of the norms */

    struct rd_optim_gpu *gpu; /* made by sweeps->open, freed by sweeps->close; NULL on a CPU */
};

RD_C_BEGIN

/* Returns a checksum of the bits of n values. */
uint64_t rd_optim_block_sum(const float *x, int64_t n);
/* Returns whether the checksums that the last update left describe the present values. */
bool rd_optim_sums_hold(const rd_optim *o);
/* Returns whether a parameter is a running statistic, which no optimizer updates. */
static inline bool rd_optim_is_state(const rd_optim *o, int param)
{
    return (rd_params_at(o->p, param)->flags & RD_PARAM_STATE) != 0;
}
/* Returns whether this rank updates a block. */
static inline bool rd_optim_is_own(const rd_optim *o, const rd_optim_block *b)
{
    return (!o->shared || (b->lo >= o->own_lo && b->lo < o->own_hi)) &&
           (!o->shard || b->host == rd_shard_host(o->shard));
}
/* Fills `own` of both lists, and `guard`. */
void rd_optim_take_own(rd_optim *o);
/* Writes the values before the first update to this rank's blocks of the slots from k on. */
void rd_optim_fill_own(rd_optim *o, int k);
/* Collective. Gives all hosts the sums of squares of blocks, after the first sweep (optim_shard.c).
 * weights: those of weights, too. Does nothing without a division between hosts. */
rd_code rd_optim_spread_norms(rd_optim *o, bool weights, rd_status *st);
/* Collective. Gives all hosts the weights that each has updated, and makes their checksums. The
 * ranks of the host have ended their updates. */
rd_code rd_optim_spread_weights(rd_optim *o, rd_status *st);
/* Returns whether the gradient of a parameter gets weight decay. */
bool rd_optim_decays(const rd_optim *o, int param);
/* Returns the share of the way to the weights that update t, from 1, moves their average. */
float rd_optim_ema_share(const rd_optim *o, int64_t t);
/* Returns the decoupled weight decay of a parameter; 0: none. */
double rd_optim_decoupled(const rd_optim *o, int param);
/* Fills the norms of *stats after the first sweep, which has set grad_norm. Returns the factor of
 * clipping. */
double rd_optim_report(rd_optim *o, rd_optim_stats *stats);
/* Reads the keys that this optimizer alone reads (optimizers.c). */
rd_code rd_optim_own_read(const rd_optimizer_def *def, const rd_config *cfg, rd_mode mode,
                          rd_optim_own *out, rd_status *st);
/* Fills the same keys with their defaults. */
rd_code rd_optim_own_defaults(const rd_optimizer_def *def, rd_optim_own *out, rd_status *st);
/* Computes the sums of this rank's blocks, and sets o->damaged if one differs from the sum that the
 * last update left. */
rd_code rd_optim_sum_own(rd_optim *o, uint64_t *sum, rd_status *st);
extern const rd_optim_sweeps rd_optim_cpu_sweeps; /* optim_sweeps.c */
extern const rd_optim_sweeps rd_optim_gpu_sweeps; /* optim_gpu.cu */
extern const double rd_optim_lars_unknown;        /* factor of lars_nu if a norm is zero */

RD_C_END

#endif
