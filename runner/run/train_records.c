/* train_records.c -- the position in the schedule, and the sums and records of the steps and epochs
 * of a training. */
#include "console.h"
#include "device.h"
#include "recorder.h"
#include "signals.h"
#include "train_impl.h"
#include "rd/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

int64_t train_epochs_done(const trainer *t)
{
    const run_progress *at = &t->run->progress;
    return at->epoch +
           (t->stepper.order && at->batch >= rd_order_n_batches(t->stepper.order) ? 1 : 0);
}

rd_schedule_point train_point(const trainer *t)
{
    const rd_run *r = t->run;
    return (rd_schedule_point){
        .step = r->progress.step,
        .n_ranks = run_schedule_ranks(r),
        .epoch = (double)r->progress.epoch + stepper_epoch_share(&t->stepper),
        .part = stepper_step_share(&t->stepper),
        .multiplier = r->schedule_config.has_plateau ? r->progress.plateau.factor : 1.0};
}

double train_rate(const trainer *t)
{
    const rd_schedule_point p = train_point(t);
    return rd_schedule_rate(&t->run->schedule_config, &p);
}

void train_window_add(train_window *w, const step_sums *sum, double seconds)
{
    w->seconds += seconds;
    w->steps++;
    w->input_s += sum->input_s;
    w->src += sum->tokens_src;
    w->tgt += sum->tokens_tgt;
    w->samples += sum->samples;
    w->retries += sum->retries;
    w->flops += sum->flops;
}

void train_sums_add(run_sums *s, const step_sums *step)
{
    s->samples += step->samples;
    s->targets += step->targets;
    for (int i = 0; i < STEP_CLASS_COUNTS; i++) s->classes[i] += step->classes[i];
    if (!isfinite(step->loss)) return;
    s->loss += step->loss;
    s->weight += step->weight;
    s->nll += step->nll;
    s->nll_targets += step->targets;
}

static double ratio(double a, double b)
{
    return b > 0.0 ? a / b : NAN;
}

/* Fills the figures of class metrics. */
static void fill_classes(const rd_run *r, const step_sums *sum, step_record *s)
{
    int64_t at[STEP_CLASS_COUNTS];
    const run_sums *w = &r->progress.summary;
    class_counts k = class_counts_of_sums(sum->classes, sum->targets, r->spec.n_classes, at);
    s->n_figures = class_figures(&k, s->figure);
    k = class_counts_of_sums(w->classes, w->targets, r->spec.n_classes, at);
    s->n_means = class_figures(&k, s->mean);
    class_lines(&k, RD_CLASS_STEP, "  ", s->class_line, sizeof s->class_line);
}

static void fill_record(const trainer *t, const step_sums *sum, const rd_optim_stats *stats,
                        double lr, step_record *s)
{
    const rd_run *r = t->run;
    const train_window *w = &t->since_record;
    const run_sums *means = &r->progress.summary;
    const double wall = w->seconds > 0.0 ? w->seconds : 1e-9;
    *s = (step_record){.step = r->progress.step,
                       .epoch = r->progress.epoch,
                       .epoch_part = stepper_epoch_share(&t->stepper),
                       .loss = ratio(sum->loss, sum->weight),
                       .loss_mean = ratio(means->loss, means->weight),
                       .nll_mean = ratio(means->nll, means->nll_targets),
                       .nll_per_token = ratio(sum->nll, sum->targets),
                       /* steps of other ranks may be longer than those of rank 0 */
                       .input_wait = fmin(1.0, w->input_s / (wall * r->world->size)),
                       .learning_rate = lr,
                       .grad_norm = stats->grad_norm,
                       .clipped_norm = stats->clipped_norm,
                       .param_norm = stats->finite ? stats->param_norm : NULL,
                       .tokens_per_s = (w->src + w->tgt) / wall,
                       .target_tokens_per_s = w->tgt / wall,
                       .samples_per_s = w->samples / wall,
                       .step_s = w->steps > 0 ? w->seconds / (double)w->steps : NAN,
                       .model_flops = w->steps > 0 ? w->flops / (double)w->steps : 0.0,
                       .mfu = t->peak > 0.0 ? w->flops / wall / t->peak : 0.0,
                       .samples = sum->samples,
                       .targets = sum->targets,
                       .epoch_samples = r->progress.samples,
                       .epoch_samples_hash = r->progress.samples_hash,
                       .skipped = r->progress.skipped,
                       .spiked = r->progress.spiked,
                       .read_retries = w->retries,
                       .ranks = r->world->size > 1 ? &t->ranks : NULL,
                       .comm_algorithm = t->stepper.comm.algorithm,
                       .step_bytes = r->gpu ? device_peak_bytes(r)
                                            : (double)rd_arena_peak(rd_tape_arena(r->tape))};
    s->eta_s = s->step_s * (double)(t->last_step - r->progress.step);
    if (signals_left_s() < s->eta_s) s->eta_s = signals_left_s();
    if (run_is_image(r)) {
        fill_classes(r, sum, s);
    } else {
        s->figure[0] = (rd_figure){"accuracy", ratio(sum->correct, sum->targets), true};
        s->n_figures = 1;
    }
}

