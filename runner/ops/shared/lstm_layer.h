/* lstm_layer.h -- the time loop of one LSTM layer on a GPU, for the op rnn_layer: a layer without a
 * projection, with its dropout and its residual sum. */
#ifndef RD_LSTM_LAYER_H
#define RD_LSTM_LAYER_H

#include "rd/cell.h"

RD_C_BEGIN

/* Compute the call of rnn_layer, whose inputs are x, the joined context (or NULL), kernel and bias.
 * kept: what forward leaves for backward, in the call's memory. */
rd_code rd_cuda_lstm_layer_forward(rd_call *c, const rd_layer *l, const rd_packing_lent *p,
                                   void **kept, rd_status *st);
rd_code rd_cuda_lstm_layer_back(rd_call *c, const rd_layer *l, const rd_packing *p,
                                const void *kept, rd_status *st);

RD_C_END
#endif
