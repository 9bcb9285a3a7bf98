/* softmax_xent.cu -- softmax_xent on a GPU: the formulas of softmax_xent.c, in blocks of rows whose
 * logits take at most BLOCK_BYTES.
 *
 * Each block of threads has one row. A row that fits into the registers of the threads is read once
 * and written once. A longer row is read twice, the second time mostly from the cache. */
#include "rd/ops.h"
#include "shared/loss_sum.h"
#include "../engine/gpu/softmax_row.h"
#include "rd/vec.h"
#include "shared/xent_block.h"
#include <string.h>

static const size_t BLOCK_BYTES = (size_t)256 << 20;

struct saved {
    float *dx; /* [N, X] */
};

struct xent_rows {
    int64_t first, V;
    float *l;              /* [rows, V] logits of rows `first` and on; with `grad` they become dl */
    const int32_t *target; /* [N], as are the next three */
    double *loss;
    int32_t *argmax; /* NULL: not wanted */
    float *nll;      /* NULL: not wanted */
    float inv, seed; /* 1 / temperature */
    bool grad;
};

/* Stores the results of a row; one thread calls it. sum: of exp((l - top) inv). best: lowest v with
 * l_v = top; V or more if top is not a number. */
static __device__ void xent_row_finish(const xent_rows &r, int64_t i, float l_y, float top,
                                       float sum, int best)
{
    const double nll = log((double)sum) - (double)((l_y - top) * r.inv);
    r.loss[i] = nll;
    if (r.nll) r.nll[i] = (float)nll;
    if (r.argmax) r.argmax[i] = best < r.V ? best : (int)(r.V - 1);
}

/* Computes a row of at most THREADS x PER logits. Thread t has the logits at t, t + THREADS, ...,
 * so neighbouring threads read neighbouring memory. */
template <int THREADS, int PER> static __device__ inline void whole_row(const xent_rows &r)
{
    const int64_t i = r.first + blockIdx.x, V = r.V;
    float *l = r.l + blockIdx.x * V;
    const int t = threadIdx.x;
    float x[PER];
#pragma unroll
    for (int k = 0; k < PER; k++) x[k] = t + k * THREADS < V ? l[t + k * THREADS] : -INFINITY;
    const int y = r.target[i];
    const float l_y = l[y];
    float top = x[0];
#pragma unroll
    for (int k = 1; k < PER; k++) top = fmaxf(top, x[k]);
    top = rd_block_max(top);
    int best = INT32_MAX;
    if (r.argmax) {
#pragma unroll
        for (int k = PER - 1; k >= 0; k--) best = x[k] == top ? t + k * THREADS : best;
        best = rd_block_least(best);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        x[k] = expf((x[k] - top) * r.inv);
        sum += x[k];
    }
    sum = rd_block_sum(sum);
    if (t == 0) xent_row_finish(r, i, l_y, top, sum, best);
    if (!r.grad) return;
    const float s = r.seed * r.inv / sum, right = r.seed * r.inv;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int v = t + k * THREADS;
        if (v < V) l[v] = v == y ? x[k] * s - right : x[k] * s;
    }
}

static __global__ void __launch_bounds__(128) softmax_1024(xent_rows r)
{
    whole_row<128, 8>(r);
}
static __global__ void __launch_bounds__(256) softmax_4096(xent_rows r)
{
    whole_row<256, 16>(r);
}
static __global__ void __launch_bounds__(512) softmax_16384(xent_rows r)
{
    whole_row<512, 32>(r);
}
static __global__ void __launch_bounds__(1024) softmax_32768(xent_rows r)
{
    whole_row<1024, 32>(r);
}

static __global__ void __launch_bounds__(512) softmax_long(xent_rows r)
{
    enum { THREADS = 512 };
    const int64_t i = r.first + blockIdx.x, V = r.V;
    float *l = r.l + blockIdx.x * V;
    const int y = r.target[i];
    const float l_y = l[y];
    const rd_softmax_row of = rd_softmax_of_row<THREADS>(l, V, r.inv);
    const float all = of.top;
    int first = INT32_MAX;
    if (r.argmax) first = rd_block_least(of.own == all ? (int)of.own_best : INT32_MAX);
    if (threadIdx.x == 0) xent_row_finish(r, i, l_y, all, of.sum, first);
    if (!r.grad) return;
    const float s = r.seed * r.inv / of.sum, right = r.seed * r.inv;
#pragma unroll 8
    for (int64_t v = threadIdx.x; v < V; v += THREADS) {
        const float p = expf((l[v] - all) * r.inv) * s;
        l[v] = v == y ? p - right : p;
    }
}

