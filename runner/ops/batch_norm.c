/* batch_norm.c -- batch normalisation (Ioffe and Szegedy 2015, arXiv:1502.03167), with the addition
 * and the relu that follow it in a residual block. For one channel and one group of samples, M
 * values x:
 *   m = mean(x),  s = mean((x - m)^2),  r = 1 / sqrt(s + eps)
 *   y = max(gamma r (x - m) + beta + add, 0)
 * Backward, with d = dy where y > 0 and means over the M values:
 *   dbeta += sum d,  dgamma += r sum d (x - m),  dadd += d
 *   dx += gamma r (d - mean(d) - r^2 (x - m) mean(d (x - m)))      with batch statistics
 *   dx += gamma r d                                                with running statistics
 *
 * The file has its own loops, because the library's normalisation has no addition and would read
 * the memory more often. One thread computes a channel, and all sums of the channel have a fixed
 * order. So the number of threads does not change the result. Sums are taken in float32 over short
 * runs of pixels and in double over the runs. The variance comes from the sums of (x - k) and
 * (x - k)^2, where k is the mean of some of the values, so a mean far from 0 costs no digits.
 *
 * Memory: forward reads x twice and writes y. Backward reads x and d twice, and writes dx over
 * dy. */
#include "shared/image_op.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    LANES = 8,
    MAX_VECTORS = 2, /* vectors of a pixel that a loop computes together */
    RUN = 64         /* pixels of a float32 sum */
};

static rd_code batch_norm_infer(rd_call *c, rd_status *st)
{
    const rd_batch_norm *a = c->attr;
    const rd_var *x = c->in[0];
    RD_TRY(rd_op_image_check("batch_norm", x, st));
    for (int i = 1; i < 6; i++)
        if (i != 3 && (!c->in[i] || c->in[i]->rows * c->in[i]->cols != x->dim[3]))
            return rd_fail(st, RD_EBUG,
                           "batch_norm: the image has %" PRId64
                           " channels, a parameter has another number",
                           x->dim[3]);
    if (c->in[3] &&
        (c->in[3]->n_dim != 4 || memcmp(c->in[3]->dim, x->dim, 4 * sizeof *x->dim) != 0))
        return rd_fail(st, RD_EBUG, "batch_norm: the added image has another shape");
    if (c->in[3] && c->in[3]->type != x->type)
        return rd_fail(st, RD_EBUG, "batch_norm: the added image has another element type");
    rd_op_like(c->out[0], x);
    c->out[0]->rectified = a->relu;
done:
    return st->code;
}

/* Statistics of each group and channel, kept for backward: [groups, K B]. */
typedef struct batch_norm_stats {
    float *mean, *r;
    float *var; /* unbiased */
} batch_norm_stats;

typedef struct batch_norm_job {
    const rd_batch_norm *a;
    rd_image_view v;
    int64_t group, n_groups;
    int64_t C; /* channels, with the padding of the last block */
    batch_norm_stats s;
    bool batch; /* the op uses the statistics of the batch, not the running statistics */
    bool relu;  /* forward: y = max(y, 0); backward: d is dy where y > 0 */
    const float *x, *gamma, *beta, *run_mean, *run_var;
    const float *add; /* in the order of x */
    float *y;
    /* backward */
    float *d;    /* dy, in the order of x; with keep_d it becomes d */
    float *dx;   /* may be d */
    float *dadd; /* NULL: not wanted, or d itself is the gradient of add */
    bool add_dx, add_dadd, keep_d;
    float *dgamma, *dbeta;
} batch_norm_job;

/* Channels that a loop computes together: vectors side by side, or fewer channels than one vector
 * has lanes. */
typedef struct strip {
    int64_t c;     /* first channel */
    int64_t at;    /* offset of the first pixel of the first sample */
    int64_t lanes; /* LANES, or fewer in the last strip of NHWC */
} strip;

static int64_t n_strips(const rd_image_view *v)
{
    return v->B == 8 || v->B == 16 ? v->K : v->K * ((v->B + LANES - 1) / LANES);
}

static strip strip_at(const rd_image_view *v, int64_t i)
{
    if (v->B == 8 || v->B == 16) return (strip){i * v->B, i * v->P * v->B, LANES};
    const int64_t per = (v->B + LANES - 1) / LANES, k = i / per, l = i % per * LANES;
    return (strip){k * v->B + l, k * v->P * v->B + l, v->B - l < LANES ? v->B - l : LANES};
}

