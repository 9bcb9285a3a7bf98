/* save.c -- writes checkpoints of a run.
 *
 * An archive holds every parameter by name and every optimizer array as <parameter>/<slot>. Its
 * manifest holds the progress, the config, hashes of the vocabularies, and the names of the
 * classes. Nothing in it depends on the number of ranks. Rank 0 writes. */
#include "save.h"
#include "device.h"
#include "keep_best.h"
#include "meaning.h"
#include "progress.h"
#include "spikes.h"
#include "rd/checkpoint.h"
#include "rd/file.h"
#include "rd/npz.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void save_hex(uint64_t v, char out[20])
{
    (void)snprintf(out, 20, "%016" PRIx64, v);
}

/* Returns the number of samples of a step, where each batch counts as full. */
int64_t save_step_samples(const rd_run *r)
{
    const int64_t n = run_update_samples(r);
    return n < SAVE_MOST_SAMPLES ? n : SAVE_MOST_SAMPLES;
}

static json_t *describe_part(const rd_order_part *p)
{
    json_t *o = json_pack("{s:I, s:I, s:I, s:b}", "global_batch", (json_int_t)p->global_batch,
                          "batches", (json_int_t)p->batches, "seed", (json_int_t)p->seed,
                          "drop_last_batch", (int)p->drop_last);
    if (p->tokens > 0)
        (void)json_object_set_new(o, "batch_tokens", json_integer((json_int_t)p->tokens));
    return o;
}

static json_t *describe_sums(const run_sums *s)
{
    json_t *classes = json_array();
    for (int i = 0; i < STEP_CLASS_COUNTS; i++)
        (void)json_array_append_new(classes, json_real(s->classes[i]));
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "loss", s->loss, "weight", s->weight,
                     "targets", s->targets, "samples", s->samples, "nll", s->nll, "nll_targets",
                     s->nll_targets, "classes", classes);
}

/* Adds what a later start needs to go on with another global batch, and the sums of the steps. */
static void describe_position(const rd_run *r, json_t *m)
{
    const run_progress *p = &r->progress;
    if (p->n_parts > 0) {
        json_t *list = json_array();
        for (int i = 0; i < p->n_parts; i++)
            (void)json_array_append_new(list, describe_part(&p->part[i]));
        (void)json_object_set_new(m, "parts", list);
    }
    (void)json_object_set_new(m, "schedule",
                              json_pack("{s:I, s:I, s:f, s:I}", "step", (json_int_t)p->origin.step,
                                        "samples", (json_int_t)p->origin.samples, "epoch",
                                        p->origin.epoch, "step_samples",
                                        (json_int_t)save_step_samples(r)));
    if (p->has_sums) (void)json_object_set_new(m, "epoch_sums", describe_sums(&p->sums));
    if (p->summary.samples > 0.0)
        (void)json_object_set_new(m, "summary_sums", describe_sums(&p->summary));
}

/* Adds the state of early stopping, and the evaluation of this step. */
static void describe_evaluation(const rd_run *r, json_t *m)
{
    const run_progress *p = &r->progress;
    const run_patience *s = &p->patience;
    const run_evaluated *e = &p->evaluated;
    if (s->has_best || s->wait > 0)
        (void)json_object_set_new(m, "patience",
                                  json_pack("{s:f, s:b, s:I, s:b}", "best", s->best, "has_best",
                                            (int)s->has_best, "wait", (json_int_t)s->wait,
                                            "stopped", (int)s->stopped));
    if (p->restore_due) (void)json_object_set_new(m, "restore_due", json_true());
    if (e->step != p->step || !isfinite(e->value) || !isfinite(e->loss)) return;
    (void)json_object_set_new(m, "evaluation",
                              json_pack("{s:s, s:f, s:b, s:f}", "figure", e->name, "value",
                                        e->value, "higher_is_better", (int)e->higher_is_better,
                                        "loss", e->loss));
}

