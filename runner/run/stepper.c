/* stepper.c -- one step, on all ranks.
 *
 *     for each of iter_size global batches, or of iter_size parts of one (batch_tokens):
 *         this rank's samples -> forward -> backward; gradients of sums add up
 *     control block: sums and requests of all ranks
 *     gradients: sum over all ranks
 *     w <- update(gradient / (loss_scale * total weight))
 *
 * With several hosts, the sum of the gradients begins during the last backward (exchange.c).
 *
 * Every rank contributes the gradient of a sum and its weight. So an uneven last batch, a rank
 * without samples and accumulation need no special case. The samples of a step follow from the
 * epoch's order and the position alone.
 *
 * A rank that cannot read its samples takes part in the sums without them. All ranks then leave the
 * step together, with the weights of the step before.
 *
 * A GPU runs asynchronously: backward only queues its work, and the host fetches the next batch
 * meanwhile. Marks on the GPU's own clock tell later how long backward took. */
#include "stepper.h"
#include "device.h"
#include "exchange.h"
#include "fault.h"
#include "spikes.h"
#include "rd/hash.h"
#include "rd/input.h"
#include "rd/vec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void stepper_init(stepper *s, rd_run *r)
{
    *s = (stepper){.run = r,
                   .order_epoch = -1,
                   .n_micro_batches = r->world->size,
                   .n_own = 1,
                   .n_epochs = INT64_MAX,
                   .last_step = INT64_MAX,
                   .now = {.batch = -1},
                   .next = {.batch = -1},
                   .after = {.batch = -1}};
    if (r->mode == RD_MODE_BENCH) return;
    if (run_any(r)) {
        s->n_micro_batches = r->config.micro_batches;
        s->n_own = s->n_micro_batches / r->world->size;
        s->by_tree = s->n_own > 1;
    } else if (run_batch_is_global(r)) {
        s->n_own = r->config.iter_size;
        s->n_micro_batches = s->n_own * r->world->size;
    }
}

void stepper_release(stepper *s)
{
    rd_order_free(s->order);
    rd_order_free(s->next_order);
    free(s->now.ids);
    free(s->next.ids);
    free(s->after.ids);
    for (size_t k = 0; k < sizeof s->sum / sizeof *s->sum; k++) {
        if (run_gpu(s->run))
            rd_gpu_memory_free(run_gpu(s->run), s->sum[k]);
        else
            free(s->sum[k]);
    }
    gallery_release(&s->pictures);
    sample_ids_release(&s->ids);
    console_texts_release(&s->texts);
}

static rd_code new_order(const stepper *s, int64_t epoch, rd_order **out, rd_status *st)
{
    const rd_run *r = s->run;
    const bool now = epoch == r->progress.epoch;
    const rd_order_rules rules = {.shuffle = true,
                                  .drop_last = r->config.drop_last_batch,
                                  .unit = (int64_t)run_real(r, "batch_norm_samples", 0.0),
                                  .independent = r->config.sampling == RUN_SAMPLING_INDEPENDENT,
                                  .size = r->world->size,
                                  .tokens = r->config.batch_tokens,
                                  .n_own = (int)s->n_own,
                                  .parts = r->progress.part,
                                  .n_parts = now ? r->progress.n_parts : 0};
    return rd_order_new(r->train_data, r->seed, epoch, r->global_batch, &rules, out, st);
}

static rd_code take_order(stepper *s, rd_status *st)
{
    const int64_t epoch = s->run->progress.epoch;
    rd_order_free(s->order);
    s->order = s->next_order;
    s->next_order = NULL;
    if (s->order && epoch != s->order_epoch + 1) {
        rd_order_free(s->order);
        s->order = NULL;
    }
    s->order_epoch = -1;
    if (!s->order) RD_TRY(new_order(s, epoch, &s->order, st));
    s->order_epoch = epoch;
done:
    return st->code;
}

rd_code stepper_open(stepper *s, rd_status *st)
{
    return s->order_epoch == s->run->progress.epoch ? RD_OK : take_order(s, st);
}

rd_code stepper_prepare(stepper *s, rd_status *st)
{
    rd_run *r = s->run;
    run_progress *at = &r->progress;
    for (;;) {
        RD_TRY(stepper_open(s, st));
        if (at->batch < rd_order_n_batches(s->order)) break;
        if (at->epoch + 1 >= s->n_epochs) break;
        run_next_epoch(at);
    }
done:
    return st->code;
}

