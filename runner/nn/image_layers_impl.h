/* image_layers_impl.h -- what image_net.c and image_layers.c share. */
#ifndef RD_IMAGE_LAYERS_IMPL_H
#define RD_IMAGE_LAYERS_IMPL_H

#include "rd/image_net.h"

typedef struct net_layer {
    rd_param *p[4]; /* kernel, bias; or gamma, beta, mean, variance */
} net_layer;

struct rd_image_net {
    rd_image_net_args a;
    net_layer *layer; /* owned */
    int n_layers, cap;
    double macs, first_macs; /* multiply-adds per image; of the first layer */
    /* while parameters are declared */
    rd_status *st; /* NULL in all later runs */
    char scope[96];
    /* while a batch runs */
    rd_tape *tape;
    const rd_image_batch *batch;
    int at;        /* next layer */
    uint32_t site; /* next dropout */
};

#endif
