/* exchange.c -- gradients of all ranks become their sum.
 *
 * The gradient arena is cut into buckets: ranges of whole parameters in the order of the arena, which is about the order in which
 * backward ends with them. The first one is small, so that something is on its way soon. Cuts follow from the config and the
 * parameters alone, and no result depends on them. Tables of which a step fills few rows are left out, and summed by
 * rows at the end (embeddings.c).
 *
 * With several hosts the buckets that backward has ended with are on their way while it goes on (rd/comm.h, flows). Only in the last
 * backward of a step: with micro_batches, the sums of the parts before are added to a bucket right before it goes. What no op
 * used, and everything on a rank without samples, is ready when backward would be over. */
#include "run_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct exchange {
    rd_run *run;
    embeddings *tables;
    rd_flow *flow;
    rd_flow_part *bucket; /* [n], owned */
    int n, n_whole;       /* n_whole of this step are ready */
    int *bucket_of;       /* by index of the parameter; -1: in none */
    int *size, *left;     /* parameters of each bucket; those that this backward has not ended with */
    bool last_backward;
    exchange_before *before;
    void *ctx;
    const char *algorithm;
};

rd_wire run_wire(const rd_run *r)
{
    return strcmp(r->c.allreduce_dtype, "bfloat16") == 0  ? RD_WIRE_BF16
           : strcmp(r->c.allreduce_dtype, "float16") == 0 ? RD_WIRE_F16
                                                          : RD_WIRE_F32;
}

/* ---- buckets ---- */

static int by_offset(const void *a, const void *b)
{
    const int64_t x = (*(const rd_param *const *)a)->offset, y = (*(const rd_param *const *)b)->offset;
    return (x > y) - (x < y);
}

static bool is_table(const embeddings *e, const rd_param *p)
{
    for (int i = 0; i < embeddings_n(e); i++)
        if (embeddings_param(e, i) == p) return true;
    return false;
}

/* Running statistics have buckets of their own: no record of the tape says when they are ready. */
static void cut(exchange *x, const rd_param *const *p, int n_params)
{
    const rd_params *ps = x->run->params;
    const double bytes = x->run->c.bucket_mb * 1048576.0, first = fmin(bytes, 1048576.0);
    bool open = false;
    for (int i = 0; i < n_params; i++) {
        const int64_t end = i + 1 < n_params ? p[i + 1]->offset : rd_params_span(ps);
        rd_flow_part *b = &x->bucket[x->n - open];
        x->bucket_of[p[i]->index] = -1;
        if (is_table(x->tables, p[i])) {
            open = false;
            continue;
        }
        if (open && ((double)b->n * 4.0 >= (x->n == 1 ? first : bytes) ||
                     ((p[i]->flags ^ p[i - 1]->flags) & RD_PARAM_STATE))) {
            open = false;
            b++;
        }
        if (!open) {
            *b = (rd_flow_part){.from = p[i]->offset};
            x->n++;
            open = true;
        }
        b->n = end - b->from;
        x->bucket_of[p[i]->index] = x->n - 1;
        x->size[x->n - 1]++;
    }
}

static rd_code make_buckets(exchange *x, rd_status *st)
{
    const rd_params *ps = x->run->params;
    const int n = rd_params_n(ps);
    const size_t room = (size_t)n + 1;
    const rd_param **p = malloc(room * sizeof *p);
    x->bucket = calloc(room, sizeof *x->bucket);
    x->bucket_of = calloc(room, sizeof *x->bucket_of);
    x->size = calloc(room, sizeof *x->size);
    x->left = calloc(room, sizeof *x->left);
    if (!p || !x->bucket || !x->bucket_of || !x->size || !x->left) {
        free(p);
        return rd_fail(st, RD_EENV, "out of memory for the buckets of %d parameters", n);
    }
    for (int i = 0; i < n; i++) p[i] = rd_params_at(ps, i);
    qsort(p, (size_t)n, sizeof *p, by_offset);
    cut(x, p, n);
    free(p);
    return RD_OK;
}

/* ---- while backward runs ---- */

static void hand_over(exchange *x, int n)
{
    for (; x->n_whole < n; x->n_whole++)
        if (x->before) x->before(x->ctx, x->bucket[x->n_whole].from, x->bucket[x->n_whole].n);
    rd_flow_ready(x->flow, n);
}

static void grad_ready(void *ctx, rd_param *p)
{
    exchange *x = ctx;
    const int b = x->bucket_of[p->index];
    int n = x->n_whole;
    if (!x->last_backward || b < 0) return;
    x->left[b]--;
    while (n < x->n && x->left[n] == 0) n++;
    if (n > x->n_whole) hand_over(x, n);
}

static void op_done(void *ctx, const rd_op *op, bool backward, bool ends)
{
    exchange *x = ctx;
    (void)op;
    if (x->last_backward && backward && ends) rd_flow_poll(x->flow);
}

/* ---- a step ---- */

