/* rows_grid.h -- grids for kernels over (rows, columns).
 *
 * Neighbouring threads work on neighbouring columns. A block has as many rows as fit beside its
 * columns. A thread may visit several rows and columns: RD_EACH_ROW and RD_EACH_COLUMN are
 * grid-stride loops. */
#ifndef RD_ROWS_GRID_H
#define RD_ROWS_GRID_H

#include "kernel.h"

static inline dim3 rd_rows_block(int64_t columns)
{
    unsigned x = 1;
    while (x < RD_BLOCK && x < columns) x *= 2;
    return dim3(x, RD_BLOCK / x);
}
/* Returns a grid of such blocks; empty if there are no rows or no columns. */
static inline dim3 rd_rows_grid(int64_t rows, int64_t columns)
{
    const dim3 b = rd_rows_block(columns);
    const int64_t x = (columns + b.x - 1) / b.x, y = (rows + b.y - 1) / b.y;
    return dim3((unsigned)(x < 4096 ? x : 4096), (unsigned)(y < 32768 ? y : 32768));
}
#define RD_EACH_ROW(i, n)                                       \
    int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; \
    i < (n);                                                    \
    i += (int64_t)gridDim.y * blockDim.y
#define RD_EACH_COLUMN(j, n) RD_EACH(j, n)

/* Returns whether kernels may read and write four floats of this array at a time. */
static inline bool rd_by_four(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

#endif
