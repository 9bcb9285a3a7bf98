/* softmax_xent.c -- projection, softmax and cross-entropy in one op, in blocks of rows:
 *   l = (x W + b) / tau,   loss = sum_i w_i (right nll_i + each sum_v -log p_iv)
 *   p_i = softmax(l_i),  nll_i = -log p_iy
 *   dl_iv = w_i (p_iv - each - [v = y_i] right) / tau
 *   dx = dl W^T,  dW += x^T dl,  db += column sums of dl
 * right and each depend on the smoothing; right is 1 and each is 0 without it. W^T is stored if
 * by_rows. Sums and dl skip the columns behind the classes. With softcap c, l is c tanh(l' / c),
 * and dl' = dl (1 - (l / c)^2). With z_loss z, a row has z lse^2 more, and p_iv the factor
 * 1 + 2 z lse, where lse = log sum_v exp l_iv.
 *
 * The logits of a block take at most BLOCK_BYTES. They become dl in place while they are in memory.
 * Therefore the forward pass computes the gradients, times the seed that the loss will get
 * (rd_tape_set_seed).
 *
 * Operations: 2 N X V forward, 4 N X V for gradients. Each block reads and writes dW (X V floats)
 * once. A block must have enough rows to make this cost negligible: at 512 rows it is 1/128 float
 * per operation. */
#include "softmax_xent.h"
#include "../engine/spare.h"
#include "rd/cell.h"
#include "shared/xent_block.h"
#include "rd/vec.h"
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
    const rd_var *W = c->in[1], *b = c->in[2];
    const int64_t V = a->by_rows ? W->rows : W->cols, X = a->by_rows ? W->cols : W->rows,
                  n = a->n_classes ? a->n_classes : V;
    if (!W->param) return rd_fail(st, RD_EBUG, "softmax_xent: W is not a parameter");
    RD_TRY(rd_rows_check("softmax_xent", c->in[0], X, st));
    if (b && b->rows * b->cols != V)
        return rd_fail(st, RD_EBUG,
                       "softmax_xent: the bias has %" PRId64 " numbers for %" PRId64 " classes",
                       b->rows * b->cols, V);
    if (!(a->softcap >= 0.0f && a->z_loss >= 0.0f))
        return rd_fail(st, RD_EBUG, "softmax_xent: softcap %g, z_loss %g", (double)a->softcap,
                       (double)a->z_loss);
    if (n < 1 || n > V)
        return rd_fail(st, RD_EBUG,
                       "softmax_xent: targets of %" PRId64 " classes do not fit %" PRId64, n, V);
    if (!(a->smoothing >= 0.0f && a->smoothing < 1.0f) ||
        (a->smooth_others && a->smoothing > 0.0f && n < 2))
        return rd_fail(st, RD_EBUG,
                       "softmax_xent: the smoothing %g does not fit %" PRId64 " classes",
                       (double)a->smoothing, n);
    for (int64_t i = 0; i < c->in[0]->rows; i++)
        if (a->target[i] < 0 || a->target[i] >= n)
            return rd_fail(st, RD_EBUG, "softmax_xent: target id %d is outside %" PRId64 " classes",
                           a->target[i], n);
    c->out[0]->rows = c->out[0]->cols = 1;
done:
    return st->code;
}

typedef struct softmax_xent_job {
    const rd_xent *a;
    rd_xent_shares share;
    int64_t first, V, n; /* n: classes; the other columns fill a block */
    float *l, *cap;      /* cap: [rows, V] 1 - (l / softcap)^2; NULL: not wanted */
    const float *bias;   /* NULL: none */
    double *loss, *nll;  /* [rows] */
    bool grad;
    float seed;
} softmax_xent_job;

/* Limits the logits of a row. slope: [n] that of the limit; NULL: not wanted. */
static void softmax_xent_cap(float softcap, int64_t n, float *restrict l, float *restrict slope)
{
    const float inv = 1.0f / softcap;
#pragma omp simd
    for (int64_t v = 0; v < n; v++) l[v] = rd_tanhf(l[v] * inv);
    for (int64_t v = 0; v < n && slope; v++) slope[v] = 1.0f - l[v] * l[v];
    for (int64_t v = 0; v < n; v++) l[v] *= softcap;
}

