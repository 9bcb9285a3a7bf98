/* image_ops.c -- measures the speed of the ops on images on one thread.
 *
 *     image_ops [resnet50|mnist] [batch] [mixed]
 *
 * Prints one line for each layer of the network. For a convolution: GFLOP/s of its three
 * directions, and their share of the GFLOP/s of a 2048^3 product in the same run. For other ops:
 * GB/s of the bytes that they must read and write. Then prints the time of the whole network, with
 * each layer as often as it occurs. Times are CPU times, the best of some, so that other programs
 * on the machine do not count. */
#include "../../runner/engine/image_kernels.h"
#include "rd/image.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(const rd_status *st)
{
    if (st->code == RD_OK) return;
    fprintf(stderr, "%s (%s)\n", st->msg, st->where);
    exit(1);
}

typedef struct layer {
    const char *name;
    int64_t times, h, ci, k, co, stride, pad;
    bool first; /* first layer: no gradient of the data */
    bool bias;
} layer;

/* ResNet-50 v1.5, 224 x 224. */
static const layer resnet50[] = {
    {"7x7 s2 3-64", 1, 224, 3, 7, 64, 2, 3, true, false},
    {"1x1 64-64", 1, 56, 64, 1, 64, 1, 0, false, false},
    {"3x3 64-64", 3, 56, 64, 3, 64, 1, 1, false, false},
    {"1x1 64-256", 4, 56, 64, 1, 256, 1, 0, false, false},
    {"1x1 256-64", 2, 56, 256, 1, 64, 1, 0, false, false},
    {"1x1 256-128", 1, 56, 256, 1, 128, 1, 0, false, false},
    {"3x3 s2 128", 1, 56, 128, 3, 128, 2, 1, false, false},
    {"1x1 128-512", 4, 28, 128, 1, 512, 1, 0, false, false},
    {"1x1 s2 256-512", 1, 56, 256, 1, 512, 2, 0, false, false},
    {"1x1 512-128", 3, 28, 512, 1, 128, 1, 0, false, false},
    {"3x3 128", 3, 28, 128, 3, 128, 1, 1, false, false},
    {"1x1 512-256", 1, 28, 512, 1, 256, 1, 0, false, false},
    {"3x3 s2 256", 1, 28, 256, 3, 256, 2, 1, false, false},
    {"1x1 256-1024", 6, 14, 256, 1, 1024, 1, 0, false, false},
    {"1x1 s2 512-1024", 1, 28, 512, 1, 1024, 2, 0, false, false},
    {"1x1 1024-256", 5, 14, 1024, 1, 256, 1, 0, false, false},
    {"3x3 256", 5, 14, 256, 3, 256, 1, 1, false, false},
    {"1x1 1024-512", 1, 14, 1024, 1, 512, 1, 0, false, false},
    {"3x3 s2 512", 1, 14, 512, 3, 512, 2, 1, false, false},
    {"1x1 512-2048", 3, 7, 512, 1, 2048, 1, 0, false, false},
    {"1x1 s2 1024-2048", 1, 14, 1024, 1, 2048, 2, 0, false, false},
    {"1x1 2048-512", 2, 7, 2048, 1, 512, 1, 0, false, false},
    {"3x3 512", 2, 7, 512, 3, 512, 1, 1, false, false},
};
static const layer mnist[] = {
    {"3x3 1-32", 1, 28, 1, 3, 32, 1, 0, true, true},
    {"3x3 32-64", 1, 26, 32, 3, 64, 1, 0, false, true},
};

static float *random_floats(int64_t n)
{
    float *x = aligned_alloc(64, ((size_t)n * 4 + 127) / 64 * 64);
    if (!x) exit(1);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919) % 1001 - 500) / 500.0f;
    return x;
}

static double peak(rd_backend *be)
{
    enum { N = 2048 };
    rd_status st = {0};
    float *a = random_floats((int64_t)N * N), *b = random_floats((int64_t)N * N),
          *c = random_floats((int64_t)N * N);
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        const double t = now();
        rd_gemm(be, false, false, N, N, N, 1.0f, a, N, b, N, 0.0f, c, N, &st);
        const double took = now() - t;
        best = took < best ? took : best;
    }
    must(&st);
    free(a);
    free(b);
    free(c);
    return 2.0 * N * N * (double)N / best;
}

