/* attention.c -- see attention.h. tanh is computed again in backward: to keep it would take S A floats per target
 * token. */
#include "attention.h"
#include "rd/vecmath.h"
#include <math.h>

static bool additive(const rd_attention *at)
{
    return at->kind == RD_ATT_BAHDANAU || at->kind == RD_ATT_BAHDANAU_NORM;
}

static double norm_of(const float *x, int64_t n)
{
    double s = 0.0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return sqrt(s);
}

rd_code rd_attention_begin(rd_attention *at, rd_arena *a, rd_status *st)
{
    at->gain = at->kind == RD_ATT_LUONG_SCALED ? at->g->v[0] : 1.0f;
    at->ve = NULL;
    if (!additive(at)) return RD_OK;
    if (rd_arena_get(a, (size_t)at->A * sizeof(float), &at->ve, st) != RD_OK) return st->code;
    float scale = 1.0f;
    if (at->kind == RD_ATT_BAHDANAU_NORM) scale = (float)((double)at->g->v[0] / norm_of(at->v->v, at->A));
    for (int64_t i = 0; i < at->A; i++) at->ve[i] = at->v->v[i] * scale;
    return RD_OK;
}

typedef struct job {
    const rd_attention *at;
    const int64_t *where;
    const float *q, *qp, *cal, *dctx;
    float *al, *ctx, *dq;
    const rd_attention_grads *d;
} job;

static inline float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static inline float tanh_dot(const float *restrict k, const float *restrict q, const float *restrict v, int64_t n)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += v[i] * rd_tanhf(k[i] + q[i]);
    return s;
}

static void step_rows(void *ctx, int64_t lo, int64_t hi)
{
    const job *j = ctx;
    const rd_attention *at = j->at;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t S = at->len[i], s0 = at->first[i];
        float *restrict a = j->al + (j->where ? j->where[i] : i * at->max_len), *restrict out = j->ctx + i * at->M;
        float top = -INFINITY, sum = 0.0f;
        for (int64_t s = 0; s < S; s++) {
            const float *k = at->keys + (s0 + s) * at->A;
            a[s] = at->ve ? tanh_dot(k, j->qp + i * at->A, at->ve, at->A) : at->gain * dot(j->q + i * at->R, k, at->A);
            top = a[s] > top ? a[s] : top;
        }
        for (int64_t s = 0; s < S; s++) sum += a[s] = rd_expf(a[s] - top);
        for (int64_t s = 0; s < S; s++) a[s] /= sum;
        for (int64_t c = 0; c < at->M; c++) out[c] = 0.0f;
        for (int64_t s = 0; s < S; s++) {
            const float *restrict m = at->memory + (s0 + s) * at->M;
            const float w = a[s];
            for (int64_t c = 0; c < at->M; c++) out[c] += w * m[c];
        }
    }
}

rd_code rd_attention_step(const rd_attention *at, int64_t n, const float *q, float *qp, const int64_t *where, float *al,
                          float *ctx, rd_status *st)
{
    if (additive(at)) {
        rd_packed *p = rd_backend_packed(at->be, at->ps, at->query_kernel->param, 0, at->R, st);
        if (!p || rd_packed_mul(p, n, q, qp, false, st) != RD_OK) return st->code;
        if (at->b) rd_add_bias(n, at->A, at->b->v, qp);
    }
    job j = {.at = at, .where = where, .q = q, .qp = qp, .al = al, .ctx = ctx};
    rd_parallel(at->be, n, 1, step_rows, &j);
    return RD_OK;
}

