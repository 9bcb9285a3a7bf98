/* lstm_kernels.h -- what the op rnn_layer asks of a backend: an LSTM over all time steps of a packed batch, by a
 * library that has it (cuDNN, where rnn_choose.h takes it). */
#ifndef RD_LSTM_KERNELS_H
#define RD_LSTM_KERNELS_H

#include "rd/backend.h"

RD_C_BEGIN

/* z = [x; h; a] W + b with gates i, j, f, o, f with 1 more, as runner/ops/cells/lstm.c; zeros before the first step. */
typedef struct rd_lstm_layer {
    int64_t in, extra, H; /* width of x; of a, 0: there is none; units */
    int64_t n_steps;
    const int64_t *off, *device_off; /* of rd_packing: on the host, and where kernels read it */
    const float *W, *b;              /* [(in + H + extra), 4H], [4H] */
    float *dW, *db;                  /* += ; NULL: not wanted */
    bool projects;
} rd_lstm_layer;

/* What forward leaves for backward: arrays of the arenas it was given, and the caller's x and y where they will do. */
typedef struct rd_lstm_kept {
    rd_rnn_choice choice; /* RD_RNN_OWN: nothing was computed; the caller's own kernels have to */
    const void *x, *y;
    void *reserve;
    size_t reserve_bytes;
} rd_lstm_kept;

/* y [N, H] = all outputs. cell: its name. keep: backward will follow. What the library does not support is not a
 * failure: v says RD_RNN_OWN, as a CPU always does, rd_gpu_take_note gives the library's words, and the same sizes are
 * not tried again. kept, scratch: memory where the backend computes. */
rd_code rd_lstm_forward(rd_backend *be, const char *cell, const rd_lstm_layer *l, const float *x,
                        const float *a, float *y, bool keep, rd_arena *kept, rd_arena *scratch,
                        rd_lstm_kept *v, rd_status *st);
/* From dy [N, H]: dx (+)= (add_dx), da +=, dW and db +=; dx and da may be NULL. v: of rd_lstm_forward, not RD_RNN_OWN.
 * *refused: the library does not support it, nothing was changed, and the caller's own kernels have to go forward and
 * back. */
rd_code rd_lstm_backward(rd_backend *be, const rd_lstm_layer *l, const rd_lstm_kept *v,
                         const float *dy, float *dx, bool add_dx, float *da, rd_arena *scratch,
                         bool *refused, rd_status *st);

RD_C_END
#endif
