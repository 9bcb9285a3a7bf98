/* exchange.c -- replaces the gradients of all ranks by their sum.
 *
 * The gradient arena is cut into buckets: ranges of whole parameters in the order of the arena.
 * Backward completes them in about this order. The first bucket is small, so that the first message
 * starts early. The cut follows from the config and the parameters, and no result depends on it.
 * Tables are in no bucket if a step fills few of their rows. They are summed by rows at the end
 * (embeddings.c).
 *
 * With several hosts, buckets that are complete are sent while backward goes on (rd/comm.h, flows).
 * This happens only in the last backward of a step. With micro_batches, the sums of the earlier
 * micro-batches are added to a bucket right before it is sent. Parameters that no op used are
 * marked ready at the end of backward. On a rank without samples, that is all parameters.
 *
 * Gradients of GPUs are summed by NCCL in the same way, tables included, on a separate stream. In
 * three cases they are copied to the hosts, summed there, and copied back (gpu_group.c): NCCL is
 * missing, NCCL is too old for ranks that share a GPU, or deterministic any rules out NCCL's order
 * of additions. */
#include "exchange.h"
#include "bucket_cut.h"
#include "device.h"
#include "embeddings.h"
#include "gpu_group.h"
#include "rd/gpu_parts.h"
#include "rd/shard.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct exchange {
    rd_run *run;
    embeddings *tables; /* owned; summed by rows */
    rd_shard *shard;    /* owned; NULL: each host keeps the whole state of the optimizer */
    rd_flow *flow;      /* owned; the hosts' way; NULL: GPUs sum, or one GPU computes */
    const char *algorithm;

    /* buckets, in the order of the arena */
    rd_flow_part *bucket; /* owned; [n] */
    int n;
    int *bucket_of; /* owned; by index of the parameter; -1: in no bucket */
    int *size;      /* owned; [n]; number of parameters */

    /* the present step */
    int n_ready; /* number of buckets handed over */
    int *left;   /* owned; [n]; number of parameters that the last backward has not completed */
    bool last_backward;
    bool warm; /* a step has been summed */
    bool zero; /* exchange_zeroed */
    exchange_before *before;
    void *ctx;
    rd_status status; /* failure of a sum that was begun; exchange_finish reports it */

    /* gradients of GPUs */
    rd_gpu_group *group;   /* owned; NULL: the hosts sum, or there is one rank */
    char why[200];         /* why there is no group; "": there is one, or none is needed */
    rd_gpu_sum_time *time; /* owned; [n] */
    rd_gpu_part *part;     /* owned; [n_parts]; the weights of each rank; NULL: no key shard */
    int n_parts;
};

/* ---- buckets ---- */

static int exchange_by_offset(const void *a, const void *b)
{
    const int64_t x = (*(const rd_param *const *)a)->offset,
                  y = (*(const rd_param *const *)b)->offset;
    return (x > y) - (x < y);
}

static bool is_table(const embeddings *e, const rd_param *p)
{
    for (int i = 0; i < embeddings_n(e); i++)
        if (embeddings_param(e, i) == p) return true;
    return false;
}

/* Returns the bucket size. Buckets of GPUs are larger: a GPU sums a small bucket faster than the
 * ranks can announce it to each other. */
static double bucket_mb(const exchange *x)
{
    return x->group && !x->run->config.has_bucket_mb ? 25.0 : x->run->config.bucket_mb;
}

