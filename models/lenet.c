/* lenet.c -- LeNet as in tf_cnn_benchmarks and TensorFlow's MNIST tutorial: wider than LeCun's,
 * with max pools and ReLU. Bench mode gives it ImageNet's classes at 28 x 28 x 3, as the former
 * does. */
#include "image_model.h"

static rd_feature conv_and_pool(rd_image_net *n, const char *name, int64_t out, rd_feature x)
{
    const rd_net_conv c = {.size = 5,
                           .out = out,
                           .stride = 1,
                           .padding = RD_PAD_SYMMETRIC,
                           .bias = true,
                           .relu = true};
    return rd_net_max_pool(n, 2, 2, RD_PAD_NONE, rd_net_conv2d(n, name, &c, x));
}

static rd_feature lenet_build(rd_image_net *n, rd_feature x)
{
    x = conv_and_pool(n, "conv1", 32, x);
    x = conv_and_pool(n, "conv2", 64, x);
    x = rd_net_dense(n, "dense1", 512, true, rd_net_flatten(n, x));
    return rd_net_dense(n, "dense2", rd_net_classes(n), false, x);
}

static const rd_image_arch lenet_arch = {
    .name = "lenet", .initializer = RD_KERNEL_TRUNCATED_FAN_IN, .build = lenet_build};
RD_MODEL(lenet) = {RD_IMAGE_MODEL("lenet",
                                  "two 5x5 convolutions, two dense layers, as in tf_cnn_benchmarks",
                                  "idx", 32),
                   .bench_data = "imagenet", .bench_size = 28, .create = rd_image_model_create,
                   .variant = &lenet_arch};