static void softmax_xent_rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const softmax_xent_job *j = ctx;
    const int64_t V = j->V, n = j->n;
    const float inv = 1.0f / j->a->temperature;
    const bool smooth = j->share.each > 0.0;
    for (int64_t i = lo; i < hi; i++) {
        float *restrict l = j->l + i * V;
        const float *restrict bias = j->bias;
        const int32_t y = j->a->target[j->first + i];
        for (int64_t v = 0; v < n && bias; v++) l[v] += bias[v];
        float *restrict slope = j->cap ? j->cap + i * V : NULL;
        if (j->a->softcap > 0.0f) softmax_xent_cap(j->a->softcap, n, l, slope);
        const float top = rd_maxf(l, n);
        if (j->a->argmax) {
            int64_t best = 0;
            while (best < n - 1 && l[best] != top) best++;
            j->a->argmax[j->first + i] = (int32_t)best;
        }
        const float ly = (l[y] - top) * inv;
        float all = 0.0f, sum = 0.0f;
#pragma omp simd reduction(+ : all, sum)
        for (int64_t v = 0; v < n; v++) {
            const float x = (l[v] - top) * inv;
            all += x;
            l[v] = rd_expf(x);
            sum += l[v];
        }
        const double log_sum = log((double)sum), nll = log_sum - (double)ly;
        const float weight = j->a->weight ? j->a->weight[j->first + i] : 1.0f;
        const double loss = smooth ? j->share.right * nll +
                                         j->share.each * ((double)n * log_sum - (double)all)
                                   : nll;
        const double lse = log_sum + (double)top * (double)inv, z = (double)j->a->z_loss;
        j->loss[i] = (loss + z * lse * lse) * (double)weight;
        j->nll[i] = nll * (double)weight;
        if (j->a->nll) j->a->nll[j->first + i] = (float)nll;
        if (!j->grad) continue;
        const float g = j->seed * inv * weight, s = g / sum * (float)(1.0 + 2.0 * z * lse),
                    each = g * (float)j->share.each;
        if (smooth)
            for (int64_t v = 0; v < n; v++) l[v] = l[v] * s - each;
        else
            for (int64_t v = 0; v < n; v++) l[v] *= s;
        l[y] -= g * (float)j->share.right;
        for (int64_t v = 0; v < n && slope; v++) l[v] *= slope[v];
        for (int64_t v = n; v < V; v++) l[v] = 0.0f;
    }
}

/* The products with W or, if by_rows, with its transpose. */
static rd_code softmax_xent_logits(rd_call *c, int64_t n, const float *x, float *l, rd_status *st)
{
    const rd_var *W = c->in[1];
    if (((const rd_xent *)c->attr)->by_rows)
        return rd_param_mul_t(c->be, c->params, W, 0, W->rows, n, x, l, false, st);
    return rd_param_mul(c->be, c->params, W, 0, W->rows, n, x, l, false, st);
}

static rd_code softmax_xent_gradients(rd_call *c, int64_t n, const float *x, float *dl, float *dx,
                                      rd_status *st)
{
    const rd_var *W = c->in[1], *b = c->in[2];
    if (((const rd_xent *)c->attr)->by_rows) {
        RD_TRY(rd_param_mul(c->be, c->params, W, 0, W->rows, n, dl, dx, false, st));
        if (W->g)
            RD_TRY(rd_gemm(c->be, true, false, W->rows, W->cols, n, 1.0f, dl, W->rows, x, W->cols,
                           1.0f, W->g, W->cols, st));
    } else {
        RD_TRY(rd_param_mul_t(c->be, c->params, W, 0, W->rows, n, dl, dx, false, st));
        if (W->g)
            RD_TRY(rd_gemm(c->be, true, false, W->rows, W->cols, n, 1.0f, x, W->rows, dl, W->cols,
                           1.0f, W->g, W->cols, st));
    }
    if (b) {
        const int64_t V = b->rows * b->cols;
        RD_TRY(rd_add_columns(c->be, c->scratch, n, V, dl, V, b->g, st));
    }
done:
    return st->code;
}

