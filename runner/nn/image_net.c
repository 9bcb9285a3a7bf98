/* image_net.c -- a network as a function that runs without data first, then for each batch; see
 * image_net.h. The first run keeps its layers in a list. Later runs walk the list, so `build` must
 * call the same layers each time.
 *
 * Features have the type of the batch, which is cast once to the type that the backend prefers.
 * Results of dense layers, logits included, are float32. */
#include "rd/image_net.h"
#include "image_layers_impl.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const initializers[] = {[RD_KERNEL_GLOROT_UNIFORM] = "glorot_uniform",
                                           [RD_KERNEL_HE_NORMAL_FAN_OUT] = "he_normal_fan_out",
                                           [RD_KERNEL_HE_NORMAL_FAN_IN] = "he_normal_fan_in",
                                           [RD_KERNEL_TRUNCATED_FAN_IN] = "truncated_fan_in",
                                           NULL};
static const char *const pool_paddings[] = {
    [RD_POOL_SYMMETRIC] = "symmetric", [RD_POOL_SAME] = "same", NULL};
static const char *const resnet_versions[] = {
    [RD_RESNET_V1] = "v1", [RD_RESNET_V1_5] = "v1.5", NULL};

static const char *const formats[] = {[RD_FORMAT_TEXT] = "text",
                                      [RD_FORMAT_NBEST] = "nbest",
                                      [RD_FORMAT_JSON] = "json",
                                      [RD_FORMAT_TSV] = "tsv",
                                      NULL};

#define T rd_image_config
static const rd_option rows[] = {
    RD_OPT_ENUM(T, initializer, initializer, NULL, initializers,
                "first values of kernels. glorot_uniform: as Keras, default of mnist_cnn; "
                "he_normal_fan_out: default of the resnets; both he_normal: dense layers are "
                "uniform in 1/sqrt(inputs); truncated_fan_in: as tf_cnn_benchmarks, default of "
                "lenet, vgg and alexnet",
                RD_GIVEN(T, has_initializer)),
    RD_OPT_REAL(T, label_smoothing, label_smoothing, "0.0", 0.0, 0.999,
                "share of the target distribution that is spread evenly over all classes"),
    RD_OPT_INT(
        T, top_k, top_k, "1", 1, 1 << 24,
        "infer mode: number of classes that are written for each image, most probable first"),
    RD_OPT_ENUM(T, output_format, output_format, NULL, formats,
                "infer mode. tsv: a line of path, class and probability for each image; json: an "
                "object a line; text: the class alone. Default: tsv",
                RD_GIVEN(T, has_output_format)),
    RD_OPT_END,
};
const rd_option_group rd_group_image_model = {"image_model", "all image models", rows, sizeof(T)};

static const rd_option resnet_rows[] = {
    RD_OPT_INT(T, depth, depth, NULL, 8, 1202,
               "number of layers. resnet: 18, 34, 50, 101 or 152, default 50; resnet_cifar: 20, "
               "32, 44, 56, 110 or another 6 n + 2, default 20",
               RD_GIVEN(T, has_depth)),
    RD_OPT_ENUM(T, resnet_version, resnet_version, NULL, resnet_versions,
                "place of the stride in bottleneck blocks. v1: on the first 1x1 convolution; v1.5: "
                "on the 3x3 convolution. Without it: v1.5 for model resnet, else as the model's "
                "name says (resnet50 is v1)",
                RD_GIVEN(T, has_resnet_version)),
    RD_OPT_ENUM(T, pool_padding, pool_padding, "\"symmetric\"", pool_paddings,
                "padding of the max pool. symmetric: as PyTorch; same: as TensorFlow, with the odd "
                "row behind the image"),
    RD_OPT_BOOL(T, zero_gamma, zero_gamma, "false",
                "the last batch norm of each residual block begins with factor 0, so that the "
                "block begins as the identity"),
    RD_OPT_REAL(T, batch_norm_momentum, batch_norm_momentum, "0.9", 0.0, 1.0,
                "share of the running mean and variance that stays in each step (1 minus PyTorch's "
                "momentum)"),
    RD_OPT_REAL(T, batch_norm_epsilon, batch_norm_epsilon, "1e-5", 1e-12, 1.0,
                "added to the variance in batch norm"),
    RD_OPT_INT(T, batch_norm_samples, batch_norm_samples, "0", 0, 1 << 24,
               "number of neighbouring samples over which batch norm takes its statistics in "
               "training, so that the curve does not depend on the number of ranks. 0: the rank's "
               "whole batch"),
    RD_OPT_END,
};
const rd_option_group rd_group_resnet = {"resnet", "models resnet and resnet_cifar, with any depth",
                                         resnet_rows, sizeof(T)};

#define DROPOUT_DENSE                                                                              \
    RD_OPT_REAL(T, dropout_dense, dropout_dense, "0.5", 0.0, 0.999,                                \
                "mnist_cnn, vgg, alexnet: share of the values dropped after hidden dense layers. " \
                "0: no dropout")
static const rd_option dropout_rows[] = {DROPOUT_DENSE, RD_OPT_END};
const rd_option_group rd_group_dropout = {"dropout", "models vgg and alexnet", dropout_rows,
                                          sizeof(T)};
static const rd_option mnist_cnn_rows[] = {
    RD_OPT_REAL(T, dropout_conv, dropout_conv, "0.25", 0.0, 0.999,
                "mnist_cnn: share of the values dropped after the convolutions. 0: no dropout"),
    DROPOUT_DENSE, RD_OPT_END};
