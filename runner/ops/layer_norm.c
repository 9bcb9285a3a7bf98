/* layer_norm.c -- layer normalisation (Ba et al. 2016) of rows of d numbers, or by the root mean
 * square alone:
 *   c = x - mean(x) (rms: x),  r = 1 / sqrt(mean(c^2) + eps),  h = c r,  y = h gain + bias
 * Backward, with g = dy gain:
 *   dx += r (g - mean(g) - h mean(g h))   (rms: without mean(g)),  dgain += dy h,  dbias += dy
 *
 * The variance comes from centred numbers in a second pass over the row. The mean is a double: a
 * row of numbers that are nearly equal keeps all digits of its differences. Backward computes h
 * again. One thread owns a row, and each chunk of rows has its own sums of dgain and dbias: no
 * result depends on the number of threads. */
#include "layer_norm.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static rd_code layer_norm_infer(rd_call *c, rd_status *st)
{
    const rd_layer_norm *a = c->attr;
    const int64_t d = c->in[0]->cols;
    if (!(a->eps > 0.0f))
        return rd_fail(st, RD_EBUG, "layer_norm: eps is %g; it must be above 0", (double)a->eps);
    for (int i = 1; i < 3; i++)
        if (c->in[i] && c->in[i]->rows * c->in[i]->cols != d)
            return rd_fail(st, RD_EBUG,
                           "layer_norm: the rows have %" PRId64
                           " columns, and the gain or bias has %" PRId64 " numbers",
                           d, c->in[i]->rows * c->in[i]->cols);
    c->out[0]->rows = c->in[0]->rows;
    c->out[0]->cols = d;
    c->out[0]->type = a->type;
    return RD_OK;
}

typedef struct layer_norm_job {
    const rd_layer_norm *a;
    int64_t N, d, chunk;
    const float *x, *gain, *bias;
    float *y;
    double *mean; /* NULL: not kept */
    float *r;
    const float *dy;
    float *dx;   /* NULL: not wanted */
    bool add;    /* dx holds contributions already */
    float *part; /* [chunks][2][d] sums of dgain and dbias; NULL: not wanted */
    float *dgain, *dbias;
} layer_norm_job;

static void layer_norm_rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const layer_norm_job *j = ctx;
    const int64_t d = j->d;
    const float *restrict gain = j->gain, *restrict bias = j->bias;
    for (int64_t i = lo; i < hi; i++) {
        const float *restrict x = j->x + i * d;
        float *restrict y = j->y + i * d;
        double mean = 0.0;
        if (!j->a->rms) {
#pragma omp simd reduction(+ : mean)
            for (int64_t k = 0; k < d; k++) mean += (double)x[k];
            mean /= (double)d;
        }
        /* The mean in two floats. */
        const float m = (float)mean, m_rest = (float)(mean - (double)m);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < d; k++) {
            const float c = (x[k] - m) - m_rest;
            sum += c * c;
        }
        const float r = 1.0f / sqrtf(sum / (float)d + j->a->eps);
        if (bias)
            for (int64_t k = 0; k < d; k++) y[k] = ((x[k] - m) - m_rest) * r * gain[k] + bias[k];
        else
            for (int64_t k = 0; k < d; k++) y[k] = ((x[k] - m) - m_rest) * r * gain[k];
        if (!j->mean) continue;
        j->mean[i] = mean;
        j->r[i] = r;
    }
}

static void layer_norm_back_row(const layer_norm_job *j, int64_t i, float *restrict dgain,
                                float *restrict dbias)
{
    const int64_t d = j->d;
    const float *restrict x = j->x + i * d, *restrict dy = j->dy + i * d, *restrict gain = j->gain;
    const float m = (float)j->mean[i], m_rest = (float)(j->mean[i] - (double)m), r = j->r[i];
    if (dgain)
        for (int64_t k = 0; k < d; k++) {
            dgain[k] += dy[k] * (((x[k] - m) - m_rest) * r);
            dbias[k] += dy[k];
        }
    if (!j->dx) return;
    float *restrict dx = j->dx + i * d;
    float g_sum = 0.0f, gh_sum = 0.0f;
#pragma omp simd reduction(+ : g_sum, gh_sum)
    for (int64_t k = 0; k < d; k++) {
        const float g = dy[k] * gain[k];
        g_sum += g;
        gh_sum += g * (((x[k] - m) - m_rest) * r);
    }
    const float g_mean = j->a->rms ? 0.0f : g_sum / (float)d, gh_mean = gh_sum / (float)d;
    for (int64_t k = 0; k < d; k++) {
        const float h = ((x[k] - m) - m_rest) * r;
        const float dxk = r * (dy[k] * gain[k] - g_mean - h * gh_mean);
        dx[k] = j->add ? dx[k] + dxk : dxk;
    }
}

