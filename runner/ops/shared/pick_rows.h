/* pick_rows.h -- rows by their index, back: what the ops embed and pick add to the gradients of their tables. Indices are
 * int32, twice: `row` for the host, `lent` where kernels read it (rd_call_lend). -1: no row. */
#ifndef RD_PICK_ROWS_H
#define RD_PICK_ROWS_H

#include "rd/tape.h"
#include "rd/vec.h"

RD_C_BEGIN

/* g[row[i]] += d[i], i < n: rows of `width`, in d `ld` elements apart. row[i] < n_rows. Where a row occurs more than
 * once its d are summed in an order that is a function of row[] alone: that of i on a CPU. */
rd_code rd_add_picked(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                      int64_t n_rows, int64_t width, const float *d, int64_t ld, float *g,
                      rd_status *st);

/* The table behind this and rd_rows_pick, one for each kind of backend. */
typedef struct rd_pick_kernels {
    rd_code (*pick)(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                    rd_status *st);
    rd_code (*add)(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent, int64_t n_rows,
                   int64_t width, const float *d, int64_t ld, float *g, rd_status *st);
} rd_pick_kernels;
extern const rd_pick_kernels rd_cuda_pick; /* pick_rows.cu */

RD_C_END
#endif