/* Returns the last values of a figure, oldest first. */
static json_t *describe_spikes(const run_spikes *s)
{
    json_t *list = json_array();
    for (int64_t k = s->n < RUN_SPIKES ? 0 : s->n - RUN_SPIKES; k < s->n; k++)
        (void)json_array_append_new(list, json_real(s->x[k % RUN_SPIKES]));
    return list;
}

/* Lists the arrays that are trained, where others are frozen. */
static void describe_frozen(const rd_run *r, json_t *m)
{
    json_t *list = json_array();
    for (int i = 0; i < rd_params_n(r->params); i++)
        if (rd_param_trains(rd_params_at(r->params, i)))
            (void)json_array_append_new(list, json_string(rd_params_at(r->params, i)->name));
    if (rd_params_grad_span(r->params) < rd_params_span(r->params))
        (void)json_object_set(m, "trained", list);
    json_decref(list);
}

static json_t *resume_describe(const rd_run *r)
{
    char src[20], tgt[20];
    const run_progress *p = &r->progress;
    save_hex(r->spec.src_vocab_hash, src);
    save_hex(r->spec.tgt_vocab_hash, tgt);
    json_t *m = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:s, s:s, s:s, s:s}",
                          "step", (json_int_t)p->step, "updates", (json_int_t)p->updates, "skipped",
                          (json_int_t)p->skipped, "epoch", (json_int_t)p->epoch, "batch",
                          (json_int_t)p->batch, "samples", (json_int_t)p->samples, "samples_hash",
                          (json_int_t)p->samples_hash, "global_batch", (json_int_t)r->global_batch,
                          "ranks", r->world->size, "seed", (json_int_t)r->seed, "model",
                          r->model->name, "optimizer", r->optim ? rd_optim_def(r->optim)->name : "",
                          "src_vocab_hash", src, "tgt_vocab_hash", tgt);
    if (!m) return NULL;
    if (r->config.batch_tokens > 0)
        (void)json_object_set_new(m, "batch_tokens",
                                  json_integer((json_int_t)r->config.batch_tokens));
    if (r->spec.subword_hash) {
        char sub[20];
        save_hex(r->spec.subword_hash, sub);
        (void)json_object_set_new(m, "subword_hash", json_string(sub));
    }
    describe_position(r, m);
    (void)json_object_set_new(m, "all_samples", json_integer((json_int_t)p->all_samples));
    if (p->state_updates != p->updates)
        (void)json_object_set_new(m, "state_updates", json_integer((json_int_t)p->state_updates));
    describe_evaluation(r, m);
    if (p->spiked > 0) (void)json_object_set_new(m, "spiked", json_integer((json_int_t)p->spiked));
    if (p->losses.n > 0) (void)json_object_set_new(m, "losses", describe_spikes(&p->losses));
    if (p->norms.n > 0) (void)json_object_set_new(m, "norms", describe_spikes(&p->norms));
    if (r->train_data)
        (void)json_object_set_new(
            m, "data",
            json_string(
                rd_dataset_def_of(r->train_data)->fingerprint(rd_dataset_self(r->train_data))));
    if (p->best_step >= 0) {
        (void)json_object_set_new(m, "best_step", json_integer((json_int_t)p->best_step));
        (void)json_object_set_new(m, "best", json_real(p->best));
        (void)json_object_set_new(m, "best_before", json_integer((json_int_t)p->best_before));
        if (r->best_measure) (void)json_object_set(m, "best_measure", r->best_measure);
    }
    if (r->spec.n_classes > 0)
        (void)json_object_set_new(
            m, "image",
            json_pack("{s:I, s:I, s:I, s:I}", "height", (json_int_t)r->spec.image_h, "width",
                      (json_int_t)r->spec.image_w, "channels", (json_int_t)r->spec.image_c,
                      "classes", (json_int_t)r->spec.n_classes));
    if (r->parent) (void)json_object_set(m, "parent", r->parent);
    json_t *classes = meaning_classes(&r->spec);
    if (classes) (void)json_object_set_new(m, "classes", classes);
    describe_frozen(r, m);
    if (device_scales_loss(r)) {
        (void)json_object_set_new(m, "loss_scale", json_real(p->loss_scale));
        (void)json_object_set_new(m, "loss_scale_good_steps",
                                  json_integer((json_int_t)p->good_steps));
    }
    const struct {
        const char *key;
        int64_t value;
    } trouble[] = {{"skipped_in_row", p->skipped_in_row},
                   {"bad_in_row", p->bad_in_row},
                   {"diverging", p->diverging}};
    for (size_t i = 0; i < sizeof trouble / sizeof *trouble; i++)
        if (trouble[i].value > 0)
            (void)json_object_set_new(m, trouble[i].key, json_integer(trouble[i].value));
    if (p->reference.begun)
        (void)json_object_set_new(m, "reference",
                                  json_pack("{s:f, s:f}", "mean", p->reference.mean, "lowest",
                                            p->reference.best));
    if (p->eval_bad) (void)json_object_set_new(m, "evaluation_not_finite", json_true());
    if (p->eval_due) (void)json_object_set_new(m, "eval_due", json_true());
    if (p->eval_at_end) (void)json_object_set_new(m, "eval_at_end", json_true());
    if (p->n_top > 0) (void)json_object_set_new(m, "top", keep_best_describe(p));
    if (r->ended_by) (void)json_object_set_new(m, "ended_by", json_string(r->ended_by));
    if (r->schedule_config.has_plateau)
        (void)json_object_set_new(
            m, "plateau",
            json_pack("{s:f, s:f, s:b, s:I, s:I, s:I}", "factor", p->plateau.factor, "best",
                      p->plateau.best, "has_best", (int)p->plateau.has_best, "wait",
                      (json_int_t)p->plateau.wait, "cooldown", (json_int_t)p->plateau.cooldown,
                      "cuts", (json_int_t)p->plateau.cuts));
    (void)json_object_set_new(m, "config", meaning_config(r));
    return m;
}

