/* cpu_row.h -- products of one row with packed weights, as fast as the memory can be read. */
#ifndef RD_CPU_ROW_H
#define RD_CPU_ROW_H

#include "cpu_impl.h"

RD_C_BEGIN

/* Returns whether the kernel can read strips of this number of columns. */
bool rd_cpu_row_can(int64_t strip);
/* Computes y = x W (+ y). W [k, n] is stored in strips of columns, [n / strip][k][strip], rounded
 * up. x and y need no slack. The result does not depend on the number of threads. Only where
 * rd_cpu_row_can is true. */
void rd_cpu_row_mul(rd_cpu *b, int64_t k, int64_t n, int64_t strip, const float *w, const float *x,
                    float *y, bool add);

RD_C_END
#endif
