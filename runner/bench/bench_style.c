/* bench_style.c -- the output of bench mode, by key bench_format.
 *
 * tfcnn is the output of tf_cnn_benchmarks, line by line, so that scripts which read it keep
 * working. There every rank prints all of it; here rank 0 prints alone. A step line gives the rate
 * of one rank, the total that of all ranks. horovod is the output of Horovod's synthetic benchmark.
 * What both lack goes to standard error, after the banner. json has all figures. */
#include "bench.h"
#include "../run/console.h"
#include "../run/device.h"
#include "../run/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double unit_rate(const bench_step *s, int size)
{
    return s->units / (double)size / s->seconds;
}

static int bench_style_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts x and returns its median: as numpy.median, the mean of the two in the middle where n is
 * even. */
static double median(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, bench_style_by_value);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

static double deviation(const double *x, int64_t n, double *mean)
{
    double sum = 0.0, sq = 0.0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) sq += (x[i] - *mean) * (x[i] - *mean);
    return sqrt(sq / (double)n);
}

/* ---- tfcnn ---- */

static void tfcnn_begin(bench *b)
{
    const rd_run *r = b->run;
    const double steps = (double)b->result.n_planned;
    rd_strbuf versions = {0};
    rd_versions(&versions); /* its first line is "run_dist 1.2.3 (...)" */
    const char *version = rd_strbuf_str(&versions) + strcspn(rd_strbuf_str(&versions), " ");
    version += *version == ' ';
    (void)printf("run_dist:    %.*s\n", (int)strcspn(version, " \n"), version);
    rd_strbuf_release(&versions);
    (void)printf("Model:       %s\n", r->model->name);
    (void)printf("Dataset:     %s\n", b->data);
    (void)printf("Mode:        %s\n", b->config.bench_forward_only ? "forward-only" : "training");
    (void)printf("SingleSess:  False\n");
    (void)printf("Batch size:  %" PRId64 " global\n", run_update_samples(r));
    (void)printf("             %" PRId64 " per device\n", r->config.batch_size * run_batches(r));
    (void)printf("Num batches: %" PRId64 "\n", b->result.n_planned);
    if (b->n_epoch > 0)
        (void)printf("Num epochs:  %.2f\n",
                     steps * (double)run_update_samples(r) / (double)b->n_epoch);
    (void)printf("Devices:     [");
    for (int i = 0; i < r->world->size; i++)
        (void)printf("%s'horovod/%s:%d'", i ? ", " : "", r->gpu ? "gpu" : "cpu", i);
    (void)printf("]\nNUMA bind:   False\n");
    if (b->images) (void)printf("Data format: %s\n", r->gpu ? "NHWC" : "blocked");
    (void)printf("Optimizer:   %s\n", r->optim ? rd_optim_def(r->optim)->name : "none");
    (void)printf("Variables:   horovod\n==========\nGenerating model\n");
    (void)fflush(stdout);
}

static void tfcnn_warm(bench *b)
{
    (void)b;
    (void)printf("Initializing graph\nRunning warm up\n");
    (void)fflush(stdout);
}

static void tfcnn_ready(bench *b)
{
    int n;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n);
    (void)printf("Done warm up\nStep\t%s\ttotal_loss", b->images ? "Img/sec" : "Tokens/sec");
    for (int i = 0; b->config.bench_accuracy && i < n; i++)
        if (defs[i]->bench_column) (void)printf("\t%s", defs[i]->bench_column);
    (void)printf("\n");
    (void)fflush(stdout);
}

/* Prints the columns of the class metrics. */
static void tfcnn_classes(const bench *b)
{
    int n;
    const rd_class_metric_def *const *defs = rd_class_metric_defs(&n);
    int64_t at[STEP_CLASS_COUNTS];
    const class_counts k = class_counts_of_sums(b->result.classes, b->result.targets,
                                                b->run->spec.n_classes, at);
    for (int i = 0; i < n; i++)
        if (defs[i]->bench_column)
            (void)printf("\t%.3f", console_real(class_first_figure(&k, i).value));
}

