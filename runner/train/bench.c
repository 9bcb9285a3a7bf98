/* bench.c -- how fast training steps are, in tokens per second and as a share of what the processor can do at all.
 *
 * A step is a whole one: forward, backward, sum over ranks, update. The peak is the best of five float32 matrix
 * products of 2048^3 on this rank's own threads, measured in the same process right before. FLOPs are those of the
 * model's products on real tokens, so padding and everything that is no product count against the share. */
#include "run_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rd_code measure_peak(rd_run *r, double *flops_per_s, rd_status *st)
{
    enum { N = 2048 };
    const size_t bytes = (size_t)N * N * sizeof(float);
    rd_arena *a = NULL;
    float *x = NULL, *y = NULL, *z = NULL;
    *flops_per_s = 0.0;
    RD_TRY(rd_arena_new(3 * bytes + 4096, &a, st));
    RD_TRY(rd_arena_get(a, bytes, &x, st));
    RD_TRY(rd_arena_get(a, bytes, &y, st));
    RD_TRY(rd_arena_get(a, bytes, &z, st));
    for (int i = 0; i < N * N; i++) {
        x[i] = (float)(i % 7) * 0.25f - 0.75f;
        y[i] = (float)(i % 5) * 0.5f - 1.0f;
    }
    for (int i = 0; i < 6; i++) { /* the first warms up */
        const int64_t begin_ns = rd_now_ns();
        RD_TRY(rd_gemm(r->backend, false, false, N, N, N, 1.0f, x, N, y, N, 0.0f, z, N, st));
        const double rate = 2.0 * N * (double)N * N / ((double)(rd_now_ns() - begin_ns) * 1e-9);
        if (i > 0 && rate > *flops_per_s) *flops_per_s = rate;
    }
done:
    rd_arena_free(a);
    return st->code;
}

/* Synthetic batches: random words, lengths uniform in [bench_min_len, bench_max_len], the same for every number of
 * ranks. */
static rd_code synthetic_field(rd_run *r, const char *name, int64_t first, int64_t n, uint64_t side, rd_field *f,
                               rd_status *st)
{
    const int64_t lo = r->c.bench_min_len, hi = r->c.bench_max_len > lo ? r->c.bench_max_len : lo;
    const rd_key key = rd_key_make(r->seed, RD_RNG_TEST, side, 0);
    int64_t *off = NULL, total = 0;
    int32_t *ids = NULL;
    float *u = NULL;
    RD_TRY(rd_arena_get(r->data, (size_t)(n + 1) * sizeof *off, &off, st));
    RD_TRY(rd_arena_get(r->data, (size_t)(n * hi + 1) * sizeof *ids, &ids, st));
    RD_TRY(rd_arena_get(r->data, (size_t)(hi + 1) * sizeof *u, &u, st));
    for (int64_t i = 0; i < n; i++) {
        rd_philox_uniform(key, (uint64_t)(first + i), hi + 1, u);
        const int64_t len = lo + (int64_t)(u[hi] * (float)(hi - lo + 1));
        off[i] = total;
        for (int64_t t = 0; t < len; t++)
            ids[total++] = (int32_t)(RD_N_SPECIAL + (int64_t)(u[t] * (float)(r->c.bench_vocab - RD_N_SPECIAL)));
        ids[off[i]] = RD_SOS;
        ids[total - 1] = RD_EOS;
    }
    off[n] = total;
    *f = (rd_field){.name = name, .dtype = RD_I32, .data = ids, .off = off};
done:
    return st->code;
}

static rd_code synthetic_batch(stepper *s, rd_batch *b, rd_status *st)
{
    rd_run *r = s->run;
    const int64_t n = r->c.batch_size, first = r->at.step * r->global_batch + r->world->rank * n;
    int64_t *sample = NULL;
    rd_arena_reset(r->data);
    RD_TRY(rd_arena_get(r->data, (size_t)n * sizeof *sample, &sample, st));
    for (int64_t i = 0; i < n; i++) sample[i] = first + i;
    *b = (rd_batch){.step = r->at.step, .n_global = r->global_batch, .n = n, .sample = sample, .n_fields = 2};
    RD_TRY(synthetic_field(r, "source", first, n, 0, &b->field[0], st));
    RD_TRY(synthetic_field(r, "target", first, n, 1, &b->field[1], st));
done:
    return st->code;
}

typedef struct bench_result {
    double seconds, mean_s, min_s, std_s, tokens, tokens_tgt, flops, peak, peak_bytes, loss;
} bench_result;

