/* train.c -- train and train_eval mode: resumes, loops, ends. train_evaluate.c has the evaluations,
 * train_save.c the log folder and the checkpoints, train_records.c the records.
 *
 * All ranks share the numbers that decide what happens at a step: the step itself, and its control
 * block (step_sums). Rank 0's clock and every rank's signals only add a request to the next control
 * block. So all ranks save, evaluate and stop at the same step without another message. */
#include "peak.h"
#include "console.h"
#include "device.h"
#include "exchange.h"
#include "fault.h"
#include "finite.h"
#include "init_from.h"
#include "measure.h"
#include "patience.h"
#include "recorder.h"
#include "replicas.h"
#include "resume.h"
#include "run_modes.h"
#include "save.h"
#include "setup.h"
#include "signals.h"
#include "starts.h"
#include "trace.h"
#include "train_impl.h"
#include "world.h"
#include "rd/clock.h"
#include "rd/checkpoint.h"
#include "rd/environment.h"
#include "rd/file.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the loop ---- */

enum {
    WARM_UP = 2,
    ENOUGH = 10
}; /* WARM_UP: first steps, which are slower; ENOUGH: number of steps that a summary needs */
#define LINK_SIZE_S 0.1 /* seconds for each size whose exchange is measured at the end */

/* Adds the times of a step. busy_before: times_busy before the step. */
static void add_times(trainer *t, double busy_before, double seconds, const step_sums *sum)
{
    const rd_run *r = t->run;
    const step_comm *c = &t->stepper.comm;
    times_window *w = &t->mine;
    w->steps++;
    w->busy_s += times_busy(&r->times) - busy_before;
    w->comm_s += c->total_s;
    w->exposed_s += c->exposed_s;
    w->bytes += c->bytes;
    w->wire_bytes += c->wire_bytes;
    if (++t->n_steps <= WARM_UP)
        forecast_sums_start(&t->sums, r);
    else
        forecast_sums_add(&t->sums, &t->stepper, seconds, sum->samples,
                          r->model->unit ? sum->samples : sum->tokens_src + sum->tokens_tgt);
}

/* Collective. Prints the shares of a step and the efficiency on more hosts, and writes the figures
 * for plan mode. */
static rd_code summarize(trainer *t, bool stop, rd_status *st)
{
    rd_run *r = t->run;
    forecast_step m;
    rd_strbuf line = {0}, notes = {0};
    rd_status own = {0};
    int per_host = 1;
    if (t->sums.steps < ENOUGH) return RD_OK;
    RD_TRY(forecast_collect(r, &t->sums, &m, st));
    /* A launcher that asked the ranks to stop soon kills them. */
    if (m.hosts > 1 && !stop) {
        RD_TRY(forecast_sweep(r, LINK_SIZE_S, &m, st));
        (void)forecast_calibrate(&m);
    }
    if (r->world->rank != 0) goto done;
    if (rd_logdir_check(r->cli->logdir, r->lock, &own) != RD_OK ||
        forecast_write(&m, r->cli->logdir, &own) != RD_OK)
        rd_warn(r->log, "records are incomplete: %s", own.msg);
    forecast_describe_step(&m, &line);
    rd_info(r->log, "%s", rd_strbuf_str(&line));
    own = (rd_status){0};
    /* One host says little of others; plan mode has the figures. */
    const bool asked = r->world->n_hosts > 1 || r->cli->verbose;
    if (r->world->size > 1 && asked &&
        forecast_change(r->keys, &m, &per_host, &notes, &own) == RD_OK) {
        rd_strbuf_reset(&line);
        forecast_describe_hosts(&m, &line);
        rd_info(r->log, "%s; in full: run_dist --mode=plan --logdir=%s", rd_strbuf_str(&line),
                r->cli->logdir);
    }
done:
    rd_strbuf_release(&line);
    rd_strbuf_release(&notes);
    return st->code;
}

