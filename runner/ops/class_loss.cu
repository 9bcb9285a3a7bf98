/* class_loss.cu -- class_loss on a GPU: the formulas of class_loss.c, one block of threads per
 * sample. */
#include "rd/image.h"
#include "shared/loss_sum.h"
#include "../engine/gpu/rows_grid.h"
#include <string.h>

struct saved {
    float *p;             /* [n, V] softmax */
    const int32_t *label; /* [n] in device memory */
};

struct class_rows {
    int64_t n, V;
    const float *l;
    const int32_t *label;
    float smoothing;
    float *p;
    double *loss, *nll;
    int32_t *argmax, *rank; /* NULL: not wanted */
    float *probability;     /* NULL: not wanted */
};

static __global__ void class_rows_kernel(class_rows r)
{
    const int64_t V = r.V;
    const int threads = blockDim.x, t = threadIdx.x;
    for (int64_t i = blockIdx.x; i < r.n; i += gridDim.x) {
        const float *l = r.l + i * V;
        float *p = r.p + i * V;
        const int32_t y = r.label[i];
        const float ly = l[y];
        float top = -INFINITY;
        for (int64_t v = t; v < V; v += threads) top = fmaxf(top, l[v]);
        top = rd_block_max(top);
        double total = 0.0, sum = 0.0;
        int best = INT32_MAX, above = 0;
        for (int64_t v = t; v < V; v += threads) {
            const float x = l[v];
            p[v] = expf(x - top);
            sum += (double)p[v];
            total += (double)(x - top);
            if (x == top && v < best) best = (int)v;
            if (v != y) above += v < y ? x >= ly : x > ly;
        }
        sum = rd_block_sum(sum);
        total = rd_block_sum(total);
        const float inv = (float)(1.0 / sum);
        if (t == 0) {
            const double lse = log(sum), smooth = (double)r.smoothing;
            r.nll[i] = lse - (double)(ly - top);
            r.loss[i] = lse - (1.0 - smooth) * (double)(ly - top) - smooth * total / (double)V;
        }
        if (r.rank) {
            above = rd_block_sum(above);
            if (t == 0) r.rank[i] = ly == ly ? above : (int32_t)(V - 1);
        }
        if (r.argmax || r.probability) {
            best = rd_block_least(best);
            if (best >= V) best = (int)(V - 1); /* top is not a number */
            if (t == 0 && r.argmax) r.argmax[i] = best;
            if (t == best % threads && r.probability) r.probability[i] = p[best] * inv;
        }
        for (int64_t v = t; v < V; v += threads) p[v] *= inv;
    }
}

struct class_back {
    int64_t n, V;
    const float *p;
    const int32_t *label;
    const float *g; /* gradient of the loss */
    float smoothing;
    float *dl;
    bool add;
};

static __global__ void class_back_kernel(class_back b)
{
    const float g = *b.g, even = b.smoothing / (float)b.V;
    for (RD_EACH_ROW(i, b.n)) {
        const int32_t y = b.label[i];
        for (RD_EACH_COLUMN(v, b.V)) {
            const int64_t at = i * b.V + v;
            const float d = v == y ? g * (b.p[at] - even - (1.0f - b.smoothing))
                                   : g * (b.p[at] - even);
            b.dl[at] = b.add ? b.dl[at] + d : d;
        }
    }
}

/* The results that the host wants, in one block of memory: both sums, then an array [n] for each
 * wanted result. */
struct wanted {
    size_t argmax, rank, probability; /* offsets in bytes */
    size_t bytes;                     /* size of the block */
};

static wanted class_loss_wanted_of(const rd_class_loss *a, int64_t n)
{
    wanted w = {};
    w.argmax = 2 * sizeof(double);
    w.rank = w.argmax + (a->argmax ? (size_t)n * sizeof *a->argmax : 0);
    w.probability = w.rank + (a->rank ? (size_t)n * sizeof *a->rank : 0);
    w.bytes = w.probability + (a->probability ? (size_t)n * sizeof *a->probability : 0);
    return w;
}

extern "C" rd_code rd_cuda_class_loss_forward(rd_call *c, rd_status *st)
{
    const rd_class_loss *a = static_cast<const rd_class_loss *>(c->attr);
    rd_gpu *gpu = rd_gpu_of(c->be);
    const int64_t n = c->in[0]->rows, V = c->in[0]->cols;
    const wanted w = class_loss_wanted_of(a, n);
    saved *s;
    class_rows r = {};
    unsigned char *out, *got;
    RD_TRY_OR_RETURN(rd_arena_zero(c->kept, sizeof *s, &s, st));
    c->saved = s;
    RD_TRY_OR_RETURN(rd_arena_get(c->device_kept, (size_t)(n * V) * sizeof(float), &s->p, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_kept, a->label, (size_t)n * sizeof *a->label,
                                  &s->label, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(2 * n) * sizeof(double), &r.loss,
                                  st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, w.bytes, &out, st));
    r.n = n;
    r.V = V;
    r.l = c->in[0]->v;
    r.label = s->label;
    r.smoothing = a->smoothing;
    r.p = s->p;
    r.nll = r.loss + n;
    r.argmax = a->argmax ? reinterpret_cast<int32_t *>(out + w.argmax) : NULL;
    r.rank = a->rank ? reinterpret_cast<int32_t *>(out + w.rank) : NULL;
    r.probability = a->probability ? reinterpret_cast<float *>(out + w.probability) : NULL;
    const int threads = V < RD_BLOCK ? (int)(V + 31) / 32 * 32 : (int)RD_BLOCK;
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, class_rows_kernel, rd_grid(n, 1), threads, 0, r));
    double *sum = reinterpret_cast<double *>(out);
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, rd_loss_sum, 2, RD_LOSS_THREADS, 0, n, r.loss, sum,
                               c->out[0]->v));
    if (!a->loss_sum && !a->nll_sum && w.bytes == w.argmax) return RD_OK;
    RD_TRY_OR_RETURN(rd_arena_get(c->scratch, w.bytes, &got, st));
    RD_TRY_OR_RETURN(rd_gpu_download(gpu, got, out, w.bytes, st));
    if (a->loss_sum) memcpy(a->loss_sum, got, sizeof *a->loss_sum);
    if (a->nll_sum) memcpy(a->nll_sum, got + sizeof(double), sizeof *a->nll_sum);
    if (a->argmax) memcpy(a->argmax, got + w.argmax, (size_t)n * sizeof *a->argmax);
    if (a->rank) memcpy(a->rank, got + w.rank, (size_t)n * sizeof *a->rank);
    if (a->probability)
        memcpy(a->probability, got + w.probability, (size_t)n * sizeof *a->probability);
    return RD_OK;
}

extern "C" rd_code rd_cuda_class_loss_backward(rd_call *c, rd_status *st)
{
    const rd_class_loss *a = static_cast<const rd_class_loss *>(c->attr);
    const saved *s = static_cast<const saved *>(c->saved);
    class_back b = {};
    RD_TRY_OR_RETURN(rd_call_grad(c, 0, &b.dl, &b.add, st));
    if (!b.dl) return RD_OK;
    b.n = c->in[0]->rows;
    b.V = c->in[0]->cols;
    b.p = s->p;
    b.label = s->label;
    b.g = c->out[0]->g;
    b.smoothing = a->smoothing;
    return RD_LAUNCH(rd_gpu_of(c->be), st, class_back_kernel, rd_rows_grid(b.n, b.V),
                     rd_rows_block(b.V), 0, b);
}
