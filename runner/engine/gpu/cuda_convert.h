/* cuda_convert.h -- kernels of the driver itself: float32 to 16 bits and back, filters from one
 * order to another, borders of zeros. */
#ifndef RD_CONVERT_H
#define RD_CONVERT_H

#include "rd/gpu.h"
#include <stdint.h>

RD_C_BEGIN

/* 16-bit formats. Conversion rounds to nearest, ties to even. WIRE16 differs from HALF16 above
 * 65504: it gives 65504 instead of infinity, as comm_wire.c does. */
typedef enum rd_narrow { RD_NARROW_BF16, RD_NARROW_HALF16, RD_NARROW_WIRE16 } rd_narrow;

/* One conversion of `batch` matrices of rows x cols, with strides in elements:
 *
 *     y[b stride_y + r ld_y + c] = x[b stride_x + r ld_x + c]
 *
 * ld_y is a multiple of 8. The elements between the rows of y are undefined afterwards. */
typedef struct rd_narrow_job {
    const float *x;
    uint16_t *y;
    int64_t batch, rows, cols, ld_x, stride_x, ld_y, stride_y;
} rd_narrow_job;

/* Converts n_jobs (1 or 2) jobs in one launch. */
rd_code rd_convert_narrow(rd_gpu *g, rd_narrow to, const rd_narrow_job *job, int n_jobs,
                          rd_status *st);
/* Converts x[0, n) of 16 bits to float32. from: WIRE16 is treated as HALF16. */
rd_code rd_convert_widen(rd_gpu *g, rd_narrow from, const uint16_t *x, int64_t n, float *y,
                         rd_status *st);

/* Computes C[r ld + c] *= beta for `batch` matrices. beta = 0 writes zeros, also over NaN and
 * infinity. */
rd_code rd_convert_scale(rd_gpu *g, int64_t batch, int64_t rows, int64_t cols, float beta, float *C,
                         int64_t ld, int64_t stride, rd_status *st);

/* Converts filters from (taps, ci, co) to (co, taps, ci) of a type. taps = kh kw. */
rd_code rd_convert_filters(rd_gpu *g, int64_t taps, int64_t ci, int64_t co, const float *W,
                           rd_element type, void *out, rd_status *st);
/* Converts gradients of filters back from that order and type, and adds them to dW. */
rd_code rd_convert_filters_add(rd_gpu *g, int64_t taps, int64_t ci, int64_t co, const void *from,
                               rd_element type, float *dW, rd_status *st);

/* An image batch (n, h, w, c) and the widths of its borders. */
typedef struct rd_borders {
    int64_t n, h, w, c, top, left, bottom, right;
} rd_borders;

/* Writes x (n, h, w, c) with borders of zeros to out. */
rd_code rd_convert_pad(rd_gpu *g, const rd_borders *b, rd_element type, const void *x, void *out,
                       rd_status *st);
/* Writes the middle of x to y (n, h, w, c), or adds it (add). */
rd_code rd_convert_crop(rd_gpu *g, const rd_borders *b, rd_element type, const void *x, bool add,
                        void *y, rd_status *st);

/* Returns cudaSuccess if the GPU has machine code of these kernels, and so of all kernels. */
int rd_convert_probe(void);
/* Returns "sm_80, sm_90 and newer". */
const char *rd_convert_built_for(void);

RD_C_END
#endif
