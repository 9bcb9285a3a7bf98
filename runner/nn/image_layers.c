/* image_layers.c -- the layers of image_net.h. Each layer computes the size of its result. In the
 * first run it then declares its parameters; in later runs it records its op. */
#include "image_layers_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rd_feature nothing = {NULL, 0, 0, 0, 0};

static bool declares(const rd_image_net *n)
{
    return n->st != NULL;
}

static rd_status *image_layers_status(const rd_image_net *n)
{
    return n->st ? n->st : n->graph ? rd_onnx_status(n->graph) : rd_tape_status(n->tape);
}

static bool failed(const rd_image_net *n)
{
    return image_layers_status(n)->code != RD_OK;
}

/* Returns the next layer: a new one while parameters are declared, else the one that was declared
 * at this place. NULL after a failure. */
static net_layer *next_layer(rd_image_net *n)
{
    if (failed(n)) return NULL;
    if (!declares(n)) {
        if (n->at < n->n_layers) return &n->layer[n->at++];
        rd_fail(image_layers_status(n), RD_EBUG, "model %s has more layers than it declared",
                n->a.arch.name);
        return NULL;
    }
    if (n->n_layers == n->cap) {
        const int cap = n->cap ? 2 * n->cap : 64;
        net_layer *l = realloc(n->layer, (size_t)cap * sizeof *l);
        if (!l) {
            rd_fail(n->st, RD_EENV, "out of memory for the model");
            return NULL;
        }
        n->layer = l;
        n->cap = cap;
    }
    n->layer[n->n_layers] = (net_layer){0};
    return &n->layer[n->n_layers++];
}

static void full_name(const rd_image_net *n, const char *name, const char *part, char out[160])
{
    (void)snprintf(out, 160, "%s/%s%s%s/%s", n->a.arch.name, n->scope, n->scope[0] ? "/" : "", name,
                   part);
}

static void image_layers_add(rd_image_net *n, const char *name, const char *part, int n_dim,
                             const int64_t *dim, rd_init init, unsigned flags, rd_param **out)
{
    char full[160];
    full_name(n, name, part, full);
    if (n->st->code == RD_OK)
        (void)rd_params_add(n->a.params, full, n_dim, dim, init, flags, out, n->st);
}

static void add_vector(rd_image_net *n, const char *name, const char *part, int64_t size,
                       rd_init init, rd_param **out)
{
    image_layers_add(n, name, part, 1, &size, init, RD_PARAM_NO_DECAY, out);
}

static const rd_init zero = {.kind = RD_INIT_CONST, .value = 0.0};

/* Standard deviation of a normal distribution with variance 1 that is cut at -2 and 2. TensorFlow
 * divides by it since 1.9. */
static const double cut_at_two = 0.87962566103423978;

static rd_init conv_init(const rd_image_net *n, int64_t fan_in, int64_t fan_out)
{
    const rd_kernel_init kind = n->a.config.initializer;
    if (kind == RD_KERNEL_GLOROT_UNIFORM)
        return (rd_init){.kind = RD_INIT_GLOROT, .fan_in = fan_in, .fan_out = fan_out};
    if (kind == RD_KERNEL_TRUNCATED_FAN_IN)
        return (rd_init){.kind = RD_INIT_TRUNCATED,
                         .value = sqrt(1.0 / (double)fan_in) / cut_at_two};
    return (rd_init){
        .kind = RD_INIT_NORMAL,
        .value = sqrt(2.0 / (double)(kind == RD_KERNEL_HE_NORMAL_FAN_IN ? fan_in : fan_out))};
}

static rd_init dense_init(const rd_image_net *n, int64_t in, int64_t out, bool relu)
{
    const rd_kernel_init kind = n->a.config.initializer;
    if (kind == RD_KERNEL_GLOROT_UNIFORM)
        return (rd_init){.kind = RD_INIT_GLOROT, .fan_in = in, .fan_out = out};
    if (kind == RD_KERNEL_TRUNCATED_FAN_IN) /* tf_cnn_benchmarks does not divide here */
        return (rd_init){.kind = RD_INIT_TRUNCATED, .value = sqrt((relu ? 2.0 : 1.0) / (double)in)};
    return (rd_init){.kind = RD_INIT_UNIFORM, .value = sqrt(1.0 / (double)in)};
}

/* Replaces the first values of a layer by its own, where the initializer is the one of
 * tf_cnn_benchmarks. */
static void start_as(const rd_image_net *n, rd_net_start start, rd_init *kernel, rd_init *bias)
{
    if (start.stddev == 0.0 || n->a.config.initializer != RD_KERNEL_TRUNCATED_FAN_IN) return;
    *kernel = (rd_init){.kind = RD_INIT_TRUNCATED, .value = start.stddev};
    *bias = (rd_init){.kind = RD_INIT_CONST, .value = start.bias};
}