static void tfcnn_step(bench *b, int64_t done)
{
    const bench_result *r = &b->result;
    const int size = b->run->world->size;
    double units = 0.0, seconds = 0.0, mean = 0.0;
    if (done != 1 && done % b->config.bench_display != 0) return;
    double *x = calloc((size_t)done, sizeof *x);
    if (!x) return; /* out of memory: leave out this line */
    for (int64_t i = 0; i < done; i++) {
        x[i] = unit_rate(&r->step[i], size);
        units += r->step[i].units / (double)size;
        seconds += r->step[i].seconds;
    }
    const double uncertainty = deviation(x, done, &mean) / sqrt((double)done),
                 middle = median(x, done);
    for (int64_t i = 0; i < done; i++) x[i] = fabs(x[i] - middle);
    (void)printf("%" PRId64 "\t%s/sec: %.1f +/- %.1f (jitter = %.1f)\t%.3f", done,
                 b->images ? "images" : "tokens", units / seconds, uncertainty,
                 1.4826 * median(x, done), console_real(r->loss + r->l2));
    if (b->config.bench_accuracy) tfcnn_classes(b);
    (void)printf("\n");
    (void)fflush(stdout);
    free(x);
}

static void tfcnn_end(bench *b)
{
    char line[65];
    memset(line, '-', 64);
    line[64] = '\0';
    (void)printf("%s\ntotal %s/sec: %.2f\n%s\n", line, b->images ? "images" : "tokens",
                 b->result.units / b->result.wall_s, line);
}

/* ---- horovod ---- */

static const char *short_unit(const bench *b)
{
    return b->images ? "img" : "tok";
}

static const char *device_word(const bench *b)
{
    return b->run->gpu ? "GPU" : "CPU";
}

static void horovod_begin(bench *b)
{
    (void)printf("Model: %s\nBatch size: %" PRId64 "\nNumber of %ss: %d\n", b->run->model->name,
                 b->run->config.batch_size * run_batches(b->run), device_word(b),
                 b->run->world->size);
    (void)fflush(stdout);
}

static void horovod_warm(bench *b)
{
    (void)b;
    (void)printf("Running warmup...\n");
    (void)fflush(stdout);
}

static void horovod_ready(bench *b)
{
    (void)b;
    (void)printf("Running benchmark...\n");
    (void)fflush(stdout);
}

static void horovod_step(bench *b, int64_t done)
{
    const int64_t first = b->n_rates * b->config.bench_display;
    double units = 0.0, seconds = 0.0;
    if (done - first < b->config.bench_display && done < b->result.n_planned) return;
    for (int64_t i = first; i < done; i++) {
        units += b->result.step[i].units / (double)b->run->world->size;
        seconds += b->result.step[i].seconds;
    }
    double *more = realloc(b->rates, (size_t)(b->n_rates + 1) * sizeof *more);
    if (!more) return;
    b->rates = more;
    b->rates[b->n_rates] = units / seconds;
    (void)printf("Iter #%" PRId64 ": %.1f %s/sec per %s\n", b->n_rates, units / seconds,
                 short_unit(b), device_word(b));
    (void)fflush(stdout);
    b->n_rates++;
}

static void horovod_end(bench *b)
{
    const int size = b->run->world->size;
    const char *unit = b->images ? "Img" : "Tok";
    double mean = 0.0;
    if (b->n_rates == 0) return;
    const double conf = 1.96 * deviation(b->rates, b->n_rates, &mean);
    (void)printf("%s/sec per %s: %.1f +-%.1f\n", unit, device_word(b), mean, conf);
    (void)printf("Total %s/sec on %d %s(s): %.1f +-%.1f\n", short_unit(b), size, device_word(b),
                 size * mean, size * conf);
}

/* ---- json ---- */

/* Is this figure meaningless on a GPU? */
static bool of_cpu(const char *key)
{
    return strcmp(key, "share_of_peak_cpu") == 0 || strcmp(key, "cpu_share") == 0 ||
           strstr(key, "_per_cpu_s") != NULL;
}

