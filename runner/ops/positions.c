/* positions.c -- fixed positional encodings: y = scale x + P[position], dx += scale dy.
 *
 * Angles, sines and cosines are doubles: a float32 angle of position 10,000 is off by up to 5e-4.
 * Each position that occurs is computed once, so the cost does not grow with the batch. */
#include "positions.h"
#include <inttypes.h>
#include <math.h>

static rd_code positions_infer(rd_call *c, rd_status *st)
{
    const rd_positions *a = c->attr;
    const rd_var *x = c->in[0];
    if (x->cols % 2 != 0 && a->layout < RD_SINUSOID_T2T)
        return rd_fail(st, RD_EBUG,
                       "positions: the number of columns, %" PRId64
                       ", is odd, which this layout does not allow",
                       x->cols);
    for (int64_t i = 0; i < x->rows; i++)
        if (a->position[i] < 0)
            return rd_fail(st, RD_EBUG, "positions: row %" PRId64 " has position %" PRId64, i,
                           a->position[i]);
    c->out[0]->rows = x->rows;
    c->out[0]->cols = x->cols;
    c->out[0]->type = x->type;
    (void)rd_call_take_values(c, 0, false);
    return RD_OK;
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
        const float *x = j->x + i * j->d, *p = j->table + (int64_t)j->p.row[i] * j->d;
        float *y = j->y + i * j->d; /* may be x */
#pragma omp simd
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

static rd_code positions_scale(rd_call *c, int64_t n, float scale, const void *x, void *y, bool add,
                               rd_status *st)
{
    positions_job j = {.scale = scale, .x = x, .y = y, .add = add};
    rd_parallel(c->be, n, 16384, positions_scale_part, &j);
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
    .narrow = RD_NARROW(0),
    .own_grads = true,
    .reads_out = RD_READS_NOTHING};

rd_var *rd_op_positions(rd_tape *t, const rd_positions *a, rd_var *x)
{
    return x ? rd_tape_apply(t, &rd_op_def_positions, a, sizeof *a, &x, 1, NULL, 1) : NULL;
}