static rd_code make_buckets(exchange *x, rd_status *st)
{
    const rd_params *ps = x->run->params;
    const double bytes = bucket_mb(x) * 1048576.0;
    const bucket_sizes sizes = {
        .span = rd_params_grad_span(ps), .first = fmin(bytes, 1048576.0), .bytes = bytes};
    const int n_all = rd_params_n(ps);
    const size_t capacity = (size_t)n_all + 1;
    int n = 0;
    const rd_param **p = malloc(capacity * sizeof *p);
    bucket_param *place = calloc(capacity, sizeof *place);
    int *of = calloc(capacity, sizeof *of);
    x->bucket = calloc(capacity, sizeof *x->bucket);
    x->bucket_of = calloc(capacity, sizeof *x->bucket_of);
    x->size = calloc(capacity, sizeof *x->size);
    x->left = calloc(capacity, sizeof *x->left);
    x->time = calloc(capacity, sizeof *x->time);
    if (!p || !place || !of || !x->bucket || !x->bucket_of || !x->size || !x->left || !x->time) {
        rd_fail(st, RD_EENV, "out of memory for the buckets of %d parameters", n_all);
        goto done;
    }
    for (int i = 0; i < n_all; i++) {
        const rd_param *q = rd_params_at(ps, i);
        x->bucket_of[i] = -1;
        if (!(q->flags & RD_PARAM_FROZEN)) p[n++] = q;
    }
    qsort(p, (size_t)n, sizeof *p, exchange_by_offset);
    for (int i = 0; i < n; i++)
        place[i] = (bucket_param){.offset = p[i]->offset,
                                  .table = is_table(x->tables, p[i]),
                                  .state = p[i]->flags & RD_PARAM_STATE};
    x->n = bucket_cut(place, n, &sizes, x->bucket, x->size, of);
    rd_assert(x->n == 0 ||
              x->bucket[x->n - 1].from + x->bucket[x->n - 1].n <= rd_params_grad_span(ps));
    for (int i = 0; i < n; i++) x->bucket_of[p[i]->index] = of[i];
done:
    free(p);
    free(place);
    free(of);
    return st->code;
}

/* ---- while backward runs ---- */

/* Queues the sum of elements [from, from + n). All ranks queue sums in the order of the arena. */
static void sum_on_gpus(exchange *x, int64_t from, int64_t n)
{
    static const rd_gpu_wire wire[] = {[RD_WIRE_F32] = RD_GPU_WIRE_F32,
                                       [RD_WIRE_BF16] = RD_GPU_WIRE_BF16,
                                       [RD_WIRE_F16] = RD_GPU_WIRE_F16};
    if (rd_params_sync_to_device(x->run->params, RD_GRADS, &x->status) == RD_OK)
        (void)rd_gpu_group_sum(x->group, rd_params_device_grads(x->run->params) + from, n,
                               wire[x->run->config.allreduce_dtype], &x->status);
}

static void hand_over_buckets(exchange *x, int n)
{
    rd_assert(n >= x->n_ready && n <= x->n);
    for (; x->n_ready < n; x->n_ready++) {
        const rd_flow_part *b = &x->bucket[x->n_ready];
        if (x->before && x->status.code == RD_OK)
            (void)x->before(x->ctx, b->from, b->n, &x->status);
        if (run_gpu(x->run) && x->group) sum_on_gpus(x, b->from, b->n);
    }
    if (x->flow) rd_flow_ready(x->flow, n);
}

static void grad_ready(void *ctx, rd_param *p)
{
    exchange *x = ctx;
    const int b = x->bucket_of[p->index];
    int n = x->n_ready;
    if (!x->last_backward || b < 0) return;
    rd_assert(x->left[b] > 0); /* each parameter is ready once in a backward */
    x->left[b]--;
    while (n < x->n && x->left[n] == 0) n++;
    if (n > x->n_ready) hand_over_buckets(x, n);
}

static void op_done(void *ctx, const rd_op *op, bool backward, bool ends)
{
    exchange *x = ctx;
    (void)op;
    if (x->last_backward && backward && ends) rd_flow_poll(x->flow);
}

/* ---- a step ---- */

/* Are buckets handed over while backward runs? */
static bool overlaps(const exchange *x)
{
    if (x->group) return x->run->config.overlap != RUN_OVERLAP_OFF;
    return x->flow && rd_flow_mode_of(x->flow) != RD_FLOW_LATE;
}

/* The same for the present step: not in the first step of a process with NCCL. There the libraries
 * make their plans, and loading a kernel waits for NCCL's kernels, which wait for other ranks. */
static bool overlaps_now(const exchange *x)
{
    return overlaps(x) && (x->warm || !x->group);
}

void exchange_begin(exchange *x)
{
    embeddings_zero_grads(x->tables, false, x->zero);
    x->zero = false;
    x->n_ready = 0;
    x->last_backward = false;
    x->before = NULL;
}

void exchange_zeroed(exchange *x)
{
    x->zero = true;
}

void exchange_clear(exchange *x)
{
    embeddings_zero_grads(x->tables, true, false);
}

void exchange_last(exchange *x, exchange_before *before, void *ctx)
{
    x->before = before;
    x->ctx = ctx;
    x->last_backward = overlaps_now(x);
    memcpy(x->left, x->size, (size_t)x->n * sizeof *x->left);
}

