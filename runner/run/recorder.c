/* recorder.c -- the records of rank 0 during a training: TensorBoard events, metrics.jsonl,
 * config.json. logs/METRICS.md lists the tags. A record that cannot be written (a full disk) is
 * reported once and does not end the training. */
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

enum { MOST_COLUMNS = 48, TAG = 64 };

/* The results in the table of hparams: what evaluations of the run write, then the loss. train mode
 * has no metric, but a later evaluation may write its figures. tag keeps their names. */
static void result_tags(const rd_run *r, char tag[RD_METRIC_FIGURES][TAG],
                        rd_event_metric out[RD_METRIC_FIGURES + 3])
{
    const int64_t none[RD_METRIC_COUNTS] = {0};
    const rd_metric_def *m = run_is_image(r) ? NULL : rd_metric_find(r->config.metric);
    rd_figure f[RD_METRIC_FIGURES] = {{.name = ""}};
    rd_status own = {0};
    int n = 0, k = 0;
    if (m && run_scores(r)) n = m->figures(none, f);
    if (run_is_image(r)) n = class_deciding_name(r->spec.n_classes, f[0].name, &own);
    for (int i = 0; i < n; i++) {
        if (m && m->repeats && !strcmp(m->repeats, f[i].name)) continue;
        (void)snprintf(tag[i], TAG, "metrics/%.50s", f[i].name);
        out[k++] = (rd_event_metric){"eval", tag[i]};
    }
    out[k++] = (rd_event_metric){"eval", "loss"};
    out[k++] = (rd_event_metric){"", "loss"};
    out[k] = (rd_event_metric){"", NULL};
}

static bool is_path(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && strchr(s, '/');
}

static void add_column(const char **columns, int *n, const char *key)
{
    for (int i = 0; i < *n; i++)
        if (!strcmp(columns[i], key)) return;
    if (*n < MOST_COLUMNS) columns[(*n)++] = key;
}

/* The columns of the table of hparams: keys that --set gave, keys that most readers look for, then
 * those of the file. Paths and defaults are left out; the text "config" has all. Names are borrowed
 * from `effective`. Returns how many stand at the left: runs usually differ in what --set gave. */
static int result_columns(const json_t *effective, const char *columns[MOST_COLUMNS + 1])
{
    static const char *const usual[] = {"model", "learning_rate", "optimizer", "batch_size",
                                        "batch_size_per_gpu"};
    const char *key;
    json_t *row;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)effective, key, row)
    {
        const char *source = json_string_value(json_object_get(row, "source"));
        const json_t *v = json_object_get(row, "value");
        if (source && !strncmp(source, "--", 2) && !is_path(v)) add_column(columns, &n, key);
    }
    const int given = n;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (json_object_get(effective, usual[i])) add_column(columns, &n, usual[i]);
    const int first = given > 0 ? given : n;
    json_object_foreach((json_t *)(uintptr_t)effective, key, row)
    {
        const char *source = json_string_value(json_object_get(row, "source"));
        const json_t *v = json_object_get(row, "value");
        if (source && strcmp(source, "default") != 0 && strcmp(source, "not set") != 0 &&
            strcmp(source, "forced") != 0 && !is_path(v))
            add_column(columns, &n, key);
    }
    add_column(columns, &n, "ranks");
    columns[n] = NULL;
    return first;
}

/* Writes what TensorBoard's tables and charts begin with. */
static void write_overview(recorder *c, rd_status *st)
{
    static const rd_event_chart charts[] = {
        {"Loss", "loss: mean of the training, and evaluations", {"loss$"}},
        {"Quality", "scores and accuracy", {"metrics/(?!loss|perplexity)"}},
        {"Quality", "perplexity", {"metrics/perplexity$"}},
        {"Optimizer", "learning rate", {"optimizer/learning_rate$"}},
        {"Optimizer",
         "norm of the gradient",
         {"optimizer/gradient_norm$", "optimizer/clipped_gradient_norm$"}},
        {"Speed", "throughput", {"speed/(tokens|images|samples)_per_s$"}},
        {"Speed", "share of the time that waits for input", {"speed/input_wait$"}},
        {"Speed",
         "exchange of gradients, seconds of a step",
         {"ranks/exchange_s$", "ranks/exchange_exposed_s$"}},
        {.title = NULL}};
    char tag[RD_METRIC_FIGURES][TAG];
    rd_event_metric metrics[RD_METRIC_FIGURES + 3];
    const char *columns[MOST_COLUMNS + 1];
    json_t *flat = flat_config(c->run), *effective = rd_config_effective(c->run->keys);
    result_tags(c->run, tag, metrics);
    const int first = result_columns(effective, columns);
    (void)rd_events_hparams(c->events, flat, columns, first, metrics, st);
    (void)rd_events_layout(c->events, charts, st);
    json_decref(effective);
    json_decref(flat);
}

