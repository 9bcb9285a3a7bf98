/* vec.h -- copies and sums of vectors and rows, for ops with one source for all backends.
 *
 * On a GPU each function queues a kernel; on a CPU it runs the loop in its comment. All arrays are
 * stored where the backend's ops compute (for example in c->device_kept). No size is rounded up to
 * whole vectors. Only the device can fail (see gpu.h). */
#ifndef RD_VEC_H
#define RD_VEC_H

#include "rd/backend.h"

RD_C_BEGIN

/* y = 0, [n]. */
rd_code rd_vec_zero(rd_backend *be, int64_t n, float *y, rd_status *st);
/* y = x, [n]. */
rd_code rd_vec_copy(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st);
/* y += x, [n]. */
rd_code rd_vec_add(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st);
/* y = a + b, [n]. y may be a or b. */
rd_code rd_vec_sum(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                   rd_status *st);
/* x = c tanh(x / c), [n]. */
rd_code rd_vec_softcap(rd_backend *be, int64_t n, float c, float *x, rd_status *st);

/* to[i][j] (+)= from[i][j] for `rows` rows of `width` elements. Rows begin ld_from and ld_to
 * elements apart. add: += instead of =. */
rd_code rd_rows_copy(rd_backend *be, int64_t rows, int64_t width, const float *from,
                     int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st);
/* y[i] += b for N rows of `width` elements. */
rd_code rd_add_bias(rd_backend *be, int64_t N, int64_t width, const float *b, float *y,
                    rd_status *st);
/* The same for a y of any type, float32 on a CPU. */
rd_code rd_add_bias_to(rd_backend *be, int64_t N, int64_t width, const float *b, void *y,
                       rd_element type, rd_status *st);
/* g[j] += sum of column j over N rows, which begin ld elements apart. A CPU adds in row order. A
 * GPU adds slices of rows (a function of N) and stores their sums in `scratch`, an arena of
 * device memory. g NULL: nothing happens. */
rd_code rd_add_columns(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width, const float *dz,
                       int64_t ld, float *g, rd_status *st);

/* The same for a dz of any type, float32 on a CPU. */
rd_code rd_add_columns_of(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width,
                          const void *dz, rd_element type, int64_t ld, float *g, rd_status *st);

/* Rows of a table by their index. x: rows of `width` elements. row: [n], where kernels read it
 * (rd_backend_lend). */
typedef struct rd_picked {
    const float *x;
    int64_t width;
    const int32_t *row;
} rd_picked;
enum { RD_MOST_PICKED = 4 };
/* Row i of y = x[row[i]] of all parts, one part after the other; zeros for row -1. At most
 * RD_MOST_PICKED parts. */
rd_code rd_rows_pick(rd_backend *be, int n_parts, const rd_picked *part, int64_t n, float *y,
                     rd_status *st);

/* Table of these functions, one for each kind of backend. */
typedef struct rd_vec_kernels {
    rd_code (*add)(rd_backend *be, int64_t n, const float *x, float *y, rd_status *st);
    rd_code (*sum)(rd_backend *be, int64_t n, const float *a, const float *b, float *y,
                   rd_status *st);
    rd_code (*softcap)(rd_backend *be, int64_t n, float c, float *x, rd_status *st);
    rd_code (*rows_copy)(rd_backend *be, int64_t rows, int64_t width, const float *from,
                         int64_t ld_from, float *to, int64_t ld_to, bool add, rd_status *st);
    rd_code (*add_bias)(rd_backend *be, int64_t N, int64_t width, const float *b, void *y,
                        rd_element type, rd_status *st);
    rd_code (*add_columns)(rd_backend *be, rd_arena *scratch, int64_t N, int64_t width,
                           const void *dz, rd_element type, int64_t ld, float *g, rd_status *st);
} rd_vec_kernels;
/* Defined in vec.cu. */
extern const rd_vec_kernels rd_cuda_vec;

RD_C_END
#endif
