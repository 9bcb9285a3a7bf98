/* layer_rows.h -- the elementwise work between two layers of one time step, in one pass over its
 * rows.
 *
 * Forward: bias, dropout of the output of a layer, residual sum, dropout of the input of the next
 * layer. Backward: the same in reverse. Rows are contiguous. A mask has one byte per element. */
#ifndef RD_LAYER_ROWS_H
#define RD_LAYER_ROWS_H

#include "rd/backend.h"

RD_C_BEGIN

/* The pass forward. A NULL pointer means that the term does not occur.
 *   y = dropout(h + bias) + skip,  next = dropout(y) */
typedef struct rd_between {
    int64_t n, width;
    const float *h, *bias; /* [n, width], [width] */
    const uint8_t *mask_out;
    float keep_out;
    const float *skip;
    float *y; /* may be h */
    const uint8_t *mask_in;
    float keep_in;
    float *next;
} rd_between;
/* Runs the pass forward. */
rd_code rd_between_layers(rd_backend *be, const rd_between *r, rd_status *st);

/* The pass back. A NULL pointer means that the term does not occur.
 *   dy = dropout'(dnext) + dskip,  dh = dropout'(dy) + dh_later */
typedef struct rd_between_back {
    int64_t n, width;
    const float *dnext;
    const uint8_t *mask_in;
    float keep_in;
    const float *dskip;
    float *dy; /* may be dnext or dskip */
    const uint8_t *mask_out;
    float keep_out;
    const float *dh_later; /* [n_later, width] of the sequences that have a later step */
    int64_t n_later;
    float *dh;
} rd_between_back;
/* Runs the pass back. */
rd_code rd_between_layers_back(rd_backend *be, const rd_between_back *r, rd_status *st);

/* The table behind these functions, one for each kind of backend. */
typedef struct rd_between_kernels {
    rd_code (*forward)(rd_backend *be, const rd_between *r, rd_status *st);
    rd_code (*back)(rd_backend *be, const rd_between_back *r, rd_status *st);
} rd_between_kernels;
extern const rd_between_kernels rd_cuda_between; /* layer_rows.cu */

RD_C_END
#endif