enum { ROUNDS = 3 };

static double convolutions(rd_backend *be, const layer *rows, int n_rows, int64_t batch, double top)
{
    double total = 0.0, work = 0.0;
    printf("%-18s %14s %14s %14s   GFLOP/s, share of a product's\n", "convolution", "forward",
           "data", "weights");
    for (int r = 0; r < n_rows; r++) {
        const layer *l = &rows[r];
        rd_status st = {0};
        rd_params *ps;
        rd_param *W;
        const int64_t dim[] = {l->k, l->k, l->ci, l->co};
        rd_params_new(&ps, &st);
        rd_params_add(ps, "w", 4, dim,
                      (rd_init){RD_INIT_GLOROT, 0, l->ci * l->k * l->k, l->co * l->k * l->k}, 0, &W,
                      &st);
        rd_params_seal(ps, 1, (double)NAN, &st);
        const void *layout;
        rd_conv_layout(be, &layout, &st);
        must(&st);
        const int64_t block = layout ? ((const rd_image_layout *)layout)->block : 0;
        const int64_t oh = (l->h + 2 * l->pad - l->k) / l->stride + 1;
        const rd_conv_shape s = {batch,
                                 l->h,
                                 l->h,
                                 l->ci,
                                 l->k,
                                 l->k,
                                 l->co,
                                 l->stride,
                                 l->pad,
                                 l->pad,
                                 l->pad,
                                 l->pad,
                                 l->first ? 0 : block,
                                 l->bias,
                                 l->bias};
        float *x = random_floats(batch * l->h * l->h * l->ci),
              *y = random_floats(batch * oh * oh * l->co),
              *dx = random_floats(batch * l->h * l->h * l->ci), *bias = random_floats(l->co);
        double best[3] = {1e9, 1e9, 1e9};
        float *dW = rd_params_grads(ps) + W->offset;
        for (int i = 0; i < ROUNDS; i++) {
            double t = now();
            rd_conv_forward(be, &s, ps, W, x, bias, y, &st);
            double took = now() - t;
            best[0] = took < best[0] ? took : best[0];
            t = now();
            if (!l->first) rd_conv_backward(be, &s, ps, W, x, y, dx, false, NULL, NULL, &st);
            took = now() - t;
            best[1] = took < best[1] ? took : best[1];
            t = now();
            rd_conv_backward(be, &s, ps, W, x, y, NULL, false, dW, NULL, &st);
            took = now() - t;
            best[2] = took < best[2] ? took : best[2];
            must(&st);
        }
        const double flop = 2.0 * (double)(batch * oh * oh * l->co * l->ci * l->k * l->k);
        printf("%-18s", l->name);
        for (int d = 0; d < 3; d++) {
            if (d == 1 && l->first)
                printf("%15s", "");
            else
                printf("  %6.1f (%3.0f%%)", flop / best[d] / 1e9, 100.0 * flop / best[d] / top);
            total += d == 1 && l->first ? 0.0 : best[d] * (double)l->times;
            work += d == 1 && l->first ? 0.0 : flop * (double)l->times;
        }
        printf("   %5.1f %5.1f %5.1f ms x %d\n", best[0] * 1e3, best[1] * 1e3, best[2] * 1e3,
               (int)l->times);
        free(x);
        free(y);
        free(dx);
        free(bias);
        rd_params_free(ps);
    }
    printf("%-18s %.1f ms, %.1f GFLOP/s (%.0f%% of a product)\n", "together", total * 1e3,
           work / total / 1e9, 100.0 * work / total / top);
    return total;
}