void exchange_settle(exchange *x)
{
    x->last_backward = false;
    hand_over_buckets(x, x->n);
    for (int i = 0; i < embeddings_n(x->tables) && x->before; i++) {
        const rd_param *p = embeddings_param(x->tables, i);
        if (x->status.code == RD_OK) (void)x->before(x->ctx, p->offset, p->n, &x->status);
    }
    if (x->flow) rd_flow_pause(x->flow);
}

/* Reports the exchange to trace and metrics. Buckets of one host that were summed together count as
 * one exchange. */
static void report_times(exchange *x, int64_t rest_ns, const embeddings_sent *tables,
                         step_comm *out)
{
    const rd_flow_times *t = rd_flow_last(x->flow);
    const rd_flow_part *b = rd_flow_parts(x->flow);
    const double rest_s = (double)rest_ns * 1e-9;
    *out = (step_comm){.total_s = t->total_s + rest_s,
                       .exposed_s = t->exposed_s + rest_s,
                       .wire_bytes = (double)t->wire_bytes + tables->wire_bytes,
                       .overlaps = rd_flow_mode_of(x->flow) != RD_FLOW_LATE,
                       .bytes = tables->bytes,
                       .algorithm = x->algorithm};
    for (int i = 0; i < x->n;) {
        const int first = i;
        double n = 0.0;
        for (; i < x->n && (i == first ||
                            (b[i].begin_ns == b[first].begin_ns && b[i].end_ns == b[first].end_ns));
             i++)
            n += 4.0 * (double)b[i].n;
        out->bytes += n;
        times_bucket(x->run, first, n, b[first].begin_ns, b[first].end_ns);
    }
}

/* Returns the bytes that this rank sends to other hosts while each rank has a part
 * of an array, and gets the others. In a ring through all ranks, one link of each host leads to
 * another host. */
static double ring_bytes(const rd_run *r, double bytes)
{
    const double ranks = r->world->size;
    return r->world->n_hosts > 1 ? (ranks - 1.0) / ranks * bytes / (double)r->world->local_size
                                 : 0.0;
}

/* The stream of the ops waits for the sums between these marks. The host waits with it, so that a
 * peer that is lost or slow is reported in time. */
enum { MARK_BEFORE = 2, MARK_AFTER };

static rd_code finish_on_gpus(exchange *x, step_comm *out, rd_status *st)
{
    rd_run *r = x->run;
    rd_gpu *gpu = run_gpu(r);
    double waited = 0.0, busy = 0.0;
    int n = 0;
    RD_TRY(rd_gpu_mark(gpu, MARK_BEFORE, st));
    RD_TRY(rd_gpu_group_join(x->group, st));
    RD_TRY(rd_gpu_mark(gpu, MARK_AFTER, st));
    RD_TRY(rd_gpu_group_wait(x->group, r->config.stall_abort_s, st));
    RD_TRY(rd_gpu_between(gpu, MARK_BEFORE, MARK_AFTER, &waited, st));
    RD_TRY(rd_gpu_group_times(x->group, x->time, x->n, &n, st));
    const int64_t now_ns = rd_now_ns();
    rd_params_device_changed_grads(r->params);
    *out = (step_comm){.exposed_s = waited, .overlaps = overlaps_now(x), .algorithm = x->algorithm};
    for (int i = 0; i < n; i++) {
        const double bytes = 4.0 * (double)x->bucket[i].n;
        busy += x->time[i].begin_s - x->time[i].end_s;
        out->bytes += bytes;
        times_bucket(r, i, bytes, now_ns - (int64_t)(x->time[i].begin_s * 1e9),
                     now_ns - (int64_t)(x->time[i].end_s * 1e9));
    }
    out->total_s =
        fmax(busy,
             /* the sums without the gaps between them, in which NCCL waits for the next bucket */
             waited);
    out->wire_bytes = 2.0 * ring_bytes(r, out->bytes) *
                      (r->config.allreduce_dtype == RD_WIRE_F32 ? 1.0 : 0.5);
    x->warm = true;
done:
    return st->code;
}

/* Downloads the gradients to host memory. The host copy is the valid one until the next call that
 * wants gradients on the GPU. */
static rd_code download_grads(exchange *x, rd_status *st)
{
    RD_TRY(rd_params_sync_to_host(x->run->params, RD_GRADS, st));
    RD_TRY(device_check(x->run, st));
done:
    return st->code;
}

