/* resume.c -- reads checkpoints of a run, and checks that they fit the config.
 *
 * save.c says what a checkpoint holds. Rank 0 reads it, and gives values, slots and progress to all
 * ranks. */
#include "resume.h"
#include "device.h"
#include "finite.h"
#include "keep_best.h"
#include "meaning.h"
#include "published.h"
#include "progress.h"
#include "replicas.h"
#include "save.h"
#include "spikes.h"
#include "rd/checkpoint.h"
#include "rd/npz.h"
#include "rd/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- does a checkpoint fit? ---- */

static const json_t *meta_of(const rd_ckpt *c)
{
    const json_t *m = json_object_get(c->meta, "meta");
    return m ? m : c->meta;
}

static int64_t meta_int(const json_t *m, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(m, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : dflt;
}

static void shape_text(const int64_t *dim, int n, rd_strbuf *out)
{
    rd_strbuf_puts(out, "(");
    for (int i = 0; i < n; i++) rd_strbuf_printf(out, "%s%" PRId64, i ? ", " : "", dim[i]);
    rd_strbuf_puts(out, ")");
}

/* Fails with the reason, the keys that have changed, and the two remedies. */
static rd_code resume_refuse(const rd_run *r, const rd_ckpt *c, rd_status *st, const char *why)
{
    rd_strbuf keys = {0};
    meaning_changed(r, meta_of(c), 4, &keys);
    rd_fail(st, RD_ECKPT,
            "%s does not fit the config: %s%s%s; go on with the config it was made with, or start "
            "anew in another --logdir",
            c->path, why, keys.n ? "; changed keys: " : "", rd_strbuf_str(&keys));
    rd_strbuf_release(&keys);
    return st->code;
}

static rd_code check_vocab(const rd_run *r, const rd_ckpt *c, const char *key, const char *side,
                           uint64_t now, rd_status *st)
{
    char have[20], why[120];
    const json_t *v = json_object_get(meta_of(c), key);
    save_hex(now, have);
    if (!json_is_string(v) || strcmp(json_string_value(v), have) == 0) return RD_OK;
    (void)snprintf(
        why, sizeof why,
        "the %s vocabulary is not the one it was trained with, so the ids mean other words", side);
    return resume_refuse(r, c, st, why);
}

/* Refuses a checkpoint of another subword model, or of text without one. */
static rd_code check_subword(const rd_run *r, const rd_ckpt *c, rd_status *st)
{
    char now[20];
    const char *was = json_string_value(json_object_get(meta_of(c), "subword_hash"));
    save_hex(r->spec.subword_hash, now);
    if (was ? strcmp(was, now) == 0 : r->spec.subword_hash == 0) return RD_OK;
    return resume_refuse(r, c, st,
                         "the subword model is not the one it was trained with, so the text is "
                         "split in another way");
}

static rd_code check_classes(const rd_run *r, const rd_ckpt *c, rd_status *st)
{
    rd_strbuf why = {0};
    if (meaning_other_classes(json_object_get(meta_of(c), "classes"), &r->spec, &why))
        (void)resume_refuse(r, c, st, rd_strbuf_str(&why));
    rd_strbuf_release(&why);
    return st->code;
}

static rd_code resume_check_array(const rd_run *r, const rd_ckpt *c, const rd_param *p,
                                  const rd_array *a, rd_status *st)
{
    rd_strbuf why = {0};
    bool same = a && a->n_dim == p->n_dim;
    for (int i = 0; same && i < p->n_dim; i++) same = a->dim[i] == p->dim[i];
    if (!a) {
        rd_strbuf_printf(&why, "it has no '%s'", p->name);
    } else if (!same) {
        rd_strbuf_printf(&why, "'%s' is ", p->name);
        shape_text(a->dim, a->n_dim, &why);
        rd_strbuf_puts(&why, " there and ");
        shape_text(p->dim, p->n_dim, &why);
        rd_strbuf_puts(&why, " in the model");
    } else if (strcmp(a->descr, "<f4") != 0) {
        rd_strbuf_printf(&why, "'%s' has type %s, not <f4", p->name, a->descr);
    }
    if (why.n) (void)resume_refuse(r, c, st, rd_strbuf_str(&why));
    rd_strbuf_release(&why);
    return st->code;
}

/* Refuses arrays that the model does not have: a smaller model must not load the checkpoint of a
 * larger one. */
static rd_code check_extra(const rd_run *r, const rd_ckpt *c, rd_status *st)
{
    char why[300];
    for (int i = 0; i < rd_npz_n(c->npz); i++) {
        const rd_array *a = rd_npz_at(c->npz, i);
        const char *slash = strrchr(a->name, '/');
        char owner[sizeof a->name];
        if (strcmp(a->name, "manifest.json") == 0 || rd_params_find(r->params, a->name)) continue;
        (void)snprintf(owner, sizeof owner, "%.*s", slash ? (int)(slash - a->name) : 0, a->name);
        if (slash && rd_params_find(r->params, owner)) continue; /* an optimizer array */
        (void)snprintf(why, sizeof why, "the model has no '%s'", a->name);
        return resume_refuse(r, c, st, why);
    }
    return RD_OK;
}

/* Returns the average of a parameter; NULL: there is none. */
static const rd_array *average_of(const rd_ckpt *c, const rd_param *p)
{
    char name[sizeof p->name + 8];
    (void)snprintf(name, sizeof name, "%s/ema", p->name);
    const rd_array *a = rd_npz_find(c->npz, name);
    return a && strcmp(a->descr, "<f4") == 0 && a->bytes == (size_t)p->n * sizeof(float) ? a : NULL;
}

/* Copies the weights, or (not for a training) their averages where ema is set. */
static rd_code copy_values(rd_run *r, const rd_ckpt *c, rd_status *st)
{
    const bool average = !r->optim && run_real(r, "ema", 0.0) > 0.0;
    int n_averages = 0;
    RD_TRY(rd_params_sync_to_host(r->params, RD_VALUES, st));
    for (int i = 0; i < rd_params_n(r->params); i++) {
        const rd_param *p = rd_params_at(r->params, i);
        const rd_array *a = rd_npz_find(c->npz, p->name), *mean = average ? average_of(c, p) : NULL;
        RD_TRY(resume_check_array(r, c, p, a, st));
        n_averages += mean != NULL;
        memcpy(rd_params_values(r->params) + p->offset, (mean ? mean : a)->data,
               (size_t)p->n * sizeof(float));
    }
    if (average)
        rd_info(r->log, n_averages > 0 ? "the averages of the weights are used (ema)"
                                       : "the checkpoint has no averages of the weights (ema), so "
                                         "the weights are used");
done:
    return st->code;
}

/* The slots of a checkpoint, for hosts that keep parts of them. */
typedef struct slot_file {
    rd_run *run;
    rd_ckpt c;          /* owned; has the arrays */
    const float **from; /* owned; [parameters][slots]; NULL: the slot of the parameter begins anew.
                         * NULL as a whole: rank 0 has the slots */
} slot_file;

static void slot_file_release(slot_file *f)
{
    rd_ckpt_release(&f->c);
    free(f->from);
    f->from = NULL;
}

/* Finds where the elements of slot k are. */
static void slot_file_fill(void *ctx, int k, int64_t lo, int64_t n, float *x)
{
    const slot_file *f = ctx;
    const rd_params *ps = f->run->params;
    memset(x, 0, (size_t)n * sizeof *x);
    for (int i = 0; i < rd_params_n(ps); i++) {
        const rd_param *p = rd_params_at(ps, i);
        const int64_t at = p->offset > lo ? p->offset : lo, end = p->offset + p->n,
                      to = end < lo + n ? end : lo + n;
        const float *from = f->from[p->index * rd_params_n_slots(ps) + k];
        if (at >= to || !rd_param_trains(p)) continue;
        if (from)
            memcpy(x + (at - lo), from + (at - p->offset), (size_t)(to - at) * sizeof *x);
        else
            rd_optim_first_slot(f->run->optim, k, to - at, rd_params_values(ps) + at,
                                x + (at - lo));
    }
}

/* Takes slot k of a parameter from an array. */
static void take_slot(slot_file *f, const rd_param *p, int k, const rd_array *a)
{
    const rd_params *ps = f->run->params;
    if (f->from)
        f->from[p->index * rd_params_n_slots(ps) + k] = a->data;
    else
        memcpy(rd_params_slot(ps, k) + p->offset, a->data, a->bytes);
}

/* Takes the averages of the weights; those that are missing begin with the weights. */
static void take_averages(slot_file *f)
{
    const rd_run *r = f->run;
    const int k = rd_optim_ema_slot(r->optim);
    if (k < 0) return;
    if (!f->from) rd_optim_start_ema(r->optim);
    for (int i = 0; i < rd_params_n(r->params); i++) {
        const rd_param *p = rd_params_at(r->params, i);
        const rd_array *a = average_of(&f->c, p);
        if (a && rd_param_trains(p)) take_slot(f, p, k, a);
    }
}

/* Takes the optimizer's state: copies it to the slots of rank 0, or finds it for slot_file_fill. */
static rd_code take_slots(slot_file *f, rd_status *st)
{
    rd_run *r = f->run;
    const rd_ckpt *c = &f->c;
    const rd_optimizer_def *o = rd_optim_def(r->optim);
    const json_t *was = json_object_get(meta_of(c), "optimizer");
    if (rd_optim_shard_of(r->optim)) {
        f->from = calloc((size_t)rd_params_n(r->params) * (size_t)rd_params_n_slots(r->params) + 1,
                         sizeof *f->from);
        if (!f->from) return rd_fail(st, RD_EENV, "out of memory for the list of arrays");
    }
    if (rd_params_sync_to_host(r->params, RD_VALUES | RD_SLOTS, st) != RD_OK) return st->code;
    take_averages(f);
    if (r->config.reset_optimizer) {
        rd_info(r->log, "the optimizer's state starts anew (reset_optimizer)");
        return RD_OK;
    }
    bool fits = !json_is_string(was) ||
                /* sgd has no slots that could be missing */
                strcmp(json_string_value(was), o->name) == 0;
    for (int i = 0; fits && i < rd_params_n(r->params); i++) {
        const rd_param *p = rd_params_at(r->params, i);
        for (int k = 0; fits && k < o->n_slots && rd_param_trains(p); k++) {
            rd_array want;
            save_array_of(p, o->slot_name[k], NULL, &want);
            const rd_array *a = rd_npz_find(c->npz, want.name);
            fits = a && a->bytes == want.bytes;
            if (fits) take_slot(f, p, k, a);
        }
    }
    if (fits) return RD_OK;
    return rd_fail(
        st, RD_ECKPT,
        "%s has no state of the optimizer '%s' (it was written by '%s'); go on with that one, or "
        "say \"reset_optimizer\": true (--set reset_optimizer=true) to start its state anew",
        c->path, o->name, json_is_string(was) ? json_string_value(was) : "unknown");
}

/* Returns the figures of a list in a manifest; the newest ones, if it has too many. */
static run_spikes spikes_of(const json_t *list)
{
    run_spikes s = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        spikes_add(&s, json_number_value(json_array_get(list, i)));
    return s;
}

/* Reads the state of the plateau rule. A run without that rule gives a fresh state. */
static rd_plateau plateau_of(const json_t *m)
{
    const json_t *p = json_object_get(m, "plateau"), *factor = json_object_get(p, "factor");
    rd_plateau out;
    rd_plateau_start(&out);
    if (!json_is_number(factor)) return out;
    out.factor = json_number_value(factor);
    out.best = json_number_value(json_object_get(p, "best"));
    out.has_best = json_is_true(json_object_get(p, "has_best"));
    out.wait = meta_int(p, "wait", 0);
    out.cooldown = meta_int(p, "cooldown", 0);
    out.cuts = meta_int(p, "cuts", 0);
    return out;
}

/* Returns the evaluation of the checkpoint's step. A second save of this step writes it again. */
static run_evaluated evaluated_of(const json_t *m, int64_t step)
{
    const json_t *e = json_object_get(m, "evaluation"), *value = json_object_get(e, "value"),
                 *loss = json_object_get(e, "loss");
    const char *name = json_string_value(json_object_get(e, "figure"));
    run_evaluated out = {.step = -1};
    if (!name || strlen(name) >= sizeof out.name || !json_is_number(value) || !json_is_number(loss))
        return out;
    out = (run_evaluated){.step = step,
                          .value = json_number_value(value),
                          .loss = json_number_value(loss),
                          .higher_is_better = json_is_true(json_object_get(e, "higher_is_better"))};
    memcpy(out.name, name, strlen(name));
    return out;
}

/* Reads the reference of the loss. A checkpoint of an earlier program has none. */
static divergence reference_of(const json_t *m)
{
    const json_t *d = json_object_get(m, "reference"), *mean = json_object_get(d, "mean"),
                 *lowest = json_object_get(d, "lowest");
    return (divergence){.mean = json_number_value(mean),
                        .best = json_number_value(lowest),
                        .begun = json_is_number(mean) && json_is_number(lowest)};
}

static run_patience patience_of(const json_t *m)
{
    const json_t *p = json_object_get(m, "patience"), *best = json_object_get(p, "best");
    return (run_patience){.best = json_number_value(best),
                          .has_best = json_is_true(json_object_get(p, "has_best")),
                          .wait = meta_int(p, "wait", 0),
                          .stopped = json_is_true(json_object_get(p, "stopped"))};
}

/* Goes on with the series of the best figure, or begins a new one where the evaluation has changed.
 * The best file of the old series stays, and the plateau rule forgets its best figure. */
static void keep_series(rd_run *r, const json_t *m)
{
    const json_t *was = json_object_get(m, "best_measure");
    rd_strbuf keys = {0};
    if (!json_is_object(was)) return;
    if (r->mode != RD_MODE_TRAIN_EVAL) {
        json_decref(r->best_measure);
        r->best_measure = json_deep_copy(was);
        return;
    }
    if (meaning_difference(was, r->best_measure, 0, &keys)) {
        rd_warn(r->log,
                "the evaluation is not the one of the best figure, whose comparison begins anew "
                "(best-%" PRId64 ".npz stays): %s",
                r->progress.best_step, rd_strbuf_str(&keys));
        r->progress.best = 0.0;
        r->progress.best_step = r->progress.best_before = -1;
        r->progress.n_top = 0;
        r->progress.plateau.has_best = false;
        r->progress.plateau.best = 0.0;
        r->progress.plateau.wait = 0;
        r->progress.patience = (run_patience){0};
        r->progress.restore_due = false;
    }
    rd_strbuf_release(&keys);
}

/* Goes on with the next epoch, whose sums begin. */
static void resume_new_epoch(rd_run *r)
{
    run_progress *p = &r->progress;
    run_next_epoch(p);
    p->sums = (run_sums){0};
    p->has_sums = p->moved = true;
}

static void too_many_parts(rd_run *r)
{
    rd_warn(r->log,
            "the global batch has changed more than %d times in epoch %" PRId64
            ": going on with a new epoch",
            RUN_PARTS, r->progress.epoch + 1);
    resume_new_epoch(r);
}

/* Reads the earlier parts of the epoch. Returns false if there are too many. */
static bool take_parts(run_progress *p, const json_t *m)
{
    const json_t *list = json_object_get(m, "parts");
    if (json_array_size(list) > RUN_PARTS) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *part = json_array_get(list, i);
        p->part[p->n_parts++] = (rd_order_part){
            .global_batch = meta_int(part, "global_batch", 1),
            .batches = meta_int(part, "batches", 0),
            .tokens = meta_int(part, "batch_tokens", 0),
            .seed = (uint64_t)meta_int(part, "seed", 0),
            .drop_last = json_is_true(json_object_get(part, "drop_last_batch"))};
    }
    return true;
}

