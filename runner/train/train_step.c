/* train_step.c -- one update, on all ranks.
 *
 *     for each of iter_size global batches: this rank's samples -> forward -> backward, gradients of sums added up
 *     control block: sums and requests of all ranks     gradients: sum over all ranks
 *     w <- update(gradient / (loss_scale * total weight))
 *
 * Every rank contributes the gradient of a sum and its weight, so an uneven last batch, a rank without samples and
 * accumulation need no special case. Which samples a step uses follows from the plan of the epoch and the position
 * alone. */
#include "run_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void stepper_init(stepper *s, rd_run *r)
{
    *s = (stepper){.run = r, .plan_epoch = -1, .n_epochs = INT64_MAX};
}

void stepper_release(stepper *s)
{
    rd_plan_free(s->plan);
    free(s->ids);
    rd_strbuf_release(&s->source);
    rd_strbuf_release(&s->target);
    rd_strbuf_release(&s->predicted);
}

/* After a resume with another global batch: the batch that holds the first unused sample. */
static void find_batch(stepper *s)
{
    run_progress *at = &s->run->at;
    int64_t seen = 0, k = 0, n = 0;
    for (; k < rd_plan_n_batches(s->plan); k++) {
        (void)rd_plan_batch(s->plan, k, &n);
        if (seen + n > at->samples) break;
        seen += n;
    }
    at->batch = k;
    at->samples = seen;
    at->samples_hash = 0; /* the samples before are others than those that were used */
}

rd_code stepper_plan(stepper *s, rd_status *st)
{
    rd_run *r = s->run;
    run_progress *at = &r->at;
    for (;;) {
        if (s->plan_epoch != at->epoch) {
            rd_plan_free(s->plan);
            s->plan = NULL;
            s->plan_epoch = -1;
            RD_TRY(rd_plan_new(r->train, r->seed, at->epoch, r->global_batch, &(rd_plan_rules){.shuffle = true}, &s->plan, st));
            s->plan_epoch = at->epoch;
        }
        if (at->global_batch != r->global_batch) {
            if (at->global_batch != 0 && at->samples > 0) find_batch(s);
            at->global_batch = r->global_batch;
        }
        if (at->batch < rd_plan_n_batches(s->plan)) break;
        if (at->epoch + 1 >= s->n_epochs) break;
        at->epoch++;
        at->batch = at->samples = at->samples_hash = 0;
    }
done:
    return st->code;
}

bool stepper_done(const stepper *s)
{
    const run_progress *at = &s->run->at;
    return at->epoch + 1 >= s->n_epochs && s->plan_epoch == at->epoch && at->batch >= rd_plan_n_batches(s->plan);
}

/* Sum over samples of this: equal for every order, and exact in a double for two million samples a step. */
static uint32_t id_hash(int64_t id)
{
    uint64_t x = (uint64_t)id + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((x ^ (x >> 31)) >> 32);
}

static void keep_sample(stepper *s, const rd_batch *b, const rd_loss_out *out)
{
    const rd_field *src = rd_batch_field(b, "source"), *tgt = rd_batch_field(b, "target");
    const rd_dataset *d = s->run->train;
    const int64_t i = out->shown;
    rd_strbuf_reset(&s->source);
    rd_strbuf_reset(&s->target);
    rd_strbuf_reset(&s->predicted);
    if (!src || !tgt || i < 0 || i >= b->n || !out->predicted) return;
    run_text(d, 0, (const int32_t *)src->data + src->off[i], src->off[i + 1] - src->off[i], true, &s->source);
    run_text(d, 1, (const int32_t *)tgt->data + tgt->off[i], tgt->off[i + 1] - tgt->off[i], true, &s->target);
    run_text(d, 1, out->predicted, out->n_predicted, true, &s->predicted);
    s->want_sample = false;
}

