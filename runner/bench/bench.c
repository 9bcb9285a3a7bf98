/* bench.c -- measures training steps, in images or tokens per second and as a share of the peak of
 * the CPU or GPU.
 *
 * A step is a whole one: forward, backward, sum over ranks, update. The peak is the best of some
 * matrix products of 2048^3 on this rank's threads; on a GPU, of products up to 8192^3 by its own
 * clock. They have the run's precision and are measured in the same process before and after the
 * steps. FLOPs are those of the model's products and convolutions on real tokens. So padding, and
 * all work that is no product, lower the share. */
#include "bench.h"
#include "../run/console.h"
#include "../run/decode.h"
#include "../run/device.h"
#include "../run/progress.h"
#include "../run/exchange.h"
#include "../run/peak.h"
#include "../run/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BENCH_PRODUCT = 2048 };

/* Measures the sum of all gradients by itself: the best of five, each begun together. */
static rd_code measure_sum(bench *b, rd_status *st)
{
    rd_run *r = b->run;
    double best = INFINITY;
    b->result.alone_s = NAN;
    if (r->world->size == 1 || b->config.bench_forward_only) return RD_OK;
    for (int i = 0; i < 5; i++) {
        double seconds;
        RD_TRY(exchange_alone(r->exchange, rd_params_grad_span(r->params), &seconds, st));
        if (i > 0 && seconds < best) best = seconds;
    }
    RD_TRY(rd_comm_max_f64(r->comm, &best, 1, st));
    b->result.alone_s = best;
done:
    return st->code;
}

/* Runs the forward pass as evaluation does, on this rank's batch. */
static rd_code forward_step(bench *b, step_sums *sum, rd_status *st)
{
    rd_run *r = b->run;
    rd_batch batch = {0};
    rd_loss_out out = {0};
    rd_watch_beat(r->watch, RD_PHASE_COMPUTE, r->progress.step + 1);
    RD_TRY(b->stepper.make(&b->stepper, &batch, st));
    rd_tape_reset(r->tape, false, false);
    RD_TRY(decode_forward(r, &batch, &out, st));
    const double size = r->world->size;
    *sum = (step_sums){.loss = out.loss_sum,
                       .weight = out.weight,
                       .targets = out.n_targets,
                       .correct = out.n_correct,
                       .samples = (double)batch.n * size,
                       .tokens_src = out.n_tokens_src * size,
                       .tokens_tgt = out.n_tokens_tgt * size};
    class_sums_add(sum->classes, r->spec.n_classes, &batch, &out);
    if (r->model->flops) sum->flops = r->model->flops(r->model_self, &batch) * size / 3.0;
    r->progress.step++;
done:
    return st->code;
}

static rd_code bench_one_step(bench *b, bool counted, rd_status *st)
{
    rd_run *r = b->run;
    bench_result *v = &b->result;
    const step_sums in = {0};
    step_sums sum = {0};
    rd_optim_stats stats = {.want_l2 = b->config.bench_format == BENCH_TFCNN};
    b->stepper.count_flops = counted;
    const int64_t begin_ns = rd_now_ns();
    if (b->config.bench_forward_only) {
        stats.finite = true;
        RD_TRY(forward_step(b, &sum, st));
    } else {
        RD_TRY(stepper_step(&b->stepper,
                            rd_schedule_at(&r->schedule_config, r->progress.step, r->world->size),
                            &in, &sum, &stats, st));
    }
    const double seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
    if (r->started_ns) v->start_s = (double)(rd_now_ns() - r->started_ns) * 1e-9;
    r->started_ns = 0;
    v->loss = sum.weight > 0.0 ? sum.loss / sum.weight : NAN;
    v->l2 = stats.l2;
    v->targets = b->images ? sum.targets : 0.0;
    memcpy(v->classes, sum.classes, sizeof v->classes);
    if (!counted) goto done;
    const double units = b->images ? sum.samples : sum.tokens_src + sum.tokens_tgt;
    v->step[v->n++] = (bench_step){.seconds = seconds, .units = units};
    v->units += units;
    v->units_tgt += sum.tokens_tgt;
    v->samples += sum.samples;
    v->flops += sum.flops;
    v->input_s += sum.input_s / (double)r->world->size;
    v->exposed_s += b->config.bench_forward_only ? 0.0 : b->stepper.comm_s;
    if (!stats.finite) v->skipped++;
done:
    return st->code;
}