static rd_code measure(rd_run *r, stepper *s, bench_result *out, rd_status *st)
{
    const int64_t n = r->c.bench_steps;
    double sq = 0.0;
    *out = (bench_result){.min_s = INFINITY};
    RD_TRY(measure_peak(r, &out->peak, st));
    for (int64_t i = 0; i < r->c.bench_warmup + n; i++) {
        const step_sums in = {0};
        step_sums sum;
        rd_optim_stats stats = {0};
        s->count_flops = i >= r->c.bench_warmup;
        const int64_t begin_ns = rd_now_ns();
        RD_TRY(stepper_step(s, rd_schedule_at(&r->sc, r->at.step, r->world->size), &in, &sum, &stats, st));
        const double seconds = (double)(rd_now_ns() - begin_ns) * 1e-9;
        out->loss = sum.weight > 0.0 ? sum.loss / sum.weight : NAN;
        if (i < r->c.bench_warmup) continue;
        out->seconds += seconds;
        sq += seconds * seconds;
        if (seconds < out->min_s) out->min_s = seconds;
        out->tokens += sum.tokens_src + sum.tokens_tgt;
        out->tokens_tgt += sum.tokens_tgt;
        out->flops += sum.flops;
    }
    out->mean_s = out->seconds / (double)n;
    out->std_s = sqrt(fmax(0.0, sq / (double)n - out->mean_s * out->mean_s));
    out->peak_bytes = run_peak_bytes();
    RD_TRY(rd_comm_sum_f64(r->comm, &out->peak, 1, st));
    RD_TRY(rd_comm_max_f64(r->comm, &out->peak_bytes, 1, st));
done:
    return st->code;
}

static rd_code report(const rd_run *r, const bench_result *b, rd_status *st)
{
    const double rate = b->flops / b->seconds;
    char a[32], c[32];
    if (strcmp(r->c.bench_format, "json") == 0) {
        json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "config", r->cli->config_file, "model",
                              r->model->name, "dtype", r->c.dtype, "ranks", r->world->size, "threads",
                              rd_backend_threads(r->backend), "batch_size", (json_int_t)r->c.batch_size, "parameters",
                              (json_int_t)rd_params_count(r->params), "steps", (json_int_t)r->c.bench_steps);
        const struct {
            const char *key;
            double v;
        } rows[] = {{"step_s", b->mean_s},
                    {"step_s_min", b->min_s},
                    {"step_s_std", b->std_s},
                    {"tokens_per_s", b->tokens / b->seconds},
                    {"target_tokens_per_s", b->tokens_tgt / b->seconds},
                    {"model_gflop_per_s", rate * 1e-9},
                    {"peak_gflop_per_s", b->peak * 1e-9},
                    {"share_of_peak", rate / b->peak},
                    {"peak_memory_bytes", b->peak_bytes},
                    {"loss", b->loss}};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            (void)json_object_set_new(o, rows[i].key, isfinite(rows[i].v) ? json_real(rows[i].v) : json_null());
        char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
        json_decref(o);
        if (!text || printf("%s\n", text) < 0 || fflush(stdout) != 0)
            rd_fail(st, RD_EENV, "cannot write the result to standard output");
        free(text);
        return st->code;
    }
    rd_info(r->log, "%" PRId64 " step%s of %.4f s (best %.4f, deviation %.4f)", r->c.bench_steps,
            RD_S(r->c.bench_steps), b->mean_s, b->min_s, b->std_s);
    rd_info(r->log, "%s tokens/s (%s target)", console_count(b->tokens / b->seconds, a),
            console_count(b->tokens_tgt / b->seconds, c));
    rd_info(r->log, "%.1f model GFLOP/s, %.1f %% of the float32 peak of %.1f GFLOP/s (%d rank%s)", rate * 1e-9,
            100.0 * rate / b->peak, b->peak * 1e-9, r->world->size, r->world->size == 1 ? "" : "s");
    rd_info(r->log, "peak memory of a rank: %.0f MB", b->peak_bytes * 1e-6);
    return RD_OK;
}

rd_code run_bench(rd_run *r, rd_status *st)
{
    stepper s;
    bench_result b;
    rd_data_spec spec = {.src_vocab_size = r->c.bench_vocab, .tgt_vocab_size = r->c.bench_vocab};
    stepper_init(&s, r);
    if (r->c.bench_synthetic) {
        s.make = synthetic_batch;
    } else {
        RD_TRY(run_open_data(r, RD_SPLIT_TRAIN, &r->train, st));
        rd_dataset_def_of(r->train)->spec(rd_dataset_self(r->train), &spec);
    }
    RD_TRY(run_open_model(r, &spec, true, st));
    RD_TRY(world_check(r, st));
    if (!s.make) (void)stepper_plan(&s, st);
    RD_TRY(run_agree(r, st));
    world_banner(r, 0, s.plan ? rd_plan_n_batches(s.plan) : 0, s.plan ? rd_plan_n_samples(s.plan) : 0);
    RD_TRY(measure(r, &s, &b, st));
    if (r->world->rank == 0) (void)report(r, &b, st);
done:
    stepper_release(&s);
    return st->code;
}