/* This rank's share of the next global batch; moves the position. Memory of run->data. */
static rd_code next_batch(stepper *s, rd_batch *b, rd_status *st)
{
    rd_run *r = s->run;
    run_progress *at = &r->at;
    const rd_dataset_def *def = rd_dataset_def_of(r->train);
    int64_t n_global = 0;
    (void)rd_plan_batch(s->plan, at->batch, &n_global);
    if (n_global > s->n_ids) {
        int64_t *more = realloc(s->ids, (size_t)n_global * sizeof *more);
        if (!more)
            return rd_fail(st, RD_EENV, "out of memory for the ids of a batch of %lld samples", (long long)n_global);
        s->ids = more;
        s->n_ids = n_global;
    }
    const int64_t n = rd_plan_deal(s->plan, at->batch, r->world->rank, r->world->size, s->ids);
    rd_arena_reset(r->data);
    RD_TRY(def->fetch(rd_dataset_self(r->train), s->ids, n, r->data, b, st));
    b->step = at->step;
    b->epoch = at->epoch;
    b->n_global = n_global;
    at->batch++;
    at->samples += n_global;
done:
    return st->code;
}

static rd_code forward_backward(stepper *s, const rd_batch *b, step_sums *sum, rd_status *st)
{
    rd_run *r = s->run;
    rd_loss_out out = {0};
    rd_tape_reset(r->tape, true, true);
    RD_TRY(r->model->loss(r->model_self, r->tape, b, &out, st));
    RD_TRY(rd_tape_check(r->tape, st));
    if (b->n == 0) goto done;
    RD_TRY(rd_tape_backward(r->tape, out.loss, st));
    sum->loss += out.loss_sum;
    sum->weight += out.weight;
    sum->nll += out.nll_sum;
    sum->targets += out.n_targets;
    sum->correct += out.n_correct;
    sum->tokens_src += out.n_tokens_src;
    sum->tokens_tgt += out.n_tokens_tgt;
    sum->samples += (double)b->n;
    for (int64_t i = 0; i < b->n; i++) sum->hash += id_hash(b->sample[i]);
    if (s->count_flops && r->model->flops) sum->flops += r->model->flops(r->model_self, b);
    if (s->want_sample) keep_sample(s, b, &out);
done:
    return st->code;
}

rd_code stepper_step(stepper *s, double lr, const step_sums *in, step_sums *out, rd_optim_stats *stats, rd_status *st)
{
    enum { N_SUMS = sizeof(step_sums) / sizeof(double) };
    rd_run *r = s->run;
    const int64_t span = rd_params_span(r->params);
    float *g = rd_params_grads(r->params);
    *out = *in;
    memset(g, 0, (size_t)span * sizeof *g);
    for (int64_t i = 0; i < r->c.iter_size; i++) {
        rd_batch b = {0};
        if (s->make) {
            RD_TRY(s->make(s, &b, st));
        } else {
            RD_TRY(stepper_plan(s, st));
            if (stepper_done(s)) break;
            RD_TRY(next_batch(s, &b, st));
        }
        RD_TRY(forward_backward(s, &b, out, st));
    }
    double sums[N_SUMS];
    memcpy(sums, out, sizeof sums);
    RD_TRY(rd_comm_sum_f64(r->comm, sums, N_SUMS, st));
    memcpy(out, sums, sizeof sums);
    RD_TRY(rd_comm_sum_f32(r->comm, g, span, st));
    r->at.step++;
    r->at.samples_hash = (int64_t)(((uint64_t)r->at.samples_hash + (uint64_t)out->hash) & INT64_MAX);
    stats->finite = false;
    stats->grad_norm = stats->clipped_norm = NAN;
    /* The sums are the same bytes on every rank, so all of them skip or none. */
    if (isfinite(out->loss) && out->weight > 0.0)
        RD_TRY(rd_optim_step(r->optim, r->at.updates + 1, lr, 1.0 / (r->oc.loss_scale * out->weight), stats, st));
    if (stats->finite)
        r->at.updates++;
    else
        r->at.skipped++;
done:
    return st->code;
}