static rd_code bench_measure(bench *b, const bench_style *style, rd_status *st)
{
    rd_run *r = b->run;
    bench_result *v = &b->result;
    const bool is_first_rank = r->world->rank == 0;
    int64_t live_ns = 0;
    progress p = {0};
    v->step = calloc((size_t)v->n_planned, sizeof *v->step);
    if (!v->step)
        rd_fail(st, RD_EENV,
                "out of memory for the times of %" PRId64 " steps; take fewer (bench_steps)",
                v->n_planned);
    RD_TRY(run_agree(r, st));
    RD_TRY(peak_measure(r, BENCH_PRODUCT, 6, &v->peak, &v->peak_cpu, st));
    if (is_first_rank && style->warm) style->warm(b);
    progress_start(&p, r, "warm-up", "step", b->config.bench_warmup);
    for (int64_t i = 0; i < b->config.bench_warmup; i++) {
        RD_TRY(bench_one_step(b, false, st));
        progress_at(&p, i + 1);
    }
    progress_end(&p);
    rd_watch_beat(r->watch, RD_PHASE_WAIT, r->progress.step);
    RD_TRY(rd_comm_barrier(r->comm, st));
    if (is_first_rank && style->ready) style->ready(b);
    const int64_t begin_ns = rd_now_ns();
    const double begin_cpu = peak_cpu_s();
    progress_start(&p, r, "measuring", "step", v->n_planned);
    for (int64_t i = 1; i <= v->n_planned; i++) {
        RD_TRY(bench_one_step(b, true, st));
        if (is_first_rank && style->step) {
            rd_live(r->log, NULL); /* its line may come now, on another stream */
            style->step(b, i);
            progress_at(&p, i);
        }
        if (is_first_rank && !style->step && rd_now_ns() - live_ns > 100000000) {
            live_ns = rd_now_ns();
            const double s = (double)(rd_now_ns() - begin_ns) * 1e-9;
            char eta[32];
            rd_live(r->log, "step %" PRId64 " of %" PRId64 ", %.1f %s/s, eta %s", i, v->n_planned,
                    v->units / s, b->images ? "images" : "tokens",
                    rd_duration_text(s / (double)i * (double)(v->n_planned - i), eta));
        }
    }
    rd_live(r->log, NULL);
    progress_end(&p);
    rd_watch_beat(r->watch, RD_PHASE_WAIT, r->progress.step);
    if (b->config.bench_forward_only)
        RD_TRY(rd_comm_barrier(r->comm, st)); /* nothing else keeps the ranks together */
    v->wall_s = (double)(rd_now_ns() - begin_ns) * 1e-9;
    v->cpu_s = peak_cpu_s() - begin_cpu;
    v->reduced_bytes = r->world->size > 1 && !b->config.bench_forward_only
                           ? 4.0 * (double)rd_params_grad_span(r->params)
                           : 0.0;
    RD_TRY(memory_use_of(r, &v->memory, st));
    v->peak_bytes = v->memory.process;
    v->device_bytes = v->memory.gpu;
    RD_TRY(measure_sum(b, st));
    RD_TRY(peak_measure(r, BENCH_PRODUCT, 3, &v->peak, &v->peak_cpu, st));
    rd_watch_beat(r->watch, RD_PHASE_WAIT, r->progress.step);
    double sums[] = {v->peak, v->peak_cpu, v->exposed_s, v->cpu_s};
    RD_TRY(rd_comm_sum_f64(r->comm, sums, 4, st));
    v->exposed_s = sums[2] / (double)r->world->size;
    v->cpu_s = sums[3] / (double)r->world->size;
    /* Steps that are faster than the peak, which other work may have slowed, raise it. */
    v->peak = fmax(sums[0], v->flops / v->wall_s);
    v->peak_cpu = fmax(sums[1], v->flops / v->cpu_s);
done:
    return st->code;
}

