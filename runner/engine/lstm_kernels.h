/* lstm_kernels.h -- an LSTM over all time steps of a packed batch, by a library, for the op
 * rnn_layer.
 *
 * The library is cuDNN, if rnn_choose.h chooses it. */
#ifndef RD_LSTM_KERNELS_H
#define RD_LSTM_KERNELS_H

#include "rd/backend.h"

RD_C_BEGIN

/* z = [x; h; a] W + b with the gates i, j, f, o, and f + 1 in place of f, as in
 * runner/ops/cells/lstm.c. The state before the first step is zero. */
typedef struct rd_lstm_layer {
    /* Width of x; width of a (0: there is no a); number of units. */
    int64_t in, extra, H;
    int64_t n_steps;
    /* rd_packing.off, on the host, and where kernels read it. */
    const int64_t *off, *device_off;
    /* [(in + H + extra), 4H], [4H]. */
    const float *W, *b;
    /* Gradients, added to. NULL: not wanted. */
    float *dW, *db;
    bool projects;
} rd_lstm_layer;

/* What forward saves for backward: arrays in the arenas that it got, and the caller's x and y if
 * they suffice. */
typedef struct rd_lstm_kept {
    /* RD_RNN_OWN: nothing was computed; the caller's own kernels must compute it. */
    rd_rnn_choice choice;
    const void *x, *y;
    void *reserve;
    size_t reserve_bytes;
} rd_lstm_kept;

/* Computes y [N, H], all outputs. cell: the cell's name. keep: backward will follow. kept,
 * scratch: memory where the backend computes. Sizes that the library does not support are no
 * failure: v gets RD_RNN_OWN (always on a CPU), rd_gpu_take_note returns the library's message,
 * and the backend does not try these sizes again. */
rd_code rd_lstm_forward(rd_backend *be, const char *cell, const rd_lstm_layer *l, const float *x,
                        const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                        rd_lstm_kept *v, rd_status *st);
/* Computes the gradients from dy [N, H]: dx = (add_dx: +=), da +=, dW +=, db +=. dx and da may be
 * NULL. v: from rd_lstm_forward, not RD_RNN_OWN. *refused true: the library does not support these
 * sizes and nothing was changed; the caller's own kernels must compute forward and backward. */
rd_code rd_lstm_backward(rd_backend *be, const rd_lstm_layer *l, const rd_lstm_kept *v,
                         const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                         bool *refused, rd_status *st);

/* Returns whether the caller's own kernels compute such a layer: always on a CPU. trains: backward
 * will follow. */
bool rd_lstm_own(rd_backend *be, const char *cell, const rd_lstm_layer *l, bool trains);

RD_C_END
#endif
