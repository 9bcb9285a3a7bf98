/* backend.h -- a device and its math. Two kinds exist (backend_kind.h): the CPU with oneDNN, and a GPU. Each fills in a
 * table of functions (runner/engine/backend_impl.h), which the functions here call. No library's type shows.
 *
 * Matrices are float32 (but for variables of tape.h, on a GPU), row major, contiguous unless a leading dimension is
 * given. All arrays are stored where the backend computes: in the host's memory on a CPU, in the device's on a GPU. All
 * functions are of the calling rank alone; a backend and what it lends belong to one thread. Failures: RD_EENV (memory, a
 * device), RD_EBUG (a shape, or the library's own word). */
#ifndef RD_BACKEND_H
#define RD_BACKEND_H

#include "rd/arena.h"
#include "rd/gpu.h"
#include "rd/params.h"

RD_C_BEGIN

typedef struct rd_backend rd_backend;

/* Products with a parameter round the number of rows up to a multiple of this: a row array of n rows has room for
 * n + RD_SLACK_ROWS. What the slack holds is undefined and never reaches a row that counts. */
enum { RD_SLACK_ROWS = 8 };

/* n_threads: of this rank. mixed: products take bfloat16 inputs and sum in float32 (on a processor without bfloat16
 * instructions the inputs are rounded and the product is computed in float32: the same numbers up to the order of sums,
 * at float32 speed). The caller owns *out. Sets the process' number of OpenMP threads: one backend at a time is at
 * work. */
rd_code rd_backend_cpu_new(int n_threads, bool mixed, rd_backend **out, rd_status *st);
/* A backend whose ops run on g (borrowed, outlives *out), for tapes. RD_EENV in a program without GPU backend. */
rd_code rd_backend_gpu_new(rd_gpu *g, int n_threads, rd_backend **out, rd_status *st);
void rd_backend_free(
    rd_backend *b); /* NULL is fine. Before or after the rd_params that it has copies of */
/* Borrowed until the backend is freed. */
const char *rd_backend_describe(
    const rd_backend *b);                      /* "cpu, oneDNN 2.6.3, AVX2, 1 thread, float32" */
bool rd_backend_has_bf16(const rd_backend *b); /* by instructions, not emulated */
int rd_backend_threads(const rd_backend *b);
/* The index of a table with an entry for each kind. */
rd_backend_kind rd_backend_kind_of(const rd_backend *b);
/* The GPU of a backend of kind RD_GPU: what kernels in .cu files launch on. NULL on a CPU. */
rd_gpu *rd_gpu_of(const rd_backend *b);
/* What networks of images keep between their layers: on a GPU with mixed products rd_gpu_narrow's type, else float32. */
rd_element rd_backend_activations(const rd_backend *b);
const char *rd_backend_library(void); /* "oneDNN 2.6.3"; borrowed for ever */

/* C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C; ta, tb: the operand is stored transposed. Leading dimensions in
 * elements. m or n 0: nothing happens; k 0: C = beta C; beta 0: C is not read. */
rd_code rd_gemm(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                int64_t ldc, rd_status *st);

/* `batch` products of one shape, operands stride_* elements apart. */
rd_code rd_gemm_batched(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *A, int64_t lda, int64_t stride_a, const float *B,
                        int64_t ldb, int64_t stride_b, float beta, float *C, int64_t ldc,
                        int64_t stride_c, int64_t batch, rd_status *st);

/* Rows [row0, row0 + rows) of a parameter of `cols` columns; values: of the whole parameter. */
typedef struct rd_leaf_rows {
    const rd_param *param;
    const float *values;
    int64_t cols, row0, rows;
} rd_leaf_rows;
/* Products of n rows with rows of a parameter:   mul: y = x W (+ y)      mul_t: x = y W^T (+ x)
 * A CPU keeps a copy of W in the library's own layout for them, which makes them far faster than rd_gemm for small n. Where
 * rd_backend_rounds_rows, n is rounded up to a multiple of RD_SLACK_ROWS: x and y must have that many readable and
 * writable rows, and the extra rows of the result are undefined. */
rd_code rd_leaf_mul(rd_backend *b, const rd_params *ps, const rd_leaf_rows *w, int64_t n,
                    const float *x, float *y, bool add, rd_status *st);
rd_code rd_leaf_mul_t(rd_backend *b, const rd_params *ps, const rd_leaf_rows *w, int64_t n,
                      const float *y, float *x, bool add, rd_status *st);
/* Bytes of a block in which an op computes what it never stores whole: `own`, or what a test has set. */
size_t rd_backend_block_bytes(const rd_backend *b, size_t own);
void rd_backend_set_block_bytes(rd_backend *b, size_t bytes); /* for tests; 0: each op's own */
/* Do products with parameters write behind the last row? False: they end with it. */
bool rd_backend_rounds_rows(const rd_backend *b);

/* As rd_gpu_product, which see. RD_EBUG on a CPU where an operand has 16 bits. */
rd_code rd_backend_product(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                           rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                           rd_status *st);
/* y[0, n) (+)= x[0, n), of two types; nearest, ties to even. RD_EBUG on a CPU where one has 16 bits. */
rd_code rd_backend_cast(rd_backend *b, int64_t n, const void *x, rd_element from, void *y,
                        rd_element to, bool add, rd_status *st);

/* ---- memory ---- */
/* The memory that the backend computes in, for rd_arena_new_from; borrowed until the backend is freed. NULL: the host's. */
const rd_arena_source *rd_backend_memory(rd_backend *b);
rd_code rd_backend_zero(rd_backend *b, void *p, size_t bytes, rd_status *st);
/* Copies inside that memory; the two do not overlap. */
rd_code rd_backend_copy(rd_backend *b, void *to, const void *from, size_t bytes, rd_status *st);
/* Copies from the host's memory, and to it (waits for the device). */
rd_code rd_backend_upload(rd_backend *b, void *to, const void *host, size_t bytes, rd_status *st);
rd_code rd_backend_download(rd_backend *b, void *host, const void *from, size_t bytes,
                            rd_status *st);
/* Gives a host array where kernels can read it: the array itself on a CPU, else a copy in `a`, whose piece has `room`
 * bytes (at least `bytes`). host NULL: NULL. *out: address of any object pointer. */
rd_code rd_backend_lend(rd_backend *b, rd_arena *a, const void *host, size_t bytes, size_t room,
                        void *out, rd_status *st);
/* Copies n elements of any type to the host as float32. Waits for the device. scratch: in the backend's memory. */
rd_code rd_backend_read(rd_backend *b, rd_arena *scratch, int64_t n, const void *from,
                        rd_element type, float *out, rd_status *st);
/* Gives the values of a parameter, and its gradient where that is wanted (else *g is NULL), where the backend computes,
 * up to date: copies the whole arena where the other side wrote last. */
rd_code rd_backend_leaf(rd_backend *b, rd_params *ps, const rd_param *p, bool gradient, float **v,
                        float **g, rd_status *st);

/* ---- the host's threads ---- */
/* Runs fn(ctx, lo, hi) over [0, n) cut in pieces of at least `grain`, on the backend's threads. The cuts depend on the
 * number of threads: what fn writes for an element must not. */
void rd_parallel(rd_backend *b, int64_t n, int64_t grain,
                 void (*fn)(void *ctx, int64_t lo, int64_t hi), void *ctx);

RD_C_END
#endif
