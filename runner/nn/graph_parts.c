/* graph_parts.c -- what the graphs of all networks share; see graph_parts.h. */
#include "graph_parts.h"

int graph_param(rd_onnx *g, const rd_params *ps, const rd_param *p)
{
    const int known = rd_onnx_find(g, p->name);
    return known >= 0 ? known
                      : rd_onnx_weight(g, p->name, RD_ONNX_FLOAT, p->n_dim, p->dim,
                                       rd_params_values(ps) + p->offset);
}

int graph_linear(rd_onnx *g, const rd_params *ps, int x, const rd_param *kernel,
                 const rd_param *bias)
{
    const int y = rd_onnx_op2(g, "MatMul", x, graph_param(g, ps, kernel));
    return bias ? rd_onnx_op2(g, "Add", y, graph_param(g, ps, bias)) : y;
}

int graph_unsqueeze(rd_onnx *g, int x, int64_t axis)
{
    return rd_onnx_op2(g, "Unsqueeze", x, rd_onnx_ints(g, 1, &axis));
}

int graph_squeeze(rd_onnx *g, int x, int64_t axis)
{
    return rd_onnx_op2(g, "Squeeze", x, rd_onnx_ints(g, 1, &axis));
}

int graph_masked_softmax(rd_onnx *g, int mask, int scores)
{
    const int y = rd_onnx_op3(g, "Where", mask, scores, rd_onnx_float(g, -1e30f));
    return rd_onnx_op1(g, "Softmax", y);
}

int graph_range(rd_onnx *g, int n)
{
    return rd_onnx_op3(g, "Range", rd_onnx_int(g, 0), rd_onnx_op1(g, "Squeeze", n),
                       rd_onnx_int(g, 1));
}

int graph_length_mask(rd_onnx *g, int length, int n)
{
    return rd_onnx_op2(g, "Less", graph_range(g, n), graph_unsqueeze(g, length, 1));
}
