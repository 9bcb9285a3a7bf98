/* train_impl.h -- what the files of a training share. */
#ifndef RD_RUN_TRAIN_IMPL_H
#define RD_RUN_TRAIN_IMPL_H

#include "evaluate.h"
#include "forecast.h"
#include "stepper.h"
#include "times.h"

/* Sums over steps of this start, for speeds. */
typedef struct train_window {
    double seconds, input_s, src, tgt, samples;
    double retries; /* reads that were tried again */
    double flops;   /* of the model */
    int64_t steps;
} train_window;

typedef struct trainer {
    rd_run *run;
    stepper stepper;
    recorder *records;  /* rank 0 */
    eval_records eval;  /* rank 0 in train_eval mode */
    double *param_norm; /* [parameters] */
    bool watched;       /* a terminal shows the live line */
    bool late;          /* rank 0: max_hours asked to stop */
    int64_t last_step;  /* the run ends after this step */
    const char *length; /* what gave it: "max_steps" */
    int64_t saved_step; /* step of the newest checkpoint; -1: none */
    int64_t next_save_ns, last_save_ns, last_live_ns, looked_ns;
    int64_t failed_saves; /* in a row */
    bool save_due;        /* a periodic save waits for a step that is finite */
    int64_t n_skipped, n_bad, n_bad_evals, n_spiked; /* of this run */
    /* sums since the last record, and since the epoch began */
    train_window since_record, since_epoch;
    times_window mine;  /* of this rank, since the last record */
    int64_t window_ns;  /* its begin */
    rank_times ranks;   /* times at the last record */
    forecast_sums sums; /* for the summary at the end */
    int64_t n_steps;    /* number of steps of this run */
    int64_t n_records;  /* number of summaries of this run */
    int64_t epoch_ns;
    double retries; /* reads that were tried again in this run, on all ranks */
    double peak;    /* measured FLOP/s of products, of all ranks; 0: not measured */
    bool whole;     /* after a failure: as stepper.whole */
} trainer;

/* ---- train_evaluate.c ---- */

/* Returns whether checkpoint_steps asks for a checkpoint after this step. */
bool train_checkpoint_due(const trainer *t, int64_t step);
/* Returns whether a regular evaluation follows this step. done_before: epochs done before it. */
bool train_evaluation_due(const trainer *t, int64_t step, int64_t done_before);
/* Returns whether the evaluation of this step is due. */
bool train_evaluation_left(const rd_run *r);
/* Collective. Makes the evaluation that is due. A longer run would not have one that only the end
 * of the run causes (eval_at_end), so the plateau rule and early stopping ignore it. *stop: all
 * ranks were asked to stop and left the evaluation, which remains due. */
rd_code train_evaluate(trainer *t, bool *stop, rd_status *st);

/* ---- train_save.c ---- */

/* Collective. Makes the log folder and locks it. The reports of the last failure move to
 * errors/previous/. */
rd_code train_open_logdir(trainer *t, rd_status *st);
/* Sets the time of the next periodic save. */
void train_set_next_save(trainer *t, int64_t in_s);
/* Returns whether the last step was skipped, or the loss is above its limit for some time. Then the
 * weights may be worse than those of earlier checkpoints. All ranks agree on it. */
bool train_in_trouble(const trainer *t);
/* Rank 0: looks for the log folder every ten seconds. Returns whether another run may have it. The
 * save that follows ends the run. */
bool train_logdir_lost(trainer *t, int64_t now_ns);
/* Collective. The failure of a periodic save is a warning. The failure of the last one (must) is an
 * error on all ranks, and so is a log folder that is another one now. */
rd_code train_save(trainer *t, bool must, rd_status *st);
/* Collective, after a failure that all ranks know of and that left the weights of the last whole
 * step. Saves that step, so that the next start goes on from it. The failure stays. */
void train_save_before_end(trainer *t);

/* ---- train_records.c ---- */

/* Returns the position of the next step in the schedule, and its learning rate. */
rd_schedule_point train_point(const trainer *t);
double train_rate(const trainer *t);
/* Returns the number of epochs done. */
int64_t train_epochs_done(const trainer *t);
/* Adds a step to sums; to a window. */
void train_sums_add(run_sums *s, const step_sums *step);
void train_window_add(train_window *w, const step_sums *sum, double seconds);
/* Adds the sums of a step to those of its epoch, and reports the end of the epoch. The batches of a
 * step that belong to the epoch after it are counted there. done_before: epochs done before the
 * step. */
void train_end_step_of_epoch(trainer *t, const step_sums *sum, int64_t done_before);
/* Records a step. Rank 0 only. due: a full record; otherwise only the live line. */
void train_record(trainer *t, const step_sums *sum, const rd_optim_stats *stats, double lr,
                  bool due);

#endif
