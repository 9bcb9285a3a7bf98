/* layer_rows.c -- the passes of layer_rows.h on a CPU. A piece of work is some rows, which stay in
 * the cache from loop to loop. */
#include "layer_rows.h"

/* Computes y = dropout(x) + plus, element by element. mask NULL: no dropout. plus NULL: no sum. */
static void layer_rows_drop_add(int64_t n, const uint8_t *mask, float keep, const float *x,
                                const float *plus, float *y)
{
    const float scale = 1.0f / keep;
    if (mask && plus)
        for (int64_t i = 0; i < n; i++) y[i] = (mask[i] ? x[i] * scale : 0.0f) + plus[i];
    else if (mask)
        for (int64_t i = 0; i < n; i++) y[i] = mask[i] ? x[i] * scale : 0.0f;
    else if (plus)
        for (int64_t i = 0; i < n; i++) y[i] = x[i] + plus[i];
    else if (y != x)
        for (int64_t i = 0; i < n; i++) y[i] = x[i];
}

static int64_t grain(int64_t width)
{
    return 8192 / (width + 1) + 1;
}

static void forward_rows(void *ctx, int64_t lo, int64_t hi)
{
    const rd_between *r = ctx;
    const int64_t at = lo * r->width, n = (hi - lo) * r->width;
    const float *y = r->h + at;
    if (r->bias)
        for (int64_t row = lo; row < hi; row++)
            layer_rows_drop_add(r->width, NULL, 1.0f, r->h + row * r->width, r->bias,
                                r->y + row * r->width);
    if (r->y) {
        layer_rows_drop_add(n, r->mask_out ? r->mask_out + at : NULL, r->keep_out,
                            r->bias ? r->y + at : y, r->skip ? r->skip + at : NULL, r->y + at);
        y = r->y + at;
    }
    if (r->next)
        layer_rows_drop_add(n, r->mask_in ? r->mask_in + at : NULL, r->keep_in, y, NULL,
                            r->next + at);
}

static rd_code cpu_between(rd_backend *be, const rd_between *r, rd_status *st)
{
    (void)st;
    rd_between job = *r;
    rd_parallel(be, r->n, grain(r->width), forward_rows, &job);
    return RD_OK;
}

static void layer_rows_back_rows(void *ctx, int64_t lo, int64_t hi)
{
    const rd_between_back *r = ctx;
    const int64_t at = lo * r->width, n = (hi - lo) * r->width,
                  last = hi < r->n_later ? hi : r->n_later;
    float *dy = (r->dy ? r->dy : r->dh) + at;
    layer_rows_drop_add(n, r->mask_in ? r->mask_in + at : NULL, r->keep_in, r->dnext + at,
                        r->dskip ? r->dskip + at : NULL, dy);
    if (!r->dh) return;
    layer_rows_drop_add(n, r->mask_out ? r->mask_out + at : NULL, r->keep_out, dy, NULL,
                        r->dh + at);
    if (last > lo)
        layer_rows_drop_add((last - lo) * r->width, NULL, 1.0f, r->dh + at, r->dh_later + at,
                            r->dh + at);
}

static rd_code cpu_between_back(rd_backend *be, const rd_between_back *r, rd_status *st)
{
    (void)st;
    rd_between_back job = *r;
    rd_parallel(be, r->n, grain(r->width), layer_rows_back_rows, &job);
    return RD_OK;
}

static const rd_between_kernels cpu_kernels = {cpu_between, cpu_between_back};
static const rd_between_kernels *const between_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_kernels, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_between)};

rd_code rd_between_layers(rd_backend *be, const rd_between *r, rd_status *st)
{
    return between_kernels[rd_backend_kind_of(be)]->forward(be, r, st);
}

rd_code rd_between_layers_back(rd_backend *be, const rd_between_back *r, rd_status *st)
{
    return between_kernels[rd_backend_kind_of(be)]->back(be, r, st);
}