/* Reads sums of steps. Returns false if there are none, as in a checkpoint of an older program. */
static bool take_sums(run_sums *s, const json_t *sums)
{
    const json_t *classes = json_object_get(sums, "classes");
    if (!json_is_object(sums) || json_array_size(classes) != STEP_CLASS_COUNTS) return false;
    s->loss = json_number_value(json_object_get(sums, "loss"));
    s->weight = json_number_value(json_object_get(sums, "weight"));
    s->targets = json_number_value(json_object_get(sums, "targets"));
    s->samples = json_number_value(json_object_get(sums, "samples"));
    s->nll = json_number_value(json_object_get(sums, "nll"));
    s->nll_targets = json_number_value(json_object_get(sums, "nll_targets"));
    for (size_t i = 0; i < STEP_CLASS_COUNTS; i++)
        s->classes[i] = json_number_value(json_array_get(classes, i));
    return true;
}

/* Reads the origin of the schedule, and counts the samples of all steps. A checkpoint of an earlier
 * program has no origin: its steps count as steps of today. */
static void take_origin(rd_run *r, const json_t *m)
{
    run_progress *p = &r->progress;
    const json_t *was = json_object_get(m, "schedule");
    const int64_t now = save_step_samples(r), had = meta_int(was, "step_samples", now);
    p->origin = (run_origin){.step = meta_int(was, "step", 0),
                             .samples = meta_int(was, "samples", 0),
                             .epoch = json_number_value(json_object_get(was, "epoch"))};
    const double seen = (double)p->origin.samples +
                        (double)(p->step - p->origin.step) * (double)had;
    p->seen = seen < (double)SAVE_MOST_SAMPLES ? (int64_t)fmax(0.0, seen) : SAVE_MOST_SAMPLES;
    p->moved = had != now;
}

