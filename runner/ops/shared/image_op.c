/* image_op.c -- the functions of image_op.h on a CPU, and the choice between backends. */
#include "image_op.h"
#include <inttypes.h>
#include <string.h>

enum { GRAIN = 16384 };

int64_t rd_op_elements(const rd_var *x)
{
    if (!x->layout) return x->rows * x->cols;
    const rd_image_view v = rd_image_view_of(x);
    return v.n * v.sample;
}

rd_code rd_op_image_check(const char *op, const rd_var *x, rd_status *st)
{
    if (rd_image_is(x)) return RD_OK;
    return rd_fail(st, RD_EBUG, "%s: a matrix of %" PRId64 "x%" PRId64 " is not an image", op,
                   x->rows, x->cols);
}

void rd_op_like(rd_var *out, const rd_var *x)
{
    out->rows = x->rows;
    out->cols = x->cols;
    out->n_dim = x->n_dim;
    for (int i = 0; i < x->n_dim; i++) out->dim[i] = x->dim[i];
    out->layout = x->layout;
    out->type = x->type;
}

typedef struct image_op_job {
    const float *y, *g;
    float *out;
    bool add;
} image_op_job;

static void mask_part(void *ctx, int64_t lo, int64_t hi)
{
    const image_op_job *j = ctx;
    const float *restrict y = j->y;
    float *restrict g = j->out;
    for (int64_t i = lo; i < hi; i++) g[i] = y[i] > 0.0f ? g[i] : 0.0f;
}

static void masked_part(void *ctx, int64_t lo, int64_t hi)
{
    const image_op_job *j = ctx;
    const float *restrict y = j->y, *restrict g = j->g;
    float *restrict out = j->out;
    if (j->add)
        for (int64_t i = lo; i < hi; i++) out[i] += y[i] > 0.0f ? g[i] : 0.0f;
    else
        for (int64_t i = lo; i < hi; i++) out[i] = y[i] > 0.0f ? g[i] : 0.0f;
}

static void copy_part(void *ctx, int64_t lo, int64_t hi)
{
    const image_op_job *j = ctx;
    const float *g = j->g; /* out may be g: add(x, x) */
    float *out = j->out;
    if (j->add)
        for (int64_t i = lo; i < hi; i++) out[i] += g[i];
    else
        memcpy(out + lo, g + lo, (size_t)(hi - lo) * sizeof(float));
}

typedef struct sum_job {
    const float *a, *b;
    float *y;
    bool relu;
} sum_job;

static void sum_part(void *ctx, int64_t lo, int64_t hi)
{
    const sum_job *j = ctx;
    const float *a = j->a, *b = j->b;
    float *restrict y = j->y;
    if (j->relu)
        for (int64_t i = lo; i < hi; i++) {
            const float s = a[i] + b[i];
            y[i] = s < 0.0f ? 0.0f : s;
        }
    else
        for (int64_t i = lo; i < hi; i++) y[i] = a[i] + b[i];
}

