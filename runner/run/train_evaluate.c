/* train_evaluate.c -- the evaluations of a training, and what follows from them: the best
 * checkpoint, a lower rate (plateau), and the end (stop_patience).
 *
 * The order at a checkpoint is: evaluate, compare with the best, lower the rate, save. Then the
 * best weights are restored, if the rate fell and plateau_restore is set. So the file of a step
 * holds the weights that were evaluated, and its manifest says that a start from it begins with
 * the restore. */
#include "keep_best.h"
#include "patience.h"
#include "recorder.h"
#include "resume.h"
#include "save.h"
#include "signals.h"
#include "text_samples.h"
#include "train_impl.h"
#include "rd/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Applies the plateau rule. All ranks hold the same figures. Returns whether the rate fell. */
static bool apply_plateau(trainer *t, const eval_result *v)
{
    rd_run *r = t->run;
    const rd_schedule_point now = train_point(t);
    const rd_figure f = r->schedule_config.plateau_monitor == RD_MONITOR_FIGURE
                            ? eval_main_figure(v)
                            : (rd_figure){"loss", v->loss, false};
    const double rate = train_rate(t) /
                        rd_schedule_factor(&r->schedule_config, run_schedule_ranks(r));
    if (!rd_plateau_update(&r->schedule_config, &r->progress.plateau, f.value, f.higher_is_better,
                           rate, rd_schedule_warming(&r->schedule_config, &now)))
        return false;
    rd_info(r->log,
            "plateau: the %s has not improved on %.6g in %" PRId64
            " evaluation%s; the rate falls to %.6g",
            f.name, r->progress.plateau.best, r->schedule_config.plateau_patience,
            RD_S(r->schedule_config.plateau_patience), train_rate(t));
    return true;
}

/* Rank 0: keeps the checkpoint of an evaluation that is among the best, and removes the one that no
 * longer is. The best one is saved elsewhere. */
static void keep_top(trainer *t, const rd_figure *now, bool best)
{
    rd_run *r = t->run;
    rd_status own = {0};
    bool in;
    if (r->config.checkpoint_keep_best <= 1) return;
    const int64_t leaves = keep_best_add(&r->progress, r->config.checkpoint_keep_best, now->value,
                                         now->higher_is_better, &in);
    if (in && !best && rd_logdir_check(r->cli->logdir, r->lock, &own) == RD_OK) {
        recorder_flush(t->records);
        (void)run_save(r, "top", 0, &own);
    }
    if (own.code != RD_OK)
        rd_warn(r->log, "%s; training goes on", own.msg);
    else
        rd_ckpt_remove(r->cli->logdir, "top", leaves);
}

/* Rank 0: reports an evaluation and saves the best checkpoint. Fails if the log folder is another
 * one now. what: the figure that is not finite, if there is one. */
static rd_code record_evaluation(trainer *t, eval_result *v, const char *what, rd_status *st)
{
    rd_run *r = t->run;
    rd_status own = {0};
    const rd_figure now = eval_best_figure(r, v);
    const double best = r->progress.best;
    v->training = true;
    v->epoch = (double)r->progress.epoch + stepper_epoch_share(&t->stepper);
    v->learning_rate = train_rate(t);
    v->best = !r->progress.eval_bad &&
              (r->progress.best_step < 0 || !isfinite(best) ||
               (now.higher_is_better ? now.value > best : now.value < best));
    if (eval_report(r, &t->eval, v, &own) != RD_OK)
        rd_warn(r->log, "records are incomplete: %s", own.msg);
    own = (rd_status){0};
    if (r->progress.eval_bad) {
        rd_warn(r->log,
                "the evaluation at step %" PRId64
                " is not finite: %s; it is not compared with the best one",
                r->progress.step, what);
        goto done;
    }
    keep_top(t, &now, v->best);
    if (r->model->continues && text_samples(r, t->records, &own) != RD_OK)
        rd_warn(r->log, "no sample of text: %s", own.msg);
    own = (rd_status){0};
    if (v->best) {
        recorder_flush(t->records); /* a resume may begin here and write later lines only */
        RD_TRY(rd_logdir_check(r->cli->logdir, r->lock, st));
        if (run_save_best(r, now.value, &own) == RD_OK)
            rd_good(r->log, "best so far: best-%" PRId64 ".npz (%s %.4g)", r->progress.step,
                    now.name, now.value);
        else if (rd_logdir_check(r->cli->logdir, r->lock, st) == RD_OK)
            rd_warn(r->log, "%s; training goes on", own.msg);
    }
done:
    return st->code;
}

