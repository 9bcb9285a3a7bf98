/* vgg.c -- VGG (Simonyan and Zisserman 2014): 3x3 convolutions in five stages, each with a pool at
 * its end, then three dense layers. With 16 layers it has 138,357,544 parameters for images of
 * 224 x 224 and 1000 classes. */
#include "image_model.h"

static rd_feature vgg_build(rd_image_net *n, rd_feature x)
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

#define RD_MODEL_VGG(id, layers, what)                                                           \
    RD_MODEL(id) = {RD_IMAGE_MODEL(#id, what, "image_folder", 64), .own = &rd_group_dropout,     \
                    .create = rd_image_model_create,                                             \
                    .variant = &(const rd_image_arch){.name = "vgg",                             \
                                                      .initializer = RD_KERNEL_TRUNCATED_FAN_IN, \
                                                      .build = vgg_build,                        \
                                                      .depth = (layers)}}

RD_MODEL_VGG(vgg11, 11,
             "8 convolutions and 3 dense layers, Simonyan and Zisserman 2014, configuration A");
RD_MODEL_VGG(vgg16, 16,
             "13 convolutions and 3 dense layers, Simonyan and Zisserman 2014, configuration D");
RD_MODEL_VGG(vgg19, 19,
             "16 convolutions and 3 dense layers, Simonyan and Zisserman 2014, configuration E");