/* scaling: the loss was finite, and its scale could be lowered. That is how a run with float16
 * finds its scale. */
static void report_skip(trainer *t, bool scaling)
{
    rd_run *r = t->run;
    char line[200];
    rd_live(r->log, NULL);
    (void)snprintf(line, sizeof line,
                   "step %" PRId64 " skipped on all ranks: the gradient is not finite (%" PRId64
                   " in a row, %" PRId64 " in all)",
                   r->progress.step, r->progress.skipped_in_row, r->progress.skipped);
    if (scaling)
        rd_info(r->log, "%s; from now on the loss is scaled by %g", line, r->progress.loss_scale);
    else if (r->world->rank == 0)
        rd_warn(r->log, "%s", line);
}

/* Reports a step that was skipped for its loss or the norm of its gradient. */
static void report_spike(trainer *t, const step_sums *sum, const rd_optim_stats *stats)
{
    rd_run *r = t->run;
    t->n_spiked++;
    if (r->world->rank != 0) return;
    rd_live(r->log, NULL);
    rd_warn(r->log,
            "step %" PRId64 " makes no update: its %s %.4g is a spike (%s, %" PRId64 " in all)",
            r->progress.step,
            stats->most_norm > 0.0 && stats->grad_norm > stats->most_norm ? "gradient norm"
                                                                          : "loss per target",
            stats->most_norm > 0.0 && stats->grad_norm > stats->most_norm
                ? stats->grad_norm
                : stepper_loss_per_target(sum),
            stats->most_norm > 0.0 && stats->grad_norm > stats->most_norm ? "spike_norm_z"
                                                                          : "spike_loss_z",
            r->progress.spiked);
}

/* Counts a step that was done or skipped. scale: the loss scale of the step. */
static void count_step(trainer *t, const step_sums *sum, const rd_optim_stats *stats, double scale)
{
    rd_run *r = t->run;
    run_progress *at = &r->progress;
    const bool finite = stats->finite || stats->spike;
    if (stats->spike) report_spike(t, sum, stats);
    const bool scaling = device_scales_loss(r) && isfinite(sum->loss) && scale > 1.0;
    if (finite) {
        at->skipped_in_row = at->bad_in_row = 0;
        return;
    }
    t->n_skipped++;
    at->skipped_in_row++;
    at->bad_in_row += !scaling;
    t->n_bad += !scaling;
    report_skip(t, scaling);
}

/* Fails if the loss has been above its limit for too long. All ranks hold the same sums. */
static rd_code check_divergence(trainer *t, const step_sums *sum, rd_status *st)
{
    rd_run *r = t->run;
    const double limit = r->config.divergence_limit, loss = stepper_loss_per_target(sum);
    const int64_t before = r->progress.diverging;
    if (!isfinite(loss)) return RD_OK; /* such a step is skipped */
    (void)divergence_add(&r->progress.reference, limit, loss, &r->progress.diverging);
    const double level = divergence_level(&r->progress.reference, limit);
    if (before < DIVERGENCE_SHOWN && r->progress.diverging >= DIVERGENCE_SHOWN &&
        r->world->rank == 0) {
        rd_live(r->log, NULL);
        rd_warn(r->log,
                "the training diverges: at step %" PRId64
                " the loss per target is %.4g, above %.4g; if that lasts for %d steps, the run "
                "ends with code 7 (key divergence_limit)",
                r->progress.step, loss, level, DIVERGENCE_STEPS);
    }
    if (r->progress.diverging < DIVERGENCE_STEPS) return RD_OK;
    r->agreed = true;
    return rd_fail(st, RD_ENUMERIC,
                   "the training diverges: for %d steps, up to step %" PRId64
                   ", the loss per target was above %.4g, divergence_limit %g times its reference; "
                   "lower learning_rate, or set max_grad_norm, and start again from the last "
                   "checkpoint",
                   DIVERGENCE_STEPS, r->progress.step, level, limit);
}