static inline rd_v8 batch_norm_load(const float *x, int64_t lanes)
{
    rd_v8 v = {0};
    memcpy(&v, x, (size_t)lanes * sizeof(float));
    return v;
}
static inline void batch_norm_store(float *x, rd_v8 v, int64_t lanes)
{
    memcpy(x, &v, (size_t)lanes * sizeof(float));
}

typedef int32_t mask8 __attribute__((vector_size(32)));
static inline rd_v8 batch_norm_where_positive(rd_v8 y, rd_v8 g)
{
    return (rd_v8)((mask8)g & (y > 0.0f));
}
/* Returns max(y, 0). NaN stays NaN. */
static inline rd_v8 rectify(rd_v8 y)
{
    return (rd_v8)((mask8)y & ~(mask8)(y < 0.0f));
}

/* The loops take the stride of a pixel (B), the lanes and the number of vectors (W) as arguments.
 * Their callers pass constants. */
#define LOOP static inline __attribute__((always_inline)) void

LOOP sums_of(const batch_norm_job *j, const strip *s, int64_t i0, int64_t n, const int64_t B,
             const int64_t lanes, const int W, double *mean, double *var)
{
    const int64_t P = j->v.P;
    rd_v8 k[MAX_VECTORS];
    double total[MAX_VECTORS * LANES] = {0}, square[MAX_VECTORS * LANES] = {0};
    const float *first = j->x + s->at + i0 * j->v.sample;
    const int64_t some = P < 16 ? P : 16;
    for (int w = 0; w < W; w++) {
        k[w] = rd_v8_all(0.0f);
        for (int64_t p = 0; p < some; p++)
            k[w] += batch_norm_load(first + p * B + w * LANES, lanes);
        k[w] /= (float)some;
    }
    for (int64_t i = 0; i < n; i++) {
        const float *x = first + i * j->v.sample;
        for (int64_t p0 = 0; p0 < P; p0 += RUN) {
            const int64_t p1 = P - p0 < RUN ? P : p0 + RUN;
            rd_v8 a[MAX_VECTORS][2] = {{{0}}}, q[MAX_VECTORS][2] = {{{0}}};
            int64_t p = p0;
            for (; p + 2 <= p1; p += 2)
                for (int w = 0; w < W; w++) {
                    const rd_v8 u = batch_norm_load(x + p * B + w * LANES, lanes) - k[w],
                                v = batch_norm_load(x + (p + 1) * B + w * LANES, lanes) - k[w];
                    a[w][0] += u;
                    q[w][0] += u * u;
                    a[w][1] += v;
                    q[w][1] += v * v;
                }
            for (; p < p1; p++)
                for (int w = 0; w < W; w++) {
                    const rd_v8 u = batch_norm_load(x + p * B + w * LANES, lanes) - k[w];
                    a[w][0] += u;
                    q[w][0] += u * u;
                }
            for (int w = 0; w < W; w++) {
                const rd_v8 ta = a[w][0] + a[w][1], tq = q[w][0] + q[w][1];
                for (int l = 0; l < LANES; l++) {
                    total[w * LANES + l] += (double)ta[l];
                    square[w * LANES + l] += (double)tq[l];
                }
            }
        }
    }
    const double M = (double)(n * P);
    for (int w = 0; w < W; w++)
        for (int l = 0; l < LANES; l++) {
            const double e = total[w * LANES + l] / M, v = square[w * LANES + l] / M - e * e;
            mean[w * LANES + l] = (double)k[w][l] + e;
            var[w * LANES + l] = v < 0.0 ? 0.0 : v;
        }
}

LOOP apply(const batch_norm_job *j, const strip *s, int64_t i0, int64_t n, const int64_t B,
           const int64_t lanes, const int W, const float *mean, const float *scale,
           const float *beta)
{
    rd_v8 m[MAX_VECTORS], a[MAX_VECTORS], b[MAX_VECTORS];
    for (int w = 0; w < W; w++) {
        m[w] = rd_v8_load(mean + w * LANES);
        a[w] = rd_v8_load(scale + w * LANES);
        b[w] = rd_v8_load(beta + w * LANES);
    }
    for (int64_t i = i0; i < i0 + n; i++) {
        const int64_t at = s->at + i * j->v.sample;
        const float *x = j->x + at, *add = j->add ? j->add + at : NULL;
        float *y = j->y + at;
        for (int64_t p = 0; p < j->v.P; p++)
            for (int w = 0; w < W; w++) {
                const int64_t e = p * B + w * LANES;
                rd_v8 v = (batch_norm_load(x + e, lanes) - m[w]) * a[w] + b[w];
                if (add) v += batch_norm_load(add + e, lanes);
                batch_norm_store(y + e, j->relu ? rectify(v) : v, lanes);
            }
    }
}

