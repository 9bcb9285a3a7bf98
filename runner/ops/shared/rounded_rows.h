/* rounded_rows.h -- 16-bit copies of rows that several products of an op read, on a GPU with mixed
 * products. On a CPU, and with float32 products, these functions do nothing. */
#ifndef RD_ROUNDED_ROWS_H
#define RD_ROUNDED_ROWS_H

#include "rd/arena.h"
#include "rd/backend.h"

RD_C_BEGIN

/* Makes memory for the copy of x [rows, cols] in `a`, and begins its use: kernels that write x
 * write *copy too, and products read it. *copy is NULL if x has no copy: products then round x
 * themselves. Copies whose rows do not begin at 16 bytes are not made. x NULL: nothing happens. */
rd_code rd_rounded_new(rd_backend *be, rd_arena *a, int64_t rows, int64_t cols, const float *x,
                       void **copy, rd_status *st);
/* Begins to use a copy that an earlier call of the op has made and filled. copy NULL: there is
 * none. */
rd_code rd_rounded_again(rd_backend *be, int64_t rows, int64_t cols, const float *x, void *copy,
                         rd_status *st);
/* Writes the copy of x [n] if it has one: for arrays that a product or another op has written. */
rd_code rd_rounded_write(rd_backend *be, int64_t n, const float *x, rd_status *st);
/* Ends the use of all copies. An op that began one calls this before it returns. */
void rd_rounded_end(rd_backend *be);

RD_C_END
#endif
