/* alexnet.c -- AlexNet as in tf_cnn_benchmarks (Krizhevsky 2014, "One weird trick"), without local
 * response norm. For images of 227 x 227, which bench mode takes; 63 x 63 is the minimum. */
#include "image_model.h"

static rd_feature conv(rd_image_net *n, const char *name, int64_t size, int64_t out, rd_feature x)
{
    const rd_net_conv c = {.size = size,
                           .out = out,
                           .stride = 1,
                           .padding = RD_PAD_SYMMETRIC,
                           .bias = true,
                           .relu = true};
    return rd_net_conv2d(n, name, &c, x);
}

static rd_feature alexnet_build(rd_image_net *n, rd_feature x)
{
    const double rate = rd_net_config(n)->dropout_dense;
    x = rd_net_conv2d(
        n, "conv1", &(rd_net_conv){.size = 11, .out = 64, .stride = 4, .bias = true, .relu = true},
        x);
    x = rd_net_max_pool(n, 3, 2, RD_PAD_NONE, x);
    x = conv(n, "conv2", 5, 192, x);
    x = rd_net_max_pool(n, 3, 2, RD_PAD_NONE, x);
    x = conv(n, "conv3", 3, 384, x);
    x = conv(n, "conv4", 3, 384, x);
    x = conv(n, "conv5", 3, 256, x);
    x = rd_net_max_pool(n, 3, 2, RD_PAD_NONE, x);
    x = rd_net_dense(n, "dense1", 4096, true, rd_net_flatten(n, x));
    x = rd_net_dropout(n, rate, x);
    x = rd_net_dense(n, "dense2", 4096, true, x);
    x = rd_net_dropout(n, rate, x);
    return rd_net_dense(n, "dense3", rd_net_classes(n), false, x);
}

static const rd_image_arch alexnet_arch = {
    .name = "alexnet", .initializer = RD_KERNEL_TRUNCATED_FAN_IN, .build = alexnet_build};
RD_MODEL(alexnet) = {
    RD_IMAGE_MODEL("alexnet", "five convolutions, three dense layers, as in tf_cnn_benchmarks",
                   "image_folder", 512),
    .bench_size = 227,
    .bench_cifar = "alexnet_cifar",
    .own = &rd_group_dropout,
    .create = rd_image_model_create,
    .variant = &alexnet_arch};
