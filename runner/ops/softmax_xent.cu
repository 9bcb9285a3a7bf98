/* softmax_xent.cu -- softmax_xent on a GPU: the formulas of softmax_xent.c, in blocks of rows.
 *
 * A sum over rows depends on the blocks. So their size follows from the memory of this type of GPU,
 * and not from what is free now: the same command gives the same bytes again.
 *
 * Logits are float32. In mixed, x is rounded once for both of its products, and the kernel writes
 * the gradients of the logits with 16 bits, for both of theirs.
 *
 * Each block of threads has one row. A row that fits into the registers of the threads is read once
 * and written once. A longer row is read twice, the second time mostly from the cache. */
#include "softmax_xent.h"
#include "shared/loss_sum.h"
#include "shared/operand.h"
#include "../engine/gpu/element_device.h"
#include "../engine/gpu/softmax_row.h"
#include "rd/vec.h"
#include "shared/xent_block.h"
#include <string.h>

struct saved {
    float *dx; /* [N, X] */
};

struct xent_rows {
    int64_t first, V, n; /* n: classes; the other columns fill a block */
    float *l;            /* [rows, V] logits of rows `first` and on */
    void *dl;            /* with `grad`: [rows, ld] their gradients; float32 ones replace l */
    int64_t ld;
    const float *bias;     /* [V] NULL: none */
    const float *weight;   /* [N] NULL: 1 */
    const int32_t *target; /* [N], as are the next four */
    double *loss, *weighted_nll;
    int32_t *argmax;    /* NULL: not wanted */
    float *nll;         /* NULL: not wanted */
    float inv, seed;    /* 1 / temperature */
    double right, each; /* rd_xent_shares */
    float softcap, z;   /* rd_xent */
    bool smooth, grad;
};

/* Returns logit v of a row with its bias, limited. */
static __device__ inline float capped(const xent_rows &r, const float *l, int64_t v)
{
    const float x = r.bias ? l[v] + r.bias[v] : l[v];
    return r.softcap > 0.0f ? r.softcap * tanhf(x / r.softcap) : x;
}
/* Returns the slope of the limit at a limited logit. */
static __device__ inline float cap_slope(const xent_rows &r, float x)
{
    const float t = x / r.softcap;
    return 1.0f - t * t;
}
/* Returns log sum exp of the logits. */
static __device__ inline double log_sum_exp(const xent_rows &r, float top, float sum)
{
    return log((double)sum) + (double)top * (double)r.inv;
}

static __device__ inline float weight_of(const xent_rows &r, int64_t i)
{
    return r.weight ? r.weight[i] : 1.0f;
}

/* Stores the results of a row; one thread calls it. sum: of exp((l - top) inv). all: of (l - top)
 * inv, with smoothing. best: lowest v with l_v = top; n or more if top is not a number. */
static __device__ void xent_row_finish(const xent_rows &r, int64_t i, float l_y, float top,
                                       float sum, float all, int best)
{
    const double log_sum = log((double)sum), nll = log_sum - (double)((l_y - top) * r.inv),
                 weight = (double)weight_of(r, i),
                 loss = r.smooth ? r.right * nll + r.each * ((double)r.n * log_sum - (double)all)
                                 : nll;
    const double lse = log_sum_exp(r, top, sum);
    r.loss[i] = (loss + (double)r.z * lse * lse) * weight;
    r.weighted_nll[i] = nll * weight;
    if (r.nll) r.nll[i] = (float)nll;
    if (r.argmax) r.argmax[i] = best < r.n ? best : (int)(r.n - 1);
}

/* The gradient of logit v, whose probability is p s / g. g: the gradient of -log p. */
static __device__ inline float xent_dl(const xent_rows &r, float p, float s, float g, int64_t v,
                                       int y)
{
    float d = p * s;
    if (r.smooth && v < r.n) d -= g * (float)r.each;
    return v == y ? d - g * (float)r.right : d;
}