static void json_end(bench *b)
{
    const rd_run *r = b->run;
    const bench_result *v = &b->result;
    const double n = (double)v->n, rate = v->flops / v->wall_s;
    double mean = 0.0, min = INFINITY, sq = 0.0, seconds = 0.0;
    for (int64_t i = 0; i < v->n; i++) {
        seconds += v->step[i].seconds;
        if (v->step[i].seconds < min) min = v->step[i].seconds;
    }
    mean = seconds / n;
    for (int64_t i = 0; i < v->n; i++)
        sq += (v->step[i].seconds - mean) * (v->step[i].seconds - mean);
    json_t *o = json_pack("{s:s?, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:s, s:s}", "config",
                          r->cli->config_file, "model", r->model->name, "dtype",
                          run_word("dtype", (int)r->config.dtype), "ranks", r->world->size,
                          "threads", rd_backend_threads(r->backend), "batch_size",
                          (json_int_t)r->config.batch_size, "parameters",
                          (json_int_t)rd_params_count(r->params), "steps", (json_int_t)v->n,
                          "steps_skipped", (json_int_t)v->skipped, "data", b->data, "unit",
                          b->images ? "images" : "tokens");
    const double ranks = r->world->size;
    const struct {
        const char *key;
        double v;
    } rows[] = {
        {"step_s", mean},
        {"step_s_min", min},
        {"step_s_std", sqrt(sq / n)},
        {"samples_per_s", v->samples / v->wall_s},
        {b->images ? "images_per_s" : "tokens_per_s", v->units / v->wall_s},
        {"target_tokens_per_s", b->images ? NAN : v->units_tgt / v->wall_s},
        {"model_gflop_per_step", v->flops / n * 1e-9},
        {"model_gflop_per_s", rate * 1e-9},
        {"peak_gflop_per_s", v->peak * 1e-9},
        {"share_of_peak", rate / v->peak},
        {"share_of_peak_cpu", v->flops / v->cpu_s / v->peak_cpu},
        {b->images ? "images_per_cpu_s" : "tokens_per_cpu_s", v->units / v->cpu_s / ranks},
        {"cpu_share", v->cpu_s / v->wall_s / rd_backend_threads(r->backend)},
        {"reduced_bytes_per_step", v->reduced_bytes},
        {"reduce_alone_s", v->alone_s},
        {"bus_gb_per_s", 2.0 * (ranks - 1.0) / ranks * v->reduced_bytes / v->alone_s * 1e-9},
        {"exposed_comm_s", v->exposed_s / n},
        {"input_wait_s", v->input_s / n},
        {"peak_memory_bytes", v->peak_bytes},
        {"loss", v->loss},
        {"loss_l2", v->l2}};
    for (size_t i = 0; o && i < sizeof rows / sizeof rows[0]; i++)
        if (!(b->images && strcmp(rows[i].key, "target_tokens_per_s") == 0) &&
            !(r->gpu && of_cpu(rows[i].key)))
            (void)json_object_set_new(o, rows[i].key,
                                      isfinite(rows[i].v) ? json_real(rows[i].v) : json_null());
    if (run_gpu(r) && o) {
        (void)json_object_set_new(o, "device", json_string(rd_device_name(r->device.device)));
        (void)json_object_set_new(o, "device_name", json_string(rd_gpu_about(run_gpu(r))->name));
        (void)json_object_set_new(o, "device_memory_bytes", json_real(v->device_bytes));
        (void)json_object_set_new(o, "start_s", json_real(v->start_s));
    }
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9))
                   : NULL;
    json_decref(o);
    (void)printf("%s\n", text ? text : "{}");
    free(text);
}

const char *const bench_style_names[] = {[BENCH_TEXT] = "text",
                                         [BENCH_TFCNN] = "tfcnn",
                                         [BENCH_HOROVOD] = "horovod",
                                         [BENCH_JSON] = "json",
                                         NULL};

static const bench_style styles[] = {
    [BENCH_TEXT] = {0},
    [BENCH_TFCNN] = {tfcnn_begin, tfcnn_warm, tfcnn_ready, tfcnn_step, tfcnn_end},
    [BENCH_HOROVOD] = {horovod_begin, horovod_warm, horovod_ready, horovod_step, horovod_end},
    [BENCH_JSON] = {.end = json_end}};

const bench_style *bench_style_of(bench_format format)
{
    return &styles[format];
}
