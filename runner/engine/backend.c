/* backend.c -- the functions of backend.h: each calls its entry in the backend's table. */
#include "backend_impl.h"
#include "image_kernels.h"
#include <omp.h>
#include <string.h>

void rd_backend_init(rd_backend *b, const rd_backend_vt *vt, int n_threads)
{
    b->vt = vt;
    b->n_threads = n_threads < 1 ? 1 : n_threads;
    omp_set_num_threads(b->n_threads);
    omp_set_dynamic(0);
}

void rd_backend_free(rd_backend *b)
{
    if (b) b->vt->free(b);
}

const char *rd_backend_describe(const rd_backend *b)
{
    return b->text;
}

bool rd_backend_has_bf16(const rd_backend *b)
{
    return b->has_bf16;
}

int rd_backend_threads(const rd_backend *b)
{
    return b->n_threads;
}

rd_backend_kind rd_backend_kind_of(const rd_backend *b)
{
    return b->vt->kind;
}

rd_gpu *rd_gpu_of(const rd_backend *b)
{
    return b->gpu;
}

bool rd_backend_rounds_rows(const rd_backend *b)
{
    return b->vt->rounds_rows;
}

int64_t rd_backend_plain_rows(const rd_backend *b)
{
    return b->plain_rows;
}

size_t rd_backend_block_bytes(const rd_backend *b, size_t own)
{
    return b->block_bytes ? b->block_bytes : own;
}

void rd_backend_set_block_bytes(rd_backend *b, size_t bytes)
{
    b->block_bytes = bytes;
}

void rd_backend_set_int8(rd_backend *b, bool on)
{
    b->int8 = on;
}

bool rd_backend_uses_int8(const rd_backend *b)
{
    return b->int8 && b->vt->kind == RD_CPU;
}

rd_element rd_backend_activations(const rd_backend *b)
{
    return b->vt->activations(b);
}

/* ---- memory ---- */

const rd_arena_source *rd_backend_memory(rd_backend *b)
{
    return b->vt->memory(b);
}

rd_code rd_backend_zero(rd_backend *b, void *p, size_t bytes, rd_status *st)
{
    return b->vt->zero(b, p, bytes, st);
}

rd_code rd_backend_copy(rd_backend *b, void *to, const void *from, size_t bytes, rd_status *st)
{
    return b->vt->copy(b, to, from, bytes, st);
}

rd_code rd_backend_upload(rd_backend *b, void *to, const void *host, size_t bytes, rd_status *st)
{
    return b->vt->upload(b, to, host, bytes, st);
}

rd_code rd_backend_download(rd_backend *b, void *host, const void *from, size_t bytes,
                            rd_status *st)
{
    return b->vt->download(b, host, from, bytes, st);
}

rd_code rd_backend_lend(rd_backend *b, rd_arena *a, const void *host, size_t bytes, size_t capacity,
                        void *out, rd_status *st)
{
    void *p = NULL;
    if (host) (void)b->vt->lend(b, a, host, bytes, capacity, &p, st);
    memcpy(out, &p, sizeof p);
    return st->code;
}

rd_code rd_backend_read(rd_backend *b, rd_arena *scratch, int64_t n, const void *from,
                        rd_element type, float *out, rd_status *st)
{
    return b->vt->read(b, scratch, n, from, type, out, st);
}

rd_code rd_backend_leaf(rd_backend *b, rd_params *ps, const rd_param *p, bool gradient, float **v,
                        float **g, rd_status *st)
{
    *v = *g = NULL;
    return b->vt->leaf(b, ps, p, gradient, v, g, st);
}

/* ---- products and elements ---- */

rd_code rd_gemm(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                int64_t ldc, rd_status *st)
{
    return b->vt->gemm(b, ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, st);
}

rd_code rd_gemm_batched(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *A, int64_t lda, int64_t stride_a, const float *B,
                        int64_t ldb, int64_t stride_b, float beta, float *C, int64_t ldc,
                        int64_t stride_c, int64_t batch, rd_status *st)
{
    return b->vt->gemm_batched(b, ta, tb, m, n, k, alpha, A, lda, stride_a, B, ldb, stride_b, beta,
                               C, ldc, stride_c, batch, st);
}

rd_code rd_backend_product(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                           rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                           rd_status *st)
{
    return b->vt->product(b, ta, tb, m, n, k, A, B, beta, C, st);
}

rd_code rd_leaf_mul(rd_backend *b, const rd_params *ps, const rd_leaf_rows *w, int64_t n,
                    const float *x, float *y, bool add, rd_status *st)
{
    return b->vt->param_product(b, false, ps, w, n, x, y, add, st);
}

rd_code rd_leaf_mul_t(rd_backend *b, const rd_params *ps, const rd_leaf_rows *w, int64_t n,
                      const float *y, float *x, bool add, rd_status *st)
{
    return b->vt->param_product(b, true, ps, w, n, y, x, add, st);
}

rd_code rd_backend_cast(rd_backend *b, int64_t n, const void *x, rd_element from, void *y,
                        rd_element to, bool add, rd_status *st)
{
    return b->vt->cast(b, n, x, from, y, to, add, st);
}

/* ---- whole ops by libraries ---- */

rd_code rd_conv_layout(rd_backend *b, const void **layout, rd_status *st)
{
    return b->vt->conv_layout(b, layout, st);
}

bool rd_lstm_own(rd_backend *b, const char *cell, const rd_lstm_layer *l, bool trains)
{
    return b->vt->lstm_own(b, cell, l, trains);
}

rd_code rd_lstm_forward(rd_backend *b, const char *cell, const rd_lstm_layer *l, const float *x,
                        const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                        rd_lstm_kept *v, rd_status *st)
{
    return b->vt->lstm_forward(b, cell, l, x, a, y, keep, kept, scratch, v, st);
}

rd_code rd_lstm_backward(rd_backend *b, const rd_lstm_layer *l, const rd_lstm_kept *v,
                         const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                         bool *refused, rd_status *st)
{
    return b->vt->lstm_backward(b, l, v, dy, dx, add_dx, da, scratch, refused, st);
}

/* ---- the host's threads ---- */

void rd_parallel(rd_backend *b, int64_t n, int64_t grain,
                 void (*fn)(void *ctx, int64_t lo, int64_t hi), void *ctx)
{
    if (n <= 0) return;
    int64_t parts = grain > 0 ? n / grain : n;
    if (parts > b->n_threads) parts = b->n_threads;
    if (parts <= 1) {
        fn(ctx, 0, n);
        return;
    }
#pragma omp parallel for schedule(static, 1)
    for (int64_t i = 0; i < parts; i++) fn(ctx, n * i / parts, n * (i + 1) / parts);
}