const rd_option_group rd_group_mnist_cnn = {"mnist_cnn", "model mnist_cnn", mnist_cnn_rows,
                                            sizeof(T)};
#undef T

void rd_image_net_free(rd_image_net *n)
{
    if (!n) return;
    free(n->layer);
    free(n);
}

rd_code rd_image_net_new(const rd_image_net_args *a, rd_image_net **out, rd_status *st)
{
    rd_image_net *n = *out = calloc(1, sizeof *n);
    if (!n) return rd_fail(st, RD_EENV, "out of memory for the model");
    n->a = *a;
    if (!a->config.has_initializer) n->a.config.initializer = a->arch.initializer;
    if (a->n_classes < 1 || a->h < 1 || a->w < 1 || a->c < 1) {
        rd_fail(st, RD_EUSAGE,
                "model %s classes images, but the dataset has %" PRId64
                " classes and images of %" PRId64 " x %" PRId64 " x %" PRId64
                "; take a dataset of images (key 'dataset')",
                a->arch.name, a->n_classes, a->h, a->w, a->c);
        goto done;
    }
    n->st = st;
    const rd_feature y = a->arch.build(n, (rd_feature){NULL, a->h, a->w, a->c, 0});
    n->st = NULL;
    if (st->code == RD_OK && (y.h != 1 || y.w != 1 || y.c != a->n_classes))
        rd_fail(st, RD_EBUG,
                "model %s ends with %" PRId64 " x %" PRId64 " x %" PRId64 " instead of %" PRId64
                " classes",
                a->arch.name, y.h, y.w, y.c, a->n_classes);
done:
    if (st->code != RD_OK) {
        rd_image_net_free(n);
        *out = NULL;
    }
    return st->code;
}

const rd_image_config *rd_net_config(const rd_image_net *n)
{
    return &n->a.config;
}
const rd_image_arch *rd_net_arch(const rd_image_net *n)
{
    return &n->a.arch;
}
int64_t rd_net_classes(const rd_image_net *n)
{
    return n->a.n_classes;
}

void rd_net_scope(rd_image_net *n, const char *fmt, ...)
{
    va_list ap;
    if (!n->st) return; /* only declarations use names */
    va_start(ap, fmt);
    (void)vsnprintf(n->scope, sizeof n->scope, fmt, ap);
    va_end(ap);
}

static rd_code check_batch(const rd_image_net *n, const rd_image_batch *b, rd_status *st)
{
    const rd_image_net_args *a = &n->a;
    if (b->h != a->h || b->w != a->w || b->c != a->c)
        return rd_fail(st, RD_EDATA,
                       "images of %" PRId64 " x %" PRId64 " x %" PRId64
                       " (height, width, channels), but the model was made for %" PRId64
                       " x %" PRId64 " x %" PRId64 "; all splits need one size",
                       b->h, b->w, b->c, a->h, a->w, a->c);
    for (int64_t i = 0; i < b->n; i++)
        if (b->label[i] < 0 || b->label[i] >= a->n_classes)
            return rd_fail(st, RD_EDATA,
                           "sample %" PRId64 " has label %" PRId32
                           ", but the model has classes 0 to %" PRId64,
                           b->sample[i], b->label[i], a->n_classes - 1);
    return RD_OK;
}

rd_code rd_image_net_loss(rd_image_net *n, rd_tape *t, const rd_image_batch *b,
                          rd_image_result *out, rd_status *st)
{
    rd_arena *arena = rd_tape_arena(t);
    int32_t *argmax, *rank;
    float *probability, *nothing;
    memset(out, 0, sizeof *out);
    RD_TRY(rd_tape_check(t, st));
    if (b->n == 0) {
        RD_TRY(rd_arena_zero(arena, sizeof *nothing, &nothing, st));
        out->loss = rd_tape_const(t, nothing, 1, 1);
        return rd_tape_check(t, st);
    }
    RD_TRY(check_batch(n, b, st));
    RD_TRY(rd_arena_get(arena, (size_t)b->n * sizeof *argmax, &argmax, st));
    RD_TRY(rd_arena_get(arena, (size_t)b->n * sizeof *rank, &rank, st));
    RD_TRY(rd_arena_get(arena, (size_t)b->n * sizeof *probability, &probability, st));
    n->tape = t;
    n->batch = b;
    n->at = 0;
    n->site = 0;
    rd_var *image = rd_op_image(t, b->image, b->n, b->h, b->w, b->c);
    const rd_feature x = {rd_op_cast(t, image, rd_backend_activations(rd_tape_backend(t))), b->h,
                          b->w, b->c, 0};
    const rd_feature y = n->a.arch.build(n, x);
    n->tape = NULL;
    n->batch = NULL;
    const rd_class_loss loss = {.label = b->label,
                                .smoothing = (float)n->a.config.label_smoothing,
                                .loss_sum = &out->loss_sum,
                                .nll_sum = &out->nll_sum,
                                .argmax = argmax,
                                .rank = rank,
                                .probability = probability};
    out->loss = rd_op_class_loss(t, &loss, y.var);
    out->logits = y.var;
    out->argmax = argmax;
    out->rank = rank;
    out->probability = probability;
    (void)rd_tape_check(t, st);
done:
    return st->code;
}

double rd_image_net_flops(const rd_image_net *n, int64_t n_images)
{
    return (double)n_images * (6.0 * n->macs - 2.0 * n->first_macs);
}
