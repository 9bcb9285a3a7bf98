/* gpu_backend.c -- the GPU's table of backend_impl.h, in builds with a GPU (CUDA=1 or
 * CUDA=emulated). Every entry calls gpu.h. */
#include "../backend_impl.h"
#include "gpu_rnn.h"
#include <stdio.h>
#include <stdlib.h>

bool rd_gpu_compiled(void)
{
    return true;
}

typedef struct gpu_backend {
    rd_backend base;
    rd_arena_source memory;
} gpu_backend;

static void gpu_free(rd_backend *b)
{
    free(b);
}

static rd_element gpu_activations(const rd_backend *b)
{
    return rd_gpu_narrow(b->gpu);
}

/* ---- memory ---- */

static void *memory_get(void *gpu, size_t bytes, rd_status *st)
{
    void *p;
    return rd_gpu_memory_new(gpu, bytes, &p, st) == RD_OK ? p : NULL;
}

static void memory_put(void *gpu, void *p)
{
    rd_gpu_memory_free(gpu, p);
}

static rd_code memory_zero(void *gpu, void *p, size_t bytes, rd_status *st)
{
    return rd_gpu_zero(gpu, p, bytes, st);
}

static const rd_arena_source *gpu_memory(rd_backend *b)
{
    return &((gpu_backend *)b)->memory;
}

static rd_code gpu_zero(rd_backend *b, void *p, size_t bytes, rd_status *st)
{
    return rd_gpu_zero(b->gpu, p, bytes, st);
}

static rd_code gpu_copy(rd_backend *b, void *to, const void *from, size_t bytes, rd_status *st)
{
    return rd_gpu_copy(b->gpu, to, from, bytes, st);
}

static rd_code gpu_upload(rd_backend *b, void *to, const void *host, size_t bytes, rd_status *st)
{
    return rd_gpu_upload(b->gpu, to, host, bytes, st);
}

static rd_code gpu_download(rd_backend *b, void *host, const void *from, size_t bytes,
                            rd_status *st)
{
    return rd_gpu_download(b->gpu, host, from, bytes, st);
}

static rd_code gpu_lend(rd_backend *b, rd_arena *a, const void *host, size_t bytes, size_t capacity,
                        void **out, rd_status *st)
{
    RD_TRY(rd_arena_get(a, capacity, out, st));
    RD_TRY(rd_gpu_upload(b->gpu, *out, host, bytes, st));
done:
    return st->code;
}

static rd_code gpu_read(rd_backend *b, rd_arena *scratch, int64_t n, const void *from,
                        rd_element type, float *out, rd_status *st)
{
    const rd_mark mark = rd_arena_mark(scratch);
    const size_t bytes = (size_t)n * sizeof *out;
    if (type != RD_FLOAT32) {
        float *wide;
        RD_TRY(rd_arena_get(scratch, bytes, &wide, st));
        RD_TRY(rd_gpu_cast(b->gpu, n, from, type, wide, RD_FLOAT32, false, st));
        from = wide;
    }
    RD_TRY(rd_gpu_download(b->gpu, out, from, bytes, st));
    rd_arena_rewind(scratch, mark);
done:
    return st->code;
}

static rd_code gpu_leaf(rd_backend *b, rd_params *ps, const rd_param *p, bool gradient, float **v,
                        float **g, rd_status *st)
{
    (void)b;
    RD_TRY(rd_params_sync_to_device(ps, RD_VALUES | (gradient ? RD_GRADS : 0), st));
    *v = rd_params_device_values(ps) + p->offset;
    if (gradient) *g = rd_params_device_grads(ps) + p->offset;
done:
    return st->code;
}

/* ---- products and elements ---- */

static rd_code gpu_gemm(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *A, int64_t lda, const float *B, int64_t ldb,
                        float beta, float *C, int64_t ldc, rd_status *st)
{
    return rd_gpu_gemm(b->gpu, ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, st);
}

