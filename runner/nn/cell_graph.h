/* cell_graph.h -- recurrent layers as nodes of a graph. */
#ifndef RD_CELL_GRAPH_H
#define RD_CELL_GRAPH_H

#include "rd/nn.h"
#include "rd/onnx.h"

/* The state of a cell: h (batch, R), and c (batch, H) where the cell has one, else -1. */
typedef struct cell_state {
    int h, c;
} cell_state;

/* Does one step of a layer. x (batch, in); att (batch, extra), -1: none. Returns its output, which
 * is h, or x + h for a residual layer. */
int cell_graph_step(rd_onnx *g, const rd_params *ps, const rd_stack_layer *l, int x, int att,
                    const cell_state *before, cell_state *after);

/* Does all steps of a layer. x (batch, n, in), mask (batch, n, 1) bool: a step whose mask is false
 * keeps the state. The first state is 0. backward: from the last step to the first. Returns the
 * output (batch, n, R) in the order of x. */
int cell_graph_layer(rd_onnx *g, const rd_params *ps, const rd_stack_layer *l, int x, int mask,
                     bool backward);

#endif