/* Warns of what was not finite in this run. Rank 0 prints it. */
static void report_trouble(const trainer *t)
{
    rd_run *r = t->run;
    if (r->world->rank != 0) return;
    if (t->n_skipped > 0)
        (t->n_bad > 0 ? rd_warn : rd_info)(
            r->log,
            "%" PRId64 " of the %" PRId64
            " step%s of this run %s skipped: the gradient was not finite",
            t->n_skipped, t->n_steps, RD_S(t->n_steps), t->n_skipped == 1 ? "was" : "were");
    if (t->n_spiked > 0)
        rd_info(r->log, "%" PRId64 " of the %" PRId64 " step%s of this run made no update: spikes",
                t->n_spiked, t->n_steps, RD_S(t->n_steps));
    if (t->n_bad_evals > 0)
        rd_warn(r->log, "%" PRId64 " evaluation%s of this run %s not finite", t->n_bad_evals,
                RD_S(t->n_bad_evals), t->n_bad_evals == 1 ? "was" : "were");
}

/* Fails if the weights at the end of the training are of no use. It comes after the save, and a
 * later start finds the same in the checkpoint. */
static rd_code check_result(trainer *t, rd_status *st)
{
    rd_run *r = t->run;
    const run_progress *at = &r->progress;
    static const char *const remedy =
        "go on from an earlier checkpoint (move the newer ones away) with a lower learning_rate, "
        "or with max_grad_norm";
    r->agreed = true;
    /* One bad step at the end may be a bad batch. */
    if (at->bad_in_row > 1 || (at->bad_in_row == 1 && at->updates == 0))
        rd_fail(st, RD_ENUMERIC,
                "the result is not usable: the gradient was not finite in the last %" PRId64
                " step%s, up to step %" PRId64 ", the end; %s",
                at->skipped_in_row, RD_S(at->skipped_in_row), at->step, remedy);
    else if (at->diverging >= DIVERGENCE_SHOWN)
        rd_fail(st, RD_ENUMERIC,
                "the result is not usable: the training diverges, and at step %" PRId64
                ", the end, the loss was above its limit for %" PRId64
                " steps (key divergence_limit); %s",
                at->step, at->diverging, remedy);
    else if (at->eval_bad && r->mode == RD_MODE_TRAIN_EVAL)
        rd_fail(st, RD_ENUMERIC,
                "the result is not usable: the last evaluation, up to step %" PRId64
                ", is not finite; %s",
                at->step, remedy);
    else
        r->agreed = false;
    return st->code;
}

/* Checks the skipped steps. before: number of steps skipped in a row on this rank; all: its sum
 * over ranks. Ranks that disagree are no replicas any more, and each has to end the job by itself.
 * Ranks that agree on too many leave together. */
static rd_code check_skips(trainer *t, int64_t before, double all, rd_status *st)
{
    rd_run *r = t->run;
    if (all != (double)before * r->world->size)
        return rd_fail(st, RD_ENUMERIC,
                       "at step %" PRId64
                       " the ranks do not agree on which steps were not finite: their weights "
                       "differ; start again from the last checkpoint, and suspect a machine",
                       r->progress.step);
    if (before < r->config.nonfinite_limit) return RD_OK;
    report_trouble(t);
    r->agreed = true;
    return rd_fail(st, RD_ENUMERIC,
                   "the gradient was not finite in %" PRId64 " step%s in a row, up to step %" PRId64
                   "; lower learning_rate or loss_scale, or set max_grad_norm, and start again "
                   "from the last checkpoint",
                   before, RD_S(before), r->progress.step - 1);
}

/* Fails before a step whose learning rate is inf or NaN as float32: the update would ruin the
 * weights. All ranks compute the same rate. */
