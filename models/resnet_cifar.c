/* resnet_cifar.c -- ResNet for CIFAR (He et al. 2015, section 4.2): three stages of n basic blocks,
 * which are 6 n + 2 layers. Shortcuts have no parameters (option A). */
#include "image_model.h"
#include <inttypes.h>

static rd_feature resnet_cifar_block(rd_image_net *n, int64_t width, int64_t stride, rd_feature x)
{
    const rd_net_conv first = {.size = 3,
                               .out = width,
                               .stride = stride,
                               .padding = RD_PAD_SYMMETRIC},
                      second = {.size = 3, .out = width, .stride = 1, .padding = RD_PAD_SYMMETRIC};
    rd_feature y = rd_net_conv2d(n, "conv1", &first, x), shortcut = x;
    y = rd_net_batch_norm(n, "norm1", &(rd_net_norm){.relu = true}, y, NULL);
    y = rd_net_conv2d(n, "conv2", &second, y);
    if (stride != 1 || x.c != width) shortcut = rd_net_shortcut(n, stride, width, x);
    return rd_net_batch_norm(n, "norm2", &(rd_net_norm){.relu = true, .zero_gamma = true}, y,
                             &shortcut);
}

static rd_feature resnet_cifar_build(rd_image_net *n, rd_feature x)
{
    const int64_t n_blocks = (rd_net_arch(n)->depth - 2) / 6;
    const rd_net_conv first = {.size = 3, .out = 16, .stride = 1, .padding = RD_PAD_SYMMETRIC};
    rd_net_scope(n, "%s", "");
    x = rd_net_conv2d(n, "conv1", &first, x);
    x = rd_net_batch_norm(n, "norm1", &(rd_net_norm){.relu = true}, x, NULL);
    for (int stage = 0; stage < 3; stage++)
        for (int64_t b = 0; b < n_blocks; b++) {
            rd_net_scope(n, "stage%d/block%" PRId64, stage + 1, b + 1);
            x = resnet_cifar_block(n, (int64_t)16 << stage, stage > 0 && b == 0 ? 2 : 1, x);
        }
    rd_net_scope(n, "%s", "");
    return rd_net_dense(n, "dense", rd_net_classes(n), false, rd_net_global_mean(n, x));
}

static rd_code resnet_cifar_create(const rd_model_args *a, void **self, rd_status *st)
{
    const int64_t depth = *(const int64_t *)a->def->variant; /* 0: the key depth */
    rd_image_arch arch = {.name = "resnet_cifar",
                          .initializer = RD_KERNEL_HE_NORMAL_FAN_OUT,
                          .build = resnet_cifar_build,
                          .depth = depth};
    rd_image_config c;
    *self = NULL;
    if (rd_image_model_read(a, &c, st) != RD_OK) return st->code;
    if (depth == 0) arch.depth = c.has_depth ? c.depth : 20;
    if (depth != 0 && rd_image_model_check_depth(a->config, depth, "resnet_cifar", st) != RD_OK)
        return st->code;
    if (arch.depth < 8 || arch.depth % 6 != 2)
        return rd_fail(st, RD_EUSAGE,
                       "%s: 'depth' is %" PRId64 "; model resnet_cifar has 6 n + 2 layers: 20, 32, "
                       "44, 56, 110 are the paper's",
                       rd_config_where(a->config, "depth"), arch.depth);
    return rd_image_model_new(a, &arch, self, st);
}

#define RD_MODEL_RESNET_CIFAR(id, layers, what)                                       \
    RD_MODEL(id) = {RD_IMAGE_MODEL(#id, what, "cifar", 128), .own = &rd_group_resnet, \
                    .create = resnet_cifar_create, .variant = &(const int64_t){layers}}

RD_MODEL_RESNET_CIFAR(resnet_cifar, 0,
                      "residual network for small images, shortcut option A; key depth says which");
RD_MODEL_RESNET_CIFAR(resnet20, 20, "residual network for CIFAR, 20 layers");
RD_MODEL_RESNET_CIFAR(resnet32, 32, "residual network for CIFAR, 32 layers");
RD_MODEL_RESNET_CIFAR(resnet44, 44, "residual network for CIFAR, 44 layers");
RD_MODEL_RESNET_CIFAR(resnet56, 56, "residual network for CIFAR, 56 layers");
RD_MODEL_RESNET_CIFAR(resnet110, 110, "residual network for CIFAR, 110 layers");