/* ---- the other ops, on a tape ---- */
typedef struct other {
    const char *name;
    int64_t times, h, c;
    /* 0: batch_norm relu, 1: batch_norm add relu, 2: batch_norm, 3: max pool 2x2,
     * 4: max pool 3x3 stride 2, 5: dropout */
    int kind;
} other;
static const other resnet50_other[] = {
    {"norm relu 112 64", 1, 112, 64, 0},  {"norm relu 56 64", 6, 56, 64, 0},
    {"norm add 56 256", 3, 56, 256, 1},   {"norm 56 256", 1, 56, 256, 2},
    {"norm relu 56 128", 1, 56, 128, 0},  {"norm relu 28 128", 7, 28, 128, 0},
    {"norm add 28 512", 4, 28, 512, 1},   {"norm 28 512", 1, 28, 512, 2},
    {"norm relu 28 256", 1, 28, 256, 0},  {"norm relu 14 256", 11, 14, 256, 0},
    {"norm add 14 1024", 6, 14, 1024, 1}, {"norm 14 1024", 1, 14, 1024, 2},
    {"norm relu 14 512", 1, 14, 512, 0},  {"norm relu 7 512", 5, 7, 512, 0},
    {"norm add 7 2048", 3, 7, 2048, 1},   {"norm 7 2048", 1, 7, 2048, 2},
    {"pool 3x3 112 64", 1, 112, 64, 4},
};
static const other mnist_other[] = {{"pool 2x2 24 64", 1, 24, 64, 3},
                                    {"dropout 12 64", 1, 12, 64, 5}};

static rd_code start_infer(rd_call *c, rd_status *st)
{
    (void)st;
    const int64_t *d = c->attr;
    const void *layout;
    if (rd_conv_layout(c->be, &layout, st) == RD_OK)
        rd_image_set(c->out[0], d[0], d[1], d[1], d[2], layout);
    return st->code;
}
static rd_code start_forward(rd_call *c, rd_status *st)
{
    (void)st;
    for (int64_t i = 0; i < c->out[0]->rows * c->out[0]->cols; i++)
        c->out[0]->v[i] = (float)(i % 1001 - 500) / 500.0f;
    return RD_OK;
}
static rd_code start_backward(rd_call *c, rd_status *st)
{
    (void)c;
    (void)st;
    return RD_OK;
}
static const rd_op start = {.name = "start",
                            .infer = start_infer,
                            .kernel = RD_EVERY_BACKEND(start_forward, start_backward),
                            .own_grads = true};

/* Ends a network: its backward writes a gradient of ones and is not timed. */
typedef struct clock_at {
    double *t;
} clock_at;
static rd_code end_infer(rd_call *c, rd_status *st)
{
    (void)st;
    c->out[0]->rows = c->out[0]->cols = 1;
    return RD_OK;
}
static rd_code end_forward(rd_call *c, rd_status *st)
{
    (void)st;
    c->out[0]->v[0] = 0.0f;
    return RD_OK;
}
static rd_code end_backward(rd_call *c, rd_status *st)
{
    float *g;
    bool add;
    rd_call_grad(c, 0, &g, &add, st);
    for (int64_t i = 0; g && i < rd_var_elements(c->in[0]); i++)
        g[i] = (float)(i % 103 - 51) / 500.0f;
    *((const clock_at *)c->attr)->t = now();
    return st->code;
}
static const rd_op end = {.name = "end",
                          .infer = end_infer,
                          .kernel = RD_EVERY_BACKEND(end_forward, end_backward),
                          .own_grads = true};

