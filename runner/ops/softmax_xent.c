/* softmax_xent.c -- projection, softmax and cross-entropy in one op, in blocks of rows:
 *   l = x W / tau,   loss = sum_i (log sum_v exp l_iv - l_iy)
 *   dl_iv = (softmax(l_i)_v - [v = y_i]) / tau
 *   dx = dl W^T,  dW += x^T dl
 *
 * The logits of a block take at most BLOCK_BYTES. They become dl in place while they are in memory.
 * Therefore the forward pass computes the gradients, times the seed that the loss will get
 * (rd_tape_set_seed).
 *
 * Operations: 2 N X V forward, 4 N X V for gradients. Each block reads and writes dW (X V floats)
 * once. A block must have enough rows to make this cost negligible: at 512 rows it is 1/128 float
 * per operation. */
#include "rd/cell.h"
#include "shared/xent_block.h"
#include "rd/vecmath.h"
#include <inttypes.h>
#include <math.h>

static const size_t BLOCK_BYTES = (size_t)32 << 20;

typedef struct softmax_xent_saved {
    float *dx; /* [N, X] and slack */
} softmax_xent_saved;

static rd_code softmax_xent_infer(rd_call *c, rd_status *st)
{
    const rd_xent *a = c->attr;
    if (!c->in[1]->param) return rd_fail(st, RD_EBUG, "softmax_xent: W is not a parameter");
    RD_TRY(rd_rows_check("softmax_xent", c->in[0], c->in[1]->rows, st));
    for (int64_t i = 0; i < c->in[0]->rows; i++)
        if (a->target[i] < 0 || a->target[i] >= c->in[1]->cols)
            return rd_fail(st, RD_EBUG, "softmax_xent: target id %d is outside %" PRId64 " classes",
                           a->target[i], c->in[1]->cols);
    c->out[0]->rows = c->out[0]->cols = 1;
done:
    return st->code;
}

typedef struct softmax_xent_job {
    const rd_xent *a;
    int64_t first, V;
    float *l;
    double *loss; /* [rows] */
    bool grad;
    float seed;
} softmax_xent_job;

static void softmax_xent_rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const softmax_xent_job *j = ctx;
    const int64_t V = j->V;
    const float inv = 1.0f / j->a->temperature;
    for (int64_t i = lo; i < hi; i++) {
        float *restrict l = j->l + i * V;
        const int32_t y = j->a->target[j->first + i];
        const float top = rd_maxf(l, V);
        if (j->a->argmax) {
            int64_t best = 0;
            while (best < V - 1 && l[best] != top) best++;
            j->a->argmax[j->first + i] = (int32_t)best;
        }
        const float ly = (l[y] - top) * inv;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < V; v++) {
            l[v] = rd_expf((l[v] - top) * inv);
            sum += l[v];
        }
        const double nll = log((double)sum) - (double)ly;
        j->loss[i] = nll;
        if (j->a->nll) j->a->nll[j->first + i] = (float)nll;
        if (!j->grad) continue;
        const float s = j->seed * inv / sum;
        for (int64_t v = 0; v < V; v++) l[v] *= s;
        l[y] -= j->seed * inv;
    }
}

static rd_code softmax_xent_forward(rd_call *c, rd_status *st)
{
    const rd_xent *a = c->attr;
    const rd_var *x = c->in[0], *W = c->in[1];
    const int64_t N = x->rows, X = W->rows, V = W->cols;
    int64_t block = rd_xent_block_rows(c->be, BLOCK_BYTES, V);
    if (block > N) block = N;
    softmax_xent_saved *s;
    float *l;
    double *loss, sum = 0.0;
    RD_TRY(rd_arena_zero(c->kept, sizeof *s, &s, st));
    c->saved = s;
    if (c->keep) RD_TRY(rd_rows_get(c->kept, N, X, &s->dx, st));
    RD_TRY(rd_rows_get(c->scratch, block, V, &l, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(block + 1) * sizeof *loss, &loss, st));
    for (int64_t i = 0; i < N; i += block) {
        const int64_t n = N - i < block ? N - i : block;
        RD_TRY(rd_param_mul(c->be, c->params, W, 0, X, n, x->v + i * X, l, false, st));
        softmax_xent_job j = {a, i, V, l, loss, c->keep, c->seed};
        rd_parallel(c->be, n, 8, softmax_xent_rows_part, &j);
        for (int64_t r = 0; r < n; r++) sum += loss[r];
        if (!c->keep) continue;
        RD_TRY(rd_param_mul_t(c->be, c->params, W, 0, X, n, l, s->dx + i * X, false, st));
        if (W->g)
            RD_TRY(rd_gemm(c->be, true, false, X, V, n, 1.0f, x->v + i * X, X, l, V, 1.0f, W->g, V,
                           st));
    }
    c->out[0]->v[0] = (float)sum;
    if (a->loss_sum) *a->loss_sum = sum;
done:
    return st->code;
}

static rd_code softmax_xent_backward(rd_call *c, rd_status *st)
{
    const softmax_xent_saved *s = c->saved;
    const int64_t n = c->in[0]->rows * c->in[0]->cols;
    if (c->out[0]->g[0] != c->seed)
        return rd_fail(st, RD_EBUG,
                       "softmax_xent: backward must start at this loss (gradient %g, seed %g)",
                       (double)c->out[0]->g[0], (double)c->seed);
    float *restrict g = c->in[0]->g;
    const float *restrict dx = s->dx;
    for (int64_t i = 0; g && i < n; i++) g[i] += dx[i];
    return RD_OK;
}

RD_OP(softmax_xent) = {.name = "softmax_xent",
                       .about = "projection, softmax, cross-entropy",
                       .infer = softmax_xent_infer,
                       .kernel = {[RD_CPU] = {softmax_xent_forward, softmax_xent_backward},
                                  [RD_GPU] = RD_GPU_KERNEL(softmax_xent)}};

rd_var *rd_op_softmax_xent(rd_tape *t, const rd_xent *a, rd_var *x, rd_var *W)
{
    rd_var *in[] = {x, W};
    return x && W ? rd_tape_apply(t, &rd_op_def_softmax_xent, a, sizeof *a, in, 2, NULL, 1) : NULL;
}
