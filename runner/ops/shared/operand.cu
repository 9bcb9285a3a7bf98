/* operand.cu -- the kernels of operand.h. */
#include "operand.h"
#include "../../engine/gpu/element_device.h"
#include "../../engine/gpu/rows_grid.h"

/* ---- rows of float32 ---- */

/* A thread writes V neighbouring numbers. Widths are counted in V. */
template <int V, typename T>
static __global__ void operand_rows(int64_t rows, int64_t width, const float *__restrict__ x,
                                    const uint8_t *__restrict__ mask, int64_t ld_mask, float keep,
                                    T *__restrict__ to, int64_t ld)
{
    const float scale = 1.0f / keep;
    for (RD_EACH_ROW(i, rows))
        for (RD_EACH_COLUMN(q, width)) {
            rd_lanes<V> v = rd_lanes_get<V>(x + (i * width + q) * V);
#pragma unroll
            for (int k = 0; k < V; k++)
                if (mask) v.at[k] = mask[i * ld_mask + q * V + k] ? v.at[k] * scale : 0.0f;
            rd_lanes_put<V>(to + i * ld + q * V, v);
        }
}

template <int V, typename T>
static rd_code operand_rows_by(rd_gpu *g, int64_t rows, int64_t width, const float *x,
                               const uint8_t *mask, int64_t ld_mask, float keep, rd_gpu_operand to,
                               rd_status *st)
{
    return RD_LAUNCH(g, st, (operand_rows<V, T>), rd_rows_grid(rows, width / V),
                     rd_rows_block(width / V), 0, rows, width / V, x, mask, ld_mask, keep,
                     static_cast<T *>(to.at), to.ld);
}

rd_code rd_operand_rows(rd_gpu *g, int64_t rows, int64_t width, const float *x, const uint8_t *mask,
                        int64_t ld_mask, float keep, rd_gpu_operand to, rd_status *st)
{
    if (width % 8 == 0 && to.ld % 8 == 0 && rd_by_four(x) && rd_by_four(to.at))
        RD_BY_ELEMENT(to.type,
                      (operand_rows_by<8, T>(g, rows, width, x, mask, ld_mask, keep, to, st)));
    else
        RD_BY_ELEMENT(to.type,
                      (operand_rows_by<1, T>(g, rows, width, x, mask, ld_mask, keep, to, st)));
    return st->code;
}

/* ---- sums of columns: first of slices of rows, then of the slices, in their order ---- */
enum {
    LANES = 32,
    DEEP = RD_BLOCK / LANES,
    LEAST = 64, /* smallest number of rows of a slice */
    SLICES = 64 /* largest number of slices */
};

/* A thread adds V neighbouring columns. Widths are counted in V. */
template <int V, typename T>
static __global__ void column_slices(int64_t N, int64_t per, int64_t width, const T *__restrict__ z,
                                     int64_t ld, float *sum, bool add)
{
    __shared__ rd_lanes<V> part[DEEP][LANES];
    const int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x, lo = (int64_t)blockIdx.y * per,
                  hi = lo + per < N ? lo + per : N;
    rd_lanes<V> s = {};
    if (col < width)
        for (int64_t i = lo + threadIdx.y; i < hi; i += DEEP) {
            const rd_lanes<V> x = rd_lanes_get<V>(z + i * ld + col * V);
#pragma unroll
            for (int j = 0; j < V; j++) s.at[j] += x.at[j];
        }
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y > 0 || col >= width) return;
    for (int k = 1; k < DEEP; k++)
        for (int j = 0; j < V; j++) s.at[j] += part[k][threadIdx.x].at[j];
    float *to = sum + ((int64_t)blockIdx.y * width + col) * V;
    for (int j = 0; j < V; j++) to[j] = add ? to[j] + s.at[j] : s.at[j];
}

static __global__ void columns_add_slices(int64_t n, int64_t width, const float *__restrict__ part,
                                          float *__restrict__ sum)
{
    for (RD_EACH(j, width)) {
        float s = 0.0f;
        for (int64_t i = 0; i < n; i++) s += part[i * width + j];
        sum[j] += s;
    }
}

template <int V, typename T>
static rd_code column_slices_by(rd_gpu *g, int64_t N, int64_t per, int64_t n, int64_t width,
                                const rd_gpu_operand &z, float *part, rd_status *st)
{
    return RD_LAUNCH(g, st, (column_slices<V, T>),
                     dim3((unsigned)((width / V + LANES - 1) / LANES), (unsigned)n),
                     dim3(LANES, DEEP), 0, N, per, width / V, static_cast<const T *>(z.at), z.ld,
                     part, n == 1);
}

rd_code rd_operand_add_columns(rd_gpu *g, rd_arena *scratch, int64_t rows, int64_t width,
                               rd_gpu_operand z, float *sum, rd_status *st)
{
    if (rows <= 0 || width <= 0) return RD_OK;
    const int64_t even = (rows + SLICES - 1) / SLICES, per = even < LEAST ? (int64_t)LEAST : even,
                  n = (rows + per - 1) / per;
    const rd_mark mark = rd_arena_mark(scratch);
    float *part = sum;
    if (n > 1)
        RD_TRY_OR_RETURN(rd_arena_get(scratch, (size_t)(n * width) * sizeof *part, &part, st));
    if (width % 4 == 0 && z.ld % 4 == 0 && rd_by_four(z.at) && rd_by_four(part))
        RD_BY_ELEMENT(z.type, (column_slices_by<4, T>(g, rows, per, n, width, z, part, st)));
    else
        RD_BY_ELEMENT(z.type, (column_slices_by<1, T>(g, rows, per, n, width, z, part, st)));
    if (n > 1)
        RD_TRY_OR_RETURN(RD_LAUNCH(g, st, columns_add_slices, rd_grid(width), RD_BLOCK, 0, n, width,
                                   part, sum));
    rd_arena_rewind(scratch, mark);
    return RD_OK;
}
