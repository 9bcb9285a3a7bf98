/* resnet.c -- ResNet for ImageNet (He et al. 2015, table 1), with 18 to 152 layers.
 *
 * A bottleneck block has its stride on the first 1x1 convolution (v1, as in the paper and in
 * tf_cnn_benchmarks) or on the 3x3 convolution (v1.5, as in PyTorch). A norm follows every
 * convolution. If the shape changes, the shortcut is a 1x1 projection with a norm. */
#include "image_model.h"
#include <inttypes.h>

typedef struct resnet_shape {
    int64_t depth;
    int n_blocks[4];
    bool bottleneck;
} resnet_shape;
static const resnet_shape shapes[] = {
    {18, {2, 2, 2, 2}, false},  {34, {3, 4, 6, 3}, false},  {50, {3, 4, 6, 3}, true},
    {101, {3, 4, 23, 3}, true}, {152, {3, 8, 36, 3}, true},
};

static const resnet_shape *resnet_find(int64_t depth)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].depth == depth) return &shapes[i];
    return NULL;
}

static rd_feature conv_norm(rd_image_net *n, const char *conv, const char *norm, int64_t size,
                            int64_t out, int64_t stride, bool relu, rd_feature x)
{
    const rd_net_conv c = {.size = size, .out = out, .stride = stride, .padding = RD_PAD_SYMMETRIC};
    return rd_net_batch_norm(n, norm, &(rd_net_norm){.relu = relu}, rd_net_conv2d(n, conv, &c, x),
                             NULL);
}

/* relu(F(x) + shortcut(x)). The projection is computed last, so that the sum finds it in the
 * cache. */
static rd_feature resnet_block(rd_image_net *n, const resnet_shape *s, int64_t width,
                               int64_t stride, rd_feature x)
{
    const bool late = rd_net_arch(n)->stride_on_3x3;
    const int64_t out = s->bottleneck ? 4 * width : width;
    rd_feature y = x, shortcut = x;
    if (s->bottleneck) {
        y = conv_norm(n, "conv1", "norm1", 1, width, late ? 1 : stride, true, y);
        y = conv_norm(n, "conv2", "norm2", 3, width, late ? stride : 1, true, y);
        y = rd_net_conv2d(n, "conv3", &(rd_net_conv){.size = 1, .out = out, .stride = 1}, y);
    } else {
        const rd_net_conv c = {.size = 3, .out = out, .stride = 1, .padding = RD_PAD_SYMMETRIC};
        y = conv_norm(n, "conv1", "norm1", 3, width, stride, true, y);
        y = rd_net_conv2d(n, "conv2", &c, y);
    }
    if (stride != 1 || x.c != out)
        shortcut = conv_norm(n, "projection", "projection_norm", 1, out, stride, false, x);
    return rd_net_batch_norm(n, s->bottleneck ? "norm3" : "norm2",
                             &(rd_net_norm){.relu = true, .zero_gamma = true}, y, &shortcut);
}

static rd_feature resnet_build(rd_image_net *n, rd_feature x)
{
    const resnet_shape *s = resnet_find(rd_net_arch(n)->depth);
    const bool same = rd_net_config(n)->pool_padding == RD_POOL_SAME;
    rd_net_scope(n, "%s", "");
    x = conv_norm(n, "conv1", "norm1", 7, 64, 2, true, x);
    x = rd_net_max_pool(n, 3, 2, same ? RD_PAD_SAME : RD_PAD_SYMMETRIC, x);
    for (int stage = 0; stage < 4; stage++)
        for (int b = 0; b < s->n_blocks[stage]; b++) {
            rd_net_scope(n, "stage%d/block%d", stage + 2, b + 1);
            x = resnet_block(n, s, (int64_t)64 << stage, stage > 0 && b == 0 ? 2 : 1, x);
        }
    rd_net_scope(n, "%s", "");
    return rd_net_dense(n, "dense", rd_net_classes(n), false, rd_net_global_mean(n, x));
}