/* Finds the next batch where the order is another one now. The samples of the epoch that are left
 * become a new part of it. Ranks with independent orders have no such samples, and go on at the
 * same number of samples. */
static void keep_position(rd_run *r, const json_t *m)
{
    run_progress *p = &r->progress;
    const json_t *dropped = json_object_get(json_object_get(m, "config"), "drop_last_batch");
    const rd_order_part was = {.global_batch = meta_int(m, "global_batch", 0),
                               .batches = p->batch,
                               .tokens = meta_int(m, "batch_tokens", 0),
                               .seed = (uint64_t)meta_int(m, "seed", (int64_t)r->seed),
                               .drop_last = json_is_true(dropped)};
    const int64_t tokens = r->config.batch_tokens;
    const bool resized = was.tokens != tokens ||
                         (tokens == 0 && was.global_batch != r->global_batch);
    if (was.global_batch == 0) return;
    if (r->config.sampling == RUN_SAMPLING_INDEPENDENT) {
        p->n_parts = 0;
        if (resized || meta_int(m, "ranks", r->world->size) != r->world->size)
            p->batch = p->samples / r->global_batch + (p->samples % r->global_batch > 0);
        return;
    }
    if (!resized && was.seed == r->seed && was.drop_last == r->config.drop_last_batch) return;
    p->moved = true;
    if (p->batch == 0) return;
    if (p->n_parts == RUN_PARTS) {
        too_many_parts(r);
        return;
    }
    if (resized)
        rd_info(r->log,
                "the global batch was %" PRId64 " %s and is %" PRId64
                " %s: the samples of epoch %" PRId64 " that are left are put into batches anew",
                was.tokens > 0 ? was.tokens : was.global_batch,
                was.tokens > 0 ? "tokens" : "samples", tokens > 0 ? tokens : r->global_batch,
                tokens > 0 ? "tokens" : "samples", p->epoch + 1);
    p->part[p->n_parts++] = was;
    p->batch = 0;
}