/* Returns the number of rows of a block. In training, blocks of large vocabularies have the rows
 * from which on products need no packed copy of W: two copies of W take more memory than these
 * logits. */
static int64_t softmax_xent_block(const rd_call *c, int64_t N, int64_t V)
{
    const int64_t most = rd_xent_block_rows(c->be, BLOCK_BYTES, V),
                  plain = rd_backend_plain_rows(c->be);
    if (c->keep && most < plain && N >= plain && rd_backend_block_bytes(c->be, 0) == 0) {
        const int64_t n_blocks = N / plain;
        return (N + n_blocks - 1) / n_blocks;
    }
    return most < N ? most : N;
}

static rd_code softmax_xent_forward(rd_call *c, rd_status *st)
{
    const rd_xent *a = c->attr;
    const rd_var *x = c->in[0], *W = c->in[1];
    const int64_t N = x->rows, X = x->cols, V = a->by_rows ? W->rows : W->cols;
    const int64_t block = softmax_xent_block(c, N, V);
    softmax_xent_saved *s;
    float *l, *cap = NULL;
    double *loss, sum = 0.0, nll_sum = 0.0;
    RD_TRY(rd_arena_zero(c->kept, sizeof *s, &s, st));
    c->saved = s;
    if (c->keep) RD_TRY(rd_rows_get(c->kept, N, X, &s->dx, st));
    RD_TRY(spare_room(c, (size_t)((block + RD_SLACK_ROWS) * V) * sizeof *l, &l, st));
    if (c->keep && a->softcap > 0.0f) RD_TRY(rd_rows_get(c->scratch, block, V, &cap, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(2 * block + 1) * sizeof *loss, &loss, st));
    for (int64_t i = 0; i < N; i += block) {
        const int64_t n = N - i < block ? N - i : block;
        RD_TRY(softmax_xent_logits(c, n, x->v + i * X, l, st));
        softmax_xent_job j = {.a = a,
                              .share = rd_xent_shares_of(a, V),
                              .first = i,
                              .V = V,
                              .n = a->n_classes ? a->n_classes : V,
                              .l = l,
                              .cap = cap,
                              .bias = c->in[2] ? c->in[2]->v : NULL,
                              .loss = loss,
                              .nll = loss + block,
                              .grad = c->keep,
                              .seed = c->seed};
        rd_parallel(c->be, n, 8, softmax_xent_rows_part, &j);
        for (int64_t r = 0; r < n; r++) sum += loss[r];
        for (int64_t r = 0; r < n; r++) nll_sum += loss[block + r];
        if (c->keep) RD_TRY(softmax_xent_gradients(c, n, x->v + i * X, l, s->dx + i * X, st));
    }
    c->out[0]->v[0] = (float)sum;
    if (a->loss_sum) *a->loss_sum = sum;
    if (a->nll_sum) *a->nll_sum = nll_sum;
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
                       .early_grads = true,
                       .kernel = {[RD_CPU] = {softmax_xent_forward, softmax_xent_backward},
                                  [RD_GPU] = RD_GPU_KERNEL(softmax_xent)}};

rd_var *rd_op_softmax_xent_bias(rd_tape *t, const rd_xent *a, rd_var *x, rd_var *W, rd_var *b)
{
    rd_var *in[] = {x, W, b};
    return x && W ? rd_tape_apply(t, &rd_op_def_softmax_xent, a, sizeof *a, in, 3, NULL, 1) : NULL;
}

rd_var *rd_op_softmax_xent(rd_tape *t, const rd_xent *a, rd_var *x, rd_var *W)
{
    return rd_op_softmax_xent_bias(t, a, x, W, NULL);
}
