/* positions.c -- fixed positional encodings: y = scale x + P[position], dx += scale dy.
 *
 * Angles, sines and cosines are doubles: a float32 angle of position 10,000 is off by up to 5e-4.
 * Each position that occurs is computed once, so the cost does not grow with the batch. */
#include "positions.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static rd_code positions_infer(rd_call *c, rd_status *st)
{
    const rd_positions *a = c->attr;
    const rd_var *x = c->in[0];
    if (x->cols % 2 != 0 && a->layout != RD_SINUSOID_T2T)
        return rd_fail(st, RD_EBUG,
                       "positions: %" PRId64 " columns are odd, which this layout does not allow",
                       x->cols);
    for (int64_t i = 0; i < x->rows; i++)
        if (a->position[i] < 0)
            return rd_fail(st, RD_EBUG, "positions: row %" PRId64 " has position %" PRId64, i,
                           a->position[i]);
    c->out[0]->rows = x->rows;
    c->out[0]->cols = x->cols;
    return RD_OK;
}

static int positions_order(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void positions_columns(rd_sinusoid layout, int64_t d, double *rate, uint8_t *cosine)
{
    const int64_t half = d / 2;
    for (int64_t k = 0; k < d; k++) {
        const int64_t i = layout == RD_SINUSOID_PAIRS ? k / 2 : half > 0 ? k % half : 0;
        cosine[k] = layout == RD_SINUSOID_PAIRS ? k % 2 != 0 : k >= half;
        rate[k] = layout == RD_SINUSOID_T2T
                      ? exp(-(double)i * log(10000.0) / (double)(half > 1 ? half - 1 : 1))
                      : pow(10000.0, -2.0 * (double)i / (double)d);
    }
    /* The column behind the pairs is sin(0). */
    if (d % 2 != 0) rate[d - 1] = 0.0, cosine[d - 1] = 0;
}

rd_code rd_position_list(rd_call *c, rd_position_table *out, rd_status *st)
{
    const rd_positions *a = c->attr;
    const int64_t N = c->in[0]->rows, d = c->in[0]->cols;
    int64_t *list;
    int32_t *row;
    double *rate;
    uint8_t *cosine;
    RD_TRY(rd_arena_get(c->scratch, (size_t)(N + 1) * sizeof *list, &list, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(N + 1) * sizeof *row, &row, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(d + 1) * sizeof *rate, &rate, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(d + 1) * sizeof *cosine, &cosine, st));
    for (int64_t i = 0; i < N; i++) list[i] = a->position[i];
    qsort(list, (size_t)N, sizeof *list, positions_order);
    int64_t n = 0;
    for (int64_t i = 0; i < N; i++)
        if (n == 0 || list[i] != list[n - 1]) list[n++] = list[i];
    for (int64_t i = 0; i < N; i++) {
        const int64_t *at = bsearch(&a->position[i], list, (size_t)n, sizeof *list,
                                    positions_order);
        row[i] = (int32_t)(at - list);
    }
    positions_columns(a->layout, d, rate, cosine);
    *out = (rd_position_table){n, list, row, rate, cosine};
done:
    return st->code;
}

typedef struct positions_job {
    rd_position_table p;
    int64_t d;
    float scale;
    float *table; /* [p.n, d] */
    const float *x;
    float *y;
    bool add;
} positions_job;

static void positions_table_part(void *ctx, int64_t lo, int64_t hi)
{
    const positions_job *j = ctx;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t k = 0; k < j->d; k++) {
            const double angle = (double)j->p.position[i] * j->p.rate[k];
            j->table[i * j->d + k] = (float)(j->p.cosine[k] ? cos(angle) : sin(angle));
        }
}

static void positions_rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const positions_job *j = ctx;
    for (int64_t i = lo; i < hi; i++) {
        const float *restrict x = j->x + i * j->d, *restrict p = j->table +
                                                                 (int64_t)j->p.row[i] * j->d;
        float *restrict y = j->y + i * j->d;
        for (int64_t k = 0; k < j->d; k++) y[k] = j->scale * x[k] + p[k];
    }
}

static rd_code positions_forward(rd_call *c, rd_status *st)
{
    const rd_positions *a = c->attr;
    const rd_var *x = c->in[0];
    positions_job j = {.d = x->cols, .scale = a->scale, .x = x->v, .y = c->out[0]->v};
    RD_TRY(rd_position_list(c, &j.p, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(j.p.n * j.d + 1) * sizeof *j.table, &j.table, st));
    rd_parallel(c->be, j.p.n, 1, positions_table_part, &j);
    rd_parallel(c->be, x->rows, 8192 / (j.d + 1) + 1, positions_rows_part, &j);
done:
    return st->code;
}

static void positions_scale_part(void *ctx, int64_t lo, int64_t hi)
{
    const positions_job *j = ctx;
    const float *x = j->x;
    float *y = j->y;
    if (j->add)
        for (int64_t i = lo; i < hi; i++) y[i] += j->scale * x[i];
    else
        for (int64_t i = lo; i < hi; i++) y[i] = j->scale * x[i];
}

static rd_code positions_scale(rd_call *c, int64_t n, float scale, const float *x, float *y,
                               bool add, rd_status *st)
{
    positions_job j = {.scale = scale, .x = x, .y = y, .add = add};
    rd_parallel(c->be, n, 16384, positions_scale_part, &j);
    return st->code;
}

rd_code rd_positions_back(rd_call *c, rd_position_scale *pass, rd_status *st)
{
    const rd_var *y = c->out[0];
    const float scale = ((const rd_positions *)c->attr)->scale;
    float *dx = y->g;
    bool add = false;
    if (!rd_call_pass_grad(c, 0)) RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
    if (dx && (dx != y->g || scale != 1.0f))
        RD_TRY(pass(c, y->rows * y->cols, scale, y->g, dx, add, st));
done:
    return st->code;
}

static rd_code positions_backward(rd_call *c, rd_status *st)
{
    return rd_positions_back(c, positions_scale, st);
}

RD_OP(positions) = {
    .name = "positions",
    .about = "scaled rows, fixed positions",
    .infer = positions_infer,
    .kernel =
        {[RD_CPU] = {positions_forward, positions_backward}, [RD_GPU] = RD_GPU_KERNEL(positions)},
    .own_grads = true};

rd_var *rd_op_positions(rd_tape *t, const rd_positions *a, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_positions, a, sizeof *a, &x, 1, NULL, 1) : NULL;
}
