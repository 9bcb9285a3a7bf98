/* backend.h -- a device and its math. "cpu" (oneDNN) exists; the table is what a GPU backend fills in. No library's
 * type shows.
 *
 * Matrices are float32 (but for variables of tape.h, on a GPU), row major, contiguous unless a leading dimension is given. All functions are of the calling
 * rank alone; a backend and what it lends belong to one thread. Failures: RD_EENV (memory), RD_EBUG (a shape, or the
 * library's own word). */
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
#ifdef RD_CUDA
/* A backend whose ops run on g (borrowed, outlives *out), for tapes: the functions of this header take device pointers with it,
 * but for rd_packed, which the ops on a GPU do not use. */
rd_code rd_backend_gpu_new(rd_gpu *g, int n_threads, rd_backend **out, rd_status *st);
#endif
void rd_backend_free(
    rd_backend *b); /* NULL is fine. Frees all packed copies: before or after their rd_params */
/* Borrowed until the backend is freed. */
const char *rd_backend_describe(
    const rd_backend *b);                      /* "cpu, oneDNN 2.6.3, AVX2, 1 thread, float32" */
bool rd_backend_has_bf16(const rd_backend *b); /* by instructions, not emulated */
int rd_backend_threads(const rd_backend *b);
/* What networks of images keep between their layers: on a GPU with mixed products rd_gpu_narrow's type, else float32. */
rd_element rd_backend_activations(const rd_backend *b);
const char *rd_backend_library(void); /* "oneDNN 2.6.3"; borrowed for ever */

/* C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C; ta, tb: the operand is stored transposed. Leading dimensions in
 * elements. m or n 0: nothing happens; k 0: C = beta C; beta 0: C is not read. */
rd_code rd_gemm(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                int64_t ldc, rd_status *st);

/* Products with rows [row0, row0 + k) of a parameter W (rows, n): kept packed in the library's own layout, both as W
 * and as W^T, and packed again when rd_params_version has moved. Far faster than rd_gemm for small m.
 *   mul:   Y[m, n] = X[m, k] W (+ Y)      mul_t: X[m, k] = Y[m, n] W^T (+ X)
 * m is rounded up to a multiple of RD_SLACK_ROWS: X and Y must have that many readable and writable rows; the extra
 * rows of the result are undefined. b, ps and w are borrowed and must outlive *out, which the caller owns. */
typedef struct rd_packed rd_packed;
rd_code rd_packed_new(rd_backend *b, const rd_params *ps, const rd_param *w, int64_t row0,
                      int64_t k, rd_packed **out, rd_status *st);
void rd_packed_free(rd_packed *p); /* NULL is fine */
rd_code rd_packed_mul(rd_packed *p, int64_t m, const float *X, float *Y, bool add, rd_status *st);
rd_code rd_packed_mul_t(rd_packed *p, int64_t m, const float *Y, float *X, bool add, rd_status *st);
/* The packed rows of a parameter, made on first use and owned by the backend, which knows them by the address of w:
 * with other parameters take a new backend. NULL after a failure. */
rd_packed *rd_backend_packed(rd_backend *b, const rd_params *ps, rd_param *w, int64_t row0,
                             int64_t k, rd_status *st);

/* Runs fn(ctx, lo, hi) over [0, n) cut in pieces of at least `grain`, on the backend's threads. The cuts depend on the
 * number of threads: what fn writes for an element must not. */
void rd_parallel(rd_backend *b, int64_t n, int64_t grain,
                 void (*fn)(void *ctx, int64_t lo, int64_t hi), void *ctx);

RD_C_END
#endif