static void back_rows(void *ctx, int64_t lo, int64_t hi)
{
    const job *j = ctx;
    const rd_attention *at = j->at;
    const int64_t A = at->A;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t S = at->len[i], s0 = at->first[i], where = j->where ? j->where[i] : i * at->max_len;
        const float *restrict a = j->cal + where, *restrict dctx = j->dctx + i * at->M;
        float *restrict ds = j->d->ds + where;
        float mean = 0.0f;
        for (int64_t s = 0; s < S; s++) {
            ds[s] = dot(dctx, at->memory + (s0 + s) * at->M, at->M);
            mean += a[s] * ds[s];
        }
        for (int64_t s = 0; s < S; s++) ds[s] = a[s] * (ds[s] - mean);
        if (at->ve) {
            const float *restrict qp = j->qp + i * A, *restrict ve = at->ve;
            float *restrict dqp = j->d->dqp + i * A, *restrict dv = j->d->dv_rows + i * A;
            for (int64_t c = 0; c < A; c++) dqp[c] = 0.0f;
            for (int64_t s = 0; s < S; s++) {
                const float *restrict k = at->keys + (s0 + s) * A;
                float *restrict dk = j->d->dkeys + (s0 + s) * A;
                const float w = ds[s];
                for (int64_t c = 0; c < A; c++) {
                    const float u = rd_tanhf(k[c] + qp[c]), d = w * ve[c] * (1.0f - u * u);
                    dk[c] += d;
                    dqp[c] += d;
                    dv[c] += w * u;
                }
            }
        } else {
            const float *restrict q = j->q + i * at->R;
            float *restrict dq = j->dq + i * at->R;
            for (int64_t s = 0; s < S; s++) {
                const float *restrict k = at->keys + (s0 + s) * A;
                const float w = ds[s] * at->gain;
                for (int64_t c = 0; c < A; c++) dq[c] += w * k[c];
                if (at->kind == RD_ATT_LUONG_SCALED) j->d->dg_rows[i] += ds[s] * dot(q, k, A);
            }
        }
    }
}

rd_code rd_attention_step_back(const rd_attention *at, int64_t n, const float *q, const float *qp, const int64_t *where,
                               const float *al, const float *dctx, const rd_attention_grads *d, float *dq,
                               rd_status *st)
{
    job j = {.at = at, .where = where, .q = q, .qp = qp, .cal = al, .dctx = dctx, .dq = dq, .d = d};
    rd_parallel(at->be, n, 1, back_rows, &j);
    if (!additive(at)) return RD_OK;
    rd_packed *p = rd_backend_packed(at->be, at->ps, at->query_kernel->param, 0, at->R, st);
    return p ? rd_packed_mul_t(p, n, d->dqp, dq, true, st) : st->code;
}

rd_code rd_attention_finish(const rd_attention *at, int64_t n_seq, const int64_t *slot0, const int64_t *where0,
                            const float *al, const float *dctx_all, const float *q_all, const rd_attention_grads *d,
                            float *dmemory, rd_status *st)
{
    for (int64_t i = 0; i < n_seq; i++) {
        const int64_t T = slot0[i + 1] - slot0[i], S = at->len[i], s0 = at->first[i], k0 = slot0[i];
        if (dmemory)
            RD_TRY(rd_gemm(at->be, true, false, S, at->M, T, 1.0f, al + where0[i], S, dctx_all + k0 * at->M, at->M,
                           1.0f, dmemory + s0 * at->M, at->M, st));
        if (!at->ve && d->dkeys)
            RD_TRY(rd_gemm(at->be, true, false, S, at->A, T, at->gain, d->ds + where0[i], S, q_all + k0 * at->R, at->R,
                           1.0f, d->dkeys + s0 * at->A, at->A, st));
    }
    if (at->kind == RD_ATT_LUONG_SCALED) {
        for (int64_t i = 0; at->g->g && i < n_seq; i++) at->g->g[0] += d->dg_rows[i];
        return RD_OK;
    }
    if (!at->ve || !at->v->g) return RD_OK;
    float *dve;
    const rd_mark mark = rd_arena_mark(at->scratch);
    RD_TRY(rd_arena_zero(at->scratch, (size_t)at->A * sizeof(float), &dve, st));
    for (int64_t i = 0; i < n_seq; i++)
        for (int64_t c = 0; c < at->A; c++) dve[c] += d->dv_rows[i * at->A + c];
    if (at->kind == RD_ATT_BAHDANAU) {
        for (int64_t c = 0; c < at->A; c++) at->v->g[c] += dve[c];
    } else { /* ve = g v / |v|:  dg = dve . v/|v|,  dv = g/|v| (dve - (dve . v/|v|) v/|v|) */
        const double len = norm_of(at->v->v, at->A);
        double along = 0.0;
        for (int64_t c = 0; c < at->A; c++) along += (double)dve[c] * (double)at->v->v[c] / len;
        at->g->g[0] += (float)along;
        const double f = (double)at->g->v[0] / len;
        for (int64_t c = 0; c < at->A; c++)
            at->v->g[c] += (float)(f * ((double)dve[c] - along * (double)at->v->v[c] / len));
    }
    rd_arena_rewind(at->scratch, mark);
done:
    return st->code;
}
