/* row_dropout.c -- inverted dropout on packed rows. A mask is a function of (seed, epoch, site,
 * sample, step, element). It does not depend on the rank that computes the sample, nor on the
 * sample's position in the batch. */
#include "cell_kernels.h"

typedef struct row_dropout_job {
    rd_mask_rows m;
    const float *x, *residual;
    float *y;
    uint8_t *mask;
} row_dropout_job;

static void row_dropout_rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const row_dropout_job *j = ctx;
    const int64_t width = j->m.width;
    const float scale = 1.0f / j->m.keep;
    int64_t t = j->m.t0;
    while (j->m.off[t + 1] - j->m.first <= lo) t++;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t row = i + j->m.first;
        while (j->m.off[t + 1] <= row) t++;
        uint8_t *restrict m = j->mask + i * width;
        rd_philox_keep(j->m.key, (uint64_t)j->m.sample[row - j->m.off[t]], (uint32_t)t, j->m.keep,
                       width, m);
        if (!j->y) continue;
        const float *x = j->x + i * width;
        float *y = j->y + i * width;
        for (int64_t c = 0; c < width; c++) y[c] = m[c] ? x[c] * scale : 0.0f;
        if (!j->residual) continue;
        for (int64_t c = 0; c < width; c++) y[c] += j->residual[i * width + c];
    }
}

static rd_code cpu_dropout_rows(rd_backend *be, const rd_mask_rows *m, const float *x,
                                const float *residual, float *y, uint8_t *mask, rd_status *st)
{
    row_dropout_job j = {*m, x, residual, y, mask};
    (void)st;
    rd_parallel(be, m->n, 16, row_dropout_rows_part, &j);
    return RD_OK;
}

typedef struct back_job {
    float scale;
    const float *dy;
    const uint8_t *mask;
    float *dx;
    bool add;
} back_job;

static void back_part(void *ctx, int64_t lo, int64_t hi)
{
    const back_job *j = ctx;
    const float s = j->scale;
    if (j->add)
        for (int64_t i = lo; i < hi; i++) j->dx[i] += j->mask[i] ? j->dy[i] * s : 0.0f;
    else
        for (int64_t i = lo; i < hi; i++) j->dx[i] = j->mask[i] ? j->dy[i] * s : 0.0f;
}

static rd_code cpu_dropout_back(rd_backend *be, float scale, int64_t n, const float *dy,
                                const uint8_t *mask, float *dx, bool add, rd_status *st)
{
    back_job j = {scale, dy, mask, dx, add};
    (void)st;
    rd_parallel(be, n, 8192, back_part, &j);
    return RD_OK;
}

static rd_code cpu_shift_rows(rd_backend *be, const rd_packing_lent *p, int64_t width,
                              const float *h, float *out, rd_status *st)
{
    const int64_t *off = p->p->off, n_steps = p->p->n_steps;
    (void)be, (void)st;
    memset(out, 0, (size_t)(off[1] * width) * sizeof(float));
    for (int64_t t = 1; t < n_steps; t++)
        memcpy(out + off[t] * width, h + off[t - 1] * width,
               (size_t)((off[t + 1] - off[t]) * width) * sizeof(float));
    return RD_OK;
}

/* rd_packing_lend has already set the arrays of p. */
static rd_code cpu_lend(rd_call *c, const rd_packing *p, rd_arena *a, rd_packing_lent *out,
                        rd_status *st)
{
    (void)c, (void)p, (void)a, (void)out, (void)st;
    return RD_OK;
}

static const rd_row_kernels cpu_kernels = {cpu_lend, cpu_dropout_rows, cpu_dropout_back,
                                           cpu_shift_rows};
static const rd_row_kernels *const row_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_kernels, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_rows)};

static const rd_row_kernels *row_kernels_of(const rd_backend *be)
{
    return row_kernels[rd_backend_kind_of(be)];
}

rd_code rd_packing_lend(rd_call *c, const rd_packing *p, rd_arena *a, rd_packing_lent *out,
                        rd_status *st)
{
    *out = (rd_packing_lent){p, p->off, p->sample};
    return row_kernels_of(c->be)->lend(c, p, a, out, st);
}

rd_code rd_dropout_rows(rd_backend *be, const rd_dropout *d, const rd_packing_lent *p, int64_t t0,
                        int64_t t1, int64_t width, const float *x, const float *residual, float *y,
                        uint8_t *mask, rd_status *st)
{
    const int64_t first = p->p->off[t0], n = p->p->off[t1] - first;
    const rd_key key = rd_key_make(d->seed, RD_RNG_DROPOUT, d->site, d->epoch);
    const rd_mask_rows m = {p->off, p->sample, t0, t1, first, n, width, key, d->keep};
    return row_kernels_of(be)->dropout(be, &m, x, residual, y, mask, st);
}

rd_code rd_dropout_back(rd_backend *be, float keep, int64_t n, const float *dy, const uint8_t *mask,
                        float *dx, bool add, rd_status *st)
{
    return row_kernels_of(be)->dropout_back(be, 1.0f / keep, n, dy, mask, dx, add, st);
}

rd_code rd_shift_rows(rd_backend *be, const rd_packing_lent *p, int64_t width, const float *h,
                      float *out, rd_status *st)
{
    return row_kernels_of(be)->shift(be, p, width, h, out, st);
}