/* arena NULL: the bytes are elsewhere. */
void save_array_of(const rd_param *p, const char *slot, const float *arena, rd_array *a)
{
    *a = (rd_array){.descr = "<f4",
                    .n_dim = p->n_dim,
                    .data = arena ? arena + p->offset : NULL,
                    .bytes = (size_t)p->n * sizeof(float)};
    (void)snprintf(a->name, sizeof a->name, "%s%s%s", p->name, slot ? "/" : "", slot ? slot : "");
    for (int i = 0; i < p->n_dim && i < RD_NPY_MAX_DIM; i++) a->dim[i] = p->dim[i];
}

/* ---- state that hosts keep in parts ---- */

/* Reads a slot for the archive, in bounded pieces. */
typedef struct slot_reader {
    rd_run *run;
    float *piece; /* borrowed; [RD_SHARD_FETCH] */
    const rd_param *p;
    int slot;
} slot_reader;

static rd_code read_slot(void *ctx, size_t at, const void **p, size_t *n, rd_status *st)
{
    const slot_reader *s = ctx;
    const int64_t from = (int64_t)(at / sizeof(float)), left = s->p->n - from,
                  m = left < RD_SHARD_FETCH ? left : RD_SHARD_FETCH;
    *p = s->piece;
    *n = (size_t)m * sizeof(float);
    return rd_shard_fetch(rd_optim_shard_of(s->run->optim), s->slot, s->p->offset + from, m,
                          rd_params_slot(s->run->params, s->slot), s->piece, st);
}

static float *lend_slot(void *ctx, int k)
{
    return rd_params_slot(((rd_run *)ctx)->params, k);
}

rd_code run_bring_state(rd_run *r, rd_status *st)
{
    if (!rd_optim_shard_of(r->optim) || !run_gpu(r)) return st->code;
    (void)rd_params_sync_to_host(r->params, RD_SLOTS, st);
    return run_agree(r, st);
}