static rd_code softmax(rd_gpu *gpu, unsigned n, const xent_rows &rows, rd_status *st)
{
    const xent_rows r = rows;
    if (r.V <= 1024) return RD_LAUNCH(gpu, st, softmax_1024, n, 128, 0, r);
    if (r.V <= 4096) return RD_LAUNCH(gpu, st, softmax_4096, n, 256, 0, r);
    if (r.V <= 16384) return RD_LAUNCH(gpu, st, softmax_16384, n, 512, 0, r);
    if (r.V <= 32768) return RD_LAUNCH(gpu, st, softmax_32768, n, 1024, 0, r);
    return RD_LAUNCH(gpu, st, softmax_long, n, 512, 0, r);
}

/* The results that the host wants, in one block of memory: the sum, then argmax and nll by row. */
struct wanted {
    size_t argmax, nll; /* offsets in bytes */
    size_t bytes;       /* size of the block */
};

static wanted softmax_xent_wanted_of(const rd_xent *a, int64_t N)
{
    wanted w = {};
    w.argmax = sizeof(double);
    w.nll = w.argmax + (a->argmax ? (size_t)N * sizeof *a->argmax : 0);
    w.bytes = w.nll + (a->nll ? (size_t)N * sizeof *a->nll : 0);
    return w;
}

extern "C" rd_code rd_cuda_softmax_xent_forward(rd_call *c, rd_status *st)
{
    const rd_xent *a = static_cast<const rd_xent *>(c->attr);
    const rd_var *x = c->in[0], *W = c->in[1];
    rd_gpu *gpu = rd_gpu_of(c->be);
    const int64_t N = x->rows, X = W->rows, V = W->cols;
    const int64_t most = rd_xent_block_rows(c->be, BLOCK_BYTES, V);
    /* The blocks have about equal heights: a last block of few rows would leave the GPU idle. */
    const int64_t n_blocks = (N + most - 1) / most;
    const int64_t block = n_blocks > 1 ? ((N + n_blocks - 1) / n_blocks + 63) / 64 * 64 : N;
    const wanted w = softmax_xent_wanted_of(a, N);
    saved *s;
    xent_rows r = {};
    unsigned char *out, *got;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *s, &s, st));
    c->saved = s;
    if (c->keep)
        RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(N * X) * sizeof(float), &s->dx, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(block * V) * sizeof(float), &r.l,
                                  st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)N * sizeof(double), &r.loss, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, w.bytes, &out, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->target, (size_t)N * sizeof *a->target,
                                  &r.target, st));
    r.V = V;
    r.argmax = a->argmax ? reinterpret_cast<int32_t *>(out + w.argmax) : NULL;
    r.nll = a->nll ? reinterpret_cast<float *>(out + w.nll) : NULL;
    r.inv = 1.0f / a->temperature;
    r.seed = c->seed;
    r.grad = c->keep;
    for (int64_t i = 0; i < N; i += block) {
        const int64_t n = N - i < block ? N - i : block;
        const float *xi = x->v + i * X;
        r.first = i;
        RD_TRY_OR_RETURN(rd_gpu_gemm(gpu, false, false, n, V, X, 1.0f, xi, X, W->v, V, 0.0f, r.l, V,
                                     st));
        RD_TRY_OR_RETURN(softmax(gpu, (unsigned)n, r, st));
        if (!c->keep) continue;
        RD_TRY_OR_RETURN(rd_gpu_gemm(gpu, false, true, n, X, V, 1.0f, r.l, V, W->v, V, 0.0f,
                                     s->dx + i * X, X, st));
        if (W->g)
            RD_TRY_OR_RETURN(rd_gpu_gemm(gpu, true, false, X, V, n, 1.0f, xi, X, r.l, V, 1.0f, W->g,
                                         V, st));
    }
    double *sum = reinterpret_cast<double *>(out);
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rd_loss_sum, 1, RD_LOSS_THREADS, 0, N, r.loss, sum,
                               c->out[0]->v));
    if (!a->loss_sum && !a->argmax && !a->nll) return RD_OK;
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, w.bytes, &got, st));
    RD_TRY_OR_RETURN(rd_gpu_download(gpu, got, out, w.bytes, st));
    if (a->loss_sum) memcpy(a->loss_sum, got, sizeof *a->loss_sum);
    if (a->argmax) memcpy(a->argmax, got + w.argmax, (size_t)N * sizeof *a->argmax);
    if (a->nll) memcpy(a->nll, got + w.nll, (size_t)N * sizeof *a->nll);
    return RD_OK;
}

extern "C" rd_code rd_cuda_softmax_xent_backward(rd_call *c, rd_status *st)
{
    const saved *s = static_cast<const saved *>(c->saved);
    const float seed = rd_call_loss_seed(c);
    if (seed != c->seed)
        return rd_fail(st, RD_EBUG,
                       "softmax_xent: backward must start at this loss (gradient %g, seed %g)",
                       (double)seed, (double)c->seed);
    return c->in[0]->g ? rd_vec_add(c->be, c->in[0]->rows * c->in[0]->cols, s->dx, c->in[0]->g, st)
                       : RD_OK;
}
