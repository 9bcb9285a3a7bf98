/* pick_rows.c -- picks rows by index on a CPU, and chooses between this file and pick_rows.cu. */
#include "pick_rows.h"
#include <string.h>

static rd_code cpu_pick(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                        rd_status *st)
{
    (void)be;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < n_parts; k++) {
            const int64_t width = part[k].width, row = part[k].row[i];
            if (row < 0)
                memset(y, 0, (size_t)width * sizeof *y);
            else
                memcpy(y, part[k].x + row * width, (size_t)width * sizeof *y);
            y += width;
        }
    return st->code;
}

typedef struct add_picked_job {
    int64_t n, width, ld;
    const int32_t *row;
    const float *d;
    float *g;
} add_picked_job;

/* Each thread has a range of columns, so the sums are the same for every number of threads. */
static void add_picked_part(void *ctx, int64_t lo, int64_t hi)
{
    const add_picked_job *j = ctx;
    for (int64_t i = 0; i < j->n; i++) {
        if (j->row[i] < 0) continue;
        float *restrict g = j->g + j->row[i] * j->width;
        const float *restrict d = j->d + i * j->ld;
        for (int64_t c = lo; c < hi; c++) g[c] += d[c];
    }
}

static rd_code cpu_add(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                       int64_t n_rows, int64_t width, const float *d, int64_t ld, float *g,
                       rd_status *st)
{
    add_picked_job j = {n, width, ld, row, d, g};
    (void)lent, (void)n_rows;
    rd_parallel(c->be, width, 64, add_picked_part, &j);
    return st->code;
}

static const rd_pick_kernels cpu_kernels = {cpu_pick, cpu_add};
static const rd_pick_kernels *const pick_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_kernels, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_pick)};

rd_code rd_rows_pick(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                     rd_status *st)
{
    return pick_kernels[rd_backend_kind_of(be)]->pick(be, n_parts, part, n, y, st);
}

rd_code rd_add_picked(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                      int64_t n_rows, int64_t width, const float *d, int64_t ld, float *g,
                      rd_status *st)
{
    return pick_kernels[rd_backend_kind_of(c->be)]->add(c, n, row, lent, n_rows, width, d, ld, g,
                                                        st);
}