/* Reports the end of an epoch. done_before: epochs done before the step. */
static void report_epoch(trainer *t, int64_t done_before)
{
    rd_run *r = t->run;
    const run_sums *s = &r->progress.sums;
    char time[32], count[32], speed[32], classes[384], more[512] = "";
    int64_t at[STEP_CLASS_COUNTS];
    const train_window *w = &t->since_epoch;
    const int64_t done = train_epochs_done(t);
    if (done == done_before) return;
    const double mean = ratio(s->loss, s->weight);
    const class_counts k = class_counts_of_sums(s->classes, s->targets, r->spec.n_classes, at);
    if (r->progress.has_sums) {
        class_lines(&k, RD_CLASS_EPOCH, ", ", classes, sizeof classes);
        if (run_is_image(r))
            (void)snprintf(more, sizeof more, "%s, %s %s/s, input wait %.1f %%", classes,
                           rd_commas(ratio(w->samples, w->seconds), speed),
                           r->model->unit ? r->model->unit : "samples",
                           fmin(100.0, 100.0 * w->input_s / (w->seconds * r->world->size)));
        rd_info(r->log,
                "epoch %" PRId64 " done at step %" PRId64 ": %s sample%s, mean loss %.4f%s, %s",
                done, r->progress.step, rd_commas(s->samples, count), RD_S(s->samples),
                console_real(mean), more,
                rd_duration_text((double)(rd_now_ns() - t->epoch_ns) * 1e-9, time));
        recorder_epoch(t->records, done - 1, mean, &k);
    } else {
        rd_info(r->log,
                "epoch %" PRId64 " done at step %" PRId64
                ": its mean loss is not known, because the checkpoint of an earlier program had no "
                "sums of the epoch",
                done, r->progress.step);
    }
    t->epoch_ns = rd_now_ns();
    t->since_epoch = (train_window){0};
    r->progress.sums = (run_sums){0};
    r->progress.has_sums = true;
}

void train_end_step_of_epoch(trainer *t, const step_sums *sum, int64_t done_before)
{
    run_sums *s = &t->run->progress.sums;
    const step_sums *before = &t->stepper.before;
    const bool apart = t->stepper.crossed && train_epochs_done(t) == done_before + 1;
    step_sums rest = *sum;
    train_sums_add(s, apart ? before : sum);
    report_epoch(t, done_before);
    if (!apart) return;
    rest.samples -= before->samples;
    rest.targets -= before->targets;
    for (int i = 0; i < STEP_CLASS_COUNTS; i++) rest.classes[i] -= before->classes[i];
    rest.loss -= before->loss;
    rest.weight -= before->weight;
    rest.nll -= before->nll;
    train_sums_add(s, &rest);
}

void train_record(trainer *t, const step_sums *sum, const rd_optim_stats *stats, double lr,
                  bool due)
{
    rd_run *r = t->run;
    step_record s;
    const int64_t now = rd_now_ns();
    if (!due && (!t->watched || now - t->last_live_ns < 100000000)) return;
    fill_record(t, sum, stats, lr, &s);
    t->last_live_ns = now;
    if (!due) {
        console_live(r, &s);
        return;
    }
    const int64_t hist = r->config.histogram_frequency;
    console_step(r, &s);
    if (s.read_retries > 0.0)
        rd_warn(r->log,
                "%.0f read%s tried again since the record before, %.0f in this run; check the disk "
                "or the file server",
                s.read_retries, s.read_retries == 1.0 ? " was" : "s were", t->retries);
    recorder_step(t->records, &s, hist > 0 && (s.step == 1 || s.step % hist == 0));
    if (t->stepper.pictures.n > 0) {
        recorder_pictures(t->records, s.step, &t->stepper.pictures);
        t->stepper.pictures.n = 0;
    }
    const console_texts *texts = &t->stepper.texts;
    if (texts->source.n || texts->target.n) {
        const int64_t every = r->config.sample_summaries;
        if (r->config.print_samples && t->n_records % every == 0) console_sample(r, "Train", texts);
        recorder_sample(t->records, s.step, rd_strbuf_str(&texts->source),
                        rd_strbuf_str(&texts->target), rd_strbuf_str(&texts->predicted));
    }
    t->n_records++;
    t->since_record = (train_window){0};
}
