/* cell_kernels.h -- what recurrent cells and packed rows start on a GPU (cell_kernels.cu, row_dropout.cu); as in cell.h
 * and gru.c. */
#ifndef RD_CELL_KERNELS_H
#define RD_CELL_KERNELS_H

#include "cell.h"
#include "rd/philox.h"

RD_C_BEGIN

rd_code rd_cuda_lstm_gates(rd_gpu *g, int64_t n, int64_t H, int64_t groups,
                           const float *const bias[4], const float *c_prev, const rd_cell_rows *r,
                           rd_status *st);
rd_code rd_cuda_lstm_gates_back(rd_gpu *g, int64_t n, int64_t H, int64_t groups, const float *dm,
                                float *dc, const float *c_prev, const rd_cell_rows *r, float *dz,
                                rd_status *st);

rd_code rd_cuda_gru_gates(rd_gpu *g, int64_t n, int64_t H, const float *bias, const float *h_prev,
                          float *z, float *rh, rd_status *st);
rd_code rd_cuda_gru_output(rd_gpu *g, int64_t n, int64_t H, const float *bias, const float *h_prev,
                           float *z, float *h, rd_status *st);
/* dz's u and n. */
rd_code rd_cuda_gru_output_back(rd_gpu *g, int64_t n, int64_t H, const float *dh,
                                const float *h_prev, const float *z, float *dz, rd_status *st);
/* dz's r, and the elementwise part of dh_prev (NULL: not wanted). h_prev NULL: zeros, and drh is not read. */
rd_code rd_cuda_gru_gates_back(rd_gpu *g, int64_t n, int64_t H, const float *dh, const float *drh,
                               const float *h_prev, const float *z, float *dz, float *dh_prev,
                               bool add, rd_status *st);

/* Rows of one mask: of steps t0 .. t1 - 1, n of them from row `first` on. */
typedef struct rd_mask_rows {
    const int64_t *off, *sample;
    int64_t t0, t1, first, n, width;
    rd_key key;
    float keep;
} rd_mask_rows;
rd_code rd_cuda_dropout_rows(rd_gpu *g, const rd_mask_rows *m, const float *x,
                             const float *residual, float *y, uint8_t *mask, rd_status *st);
rd_code rd_cuda_dropout_back(rd_gpu *g, float scale, int64_t n, const float *dy,
                             const uint8_t *mask, float *dx, bool add, rd_status *st);
rd_code rd_cuda_shift_rows(rd_gpu *g, int64_t n_steps, const int64_t *off, int64_t n, int64_t width,
                           const float *h, float *out, rd_status *st); /* n rows in n_steps steps */

RD_C_END
#endif
