/* attention.c -- the attention of attention.h on a CPU, and what all backends share. Backward
 * computes tanh again; keeping it would take S A floats per target token. On a GPU the gradients of
 * the keys wait for the end of the loop, where they stay in registers over all steps. */
#include "rd/attention.h"
#include "attention_kernels.h"
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

typedef struct attention_job {
    const rd_attention *at;
    const rd_attention_back *b;
    int64_t t;
    int64_t ld_feed, n_feed; /* of feed; in backward, of carry */
    const float *q, *qp, *cal, *dctx, *carry;
    float *al, *ctx, *feed, *dqp, *dq;
} attention_job;

static inline int64_t place_of(const rd_attention *at, int64_t i, int64_t t)
{
    return at->place ? at->place[i] + t * at->len[i] : i * at->max_len;
}

static inline float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static inline float tanh_dot(const float *restrict k, const float *restrict q,
                             const float *restrict v, int64_t n)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += v[i] * rd_tanhf(k[i] + q[i]);
    return s;
}

static void step_rows(void *ctx, int64_t lo, int64_t hi)
{
    const attention_job *j = ctx;
    const rd_attention *at = j->at;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t S = at->len[i], s0 = at->first[i];
        float *restrict a = j->al + place_of(at, i, j->t), *restrict out = j->ctx + i * at->M;
        float top = -INFINITY, sum = 0.0f;
        for (int64_t s = 0; s < S; s++) {
            const float *k = at->keys + (s0 + s) * at->A;
            a[s] = at->ve ? tanh_dot(k, j->qp + i * at->A, at->ve, at->A)
                          : at->gain * dot(j->q + i * at->R, k, at->A);
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
        if (i < j->n_feed) memcpy(j->feed + i * j->ld_feed, out, (size_t)at->M * sizeof(float));
    }
}

static rd_code cpu_step(const rd_attention *at, int64_t n, int64_t t, const float *q, float *qp,
                        float *al, float *ctx, float *feed, int64_t ld_feed, int64_t n_feed,
                        rd_status *st)
{
    if (at->b) RD_TRY(rd_add_bias(at->be, n, at->A, at->b->v, qp, st));
    attention_job j = {.at = at,
                       .t = t,
                       .q = q,
                       .qp = qp,
                       .al = al,
                       .ctx = ctx,
                       .feed = feed,
                       .ld_feed = ld_feed,
                       .n_feed = n_feed};
    rd_parallel(at->be, n, 1, step_rows, &j);
done:
    return st->code;
}

static rd_code cpu_gather(const rd_attention *at, int64_t n_seq, int64_t n_slots,
                          rd_attention_back *b, rd_status *st)
{
    (void)n_slots;
    RD_TRY(rd_rows_zero(at->scratch, n_seq, at->A, &b->dv_rows, st));
    if (!b->dkeys) RD_TRY(rd_rows_zero(at->scratch, at->S, at->A, &b->dkeys, st));
done:
    return st->code;
}

static void attention_back_rows(void *ctx, int64_t lo, int64_t hi)
{
    const attention_job *j = ctx;
    const rd_attention *at = j->at;
    const rd_attention_back *b = j->b;
    const int64_t A = at->A, M = at->M;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t S = at->len[i], s0 = at->first[i], place = place_of(at, i, j->t),
                      slot = b->slot0[i] + j->t;
        const float *restrict a = j->cal + place;
        float *restrict ds = b->ds + place, *restrict dctx = b->dctx + slot * M;
        float mean = 0.0f;
        for (int64_t c = 0; c < M; c++)
            dctx[c] = j->dctx[i * M + c] + (i < j->n_feed ? j->carry[i * j->ld_feed + c] : 0.0f);
        if (b->q) memcpy(b->q + slot * at->R, j->q + i * at->R, (size_t)at->R * sizeof(float));
        for (int64_t s = 0; s < S; s++) {
            ds[s] = dot(dctx, at->memory + (s0 + s) * M, M);
            mean += a[s] * ds[s];
        }
        for (int64_t s = 0; s < S; s++) ds[s] = a[s] * (ds[s] - mean);
        if (at->ve) {
            const float *restrict qp = j->qp + i * A, *restrict ve = at->ve;
            float *restrict dqp = j->dqp + i * A, *restrict dv = b->dv_rows + i * A;
            for (int64_t c = 0; c < A; c++) dqp[c] = 0.0f;
            for (int64_t s = 0; s < S; s++) {
                const float *restrict k = at->keys + (s0 + s) * A;
                float *restrict dk = b->dkeys + (s0 + s) * A;
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
                if (at->kind == RD_ATT_LUONG_SCALED) b->dg_rows[i] += ds[s] * dot(q, k, A);
            }
        }
    }
}

