/* plan_mode.c -- --mode=plan: measures steps and a sweep of exchange sizes on the present ranks, or
 * reads the step that a run left in its log folder. Then it prints the model's answer for more
 * hosts. */
#include "plan.h"
#include "../bench/bench.h"
#include "../run/exchange.h"
#include "../run/world.h"
#include "rd/ping.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of the sweep: from 16 KiB in factors of four, up to the size of the gradients or 64 MiB. */
enum { SWEEP_FIRST = 1 << 12, SWEEP_MOST = 1 << 24, SWEEP_SIZES = 8, SWEEP_TIMES = 24 };

static rd_code plan_mode_one_step(stepper *s, forecast_sums *sums, rd_status *st)
{
    rd_run *r = s->run;
    const step_sums in = {0};
    step_sums sum = {0};
    rd_optim_stats stats = {0};
    const int64_t begin_ns = rd_now_ns();
    RD_TRY(stepper_step(s, rd_schedule_at(&r->schedule_config, r->progress.step, r->world->size),
                        &in, &sum, &stats, st));
    forecast_sums_add(sums, s, (double)(rd_now_ns() - begin_ns) * 1e-9, sum.samples,
                      r->model->unit ? sum.samples : sum.tokens_src + sum.tokens_tgt);
done:
    return st->code;
}

/* Fills n with the sizes in elements, up to all gradients. Returns how many there are. */
static int sweep_sizes(const rd_run *r, int64_t n[SWEEP_SIZES])
{
    const int64_t span = rd_params_span(r->params), most = span < SWEEP_MOST ? span : SWEEP_MOST;
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

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures exchanges of many sizes by themselves, each begun together, so that latency and
 * bandwidth can be told apart. They are sent as float32. The median counts, since others may use
 * the machine, too. */
static rd_code plan_mode_sweep(rd_run *r, forecast_step *m, rd_status *st)
{
    run_times *t = &r->times;
    int64_t n[SWEEP_SIZES];
    const int n_sizes = sweep_sizes(r, n);
    if (r->world->size == 1) return RD_OK;
    t->n_sizes = 0;
    for (int k = 0; k < n_sizes; k++) {
        double budget_s = 1.0, seconds[SWEEP_TIMES];
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
        qsort(seconds, (size_t)done, sizeof *seconds, by_value);
        t->sizes[t->n_sizes++] = (exchange_size){
            .bytes = 4.0 * (double)n[k], .count = 1.0, .kept = {(float)seconds[done / 2]}};
    }
    if (m->hosts > 1 && m->shared) RD_TRY(sweep_inside(r, n, n_sizes, m, st));
    forecast_step wide = *m;
    wide.wire = 1.0;
    forecast_fit_links(r, &wide);
    m->inside = wide.inside;
    m->between = wide.between;
done:
    return st->code;
}

static rd_code plan_mode_measure(bench *b, rd_status *st)
{
    rd_run *r = b->run;
    forecast_sums sums = {0};
    forecast_step m;
    for (int64_t i = 0; i < b->config.bench_warmup; i++)
        RD_TRY(plan_mode_one_step(&b->stepper, &sums, st));
    forecast_sums_start(&sums, r);
    for (int64_t i = 0; i < b->config.bench_steps; i++) {
        RD_TRY(plan_mode_one_step(&b->stepper, &sums, st));
        if (r->world->rank == 0)
            rd_live(r->log, "step %" PRId64 " of %" PRId64, i + 1, b->config.bench_steps);
    }
    rd_live(r->log, NULL);
    RD_TRY(forecast_collect(r, &sums, &m, st));
    RD_TRY(plan_mode_sweep(r, &m, st));
    if (r->world->size > 1)
        rd_info(r->log,
                "exchanges of the steps took %.2f times what they take by themselves; the model "
                "follows them",
                forecast_calibrate(&m));
    if (r->world->rank == 0) (void)plan_print(r, &m, stdout, st);
done:
    return run_agree(r, st);
}

rd_code run_plan(rd_run *r, rd_status *st)
{
    bench b = {.run = r, .images = r->model->unit != NULL};
    stepper_init(&b.stepper, r);
    (void)rd_config_read(r->keys, &rd_group_bench, r->mode, &b.config, st);
    RD_TRY(bench_open(&b, st));
    b.stepper.last_step = b.config.bench_warmup + b.config.bench_steps;
    world_banner(r, 0, 0, 0);
    RD_TRY(plan_mode_measure(&b, st));
done:
    stepper_release(&b.stepper);
    return st->code;
}

rd_code run_plan_recorded(rd_run *r, rd_status *st)
{
    forecast_step m;
    if (r->world->rank == 0 && forecast_read(r->cli->logdir, &m, st) == RD_OK)
        (void)plan_print(r, &m, stdout, st);
    return run_agree(r, st);
}
