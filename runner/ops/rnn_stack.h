/* rnn_stack.h -- declarations that rnn_stack.c and rnn_stack.cu share. */
#ifndef RD_RNN_STACK_H
#define RD_RNN_STACK_H

#include "rd/ops.h"

RD_C_BEGIN

/* The attribute. The inputs of the op are x, the joined context (or NULL), and kernel and bias of
 * each layer. The parameters of neighbouring layers are equally far apart, the highest layer
 * first. */
typedef struct rd_rnn_stack {
    rd_packing p;
    int n_layers;
    rd_layer layer[RD_MAX_LAYERS]; /* of one cell, shape and dropout rate */
} rd_rnn_stack;

RD_C_END
#endif