rd_code exchange_finish(exchange *x, step_comm *out, rd_status *st)
{
    rd_run *r = x->run;
    embeddings_sent all = {0};
    if (x->status.code != RD_OK && st->code == RD_OK) *st = x->status;
    RD_TRY(st->code);
    if (!x->flow && !x->group) return st->code;
    if (run_gpu(r) && x->group) return finish_on_gpus(x, out, st);
    const int64_t download_ns = rd_now_ns();
    if (run_gpu(r)) RD_TRY(download_grads(x, st));
    const int64_t downloaded_ns = rd_now_ns() - download_ns;
    RD_TRY(rd_flow_finish(x->flow, st));
    const int64_t begin_ns = rd_now_ns();
    for (int i = 0; i < embeddings_n(x->tables); i++) {
        embeddings_sent sent = {0};
        const int64_t from_ns = rd_now_ns();
        RD_TRY(embeddings_sum(x->tables, i, &sent, st));
        all.bytes += sent.bytes;
        all.wire_bytes += sent.wire_bytes;
        if (x->run->world->size > 1)
            times_bucket(x->run, x->n + i, sent.bytes, from_ns, rd_now_ns());
    }
    if (r->world->size > 1)
        report_times(x,
                     (embeddings_n(x->tables) > 0 ? rd_now_ns() - begin_ns : 0) +
                         (run_gpu(r) ? downloaded_ns : 0),
                     &all, out);
    if (run_gpu(r)) rd_params_touch_grads(r->params);
done:
    return st->code;
}

/* ---- weights of GPUs that keep parts of the optimizer's state ---- */

static rd_code spread_by_nccl(exchange *x, double *seconds, rd_status *st)
{
    rd_run *r = x->run;
    rd_gpu_sum_time time;
    int n = 0;
    RD_TRY(rd_gpu_group_spread(x->group, rd_params_device_values(r->params), x->part, x->n_parts,
                               st));
    RD_TRY(rd_gpu_group_join(x->group, st));
    RD_TRY(rd_gpu_group_wait(x->group, r->config.stall_abort_s, st));
    RD_TRY(rd_gpu_group_times(x->group, &time, 1, &n, st));
    *seconds = n > 0 ? time.begin_s - time.end_s : 0.0;
done:
    return st->code;
}

static rd_code spread_by_hosts(exchange *x, double *seconds, rd_status *st)
{
    rd_params *ps = x->run->params;
    const int64_t begin_ns = rd_now_ns();
    RD_TRY(rd_params_sync_to_host(ps, RD_VALUES, st));
    RD_TRY(rd_shard_collect(x->shard, rd_params_values(ps), st));
    rd_params_updated(ps);
    *seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    return st->code;
}

rd_code exchange_spread(exchange *x, double *bytes, double *seconds, rd_status *st)
{
    *seconds = 0.0;
    *bytes = ring_bytes(x->run, 4.0 * (double)rd_params_grad_span(x->run->params));
    return x->group ? spread_by_nccl(x, seconds, st) : spread_by_hosts(x, seconds, st);
}

rd_code exchange_alone(exchange *x, int64_t n, double *seconds, rd_status *st)
{
    rd_run *r = x->run;
    exchange_begin(x);
    rd_tape_return_grads(r->tape);
    if (run_gpu(r)) RD_TRY(rd_gpu_wait(run_gpu(r), st));
    RD_TRY(rd_comm_barrier(r->comm, st));
    const int64_t begin_ns = rd_now_ns();
    if (run_gpu(r) && x->group) {
        sum_on_gpus(x, 0, n);
        if (x->status.code != RD_OK) *st = x->status;
        RD_TRY(st->code);
        RD_TRY(rd_gpu_group_join(x->group, st));
        RD_TRY(rd_gpu_group_wait(x->group, r->config.stall_abort_s, st));
    } else {
        RD_TRY(rd_params_sync_to_host(r->params, RD_GRADS, st));
        RD_TRY(rd_comm_sum_f32(r->comm, rd_params_grads(r->params), n, st));
        if (run_gpu(r)) {
            rd_params_touch_grads(r->params);
            RD_TRY(rd_params_sync_to_device(r->params, RD_GRADS, st));
            RD_TRY(rd_gpu_wait(run_gpu(r), st));
        }
    }
    *seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
done:
    if (st->code != RD_OK) exchange_abort(x);
    return st->code;
}

/* ---- construction ---- */

