/* pick_rows.h -- backward of the ops embed and pick: the gradients of rows that were picked by
 * index.
 *
 * Indices are int32 and come twice: `row` for the host, `lent` for kernels (rd_call_lend). An index
 * of -1 means no row. */
#ifndef RD_PICK_ROWS_H
#define RD_PICK_ROWS_H

#include "rd/tape.h"
#include "rd/vec.h"

RD_C_BEGIN

/* Adds g[row[i]] += d[i], i < n. Rows have `width` elements; rows of d are `ld` elements apart.
 * row[i] < n_rows. If a row of g occurs more than once, its rows of d are summed in an order that
 * is a function of row[] alone. A CPU sums in the order of i. */
rd_code rd_add_picked(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                      int64_t n_rows, int64_t width, const float *d, int64_t ld, float *g,
                      rd_status *st);

/* The table behind rd_add_picked and rd_rows_pick, one for each kind of backend. */
typedef struct rd_pick_kernels {
    rd_code (*pick)(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                    rd_status *st);
    rd_code (*add)(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent, int64_t n_rows,
                   int64_t width, const float *d, int64_t ld, float *g, rd_status *st);
} rd_pick_kernels;
extern const rd_pick_kernels rd_cuda_pick; /* pick_rows.cu */

RD_C_END
#endif