static rd_code check_rate(rd_run *r, int64_t step, double lr, rd_status *st)
{
    if (lr >= 0.0 && lr <= (double)FLT_MAX) return RD_OK;
    r->agreed = true;
    return rd_fail(st, RD_ENUMERIC,
                   "the learning rate of step %" PRId64
                   " is %g, which is no float32 number; a decay_rate above 1 does that; correct "
                   "the schedule, and start again from the last checkpoint",
                   step, console_real(lr));
}

/* Is --stop_at_step reached? All ranks agree: they have the same flags. */
static bool train_pauses(const trainer *t)
{
    const int64_t at = t->run->cli->stop_at_step, step = t->run->progress.step;
    return at > 0 && step >= at && step < t->last_step;
}

/* Reports what stopped the training before its end. Fails with RD_ESTOP. */
static rd_code report_stop(const trainer *t, rd_status *st)
{
    rd_run *r = t->run;
    static const char go_on[] = "checkpoint saved; the same command goes on from here";
    const int64_t step = r->progress.step;
    r->agreed = true;
    if (!strcmp(r->ended_by, "request"))
        rd_info(r->log, "stopped on request at step %" PRId64 ", %s", step, go_on);
    else if (!strcmp(r->ended_by, "max_hours"))
        rd_info(r->log, "stopped by max_hours (%g) at step %" PRId64 ", %s", r->config.max_hours,
                step, go_on);
    else
        rd_info(r->log,
                "stopped by stop_at_step at step %" PRId64
                ", checkpoint saved; the same command without --stop_at_step goes on from here",
                step);
    return rd_fail(st, RD_ESTOP, "stopped by %s at step %" PRId64, r->ended_by, step);
}

/* Saves a step if a save is due, and restores the best weights if the rate fell. The end of the run
 * has its own save. */
static rd_code finish_step(trainer *t, bool stop, rd_status *st)
{
    rd_run *r = t->run;
    if (stop || r->progress.step >= t->last_step) return RD_OK;
    if (t->save_due && !train_in_trouble(t)) {
        t->save_due = false;
        RD_TRY(train_save(t, false, st));
    }
    if (r->progress.restore_due) RD_TRY(run_restore_best(r, st));
done:
    return st->code;
}