static rd_flow_mode wanted_mode(const rd_run *r)
{
    switch (r->config.overlap) {
    case RUN_OVERLAP_OFF:
        return RD_FLOW_LATE;
    case RUN_OVERLAP_CALLS:
        return RD_FLOW_CALLS;
    case RUN_OVERLAP_CORE:
        return RD_FLOW_CORE;
    case RUN_OVERLAP_AUTO:
    case RUN_OVERLAP_THREAD:
        break;
    }
    return RD_FLOW_THREAD;
}

static void describe_on_gpus(const exchange *x, rd_strbuf *out)
{
    if (x->group)
        rd_strbuf_printf(out,
                         "between %s: gradients are summed by NCCL, as %s in %d bucket%s of about "
                         "%g MB, %s backward\n",
                         x->run->device.shared ? "ranks that share GPUs" : "GPUs",
                         rd_wire_name(x->run->config.allreduce_dtype), x->n, RD_S(x->n),
                         bucket_mb(x), overlaps(x) ? "during" : "after");
    else
        rd_strbuf_printf(
            out, "between GPUs: gradients go through the hosts' memory, after backward: %s\n",
            x->why);
}

void exchange_describe(const exchange *x, rd_strbuf *out)
{
    const int tables = embeddings_n(x->tables);
    const bool gpu = run_gpu(x->run) != NULL;
    if (gpu && x->run->world->size > 1) describe_on_gpus(x, out);
    if (gpu && x->shard)
        rd_strbuf_printf(out,
                         "shard optimizer: each of %d GPUs keeps and updates its part, and sends "
                         "these weights to the others\n",
                         rd_shard_n_hosts(x->shard));
    if ((x->run->world->n_hosts == 1 && (gpu || !x->shard)) || !x->flow) return;
    const rd_flow_mode mode = rd_flow_mode_of(x->flow);
    rd_strbuf_printf(out, "between hosts: gradients travel as %s in %d bucket%s of about %g MB%s",
                     rd_wire_name(x->run->config.allreduce_dtype), x->n, RD_S(x->n),
                     x->run->config.bucket_mb,
                     mode == RD_FLOW_LATE    ? ", after backward"
                     : mode == RD_FLOW_CALLS ? ", during backward between its ops"
                     : mode == RD_FLOW_CORE  ? ", during backward by a thread with its own core"
                                             : ", during backward by a thread");
    if (tables > 0)
        rd_strbuf_printf(out, ", and %d embedding%s by rows after it", tables, RD_S(tables));
    rd_strbuf_printf(out, "\n");
    if (x->shard && !gpu)
        rd_strbuf_printf(out,
                         "shard optimizer: each of %d %s keeps and updates its part, and sends "
                         "these weights to the others\n",
                         rd_shard_n_hosts(x->shard), rd_shard_shares(x->shard) ? "hosts" : "ranks");
}

rd_shard *exchange_shard(const exchange *x)
{
    return x->shard;
}

rd_code exchange_whole(exchange *x, rd_status *st)
{
    if (!x->shard || run_gpu(x->run)) return st->code;
    (void)rd_shard_collect_parts(x->shard, rd_params_grads(x->run->params), st);
    RD_TRY(rd_comm_local_barrier(x->run->comm, st));
done:
    return st->code;
}

void exchange_abort(exchange *x)
{
    if (run_gpu(x->run)) rd_gpu_group_abort(x->group);
    x->group = NULL;
}

void exchange_free(exchange *x)
{
    if (!x) return;
    if (x->run->tape) rd_tape_on_grad_ready(x->run->tape, NULL, NULL);
    rd_flow_free(x->flow);
    rd_shard_free(x->shard);
    if (run_gpu(x->run)) rd_gpu_group_free(x->group);
    embeddings_free(x->tables);
    free(x->bucket);
    free(x->bucket_of);
    free(x->size);
    free(x->left);
    free(x->time);
    free(x->part);
    free(x);
}

/* Lists the pieces of all ranks for NCCL. */
static rd_code list_parts(exchange *x, rd_status *st)
{
    int64_t n;
    const rd_shard_piece *piece = rd_shard_pieces(x->shard, &n);
    x->part = calloc((size_t)n + 1, sizeof *x->part);
    if (!x->part) return rd_fail(st, RD_EENV, "out of memory for the parts of the GPUs");
    for (int64_t i = 0; i < n; i++)
        x->part[x->n_parts++] = (rd_gpu_part){
            .from = piece[i].lo, .n = piece[i].hi - piece[i].lo, .rank = piece[i].host};
    return st->code;
}

