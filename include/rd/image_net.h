/* image_net.h -- networks that classify images.
 *
 * A network is one function that names its layers in order of use. It runs once without data, when
 * the model is made: the layers check sizes and declare parameters. Then it runs for every batch,
 * and the same calls record ops on the tape. For an export they add nodes to a graph. So shapes,
 * names, order and formula of a model are in one place.
 *
 * Nothing here is collective. */
#ifndef RD_IMAGE_NET_H
#define RD_IMAGE_NET_H

#include "rd/image.h"
#include "rd/onnx.h"
#include "rd/options.h"
#include "rd/search.h"

RD_C_BEGIN

/* ---- the keys of image models ---- */
/* Each enum is in the order of the words of its key. */
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
    rd_kernel_init initializer; /* set if has_initializer */
    double label_smoothing;
    int64_t top_k;                  /* infer mode: number of classes of each image */
    rd_output_format output_format; /* set if has_output_format */

    /* The keys of the resnets. */

    rd_pool_padding pool_padding;
    rd_resnet_version resnet_version; /* set if has_resnet_version */
    int64_t depth;                    /* set if has_depth */
    bool zero_gamma;
    double batch_norm_momentum, batch_norm_epsilon;
    int64_t batch_norm_samples;

    /* The keys of mnist_cnn, vgg and alexnet. */

    double dropout_conv, dropout_dense;

    /* Whether the config has the key. */

    bool has_initializer, has_depth, has_resnet_version, has_output_format;
} rd_image_config;
/* The keys of all image models, of the resnets, of vgg and alexnet, and of mnist_cnn. All rows fill
 * an rd_image_config. */
extern const rd_option_group rd_group_image_model, rd_group_resnet, rd_group_dropout,
    rd_group_mnist_cnn;

/* ---- a network ---- */
typedef struct rd_image_net rd_image_net;
/* The input and output of a layer: images of h x w pixels with c channels. Rows of c numbers have
 * h = w = 1. */
typedef struct rd_feature {
    rd_var *var; /* NULL while parameters are declared, and while a graph is made */
    int64_t h, w, c;
    int value; /* number of its value, while a graph is made */
} rd_feature;

typedef struct rd_image_arch {
    const char *name;           /* name in messages, and first part of the parameters' names */
    rd_kernel_init initializer; /* the default of the key `initializer` */
    /* Calls the layers in order and returns the logits. */
    rd_feature (*build)(rd_image_net *n, rd_feature image);
    int64_t depth;      /* for `build`: number of layers, in families with several depths */
    bool stride_on_3x3; /* for `build`: ResNet v1.5 */
} rd_image_arch;

typedef struct rd_image_net_args {
    rd_image_arch arch;
    rd_image_config config;
    int64_t n_classes, h, w, c; /* number of classes, and size of an image */
    uint64_t seed;              /* seed of dropout */
    rd_params *params;          /* borrowed for the life of the network */
} rd_image_net_args;
/* Makes a network and declares its parameters. The caller owns *out. RD_EUSAGE: the images are too
 * small for the network, or the data has no images. */
rd_code rd_image_net_new(const rd_image_net_args *a, rd_image_net **out, rd_status *st);
void rd_image_net_free(rd_image_net *n); /* NULL is fine */

typedef struct rd_image_batch {
    int64_t n, h, w, c;
    const float *image;    /* [n, h, w, c] */
    const int32_t *label;  /* [n] */
    const int64_t *sample; /* [n] global sample ids: part of the keys of dropout */
    uint64_t epoch;
} rd_image_batch;
/* The results of a batch, in memory of the tape's arena. */
typedef struct rd_image_result {
    rd_var *loss;             /* (1, 1) sum of the loss over the batch */
    double loss_sum;          /* the same sum in double */
    double nll_sum;           /* sum of the negative log likelihoods, without label smoothing */
    const int32_t *argmax;    /* [n] class with the largest logit */
    const int32_t *rank;      /* [n] see rd_class_loss */
    const float *probability; /* [n] probability of argmax */
    const rd_var *logits;     /* (n, classes) float32, where the backend computes */
} rd_image_result;
/* Records the forward pass and the loss. A batch with n == 0 has loss 0, (1, 1), and nothing is
 * recorded. RD_EDATA: the batch has other sizes or classes than the network. */
