/* vgg16.c -- VGG with 16 layers, and the network of the whole family: 3x3 convolutions in five stages that end in a
 * pool, three dense layers. 138,357,544 parameters for 224 x 224 and 1000 classes. */
#include "vgg.h"

static rd_feature vgg16_build(rd_image_net *n, rd_feature x)
{
    const int64_t depth = rd_net_arch(n)->depth;
    const double rate = rd_net_config(n)->dropout_dense;
    static const int64_t width[] = {64, 128, 256, 512, 512};
    for (int s = 0; s < 5; s++) {
        const int n_conv = s < 2 ? (depth == 11 ? 1 : 2) : depth == 11 ? 2 : depth == 16 ? 3 : 4;
        const rd_net_conv c = {.size = 3,
                               .out = width[s],
                               .stride = 1,
                               .padding = RD_PAD_SYMMETRIC,
                               .bias = true,
                               .relu = true};
        rd_net_scope(n, "stage%d", s + 1);
        static const char *const name[] = {"conv1", "conv2", "conv3", "conv4"};
        for (int i = 0; i < n_conv; i++) x = rd_net_conv2d(n, name[i], &c, x);
        x = rd_net_max_pool(n, 2, 2, RD_PAD_NONE, x);
    }
    rd_net_scope(n, "%s", "");
    x = rd_net_dense(n, "dense1", 4096, true, rd_net_flatten(n, x));
    x = rd_net_dropout(n, rate, x);
    x = rd_net_dense(n, "dense2", 4096, true, x);
    x = rd_net_dropout(n, rate, x);
    return rd_net_dense(n, "dense3", rd_net_classes(n), false, x);
}

rd_code rd_vgg_create(const rd_model_args *a, int64_t depth, void **self, rd_status *st)
{
    const rd_image_arch arch = {
        .name = "vgg", .initializer = "truncated_fan_in", .build = vgg16_build, .depth = depth};
    return rd_image_model_create(a, &arch, self, st);
}

RD_VGG(vgg16, 16,
       "13 convolutions and 3 dense layers, Simonyan and Zisserman 2014, configuration D");