rd_code run_lend_state(rd_run *r, rd_status *st)
{
    rd_status own = {0};
    rd_shard *s = rd_optim_shard_of(r->optim);
    if (!s) return st->code;
    if (r->world->rank == 0)
        (void)rd_shard_fetched(s, &own);
    else
        (void)rd_shard_serve(s, lend_slot, r, &own);
    if (st->code == RD_OK && own.code != RD_OK) *st = own;
    return st->code;
}

rd_code run_save(rd_run *r, const char *prefix, int keep, rd_status *st)
{
    const rd_params *ps = r->params;
    const int n_params = rd_params_n(ps), n_slots = rd_params_n_slots(ps);
    const bool parts = rd_optim_shard_of(r->optim) != NULL;
    rd_array *a = calloc((size_t)n_params * (size_t)(n_slots + 1) + 1, sizeof *a);
    slot_reader *reader = calloc((size_t)n_params * (size_t)n_slots + 1, sizeof *reader);
    float *piece = parts ? malloc(RD_SHARD_FETCH * sizeof *piece) : NULL;
    json_t *meta = resume_describe(r);
    int n = 0;
    char what[64];
    progress shown;
    if (!a || !meta || !reader || (parts && !piece)) {
        rd_fail(st, RD_EENV, "out of memory for the list of arrays of a checkpoint");
        goto done;
    }
    RD_TRY(rd_params_sync_to_host(r->params, RD_VALUES | RD_SLOTS, st));
    for (int i = 0; i < n_params; i++) {
        const rd_param *p = rd_params_at(ps, i);
        save_array_of(p, NULL, rd_params_values(ps), &a[n++]);
        for (int k = 0; k < n_slots && rd_param_trains(p); k++, n++) {
            slot_reader *s = &reader[i * n_slots + k];
            save_array_of(p, rd_optim_slot_name(r->optim, k), parts ? NULL : rd_params_slot(ps, k),
                          &a[n]);
            if (!parts) continue;
            *s = (slot_reader){r, piece, p, k};
            a[n].read = read_slot;
            a[n].ctx = s;
        }
    }
    RD_TRY(device_check(r, st));
    (void)snprintf(what, sizeof what, "saving %.20s-%" PRId64 ".npz", prefix, r->progress.step);
    progress_files(&shown, r, what);
    (void)rd_ckpt_save(r->cli->logdir, prefix, r->progress.step, a, n, meta, keep, st);
    progress_end(&shown);
done:
    json_decref(meta);
    free(reader);
    free(piece);
    free(a);
    return st->code;
}

/* The file of an earlier best checkpoint stays as one of the best, or goes. */
static void best_leaves(const rd_run *r, int64_t step)
{
    if (step < 0 || !keep_best_has(&r->progress, step) ||
        !rd_ckpt_rename(r->cli->logdir, "best", "top", step))
        rd_ckpt_remove(r->cli->logdir, "best", step);
}

void run_settle(const rd_run *r)
{
    const run_progress *p = &r->progress;
    const char *slash = strrchr(r->loaded, '/');
    rd_status own = {0};
    if (p->best_step >= 0 && p->best_before != p->best_step) best_leaves(r, p->best_before);
    if (slash && rd_ckpt_step_of(slash + 1, "model") == p->step &&
        rd_ckpt_point(r->cli->logdir, "model", p->step, &own) != RD_OK)
        rd_warn(r->log, "%s", own.msg);
}

rd_code run_save_best(rd_run *r, double value, rd_status *st)
{
    run_progress *p = &r->progress;
    const double best = p->best;
    const int64_t step = p->best_step, before = p->best_before;
    p->best = value;
    p->best_step = p->step;
    if (step != p->step) p->best_before = step;
    if (run_save(r, "best", 0, st) != RD_OK) {
        p->best = best;
        p->best_step = step;
        p->best_before = before;
        return st->code;
    }
    /* A kill may have come between an earlier save and its removal. Files of other series stay. */
    if (p->best_before != p->step) best_leaves(r, p->best_before);
    if (before != p->step) best_leaves(r, before);
    return st->code;
}
