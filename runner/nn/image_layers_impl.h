/* image_layers_impl.h -- the struct of a network, which image_net.c and image_layers.c share. */
#ifndef RD_IMAGE_LAYERS_IMPL_H
#define RD_IMAGE_LAYERS_IMPL_H

#include "rd/image_net.h"

typedef struct net_layer {
    rd_param *p[4]; /* kernel, bias; or gamma, beta, mean, variance */
} net_layer;

struct rd_image_net {
    rd_image_net_args a;
    net_layer *layer;  /* owned; [n_layers] the layers with parameters, in order of use */
    int n_layers, cap; /* cap: number of layers allocated */
    double macs;       /* number of multiply-adds for one image */
    double first_macs; /* those of the first layer */

    /* While parameters are declared. */

    rd_status *st;  /* the status of rd_image_net_new; NULL in all later runs */
    char scope[96]; /* see rd_net_scope */

    /* While a batch runs. */

    rd_tape *tape;
    const rd_image_batch *batch;
    int at;        /* index of the next layer */
    uint32_t site; /* number of the next dropout */

    rd_onnx *graph; /* while a graph is made; else NULL */
};

/* ---- image_graph.c: the nodes of the layers ---- */
int net_graph_conv2d(rd_image_net *n, const net_layer *l, const rd_conv *c, rd_feature x);
int net_graph_batch_norm(rd_image_net *n, const net_layer *l, bool relu, rd_feature x,
                         const rd_feature *add);
int net_graph_max_pool(rd_image_net *n, const rd_pool *p, rd_feature x);
int net_graph_lrn(rd_image_net *n, const rd_lrn *a, rd_feature x);
int net_graph_shortcut(rd_image_net *n, int64_t stride, int64_t c_out, rd_feature x);
int net_graph_global_mean(rd_image_net *n, rd_feature x);
int net_graph_flatten(rd_image_net *n, rd_feature x);
int net_graph_dense(rd_image_net *n, const net_layer *l, bool relu, rd_feature x);

#endif