/* Computes the number of padding pixels before and behind the pixels of one direction. */
static void image_layers_pad_of(rd_net_padding padding, int64_t in, int64_t size, int64_t stride,
                                int64_t *before, int64_t *behind)
{
    *before = *behind = 0;
    if (padding == RD_PAD_SYMMETRIC) *before = *behind = (size - 1) / 2;
    if (padding != RD_PAD_SAME) return;
    const int64_t total = ((in + stride - 1) / stride - 1) * stride + size - in;
    *before = total > 0 ? total / 2 : 0;
    *behind = total > 0 ? total - *before : 0;
}

/* Returns the number of windows of `size` that fit in one direction. */
static int64_t windows(int64_t in, int64_t size, int64_t stride, int64_t before, int64_t behind)
{
    const int64_t last = in + before + behind - size;
    return last < 0 ? 0 : last / stride + 1;
}

static bool too_small(rd_image_net *n, const char *what, int64_t size, rd_feature x, rd_feature y)
{
    if (failed(n)) return true;
    if (y.h > 0 && y.w > 0) return false;
    rd_fail(image_layers_status(n), RD_EUSAGE,
            "images of %" PRId64 " x %" PRId64 " are too small for model %s: %" PRId64 " x %" PRId64
            " are left where %s needs %" PRId64 " x %" PRId64
            "; take larger images or another model",
            n->a.h, n->a.w, n->a.arch.name, x.h, x.w, what, size, size);
    return true;
}

static void image_layers_count(rd_image_net *n, double macs)
{
    if (!declares(n)) return;
    if (n->macs == 0.0) n->first_macs = macs;
    n->macs += macs;
}

rd_feature rd_net_conv2d(rd_image_net *n, const char *name, const rd_net_conv *c, rd_feature x)
{
    net_layer *l = next_layer(n);
    rd_conv op = {.stride = c->stride, .relu = c->relu};
    if (!l) return nothing;
    image_layers_pad_of(c->padding, x.h, c->size, c->stride, &op.pad_top, &op.pad_bottom);
    image_layers_pad_of(c->padding, x.w, c->size, c->stride, &op.pad_left, &op.pad_right);
    rd_feature y = {NULL, windows(x.h, c->size, c->stride, op.pad_top, op.pad_bottom),
                    windows(x.w, c->size, c->stride, op.pad_left, op.pad_right), c->out, 0};
    if (too_small(n, name, c->size, x, y)) return nothing;
    if (declares(n)) {
        const int64_t dim[] = {c->size, c->size, x.c, c->out}, area = c->size * c->size;
        rd_init kernel = conv_init(n, area * x.c, area * c->out), bias = zero;
        start_as(n, c->start, &kernel, &bias);
        image_layers_add(n, name, "kernel", 4, dim, kernel, 0, &l->p[0]);
        if (c->bias) add_vector(n, name, "bias", c->out, bias, &l->p[1]);
        image_layers_count(n, (double)(y.h * y.w) * (double)(area * x.c) * (double)c->out);
        return y;
    }
    if (n->graph)
        y.value = net_graph_conv2d(n, l, &op, x);
    else
        y.var = rd_op_conv2d(n->tape, &op, x.var, rd_tape_param(n->tape, l->p[0]),
                             rd_tape_param(n->tape, l->p[1]));
    return y;
}

rd_feature rd_net_batch_norm(rd_image_net *n, const char *name, const rd_net_norm *c, rd_feature x,
                             const rd_feature *shortcut)
{
    net_layer *l = next_layer(n);
    const rd_image_config *g = &n->a.config;
    if (!l) return nothing;
    if (declares(n)) {
        const rd_init gamma = {.kind = RD_INIT_CONST,
                               .value = c->zero_gamma && g->zero_gamma ? 0.0 : 1.0};
        char full[160];
        add_vector(n, name, "gamma", x.c, gamma, &l->p[0]);
        add_vector(n, name, "beta", x.c, zero, &l->p[1]);
        for (int k = 0; k < 2 && n->st->code == RD_OK; k++) {
            full_name(n, name, k ? "variance" : "mean", full);
            (void)rd_params_add_state(n->a.params, full, x.c, k, g->batch_norm_momentum,
                                      &l->p[2 + k], n->st);
        }
        return x;
    }
    if (n->graph) {
        x.value = net_graph_batch_norm(n, l, c->relu, x, shortcut);
        return x;
    }
    const rd_batch_norm op = {.epsilon = (float)g->batch_norm_epsilon,
                              .group = g->batch_norm_samples,
                              .relu = c->relu,
                              .mean = l->p[2],
                              .variance = l->p[3]};
    x.var = rd_op_batch_norm(n->tape, &op, x.var, rd_tape_param(n->tape, l->p[0]),
                             rd_tape_param(n->tape, l->p[1]), shortcut ? shortcut->var : NULL);
    return x;
}