static rd_code train_one_step(trainer *t, bool *stop, rd_status *st)
{
    rd_run *r = t->run;
    const bool root = r->world->rank == 0;
    const int64_t step = r->progress.step + 1, begin_ns = rd_now_ns(),
                  every = r->cli->summary_frequency;
    const int64_t done_before = train_epochs_done(t), images = r->config.image_frequency;
    const double lr = train_rate(t), scale = r->progress.loss_scale;
    const int64_t skipped_before = r->progress.skipped_in_row;
    const bool due = step == 1 || step % every == 0 || step == t->last_step;
    const int64_t hist = r->config.histogram_frequency;
    const bool histograms = due && hist > 0 && (step == 1 || step % hist == 0);
    /* A signal reaches the ranks at slightly different times. A request right after a save belongs
     * to that save. */
    const bool asked = signals_take_save() && begin_ns - t->last_save_ns > 1000000000;
    t->late = signals_stop() == SIGNALS_LATE;
    const step_sums in = {
        .stop = signals_stop() ? 1.0 : 0.0,
        .save = asked || (root && (begin_ns >= t->next_save_ns || train_logdir_lost(t, begin_ns)))
                    ? 1.0
                    : 0.0,
        .skipped = (double)skipped_before};
    step_sums sum;
    rd_optim_stats stats = {.param_norm = due && root ? t->param_norm : NULL,
                            .want_grads = histograms && (root || exchange_shard(r->exchange))};
    RD_TRY(check_rate(r, step, lr, st));
    RD_TRY(trace_step(r, step, st));
    const double busy = times_busy(&r->times);
    t->stepper.want_sample = due && root;
    /* Pictures are written with the next record. */
    t->stepper.want_pictures = root && run_is_image(r) && images > 0 &&
                               (step == 1 || step % images == 0);
    const rd_code stepped = stepper_step(&t->stepper, lr, &in, &sum, &stats, st);
    t->whole = t->stepper.whole;
    t->retries += sum.retries;
    RD_TRY(stepped);
    if (r->config.record_sample_ids) RD_TRY(sample_ids_write(r, &t->stepper.ids, t->records, st));
    RD_TRY(check_skips(t, skipped_before, sum.skipped, st));
    if (r->started_ns) {
        rd_info(r->log, "first step done %.2f s after the start",
                (double)(rd_now_ns() - r->started_ns) * 1e-9);
        r->started_ns = 0;
    }
    const double seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
    train_sums_add(&r->progress.summary, &sum);
    train_window_add(&t->since_record, &sum, seconds);
    train_window_add(&t->since_epoch, &sum, seconds);
    if (r->config.check_replicas_every > 0 && step % r->config.check_replicas_every == 0)
        RD_TRY(run_check_replicas(r, st));
    add_times(t, busy, seconds, &sum);
    if (due && r->world->size > 1) {
        const int64_t now = rd_now_ns();
        t->mine.wall_s = (double)(now - t->window_ns) * 1e-9;
        t->window_ns = now;
        RD_TRY(times_gather(r, &t->mine, &t->ranks, st));
        t->mine = (times_window){0};
    }
    if (root) train_record(t, &sum, &stats, lr, due);
    if (due) r->progress.summary = (run_sums){0};
    count_step(t, &sum, &stats, scale);
    RD_TRY(check_divergence(t, &sum, st));
    train_end_step_of_epoch(t, &sum, done_before);
    trace_step_end(r);
    *stop = sum.stop > 0.0;
    const bool reached = r->config.max_samples > 0 &&
                         r->progress.all_samples >= r->config.max_samples;
    /* This comes before a save, so that the checkpoint holds what the evaluation changes (best,
     * plateau). A stop request does not wait for it: the next start begins with the evaluation. */
    if (reached && step < t->last_step) {
        t->last_step = step;
        t->length = "max_samples";
    }
    r->progress.eval_due = train_evaluation_due(t, step, done_before);
    r->progress.eval_at_end = !r->progress.eval_due && step == t->last_step &&
                              r->mode == RD_MODE_TRAIN_EVAL;
    if (!*stop && train_evaluation_left(r)) RD_TRY(train_evaluate(t, stop, st));
    *stop |= train_pauses(t);
    const bool save = sum.save > 0.0 || train_checkpoint_due(t, step);
    if (save && !t->save_due && train_in_trouble(t))
        rd_info(r->log,
                "the checkpoint of step %" PRId64
                " waits: it would replace one from before the trouble",
                step);
    t->save_due |= save;
    RD_TRY(finish_step(t, *stop, st));
done:
    return st->code;
}

static rd_code loop(trainer *t, rd_status *st)
{
    rd_run *r = t->run;
    bool stop = false;
    train_set_next_save(t, r->cli->checkpoint_frequency);
    t->window_ns = rd_now_ns();
    const bool left = train_evaluation_left(r);
    if (left) {
        RD_TRY(train_evaluate(t, &stop, st));
        if (!stop) t->saved_step = -1; /* the checkpoint says that the evaluation is due */
    }
    stop |= train_pauses(t);
    /* From here on as at the end of a step. The model file of this step lacks its evaluation; or a
     * kill came between the best file and the model file. */
    t->save_due = (left || r->from_best) && train_checkpoint_due(t, r->progress.step);
    RD_TRY(finish_step(t, stop, st));
    while (r->progress.step < t->last_step && !stop) RD_TRY(train_one_step(t, &stop, st));
    rd_live(r->log, NULL);
    const bool early = stop && (r->progress.step < t->last_step || train_evaluation_left(r));
    r->ended_by = !early ? t->length : t->late ? "max_hours" : "request";
    if (early && !t->late && train_pauses(t) && !signals_stop()) r->ended_by = "stop_at_step";
    if (t->saved_step != r->progress.step) RD_TRY(train_save(t, true, st));
    RD_TRY(summarize(t, stop, st));
    report_trouble(t);
    if (early) {
        (void)report_stop(t, st);
        goto done;
    }
    RD_TRY(check_result(t, st));
done:
    rd_live(r->log, NULL);
    if (st->code != RD_OK && t->whole) train_save_before_end(t);
    if (t->retries > 0.0)
        rd_info(r->log, "%.0f read%s tried again in this run, on all ranks", t->retries,
                t->retries == 1.0 ? " was" : "s were");
    return st->code;
}