void exchange_begin(exchange *x)
{
    embeddings_zero_grads(x->tables, false);
    x->n_whole = 0;
    x->last_backward = false;
    x->before = NULL;
}

void exchange_clear(exchange *x)
{
    embeddings_zero_grads(x->tables, true);
}

void exchange_last(exchange *x, exchange_before *before, void *ctx)
{
    x->before = before;
    x->ctx = ctx;
    x->last_backward = rd_flow_mode_of(x->flow) != RD_FLOW_LATE;
    memcpy(x->left, x->size, (size_t)x->n * sizeof *x->left);
}

void exchange_settle(exchange *x)
{
    x->last_backward = false;
    hand_over(x, x->n);
    for (int i = 0; i < embeddings_n(x->tables) && x->before; i++) {
        const rd_param *p = embeddings_param(x->tables, i);
        x->before(x->ctx, p->offset, p->n);
    }
    rd_flow_take(x->flow);
}

/* What trace and metrics want to know. Buckets of one host that went together count as one exchange. */
static void report(exchange *x, int64_t rest_ns, const embeddings_sent *tables, step_comm *out)
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
        for (; i < x->n && (i == first || (b[i].begin_ns == b[first].begin_ns && b[i].end_ns == b[first].end_ns)); i++)
            n += 4.0 * (double)b[i].n;
        out->bytes += n;
        trace_bucket(x->run, first, n, b[first].begin_ns, b[first].end_ns);
    }
}

rd_code exchange_finish(exchange *x, step_comm *out, rd_status *st)
{
    embeddings_sent all = {0};
    RD_TRY(rd_flow_finish(x->flow, st));
    const int64_t begin_ns = rd_now_ns();
    for (int i = 0; i < embeddings_n(x->tables); i++) {
        embeddings_sent sent = {0};
        const int64_t from_ns = rd_now_ns();
        RD_TRY(embeddings_sum(x->tables, i, &sent, st));
        all.bytes += sent.bytes;
        all.wire_bytes += sent.wire_bytes;
        if (x->run->world->size > 1) trace_bucket(x->run, x->n + i, sent.bytes, from_ns, rd_now_ns());
    }
    if (x->run->world->size > 1) report(x, embeddings_n(x->tables) > 0 ? rd_now_ns() - begin_ns : 0, &all, out);
done:
    return st->code;
}

/* ---- making one ---- */

/* A thread where that pays: see rd_flow_mode. */
static rd_flow_mode wanted_mode(const rd_run *r)
{
    if (strcmp(r->c.overlap, "off") == 0) return RD_FLOW_LATE;
    if (strcmp(r->c.overlap, "calls") == 0) return RD_FLOW_CALLS;
    return RD_FLOW_THREAD;
}

void exchange_describe(const exchange *x, rd_strbuf *out)
{
    const rd_flow_mode mode = rd_flow_mode_of(x->flow);
    const int tables = embeddings_n(x->tables);
    if (x->run->world->n_hosts == 1) return;
    rd_strbuf_printf(out, "between hosts: gradients travel as %s in %d bucket%s of about %g MB%s", x->run->c.allreduce_dtype,
                     x->n, RD_S(x->n), x->run->c.bucket_mb,
                     mode == RD_FLOW_LATE    ? ", after backward"
                     : mode == RD_FLOW_CALLS ? ", during backward between its ops"
                                             : ", during backward by a thread");
    if (tables > 0) rd_strbuf_printf(out, ", and %d embedding%s by rows after it", tables, RD_S(tables));
    rd_strbuf_printf(out, "\n");
}

void exchange_free(exchange *x)
{
    if (!x) return;
    if (x->run->tape) rd_tape_on_grad_ready(x->run->tape, NULL, NULL);
    rd_flow_free(x->flow);
    embeddings_free(x->tables);
    free(x->bucket);
    free(x->bucket_of);
    free(x->size);
    free(x->left);
    free(x);
}

rd_code exchange_new(rd_run *r, exchange **out, rd_status *st)
{
    exchange *x = *out = calloc(1, sizeof *x);
    if (!x) rd_fail(st, RD_EENV, "out of memory for the exchange of gradients");
    if (rd_comm_agree(r->comm, st) != RD_OK || !x) return st->code;
    x->run = r;
    x->algorithm = r->world->n_hosts > 1 ? "shared memory inside hosts, direct exchange between them" : "shared memory";
    RD_TRY(embeddings_new(r, &x->tables, st));
    (void)make_buckets(x, st);
    RD_TRY(rd_comm_agree(r->comm, st));
    RD_TRY(rd_flow_new(r->comm, rd_params_grads(r->params), x->bucket, x->n, run_wire(r), wanted_mode(r), &x->flow, st));
    if (rd_flow_mode_of(x->flow) != RD_FLOW_LATE) rd_tape_on_grad_ready(r->tape, grad_ready, x);
    if (rd_flow_mode_of(x->flow) == RD_FLOW_CALLS) rd_tape_on_op(r->tape, op_done, x);
done:
    return st->code;
}
