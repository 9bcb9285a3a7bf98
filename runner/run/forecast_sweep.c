/* forecast_sweep.c -- measures the links of a job by exchanges of many sizes, so that latency and
 * bandwidth can be told apart.
 *
 * Plan mode does it, and so does each training on several hosts at its end. The buckets of a
 * training alone have too few sizes, and share the link. */
#include "forecast.h"

#include "exchange.h"
#include "rd/ping.h"

#include <stdlib.h>

enum { SWEEP_FIRST = 1 << 12, SWEEP_MOST = 1 << 24, SWEEP_SIZES = 8, SWEEP_TIMES = 24 };

/* Fills n with the sizes in elements, up to all gradients. Returns how many there are. */
static int sweep_sizes(const rd_run *r, int64_t n[SWEEP_SIZES])
{
    const int64_t span = rd_params_grad_span(r->params),
                  most = span < SWEEP_MOST ? span : SWEEP_MOST;
    int k = 0;
    for (int64_t size = SWEEP_FIRST; k < SWEEP_SIZES - 1 && size < most; size *= 4) n[k++] = size;
    n[k++] = most;
    return k;
}

/* Measures sums inside a host by themselves, where several hosts have several ranks each. */
static rd_code sweep_inside(rd_run *r, const int64_t *n, int n_sizes, forecast_step *m,
                            rd_status *st)
{
    double seconds[SWEEP_SIZES], alphas[SWEEP_SIZES], bytes[SWEEP_SIZES];
    RD_TRY(rd_time_inside(r->comm, n, n_sizes, SWEEP_TIMES, seconds, st));
    for (int i = 0; i < n_sizes; i++) {
        alphas[i] = 1.0;
        bytes[i] = forecast_inside_bytes(r->world->local_size, 4.0 * (double)n[i]);
    }
    (void)forecast_fit(alphas, bytes, seconds, n_sizes, &m->inside);
done:
    return st->code;
}

static int seconds_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

rd_code forecast_sweep(rd_run *r, double size_s, forecast_step *m, rd_status *st)
{
    run_times *t = &r->times;
    int64_t n[SWEEP_SIZES];
    const int n_sizes = sweep_sizes(r, n);
    if (r->world->size == 1) return RD_OK;
    t->n_sizes = 0;
    for (int k = 0; k < n_sizes; k++) {
        double budget_s = size_s, seconds[SWEEP_TIMES];
        int done = 0;
        for (int i = -2; i < SWEEP_TIMES && budget_s > 0.0; i++) {
            rd_watch_beat(r->watch, RD_PHASE_WAIT, r->progress.step);
            double spent_s;
            RD_TRY(exchange_alone(r->exchange, n[k], &spent_s, st));
            RD_TRY(rd_comm_max_f64(r->comm, &spent_s, 1, st)); /* all ranks stop together */
            if (i < 0) continue;
            budget_s -= spent_s;
            seconds[done++] = spent_s;
        }
        qsort(seconds, (size_t)done, sizeof *seconds, seconds_compare);
        t->sizes[t->n_sizes++] = (exchange_size){
            .bytes = 4.0 * (double)n[k], .count = 1.0, .kept = {(float)seconds[done / 2]}};
    }
    if (m->hosts > 1 && m->shared) RD_TRY(sweep_inside(r, n, n_sizes, m, st));
    forecast_step wide = *m;
    wide.wire = 1.0;
    wide.shard = false; /* these exchanges give all hosts the whole sums */
    forecast_fit_links(r, &wide);
    m->inside = wide.inside;
    m->between = wide.between;
done:
    return st->code;
}
