/* recorder.c -- the records of rank 0 during a training: TensorBoard events, metrics.jsonl,
 * config.json. Tags have the names of OpenSeq2Seq where it had one. A record that cannot be written
 * (a full disk) is reported once and does not end the training. */
#include "recorder.h"
#include "rd/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct recorder {
    rd_run *run;
    rd_events *events;
    rd_metrics *metrics;
    rd_metrics *samples; /* NULL: the ids of samples are not recorded */
    bool warned;
};

static void warn_once(recorder *c, rd_status *st)
{
    if (st->code == RD_OK) return;
    if (!c->warned) rd_warn(c->run->log, "records are incomplete: %s", st->msg);
    c->warned = true;
}

/* Returns key -> value of the whole config, for hparams. */
static json_t *flat_config(const rd_run *r)
{
    json_t *effective = rd_config_effective(r->keys), *flat = json_object(), *row;
    const char *key;
    json_object_foreach(effective, key, row)
    {
        json_t *v = json_object_get(row, "value");
        if (v && !json_is_null(v)) (void)json_object_set(flat, key, v);
    }
    (void)json_object_set_new(flat, "ranks", json_integer(r->world->size));
    json_decref(effective);
    return flat;
}

static void write_config(recorder *c, rd_status *st)
{
    char path[4200];
    json_t *effective = rd_config_effective(c->run->keys);
    /* They are left out of this start only. */
    if (effective && c->run->dropped) (void)json_object_update(effective, c->run->dropped);
    char *text = effective ? json_dumps(effective, JSON_INDENT(2)) : NULL;
    json_decref(effective);
    if (!text) {
        rd_fail(st, RD_EENV, "out of memory for config.json");
        return;
    }
    (void)snprintf(path, sizeof path, "%.4000s/config.json", c->run->cli->logdir);
    if (rd_file_write_atomic(path, text, strlen(text), st) == RD_OK) {
        rd_strbuf md = {0};
        rd_strbuf_printf(&md, "```json\n%s\n```\n", text);
        (void)rd_events_text(c->events, c->run->progress.step, "config", rd_strbuf_str(&md), st);
        rd_strbuf_release(&md);
    }
    free(text);
}

/* "eval_accuracy" */
static const char *evaluation_tag(const rd_figure *f, char out[64])
{
    (void)snprintf(out, 64, "eval_%s", f->name);
    return out;
}

enum { OWN_TAGS = 2 };

/* Adds the tags of the figures that evaluations of the run write. train mode has no metric, but a
 * later evaluation may write its figures. f keeps their names. */
static void figure_tags(const rd_run *r, rd_figure f[RD_METRIC_FIGURES], const char **tags)
{
    const int64_t none[RD_METRIC_COUNTS] = {0};
    const rd_metric_def *m = rd_metric_find(r->config.metric);
    if (!m || !r->model->decode || !run_flag(r, "eval_bleu", true)) return;
    const int n = m->figures(none, f);
    for (int i = 0; i < n; i++) tags[i] = f[i].name;
}

rd_code recorder_new(rd_run *r, recorder **out, rd_status *st)
{
    rd_figure f[RD_METRIC_FIGURES] = {{.name = ""}};
    char eval_tag[64] = "";
    const char *tags[OWN_TAGS + RD_METRIC_FIGURES + 1] = {"loss",
                                                          "Loss_Optimization/learning_rate"};
    char path[4200];
    json_t *flat = NULL;
    recorder *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return rd_fail(st, RD_EENV, "out of memory");
    c->run = r;
    (void)snprintf(path, sizeof path, "%.4000s/metrics.jsonl", r->cli->logdir);
    RD_TRY(rd_metrics_new(path, r->progress.step, &c->metrics, st));
    if (r->config.record_sample_ids) {
        (void)snprintf(path, sizeof path, "%.4000s/samples.jsonl", r->cli->logdir);
        RD_TRY(rd_metrics_new(path, r->progress.step, &c->samples, st));
    }
    RD_TRY(rd_events_new(r->cli->logdir, r->progress.step, &c->events, st));
    write_config(c, st);
    if (!run_is_image(r)) {
        figure_tags(r, f, tags + OWN_TAGS);
    } else if (class_deciding_name(r->spec.n_classes, f->name, st)) {
        tags[OWN_TAGS] = f->name;
        tags[OWN_TAGS + 1] = evaluation_tag(f, eval_tag);
    }
    flat = flat_config(r);
    (void)rd_events_hparams(c->events, flat, tags, st);
    json_decref(flat);
    (void)rd_events_flush(c->events, st);
    RD_TRY(st->code);
    *out = c;
    return RD_OK;
done:
    rd_events_free(c->events);
    rd_metrics_free(c->samples);
    rd_metrics_free(c->metrics);
    free(c);
    return st->code;
}

void recorder_free(recorder *c, int end_status)
{
    rd_status own = {0};
    if (!c) return;
    (void)rd_events_end(c->events, end_status, &own);
    warn_once(c, &own);
    rd_events_free(c->events);
    rd_metrics_free(c->samples);
    rd_metrics_free(c->metrics);
    free(c);
}

