/* image_net.h -- networks that class images.
 *
 * A network is one function that names its layers in order of use. It runs once without data, when
 * the model is made: the layers check sizes and declare parameters. Then it runs for every batch,
 * and the same calls record ops on the tape. So shapes, names, order and formula of a model are in
 * one place.
 *
 * Nothing here is collective. */
#ifndef RD_IMAGE_NET_H
#define RD_IMAGE_NET_H

#include "rd/image.h"
#include "rd/options.h"

RD_C_BEGIN

/* ---- the keys of image models ---- */
/* In the order of the words of their keys. */
typedef enum rd_kernel_init {
    RD_KERNEL_GLOROT_UNIFORM,
    RD_KERNEL_HE_NORMAL_FAN_OUT,
    RD_KERNEL_HE_NORMAL_FAN_IN,
    RD_KERNEL_TRUNCATED_FAN_IN
} rd_kernel_init;
typedef enum rd_pool_padding { RD_POOL_SYMMETRIC, RD_POOL_SAME } rd_pool_padding;
typedef enum rd_resnet_version { RD_RESNET_V1, RD_RESNET_V1_5 } rd_resnet_version;

/* Fields of groups that the model does not read are zero. */
typedef struct rd_image_config {
    rd_kernel_init initializer; /* counts if has_initializer */
    double label_smoothing;
    /* of the resnets */
    rd_pool_padding pool_padding;
    rd_resnet_version resnet_version; /* counts if has_resnet_version */
    int64_t depth;                    /* counts if has_depth */
    bool zero_gamma;
    double batch_norm_momentum, batch_norm_epsilon;
    int64_t batch_norm_samples;
    /* of mnist_cnn, vgg and alexnet */
    double dropout_conv, dropout_dense;
    bool has_initializer, has_depth, has_resnet_version;
} rd_image_config;
/* The keys of all image models, of the resnets, of vgg and alexnet, and of mnist_cnn. All rows fill
 * an rd_image_config. */
extern const rd_option_group rd_group_image_model, rd_group_resnet, rd_group_dropout,
    rd_group_mnist_cnn;

/* ---- a network ---- */
typedef struct rd_image_net rd_image_net;
typedef struct
    rd_feature { /* what goes from layer to layer: an image, or a row of c numbers (h = w = 1) */
    rd_var *var; /* NULL while parameters are declared */
    int64_t h, w, c;
} rd_feature;

typedef struct rd_image_arch {
    const char *name;           /* in messages, and first part of the parameters' names */
    rd_kernel_init initializer; /* where the config has none */
    rd_feature (*build)(rd_image_net *n, rd_feature image); /* returns the logits */
    int64_t depth;      /* of families with several: for build */
    bool stride_on_3x3; /* ResNet v1.5: for build */
} rd_image_arch;

typedef struct rd_image_net_args {
    rd_image_arch arch;
    rd_image_config config;
    int64_t n_classes, h, w, c; /* of the data */
    uint64_t seed;              /* of dropout */
    rd_params *params;          /* borrowed for the life of the network */
} rd_image_net_args;
/* Makes a network and declares its parameters. The caller owns *out. RD_EUSAGE: the images are too
 * small for the network. */
rd_code rd_image_net_new(const rd_image_net_args *a, rd_image_net **out, rd_status *st);
void rd_image_net_free(rd_image_net *n); /* NULL is fine */

typedef struct rd_image_batch {
    int64_t n, h, w, c;
    const float *image;    /* n h w c */
    const int32_t *label;  /* [n] */
    const int64_t *sample; /* [n] ids, keys of dropout */
    uint64_t epoch;
} rd_image_batch;
typedef struct rd_image_result { /* sums over the batch; memory of the tape's arena */
    rd_var *loss;
    double loss_sum, nll_sum;
    const int32_t *argmax, *rank; /* [n]; rank: see rd_class_loss */
    const float *probability;
} rd_image_result;
/* Records the forward pass and the loss. Without samples the loss is zero, (1, 1), and nothing is
 * recorded. RD_EDATA: the batch has other sizes or classes than the network. */
rd_code rd_image_net_loss(rd_image_net *n, rd_tape *t, const rd_image_batch *b,
                          rd_image_result *out, rd_status *st);
/* Returns the number of operations of products and convolutions, forward and backward, of n_images
 * images: 2 for each multiply-add, backward twice forward, without the gradient of the image. */
double rd_image_net_flops(const rd_image_net *n, int64_t n_images);

/* ---- layers, for `build` only. After a failure all further calls do nothing ---- */
const rd_image_config *rd_net_config(const rd_image_net *n);
const rd_image_arch *rd_net_arch(const rd_image_net *n);
int64_t rd_net_classes(const rd_image_net *n);
/* Parameters that follow are called ARCH/SCOPE/NAME/...; "": ARCH/NAME/... */
void rd_net_scope(rd_image_net *n, const char *fmt, ...) RD_PRINTF(2, 3);

typedef enum rd_net_padding {
    RD_PAD_NONE,
    RD_PAD_SYMMETRIC, /* (size - 1) / 2 on all sides, as PyTorch's networks have it */
    RD_PAD_SAME       /* TensorFlow's: output ceil(h / stride), the odd pixel behind */
} rd_net_padding;
typedef struct rd_net_conv {
    int64_t size, out, stride;
    rd_net_padding padding;
    bool bias, relu;
} rd_net_conv;
rd_feature rd_net_conv2d(rd_image_net *n, const char *name, const rd_net_conv *c, rd_feature x);
typedef struct rd_net_norm {
    bool relu;
    bool zero_gamma; /* gamma begins with 0, where the config wants that */
} rd_net_norm;
/* Batch norm, then + add where it is not NULL, then ReLU. */
rd_feature rd_net_batch_norm(rd_image_net *n, const char *name, const rd_net_norm *c, rd_feature x,
                             const rd_feature *add);
rd_feature rd_net_max_pool(rd_image_net *n, int64_t size, int64_t stride, rd_net_padding padding,
                           rd_feature x);
rd_feature rd_net_shortcut(rd_image_net *n, int64_t stride, int64_t c_out,
                           rd_feature x); /* option A */
rd_feature rd_net_global_mean(rd_image_net *n, rd_feature x);
rd_feature rd_net_flatten(rd_image_net *n, rd_feature x);
rd_feature rd_net_dense(rd_image_net *n, const char *name, int64_t out, bool relu, rd_feature x);
rd_feature rd_net_dropout(rd_image_net *n, double rate, rd_feature x);

RD_C_END
#endif