/* Reads the progress. With other data, positions have another meaning, and the next epoch
 * begins. */
static void take_progress(rd_run *r, const rd_ckpt *c)
{
    const json_t *m = meta_of(c), *data = json_object_get(m, "data"),
                 *best = json_object_get(m, "best");
    const json_t *scale = json_object_get(m, "loss_scale");
    const bool scaled = device_scales_loss(r) && json_is_number(scale);
    r->progress = (run_progress){
        .step = c->step,
        .updates = meta_int(m, "updates", c->step),
        .skipped = meta_int(m, "skipped", 0),
        .spiked = meta_int(m, "spiked", 0),
        .losses = spikes_of(json_object_get(m, "losses")),
        .norms = spikes_of(json_object_get(m, "norms")),
        .skipped_in_row = meta_int(m, "skipped_in_row", 0),
        .bad_in_row = meta_int(m, "bad_in_row", 0),
        .diverging = meta_int(m, "diverging", 0),
        .reference = reference_of(m),
        .eval_bad = json_is_true(json_object_get(m, "evaluation_not_finite")),
        .epoch = meta_int(m, "epoch", 0),
        .batch = meta_int(m, "batch", 0),
        .samples = meta_int(m, "samples", 0),
        .samples_hash = meta_int(m, "samples_hash", 0),
        .best = json_is_number(best) ? json_number_value(best) : 0.0,
        .best_step = json_is_number(best) ? meta_int(m, "best_step", -1) : -1,
        .best_before = json_is_number(best) ? meta_int(m, "best_before", -1) : -1,
        .loss_scale = scaled ? json_number_value(scale) : r->progress.loss_scale,
        .good_steps = scaled ? meta_int(m, "loss_scale_good_steps", 0) : 0,
        .eval_due = json_is_true(json_object_get(m, "eval_due")),
        .eval_at_end = json_is_true(json_object_get(m, "eval_at_end")),
        .plateau = plateau_of(m),
        .patience = patience_of(m),
        .restore_due = json_is_true(json_object_get(m, "restore_due")),
        .evaluated = evaluated_of(m, c->step)};
    r->progress.state_updates = meta_int(m, "state_updates", r->progress.updates);
    keep_best_take(&r->progress, json_object_get(m, "top"));
    if (!r->train_data) return;
    const bool few = take_parts(&r->progress, m);
    r->progress.has_sums = take_sums(&r->progress.sums, json_object_get(m, "epoch_sums"));
    (void)take_sums(&r->progress.summary, json_object_get(m, "summary_sums"));
    take_origin(r, m);
    r->progress.all_samples = meta_int(m, "all_samples", r->progress.seen);
    keep_series(r, m);
    if (meta_int(m, "seed", (int64_t)r->seed) != (int64_t)r->seed)
        rd_warn(r->log,
                "the seed is %" PRIu64 ", that of the checkpoint %" PRId64
                ": the order of the samples changes",
                r->seed, meta_int(m, "seed", 0));
    const char *now = rd_dataset_def_of(r->train_data)->fingerprint(rd_dataset_self(r->train_data));
    const bool other = json_is_string(data) && strcmp(json_string_value(data), now) != 0;
    if (other)
        rd_warn(r->log,
                "the training data is not the one of the checkpoint: going on with a new epoch");
    else if (meaning_other_samples(r, m))
        rd_warn(r->log, "other buckets or another sampling choose other samples: going on with a "
                        "new epoch");
    if (other || meaning_other_samples(r, m))
        resume_new_epoch(r);
    else if (!few)
        too_many_parts(r);
    else
        keep_position(r, m);
}

