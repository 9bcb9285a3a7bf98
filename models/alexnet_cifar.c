/* alexnet_cifar.c -- AlexNet for CIFAR as in tf_cnn_benchmarks and TensorFlow's tutorial
 * (Krizhevsky 2009): two convolutions with local response norm, three dense layers. Bench mode
 * takes it for --model=alexnet with the data of CIFAR, as that program does. */
#include "image_model.h"

static rd_feature alexnet_cifar_build(rd_image_net *n, rd_feature x)
{
    const rd_lrn norm = {.radius = 4, .bias = 1.0f, .alpha = 0.001f / 9.0f, .beta = 0.75f};
    const rd_net_start dense = {.stddev = 0.04, .bias = 0.1};
    rd_net_conv conv = {.size = 5,
                        .out = 64,
                        .stride = 1,
                        .padding = RD_PAD_SAME,
                        .bias = true,
                        .relu = true,
                        .start = {.stddev = 0.05}};
    x = rd_net_conv2d(n, "conv1", &conv, x);
    x = rd_net_lrn(n, &norm, rd_net_max_pool(n, 3, 2, RD_PAD_SAME, x));
    conv.start.bias = 0.1;
    x = rd_net_lrn(n, &norm, rd_net_conv2d(n, "conv2", &conv, x));
    x = rd_net_flatten(n, rd_net_max_pool(n, 3, 2, RD_PAD_SAME, x));
    x = rd_net_dense_from(n, "dense1", 384, true, dense, x);
    x = rd_net_dense_from(n, "dense2", 192, true, dense, x);
    return rd_net_dense(n, "dense3", rd_net_classes(n), false, x);
}

RD_MODEL_IMAGE(alexnet_cifar, "alexnet_cifar",
               "two convolutions with local response norm, three dense layers", "cifar", 128,
               .name = "alexnet_cifar", .initializer = RD_KERNEL_TRUNCATED_FAN_IN,
               .build = alexnet_cifar_build);