/* ---- before and after ---- */

/* Tells the schedule from which step it counts with the present global batch. */
static void find_origin(trainer *t)
{
    rd_run *r = t->run;
    run_progress *p = &r->progress;
    rd_schedule_config *c = &r->schedule_config;
    if (p->moved)
        p->origin = (run_origin){.step = p->step,
                                 .samples = p->seen,
                                 .epoch = (double)p->epoch + stepper_epoch_share(&t->stepper)};
    p->moved = false;
    c->origin_step = p->origin.step;
    c->origin_base = (double)p->origin.samples * run_schedule_ranks(r) /
                     (double)run_update_samples(r);
    c->origin_epoch = p->origin.epoch;
}

/* Finds the last step: --max_steps where it is given, else num_epochs, else the flag's default. Of
 * these and max_epochs, the first ends the training. */
static void find_last_step(trainer *t)
{
    rd_run *r = t->run;
    const int64_t last = setup_last_epoch(r);
    t->last_step = r->cli->max_steps;
    t->length = "max_steps";
    if (r->config.max_samples > 0 && r->progress.all_samples >= r->config.max_samples) {
        t->last_step = r->progress.step;
        t->length = "max_samples";
    }
    const int64_t n = rd_order_n_whole(t->stepper.order);
    rd_schedule_config *c = &r->schedule_config;
    c->epoch_steps = (double)n / (double)run_batches(r);
    find_origin(t);
    /* A schedule that does not set its own end ends here. So a shorter trial of the same config
     * keeps its learning rates. */
    c->end_epoch = r->config.has_num_epochs ? (double)r->config.num_epochs
                   : last < INT64_MAX && !r->cli->max_steps_given
                       ? (double)last
                       : c->origin_epoch + (double)(t->last_step - c->origin_step) / c->epoch_steps;
    if (last == INT64_MAX) return;
    t->stepper.n_epochs = last;
    const int64_t epochs = last - r->progress.epoch;
    const int64_t n_now = rd_order_n_batches(t->stepper.order);
    const int64_t left = epochs > 0 ? (epochs - 1) * n + n_now - r->progress.batch : 0;
    const int64_t end = r->progress.step +
                        (left > 0 ? (left + run_batches(r) - 1) / run_batches(r) : 0);
    const bool steps = r->cli->max_steps_given || r->progress.step >= t->last_step;
    if (steps && end >= t->last_step) return;
    t->last_step = end;
    t->length = r->config.max_epochs == last ? "max_epochs" : "num_epochs";
}

/* Prints the true target tokens of the updates, and those that a system with padding would compute
 * for the same updates. Rank 0 only. */
static void report_updates(const trainer *t)
{
    enum { SAMPLES = 1 << 18 }; /* they are sorted in a fraction of a second */
    const rd_run *r = t->run;
    rd_order_tokens k;
    char mean[32], least[32], most[32], padded[32], more[120] = "";
    rd_order_count_tokens(t->stepper.order, SAMPLES, &k);
    if (k.batches == 0) return;
    if (!r->model->continues) /* windows of a text have no padding */
        (void)snprintf(more, sizeof more,
                       "; padded to the longest sentence of each update they would be %s (%.1f %% "
                       "more)",
                       rd_commas(round((double)k.padded / (double)k.batches), padded),
                       100.0 * (double)(k.padded - k.tokens) / (double)k.tokens);
    rd_info(r->log,
            "target tokens of an update: mean %s, min %s, max %s, in %" PRId64 " update%s%s",
            rd_commas(round((double)k.tokens / (double)k.batches), mean),
            rd_commas((double)k.least, least), rd_commas((double)k.most, most), k.batches,
            RD_S(k.batches), more);
}