typedef struct resnet_variant {
    int64_t depth;             /* number of layers; 0: the key depth */
    rd_resnet_version version; /* default of the key resnet_version */
} resnet_variant;

static rd_code resnet_create(const rd_model_args *a, void **self, rd_status *st)
{
    const resnet_variant *variant = a->def->variant;
    const int64_t depth = variant->depth;
    rd_image_arch arch = {.name = "resnet",
                          .initializer = RD_KERNEL_HE_NORMAL_FAN_OUT,
                          .build = resnet_build,
                          .depth = depth};
    rd_image_config c;
    *self = NULL;
    if (rd_image_model_read(a, &c, st) != RD_OK) return st->code;
    if (depth == 0) arch.depth = c.has_depth ? c.depth : 50;
    if (depth != 0 && rd_image_model_check_depth(a->config, depth, "resnet", st) != RD_OK)
        return st->code;
    if (!resnet_find(arch.depth))
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'depth' is %" PRId64
                       "; model resnet has 18, 34, 50, 101 or 152 layers, and model resnet_cifar "
                       "those of CIFAR",
                       rd_config_where(a->config, "depth"), arch.depth);
    if (!c.has_resnet_version) c.resnet_version = variant->version;
    if (depth != 0 && variant->version == RD_RESNET_V1_5 && c.resnet_version != RD_RESNET_V1_5)
        return rd_fail(
            st, RD_EUSAGE,
            "%s: 'resnet_version' is %s, but the model's name says v1.5; remove one of them",
            rd_config_where(a->config, "resnet_version"),
            rd_option_word(&rd_group_resnet, "resnet_version", (int)c.resnet_version));
    arch.stride_on_3x3 = c.resnet_version == RD_RESNET_V1_5;
    return rd_image_model_new(a, &arch, self, st);
}

#define RD_MODEL_RESNET(id, text, layers, version, batch, what)                                 \
    RD_MODEL(id) = {RD_IMAGE_MODEL(text, what, "image_folder", batch), .own = &rd_group_resnet, \
                    .create = resnet_create, .variant = &(const resnet_variant){layers, version}}

RD_MODEL_RESNET(resnet, "resnet", 0, RD_RESNET_V1_5, 64,
                "residual network for ImageNet; keys depth and resnet_version say which");
RD_MODEL_RESNET(resnet18, "resnet18", 18, RD_RESNET_V1, 64,
                "residual network for ImageNet, 18 layers");
RD_MODEL_RESNET(resnet34, "resnet34", 34, RD_RESNET_V1, 64,
                "residual network for ImageNet, 34 layers");
RD_MODEL_RESNET(resnet50, "resnet50", 50, RD_RESNET_V1, 64,
                "residual network for ImageNet, 50 layers, v1 as in tf_cnn_benchmarks");
RD_MODEL_RESNET(resnet50_v1_5, "resnet50_v1.5", 50, RD_RESNET_V1_5, 64,
                "residual network for ImageNet, 50 layers, stride on the 3x3");
RD_MODEL_RESNET(resnet101, "resnet101", 101, RD_RESNET_V1, 32,
                "residual network for ImageNet, 101 layers, v1 as in tf_cnn_benchmarks");
RD_MODEL_RESNET(resnet101_v1_5, "resnet101_v1.5", 101, RD_RESNET_V1_5, 32,
                "residual network for ImageNet, 101 layers, stride on the 3x3");
RD_MODEL_RESNET(resnet152, "resnet152", 152, RD_RESNET_V1, 32,
                "residual network for ImageNet, 152 layers, v1 as in tf_cnn_benchmarks");
RD_MODEL_RESNET(resnet152_v1_5, "resnet152_v1.5", 152, RD_RESNET_V1_5, 32,
                "residual network for ImageNet, 152 layers, stride on the 3x3");