LOOP strip_forward(const batch_norm_job *j, const strip *s, const int64_t B, const int64_t lanes,
                   const int W)
{
    const int64_t real = j->v.c - s->c < W * lanes ? j->v.c - s->c : W * lanes;
    for (int64_t g = 0; g < j->n_groups; g++) {
        const int64_t i0 = g * j->group, n = j->v.n - i0 < j->group ? j->v.n - i0 : j->group;
        double mean[MAX_VECTORS * LANES] = {0}, var[MAX_VECTORS * LANES] = {0};
        float m[MAX_VECTORS * LANES] = {0}, scale[MAX_VECTORS * LANES] = {0},
                              beta[MAX_VECTORS * LANES] = {0};
        if (j->batch) sums_of(j, s, i0, n, B, lanes, W, mean, var);
        for (int64_t l = 0; l < real; l++) {
            const int64_t c = s->c + l;
            if (!j->batch) {
                mean[l] = (double)j->run_mean[c];
                var[l] = (double)j->run_var[c];
            }
            const double r = 1.0 / sqrt(var[l] + (double)j->a->epsilon), M = (double)(n * j->v.P);
            m[l] = (float)mean[l];
            scale[l] = (float)(r * (double)j->gamma[c]);
            beta[l] = j->beta[c];
            j->s.mean[g * j->C + c] = m[l];
            j->s.r[g * j->C + c] = (float)r;
            j->s.var[g * j->C + c] = (float)(M > 1.0 ? var[l] * M / (M - 1.0) : var[l]);
        }
        apply(j, s, i0, n, B, lanes, W, m, scale, beta);
    }
}

/* Adds sum d and sum d (x - m). With keep_d it stores the masked gradient over dy. */
LOOP gradient_sums(const batch_norm_job *j, const strip *s, int64_t i0, int64_t n, const int64_t B,
                   const int64_t lanes, const int W, const float *mean, double *sd, double *sdx)
{
    const int64_t P = j->v.P;
    const bool relu = j->relu, keep = j->keep_d;
    rd_v8 m[MAX_VECTORS];
    for (int w = 0; w < W; w++) m[w] = rd_v8_load(mean + w * LANES);
    for (int64_t i = i0; i < i0 + n; i++) {
        const int64_t at = s->at + i * j->v.sample;
        const float *x = j->x + at, *y = j->y + at;
        float *dp = j->d + at;
        for (int64_t p0 = 0; p0 < P; p0 += RUN) {
            const int64_t p1 = P - p0 < RUN ? P : p0 + RUN;
            rd_v8 a[MAX_VECTORS] = {{0}}, q[MAX_VECTORS] = {{0}};
            for (int64_t p = p0; p < p1; p++)
                for (int w = 0; w < W; w++) {
                    const int64_t e = p * B + w * LANES;
                    rd_v8 d = batch_norm_load(dp + e, lanes);
                    if (relu) d = batch_norm_where_positive(batch_norm_load(y + e, lanes), d);
                    if (keep) batch_norm_store(dp + e, d, lanes);
                    a[w] += d;
                    q[w] += d * (batch_norm_load(x + e, lanes) - m[w]);
                }
            for (int w = 0; w < W; w++)
                for (int l = 0; l < LANES; l++) {
                    sd[w * LANES + l] += (double)a[w][l];
                    sdx[w * LANES + l] += (double)q[w][l];
                }
        }
    }
}

/* Computes dx = a (d - b - (x - m) k). */
LOOP gradient(const batch_norm_job *j, const strip *s, int64_t i0, int64_t n, const int64_t B,
              const int64_t lanes, const int W, const float *mean, const float *scale,
              const float *shift, const float *slope)
{
    const bool relu = j->relu && !j->keep_d; /* else d is masked already */
    rd_v8 m[MAX_VECTORS], a[MAX_VECTORS], b[MAX_VECTORS], k[MAX_VECTORS];
    for (int w = 0; w < W; w++) {
        m[w] = rd_v8_load(mean + w * LANES);
        a[w] = rd_v8_load(scale + w * LANES);
        b[w] = rd_v8_load(shift + w * LANES);
        k[w] = rd_v8_load(slope + w * LANES);
    }
    for (int64_t i = i0; i < i0 + n; i++) {
        const int64_t at = s->at + i * j->v.sample;
        const float *x = j->x + at, *y = j->y + at, *dp = j->d + at;
        float *dx = j->dx ? j->dx + at : NULL, *dadd = j->dadd ? j->dadd + at : NULL;
        for (int64_t p = 0; p < j->v.P; p++)
            for (int w = 0; w < W; w++) {
                const int64_t e = p * B + w * LANES;
                rd_v8 d = batch_norm_load(dp + e, lanes);
                if (relu) d = batch_norm_where_positive(batch_norm_load(y + e, lanes), d);
                if (dadd)
                    batch_norm_store(dadd + e,
                                     j->add_dadd ? batch_norm_load(dadd + e, lanes) + d : d, lanes);
                if (!dx) continue;
                const rd_v8 t = (d - b[w] - (batch_norm_load(x + e, lanes) - m[w]) * k[w]) * a[w];
                batch_norm_store(dx + e, j->add_dx ? batch_norm_load(dx + e, lanes) + t : t, lanes);
            }
    }
}