bool stepper_done(const stepper *s)
{
    const run_progress *at = &s->run->progress;
    return at->epoch + 1 >= s->n_epochs && s->order_epoch == at->epoch &&
           at->batch >= rd_order_n_batches(s->order);
}

double stepper_epoch_share(const stepper *s)
{
    const run_progress *at = &s->run->progress;
    if (at->n_parts == 0) return (double)at->batch / (double)rd_order_n_batches(s->order);
    const int64_t n = rd_order_n_samples(s->order);
    return n > 0 ? (double)at->samples / (double)n : 1.0;
}

double stepper_step_share(const stepper *s)
{
    const rd_run *r = s->run;
    const double n = (double)run_batches(r);
    return r->progress.n_parts == 0
               ? n / (double)rd_order_n_batches(s->order)
               : n * (double)r->global_batch / fmax(1.0, (double)rd_order_n_samples(s->order));
}

/* Returns a hash whose sum over samples is the same for every order, and exact in a double for two
 * million samples a step. */
static uint32_t id_hash(int64_t id)
{
    return (uint32_t)(rd_splitmix64((uint64_t)id) >> 32);
}

static void keep_sample(stepper *s, const rd_batch *b, const rd_loss_out *out)
{
    console_keep(&s->texts, s->run->train_data, b, out->shown, out->predicted, out->n_predicted);
    s->want_sample = s->texts.source.n == 0 && s->texts.target.n == 0;
}

/* ---- batches, and the announcement of the next one ---- */

/* Finds this rank's micro-batch j of a global batch. */
static rd_code deal(stepper *s, const rd_order *order, int64_t epoch, int64_t batch, int64_t j,
                    step_share *out, rd_status *st)
{
    out->batch = -1;
    (void)rd_order_batch(order, batch, &out->n_global);
    if (out->n_global > out->capacity) {
        int64_t *more = realloc(out->ids, (size_t)out->n_global * sizeof *more);
        if (!more)
            return rd_fail(st, RD_EENV,
                           "out of memory for the ids of a batch of %" PRId64 " samples",
                           out->n_global);
        out->ids = more;
        out->capacity = out->n_global;
    }
    out->micro_batch = j;
    out->n = rd_order_deal(order, batch, (int)(s->run->world->rank * s->n_own + j),
                           (int)s->n_micro_batches, out->ids);
    out->epoch = epoch;
    out->batch = batch;
    return RD_OK;
}

/* Finds the micro-batch after `from`, if the orders reach that far, and announces it to the
 * dataset, whose worker threads may prepare it. */
static rd_code announce(stepper *s, const step_share *from, step_share *out, rd_status *st)
{
    rd_run *r = s->run;
    const rd_dataset_def *def = rd_dataset_def_of(r->train_data);
    const rd_order *order = from->epoch == s->order_epoch ? s->order : s->next_order;
    out->batch = -1;
    if (from->micro_batch + 1 < s->n_own) {
        RD_TRY(deal(s, order, from->epoch, from->batch, from->micro_batch + 1, out, st));
    } else if (from->batch + 1 < rd_order_n_batches(order)) {
        RD_TRY(deal(s, order, from->epoch, from->batch + 1, 0, out, st));
    } else {
        if (from->epoch + 1 >= s->n_epochs || from->epoch != s->order_epoch) return RD_OK;
        if (!s->next_order) RD_TRY(new_order(s, from->epoch + 1, &s->next_order, st));
        RD_TRY(deal(s, s->next_order, from->epoch + 1, 0, 0, out, st));
    }
    def->prepare(rd_dataset_self(r->train_data), out->ids, out->n, out->epoch);
done:
    return st->code;
}

/* While the GPU computes this batch: fetches the next one, starts its upload, and announces the one
 * after it. A failure belongs to the next batch and is not reported yet: that batch is fetched
 * again when its turn comes. */
static rd_code fetch_ahead(stepper *s, rd_status *st)
{
    rd_run *r = s->run;
    rd_status own = {.code = RD_OK};
    const rd_dataset_def *def = rd_dataset_def_of(r->train_data);
    if (!r->other_batch_arena || s->next.batch < 0) return st->code;
    RD_TRY(run_phase(r, RD_PHASE_INPUT, r->progress.step + 1, st));
    const int64_t begin_ns = rd_now_ns();
    RD_TRY(rd_arena_settle(r->other_batch_arena, st));
    rd_arena_reset(r->other_batch_arena);
    s->ahead = (rd_batch){
        .step = r->progress.step + 1, .epoch = s->next.epoch, .n_global = s->next.n_global};
    if (def->fetch(rd_dataset_self(r->train_data), s->next.ids, s->next.n, r->other_batch_arena,
                   &s->ahead, &own) == RD_OK) {
        s->ahead_swaps = r->batch_swaps;
        RD_TRY(device_send_ahead(r, &s->ahead, st));
        if (r->progress.step + 2 < s->last_step) RD_TRY(announce(s, &s->next, &s->after, st));
    }
    s->ahead_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    return st->code;
}

