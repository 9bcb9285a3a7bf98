/* positions.cu -- positions on a GPU: the formulas of positions.c, with sines in double. */
#include "../engine/gpu/element_device.h"
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

template <typename T>
static __global__ void position_rows(int64_t n, int64_t d, float scale, const int32_t *row,
                                     const float *__restrict__ table, const T *__restrict__ x,
                                     T *__restrict__ y)
{
    for (RD_EACH_ROW(i, n))
        for (RD_EACH_COLUMN(k, d))
            rd_put(y + i * d + k, scale * rd_get(x + i * d + k) + table[row[i] * d + k]);
}

/* y may be x. */
template <typename T>
static __global__ void position_scaled(int64_t n, float scale, const T *x, T *y, bool add)
{
    for (RD_EACH(i, n)) {
        const float v = scale * rd_get(x + i);
        rd_put(y + i, add ? rd_get(y + i) + v : v);
    }
}

template <typename T>
static rd_code position_rows_launch(rd_call *c, const int32_t *row, const float *table,
                                    rd_status *st)
{
    const rd_var *x = c->in[0];
    const float scale = static_cast<const rd_positions *>(c->attr)->scale;
    return RD_LAUNCH(rd_gpu_of(c->be), st, position_rows<T>, rd_rows_grid(x->rows, x->cols),
                     rd_rows_block(x->cols), 0, x->rows, x->cols, scale, row, table,
                     static_cast<const T *>(x->values), static_cast<T *>(c->out[0]->values));
}

extern "C" rd_code rd_cuda_positions_forward(rd_call *c, rd_status *st)
{
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
    RD_BY_ELEMENT(x->type, (position_rows_launch<T>(c, row, table, st)));
    return RD_OK;
}

static rd_code position_scale(rd_call *c, int64_t n, float scale, const void *x, void *y, bool add,
                              rd_status *st)
{
    RD_BY_ELEMENT(c->in[0]->type,
                  (RD_LAUNCH(rd_gpu_of(c->be), st, position_scaled<T>, rd_grid(n), RD_BLOCK, 0, n,
                             scale, static_cast<const T *>(x), static_cast<T *>(y), add)));
    return RD_OK;
}

extern "C" rd_code rd_cuda_positions_backward(rd_call *c, rd_status *st)
{
    return rd_positions_back(c, position_scale, st);
}