/* Prints a summary for the user, with any format: on standard error, after the banner. */
static void bench_report(const bench *b)
{
    rd_log *log = b->run->log;
    const rd_run *r = b->run;
    const bench_result *v = &b->result;
    const double n = (double)v->n, rate = v->flops / v->wall_s, ranks = r->world->size;
    char x[32], y[32];
    double sum = 0.0, best = INFINITY, sq = 0.0;
    for (int64_t i = 0; i < v->n; i++) {
        sum += v->step[i].seconds;
        if (v->step[i].seconds < best) best = v->step[i].seconds;
    }
    for (int64_t i = 0; i < v->n; i++)
        sq += (v->step[i].seconds - sum / n) * (v->step[i].seconds - sum / n);
    rd_info(log, "%" PRId64 " step%s of %.4f s (best %.4f, deviation %.4f)", v->n, RD_S(v->n),
            sum / n, best, sqrt(sq / n));
    if (b->images)
        rd_info(log, "%.1f images/s (%.1f per rank)", v->units / v->wall_s,
                v->units / v->wall_s / ranks);
    else
        rd_info(log, "%s tokens/s (%s target)", rd_commas(v->units / v->wall_s, x),
                rd_commas(v->units_tgt / v->wall_s, y));
    rd_info(log,
            "%.1f model GFLOP/s (%.1f GFLOP a step), %.1f %% of the %s peak of %.1f GFLOP/s (%d "
            "rank%s)",
            rate * 1e-9, v->flops / n * 1e-9, 100.0 * rate / v->peak, device_product(r),
            v->peak * 1e-9, r->world->size, RD_S(r->world->size));
    if (v->reduced_bytes > 0.0)
        rd_info(log,
                "gradients: %.1f MB a step and rank, summed by themselves in %.2f ms (bus "
                "bandwidth %.2f GB/s); %.2f ms of a step, %.1f %%, waited for the sum",
                v->reduced_bytes * 1e-6, v->alone_s * 1e3,
                2.0 * (ranks - 1.0) / ranks * v->reduced_bytes / v->alone_s * 1e-9,
                v->exposed_s / n * 1e3, fmin(100.0, 100.0 * v->exposed_s / sum));
    if (!b->stepper.make)
        rd_info(log, "input: %.2f ms of a step, %.1f %%, waited for", v->input_s / n * 1e3,
                fmin(100.0, 100.0 * v->input_s / sum));
    const double share = v->cpu_s / v->wall_s / rd_backend_threads(r->backend);
    if (share < 0.9 && !r->gpu)
        rd_info(log,
                "a rank's threads had %.0f %% of their cores: others use them, or the threads "
                "waited for input or "
                "ranks; by CPU time the share of the peak is %.1f %%",
                100.0 * share, 100.0 * v->flops / v->cpu_s / v->peak_cpu);
    if (v->skipped > 0)
        rd_info(log,
                "%" PRId64 " step%s without update, because the gradient was not finite; a smaller "
                "learning_rate helps",
                v->skipped, RD_S(v->skipped));
    const memory_use *m = &v->memory;
    if (r->gpu || b->config.bench_forward_only)
        rd_info(log, "peak memory of a rank: %.0f MB", v->peak_bytes * 1e-6);
    else
        rd_info(log,
                "peak memory of a rank: %.0f MB: weights %.0f, gradients %.0f, optimizer %.0f, "
                "activations %.0f (and %.0f in the memory of gradients), the rest %.0f",
                v->peak_bytes * 1e-6, m->weights * 1e-6, m->gradients * 1e-6, m->optimizer * 1e-6,
                m->activations * 1e-6, m->borrowed * 1e-6, memory_use_rest(m) * 1e-6);
    if (r->gpu) rd_info(log, "peak memory of a rank's GPU: %.0f MB", v->device_bytes * 1e-6);
    device_report_work(r);
}

/* Finds the number of counted steps. */
static rd_code count_steps(bench *b, rd_status *st)
{
    const rd_run *r = b->run;
    const double batch = (double)run_update_samples(r);
    b->result.n_planned = b->config.bench_steps;
    if (!b->config.has_epochs) return RD_OK;
    if (b->n_epoch == 0)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'bench_epochs' needs data with an end, and synthetic sentences have "
                       "none; give bench_steps",
                       rd_config_where(r->keys, "bench_epochs"));
    const double steps = ceil(b->config.bench_epochs * (double)b->n_epoch / batch - 1e-9);
    if (steps > 1e9)
        return rd_fail(st, RD_EUSAGE, "bench_epochs %g means %.0f steps; at most 1e9 are allowed",
                       b->config.bench_epochs, steps);
    b->result.n_planned = (int64_t)fmax(1.0, steps);
    return RD_OK;
}

rd_code run_bench(rd_run *r, rd_status *st)
{
    bench b = {.run = r, .images = r->model->unit != NULL};
    const bench_style *style = bench_style_of(BENCH_TEXT);
    stepper_init(&b.stepper, r);
    if (rd_config_read(r->keys, &rd_group_bench, r->mode, &b.config, st) == RD_OK) {
        style = bench_style_of(b.config.bench_format);
        if (b.config.bench_forward_only && !b.config.bench_synthetic)
            rd_fail(st, RD_EUSAGE,
                    "%s: 'bench_forward_only' needs synthetic data; add --set bench_synthetic=true",
                    rd_config_where(r->keys, "bench_forward_only"));
    }
    RD_TRY(bench_open(&b, st));
    if (!b.stepper.make && stepper_prepare(&b.stepper, st) == RD_OK)
        b.n_epoch = rd_order_n_samples(b.stepper.order);
    if (st->code == RD_OK) (void)count_steps(&b, st);
    RD_TRY(run_agree(r, st));
    b.stepper.last_step = b.config.bench_warmup + b.result.n_planned;
    if (b.n_epoch > 0)
        r->schedule_config.epoch_steps = (double)b.n_epoch / (double)run_update_samples(r);
    world_banner(r, 0, b.stepper.order ? rd_order_n_batches(b.stepper.order) : 0,
                 b.stepper.order ? rd_order_n_samples(b.stepper.order) : 0);
    if (r->world->rank == 0 && style->begin) style->begin(&b);
    RD_TRY(bench_measure(&b, style, st));
    if (r->world->rank == 0) {
        if (style->end) style->end(&b);
        if (fflush(stdout) != 0 || ferror(stdout))
            rd_fail(st, RD_EENV, "cannot write the result to standard output");
        else
            bench_report(&b);
    }
done:
    stepper_release(&b.stepper);
    free(b.result.step);
    free(b.rates);
    return st->code;
}