/* Computes a row of at most THREADS x PER logits. Thread t has the logits at t, t + THREADS, ...,
 * so neighbouring threads read neighbouring memory. */
template <int THREADS, int PER, typename T>
static __device__ inline void whole_row(const xent_rows &r)
{
    const int64_t i = r.first + blockIdx.x, V = r.V;
    float *l = r.l + blockIdx.x * V;
    T *dl = static_cast<T *>(r.dl) + blockIdx.x * r.ld;
    const int t = threadIdx.x;
    float x[PER];
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int v = t + k * THREADS;
        x[k] = v >= r.n ? -INFINITY : capped(r, l, v);
    }
    const int y = r.target[i];
    const float l_y = capped(r, l, y);
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
    float all = 0.0f;
    if (r.smooth) {
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (t + k * THREADS < r.n) all += (x[k] - top) * r.inv;
        all = rd_block_sum(all);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        x[k] = expf((x[k] - top) * r.inv);
        sum += x[k];
    }
    sum = rd_block_sum(sum);
    if (t == 0) xent_row_finish(r, i, l_y, top, sum, all, best);
    if (!r.grad) return;
    const float g = r.seed * r.inv * weight_of(r, i),
                s = g / sum * (float)(1.0 + 2.0 * (double)r.z * log_sum_exp(r, top, sum));
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int v = t + k * THREADS;
        if (v >= V) continue;
        const float slope = r.softcap > 0.0f && v < r.n ? cap_slope(r, capped(r, l, v)) : 1.0f;
        rd_put(dl + v, slope * xent_dl(r, x[k], s, g, v, y));
    }
}

template <typename T> static __global__ void __launch_bounds__(128) softmax_1024(xent_rows r)
{
    whole_row<128, 8, T>(r);
}
template <typename T> static __global__ void __launch_bounds__(256) softmax_4096(xent_rows r)
{
    whole_row<256, 16, T>(r);
}
template <typename T> static __global__ void __launch_bounds__(512) softmax_16384(xent_rows r)
{
    whole_row<512, 32, T>(r);
}
template <typename T> static __global__ void __launch_bounds__(1024) softmax_32768(xent_rows r)
{
    whole_row<1024, 32, T>(r);
}

/* Two blocks a multiprocessor are enough. Without this number ptxas aims at four on sm_80, with 32
 * registers a thread, and spills. With it the limit is 64 registers; the kernel needs 40 to 56. */
template <typename T> static __global__ void __launch_bounds__(512, 2) softmax_long(xent_rows r)
{
    enum { THREADS = 512 };
    const int64_t i = r.first + blockIdx.x, V = r.V;
    float *l = r.l + blockIdx.x * V;
    T *dl = static_cast<T *>(r.dl) + blockIdx.x * r.ld;
    const int y = r.target[i];
    const bool limits = r.softcap > 0.0f;
    for (int64_t v = threadIdx.x; v < r.n && (r.bias || limits); v += THREADS)
        l[v] = capped(r, l, v);
    __syncthreads();
    const float l_y = l[y];
    const rd_softmax_row of = rd_softmax_of_row<THREADS>(l, r.n, r.inv);
    const float top = of.top;
    int first = INT32_MAX;
    if (r.argmax) first = rd_block_least(of.own == top ? (int)of.own_best : INT32_MAX);
    float all = 0.0f;
    if (r.smooth) {
        for (int64_t v = threadIdx.x; v < r.n; v += THREADS) all += (l[v] - top) * r.inv;
        all = rd_block_sum(all);
    }
    if (threadIdx.x == 0) xent_row_finish(r, i, l_y, top, of.sum, all, first);
    if (!r.grad) return;
    const float g = r.seed * r.inv * weight_of(r, i),
                s = g / of.sum * (float)(1.0 + 2.0 * (double)r.z * log_sum_exp(r, top, of.sum));
#pragma unroll 4
    for (int64_t v = threadIdx.x; v < V; v += THREADS) {
        const float slope = limits && v < r.n ? cap_slope(r, l[v]) : 1.0f;
        rd_put(dl + v, slope * xent_dl(r, v < r.n ? expf((l[v] - top) * r.inv) : 0.0f, s, g, v, y));
    }
}