static rd_code gpu_gemm_batched(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                                float alpha, const float *A, int64_t lda, int64_t stride_a,
                                const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                                int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st)
{
    return rd_gpu_gemm_batched(b->gpu, ta, tb, m, n, k, alpha, A, lda, stride_a, B, ldb, stride_b,
                               beta, C, ldc, stride_c, batch, st);
}

static rd_code gpu_product(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                           rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                           rd_status *st)
{
    return rd_gpu_product(b->gpu, ta, tb, m, n, k, A, B, beta, C, st);
}

static rd_code gpu_param_product(rd_backend *b, bool transposed, const rd_params *ps,
                                 const rd_leaf_rows *w, int64_t n, const float *x, float *y,
                                 bool add, rd_status *st)
{
    const int64_t in = transposed ? w->cols : w->rows, out = transposed ? w->rows : w->cols;
    (void)ps;
    return rd_gpu_gemm(b->gpu, false, transposed, n, out, in, 1.0f, x, in,
                       w->values + w->row0 * w->cols, w->cols, add, y, out, st);
}

static rd_code gpu_cast(rd_backend *b, int64_t n, const void *x, rd_element from, void *y,
                        rd_element to, bool add, rd_status *st)
{
    return rd_gpu_cast(b->gpu, n, x, from, y, to, add, st);
}

/* ---- what libraries have for whole ops ---- */

/* Returns no layout: images on a GPU are NHWC. */
static rd_code gpu_conv_layout(rd_backend *b, const void **layout, rd_status *st)
{
    (void)b;
    *layout = NULL;
    return st->code;
}

static bool gpu_lstm_own(rd_backend *b, const char *cell, const rd_lstm_layer *l, bool trains)
{
    return rd_gpu_lstm_own(b->gpu, cell, l, trains);
}

static rd_code gpu_lstm_forward(rd_backend *b, const char *cell, const rd_lstm_layer *l,
                                const float *x, const float *a, float *y, bool keep, rd_arena *kept,
                                rd_arena *scratch, rd_lstm_kept *v, rd_status *st)
{
    return rd_gpu_lstm_forward(b->gpu, cell, l, x, a, y, keep, kept, scratch, v, st);
}

static rd_code gpu_lstm_backward(rd_backend *b, const rd_lstm_layer *l, const rd_lstm_kept *v,
                                 const float *dy, float *dx, bool add_dx, float *da,
                                 rd_arena *scratch, bool *refused, rd_status *st)
{
    return rd_gpu_lstm_backward(b->gpu, l, v, dy, dx, add_dx, da, scratch, refused, st);
}

static const rd_backend_vt gpu_vt = {.kind = RD_GPU,
                                     .rounds_rows = false,
                                     .free = gpu_free,
                                     .activations = gpu_activations,
                                     .memory = gpu_memory,
                                     .zero = gpu_zero,
                                     .copy = gpu_copy,
                                     .upload = gpu_upload,
                                     .download = gpu_download,
                                     .lend = gpu_lend,
                                     .read = gpu_read,
                                     .leaf = gpu_leaf,
                                     .gemm = gpu_gemm,
                                     .gemm_batched = gpu_gemm_batched,
                                     .product = gpu_product,
                                     .param_product = gpu_param_product,
                                     .cast = gpu_cast,
                                     .conv_layout = gpu_conv_layout,
                                     .lstm_own = gpu_lstm_own,
                                     .lstm_forward = gpu_lstm_forward,
                                     .lstm_backward = gpu_lstm_backward};

rd_code rd_backend_gpu_new(rd_gpu *g, int n_threads, rd_backend **out, rd_status *st)
{
    gpu_backend *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return rd_fail(st, RD_EENV, "out of memory for the GPU backend");
    rd_backend_init(&b->base, &gpu_vt, n_threads);
    b->base.gpu = g;
    b->memory = (rd_arena_source){g, memory_get, memory_put, memory_zero, NULL};
    snprintf(b->base.text, sizeof b->base.text, "%s", rd_gpu_describe(g));
    *out = &b->base;
    return RD_OK;
}