rd_code rd_image_net_loss(rd_image_net *n, rd_tape *t, const rd_image_batch *b,
                          rd_image_result *out, rd_status *st);
/* Adds the network without its dropout to a graph. Input: "image" (batch, c, h, w), as the dataset
 * normalises it. Outputs: "logits" and "probabilities" (batch, classes). */
rd_code rd_image_net_graph(rd_image_net *n, rd_onnx *g, rd_status *st);
/* Returns the number of floating-point operations of the products and convolutions of n_images
 * images, forward and backward: 2 for each multiply-add, backward twice forward, without the
 * gradient of the image. */
double rd_image_net_flops(const rd_image_net *n, int64_t n_images);

/* ---- layers, for `build` only. After a failure all further calls do nothing ---- */
/* Return the config, the architecture and the number of classes of the network. */
const rd_image_config *rd_net_config(const rd_image_net *n);
const rd_image_arch *rd_net_arch(const rd_image_net *n);
int64_t rd_net_classes(const rd_image_net *n);
/* Sets the scope. Parameters of later layers have the names ARCH/SCOPE/NAME/...; with the scope "",
 * ARCH/NAME/... */
void rd_net_scope(rd_image_net *n, const char *fmt, ...) RD_PRINTF(2, 3);

typedef enum rd_net_padding {
    RD_PAD_NONE,
    RD_PAD_SYMMETRIC, /* (size - 1) / 2 pixels on all sides, as in PyTorch's networks */
    RD_PAD_SAME       /* as in TensorFlow: output ceil(h / stride), an odd pixel is added behind */
} rd_net_padding;
/* First values of one layer where the initializer is truncated_fan_in: a truncated normal
 * distribution with this deviation, and a constant bias. stddev 0: those of the initializer. */
typedef struct rd_net_start {
    double stddev, bias;
} rd_net_start;
/* A convolution with kernels of size x size and `out` output channels. */
typedef struct rd_net_conv {
    int64_t size, out, stride;
    rd_net_padding padding;
    bool bias, relu;
    rd_net_start start;
} rd_net_conv;
/* Returns the convolution of x. name: NAME of its parameters. */
rd_feature rd_net_conv2d(rd_image_net *n, const char *name, const rd_net_conv *c, rd_feature x);
typedef struct rd_net_norm {
    bool relu;
    bool zero_gamma; /* gamma starts at 0 if the key zero_gamma is true */
} rd_net_norm;
/* Returns batch norm of x, + *add if add is not NULL, and then ReLU if c->relu. */
rd_feature rd_net_batch_norm(rd_image_net *n, const char *name, const rd_net_norm *c, rd_feature x,
                             const rd_feature *add);
/* Returns the maximum of each window of size x size. */
rd_feature rd_net_max_pool(rd_image_net *n, int64_t size, int64_t stride, rd_net_padding padding,
                           rd_feature x);
/* Returns a shortcut without parameters (option A of He et al. 2015): every stride-th pixel, and
 * zeros in the new channels. */
rd_feature rd_net_shortcut(rd_image_net *n, int64_t stride, int64_t c_out, rd_feature x);
/* Returns the mean over all pixels: rows of c numbers. */
rd_feature rd_net_global_mean(rd_image_net *n, rd_feature x);
/* Returns each image as one row of h w c numbers. */
rd_feature rd_net_flatten(rd_image_net *n, rd_feature x);
/* Returns a dense layer of x, which consists of rows: x kernel + bias, then ReLU if relu. */
rd_feature rd_net_dense(rd_image_net *n, const char *name, int64_t out, bool relu, rd_feature x);
/* Does the same with these first values. */
rd_feature rd_net_dense_from(rd_image_net *n, const char *name, int64_t out, bool relu,
                             rd_net_start start, rd_feature x);
/* Returns local response normalisation over channels, see rd_lrn. */
rd_feature rd_net_lrn(rd_image_net *n, const rd_lrn *a, rd_feature x);
/* Returns inverted dropout of x. rate: share of the values that are dropped. */
rd_feature rd_net_dropout(rd_image_net *n, double rate, rd_feature x);

RD_C_END
#endif
