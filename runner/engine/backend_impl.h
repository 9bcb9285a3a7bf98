/* backend_impl.h -- the table that a backend fills in (cpu/cpu_backend.c, gpu/gpu_backend.c),
 * and the struct that all backends begin with. rd/backend.h, image_kernels.h and lstm_kernels.h
 * declare functions with the same names; their comments describe the entries. */
#ifndef RD_BACKEND_IMPL_H
#define RD_BACKEND_IMPL_H

#include "lstm_kernels.h"
#include "rd/backend.h"

RD_C_BEGIN

typedef struct rd_backend_vt {
    rd_backend_kind kind;
    /* Whether products with a parameter write whole blocks of RD_SLACK_ROWS rows, so that the last
     * block reaches behind the last row. False: they end with the last row. */
    bool rounds_rows;
    void (*free)(rd_backend *b);
    rd_element (*activations)(const rd_backend *b);
    /* Memory. */
    const rd_arena_source *(*memory)(rd_backend *b);
    rd_code (*zero)(rd_backend *b, void *p, size_t bytes, rd_status *st);
    rd_code (*copy)(rd_backend *b, void *to, const void *from, size_t bytes, rd_status *st);
    rd_code (*upload)(rd_backend *b, void *to, const void *host, size_t bytes, rd_status *st);
    rd_code (*download)(rd_backend *b, void *host, const void *from, size_t bytes, rd_status *st);
    rd_code (*lend)(rd_backend *b, rd_arena *a, const void *host, size_t bytes, size_t capacity,
                    void **out, rd_status *st);
    rd_code (*read)(rd_backend *b, rd_arena *scratch, int64_t n, const void *from, rd_element type,
                    float *out, rd_status *st);
    rd_code (*leaf)(rd_backend *b, rd_params *ps, const rd_param *p, bool gradient, float **v,
                    float **g, rd_status *st);
    /* Products and elements. */
    rd_code (*gemm)(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st);
    rd_code (*gemm_batched)(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *A, int64_t lda, int64_t stride_a,
                            const float *B, int64_t ldb, int64_t stride_b, float beta, float *C,
                            int64_t ldc, int64_t stride_c, int64_t batch, rd_status *st);
    rd_code (*product)(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                       rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                       rd_status *st);
    rd_code (*param_product)(rd_backend *b, bool transposed, const rd_params *ps,
                             const rd_leaf_rows *w, int64_t n, const float *x, float *y, bool add,
                             rd_status *st);
    rd_code (*cast)(rd_backend *b, int64_t n, const void *x, rd_element from, void *y,
                    rd_element to, bool add, rd_status *st);
    /* Whole ops by libraries. */
    rd_code (*conv_layout)(rd_backend *b, const void **layout, rd_status *st);
    bool (*lstm_own)(rd_backend *b, const char *cell, const rd_lstm_layer *l, bool trains);
    rd_code (*lstm_forward)(rd_backend *b, const char *cell, const rd_lstm_layer *l, const float *x,
                            const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                            rd_lstm_kept *v, rd_status *st);
    rd_code (*lstm_backward)(rd_backend *b, const rd_lstm_layer *l, const rd_lstm_kept *v,
                             const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                             bool *refused, rd_status *st);
} rd_backend_vt;

/* The first member of every backend. */
struct rd_backend {
    const rd_backend_vt *vt;
    int n_threads;
    bool has_bf16;
    /* rd_backend_plain_rows. */
    int64_t plain_rows;
    /* rd_backend_set_int8. */
    bool int8;
    /* Block size for all ops (rd_backend_set_block_bytes); 0: each op uses its default. */
    size_t block_bytes;
    /* Borrowed. NULL unless the kind is RD_GPU. */
    rd_gpu *gpu;
    /* Text of rd_backend_describe. */
    char text[160];
};

/* Fills in the first members of a zeroed backend. Sets the process's number of OpenMP threads. */
void rd_backend_init(rd_backend *b, const rd_backend_vt *vt, int n_threads);

RD_C_END
#endif
