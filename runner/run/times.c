/* times.c -- seconds of this rank by activity, its exchanges by size, and both over all ranks. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *times_activity_name(times_activity what)
{
    static const char *const names[TIMES_N] = {"other",    "input",  "forward", "backward", "wait",
                                               "exchange", "update", "save",    "evaluate"};
    return names[what];
}

void times_span(run_times *t, const char *name, int row, int64_t id, double bytes, int64_t begin_ns,
                int64_t end_ns)
{
    span_list *l = &t->spans;
    if (l->n == l->capacity)
        l->dropped++;
    else
        l->at[l->n++] = (trace_span){name, begin_ns, end_ns, id, bytes, row};
}

void times_enter(rd_run *r, times_activity what)
{
    run_times *t = &r->times;
    const int64_t now = rd_now_ns();
    if (t->since_ns != 0) t->seconds[t->what] += (double)(now - t->since_ns) * 1e-9;
    if (t->spans.active && t->what != TIMES_NONE)
        times_span(t, times_activity_name(t->what), SPAN_ROW_STEPS, -1, 0.0, t->since_ns, now);
    t->what = what;
    t->since_ns = now;
}

void times_phase(rd_run *r, rd_phase phase)
{
    switch (phase) {
    case RD_PHASE_INPUT:
        times_enter(r, TIMES_INPUT);
        break;
    case RD_PHASE_COMPUTE:
        times_enter(r, TIMES_FORWARD);
        break;
    case RD_PHASE_WAIT:
        times_enter(r, TIMES_WAIT);
        break;
    case RD_PHASE_EXCHANGE:
        times_enter(r, TIMES_EXCHANGE);
        break;
    case RD_PHASE_UPDATE:
        times_enter(r, TIMES_UPDATE);
        break;
    case RD_PHASE_SAVE:
        times_enter(r, TIMES_SAVE);
        break;
    case RD_PHASE_EVALUATE:
        times_enter(r, TIMES_EVALUATE);
        break;
    default:
        break;
    }
}

/* Buckets that are sent at the same time share the link. The time of a bucket counts from the end
 * of the bucket before it, so that the times add up to the total. */
void times_bucket(rd_run *r, int64_t index, double bytes, int64_t begin_ns, int64_t end_ns)
{
    run_times *t = &r->times;
    const int64_t from_ns = begin_ns > t->last_end_ns ? begin_ns : t->last_end_ns;
    const double seconds = end_ns > from_ns ? (double)(end_ns - from_ns) * 1e-9 : 0.0;
    int i = 0;
    while (i < t->n_sizes && t->sizes[i].bytes != bytes) i++;
    if (i == t->n_sizes && i < EXCHANGE_SIZES) t->sizes[t->n_sizes++].bytes = bytes;
    if (i < t->n_sizes) {
        exchange_size *e = &t->sizes[i];
        e->kept[(int64_t)e->count % EXCHANGE_KEPT] = (float)seconds;
        e->count++;
    }
    t->n_exchanges++;
    if (end_ns > t->last_end_ns) t->last_end_ns = end_ns;
    if (t->spans.active) times_span(t, "bucket", SPAN_ROW_EXCHANGE, index, bytes, begin_ns, end_ns);
}

static int times_by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double times_exchange(const exchange_size *e)
{
    float s[EXCHANGE_KEPT];
    const int n = e->count < EXCHANGE_KEPT ? (int)e->count : EXCHANGE_KEPT, used = n - n / 20;
    double sum = 0.0;
    memcpy(s, e->kept, sizeof s);
    qsort(s, (size_t)n, sizeof *s, times_by_value);
    for (int i = 0; i < used; i++) sum += s[i];
    return used > 0 ? sum / used : NAN;
}

double times_busy(const run_times *t)
{
    return t->seconds[TIMES_INPUT] + t->seconds[TIMES_FORWARD] + t->seconds[TIMES_BACKWARD];
}

rd_code times_gather(rd_run *r, const times_window *w, rank_times *out, rd_status *st)
{
    const int size = r->world->size;
    times_window *all = malloc((size_t)size * sizeof *all);
    *out = (rank_times){.min_s = INFINITY, .bus_gb_per_s = NAN};
    if (!all) rd_fail(st, RD_EENV, "out of memory for the times of %d ranks", size);
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_allgather(r->comm, w, all, (int64_t)sizeof *w, st));
    for (int i = 0; i < size; i++) {
        const double steps = all[i].steps > 0.0 ? all[i].steps : 1.0, busy = all[i].busy_s / steps;
        out->min_s = fmin(out->min_s, busy);
        out->mean_s += busy / (double)size;
        if (i == 0 || busy > out->max_s) {
            out->max_s = busy;
            out->slowest = i;
        }
        out->comm_s = fmax(out->comm_s, all[i].comm_s / steps);
        out->exposed_s = fmax(out->exposed_s, all[i].exposed_s / steps);
        /* Of the rank's own time: a rank that writes records has shorter steps than the others,
         * which wait for it in the exchange. */
        if (all[i].wall_s > 0.0)
            out->exposed_share = fmax(out->exposed_share, all[i].exposed_s / all[i].wall_s);
        out->bytes = fmax(out->bytes, all[i].bytes / steps);
        out->wire_bytes += all[i].wire_bytes / steps;
    }
    /* A step that ends after the record began may add to it. */
    out->exposed_share = fmin(1.0, out->exposed_share);
    if (size > 1 && out->comm_s > 0.0 && out->bytes > 0.0)
        out->bus_gb_per_s = 2.0 * (size - 1) / size * out->bytes / out->comm_s * 1e-9;
done:
    free(all);
    return st->code;
}
