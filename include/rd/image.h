/* image.h -- ops on batches of images, as functions that record on a tape.
 *
 * Each op is one file in runner/ops. The rules of ops.h hold.
 *
 * An image variable has dim = {n, h, w, c}, rows = n h w, cols = c. If var->layout is NULL, its
 * elements are stored as NHWC. Otherwise the backend chose the order of v and g, which only the ops
 * of this header read. The number of stored elements is then not rows * cols. Each op takes either
 * kind. rd_op_flatten and rd_op_global_mean return plain matrices.
 *
 * On a GPU x may have 16-bit elements, except in rd_op_class_loss; the result then has the type
 * of x. Each op computes in float32 and rounds once, when it stores the result. A convolution
 * with bias or relu also rounds before the bias and the relu. */
#ifndef RD_IMAGE_H
#define RD_IMAGE_H

#include "rd/ops.h"

RD_C_BEGIN

/* Returns x with elements of another type; x itself if it has the type. Backward converts the
 * gradient back. RD_EBUG: 16 bits on a CPU. */
rd_var *rd_op_cast(rd_tape *t, rd_var *x, rd_element type);
/* Returns the batch as a variable without gradient. x is NHWC, borrowed until the reset. */
rd_var *rd_op_image(rd_tape *t, const float *x, int64_t n, int64_t h, int64_t w, int64_t c);

typedef struct rd_conv {
    /* Stride in both directions. */
    int64_t stride;
    /* Rows and columns of zeros around the input. */
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    /* Whether y = max(y, 0) follows in the same pass. */
    bool relu;
} rd_conv;
/* Returns y = conv(x, W) (+ b). x (n, h, w, ci), W (kh, kw, ci, co), b (co) or NULL. It is a
 * cross-correlation, as everywhere in this field. The output height is
 * floor((h + pad_top + pad_bottom - kh) / stride) + 1; the width likewise. RD_EUSAGE: the output
 * would be empty. */
rd_var *rd_op_conv2d(rd_tape *t, const rd_conv *c, rd_var *x, rd_var *W, rd_var *b);

typedef struct rd_batch_norm {
    float epsilon;
    /* Number of consecutive samples per statistic (the last group may be smaller); 0: all samples
     * of the call. */
    int64_t group;
    /* Whether y = max(y, 0) comes last. */
    bool relu;
    /* Running statistics, (c), declared by rd_params_add_state. */
    rd_param *mean, *variance;
} rd_batch_norm;
/* Returns y = gamma (x - m) / sqrt(s + epsilon) + beta (+ add). gamma, beta: (c). add: an image
 * like x (the shortcut of a residual block), or NULL.
 *
 * While the tape is training, m and s are mean and biased variance over n, h, w of the group.
 * The gradient arenas of `mean` and `variance` then get
 *
 *     seed * sum over groups of (samples of the group) * (mean, unbiased variance)
 *
 * Otherwise m and s are the running values. */
rd_var *rd_op_batch_norm(rd_tape *t, const rd_batch_norm *bn, rd_var *x, rd_var *gamma,
                         rd_var *beta, rd_var *add);

/* RD_POOL_MEAN divides by the number of pixels without padding. */
typedef enum rd_pool_kind { RD_POOL_MAX, RD_POOL_MEAN } rd_pool_kind;
typedef struct rd_pool {
    rd_pool_kind kind;
    int64_t size, stride;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
} rd_pool;
/* Returns the maximum or mean of windows of size x size. Among equal maxima the first in (row,
 * column) order gets the gradient. RD_EUSAGE: a window covers only padding. */
rd_var *rd_op_pool2d(rd_tape *t, const rd_pool *p, rd_var *x);

typedef struct rd_lrn {
    int64_t radius; /* neighbouring channels on each side */
    float bias, alpha, beta;
} rd_lrn;
/* Returns local response normalisation over channels, as TensorFlow's lrn:
 * x_c / (bias + alpha sum of x_j^2 over |j - c| <= radius)^beta. */
rd_var *rd_op_lrn(rd_tape *t, const rd_lrn *a, rd_var *x);

/* Returns the mean over h and w: (n, c), a plain matrix. */
rd_var *rd_op_global_mean(rd_tape *t, rd_var *x);
/* Returns x as a plain matrix (n, h w c), elements of a sample in the order h, w, c. */
rd_var *rd_op_flatten(rd_tape *t, rd_var *x);
/* Returns max(x, 0) of an image or a matrix. */
rd_var *rd_op_relu(rd_tape *t, rd_var *x);
/* Returns a + b of two images with the same shape; with relu max(a + b, 0). */
rd_var *rd_op_add(rd_tape *t, rd_var *a, rd_var *b, bool relu);
/* Returns the shortcut of He et al. 2015, option A: every stride-th pixel, channels padded with
 * zeros to c_out. Half of the new channels come before the old ones, half after. */
rd_var *rd_op_shortcut(rd_tape *t, rd_var *x, int64_t stride, int64_t c_out);
/* Applies inverted dropout while training. Element e (in the order h, w, c) of sample i is kept
 * with probability d->keep and then divided by d->keep. The mask is a function of (d->seed,
 * d->epoch, d->site, sample[i], e). sample: [n] ids, borrowed. x: an image, or a matrix with a
 * row per sample. */
rd_var *rd_op_dropout(rd_tape *t, const rd_dropout *d, const int64_t *sample, rd_var *x);

typedef struct rd_class_loss {
    /* [n] */
    const int32_t *label;
    /* Target distribution: (1 - smoothing) on the label, plus smoothing / V on every class. */
    float smoothing;

    /* Out. All but loss_sum may be NULL: not wanted. */

    /* Sum over samples of the cross-entropy with the target distribution. */
    double *loss_sum;
    /* Sum of -log p(label). */
    double *nll_sum;
    /* [n]: class with the highest score; the lowest class on ties. */
    int32_t *argmax;
    /* [n]: number of classes that score higher than the label; a tie counts if the class number is
     * lower. Top-k is rank < k. */
    int32_t *rank;
    /* [n]: probability of argmax. */
    float *probability;
} rd_class_loss;
/* Computes softmax and cross-entropy of logits, a plain matrix (n, V). Returns the sum over
 * samples, (1, 1). */
rd_var *rd_op_class_loss(rd_tape *t, const rd_class_loss *a, rd_var *logits);

RD_C_END
#endif
