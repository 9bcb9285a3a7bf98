/* cell_kernels.h -- the tables behind recurrent cells and packed rows, one for each kind of
 * backend. Those of a CPU are in the .c files named here, those of a GPU in the .cu files. The
 * functions of rd/cell.h describe each entry. */
#ifndef RD_CELL_KERNELS_H
#define RD_CELL_KERNELS_H

#include "rd/cell.h"
#include "rd/philox.h"

RD_C_BEGIN

/* ---- the elementwise part of an LSTM: lstm_gates.c, cell_kernels.cu ---- */
typedef struct rd_lstm_kernels {
    rd_code (*gates)(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *hz,
                     const float *const bias[4], const float *c_prev, const rd_cell_rows *r,
                     rd_status *st);
    rd_code (*gates_back)(rd_backend *be, int64_t n, int64_t H, int64_t groups, const float *dm,
                          float *dc, const float *c_prev, const rd_cell_rows *r, float *dz,
                          rd_status *st);
} rd_lstm_kernels;
extern const rd_lstm_kernels rd_cuda_lstm;

/* ---- the elementwise part of a GRU: cells/gru.c, cell_kernels.cu ---- */
/* h_prev NULL: zeros. */
typedef struct rd_gru_kernels {
    /* Computes r, u and r h from z (+ gh) + bias. gh NULL: nothing to add, as always on a GPU. */
    rd_code (*gates)(rd_backend *be, int64_t n, int64_t H, const float *gh, const float *bias,
                     const float *h_prev, float *z, float *rh, rd_status *st);
    /* Computes n and h' from z (+ ch) + bias. */
    rd_code (*output)(rd_backend *be, int64_t n, int64_t H, const float *ch, const float *bias,
                      const float *h_prev, float *z, float *h, rd_status *st);
    /* Computes the columns u and n of dz. */
    rd_code (*output_back)(rd_backend *be, int64_t n, int64_t H, const float *dh,
                           const float *h_prev, const float *z, float *dz, rd_status *st);
    /* Computes the columns r of dz. On a GPU it also writes (or adds, with add) the elementwise
     * part of dh_prev; the product that follows adds to dh_prev. dh_prev NULL: not wanted. h_prev
     * NULL: drh is not read. */
    rd_code (*gates_back)(rd_backend *be, int64_t n, int64_t H, const float *dh, const float *drh,
                          const float *h_prev, const float *z, float *dz, float *dh_prev, bool add,
                          rd_status *st);
    /* True: gates_back has written dh_prev, and the product adds to it. False: the product writes
     * dh_prev, and state_back adds to it. */
    bool product_adds;
    rd_code (*state_back)(rd_backend *be, int64_t n, int64_t H, const float *dh, const float *drh,
                          const float *z, float *dh_prev, rd_status *st);
} rd_gru_kernels;
extern const rd_gru_kernels rd_cuda_gru;

/* ---- packed rows: row_dropout.c, row_dropout.cu ---- */
/* The rows of one mask: the n rows of steps t0 .. t1 - 1. `first` is the first one. */
typedef struct rd_mask_rows {
    const int64_t *off, *sample; /* of the packing, stored where kernels read them */
    int64_t t0, t1, first, n, width;
    rd_key key;
    float keep;
} rd_mask_rows;
typedef struct rd_row_kernels {
    rd_code (*lend)(rd_call *c, const rd_packing *p, rd_arena *a, rd_packing_lent *out,
                    rd_status *st);
    rd_code (*dropout)(rd_backend *be, const rd_mask_rows *m, const float *x, const float *residual,
                       float *y, uint8_t *mask, rd_status *st);
    rd_code (*dropout_back)(rd_backend *be, float scale, int64_t n, const float *dy,
                            const uint8_t *mask, float *dx, bool add, rd_status *st);
    rd_code (*shift)(rd_backend *be, const rd_packing_lent *p, int64_t width, const float *h,
                     float *out, rd_status *st);
} rd_row_kernels;
extern const rd_row_kernels rd_cuda_rows;

RD_C_END
#endif