/* Updates what all ranks know of the evaluations: early stopping, the plateau rule. */
static void follow_evaluation(trainer *t, const eval_result *v, bool regular)
{
    rd_run *r = t->run;
    run_progress *at = &r->progress;
    const rd_figure f = eval_best_figure(r, v);
    at->evaluated = (run_evaluated){.step = at->step,
                                    .value = f.value,
                                    .loss = v->loss,
                                    .higher_is_better = f.higher_is_better};
    (void)snprintf(at->evaluated.name, sizeof at->evaluated.name, "%s", f.name);
    if (!regular) return;
    patience_update(&at->patience, at->eval_bad ? NAN : f.value, f.higher_is_better,
                    r->config.stop_min_delta);
    if (apply_plateau(t, v)) at->restore_due = r->schedule_config.plateau_restore;
    at->patience.stopped = patience_ends(&r->config, at,
                                         (double)at->epoch + stepper_epoch_share(&t->stepper));
    if (!at->patience.stopped) return;
    t->last_step = at->step;
    t->length = "stop_patience";
    rd_info(r->log,
            "the training ends at step %" PRId64 ": %" PRId64
            " evaluation%s not better than %s %.6g (stop_patience)",
            at->step, at->patience.wait, at->patience.wait == 1 ? " was" : "s in a row were",
            f.name, at->patience.best);
}

/* Evaluates the averages of the weights if there are any, else the weights. */
static rd_code evaluate_average(rd_run *r, eval_result *v, rd_status *st)
{
    rd_status own = {.rank = -1};
    RD_TRY(rd_optim_swap_ema(r->optim, st));
    (void)run_evaluate(r, v, st);
    /* After a failure that not all ranks know of, this rank ends the job. */
    if ((st->code == RD_OK || st->code == RD_ESTOP || r->agreed) &&
        rd_optim_swap_ema(r->optim, &own) != RD_OK)
        *st = own;
done:
    return st->code;
}

bool train_evaluation_left(const rd_run *r)
{
    return (r->progress.eval_due || r->progress.eval_at_end) && r->mode == RD_MODE_TRAIN_EVAL;
}

rd_code train_evaluate(trainer *t, bool *stop, rd_status *st)
{
    rd_run *r = t->run;
    const bool regular = r->progress.eval_due;
    eval_result v = {0};
    char what[160];
    times_enter(r, TIMES_EVALUATE);
    if (evaluate_average(r, &v, st) == RD_ESTOP) {
        *st = (rd_status){.rank = -1};
        r->agreed = false;
        *stop = true;
        rd_info(r->log,
                "the evaluation at step %" PRId64
                " is left: asked to stop; the same command begins with it",
                r->progress.step);
        t->late = signals_stop() == SIGNALS_LATE;
    }
    times_enter(r, TIMES_NONE);
    t->whole = st->code != RD_OK && r->agreed;
    if (*stop || st->code != RD_OK) goto done;
    r->progress.eval_due = r->progress.eval_at_end = false;
    r->progress.eval_bad = !eval_is_finite(&v, what);
    t->n_bad_evals += r->progress.eval_bad;
    follow_evaluation(t, &v, regular);
    RD_TRY(run_bring_state(r, st));
    if (r->world->rank == 0) (void)record_evaluation(t, &v, what, st);
    (void)run_lend_state(r, st);
    (void)run_agree(r, st);
done:
    eval_result_release(&v);
    return st->code;
}

bool train_checkpoint_due(const trainer *t, int64_t step)
{
    const int64_t every = t->run->config.checkpoint_steps;
    return every > 0 && step % every == 0;
}

bool train_evaluation_due(const trainer *t, int64_t step, int64_t done_before)
{
    const rd_run *r = t->run;
    const int64_t every = r->config.eval_epochs, done = train_epochs_done(t);
    if (r->mode != RD_MODE_TRAIN_EVAL) return false;
    if (every > 0 && done / every != done_before / every) return true;
    if (train_checkpoint_due(t, step)) return true;
    const bool by_default = every == 0 && r->config.checkpoint_steps == 0;
    return (by_default || r->config.has_eval_frequency) && step % r->config.eval_frequency == 0;
}