void resume_report_renamed(const rd_run *r, const rd_ckpt *c)
{
    int64_t named;
    if (rd_ckpt_renamed(c, &named))
        rd_warn(r->log,
                "%s has the name of step %" PRId64 " and holds step %" PRId64
                ", which counts; was it renamed?",
                c->path, named, c->step);
}

/* Looks for state that is not finite, in slots that rank 0 does not keep. */
static bool slot_file_other(const slot_file *f, char name[320])
{
    const rd_params *ps = f->run->params;
    for (int i = 0; f->from && i < rd_params_n(ps); i++)
        for (int k = 0; k < rd_params_n_slots(ps); k++) {
            const rd_param *p = rd_params_at(ps, i);
            const float *x = f->from[p->index * rd_params_n_slots(ps) + k];
            (void)snprintf(name, 320, "%s/%s", p->name, rd_optim_slot_name(f->run->optim, k));
            if (x && !finite_all(x, p->n)) return true;
        }
    return false;
}

/* Looks for weights of a checkpoint that are not finite: no training can go on from them. */
static rd_code check_finite(const slot_file *f, rd_status *st)
{
    const rd_run *r = f->run;
    const rd_ckpt *c = &f->c;
    char name[320];
    if (!finite_find_other(r, name) && !slot_file_other(f, name)) return RD_OK;
    if (r->optim)
        return rd_fail(st, RD_ENUMERIC,
                       "%s: '%s' holds inf or NaN, so no training can go on from it; move the file "
                       "away, and the same command goes on from an earlier checkpoint",
                       c->path, name);
    rd_warn(r->log, "%s: '%s' holds inf or NaN", c->path, name);
    return RD_OK;
}