rd_code recorder_new(rd_run *r, recorder **out, rd_status *st)
{
    char path[4200];
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
    write_overview(c, st);
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

void recorder_text(recorder *c, int64_t step, const char *tag, const char *text)
{
    rd_status own = {0};
    if (!c) return;
    (void)rd_events_text(c->events, step, tag, text, &own);
    warn_once(c, &own);
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
    if (s->model_flops > 0.0) {
        add_real(o, "model_flops", s->model_flops);
        add_real(o, "mfu", s->mfu);
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

enum { MOST_NORMS = 30 }; /* variables of a network whose norms are recorded by default */

static bool records_norms(const recorder *c)
{
    int n = 0;
    for (int i = 0; i < rd_params_n(c->run->params); i++)
        n += rd_param_trains(rd_params_at(c->run->params, i));
    return c->run->config.gradient_norms == RUN_NORMS_ON ||
           (c->run->config.gradient_norms == RUN_NORMS_AUTO && n <= MOST_NORMS);
}

/* TensorBoard groups tags by what is in front of the first slash, so the figures of single
 * variables are one group, and the last one. */
static void write_variables(recorder *c, const step_record *s, bool histograms)
{
    rd_params *ps = c->run->params;
    rd_status own = {0}, lost = {0};
    char tag[256];
    const bool norms = s->param_norm && records_norms(c);
    /* A failure of the GPU sticks, and its next call reports it. */
    if (histograms && rd_params_sync_to_host(ps, RD_VALUES | RD_GRADS, &lost) != RD_OK) return;
    for (int i = 0; i < rd_params_n(ps); i++) {
        const rd_param *p = rd_params_at(ps, i);
        if (p->flags & RD_PARAM_FROZEN) continue;
        if (norms && rd_param_trains(p)) {
            (void)snprintf(tag, sizeof tag, "variables/gradient_norm/%s", p->name);
            (void)rd_events_scalar(c->events, s->step, tag, s->param_norm[i], &own);
        }
        if (!histograms) continue;
        if (p->flags & RD_PARAM_STATE) {
            (void)snprintf(tag, sizeof tag, "variables/statistics/%s", p->name);
            (void)rd_events_histogram(c->events, s->step, tag, rd_params_values(ps) + p->offset,
                                      p->n, &own);
            continue;
        }
        (void)snprintf(tag, sizeof tag, "variables/gradients/%s", p->name);
        (void)rd_events_histogram(c->events, s->step, tag, rd_params_grads(ps) + p->offset, p->n,
                                  &own);
        (void)snprintf(tag, sizeof tag, "variables/weights/%s", p->name);
        (void)rd_events_histogram(c->events, s->step, tag, rd_params_values(ps) + p->offset, p->n,
                                  &own);
    }
    warn_once(c, &own);
}

void recorder_step(recorder *c, const step_record *s, bool histograms)
{
    if (!c) return;
    /* TensorBoard sorts groups by their names. "loss" comes first: no other begins below it. */
    recorder_scalar(c, s->step, "loss", s->loss_mean);
    recorder_scalar(c, s->step, "optimizer/learning_rate", s->learning_rate);
    recorder_scalar(c, s->step, "optimizer/gradient_norm", s->grad_norm);
    if (c->run->optim_config.has_max_grad_norm)
        recorder_scalar(c, s->step, "optimizer/clipped_gradient_norm", s->clipped_norm);
    if (s->step_s > 0.0) recorder_scalar(c, s->step, "speed/steps_per_s", 1.0 / s->step_s);
    if (run_is_image(c->run)) {
        char key[TAG], tag[2 * TAG];
        for (int i = 0; i < s->n_means; i++) {
            (void)snprintf(tag, sizeof tag, "metrics/%.50s", s->mean[i].name);
            recorder_scalar(c, s->step, tag, s->mean[i].value);
        }
        (void)snprintf(tag, sizeof tag, "speed/%s", speed_key(c->run, key));
        recorder_scalar(c, s->step, tag, s->samples_per_s);
    } else {
        if (s->n_figures > 0) recorder_scalar(c, s->step, "metrics/accuracy", s->figure[0].value);
        recorder_scalar(c, s->step, "metrics/loss_per_token", s->nll_per_token);
        recorder_scalar(c, s->step, "metrics/perplexity", exp(s->nll_per_token));
        recorder_scalar(c, s->step, "speed/tokens_per_s", s->tokens_per_s);
        recorder_scalar(c, s->step, "speed/target_tokens_per_s", s->target_tokens_per_s);
    }
    recorder_scalar(c, s->step, "speed/input_wait", s->input_wait);
    if (s->ranks) {
        recorder_scalar(c, s->step, "ranks/exchange_s", s->ranks->comm_s);
        recorder_scalar(c, s->step, "ranks/exchange_exposed_s", s->ranks->exposed_s);
        recorder_scalar(c, s->step, "ranks/exchange_bytes", s->ranks->bytes);
        recorder_scalar(c, s->step, "ranks/exchange_wire_bytes", s->ranks->wire_bytes);
        recorder_scalar(c, s->step, "ranks/exchange_bus_gb_per_s", s->ranks->bus_gb_per_s);
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
    recorder_scalar(c, epoch, "per_epoch/loss", mean_loss);
    for (int i = 0; run_is_image(c->run) && i < n; i++) {
        char tag[TAG];
        if (!defs[i]->epoch_tag) continue;
        (void)snprintf(tag, sizeof tag, "per_epoch/%s", defs[i]->epoch_tag);
        recorder_scalar(c, epoch, tag, class_first_figure(k, i).value);
    }
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