static double others(rd_backend *be, const other *rows, int n_rows, int64_t batch)
{
    double total = 0.0;
    printf("%-18s %14s %14s   GB/s of what must move\n", "op", "forward", "backward");
    for (int r = 0; r < n_rows; r++) {
        const other *o = &rows[r];
        rd_status st = {0};
        rd_params *ps;
        rd_param *gamma, *beta, *mean, *var;
        rd_tape *t;
        rd_params_new(&ps, &st);
        rd_params_add(ps, "gamma", 1, &o->c, (rd_init){RD_INIT_CONST, 1, 0, 0}, 0, &gamma, &st);
        rd_params_add(ps, "beta", 1, &o->c, (rd_init){RD_INIT_CONST, 0, 0, 0}, 0, &beta, &st);
        rd_params_add_state(ps, "mean", o->c, 0, 0.9, &mean, &st);
        rd_params_add_state(ps, "var", o->c, 1, 0.9, &var, &st);
        rd_params_seal(ps, 1, (double)NAN, &st);
        rd_tape_new(be, ps, &t, &st);
        must(&st);
        double best[2] = {1e9, 1e9};
        int64_t *sample = calloc((size_t)batch, sizeof *sample);
        for (int i = 0; i < ROUNDS + 2; i++) {
            rd_tape_reset(t, true, true);
            const int64_t d[] = {batch, o->h, o->c};
            rd_var *one = rd_tape_param(t, gamma);
            rd_var *x = rd_tape_apply(t, &start, d, sizeof d, &one, 1, NULL, 1);
            rd_var *add = o->kind == 1 ? rd_tape_apply(t, &start, d, sizeof d, &one, 1, NULL, 1)
                                       : NULL;
            const rd_batch_norm bn = {1e-5f, 0, o->kind < 2, mean, var};
            const rd_pool pool = {RD_POOL_MAX,  o->kind == 3 ? 2 : 3, 2,           o->kind == 4,
                                  o->kind == 4, o->kind == 4,         o->kind == 4};
            const rd_dropout drop = {1, 0, 0, 0.75f};
            double from = now(), middle;
            rd_var *y = o->kind < 3 ? rd_op_batch_norm(t, &bn, x, one, rd_tape_param(t, beta), add)
                        : o->kind == 5 ? rd_op_dropout(t, &drop, sample, x)
                                       : rd_op_pool2d(t, &pool, x);
            double took = now() - from;
            best[0] = took < best[0] ? took : best[0];
            const clock_at at = {&middle};
            rd_var *loss = rd_tape_apply(t, &end, &at, sizeof at, &y, 1, NULL, 1);
            rd_tape_check(t, &st);
            must(&st);
            rd_tape_backward(t, loss, &st);
            took = now() - middle;
            best[1] = took < best[1] ? took : best[1];
            must(&st);
        }
        const double n = (double)(batch * o->h * o->h * o->c) * 4.0;
        /* Forward: x twice, y (and the sum). Backward: x, y and dy twice, dx (and that of the
         * sum). */
        const double moved[][2] = {{3, 7}, {4, 8}, {3, 5}, {1.25, 1.5}, {1.25, 1.5}, {2, 2}};
        printf("%-18s  %6.1f          %6.1f          %6.2f %6.2f ms x %d\n", o->name,
               moved[o->kind][0] * n / best[0] / 1e9, moved[o->kind][1] * n / best[1] / 1e9,
               best[0] * 1e3, best[1] * 1e3, (int)o->times);
        total += (best[0] + best[1]) * (double)o->times;
        free(sample);
        rd_tape_free(t);
        rd_params_free(ps);
    }
    printf("%-18s %.1f ms\n", "together", total * 1e3);
    return total;
}

int main(int argc, char **argv)
{
    const bool small = argc > 1 && strcmp(argv[1], "mnist") == 0,
               mixed = argc > 3 && strcmp(argv[3], "mixed") == 0;
    const int64_t batch = argc > 2 ? atoll(argv[2]) : small ? 128 : 16;
    rd_status st = {0};
    rd_backend *be = NULL, *plain = NULL;
    rd_backend_cpu_new(1, false, &plain, &st);
    rd_backend_cpu_new(1, mixed, &be, &st);
    must(&st);
    const double top = peak(plain);
    printf("%s\nproduct of 2048^3: %.1f GFLOP/s\n", rd_backend_describe(be), top / 1e9);
    double total = small
                       ? convolutions(be, mnist, sizeof mnist / sizeof *mnist, batch, top)
                       : convolutions(be, resnet50, sizeof resnet50 / sizeof *resnet50, batch, top);
    total += small ? others(be, mnist_other, sizeof mnist_other / sizeof *mnist_other, batch)
                   : others(be, resnet50_other, sizeof resnet50_other / sizeof *resnet50_other,
                            batch);
    printf("a step of the network: %.1f ms, %.1f images/s\n", total * 1e3, (double)batch / total);
    rd_backend_free(be);
    rd_backend_free(plain);
    return 0;
}