LOOP strip_backward(const batch_norm_job *j, const strip *s, const int64_t B, const int64_t lanes,
                    const int W)
{
    const int64_t real = j->v.c - s->c < W * lanes ? j->v.c - s->c : W * lanes;
    double dgamma[MAX_VECTORS * LANES] = {0}, dbeta[MAX_VECTORS * LANES] = {0};
    for (int64_t g = 0; g < j->n_groups; g++) {
        const int64_t i0 = g * j->group, n = j->v.n - i0 < j->group ? j->v.n - i0 : j->group;
        const double M = (double)(n * j->v.P);
        double sd[MAX_VECTORS * LANES] = {0}, sdx[MAX_VECTORS * LANES] = {0};
        float m[MAX_VECTORS * LANES] = {0}, a[MAX_VECTORS * LANES] = {0},
                              b[MAX_VECTORS * LANES] = {0}, k[MAX_VECTORS * LANES] = {0};
        for (int64_t l = 0; l < real; l++) m[l] = j->s.mean[g * j->C + s->c + l];
        gradient_sums(j, s, i0, n, B, lanes, W, m, sd, sdx);
        for (int64_t l = 0; l < real; l++) {
            const double r = (double)j->s.r[g * j->C + s->c + l];
            dbeta[l] += sd[l];
            dgamma[l] += sdx[l] * r;
            a[l] = (float)(r * (double)j->gamma[s->c + l]);
            b[l] = j->batch ? (float)(sd[l] / M) : 0.0f;
            k[l] = j->batch ? (float)(sdx[l] / M * r * r) : 0.0f;
        }
        if (j->dx || j->dadd) gradient(j, s, i0, n, B, lanes, W, m, a, b, k);
    }
    for (int64_t l = 0; l < real; l++) {
        if (j->dgamma) j->dgamma[s->c + l] += (float)dgamma[l];
        if (j->dbeta) j->dbeta[s->c + l] += (float)dbeta[l];
    }
}

static void batch_norm_forward_part(void *ctx, int64_t lo, int64_t hi)
{
    const batch_norm_job *j = ctx;
    for (int64_t i = lo; i < hi; i++) {
        const strip s = strip_at(&j->v, i);
        if (j->v.B == 8)
            strip_forward(j, &s, 8, LANES, 1);
        else if (j->v.B == 16)
            strip_forward(j, &s, 16, LANES, 2);
        else if (s.lanes == LANES)
            strip_forward(j, &s, j->v.B, LANES, 1);
        else
            strip_forward(j, &s, j->v.B, s.lanes, 1);
    }
}

static void batch_norm_backward_part(void *ctx, int64_t lo, int64_t hi)
{
    const batch_norm_job *j = ctx;
    for (int64_t i = lo; i < hi; i++) {
        const strip s = strip_at(&j->v, i);
        if (j->v.B == 8)
            strip_backward(j, &s, 8, LANES, 1);
        else if (j->v.B == 16)
            strip_backward(j, &s, 16, LANES, 2);
        else if (s.lanes == LANES)
            strip_backward(j, &s, j->v.B, LANES, 1);
        else
            strip_backward(j, &s, j->v.B, s.lanes, 1);
    }
}

static batch_norm_job batch_norm_job_of(const rd_call *c)
{
    const rd_batch_norm *a = c->attr;
    batch_norm_job j = {.a = a,
                        .v = rd_image_view_of(c->in[0]),
                        .batch = c->training,
                        .x = c->in[0]->v,
                        .y = c->out[0]->v};
    j.group = a->group > 0 && c->training && a->group < j.v.n ? a->group : j.v.n;
    j.n_groups = (j.v.n + j.group - 1) / j.group;
    j.C = j.v.K * j.v.B;
    j.gamma = c->in[1]->v;
    j.beta = c->in[2]->v;
    j.run_mean = c->in[4]->v;
    j.run_var = c->in[5]->v;
    return j;
}

