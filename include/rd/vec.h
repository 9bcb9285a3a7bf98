/* vec.h -- copies and sums of vectors and rows, for ops that are one source for all backends: on a GPU each function
 * queues a kernel, on a CPU it is the loop that its comment says. All arrays lie where the backend's ops compute
 * (c->device_kept and the like); nothing is rounded up to whole vectors. Failures are of the device alone (see gpu.h).
 */
#ifndef RD_VEC_H
#define RD_VEC_H

#include "rd/backend.h"

RD_C_BEGIN

rd_code rd_vec_zero(rd_backend *be, int64_t n, float *y, rd_status *st);
rd_code rd_vec_copy(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st); /* y = x */
rd_code rd_vec_add(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st); /* y += x */
rd_code rd_vec_sum(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                   rd_status *st); /* y = a + b; y may be a or b */

/* to[i][j] (+)= from[i][j] for `rows` rows of `width`, ld_from and ld_to elements apart. */
rd_code rd_rows_copy(rd_backend *be, int64_t rows, int64_t width, const float *from,
                     int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st);
/* y[i] += b for N rows of `width`. */
rd_code rd_add_bias(rd_backend *be, int64_t N, int64_t width, const float *b, float *y,
                    rd_status *st);
/* g[j] += sum of column j over N rows, ld elements apart: in row order on a CPU, in slices of rows (a function of N) on
 * a GPU, whose sums lie in `scratch`, an arena of device memory. g NULL: nothing happens. */
rd_code rd_add_columns(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width, const float *dz,
                       int64_t ld, float *g, rd_status *st);

/* Rows of a table by their index: x has rows of `width`; row[n] is where kernels read it (rd_backend_lend). */
typedef struct rd_picked {
    const float *x;
    int64_t width;
    const int32_t *row;
} rd_picked;
enum { RD_MOST_PICKED = 4 };
/* Row i of y is x[row[i]] of each part, one after the other; zeros for -1. At most RD_MOST_PICKED parts. */
rd_code rd_rows_pick(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                     rd_status *st);

/* The table behind these functions, one for each kind of backend. */
typedef struct rd_vec_kernels {
    rd_code (*add)(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st);
    rd_code (*sum)(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                   rd_status *st);
    rd_code (*rows_copy)(rd_backend *be, int64_t rows, int64_t width, const float *from,
                         int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st);
    rd_code (*add_bias)(rd_backend *be, int64_t N, int64_t width, const float *b, float *y,
                        rd_status *st);
    rd_code (*add_columns)(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width,
                           const float *dz, int64_t ld, float *g, rd_status *st);
} rd_vec_kernels;
extern const rd_vec_kernels rd_cuda_vec; /* vec.cu */

RD_C_END
#endif
