/* pick_rows.h -- rows by their index on a GPU: what the ops embed and pick queue there. Indices are int32, twice: `row` for the
 * host, `lent` the same for kernels (rd_call_lend). -1: no row. Failures: those of the device, and of the arenas. */
#ifndef RD_PICK_ROWS_H
#define RD_PICK_ROWS_H

#include "rd/tape.h"

RD_C_BEGIN

enum { RD_MOST_PICKED = 4 };
typedef struct rd_picked {
    const float *x; /* rows of `width` */
    int64_t width;
    const int32_t *lent; /* [n] */
} rd_picked;
/* Row i of y is x[lent[i]] of each part, one after the other; zeros for -1. At most RD_MOST_PICKED parts. */
rd_code rd_pick_rows(rd_gpu *gpu, int n_parts, const rd_picked *part, int64_t n, float *y,
                     rd_status *st);
/* g[row[i]] += d[i], i < n: rows of `width`, in d `ld` elements apart. row[i] < n_rows. Where a row occurs more than once its d are
 * summed in an order that is a function of row[] alone. */
rd_code rd_add_picked(rd_call *c, int64_t n, const int32_t *row, const int32_t *lent,
                      int64_t n_rows, int64_t width, const float *d, int64_t ld, float *g,
                      rd_status *st);

RD_C_END
#endif