static rd_code batch_norm_forward(rd_call *c, rd_status *st)
{
    const rd_batch_norm *a = c->attr;
    const rd_var *add = c->in[3];
    batch_norm_job j = batch_norm_job_of(c);
    batch_norm_stats *s;
    RD_TRY(rd_arena_zero(c->kept, sizeof *s, &s, st));
    const size_t bytes = (size_t)(j.n_groups * j.C) * sizeof(float);
    RD_TRY(rd_arena_zero(c->kept, bytes, &s->mean, st));
    RD_TRY(rd_arena_zero(c->kept, bytes, &s->r, st));
    RD_TRY(rd_arena_zero(c->kept, bytes, &s->var, st));
    c->saved = s;
    j.s = *s;
    j.relu = a->relu;
    if (add) RD_TRY(rd_op_in_order(c->scratch, c->in[0], add, &j.add, st));
    rd_parallel(c->be, n_strips(&j.v), 1, batch_norm_forward_part, &j);
done:
    return st->code;
}

/* Adds to the gradients of the running statistics:
 *   seed * sum over groups of (samples of the group) * (measured value) */
static void batch_norm_add_statistics(const rd_call *c, const batch_norm_job *j)
{
    float *mean = c->in[4]->g, *var = c->in[5]->g;
    for (int64_t k = 0; k < j->v.c && mean && var; k++) {
        double m = 0.0, v = 0.0;
        for (int64_t g = 0; g < j->n_groups; g++) {
            const int64_t left = j->v.n - g * j->group, n = left < j->group ? left : j->group;
            m += (double)n * (double)j->s.mean[g * j->C + k];
            v += (double)n * (double)j->s.var[g * j->C + k];
        }
        mean[k] += (float)((double)c->seed * m);
        var[k] += (float)((double)c->seed * v);
    }
}

static rd_code batch_norm_backward(rd_call *c, rd_status *st)
{
    const rd_batch_norm *a = c->attr;
    rd_var *y = c->out[0], *add = c->in[3];
    batch_norm_job j = batch_norm_job_of(c);
    float *other = NULL; /* gradient of an `add` in another order */
    bool had;
    j.s = *(const batch_norm_stats *)c->saved;
    j.relu = a->relu && !y->g_masked;
    j.d = y->g;
    RD_TRY(rd_call_grad(c, 1, &j.dgamma, &had, st));
    RD_TRY(rd_call_grad(c, 2, &j.dbeta, &had, st));
    if (add && add->needs_grad) {
        if (rd_call_pass_grad(c, 3)) {
            j.keep_d = j.relu;
        } else {
            RD_TRY(rd_call_grad(c, 3, &j.dadd, &j.add_dadd, st));
            /* add has another order: d is computed in place of dy and then copied. */
            if (add->layout != c->in[0]->layout) {
                other = j.dadd;
                j.dadd = NULL;
                j.keep_d = j.relu;
            }
        }
    }
    if (!other && rd_call_pass_grad(c, 0)) {
        j.dx = y->g;
    } else {
        RD_TRY(rd_call_grad(c, 0, &j.dx, &j.add_dx, st));
    }
    if (j.batch) batch_norm_add_statistics(c, &j);
    rd_parallel(c->be, n_strips(&j.v), 1, batch_norm_backward_part, &j);
    if (other) RD_TRY(rd_op_to_order(c->in[0], add, y->g, other, j.add_dadd, st));
done:
    return st->code;
}

RD_OP(batch_norm) = {.name = "batch_norm",
                     .about = "batch normalisation of images, addition, relu",
                     .infer = batch_norm_infer,
                     .kernel = {[RD_CPU] = {batch_norm_forward, batch_norm_backward},
                                [RD_GPU] = RD_GPU_KERNEL(batch_norm)},
                     .narrow = RD_NARROW(0) | RD_NARROW(3),
                     .own_grads = true};

rd_var *rd_op_batch_norm(rd_tape *t, const rd_batch_norm *bn, rd_var *x, rd_var *gamma,
                         rd_var *beta, rd_var *add)
{
    rd_var *in[] = {
        x, gamma, beta, add, rd_tape_param(t, bn->mean), rd_tape_param(t, bn->variance)};
    return x && gamma && beta
               ? rd_tape_apply(t, &rd_op_def_batch_norm, bn, sizeof *bn, in, 6, NULL, 1)
               : NULL;
}