/* T: type of the gradients. */
template <typename T>
static rd_code softmax(rd_gpu *gpu, unsigned n, const xent_rows &rows, rd_status *st)
{
    const xent_rows r = rows;
    if (r.V <= 1024) return RD_LAUNCH(gpu, st, softmax_1024<T>, n, 128, 0, r);
    if (r.V <= 4096) return RD_LAUNCH(gpu, st, softmax_4096<T>, n, 256, 0, r);
    if (r.V <= 16384) return RD_LAUNCH(gpu, st, softmax_16384<T>, n, 512, 0, r);
    if (r.V <= 32768) return RD_LAUNCH(gpu, st, softmax_32768<T>, n, 1024, 0, r);
    return RD_LAUNCH(gpu, st, softmax_long<T>, n, 512, 0, r);
}

/* The results that the host wants, in one block of memory: the sums of loss and nll, then argmax
 * and nll by row. */
struct wanted {
    size_t argmax, nll; /* offsets in bytes */
    size_t bytes;       /* size of the block */
};

static wanted softmax_xent_wanted_of(const rd_xent *a, int64_t N)
{
    wanted w = {};
    w.argmax = 2 * sizeof(double);
    w.nll = w.argmax + (a->argmax ? (size_t)N * sizeof *a->argmax : 0);
    w.bytes = w.nll + (a->nll ? (size_t)N * sizeof *a->nll : 0);
    return w;
}

/* The operands of the products: rows of x, the kernel, and the gradients of a block's logits. */
typedef struct xent_operands {
    rd_gpu_operand x, W, dl;
} xent_operands;

/* Makes room for a 16-bit operand. */
static rd_code xent_narrow(rd_call *c, rd_element type, int64_t rows, int64_t cols,
                           rd_gpu_operand *o, rd_status *st)
{
    o->type = type;
    o->ld = rd_operand_ld(cols);
    return rd_arena_get(c->device_scratch, (size_t)(rows * o->ld) * rd_element_bytes(type), &o->at,
                        st);
}

/* Float32 operands stay where they are. The driver keeps a 16-bit copy of W, which products read if
 * its rows begin at 16 bytes; else W is rounded here, once for all products. */
static rd_code softmax_xent_operands(rd_call *c, rd_element type, int64_t block, xent_rows *r,
                                     xent_operands *o, rd_status *st)
{
    const rd_var *x = c->in[0], *W = c->in[1];
    rd_gpu *gpu = rd_gpu_of(c->be);
    o->x = rd_operand_at(x->v, RD_FLOAT32, 0, x->cols);
    o->W = rd_operand_at(W->v, RD_FLOAT32, 0, W->cols);
    o->dl = rd_operand_at(r->l, RD_FLOAT32, 0, r->V);
    if (type != RD_FLOAT32) {
        RD_TRY_OR_RETURN(xent_narrow(c, type, x->rows, x->cols, &o->x, st));
        RD_TRY_OR_RETURN(rd_operand_rows(gpu, x->rows, x->cols, x->v, NULL, 0, 1.0f, o->x, st));
    }
    if (type != RD_FLOAT32 && W->cols % 8 != 0) {
        RD_TRY_OR_RETURN(xent_narrow(c, type, W->rows, W->cols, &o->W, st));
        RD_TRY_OR_RETURN(rd_operand_rows(gpu, W->rows, W->cols, W->v, NULL, 0, 1.0f, o->W, st));
    }
    if (type != RD_FLOAT32 && c->keep)
        RD_TRY_OR_RETURN(xent_narrow(c, type, block, r->V, &o->dl, st));
    r->dl = o->dl.at;
    r->ld = o->dl.ld;
    return st->code;
}

