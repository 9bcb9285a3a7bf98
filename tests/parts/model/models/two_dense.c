/* two_dense.c -- a network of two dense layers: a template of an image model. */
#include "image_model.h"

static rd_feature two_dense_build(rd_image_net *n, rd_feature x)
{
    x = rd_net_dense(n, "dense1", 32, true, rd_net_flatten(n, x));
    return rd_net_dense(n, "dense2", rd_net_classes(n), false, x);
}

RD_MODEL_IMAGE(two_dense, "two_dense", "two dense layers", "stripes", 32, .name = "two_dense",
               .initializer = RD_KERNEL_GLOROT_UNIFORM, .build = two_dense_build);