static rd_code cpu_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                             int64_t t, const float *q, const float *qp, const float *al,
                             const float *dctx, const float *carry, int64_t ld_carry,
                             int64_t n_carry, float *dqp, float *dq, rd_status *st)
{
    attention_job j = {.at = at,
                       .b = b,
                       .t = t,
                       .q = q,
                       .qp = qp,
                       .cal = al,
                       .dctx = dctx,
                       .carry = carry,
                       .ld_feed = ld_carry,
                       .n_feed = n_carry,
                       .dqp = dqp,
                       .dq = dq};
    rd_parallel(at->be, n, 1, attention_back_rows, &j);
    return st->code;
}

/* Computes the products over time, sequence by sequence. */
static rd_code cpu_sums(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                        const float *al, float *dmemory, const float **dv, int64_t *n_dv,
                        rd_status *st)
{
    *dv = b->dv_rows;
    *n_dv = n_seq;
    for (int64_t i = 0; i < n_seq; i++) {
        const int64_t k0 = b->slot0[i], T = b->slot0[i + 1] - k0, S = at->len[i], s0 = at->first[i];
        if (dmemory)
            RD_TRY(rd_gemm(at->be, true, false, S, at->M, T, 1.0f, al + at->place[i], S,
                           b->dctx + k0 * at->M, at->M, 1.0f, dmemory + s0 * at->M, at->M, st));
        if (!at->ve && b->dkeys)
            RD_TRY(rd_gemm(at->be, true, false, S, at->A, T, at->gain, b->ds + at->place[i], S,
                           b->q + k0 * at->R, at->R, 1.0f, b->dkeys + s0 * at->A, at->A, st));
    }
done:
    return st->code;
}

/* Goes back through ve = g v / |v|:
 *   dg = dve . v/|v|,  dv = g/|v| (dve - (dve . v/|v|) v/|v|) */
static rd_code cpu_norm_back(const rd_attention *at, const float *dve, rd_status *st)
{
    const double len = norm_of(at->v->v, at->A);
    double along = 0.0;
    for (int64_t c = 0; c < at->A; c++) along += (double)dve[c] * (double)at->v->v[c] / len;
    at->g->g[0] += (float)along;
    const double f = (double)at->g->v[0] / len;
    for (int64_t c = 0; c < at->A; c++)
        at->v->g[c] += (float)(f * ((double)dve[c] - along * (double)at->v->v[c] / len));
    return st->code;
}

static rd_code cpu_norm(const rd_attention *at, float *ve, rd_status *st)
{
    const float scale = (float)((double)at->g->v[0] / norm_of(at->v->v, at->A));
    for (int64_t i = 0; i < at->A; i++) ve[i] = at->v->v[i] * scale;
    return st->code;
}

static float cpu_gain(const rd_attention *at)
{
    return at->g->v[0];
}

static const rd_attention_kernels cpu_attention = {
    cpu_gain, cpu_norm, cpu_norm_back, cpu_step, cpu_step_back, cpu_gather, cpu_sums};
static const rd_attention_kernels *const attention_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_attention, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_attention)};

static const rd_attention_kernels *attention_kernels_of(const rd_attention *at)
{
    return attention_kernels[rd_backend_kind_of(at->be)];
}

/* ---- on all backends ---- */

