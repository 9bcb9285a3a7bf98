/* graph_parts.h -- what the graphs of all networks share; see rd/onnx.h. */
#ifndef RD_GRAPH_PARTS_H
#define RD_GRAPH_PARTS_H

#include "rd/onnx.h"
#include "rd/params.h"

/* Returns the parameter as a constant. A second call returns the same one. */
int graph_param(rd_onnx *g, const rd_params *ps, const rd_param *p);
/* Returns x kernel + bias for the last dimension of x, of any number of dimensions. bias NULL: x
 * kernel. */
int graph_linear(rd_onnx *g, const rd_params *ps, int x, const rd_param *kernel,
                 const rd_param *bias);
/* Returns x with a new dimension of 1, or without this one. */
int graph_unsqueeze(rd_onnx *g, int x, int64_t axis);
int graph_squeeze(rd_onnx *g, int x, int64_t axis);
/* Returns softmax over the last axis of the scores where mask (bool) is true; elsewhere it is 0. */
int graph_masked_softmax(rd_onnx *g, int mask, int scores);
/* Returns 0 .. n - 1. n: a list of one integer. */
int graph_range(rd_onnx *g, int n);
/* Returns whether position < length, (batch, n), as bool. length (batch), n: a list of one. */
int graph_length_mask(rd_onnx *g, int length, int n);

#endif
