/* backend.h -- a device and its math.
 *
 * Two kinds exist (backend_kind.h): the CPU with oneDNN, and a GPU. Each kind fills in a table of
 * functions (runner/engine/backend_impl.h), which the functions here call. No type of a library
 * appears here.
 *
 * Matrices are float32, row major, and contiguous unless a leading dimension is given. Variables of
 * tape.h on a GPU may have other types. All arrays are stored where the backend computes: in host
 * memory for a CPU, in device memory for a GPU. All functions belong to the calling rank alone. A
 * backend and the memory it lends belong to one thread. Failures: RD_EENV (memory, a device),
 * RD_EBUG (a shape, or the library's own message). */
#ifndef RD_BACKEND_H
#define RD_BACKEND_H

#include "rd/arena.h"
#include "rd/gpu.h"
#include "rd/params.h"

RD_C_BEGIN

typedef struct rd_backend rd_backend;

/* Products with a parameter round the number of rows up to a multiple of this number. A row array
 * of n rows has a capacity of n + RD_SLACK_ROWS rows. The contents of the extra rows are undefined,
 * and never affect the first n rows. */
enum { RD_SLACK_ROWS = 8 };

/* Creates a backend for the CPU. The caller owns *out. n_threads: number of threads of this rank.
 * mixed: products take bfloat16 inputs and sum in float32. A CPU without bfloat16 instructions
 * rounds the inputs and computes the product in float32: the same numbers up to the order of sums,
 * at float32 speed. Sets the number of OpenMP threads of the process, so only one backend may work
 * at a time. */
rd_code rd_backend_cpu_new(int n_threads, bool mixed, rd_backend **out, rd_status *st);
/* Creates a backend whose ops run on g, for tapes. g is borrowed until *out is freed. The caller
 * owns *out. RD_EENV in a program without a GPU backend. */
rd_code rd_backend_gpu_new(rd_gpu *g, int n_threads, rd_backend **out, rd_status *st);
/* Frees b, before or after the rd_params whose copies it has. NULL is allowed. */
void rd_backend_free(rd_backend *b);
/* Returns a text for the banner, borrowed until b is freed: "cpu, oneDNN 2.6.3, AVX2, 1 thread,
 * float32". */
const char *rd_backend_describe(const rd_backend *b);
/* Returns whether the backend has bfloat16 instructions; emulation does not count. */
bool rd_backend_has_bf16(const rd_backend *b);
/* Returns the number of host threads. */
int rd_backend_threads(const rd_backend *b);
/* Returns the kind: the index of a table with an entry for each kind. */
rd_backend_kind rd_backend_kind_of(const rd_backend *b);
/* Returns the GPU of a backend of kind RD_GPU, on which .cu files launch kernels. NULL for a CPU.
 * Borrowed. */
rd_gpu *rd_gpu_of(const rd_backend *b);
/* Returns the type that image networks store between layers: rd_gpu_narrow's type on a GPU with
 * mixed products, else float32. */
rd_element rd_backend_activations(const rd_backend *b);
/* Returns "oneDNN 2.6.3"; borrowed for ever. */
const char *rd_backend_library(void);

/* Computes C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C. ta, tb: the operand is stored
 * transposed. Leading dimensions are in elements. m = 0 or n = 0: nothing happens. k = 0: C = beta
 * C. beta = 0: C is not read. */
rd_code rd_gemm(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                int64_t ldc, rd_status *st);

/* Computes `batch` products of one shape. Their operands are stride_* elements apart. */
rd_code rd_gemm_batched(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *A, int64_t lda, int64_t stride_a, const float *B,
                        int64_t ldb, int64_t stride_b, float beta, float *C, int64_t ldc,
                        int64_t stride_c, int64_t batch, rd_status *st);

/* Rows [row0, row0 + rows) of a parameter with `cols` columns. values: the whole parameter. */
typedef struct rd_leaf_rows {
    const rd_param *param;
    const float *values;
    int64_t cols, row0, rows;
    /* Whether the tape records: backward follows, and then an update. */
    bool trains;
} rd_leaf_rows;

/* Multiply n rows by rows of a parameter:
 *
 *     rd_leaf_mul:    y = x W (+ y)
 *     rd_leaf_mul_t:  x = y W^T (+ x)
 *
 * A CPU keeps a copy of W in the library's own layout, which makes these products far faster than
 * rd_gemm for small n. Without such a copy it multiplies many rows in training, where the CPU has
 * AVX-512. If rd_backend_rounds_rows, n is rounded up to a multiple of RD_SLACK_ROWS. x
 * and y must have this number of readable and writable rows, and the extra rows of the result are
 * undefined. */
