/* mnist_cnn.c -- the network of Horovod's keras_mnist_advanced.py. It has 1,199,882 parameters for
 * images of 28 x 28 x 1 and ten classes. */
#include "image_model.h"

static rd_feature mnist_cnn_build(rd_image_net *n, rd_feature x)
{
    x = rd_net_conv2d(n, "conv1",
                      &(rd_net_conv){.size = 3, .out = 32, .stride = 1, .bias = true, .relu = true},
                      x);
    x = rd_net_conv2d(n, "conv2",
                      &(rd_net_conv){.size = 3, .out = 64, .stride = 1, .bias = true, .relu = true},
                      x);
    x = rd_net_max_pool(n, 2, 2, RD_PAD_NONE, x);
    x = rd_net_dropout(n, rd_net_config(n)->dropout_conv, x);
    x = rd_net_dense(n, "dense1", 128, true, rd_net_flatten(n, x));
    x = rd_net_dropout(n, rd_net_config(n)->dropout_dense, x);
    return rd_net_dense(n, "dense2", rd_net_classes(n), false, x);
}

static const rd_image_arch mnist_cnn_arch = {
    .name = "mnist_cnn", .initializer = RD_KERNEL_GLOROT_UNIFORM, .build = mnist_cnn_build};
RD_MODEL(mnist_cnn) = {
    RD_IMAGE_MODEL("mnist_cnn", "Horovod's MNIST example: two convolutions, two dense layers",
                   "idx", 128),
    .own = &rd_group_mnist_cnn, .create = rd_image_model_create, .variant = &mnist_cnn_arch};