static rd_code open_run(trainer *t, rd_status *st)
{
    rd_run *r = t->run;
    bool found = false;
    rd_data_spec spec = {0};
    (void)init_check_keys(r, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(train_open_logdir(t, st));
    RD_TRY(setup_data(r, RD_SPLIT_TRAIN, &r->train_data, st));
    RD_TRY(setup_updates(r, st));
    if (r->mode == RD_MODE_TRAIN_EVAL) RD_TRY(setup_data(r, RD_SPLIT_EVAL, &r->eval_data, st));
    rd_dataset_def_of(r->train_data)->spec(rd_dataset_self(r->train_data), &spec);
    RD_TRY(setup_model(r, &spec, true, st));
    RD_TRY(world_check(r, st));
    if (r->mode == RD_MODE_TRAIN_EVAL && r->world->rank == 0) r->best_measure = measure_of_best(r);
    RD_TRY(run_load(r, "newest", &found, st));
    if (!found && r->config.init_from) RD_TRY(init_weights(r, st));
    t->saved_step = found ? r->progress.step : -1;
    t->stepper.n_epochs = setup_last_epoch(r);
    (void)stepper_open(&t->stepper, st);
    t->param_norm = calloc((size_t)rd_params_n(r->params) + 1, sizeof *t->param_norm);
    if (!t->param_norm) rd_fail(st, RD_EENV, "out of memory");
    RD_TRY(run_agree(r, st));
    find_last_step(t);
    /* A longer run would not have this evaluation. */
    if (r->progress.step < t->last_step) r->progress.eval_at_end = false;
    r->progress.reference.floor = log(fmax(2.0, run_is_image(r) ? (double)r->spec.n_classes
                                                                : (double)r->spec.tgt_vocab_size));
    t->stepper.last_step = t->last_step;
    if (r->progress.samples == 0) r->progress.has_sums = true;
    t->epoch_ns = rd_now_ns();
    world_banner(r, t->last_step, rd_order_n_whole(t->stepper.order),
                 rd_order_n_samples(t->stepper.order));
    if (r->config.has_batch_tokens && r->world->rank == 0) report_updates(t);
done:
    return st->code;
}

/* Sets the end of max_hours. Rank 0's clock counts. */
static void limit_hours(const rd_run *r)
{
    const char *slurm = getenv("SLURM_JOB_START_TIME"), *first = getenv(RD_JOB_START);
    const double now = rd_wall_s();
    double since_s = (double)(rd_now_ns() - r->started_ns) * 1e-9;
    const double at[] = {first ? atof(first) : 0.0,
                         slurm && r->config.max_hours_from == RUN_HOURS_JOB ? atof(slurm) : 0.0};
    for (int i = 0; i < 2; i++)
        if (at[i] > 0.0 && at[i] < now && now - at[i] > since_s) since_s = now - at[i];
    if (r->config.max_hours > 0.0 && r->world->rank == 0)
        signals_limit(rd_now_ns() + (int64_t)((r->config.max_hours * 3600.0 - since_s) * 1e9));
}

/* Collective. Measures the peak that the share of a language model is of. */
static rd_code measure_peak(trainer *t, rd_status *st)
{
    enum { N = 1024, PRODUCTS = 4 };
    rd_run *r = t->run;
    double cpu = 0.0;
    char a[32];
    t->stepper.count_flops = r->model->continues && r->model->flops;
    if (!t->stepper.count_flops) return RD_OK;
    (void)peak_measure(r, N, PRODUCTS, &t->peak, &cpu, st);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_sum_f64(r->comm, &t->peak, 1, st));
    rd_info(r->log,
            "peak of matrix products: %s GFLOP/s; mfu is the share of it that the model's "
            "products are, attention half by its mask",
            rd_commas(t->peak * 1e-9, a));
done:
    return st->code;
}

