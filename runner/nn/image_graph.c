/* image_graph.c -- a network as a graph of ONNX: the nodes of its layers. Images have the order
 * (batch, channels, height, width) there; kernels (out, in, height, width). Dropout has no node. */
#include "image_layers_impl.h"
#include <stdlib.h>
#include <string.h>

/* Returns the values of a parameter. */
static const float *graph_values(const rd_image_net *n, const rd_param *p)
{
    return rd_params_values(n->a.params) + p->offset;
}

static int graph_param(rd_image_net *n, const rd_param *p)
{
    return rd_onnx_weight(n->graph, p->name, RD_ONNX_FLOAT, p->n_dim, p->dim, graph_values(n, p));
}

/* Adds a kernel (h, w, in, out) as (out, in, h, w). */
static int graph_kernel(rd_image_net *n, const rd_param *p)
{
    const int64_t H = p->dim[0], W = p->dim[1], I = p->dim[2], O = p->dim[3];
    const float *from = graph_values(n, p);
    float *to = malloc((size_t)p->n * sizeof *to);
    if (!to) {
        rd_fail(rd_onnx_status(n->graph), RD_EENV, "out of memory for a kernel");
        return -1;
    }
    for (int64_t hw = 0; hw < H * W; hw++)
        for (int64_t i = 0; i < I; i++)
            for (int64_t o = 0; o < O; o++)
                to[(o * I + i) * H * W + hw] = from[(hw * I + i) * O + o];
    const int v = rd_onnx_weight(n->graph, p->name, RD_ONNX_FLOAT, 4, (int64_t[]){O, I, H, W}, to);
    free(to);
    return v;
}

static int graph_relu(rd_image_net *n, bool relu, int v)
{
    return relu ? rd_onnx_op1(n->graph, "Relu", v) : v;
}

int net_graph_conv2d(rd_image_net *n, const net_layer *l, const rd_conv *c, rd_feature x)
{
    const int64_t pads[] = {c->pad_top, c->pad_left, c->pad_bottom, c->pad_right},
                  strides[] = {c->stride, c->stride};
    const rd_onnx_attr a[] = {{.name = "pads", .kind = RD_ONNX_IS, .is = pads, .n = 4},
                              {.name = "strides", .kind = RD_ONNX_IS, .is = strides, .n = 2},
                              {.name = NULL}};
    const int kernel = graph_kernel(n, l->p[0]), bias = l->p[1] ? graph_param(n, l->p[1]) : -1;
    const int in[] = {x.value, kernel, bias};
    return graph_relu(n, c->relu, rd_onnx_node(n->graph, "Conv", l->p[1] ? 3 : 2, in, a, 1, NULL));
}

int net_graph_batch_norm(rd_image_net *n, const net_layer *l, bool relu, rd_feature x,
                         const rd_feature *add)
{
    const rd_onnx_attr a[] = {
        {.name = "epsilon", .kind = RD_ONNX_F, .f = (float)n->a.config.batch_norm_epsilon},
        {.name = NULL}};
    int in[5] = {x.value};
    for (int k = 0; k < 4; k++) in[k + 1] = graph_param(n, l->p[k]);
    int y = rd_onnx_node(n->graph, "BatchNormalization", 5, in, a, 1, NULL);
    if (add) y = rd_onnx_op2(n->graph, "Add", y, add->value);
    return graph_relu(n, relu, y);
}

int net_graph_max_pool(rd_image_net *n, const rd_pool *p, rd_feature x)
{
    const int64_t pads[] = {p->pad_top, p->pad_left, p->pad_bottom, p->pad_right},
                  strides[] = {p->stride, p->stride}, size[] = {p->size, p->size};
    const rd_onnx_attr a[] = {{.name = "kernel_shape", .kind = RD_ONNX_IS, .is = size, .n = 2},
                              {.name = "pads", .kind = RD_ONNX_IS, .is = pads, .n = 4},
                              {.name = "strides", .kind = RD_ONNX_IS, .is = strides, .n = 2},
                              {.name = NULL}};
    return rd_onnx_node(n->graph, "MaxPool", 1, &x.value, a, 1, NULL);
}

/* ONNX divides alpha by the number of channels of a window. */
int net_graph_lrn(rd_image_net *n, const rd_lrn *l, rd_feature x)
{
    const int64_t size = 2 * l->radius + 1;
    const rd_onnx_attr a[] = {{.name = "alpha", .kind = RD_ONNX_F, .f = l->alpha * (float)size},
                              {.name = "beta", .kind = RD_ONNX_F, .f = l->beta},
                              {.name = "bias", .kind = RD_ONNX_F, .f = l->bias},
                              {.name = "size", .kind = RD_ONNX_I, .i = size},
                              {.name = NULL}};
    return rd_onnx_node(n->graph, "LRN", 1, &x.value, a, 1, NULL);
}

/* Half of the new channels comes before the old ones, see shortcut.c. */
int net_graph_shortcut(rd_image_net *n, int64_t stride, int64_t c_out, rd_feature x)
{
    rd_onnx *g = n->graph;
    const int64_t before = (c_out - x.c) / 2, from[] = {0, 0}, to[] = {INT32_MAX, INT32_MAX},
                  axes[] = {2, 3}, steps[] = {stride, stride},
                  pads[] = {0, before, 0, 0, 0, c_out - x.c - before, 0, 0};
    const int in[] = {x.value, rd_onnx_ints(g, 2, from), rd_onnx_ints(g, 2, to),
                      rd_onnx_ints(g, 2, axes), rd_onnx_ints(g, 2, steps)};
    const int y = rd_onnx_node(g, "Slice", 5, in, NULL, 1, NULL);
    return rd_onnx_op2(g, "Pad", y, rd_onnx_ints(g, 8, pads));
}

int net_graph_global_mean(rd_image_net *n, rd_feature x)
{
    return rd_onnx_op1(n->graph, "Flatten", rd_onnx_op1(n->graph, "GlobalAveragePool", x.value));
}

/* A row has the order height, width, channels. */
int net_graph_flatten(rd_image_net *n, rd_feature x)
{
    const int64_t order[] = {0, 2, 3, 1};
    int y = x.value;
    if (x.h * x.w > 1) y = rd_onnx_transpose(n->graph, y, 4, order);
    return rd_onnx_op1(n->graph, "Flatten", y);
}

int net_graph_dense(rd_image_net *n, const net_layer *l, bool relu, rd_feature x)
{
    const int kernel = graph_param(n, l->p[0]), bias = graph_param(n, l->p[1]);
    return graph_relu(n, relu, rd_onnx_op3(n->graph, "Gemm", x.value, kernel, bias));
}

rd_code rd_image_net_graph(rd_image_net *n, rd_onnx *g, rd_status *st)
{
    const rd_onnx_dim batch = RD_ONNX_ANY("batch"),
                      image[] = {batch, RD_ONNX_DIM(n->a.c), RD_ONNX_DIM(n->a.h),
                                 RD_ONNX_DIM(n->a.w)},
                      row[] = {batch, RD_ONNX_DIM(n->a.n_classes)};
    const int x = rd_onnx_input(g, "image", RD_ONNX_FLOAT, 4, image);
    n->graph = g;
    n->at = 0;
    const rd_feature y = n->a.arch.build(n, (rd_feature){NULL, n->a.h, n->a.w, n->a.c, x});
    n->graph = NULL;
    rd_onnx_output(g, y.value, "logits", RD_ONNX_FLOAT, 2, row);
    rd_onnx_output(g, rd_onnx_op1(g, "Softmax", y.value), "probabilities", RD_ONNX_FLOAT, 2, row);
    return st->code;
}