void recorder_flush(recorder *c)
{
    rd_status own = {0};
    if (!c) return;
    (void)rd_events_flush(c->events, &own);
    warn_once(c, &own);
}

void recorder_scalar(recorder *c, int64_t step, const char *tag, double v)
{
    rd_status own = {0};
    if (!c) return;
    (void)rd_events_scalar(c->events, step, tag, v, &own);
    warn_once(c, &own);
}

/* JSON has no NaN: such a value is null. */
static void add_real(json_t *o, const char *key, double v)
{
    (void)json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static void add_int(json_t *o, const char *key, double v)
{
    (void)json_object_set_new(o, key, json_integer((json_int_t)v));
}

/* "images_per_s" */
static const char *speed_key(const rd_run *r, char out[64])
{
    (void)snprintf(out, 64, "%.40s_per_s", r->model->unit ? r->model->unit : "samples");
    return out;
}

/* Adds the exchange of gradients and the spread of the ranks' times. */
static void add_ranks(json_t *o, const step_record *s)
{
    const rank_times *t = s->ranks;
    add_real(o, "comm_s", t->comm_s);
    add_real(o, "comm_exposed_s", t->exposed_s);
    add_real(o, "comm_bytes", t->bytes);
    add_real(o, "comm_wire_bytes", t->wire_bytes);
    add_real(o, "comm_bus_gb_per_s", t->bus_gb_per_s);
    if (s->comm_algorithm)
        (void)json_object_set_new(o, "comm_algorithm", json_string(s->comm_algorithm));
    add_real(o, "rank_s_min", t->min_s);
    add_real(o, "rank_s_mean", t->mean_s);
    add_real(o, "rank_s_max", t->max_s);
    add_int(o, "slowest_rank", t->slowest);
}

static void write_metrics(recorder *c, const step_record *s)
{
    rd_status own = {0};
    const bool image = run_is_image(c->run);
    char key[64];
    json_t *o = json_object();
    add_int(o, "step", (double)s->step);
    add_int(o, "epoch", (double)s->epoch);
    add_real(o, "loss", s->loss);
    add_real(o, "loss_mean", s->loss_mean);
    if (!image) {
        add_real(o, "loss_per_token", s->nll_per_token);
        add_real(o, "perplexity", exp(s->nll_per_token));
    }
    for (int i = 0; i < s->n_figures; i++) add_real(o, s->figure[i].name, s->figure[i].value);
    for (int i = 0; i < s->n_means; i++) {
        (void)snprintf(key, sizeof key, "%s_mean", s->mean[i].name);
        add_real(o, key, s->mean[i].value);
    }
    add_real(o, "learning_rate", s->learning_rate);
    add_real(o, "grad_norm", s->grad_norm);
    if (image) {
        add_real(o, speed_key(c->run, key), s->samples_per_s);
    } else {
        add_real(o, "tokens_per_s", s->tokens_per_s);
        add_real(o, "target_tokens_per_s", s->target_tokens_per_s);
    }
    add_real(o, "samples_per_s", s->samples_per_s);
    add_real(o, "step_s", s->step_s);
    add_real(o, "input_wait", s->input_wait);
    if (s->ranks) add_ranks(o, s);
    add_int(o, "samples", s->samples);
    add_int(o, "epoch_samples", (double)s->epoch_samples);
    (void)json_object_set_new(o, "epoch_samples_hash",
                              json_integer((json_int_t)s->epoch_samples_hash));
    add_int(o, "targets", s->targets);
    add_int(o, "skipped", (double)s->skipped);
    if (c->run->config.spike_loss_z > 0.0 || c->run->config.spike_norm_z > 0.0)
        add_int(o, "spiked", (double)s->spiked);
    add_int(o, "read_retries", s->read_retries);
    add_int(o, "step_memory_bytes", s->step_bytes);
    add_real(o, "time", rd_wall_s());
    (void)rd_metrics_write(c->metrics, o, &own);
    warn_once(c, &own);
}

static void write_variables(recorder *c, const step_record *s, bool histograms)
{
    rd_params *ps = c->run->params;
    rd_status own = {0}, lost = {0};
    char tag[256];
    /* A failure of the GPU sticks, and its next call reports it. */
    if (histograms && rd_params_sync_to_host(ps, RD_VALUES | RD_GRADS, &lost) != RD_OK) return;
    for (int i = 0; i < rd_params_n(ps); i++) {
        const rd_param *p = rd_params_at(ps, i);
        if (s->param_norm && !(p->flags & RD_PARAM_STATE)) {
            (void)snprintf(tag, sizeof tag, "Loss_Optimization/gradient_norm/%s_0", p->name);
            (void)rd_events_scalar(c->events, s->step, tag, s->param_norm[i], &own);
        }
        if (!histograms) continue;
        if (p->flags & RD_PARAM_STATE) {
            (void)snprintf(tag, sizeof tag, "statistics/%s_0", p->name);
            (void)rd_events_histogram(c->events, s->step, tag, rd_params_values(ps) + p->offset,
                                      p->n, &own);
            continue;
        }
        (void)snprintf(tag, sizeof tag, "Loss_Optimization/gradients/%s_0", p->name);
        (void)rd_events_histogram(c->events, s->step, tag, rd_params_grads(ps) + p->offset, p->n,
                                  &own);
        (void)snprintf(tag, sizeof tag, "weights/%s_0", p->name);
        (void)rd_events_histogram(c->events, s->step, tag, rd_params_values(ps) + p->offset, p->n,
                                  &own);
    }
    warn_once(c, &own);
}

void recorder_step(recorder *c, const step_record *s, bool histograms)
{
    if (!c) return;
    recorder_scalar(c, s->step, "loss", s->loss);
    recorder_scalar(c, s->step, "Loss_Optimization/loss", s->loss);
    recorder_scalar(c, s->step, "Loss_Optimization/learning_rate", s->learning_rate);
    recorder_scalar(c, s->step, "Loss_Optimization/global_norm/gradient_norm", s->grad_norm);
    if (c->run->optim_config.has_max_grad_norm)
        recorder_scalar(c, s->step, "Loss_Optimization/global_norm/clipped_gradient_norm",
                        s->clipped_norm);
    if (s->n_figures > 0) recorder_scalar(c, s->step, s->figure[0].name, s->figure[0].value);
    if (s->step_s > 0.0) recorder_scalar(c, s->step, "global_step/sec", 1.0 / s->step_s);
    if (run_is_image(c->run)) {
        char key[64];
        for (int i = 1; i < s->n_figures; i++)
            recorder_scalar(c, s->step, s->figure[i].name, s->figure[i].value);
        recorder_scalar(c, s->step, speed_key(c->run, key), s->samples_per_s);
    } else {
        recorder_scalar(c, s->step, "loss_per_token", s->nll_per_token);
        recorder_scalar(c, s->step, "perplexity", exp(s->nll_per_token));
        recorder_scalar(c, s->step, "tokens_per_s/source_and_target", s->tokens_per_s);
        recorder_scalar(c, s->step, "tokens_per_s/target", s->target_tokens_per_s);
    }
    recorder_scalar(c, s->step, "input_wait", s->input_wait);
    if (s->ranks) {
        recorder_scalar(c, s->step, "communication/total_s", s->ranks->comm_s);
        recorder_scalar(c, s->step, "communication/exposed_s", s->ranks->exposed_s);
        recorder_scalar(c, s->step, "communication/bytes", s->ranks->bytes);
        recorder_scalar(c, s->step, "communication/wire_bytes", s->ranks->wire_bytes);
        recorder_scalar(c, s->step, "communication/bus_gb_per_s", s->ranks->bus_gb_per_s);
        recorder_scalar(c, s->step, "ranks/step_s_min", s->ranks->min_s);
        recorder_scalar(c, s->step, "ranks/step_s_mean", s->ranks->mean_s);
        recorder_scalar(c, s->step, "ranks/step_s_max", s->ranks->max_s);
        recorder_scalar(c, s->step, "ranks/slowest", s->ranks->slowest);
    }
    write_variables(c, s, histograms);
    write_metrics(c, s);
}

void recorder_sample(recorder *c, int64_t step, const char *source, const char *target,
                     const char *predicted)
{
    rd_status own = {0};
    rd_strbuf md = {0};
    if (!c) return;
    rd_strbuf_printf(&md, "    source:     %s\n    target:     %s\n    prediction: %s\n", source,
                     target, predicted);
    (void)rd_events_text(c->events, step, "sample", rd_strbuf_str(&md), &own);
    rd_strbuf_release(&md);
    warn_once(c, &own);
}

void recorder_epoch(recorder *c, int64_t epoch, double mean_loss, const class_counts *k)
{
    int n;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n);
    if (!c) return;
    recorder_scalar(c, epoch, "TrainEpochLoss", mean_loss);
    for (int i = 0; run_is_image(c->run) && i < n; i++)
        if (defs[i]->epoch_tag)
            recorder_scalar(c, epoch, defs[i]->epoch_tag, class_first_figure(k, i).value);
}

void recorder_evaluation(recorder *c, int64_t step, const rd_figure *f)
{
    char tag[64];
    recorder_scalar(c, step, evaluation_tag(f, tag), f->value);
}

void recorder_samples(recorder *c, int64_t step, int64_t epoch, json_t *ids_stolen)
{
    rd_status own = {0};
    if (!c || !c->samples) {
        json_decref(ids_stolen);
        return;
    }
    (void)rd_metrics_write(c->samples,
                           json_pack("{s:I, s:I, s:o}", "step", (json_int_t)step, "epoch",
                                     (json_int_t)epoch, "samples", ids_stolen),
                           &own);
    warn_once(c, &own);
}

void recorder_pictures(recorder *c, int64_t step, const gallery *g)
{
    rd_status own = {0};
    if (!c) return;
    gallery_write(c->events, step, "samples", g, c->run->train_data, &own);
    warn_once(c, &own);
}