static const char reading[] = "reading a checkpoint";

static bool by_name(const char *what)
{
    return strcmp(what, "newest") == 0 || strcmp(what, "best") == 0 || strcmp(what, "average") == 0;
}

/* A word that is no file may be a misspelt name. */
static rd_code load_file(const char *what, rd_ckpt *c, rd_status *st)
{
    if (rd_ckpt_load(what, c, st) != RD_OK && !strpbrk(what, "/."))
        rd_status_no_file(st, "; newest, best and average are checkpoints of --logdir");
    return st->code;
}

/* Reads a checkpoint, whose slots the caller spreads. Rank 0 only. */
static rd_code read_root(slot_file *f, const char *what, bool *found, rd_status *st)
{
    rd_run *r = f->run;
    rd_ckpt *c = &f->c;
    char warning[RD_MSG_BYTES] = "";
    const bool newest = strcmp(what, "newest") == 0;
    bool published = false;
    if (!by_name(what)) RD_TRY(published_there(r, what, &published, st));
    if (published) {
        *found = published_load(r, what, st) == RD_OK;
        (void)snprintf(r->loaded, sizeof r->loaded, "%s", what);
        goto done;
    }
    if (by_name(what))
        (void)rd_ckpt_load_newest(r->cli->logdir, newest ? "model" : what, c, warning, st);
    else
        (void)load_file(what, c, st);
    if (warning[0]) rd_warn(r->log, "%s", warning);
    RD_TRY(st->code);
    *found = c->npz != NULL;
    if (!c->npz) goto done;
    resume_report_renamed(r, c);
    RD_TRY(check_vocab(r, c, "src_vocab_hash", "source", r->spec.src_vocab_hash, st));
    RD_TRY(check_vocab(r, c, "tgt_vocab_hash", "target", r->spec.tgt_vocab_hash, st));
    RD_TRY(check_subword(r, c, st));
    RD_TRY(check_classes(r, c, st));
    RD_TRY(check_extra(r, c, st));
    RD_TRY(copy_values(r, c, st));
    if (r->optim) RD_TRY(take_slots(f, st));
    RD_TRY(check_finite(f, st));
    take_progress(r, c);
    (void)snprintf(r->loaded, sizeof r->loaded, "%s", c->path);
    json_decref(r->parent);
    r->parent = json_deep_copy(json_object_get(meta_of(c), "parent"));
    const char *slash = strrchr(c->path, '/');
    r->from_best = strncmp(slash ? slash + 1 : c->path, "best-", 5) == 0;
    rd_info(r->log, "%s %s, step %" PRId64, r->optim ? "resuming from" : "weights from", c->path,
            c->step);
    meaning_report(r, meta_of(c));
done:
    return st->code;
}

