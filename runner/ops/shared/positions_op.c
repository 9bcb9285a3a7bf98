/* positions_op.c -- functions that positions.c and positions.cu share; see positions.h. */
#include "../positions.h"
#include <math.h>
#include <stdlib.h>

static int positions_order(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void rd_sinusoid_columns(rd_sinusoid layout, int64_t d, double *rate, uint8_t *cosine)
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
    for (int64_t k = 0; k < d && layout == RD_SINUSOID_NONE; k++) rate[k] = 0.0, cosine[k] = 0;
}

rd_code rd_position_set_of(rd_arena *a, int64_t N, const int64_t *position, rd_position_set *out,
                           rd_status *st)
{
    int64_t *list, n = 0;
    int32_t *row;
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *list, &list, st));
    RD_TRY(rd_arena_get(a, (size_t)(N + 1) * sizeof *row, &row, st));
    for (int64_t i = 0; i < N; i++) list[i] = position[i];
    qsort(list, (size_t)N, sizeof *list, positions_order);
    for (int64_t i = 0; i < N; i++)
        if (n == 0 || list[i] != list[n - 1]) list[n++] = list[i];
    for (int64_t i = 0; i < N; i++) {
        const int64_t *at = bsearch(&position[i], list, (size_t)n, sizeof *list, positions_order);
        row[i] = (int32_t)(at - list);
    }
    *out = (rd_position_set){n, list, row};
done:
    return st->code;
}

rd_code rd_position_list(rd_call *c, rd_position_table *out, rd_status *st)
{
    const rd_positions *a = c->attr;
    const int64_t d = c->in[0]->cols;
    rd_position_set set;
    double *rate;
    uint8_t *cosine;
    RD_TRY(rd_position_set_of(c->scratch, c->in[0]->rows, a->position, &set, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(d + 1) * sizeof *rate, &rate, st));
    RD_TRY(rd_arena_get(c->scratch, (size_t)(d + 1) * sizeof *cosine, &cosine, st));
    rd_sinusoid_columns(a->layout, d, rate, cosine);
    *out = (rd_position_table){set.n, set.position, set.row, rate, cosine};
done:
    return st->code;
}

rd_code rd_positions_back(rd_call *c, rd_position_scale *pass, rd_status *st)
{
    const rd_var *y = c->out[0];
    const float scale = ((const rd_positions *)c->attr)->scale;
    void *dx = y->grads;
    bool add = false;
    if (!rd_call_pass_grad(c, 0)) RD_TRY(rd_call_grad(c, 0, &dx, &add, st));
    if (dx && (dx != y->grads || scale != 1.0f))
        RD_TRY(pass(c, y->rows * y->cols, scale, y->grads, dx, add, st));
done:
    return st->code;
}
