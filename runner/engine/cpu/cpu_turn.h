/* cpu_turn.h -- products x = y W^T of many rows, by a transposed copy of W.
 *
 * dnnl_sgemm of AVX-512 copies a transposed operand slowly. One core of Zen 4, GFLOP/s with the
 * time of the copy, where dnnl_sgemm reaches 110 at 2048^3:
 *
 *   rows of y   W            sgemm   copy and sgemm
 *   2048        384 x 1152   103     111
 *   2048        384 x 384    106     114
 *   2048        384 x 1536   108     110
 *   1800        256 x 1024   100     105
 *   2048        1536 x 384   112     111
 *   512         768 x 3072   103     103
 *
 * So the rows are many, and W has at least as many columns as rows. */
#ifndef RD_CPU_TURN_H
#define RD_CPU_TURN_H

#include "cpu_impl.h"

/* Returns whether the copy makes products of n rows with W (rows, cols) faster. */
bool rd_turn_pays(int64_t n, int64_t rows, int64_t cols);
/* Computes x [n, rows] = y [n, cols] W^T (+ x if add). */
rd_code rd_turn_mul(rd_cpu *b, int64_t rows, int64_t cols, const float *w, int64_t n,
                    const float *y, float *x, bool add, rd_status *st);

#endif