rd_code run_train(rd_run *r, rd_status *st)
{
    trainer t = {.run = r, .saved_step = -1, .eval = {.lock = -1}};
    char time[32], memory[48] = "";
    t.watched = console_watched(r);
    stepper_init(&t.stepper, r);
    limit_hours(r);
    RD_TRY(open_run(&t, st));
    if (t.saved_step >= 0 && r->world->rank == 0) run_settle(r);
    const bool ended = patience_holds(&r->config, &r->progress) && r->mode == RD_MODE_TRAIN_EVAL;
    if (ended) {
        t.last_step = r->progress.step;
        t.length = "stop_patience";
    }
    /* A kill came between the best file of the last step and its model file. */
    const bool unsaved = r->from_best && r->progress.step == t.last_step;
    if (unsaved) t.saved_step = -1;
    if (ended && !unsaved) {
        rd_info(r->log,
                "nothing to do: the training ended at step %" PRId64 ", after %" PRId64
                " evaluation%s not better than the best one; a larger stop_patience goes on",
                r->progress.step, r->progress.patience.wait,
                r->progress.patience.wait == 1 ? " that was" : "s that were");
        goto done;
    }
    if (r->progress.step >= t.last_step && !unsaved && !train_evaluation_left(r)) {
        rd_info(r->log,
                "nothing to do: step %" PRId64 " of %" PRId64
                " is done; a higher --max_steps (or num_epochs) goes on",
                r->progress.step, t.last_step);
        (void)check_result(&t, st);
        goto done;
    }
    RD_TRY(starts_begin(r, st));
    if (r->world->rank == 0) {
        const rd_dataset_def *def = rd_dataset_def_of(r->train_data);
        /* They cut back and replace files. */
        if (rd_logdir_check(r->cli->logdir, r->lock, st) == RD_OK)
            (void)recorder_new(r, &t.records, st);
        rd_status own = {0};
        if (st->code == RD_OK && def->keep &&
            def->keep(rd_dataset_self(r->train_data), r->cli->logdir, &own) != RD_OK)
            rd_warn(r->log, "the log folder is not whole: %s", own.msg);
        if (st->code == RD_OK && r->mode == RD_MODE_TRAIN_EVAL)
            (void)eval_records_open(r, &t.eval, st);
    }
    RD_TRY(run_agree(r, st));
    RD_TRY(measure_peak(&t, st));
    RD_TRY(trace_open(r, r->progress.step + 1, st));
    const int64_t begin_ns = rd_now_ns();
    RD_TRY(loop(&t, st));
    device_report_work(r);
    if (r->gpu)
        (void)snprintf(memory, sizeof memory, ", of its GPU %.0f MB", device_peak_bytes(r) * 1e-6);
    rd_info(r->log,
            "done: step %" PRId64
            " in %s, ended by %s, peak memory of rank 0 %.0f MB%s; look with: tensorboard --logdir "
            "%s",
            r->progress.step, rd_duration_text((double)(rd_now_ns() - begin_ns) * 1e-9, time),
            r->ended_by, run_peak_bytes() * 1e-6, memory, r->cli->logdir);
done:
    if (r->trace && (st->code == RD_OK || r->agreed)) {
        rd_status own = {0};
        if (trace_finish(r, &own) != RD_OK) rd_warn(r->log, "the trace is not whole: %s", own.msg);
    }
    recorder_free(t.records, st->code == RD_OK || st->code == RD_ESTOP ? 1 : 2);
    eval_records_close(&t.eval);
    stepper_release(&t.stepper);
    free(t.param_norm);
    return st->code;
}