rd_feature rd_net_max_pool(rd_image_net *n, int64_t size, int64_t stride, rd_net_padding padding,
                           rd_feature x)
{
    rd_pool op = {.kind = RD_POOL_MAX, .size = size, .stride = stride};
    if (failed(n)) return nothing;
    image_layers_pad_of(padding, x.h, size, stride, &op.pad_top, &op.pad_bottom);
    image_layers_pad_of(padding, x.w, size, stride, &op.pad_left, &op.pad_right);
    rd_feature y = {NULL, windows(x.h, size, stride, op.pad_top, op.pad_bottom),
                    windows(x.w, size, stride, op.pad_left, op.pad_right), x.c, 0};
    if (too_small(n, "a pool", size, x, y)) return nothing;
    if (n->graph)
        y.value = net_graph_max_pool(n, &op, x);
    else if (!declares(n))
        y.var = rd_op_pool2d(n->tape, &op, x.var);
    return y;
}

rd_feature rd_net_lrn(rd_image_net *n, const rd_lrn *a, rd_feature x)
{
    if (failed(n)) return nothing;
    if (n->graph)
        x.value = net_graph_lrn(n, a, x);
    else if (!declares(n))
        x.var = rd_op_lrn(n->tape, a, x.var);
    return x;
}

rd_feature rd_net_shortcut(rd_image_net *n, int64_t stride, int64_t c_out, rd_feature x)
{
    if (failed(n)) return nothing;
    rd_feature y = {NULL, (x.h + stride - 1) / stride, (x.w + stride - 1) / stride, c_out, 0};
    if (n->graph)
        y.value = net_graph_shortcut(n, stride, c_out, x);
    else if (!declares(n))
        y.var = rd_op_shortcut(n->tape, x.var, stride, c_out);
    return y;
}

rd_feature rd_net_global_mean(rd_image_net *n, rd_feature x)
{
    if (failed(n)) return nothing;
    rd_feature y = {NULL, 1, 1, x.c, 0};
    if (n->graph)
        y.value = net_graph_global_mean(n, x);
    else if (!declares(n))
        y.var = rd_op_global_mean(n->tape, x.var);
    return y;
}

rd_feature rd_net_flatten(rd_image_net *n, rd_feature x)
{
    if (failed(n)) return nothing;
    rd_feature y = {NULL, 1, 1, x.h * x.w * x.c, 0};
    if (n->graph)
        y.value = net_graph_flatten(n, x);
    else if (!declares(n))
        y.var = rd_op_flatten(n->tape, x.var);
    return y;
}

rd_feature rd_net_dense(rd_image_net *n, const char *name, int64_t out, bool relu, rd_feature x)
{
    return rd_net_dense_from(n, name, out, relu, (rd_net_start){0}, x);
}

rd_feature rd_net_dense_from(rd_image_net *n, const char *name, int64_t out, bool relu,
                             rd_net_start start, rd_feature x)
{
    net_layer *l = next_layer(n);
    rd_feature y = {NULL, 1, 1, out, 0};
    if (!l) return nothing;
    if (declares(n)) {
        const int64_t dim[] = {x.c, out};
        rd_init w = dense_init(n, x.c, out, relu);
        /* PyTorch draws the bias from the distribution of the kernel. */
        rd_init bias = w.kind == RD_INIT_UNIFORM ? w : zero;
        start_as(n, start, &w, &bias);
        image_layers_add(n, name, "kernel", 2, dim, w, 0, &l->p[0]);
        add_vector(n, name, "bias", out, bias, &l->p[1]);
        image_layers_count(n, (double)x.c * (double)out);
        return y;
    }
    if (n->graph) {
        y.value = net_graph_dense(n, l, relu, x);
        return y;
    }
    y.var = rd_op_linear(n->tape, x.var, rd_tape_param(n->tape, l->p[0]),
                         rd_tape_param(n->tape, l->p[1]));
    if (relu) y.var = rd_op_relu(n->tape, y.var);
    return y;
}

rd_feature rd_net_dropout(rd_image_net *n, double rate, rd_feature x)
{
    if (failed(n) || declares(n) || n->graph) return failed(n) ? nothing : x;
    const rd_dropout op = {.seed = n->a.seed,
                           .epoch = n->batch->epoch,
                           .site = n->site++,
                           .keep = (float)(1.0 - rate)};
    if (rate > 0.0) x.var = rd_op_dropout(n->tape, &op, n->batch->sample, x.var);
    return x;
}
