/* stepper.h -- one step: batches, forward, backward, the sum over ranks, and the update. */
#ifndef RD_RUN_STEPPER_H
#define RD_RUN_STEPPER_H

#include "class_counts.h"
#include "console.h"
#include "pictures.h"
#include "run.h"
#include "sample_ids.h"

/* Sums over the samples of all ranks: the control block of a step. Doubles only. */
typedef struct step_sums {
    double loss, weight, nll, targets, correct, tokens_src, tokens_tgt, samples;
    double classes[STEP_CLASS_COUNTS]; /* counts of the class metrics */
    double hash;                       /* sum of hashes of the sample ids */
    double input_s;                    /* time spent waiting for input */
    double flops;                      /* where stepper.count_flops */
    double stop, save;                 /* number of ranks with a request */
    double lost;                       /* number of ranks that cannot read their samples */
    double retries;                    /* reads that were tried again since the step before */
    double skipped; /* number of steps skipped in a row before this one, summed over ranks */
} step_sums;

/* Samples of this rank: one micro-batch of a global batch. */
typedef struct step_share {
    int64_t epoch;
    int64_t batch;       /* -1: none */
    int64_t micro_batch; /* index among this rank's micro-batches */
    int64_t n;           /* number of samples */
    int64_t n_global;    /* number of samples of the global batch */
    int64_t capacity;
    int64_t *ids; /* owned; [capacity] */
} step_share;

typedef struct stepper stepper;
struct stepper {
    rd_run *run;

    /* order of the samples */
    rd_order *order;      /* owned; of epoch order_epoch */
    rd_order *next_order; /* owned; of the epoch after it; NULL: not made yet */
    int64_t order_epoch;  /* -1: none yet */
    int64_t n_epochs;     /* training ends before this epoch; INT64_MAX: no end */
    int64_t last_step;    /* training ends after this step; no batch is announced beyond it */

    /* micro-batches of a global batch: one per rank, or those of key micro_batches, or iter_size
     * for each rank if the global batch is a whole update */
    int64_t n_micro_batches;
    int64_t n_own; /* of this rank */
    bool by_tree;  /* their gradients are added along a fixed tree, else one after the other */
    /* owned; [span] where the gradients are stored: sums of 1, 2, 4, ... micro-batches. NULL: not
     * needed yet */
    float *sum[32];

    /* batches of this rank */
    step_share now;      /* in work */
    step_share next;     /* announced to the dataset */
    step_share after;    /* announced when `next` was fetched ahead; batch -1: none */
    rd_batch ahead;      /* GPU: data of `next`, in run->other_batch_arena */
    int64_t ahead_swaps; /* `ahead` is valid while run->batch_swaps has this value; 0: never */
    double ahead_s;      /* time of fetching `ahead` */
    double late_s;       /* the part of it in which the GPU was idle; counts for the next step */
    /* Makes a batch. NULL: batches come from the dataset. Bench mode sets it. */
    rd_code (*make)(stepper *s, rd_batch *out, rd_status *st);

    /* what the next step keeps for the records */
    bool want_sample; /* texts of one sample */
    console_texts texts;
    bool want_pictures; /* some images */
    gallery pictures;
    /* The last step began in an epoch that ended before its last batch (iter_size). before: sums of
     * all ranks over its batches of that epoch. */
    bool crossed;
    step_sums before;
    bool count_flops;
    sample_ids ids; /* of this rank; empty without record_sample_ids */

    /* times of the last step on this rank */
    double input_s;        /* waiting for input */
    double comm_s;         /* in the sums over ranks */
    double backward_s;     /* host time of the last backward; 0: none */
    double since[TIMES_N]; /* run_times.seconds before this step */
    step_comm comm;        /* of the gradients */

    rd_status lost;       /* why this rank cannot read its samples */
    int64_t retries_seen; /* rd_retries at the last step */
    /* After a failure: all ranks know of it, and run->progress and the weights are those of the
     * last whole step. */
    bool whole;
};

void stepper_init(stepper *s, rd_run *r);
void stepper_release(stepper *s);

/* Makes the order of the present epoch. A position at its end stays there, so a checkpoint that is
 * saved again before the next step has the same bytes. Not collective. */
rd_code stepper_open(stepper *s, rd_status *st);
/* Makes the order of the next batch. A position at the end of an epoch moves to the begin of the
 * next one. Not collective. */
rd_code stepper_prepare(stepper *s, rd_status *st);

/* Returns the share of the present epoch that is done, 0 .. 1: of its batches or, where the global
 * batch has changed within the epoch, of its samples. */
double stepper_epoch_share(const stepper *s);

/* Returns the share of an epoch that a step is, in the same measure. */
double stepper_step_share(const stepper *s);

/* Is no batch left before n_epochs? */
bool stepper_done(const stepper *s);

/* Returns the loss per target of a step. A model without a likelihood gives its loss. */
double stepper_loss_per_target(const step_sums *sum);

/* Collective. Computes the gradients of iter_size global batches, sums them over the ranks, and
 * makes one update. *in carries this rank's requests (stop, save), *out the sums of all ranks.
 * stats->finite false: all ranks skipped the step; stats->spike says why. If a rank cannot read
 * its samples, it goes on without any; the sums tell the other ranks, and all of them fail with
 * `whole` set. */
rd_code stepper_step(stepper *s, double lr, const step_sums *in, step_sums *out,
                     rd_optim_stats *stats, rd_status *st);

#endif
