/* cuda_convert.h -- kernels of the driver's own: float32 to 16 bits and back, filters from one order to another, borders of
 * zeros. */
#ifndef RD_CONVERT_H
#define RD_CONVERT_H

#include "rd/gpu.h"
#include <stdint.h>

RD_C_BEGIN

/* Nearest, ties to even. WIRE16 differs from HALF16 above 65504: that instead of infinity, as comm_wire.c has it. */
typedef enum rd_narrow { RD_NARROW_BF16, RD_NARROW_HALF16, RD_NARROW_WIRE16 } rd_narrow;

/* `batch` matrices of rows x cols, strides in elements: y[b stride_y + r ld_y + c] = x[b stride_x + r ld_x + c]. ld_y
 * is a multiple of 8, and what lies between the rows of y is undefined afterwards. n_jobs (1 or 2) in one launch. */
typedef struct rd_narrow_job {
    const float *x;
    uint16_t *y;
    int64_t batch, rows, cols, ld_x, stride_x, ld_y, stride_y;
} rd_narrow_job;
rd_code rd_convert_narrow(rd_gpu *g, rd_narrow to, const rd_narrow_job *job, int n_jobs,
                          rd_status *st);
/* x[0, n) of 16 bits to float32. from: WIRE16 is HALF16. */
rd_code rd_convert_widen(rd_gpu *g, rd_narrow from, const uint16_t *x, int64_t n, float *y,
                         rd_status *st);

/* C[r ld + c] *= beta of `batch` matrices; beta 0 writes zeros whatever was there. */
rd_code rd_convert_scale(rd_gpu *g, int64_t batch, int64_t rows, int64_t cols, float beta, float *C,
                         int64_t ld, int64_t stride, rd_status *st);

/* Filters, taps = kh kw: (taps, ci, co) to (co, taps, ci) of a type, and back from it, added to what is there. */
rd_code rd_convert_filters(rd_gpu *g, int64_t taps, int64_t ci, int64_t co, const float *W,
                           rd_element type, void *out, rd_status *st);
rd_code rd_convert_filters_add(rd_gpu *g, int64_t taps, int64_t ci, int64_t co, const void *from,
                               rd_element type, float *dW, rd_status *st);

/* An image batch (n, h, w, c) of a type with borders of zeros; and its middle, written or added (add) to y (n, h, w, c). */
typedef struct rd_borders {
    int64_t n, h, w, c, top, left, bottom, right;
} rd_borders;
rd_code rd_convert_pad(rd_gpu *g, const rd_borders *b, rd_element type, const void *x, void *out,
                       rd_status *st);
rd_code rd_convert_crop(rd_gpu *g, const rd_borders *b, rd_element type, const void *x, bool add,
                        void *y, rd_status *st);

/* cudaSuccess when the card has machine code of these kernels, and so of all. */
int rd_convert_probe(void);
const char *rd_convert_built_for(void); /* "sm_80, sm_90 and newer" */

RD_C_END
#endif