extern "C" rd_code rd_cuda_softmax_xent_forward(rd_call *c, rd_status *st)
{
    const rd_xent *a = static_cast<const rd_xent *>(c->attr);
    const rd_var *x = c->in[0], *W = c->in[1], *b = c->in[2];
    rd_gpu *gpu = rd_gpu_of(c->be);
    const int64_t N = x->rows, X = x->cols, V = a->by_rows ? W->rows : W->cols;
    const rd_element type = rd_gpu_narrow(gpu);
    const int64_t most = rd_xent_block_rows(c->be, rd_xent_block_bytes(rd_gpu_about(gpu)->memory),
                                            V);
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
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(2 * N) * sizeof(double), &r.loss,
                                  st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, w.bytes, &out, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->target, (size_t)N * sizeof *a->target,
                                  &r.target, st));
    if (a->weight)
        RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, a->weight,
                                      (size_t)N * sizeof *a->weight, &r.weight, st));
    const rd_xent_shares share = rd_xent_shares_of(a, V);
    r.V = V;
    r.n = a->n_classes ? a->n_classes : V;
    r.bias = b ? b->v : NULL;
    r.weighted_nll = r.loss + N;
    r.right = share.right;
    r.each = share.each;
    r.smooth = share.each > 0.0;
    r.softcap = a->softcap;
    r.z = a->z_loss;
    r.argmax = a->argmax ? reinterpret_cast<int32_t *>(out + w.argmax) : NULL;
    r.nll = a->nll ? reinterpret_cast<float *>(out + w.nll) : NULL;
    r.inv = 1.0f / a->temperature;
    r.seed = c->seed;
    r.grad = c->keep;
    xent_operands o;
    RD_TRY_OR_RETURN(softmax_xent_operands(c, type, block, &r, &o, st));
    const rd_gpu_operand logits = rd_operand_at(r.l, RD_FLOAT32, 0, V);
    for (int64_t i = 0; i < N; i += block) {
        const int64_t n = N - i < block ? N - i : block;
        const rd_gpu_operand xi = rd_operand_at(o.x.at, o.x.type, i * o.x.ld, o.x.ld);
        r.first = i;
        RD_TRY_OR_RETURN(rd_gpu_product(gpu, false, a->by_rows, n, V, X, xi, o.W, 0.0f, logits,
                                        st));
        RD_BY_ELEMENT(o.dl.type, softmax<T>(gpu, (unsigned)n, r, st));
        if (!c->keep) continue;
        RD_TRY_OR_RETURN(rd_gpu_product(gpu, false, !a->by_rows, n, X, V, o.dl, o.W, 0.0f,
                                        rd_operand_at(s->dx, RD_FLOAT32, i * X, X), st));
        if (W->g)
            RD_TRY_OR_RETURN(rd_gpu_product(gpu, true, false, W->rows, W->cols, n,
                                            a->by_rows ? o.dl : xi, a->by_rows ? xi : o.dl, 1.0f,
                                            rd_operand_at(W->g, RD_FLOAT32, 0, W->cols), st));
        if (b && b->g)
            RD_TRY_OR_RETURN(rd_operand_add_columns(gpu, c->device_scratch, n, V, o.dl, b->g, st));
    }
    double *sum = reinterpret_cast<double *>(out);
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rd_loss_sum, 2, RD_LOSS_THREADS, 0, N, r.loss, sum,
                               c->out[0]->v));
    if (!a->loss_sum && !a->nll_sum && !a->argmax && !a->nll) return RD_OK;
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, w.bytes, &got, st));
    RD_TRY_OR_RETURN(rd_gpu_download(gpu, got, out, w.bytes, st));
    if (a->loss_sum) memcpy(a->loss_sum, got, sizeof *a->loss_sum);
    if (a->nll_sum) memcpy(a->nll_sum, got + sizeof *a->nll_sum, sizeof *a->nll_sum);
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