/* Reads the manifest of the checkpoint that the config names as JSON text; "": there is none. */
static rd_code manifest_root(rd_run *r, char **text, rd_status *st)
{
    rd_ckpt c = {0};
    char warning[RD_MSG_BYTES] = ""; /* run_load prints it */
    const char *what = r->config.checkpoint;
    const bool newest = strcmp(what, "newest") == 0;
    if (by_name(what))
        (void)rd_ckpt_load_newest(r->cli->logdir, newest ? "model" : what, &c, warning, st);
    else
        (void)load_file(what, &c, st);
    if (st->code == RD_OK) {
        *text = c.npz ? json_dumps(meta_of(&c), JSON_COMPACT) : strdup("");
        if (!*text) rd_fail(st, RD_EENV, "out of memory for the manifest of a checkpoint");
    }
    rd_ckpt_release(&c);
    return st->code;
}

rd_code run_manifest(rd_run *r, json_t **out, rd_status *st)
{
    char *text = NULL;
    int64_t n = 0;
    *out = NULL;
    if (r->world->rank == 0) {
        progress shown;
        progress_files(&shown, r, reading);
        (void)manifest_root(r, &text, st);
        progress_end(&shown);
    }
    RD_TRY(run_agree(r, st));
    if (text) n = (int64_t)strlen(text);
    RD_TRY(rd_comm_bcast(r->comm, &n, sizeof n, 0, st));
    if (!text && !(text = malloc((size_t)n + 1)))
        rd_fail(st, RD_EENV, "out of memory for the manifest of a checkpoint");
    RD_TRY(run_agree(r, st));
    if (n > 0) RD_TRY(rd_comm_bcast(r->comm, text, n, 0, st));
    text[n] = '\0';
    *out = n > 0 ? json_loads(text, 0, NULL) : NULL;
done:
    free(text);
    return st->code;
}

