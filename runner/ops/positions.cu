/* positions.cu -- positions on a GPU: the formulas of positions.c, with sines in double. */
#include "../engine/gpu/rows_grid.h"
#include "positions.h"

static __global__ void position_table(int64_t n, int64_t d, const int64_t *__restrict__ position,
                                      const double *__restrict__ rate,
                                      const uint8_t *__restrict__ cosine, float *__restrict__ table)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(k, d)) {
            const double angle = (double)position[i] * rate[k];
            table[i * d + k] = (float)(cosine[k] ? cos(angle) : sin(angle));
        }
}

static __global__ void position_rows(int64_t n, int64_t d, float scale, const int32_t *row,
                                     const float *__restrict__ table, const float *__restrict__ x,
                                     float *__restrict__ y)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(k, d)) y[i * d + k] = scale * x[i * d + k] + table[row[i] * d + k];
}

/* y may be x. */
static __global__ void position_scaled(int64_t n, float scale, const float *x, float *y, bool add)
{
    for (RD_EACH(i, n)) y[i] = add ? y[i] + scale * x[i] : scale * x[i];
}

extern "C" rd_code rd_cuda_positions_forward(rd_call *c, rd_status *st)
{
    const rd_positions *a = static_cast<const rd_positions *>(c->attr);
    const rd_var *x = c->in[0];
    rd_gpu *gpu = rd_gpu_of(c->be);
    const int64_t N = x->rows, d = x->cols;
    rd_position_table p;
    const int64_t *position;
    const int32_t *row;
    const double *rate;
    const uint8_t *cosine;
    float *table;
    if (N == 0 || d == 0) return RD_OK;
    RD_TRY_OR_RETURN(rd_position_list(c, &p, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, p.position, (size_t)p.n * sizeof *position,
                                  &position, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, p.row, (size_t)N * sizeof *row, &row, st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, p.rate, (size_t)d * sizeof *rate, &rate,
                                  st));
    RD_TRY_OR_RETURN(rd_call_lend(c, c->device_scratch, p.cosine, (size_t)d * sizeof *cosine,
                                  &cosine, st));
    RD_TRY_OR_RETURN(rd_arena_get(c->device_scratch, (size_t)(p.n * d) * sizeof *table, &table,
                                  st));
    RD_TRY_OR_RETURN(RD_LAUNCH(gpu, st, position_table, rd_rows_grid(p.n, d), rd_rows_block(d), 0,
                               p.n, d, position, rate, cosine, table));
    return RD_LAUNCH(gpu, st, position_rows, rd_rows_grid(N, d), rd_rows_block(d), 0, N, d,
                     a->scale, row, table, x->v, c->out[0]->v);
}

static rd_code position_scale(rd_call *c, int64_t n, float scale, const float *x, float *y,
                              bool add, rd_status *st)
{
    return RD_LAUNCH(rd_gpu_of(c->be), st, position_scaled, rd_grid(n), RD_BLOCK, 0, n, scale, x, y,
                     add);
}

extern "C" rd_code rd_cuda_positions_backward(rd_call *c, rd_status *st)
{
    return rd_positions_back(c, position_scale, st);
}