static void layer_norm_back_part(void *ctx, int64_t lo, int64_t hi)
{
    const layer_norm_job *j = ctx;
    for (int64_t c = lo; c < hi; c++) {
        const int64_t end = (c + 1) * j->chunk < j->N ? (c + 1) * j->chunk : j->N;
        float *part = j->part ? j->part + c * 2 * j->d : NULL;
        if (part) memset(part, 0, (size_t)(2 * j->d) * sizeof *part);
        for (int64_t i = c * j->chunk; i < end; i++)
            layer_norm_back_row(j, i, part, part ? part + j->d : NULL);
    }
}

static void layer_norm_sums_part(void *ctx, int64_t lo, int64_t hi)
{
    const layer_norm_job *j = ctx;
    for (int64_t c = 0; c * j->chunk < j->N; c++) {
        const float *restrict part = j->part + c * 2 * j->d;
        for (int64_t k = lo; k < hi && j->dgain; k++) j->dgain[k] += part[k];
        for (int64_t k = lo; k < hi && j->dbias; k++) j->dbias[k] += part[j->d + k];
    }
}

static layer_norm_job layer_norm_job_of(const rd_call *c)
{
    const rd_var *x = c->in[0];
    return (layer_norm_job){.a = c->attr,
                            .N = x->rows,
                            .d = x->cols,
                            .chunk = rd_layer_norm_chunk(x->rows),
                            .x = x->v,
                            .gain = c->in[1]->v,
                            .bias = c->in[2] ? c->in[2]->v : NULL,
                            .y = c->out[0]->v};
}

static rd_code layer_norm_forward(rd_call *c, rd_status *st)
{
    layer_norm_job j = layer_norm_job_of(c);
    if (c->keep && !c->saved) {
        rd_layer_norm_saved *s;
        RD_TRY(rd_arena_zero(c->kept, sizeof *s, &s, st));
        RD_TRY(rd_arena_get(c->kept, (size_t)(j.N + 1) * sizeof *s->mean, &s->mean, st));
        RD_TRY(rd_arena_get(c->kept, (size_t)(j.N + 1) * sizeof *s->r, &s->r, st));
        c->saved = s;
        j.mean = s->mean;
        j.r = s->r;
    }
    rd_parallel(c->be, j.N, 4096 / (j.d + 1) + 1, layer_norm_rows_part, &j);
done:
    return st->code;
}

static rd_code layer_norm_backward(rd_call *c, rd_status *st)
{
    const rd_layer_norm_saved *s = c->saved;
    layer_norm_job j = layer_norm_job_of(c);
    const int64_t chunks = (j.N + j.chunk - 1) / j.chunk;
    j.mean = s->mean;
    j.r = s->r;
    j.dy = c->out[0]->g;
    RD_TRY(rd_call_grad(c, 0, &j.dx, &j.add, st));
    for (int i = 1; i < c->n_in; i++) RD_TRY(rd_call_zero_grad(c, i, st));
    j.dgain = c->in[1]->g;
    j.dbias = c->in[2] ? c->in[2]->g : NULL;
    if (j.dgain || j.dbias)
        RD_TRY(rd_arena_get(c->scratch, (size_t)(chunks * 2 * j.d + 1) * sizeof *j.part, &j.part,
                            st));
    rd_parallel(c->be, chunks, 1, layer_norm_back_part, &j);
    if (j.part) rd_parallel(c->be, j.d, 512, layer_norm_sums_part, &j);
done:
    return st->code;
}

static bool layer_norm_again(const rd_call *c)
{
    (void)c;
    return true;
}

RD_OP(layer_norm) = {.name = "layer_norm",
                     .about = "normalised rows",
                     .infer = layer_norm_infer,
                     .kernel = {[RD_CPU] = {layer_norm_forward, layer_norm_backward},
                                [RD_GPU] = RD_GPU_KERNEL(layer_norm)},
                     .own_grads = true,
                     .reads_out = RD_READS_NOTHING,
                     .again = layer_norm_again};

rd_var *rd_op_layer_norm(rd_tape *t, const rd_layer_norm *a, rd_var *x, rd_var *gain, rd_var *bias)
{
    rd_var *in[] = {x, gain, bias};
    return x && gain ? rd_tape_apply(t, &rd_op_def_layer_norm, a, sizeof *a, in, 3, NULL, 1) : NULL;
}
