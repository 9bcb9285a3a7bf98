/* plan_mode.c -- --mode=plan: measures steps and a sweep of exchange sizes on the present ranks, or
 * reads the step that a run left in its log folder. Then it prints the model's answer for more
 * hosts. */
#include "plan.h"
#include "../bench/bench.h"
#include "../run/progress.h"
#include "../run/world.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Sizes of the sweep: from 16 KiB in factors of four, up to the size of the gradients or 64 MiB. */
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

static rd_code plan_mode_measure(bench *b, rd_status *st)
{
    rd_run *r = b->run;
    forecast_sums sums = {0};
    forecast_step m;
    progress p = {0};
    progress_start(&p, r, "warm-up", "step", b->config.bench_warmup);
    for (int64_t i = 0; i < b->config.bench_warmup; i++) {
        RD_TRY(plan_mode_one_step(&b->stepper, &sums, st));
        progress_at(&p, i + 1);
    }
    progress_start(&p, r, "measuring", "step", b->config.bench_steps);
    forecast_sums_start(&sums, r);
    for (int64_t i = 0; i < b->config.bench_steps; i++) {
        RD_TRY(plan_mode_one_step(&b->stepper, &sums, st));
        progress_at(&p, i + 1);
    }
    progress_end(&p);
    RD_TRY(forecast_collect(r, &sums, &m, st));
    RD_TRY(forecast_sweep(r, 1.0, &m, st));
    if (r->world->size > 1)
        rd_info(r->log,
                "exchanges of the steps took %.2f times what they take by themselves; the model "
                "follows them",
                forecast_calibrate(&m));
    if (r->world->rank == 0) (void)plan_print(r, &m, NULL, stdout, st);
done:
    progress_end(&p);
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
        (void)plan_print(r, &m, r->cli->logdir, stdout, st);
    return run_agree(r, st);
}