/* Collective. Divides the parameters between hosts or GPUs, if the config says so. */
static rd_code divide(exchange *x, rd_status *st)
{
    /* Messages count bytes as int, so a rank's piece of a stripe has at most this number of
     * elements. */
    enum { LONGEST = 1 << 27 };
    const rd_run *r = x->run;
    const bool gpu = run_gpu(r) != NULL;
    const int n = gpu ? 0 : embeddings_n(x->tables);
    const int64_t span = rd_params_grad_span(r->params), kept = rd_params_trained_span(r->params);
    const rd_flow_part whole[] = {{.from = 0, .n = kept}, {.from = kept, .n = span - kept}};
    int64_t *cut = NULL, n_cuts = 0;
    rd_flow_part *rest = NULL;
    if (r->config.shard != RUN_SHARD_OPTIMIZER) return st->code;
    rest = calloc((size_t)n + 1, sizeof *rest);
    if (!rest)
        rd_fail(st, RD_EENV, "out of memory for the list of %d tables", n);
    else
        (void)rd_optim_cuts(r->optim, &cut, &n_cuts, st);
    if (rd_comm_agree(r->comm, st) != RD_OK || !rest) goto done;
    for (int i = 0; i < n; i++) {
        const rd_param *p = embeddings_param(x->tables, i);
        rest[i] = (rd_flow_part){.from = p->offset, .n = rd_params_place(p)};
    }
    const rd_shard_plan plan = {.part = gpu ? whole : x->bucket,
                                .n_parts = gpu ? 2 : x->n,
                                .rest = rest,
                                .n_rest = n,
                                .cut = cut,
                                .n_cuts = n_cuts,
                                .span = span,
                                .kept = kept,
                                .wire = r->config.allreduce_dtype,
                                .stripe = gpu ? (int64_t)r->world->size * LONGEST : 0};
    RD_TRY(rd_shard_new(r->comm, &plan, &x->shard, st));
    if (gpu && x->shard) (void)list_parts(x, st);
    RD_TRY(rd_comm_agree(r->comm, st));
done:
    free(rest);
    free(cut);
    return st->code;
}

/* Collective. Opens the flow, by which the hosts sum. */
static rd_code open_flow(exchange *x, rd_status *st)
{
    rd_run *r = x->run;
    float *g = rd_params_grads(r->params);
    if (x->shard && !run_gpu(r))
        RD_TRY(rd_shard_flow(x->shard, g, wanted_mode(r), &x->flow, st));
    else
        RD_TRY(rd_flow_new(r->comm, g, x->bucket, x->n, r->config.allreduce_dtype,
                           run_gpu(r) ? RD_FLOW_LATE : wanted_mode(r), &x->flow, st));
    if (rd_flow_mode_of(x->flow) != RD_FLOW_LATE) rd_tape_on_grad_ready(r->tape, grad_ready, x);
    if (rd_flow_mode_of(x->flow) == RD_FLOW_CALLS) rd_tape_on_op(r->tape, op_done, x);
done:
    return st->code;
}

rd_code exchange_new(rd_run *r, exchange **out, rd_status *st)
{
    exchange *x = *out = calloc(1, sizeof *x);
    if (x)
        x->run = r;
    else
        rd_fail(st, RD_EENV, "out of memory for the exchange of gradients");
    if (rd_comm_agree(r->comm, st) != RD_OK || !x) return st->code;
    x->algorithm = r->world->n_hosts > 1
                       ? "shared memory inside hosts, direct exchange between them"
                       : "shared memory";
    RD_TRY(gpu_group_open(r, &x->group, x->why, st));
    if (x->group) x->algorithm = "NCCL";
    if (run_gpu(r) && r->world->size > 1 && !x->group) RD_TRY(run_share_gradients(r, st));
    RD_TRY(embeddings_new(r, x->group != NULL, &x->tables, st));
    (void)make_buckets(x, st);
    RD_TRY(rd_comm_agree(r->comm, st));
    RD_TRY(divide(x, st));
    if (x->group && overlaps(x)) rd_tape_on_grad_ready(r->tape, grad_ready, x);
    if (!x->group && !(run_gpu(r) && r->world->size == 1)) RD_TRY(open_flow(x, st));
done:
    return st->code;
}
