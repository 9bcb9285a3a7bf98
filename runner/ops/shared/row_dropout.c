/* row_dropout.c -- inverted dropout on packed rows: a mask is a function of (seed, epoch, site, sample, step, element), so
 * it does not depend on the rank that computes the sample, nor on its place in the batch. */
#include "cell.h"
#include "rd/philox.h"

typedef struct job {
    const rd_dropout *d;
    const rd_packing *p;
    rd_key key;
    int64_t t0, first, width;
    const float *x;
    float *y;
    uint8_t *mask;
} job;

static void rows_part(void *ctx, int64_t lo, int64_t hi)
{
    const job *j = ctx;
    const float scale = 1.0f / j->d->keep;
    int64_t t = j->t0;
    while (j->p->off[t + 1] - j->first <= lo) t++;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t row = i + j->first;
        while (j->p->off[t + 1] <= row) t++;
        uint8_t *restrict m = j->mask + i * j->width;
        rd_philox_keep(j->key, (uint64_t)j->p->sample[row - j->p->off[t]], (uint32_t)t, j->d->keep, j->width, m);
        const float *x = j->x + i * j->width;
        float *y = j->y + i * j->width;
        for (int64_t c = 0; c < j->width; c++) y[c] = m[c] ? x[c] * scale : 0.0f;
    }
}

void rd_dropout_rows(rd_backend *be, const rd_dropout *d, const rd_packing *p, int64_t t0, int64_t t1, int64_t width,
                     const float *x, float *y, uint8_t *mask)
{
    job j = {d, p, rd_key_make(d->seed, RD_RNG_DROPOUT, d->site, d->epoch), t0, p->off[t0], width, x, y, mask};
    rd_parallel(be, p->off[t1] - p->off[t0], 16, rows_part, &j);
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

void rd_dropout_back(rd_backend *be, float keep, int64_t n, const float *dy, const uint8_t *mask, float *dx, bool add)
{
    back_job j = {1.0f / keep, dy, mask, dx, add};
    rd_parallel(be, n, 8192, back_part, &j);
}

void rd_shift_rows(const rd_packing *p, int64_t width, const float *h, float *out)
{
    memset(out, 0, (size_t)(p->off[1] * width) * sizeof(float));
    for (int64_t t = 1; t < p->n_steps; t++)
        memcpy(out + p->off[t] * width, h + p->off[t - 1] * width,
               (size_t)((p->off[t + 1] - p->off[t]) * width) * sizeof(float));
}