/* Gets this rank's micro-batch j of the next global batch into run->batch_arena. The last
 * micro-batch moves the position. last: no global batch follows this one. */
static rd_code next_batch(stepper *s, int64_t j, bool last, rd_batch *b, rd_status *st)
{
    rd_run *r = s->run;
    run_progress *at = &r->progress;
    const rd_dataset_def *def = rd_dataset_def_of(r->train_data);
    const int64_t begin_ns = rd_now_ns();
    bool ahead = false;
    if (s->next.batch == at->batch && s->next.epoch == at->epoch && s->next.micro_batch == j) {
        const step_share spare = s->now;
        s->now = s->next;
        s->next = spare;
        ahead = s->ahead_swaps > 0 &&
                s->ahead_swaps == r->batch_swaps; /* false: an evaluation came between */
    } else {
        RD_TRY(deal(s, s->order, at->epoch, at->batch, j, &s->now, st));
    }
    s->next.batch = -1;
    s->ahead_swaps = 0;
    if (ahead) {
        device_swap_batches(r);
        *b = s->ahead;
    } else {
        RD_TRY(device_fresh_batch(r, st));
        b->step = at->step;
        b->epoch = at->epoch;
        b->n_global = s->now.n_global;
        RD_TRY(def->fetch(rd_dataset_self(r->train_data), s->now.ids, s->now.n, r->batch_arena, b,
                          st));
    }
    b->step = at->step;
    b->epoch = at->epoch;
    b->n_global = s->now.n_global;
    if (j + 1 == s->n_own) {
        at->batch++;
        at->samples += b->n_global;
        at->all_samples += b->n_global;
    }
    if (ahead) {
        const step_share spare = s->next;
        s->next = s->after;
        s->after = spare;
        s->after.batch = -1;
    } else if (def->prepare && (!last || j + 1 < s->n_own)) {
        RD_TRY(announce(s, &s->now, &s->next, st));
    }
    s->input_s += (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    return st->code;
}

static rd_code keep_pictures(stepper *s, const rd_batch *b, const rd_loss_out *out, rd_status *st)
{
    enum { SHOWN = 9 };
    RD_TRY(gallery_start(&s->pictures, &s->run->spec, SHOWN, st));
    for (int64_t i = 0; i < b->n && i < SHOWN; i++)
        gallery_add(&s->pictures, &s->run->spec, b, i, out);
    s->want_pictures = false;
done:
    return st->code;
}

enum { MARK_BACKWARD, MARK_BACKWARD_DONE }; /* exchange.c has the next two marks */

static rd_code stepper_backward(stepper *s, rd_var *loss, rd_status *st)
{
    rd_run *r = s->run;
    const int64_t begin_ns = rd_now_ns();
    if (run_gpu(r)) RD_TRY(rd_gpu_mark(run_gpu(r), MARK_BACKWARD, st));
    RD_TRY(rd_tape_backward(r->tape, loss, st));
    if (run_gpu(r)) RD_TRY(rd_gpu_mark(run_gpu(r), MARK_BACKWARD_DONE, st));
    s->backward_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    return st->code;
}

/* Returns the key of work that a GPU may keep as a graph. first: the weights have changed since the
 * last batch, so copies of them are made again. ends: sums over ranks begin within it. */
static uint64_t graph_key(const rd_batch *b, bool first, bool ends)
{
    return rd_batch_shape(b) * 8 + (uint64_t)first * 4 + (uint64_t)ends * 2;
}
enum { UPDATE_KEY = 1 };

/* Counts what the update has sent to other hosts as a part of the exchange, which nothing hides. */
static void add_weights(stepper *s, double bytes, double seconds)
{
    run_times *t = &s->run->times;
    times_enter(s->run, t->what); /* ends the present activity here */
    t->seconds[TIMES_UPDATE] -= seconds;
    t->seconds[TIMES_EXCHANGE] += seconds;
    s->comm.wire_bytes += bytes;
    s->comm.total_s += seconds;
    s->comm.exposed_s += seconds;
    s->comm_s += seconds;
}

static rd_code stepper_update(stepper *s, double lr, double scale, rd_optim_stats *stats,
                              rd_status *st)
{
    rd_run *r = s->run;
    const rd_shard *shard = exchange_shard(r->exchange);
    const int64_t sent = shard ? rd_shard_sent(shard) : 0;
    const double spent_s = shard ? rd_shard_seconds(shard) : 0.0;
    if (stats->want_grads) RD_TRY(exchange_whole(r->exchange, st));
    stats->zero_grads = run_gpu(r) && !stats->want_grads;
    RD_TRY(device_recurs(r, UPDATE_KEY, st));
    (void)rd_optim_step(r->optim, r->progress.state_updates + 1, lr, scale, stats, st);
    RD_TRY(device_recurred(r, st));
    if (stats->zero_grads && stats->finite) exchange_zeroed(r->exchange);
    if (!shard) goto done;
    double bytes = (double)(rd_shard_sent(shard) - sent),
           seconds = rd_shard_seconds(shard) - spent_s;
    if (run_gpu(r) && stats->finite) {
        RD_TRY(exchange_spread(r->exchange, &bytes, &seconds, st));
        RD_TRY(rd_optim_guard(r->optim, st));
    }
    add_weights(s, bytes, seconds);
done:
    return st->code;
}

static rd_code forward_backward(stepper *s, const rd_batch *b, step_sums *sum, rd_status *st)
{
    rd_run *r = s->run;
    rd_loss_out out = {0};
    rd_tape_reset(r->tape, true, true);
    rd_tape_set_seed(r->tape, (float)r->progress.loss_scale);
    RD_TRY(r->model->loss(r->model_self, r->tape, b, &out, st));
    RD_TRY(rd_tape_check(r->tape, st));
    if (b->n == 0) {
        rd_tape_return_grads(r->tape);
        goto done;
    }
    times_enter(r, TIMES_BACKWARD);
    RD_TRY(stepper_backward(s, out.loss, st));
    device_report_fallback(r);
    sum->loss += out.loss_sum;
    sum->weight += out.weight;
    sum->nll += out.nll_sum;
    sum->targets += out.n_targets;
    sum->correct += out.n_correct;
    class_sums_add(sum->classes, r->spec.n_classes, b, &out);
    sum->tokens_src += out.n_tokens_src;
    sum->tokens_tgt += out.n_tokens_tgt;
    sum->samples += (double)b->n;
    for (int64_t i = 0; i < b->n; i++) sum->hash += id_hash(b->sample[i]);
    if (r->config.record_sample_ids && !s->make) RD_TRY(sample_ids_add(&s->ids, b, st));
    if (s->count_flops && r->model->flops) sum->flops += r->model->flops(r->model_self, b);
    if (s->want_sample) keep_sample(s, b, &out);
    if (s->want_pictures) RD_TRY(keep_pictures(s, b, &out, st));
done:
    return st->code;
}

/* Elements [from, from + n) of the gradient arena hold micro-batch j. Adds the sums of the
 * micro-batches before it, as a binary counter carries. So micro-batches are added along the tree
 * ((0 + 1) + (2 + 3)) + ..., whose upper levels are the sum over ranks. *level: the first level
 * that micro-batch j does not complete. */
static rd_code stepper_carry(const stepper *s, int64_t j, int64_t from, int64_t n, int *level,
                             rd_status *st)
{
    float *g = rd_params_device_grads(s->run->params) + from;
    *level = 0;
    RD_TRY(rd_params_sync_to_device(s->run->params, RD_GRADS, st));
    for (; j >> *level & 1; ++*level)
        RD_TRY(rd_vec_add(s->run->backend, n, s->sum[*level] + from, g, st));
done:
    return st->code;
}

static rd_code add_last_micro_batch(void *ctx, int64_t from, int64_t n, rd_status *st)
{
    const stepper *s = ctx;
    int level;
    return stepper_carry(s, s->n_own - 1, from, n, &level, st);
}

/* Allocates a sum where the gradients are stored. */
static rd_code new_sum(stepper *s, int level, rd_status *st)
{
    const size_t bytes = (size_t)rd_params_grad_span(s->run->params) * sizeof(float);
    if (run_gpu(s->run)) return rd_gpu_memory_new(run_gpu(s->run), bytes, &s->sum[level], st);
    s->sum[level] = malloc(bytes);
    return s->sum[level]
               ? st->code
               : rd_fail(st, RD_EENV, "out of memory for the sums of %lld parts of a batch",
                         1LL << level);
}

/* Adds a micro-batch other than the last. Afterwards the gradients begin at zero. */
static rd_code add_micro_batch(stepper *s, int64_t j, rd_status *st)
{
    const int64_t span = rd_params_grad_span(s->run->params);
    int level;
    RD_TRY(stepper_carry(s, j, 0, span, &level, st));
    if (!s->sum[level]) RD_TRY(new_sum(s, level, st));
    RD_TRY(rd_vec_copy(s->run->backend, span, rd_params_device_grads(s->run->params), s->sum[level],
                       st));
    exchange_clear(s->run->exchange);
done:
    return st->code;
}

/* Names the key that decides how much memory a forward pass takes. */
static rd_code explain_memory(const rd_run *r, rd_status *st)
{
    const run_config *c = &r->config;
    if (c->has_batch_tokens) return device_explain(r, "batch_tokens", c->batch_tokens, st);
    if (c->has_batch_sentences) return device_explain(r, "batch_sentences", c->batch_sentences, st);
    return device_explain(r, "batch_size", c->batch_size, st);
}

/* Computes this rank's micro-batches of one global batch. first: the step begins with it; ends: the
 * step ends with it; last: no batch follows. */
static rd_code one_batch(stepper *s, bool first, bool ends, bool last, step_sums *out,
                         rd_status *st)
{
    rd_run *r = s->run;
    for (int64_t j = 0; j < s->n_own; j++) {
        rd_batch b = {0};
        if (run_phase(r, RD_PHASE_INPUT, r->progress.step + 1, &s->lost) != RD_OK) return RD_OK;
        if (s->make)
            RD_TRY(s->make(s, &b, st));
        else if (next_batch(s, j, last, &b, &s->lost) != RD_OK)
            return RD_OK; /* stepper_step reports it */
        RD_TRY(run_phase(r, RD_PHASE_COMPUTE, r->progress.step + 1, st));
        if (ends && j + 1 == s->n_own)
            exchange_last(r->exchange, s->by_tree ? add_last_micro_batch : NULL, s);
        RD_TRY(device_recurs(r, graph_key(&b, first && j == 0, ends && j + 1 == s->n_own), st));
        (void)forward_backward(s, &b, out, st);
        (void)device_recurred(r, st);
        RD_TRY(explain_memory(r, st));
        if (!s->make)
            RD_TRY(fetch_ahead(s, st));
        else if (!last || j + 1 < s->n_own)
            RD_TRY(device_send_ahead(
                /* synthetic images are the same ones in every step */
                r, &b, st));
        if (s->by_tree && j + 1 < s->n_own) RD_TRY(add_micro_batch(s, j, st));
    }
done:
    return st->code;
}

/* Moves times to backward. Backward of the last micro-batch took the GPU longer than the host.
 * Afterwards the host waited for the GPU in other activities, so that time belongs to backward. */
static rd_code deal_times(stepper *s, rd_status *st)
{
    static const times_activity after[] = {TIMES_WAIT, TIMES_EXCHANGE, TIMES_UPDATE};
    rd_run *r = s->run;
    run_times *t = &r->times;
    double seconds;
    if (!run_gpu(r) || s->backward_s == 0.0) return st->code;
    RD_TRY(rd_gpu_between(run_gpu(r), MARK_BACKWARD, MARK_BACKWARD_DONE, &seconds, st));
    times_enter(r, t->what); /* ends the present activity here */
    const double hidden = fmax(0.0, fmin(seconds - s->backward_s, s->ahead_s));
    t->seconds[TIMES_INPUT] -= hidden;
    t->seconds[TIMES_BACKWARD] += hidden;
    s->backward_s += hidden;
    s->late_s = s->ahead_s - hidden;
    for (int i = 0; i < 3; i++) {
        const double more =
            fmax(0.0, fmin(seconds - s->backward_s, t->seconds[after[i]] - s->since[after[i]]));
        t->seconds[after[i]] -= more;
        t->seconds[TIMES_BACKWARD] += more;
        s->backward_s += more;
        if (after[i] != TIMES_UPDATE) s->comm_s = fmax(0.0, s->comm_s - more);
    }
done:
    return st->code;
}

/* Collective, after a step in which a rank could not read its samples: goes back to the last whole
 * step, and fails on all ranks alike. */
static rd_code leave_step(stepper *s, const run_progress *before, rd_status *st)
{
    rd_run *r = s->run;
    r->progress = *before;
    *st = s->lost;
    (void)run_agree(r, st);
    s->whole = st->code != RD_OK && r->agreed;
    return st->code;
}

double stepper_loss_per_target(const step_sums *sum)
{
    return sum->targets > 0.0 && sum->nll > 0.0 ? sum->nll / sum->targets : sum->loss / sum->weight;
}

rd_code stepper_step(stepper *s, double lr, const step_sums *in, step_sums *out,
                     rd_optim_stats *stats, rd_status *st)
{
    enum { N_SUMS = sizeof(step_sums) / sizeof(double) };
    rd_run *r = s->run;
    const run_progress before = r->progress;
    *out = *in;
    s->lost = (rd_status){.rank = -1};
    s->whole = false;
    s->input_s = s->late_s;
    s->comm_s = s->backward_s = s->ahead_s = s->late_s = 0.0;
    memcpy(s->since, r->times.seconds, sizeof s->since);
    s->crossed = false;
    exchange_begin(r->exchange);
    for (int64_t i = 0; i < run_batches(r) && s->lost.code == RD_OK; i++) {
        if (!s->make) {
            const int64_t epoch = r->progress.epoch;
            RD_TRY(stepper_prepare(s, st));
            if (stepper_done(s)) break;
            if (r->progress.epoch != epoch && i > 0) {
                s->crossed = true;
                s->before = *out;
                out->hash = 0.0; /* the position counts the hashes of the new epoch */
            }
        }
        const bool ends = i + 1 == run_batches(r);
        RD_TRY(one_batch(s, i == 0, ends, ends && r->progress.step + 1 >= s->last_step, out, st));
    }
    exchange_settle(r->exchange);
    double sums[N_SUMS];
    out->input_s = s->input_s;
    out->lost = s->lost.code != RD_OK ? 1.0 : 0.0;
    out->retries = (double)(rd_retries() - s->retries_seen);
    s->retries_seen += (int64_t)out->retries;
    const int64_t begin_ns = rd_now_ns();
    RD_TRY(run_phase(r, RD_PHASE_WAIT, r->progress.step + 1, st));
    memcpy(sums, out, sizeof sums);
    RD_TRY(rd_comm_sum_f64(r->comm, sums, N_SUMS, st));
    memcpy(out, sums, sizeof sums);
    if (s->crossed) {
        memcpy(sums, &s->before, sizeof sums);
        RD_TRY(rd_comm_sum_f64(r->comm, sums, N_SUMS, st));
        memcpy(&s->before, sums, sizeof sums);
    }
    RD_TRY(run_phase(r, RD_PHASE_EXCHANGE, r->progress.step + 1, st));
    times_enter(r, TIMES_EXCHANGE);
    RD_TRY(exchange_finish(r->exchange, &s->comm, st));
    s->comm_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
    if (out->lost > 0.0) RD_TRY(leave_step(s, &before, st));
    RD_TRY(run_phase(r, RD_PHASE_UPDATE, r->progress.step + 1, st));
    r->progress.step++;
    r->progress.samples_hash =
        (int64_t)(((uint64_t)r->progress.samples_hash + (uint64_t)out->hash) & INT64_MAX);
    stats->finite = stats->spike = false;
    stats->grad_norm = stats->clipped_norm = NAN;
    const run_config *c = &r->config;
    const double loss = stepper_loss_per_target(out),
                 most = spikes_most(&r->progress.norms, c->spike_norm_z);
    const bool high = loss > spikes_most(&r->progress.losses, c->spike_loss_z);
    stats->most_norm = isfinite(most) ? most : 0.0;
    /* The sums are the same bytes on every rank, so either all ranks skip the step or none. */
    if (isfinite(out->loss) && out->weight > 0.0 && !high)
        RD_TRY(stepper_update(s, lr, 1.0 / (r->progress.loss_scale * out->weight), stats, st));
    stats->spike |= high;
    r->progress.updates += stats->finite;
    r->progress.state_updates += stats->finite;
    r->progress.spiked += stats->spike;
    r->progress.skipped += !stats->finite && !stats->spike;
    if (c->spike_loss_z > 0.0) spikes_add(&r->progress.losses, loss);
    if (c->spike_norm_z > 0.0) spikes_add(&r->progress.norms, stats->grad_norm);
    device_adapt_scale(r, stats->finite || stats->spike);
    RD_TRY(deal_times(s, st));
    times_enter(r, TIMES_NONE); /* printing and recording are no part of the update */
done:
    if (st->code != RD_OK && !s->whole) exchange_abort(r->exchange);
    return st->code;
}
