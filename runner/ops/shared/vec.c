/* vec.c -- the functions of vec.h on a CPU, and the choice between backends. */
#include "rd/vec.h"
#include "rd/vecmath.h"
#include <string.h>

rd_code rd_vec_zero(rd_backend *be, int64_t n, float *y, rd_status *st)
{
    if (n <= 0) return RD_OK;
    return rd_backend_zero(be, y, (size_t)n * sizeof *y, st);
}

rd_code rd_vec_copy(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st)
{
    if (n <= 0) return RD_OK;
    return rd_backend_copy(be, y, x, (size_t)n * sizeof *y, st);
}

static rd_code cpu_vec_add(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st)
{
    (void)be, (void)st;
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
    return RD_OK;
}

static rd_code cpu_vec_sum(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                           rd_status *st)
{
    (void)be, (void)st;
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    return RD_OK;
}

static rd_code cpu_vec_softcap(rd_backend *be, int64_t n, float c, float *x, rd_status *st)
{
    const float inv = 1.0f / c;
    (void)be, (void)st;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = c * rd_tanhf(x[i] * inv);
    return RD_OK;
}

static rd_code cpu_rows_copy(rd_backend *be, int64_t rows, int64_t width, const float *from,
                             int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st)
{
    (void)be, (void)st;
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

static rd_code cpu_add_bias(rd_backend *be, int64_t N, int64_t width, const float *b, void *y,
                            rd_element type, rd_status *st)
{
    (void)be, (void)type, (void)st;
    for (int64_t i = 0; i < N; i++) {
        float *restrict row = (float *)y + i * width;
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

static rd_code cpu_add_columns(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width,
                               const void *dz, rd_element type, int64_t ld, float *g, rd_status *st)
{
    (void)scratch, (void)type, (void)st;
    columns c = {N, ld, dz, g};
    rd_parallel(be, width, 256, columns_part, &c);
    return RD_OK;
}

static const rd_vec_kernels cpu_vec = {cpu_vec_add,   cpu_vec_sum,  cpu_vec_softcap,
                                       cpu_rows_copy, cpu_add_bias, cpu_add_columns};
static const rd_vec_kernels *const vec_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_vec, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_vec)};

static const rd_vec_kernels *vec_kernels_of(const rd_backend *be)
{
    return vec_kernels[rd_backend_kind_of(be)];
}

rd_code rd_vec_add(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st)
{
    return vec_kernels_of(be)->add(be, n, x, y, st);
}

rd_code rd_vec_sum(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                   rd_status *st)
{
    return vec_kernels_of(be)->sum(be, n, a, b, y, st);
}

rd_code rd_vec_softcap(rd_backend *be, int64_t n, float c, float *x, rd_status *st)
{
    return vec_kernels_of(be)->softcap(be, n, c, x, st);
}

rd_code rd_rows_copy(rd_backend *be, int64_t rows, int64_t width, const float *from,
                     int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st)
{
    return vec_kernels_of(be)->rows_copy(be, rows, width, from, ld_from, to, ld_to, add, st);
}

rd_code rd_add_bias(rd_backend *be, int64_t N, int64_t width, const float *b, float *y,
                    rd_status *st)
{
    return rd_add_bias_to(be, N, width, b, y, RD_FLOAT32, st);
}

rd_code rd_add_bias_to(rd_backend *be, int64_t N, int64_t width, const float *b, void *y,
                       rd_element type, rd_status *st)
{
    return vec_kernels_of(be)->add_bias(be, N, width, b, y, type, st);
}

rd_code rd_add_columns(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width, const float *dz,
                       int64_t ld, float *g, rd_status *st)
{
    return rd_add_columns_of(be, scratch, N, width, dz, RD_FLOAT32, ld, g, st);
}

rd_code rd_add_columns_of(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width,
                          const void *dz, rd_element type, int64_t ld, float *g, rd_status *st)
{
    return g ? vec_kernels_of(be)->add_columns(be, scratch, N, width, dz, type, ld, g, st) : RD_OK;
}
