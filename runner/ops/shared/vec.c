/* vec.c -- see vec.h. */
#include "vec.h"
#include "vec_kernels.h"
#include <string.h>

rd_code rd_vec_zero(rd_backend *be, int64_t n, float *y, rd_status *st)
{
    if (n <= 0) return RD_OK;
    if (rd_backend_gpu(be)) return rd_gpu_zero(rd_backend_gpu(be), y, (size_t)n * sizeof *y, st);
    memset(y, 0, (size_t)n * sizeof *y);
    return RD_OK;
}

rd_code rd_vec_copy(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st)
{
    if (n <= 0) return RD_OK;
    if (rd_backend_gpu(be)) return rd_gpu_copy(rd_backend_gpu(be), y, x, (size_t)n * sizeof *y, st);
    memcpy(y, x, (size_t)n * sizeof *y);
    return RD_OK;
}

rd_code rd_vec_add(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st)
{
    if (rd_backend_gpu(be)) return rd_cuda_vec_sum(rd_backend_gpu(be), n, y, x, y, st);
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
    return RD_OK;
}

rd_code rd_vec_sum(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                   rd_status *st)
{
    if (rd_backend_gpu(be)) return rd_cuda_vec_sum(rd_backend_gpu(be), n, a, b, y, st);
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    return RD_OK;
}

rd_code rd_rows_copy(rd_backend *be, int64_t rows, int64_t width, const float *from,
                     int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st)
{
    if (rd_backend_gpu(be))
        return rd_cuda_rows_copy(rd_backend_gpu(be), rows, width, from, ld_from, to, ld_to, add,
                                 st);
    for (int64_t i = 0; i < rows; i++) {
        const float *x = from + i * ld_from;
        float *y = to + i * ld_to;
        if (add)
            for (int64_t j = 0; j < width; j++) y[j] += x[j];
        else
            memcpy(y, x, (size_t)width * sizeof *y);
    }
    return RD_OK;
}

rd_code rd_rows_gather(rd_backend *be, int64_t rows, int64_t width, const float *from,
                       const int64_t *row, float *to, rd_status *st)
{
    if (rd_backend_gpu(be))
        return rd_cuda_rows_move(rd_backend_gpu(be), rows, width, from, row, to, NULL, st);
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * width, from + row[i] * width, (size_t)width * sizeof *to);
    return RD_OK;
}

rd_code rd_rows_scatter(rd_backend *be, int64_t rows, int64_t width, const float *from,
                        const int64_t *row, float *to, rd_status *st)
{
    if (rd_backend_gpu(be))
        return rd_cuda_rows_move(rd_backend_gpu(be), rows, width, from, NULL, to, row, st);
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + row[i] * width, from + i * width, (size_t)width * sizeof *to);
    return RD_OK;
}

rd_code rd_add_bias(rd_backend *be, int64_t N, int64_t width, const float *b, float *y,
                    rd_status *st)
{
    if (rd_backend_gpu(be)) return rd_cuda_add_bias(rd_backend_gpu(be), N, width, b, y, st);
    for (int64_t i = 0; i < N; i++) {
        float *restrict row = y + i * width;
        for (int64_t j = 0; j < width; j++) row[j] += b[j];
    }
    return RD_OK;
}

typedef struct columns {
    int64_t N, ld;
    const float *dz;
    float *g;
} columns;

static void columns_part(void *ctx, int64_t lo, int64_t hi)
{
    const columns *c = ctx;
    for (int64_t i = 0; i < c->N; i++) {
        const float *restrict z = c->dz + i * c->ld;
        float *restrict g = c->g;
        for (int64_t j = lo; j < hi; j++) g[j] += z[j];
    }
}

rd_code rd_add_columns(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width, const float *dz,
                       int64_t ld, float *g, rd_status *st)
{
    if (!g) return RD_OK;
    if (rd_backend_gpu(be))
        return rd_cuda_add_columns(rd_backend_gpu(be), scratch, N, width, dz, ld, g, st);
    columns c = {N, ld, dz, g};
    rd_parallel(be, width, 256, columns_part, &c);
    return RD_OK;
}
