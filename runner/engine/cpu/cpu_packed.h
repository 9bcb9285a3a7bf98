/* cpu_packed.h -- the CPU backend's products. */
#ifndef RD_CPU_PACKED_H
#define RD_CPU_PACKED_H

#include "cpu_impl.h"

RD_C_BEGIN

/* Computes what rd_gemm computes. */
rd_code rd_cpu_gemm(rd_cpu *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                    int64_t ldc, rd_status *st);

/* Makes products with W = rows [row0, row0 + k) of a parameter (rows, n). W and W^T are kept
 * packed, that is in oneDNN's blocked layout, and are packed again when rd_params_version has
 * changed. Much faster than rd_gemm for small m.
 *
 *   mul     Y[m, n] = X[m, k] W (+ Y)
 *   mul_t   X[m, k] = Y[m, n] W^T (+ X)
 *
 * m is rounded up to a multiple of RD_SLACK_ROWS: X and Y need this number of readable and
 * writable rows. The extra rows of the result are undefined. b, ps and w are borrowed and must
 * outlive *out, which the caller owns. */
rd_code rd_cpu_packed_new(rd_cpu *b, const rd_params *ps, const rd_param *w, int64_t row0,
                          int64_t k, rd_cpu_packed **out, rd_status *st);
/* Frees the packed rows. NULL is allowed. */
void rd_cpu_packed_free(rd_cpu_packed *p);
/* Compute the two products above. add: (+ Y), (+ X). */
rd_code rd_cpu_packed_mul(rd_cpu_packed *p, int64_t m, const float *X, float *Y, bool add,
                          rd_status *st);
rd_code rd_cpu_packed_mul_t(rd_cpu_packed *p, int64_t m, const float *Y, float *X, bool add,
                            rd_status *st);
/* Computes one of the two products as cpu_rows.h describes: the bytes of a row do not depend on m.
 * X and Y need no slack. */
rd_code rd_cpu_packed_rows(rd_cpu_packed *p, bool transposed, int64_t m, const float *X, float *Y,
                           bool add, rd_status *st);
/* Returns the packed rows of a parameter, made at their first use. The backend owns them. It
 * identifies a parameter by its address w, so other parameters need a new backend. NULL after a
 * failure. */
rd_cpu_packed *rd_cpu_packed_of(rd_cpu *b, const rd_params *ps, const rd_param *w, int64_t row0,
                                int64_t k, rd_status *st);
/* Frees all packed copies and all products that b has made. */
void rd_cpu_products_free(rd_cpu *b);

RD_C_END
#endif