rd_code rd_attention_begin(rd_attention *at, rd_arena *a, rd_status *st)
{
    float *ve;
    at->gain = 1.0f;
    at->ve = NULL;
    if (!additive(at)) {
        if (at->kind == RD_ATT_LUONG_SCALED) at->gain = attention_kernels_of(at)->gain(at);
        return RD_OK;
    }
    at->ve = at->v->v;
    if (at->kind == RD_ATT_BAHDANAU) return RD_OK;
    if (rd_arena_get(a, (size_t)at->A * sizeof(float), &ve, st) != RD_OK) return st->code;
    at->ve = ve;
    return attention_kernels_of(at)->norm(at, ve, st);
}

rd_code rd_attention_step(const rd_attention *at, int64_t n, int64_t t, const float *q, float *qp,
                          float *al, float *ctx, float *feed, int64_t ld_feed, int64_t n_feed,
                          rd_status *st)
{
    if (additive(at))
        RD_TRY(rd_param_mul(at->be, at->ps, at->query_kernel, 0, at->R, n, q, qp, false, st));
    RD_TRY(attention_kernels_of(at)->step(at, n, t, q, qp, al, ctx, feed, ld_feed, n_feed, st));
done:
    return st->code;
}

rd_code rd_attention_back_begin(const rd_attention *at, int64_t n_seq, int64_t n_slots,
                                int64_t n_weights, const int64_t *slot0, float *dkeys,
                                rd_attention_back *b, rd_status *st)
{
    rd_arena *s = at->scratch;
    *b = (rd_attention_back){.slot0 = slot0, .dkeys = dkeys};
    RD_TRY(rd_arena_get(s, (size_t)n_weights * sizeof(float), &b->ds, st));
    RD_TRY(rd_rows_get(s, n_slots, at->M, &b->dctx, st));
    if (at->ve) {
        RD_TRY(attention_kernels_of(at)->gather(at, n_seq, n_slots, b, st));
    } else {
        RD_TRY(rd_rows_get(s, n_slots, at->R, &b->q, st));
        RD_TRY(rd_rows_zero(s, n_seq, 1, &b->dg_rows, st));
    }
done:
    return st->code;
}

rd_code rd_attention_step_back(const rd_attention *at, const rd_attention_back *b, int64_t n,
                               int64_t t, const float *q, const float *qp, const float *al,
                               const float *dctx, const float *carry, int64_t ld_carry,
                               int64_t n_carry, float *dqp, float *dq, rd_status *st)
{
    RD_TRY(attention_kernels_of(at)->step_back(at, b, n, t, q, qp, al, dctx, carry, ld_carry,
                                               n_carry, dqp, dq, st));
    if (additive(at))
        RD_TRY(rd_param_mul_t(at->be, at->ps, at->query_kernel, 0, at->R, n, dqp, dq, true, st));
done:
    return st->code;
}

rd_code rd_attention_finish(const rd_attention *at, const rd_attention_back *b, int64_t n_seq,
                            const float *al, float *dmemory, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(at->scratch);
    const float *dv;
    int64_t n_dv;
    float *dve;
    RD_TRY(attention_kernels_of(at)->sums(at, b, n_seq, al, dmemory, &dv, &n_dv, st));
    if (at->kind == RD_ATT_LUONG_SCALED)
        RD_TRY(rd_add_columns(at->be, at->scratch, n_seq, 1, b->dg_rows, 1, at->g->g, st));
    if (!at->ve || !at->v->g) goto done;
    RD_TRY(rd_rows_zero(at->scratch, 1, at->A, &dve, st));
    RD_TRY(rd_add_columns(at->be, at->scratch, n_dv, at->A, dv, at->A, dve, st));
    if (at->kind == RD_ATT_BAHDANAU)
        RD_TRY(rd_vec_add(at->be, at->A, dve, at->v->g, st));
    else
        RD_TRY(attention_kernels_of(at)->norm_back(at, dve, st));
done:
    rd_arena_rewind(at->scratch, mark);
    return st->code;
}