rd_code run_load(rd_run *r, const char *what, bool *found, rd_status *st)
{
    struct {
        run_progress at;
        int64_t found;
    } msg = {.at = r->progress};
    slot_file f = {.run = r};
    *found = false;
    if (r->world->rank == 0) {
        progress shown;
        progress_files(&shown, r, reading);
        (void)read_root(&f, what, found, st);
        progress_end(&shown);
    }
    RD_TRY(run_agree(r, st));
    if (!f.from) rd_ckpt_release(&f.c); /* all is copied */
    msg.at = r->progress;
    msg.found = *found ? 1 + r->from_best : 0;
    RD_TRY(rd_comm_bcast(r->comm, &msg, sizeof msg, 0, st));
    *found = msg.found != 0;
    if (!*found) goto done;
    r->from_best = msg.found == 2;
    r->progress = msg.at;
    RD_TRY(run_spread_weights(r, f.from ? slot_file_fill : NULL, &f, st));
done:
    slot_file_release(&f);
    return st->code;
}

/* Reads the best checkpoint for run_restore_best. Rank 0 only. */
static rd_code restore_root(slot_file *f, rd_status *st)
{
    rd_run *r = f->run;
    const rd_ckpt *c = &f->c;
    run_progress *p = &r->progress;
    const bool reset = r->config.reset_optimizer;
    char path[4300];
    (void)snprintf(path, sizeof path, "%.4000s/best-%" PRId64 ".npz", r->cli->logdir, p->best_step);
    r->config.reset_optimizer = false; /* it is for the start alone */
    if (rd_ckpt_load(path, &f->c, st) != RD_OK)
        rd_status_prefix(st,
                         "plateau_restore needs the best checkpoint; plateau_restore=false goes "
                         "on without it");
    RD_TRY(st->code);
    RD_TRY(copy_values(r, c, st));
    RD_TRY(take_slots(f, st));
    p->state_updates = meta_int(meta_of(c), "state_updates",
                                meta_int(meta_of(c), "updates", c->step));
    rd_info(r->log, "weights and optimizer state of best-%" PRId64 ".npz are restored", c->step);
done:
    r->config.reset_optimizer = reset;
    return st->code;
}

rd_code run_restore_best(rd_run *r, rd_status *st)
{
    slot_file f = {.run = r};
    if (r->world->rank == 0) {
        progress shown;
        progress_files(&shown, r, reading);
        (void)restore_root(&f, st);
        progress_end(&shown);
    }
    RD_TRY(run_agree(r, st));
    if (!f.from) rd_ckpt_release(&f.c); /* all is copied */
    RD_TRY(rd_comm_bcast(r->comm, &r->progress.state_updates, sizeof r->progress.state_updates, 0,
                         st));
    RD_TRY(run_spread_weights(r, f.from ? slot_file_fill : NULL, &f, st));
    r->progress.restore_due = false;
done:
    slot_file_release(&f);
    return st->code;
}

rd_code run_check_weights_source(rd_run *r, rd_status *st)
{
    if (by_name(r->config.checkpoint) && (!r->cli->logdir || !r->cli->logdir[0]))
        rd_fail(st, RD_EUSAGE,
                "--logdir is missing; name the folder that holds the trained checkpoints, or the "
                "file itself with --set checkpoint=PATH");
    return run_agree(r, st);
}

rd_code run_no_checkpoint(const rd_run *r, rd_status *st)
{
    char target[256];
    const char *what = r->config.checkpoint;
    if (rd_link_dangles(r->cli->logdir, target, sizeof target))
        return rd_fail(st, RD_ECKPT,
                       "log folder '%s' is a link to '%s', which is not there; is a disk not "
                       "mounted?",
                       r->cli->logdir, target);
    return rd_fail(st, RD_ECKPT,
                   "there is no %s-<step>.npz in '%s'; %s first with the same --logdir, or name a "
                   "file with --set checkpoint=PATH",
                   strcmp(what, "newest") == 0 ? "model" : what, r->cli->logdir,
                   strcmp(what, "average") == 0 ? "run --mode=average" : "train");
}

rd_code run_load_required(rd_run *r, rd_status *st)
{
    bool found = false;
    RD_TRY(run_load(r, r->config.checkpoint, &found, st));
    if (!found) (void)run_no_checkpoint(r, st);
    (void)run_agree(r, st);
done:
    return st->code;
}
