/* cpu_rows.h -- products with packed weights in which each row is computed by itself.
 *
 *     Y[m, n] = X[m, k] W[k, n] (+ Y)
 *
 * Each number of Y is a chain of multiply-adds from 0 over rising k. Sums of more than 1,024
 * products are several chains, which are added in order. So the bytes of a row depend on that row
 * and on W alone: neither on m nor on the number of threads. Evaluation and decoding use these
 * products. The library's own products cut sums in ways that depend on m. */
#ifndef RD_CPU_ROWS_H
#define RD_CPU_ROWS_H

#include "cpu_impl.h"

RD_C_BEGIN

/* W in strips of columns, [n / strip][k][strip]; n and k are rounded up. */
typedef struct rd_cpu_strips {
    /* float, or bfloat16 if `half`. */
    const void *w;
    int64_t k, n;
    /* Columns of a strip, and numbers from one strip to the next. */
    int64_t strip, length;
    /* bfloat16, two rows of a column side by side: [n / strip][k / 2][strip][2]. */
    bool half;
} rd_cpu_strips;

/* Returns the kernels for the instructions that oneDNN may use. */
rd_cpu_rows_kind rd_cpu_rows_best(void);
/* Returns whether the kernels of b can read strips of this number of columns. */
bool rd_cpu_rows_can(const rd_cpu *b, int64_t strip, bool half);
/* Packs W [k, n], whose element (i, j) is w[i * step_k + j * step_n], in strips that b can read.
 * Rounds to bfloat16 if `half`. s->w is allocated, and the caller owns it. */
rd_code rd_cpu_rows_pack(const rd_cpu *b, int64_t k, int64_t n, const float *w, int64_t step_k,
                         int64_t step_n, bool half, rd_cpu_strips *s, rd_status *st);
/* Computes the product. X [m, k] is float. If s->half, X is bfloat16 and its rows are k rounded up
 * to an even number long; the last number is 0. X and Y need no slack. */
rd_code rd_cpu_rows_mul(rd_cpu *b, const rd_cpu_strips *s, int64_t m, const void *X, float *Y,
                        bool add, rd_status *st);

RD_C_END
#endif