rd_code rd_leaf_mul(rd_backend *b, const rd_params *ps, const rd_leaf_rows *w, int64_t n,
                    const float *x, float *y, bool add, rd_status *st);
rd_code rd_leaf_mul_t(rd_backend *b, const rd_params *ps, const rd_leaf_rows *w, int64_t n,
                      const float *y, float *x, bool add, rd_status *st);
/* Makes the two products above use int8 on a CPU, as cpu_int8.h describes, unless the tape records.
 * Each parameter is quantised at its first product. Other backends ignore it. */
void rd_backend_set_int8(rd_backend *b, bool on);
/* Returns whether a CPU's products use int8. */
bool rd_backend_uses_int8(const rd_backend *b);
/* Rounds x[0, k) to integers in [-127, 127] as these products do. Returns their scale: integer *
 * scale is about x. A number that is not finite: all integers are 0 and the scale is NaN. */
float rd_int8_row(int64_t k, const float *x, int8_t *out);
/* Returns the size in bytes of a block in which an op computes an array that it never stores whole:
 * `own`, or the size that a test has set. */
size_t rd_backend_block_bytes(const rd_backend *b, size_t own);
/* Sets the size of these blocks, for tests. 0: each op's own size. */
void rd_backend_set_block_bytes(rd_backend *b, size_t bytes);
/* Returns from which number of rows on a product with a trained parameter reads the parameter
 * itself. Products of fewer rows make a packed copy. 0: all do, or the backend makes no copies. */
int64_t rd_backend_plain_rows(const rd_backend *b);
/* Returns whether products with parameters write behind the last row. */
bool rd_backend_rounds_rows(const rd_backend *b);

/* Computes a product as rd_gpu_product describes. RD_EBUG on a CPU if an operand has 16 bits. */
rd_code rd_backend_product(rd_backend *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                           rd_gpu_operand A, rd_gpu_operand B, float beta, rd_gpu_operand C,
                           rd_status *st);
/* Converts y[0, n) = x[0, n), or y += x with `add`, between two types. Rounds to nearest, ties to
 * even. RD_EBUG on a CPU if one of the types has 16 bits. */
rd_code rd_backend_cast(rd_backend *b, int64_t n, const void *x, rd_element from, void *y,
                        rd_element to, bool add, rd_status *st);

/* ---- memory ---- */
/* Returns the memory in which the backend computes, for rd_arena_new_from. Borrowed until the
 * backend is freed. NULL: host memory. */
const rd_arena_source *rd_backend_memory(rd_backend *b);
/* Fills `bytes` bytes of that memory with zeros. */
rd_code rd_backend_zero(rd_backend *b, void *p, size_t bytes, rd_status *st);
/* Copies inside that memory. The two ranges do not overlap. */
rd_code rd_backend_copy(rd_backend *b, void *to, const void *from, size_t bytes, rd_status *st);
/* Copies from host memory. */
rd_code rd_backend_upload(rd_backend *b, void *to, const void *host, size_t bytes, rd_status *st);
/* Copies to host memory. Waits for the device. */
rd_code rd_backend_download(rd_backend *b, void *host, const void *from, size_t bytes,
                            rd_status *st);
/* Makes a host array readable for kernels. On a CPU *out is the array itself, else a copy in `a`,
 * whose allocation has `capacity` bytes (at least `bytes`). If host is NULL, *out is NULL. out:
 * address of any object pointer. */
rd_code rd_backend_lend(rd_backend *b, rd_arena *a, const void *host, size_t bytes, size_t capacity,
                        void *out, rd_status *st);
/* Copies n elements of any type to the host as float32. Waits for the device. scratch: an arena in
 * the backend's memory. */
rd_code rd_backend_read(rd_backend *b, rd_arena *scratch, int64_t n, const void *from,
                        rd_element type, float *out, rd_status *st);
/* Returns in *v the up-to-date values of a parameter where the backend computes, and its gradient
 * in *g if `gradient` (else *g is NULL). Copies the whole arena if the other side wrote last. */
rd_code rd_backend_leaf(rd_backend *b, rd_params *ps, const rd_param *p, bool gradient, float **v,
                        float **g, rd_status *st);

/* ---- the host's threads ---- */
/* Runs fn(ctx, lo, hi) over [0, n), cut into pieces of at least `grain`, on the backend's threads.
 * The cuts depend on the number of threads, so the value that fn writes for an element must not
 * depend on the cuts. */
void rd_parallel(rd_backend *b, int64_t n, int64_t grain,
                 void (*fn)(void *ctx, int64_t lo, int64_t hi), void *ctx);

RD_C_END
#endif