static void rectify_part(void *ctx, int64_t lo, int64_t hi)
{
    const sum_job *j = ctx;
    const float *x = j->a; /* y may be x */
    float *y = j->y;
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static rd_code cpu_rectify(rd_backend *be, rd_element type, int64_t n, const void *x, void *y,
                           rd_status *st)
{
    sum_job j = {x, NULL, y, true};
    (void)type;
    rd_parallel(be, n, GRAIN, rectify_part, &j);
    return st->code;
}

static rd_code cpu_sum(rd_backend *be, rd_element type, int64_t n, const void *a, const void *b,
                       bool relu, void *y, rd_status *st)
{
    sum_job j = {a, b, y, relu};
    (void)type;
    rd_parallel(be, n, GRAIN, sum_part, &j);
    return st->code;
}

static rd_code cpu_mask(rd_backend *be, rd_element type, int64_t n, const void *y, void *g,
                        rd_status *st)
{
    image_op_job j = {y, NULL, g, false};
    (void)type;
    rd_parallel(be, n, GRAIN, mask_part, &j);
    return st->code;
}

static rd_code cpu_masked(rd_backend *be, rd_element type, int64_t n, const void *y, const void *g,
                          void *out, bool add, rd_status *st)
{
    image_op_job j = {y, g, out, add};
    (void)type;
    rd_parallel(be, n, GRAIN, masked_part, &j);
    return st->code;
}

static rd_code cpu_copy(rd_backend *be, rd_element type, int64_t n, const void *x, void *out,
                        bool add, rd_status *st)
{
    image_op_job j = {NULL, x, out, add};
    (void)type;
    rd_parallel(be, n, GRAIN, copy_part, &j);
    return st->code;
}

static const rd_element_kernels cpu_elements = {cpu_rectify, cpu_sum, cpu_mask, cpu_masked,
                                                cpu_copy};
static const rd_element_kernels *const element_kernels[RD_BACKENDS] = {
    [RD_CPU] = &cpu_elements, [RD_GPU] = RD_GPU_ENTRY(&rd_cuda_elements)};

static const rd_element_kernels *element_kernels_of(const rd_backend *be)
{
    return element_kernels[rd_backend_kind_of(be)];
}

rd_code rd_op_rectify(rd_backend *be, rd_element type, int64_t n, const void *x, void *y,
                      rd_status *st)
{
    return element_kernels_of(be)->rectify(be, type, n, x, y, st);
}

rd_code rd_op_sum(rd_backend *be, rd_element type, int64_t n, const void *a, const void *b,
                  bool relu, void *y, rd_status *st)
{
    return element_kernels_of(be)->sum(be, type, n, a, b, relu, y, st);
}

rd_code rd_op_mask(rd_backend *be, rd_element type, int64_t n, const void *y, void *g,
                   rd_status *st)
{
    return element_kernels_of(be)->mask(be, type, n, y, g, st);
}

rd_code rd_op_masked(rd_backend *be, rd_element type, int64_t n, const void *y, const void *g,
                     void *out, bool add, rd_status *st)
{
    return element_kernels_of(be)->masked(be, type, n, y, g, out, add, st);
}

rd_code rd_op_copy(rd_backend *be, rd_element type, int64_t n, const void *x, void *out, bool add,
                   rd_status *st)
{
    return element_kernels_of(be)->copy(be, type, n, x, out, add, st);
}

rd_code rd_op_in_order(rd_arena *a, const rd_var *like, const rd_var *x, const float **v,
                       rd_status *st)
{
    const rd_image_view to = rd_image_view_of(like), from = rd_image_view_of(x);
    float *copy;
    *v = x->v;
    if (x->layout == like->layout) return RD_OK;
    if (x->layout && like->layout)
        return rd_fail(st, RD_EBUG, "two images have different blocked orders");
    RD_TRY(rd_arena_get(a, (size_t)(to.n * to.sample) * sizeof(float), &copy, st));
    for (int64_t i = 0; i < to.n; i++)
        if (like->layout)
            rd_image_from_nhwc(&to, x->v + i * from.sample, copy + i * to.sample, false);
        else
            rd_image_to_nhwc(&from, x->v + i * from.sample, copy + i * to.sample, false);
    *v = copy;
done:
    return st->code;
}

rd_code rd_op_to_order(const rd_var *like, const rd_var *x, const float *g, float *out, bool add,
                       rd_status *st)
{
    const rd_image_view from = rd_image_view_of(like), to = rd_image_view_of(x);
    if (x->layout && like->layout)
        return rd_fail(st, RD_EBUG, "two images have different blocked orders");
    for (int64_t i = 0; i < to.n; i++)
        if (like->layout)
            rd_image_to_nhwc(&from, g + i * from.sample, out + i * to.sample, add);
        else
            rd_image_from_nhwc(&to, g + i * from.sample, out + i * to.sample, add);
    return st->code;
}
