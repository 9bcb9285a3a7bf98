/* image.h -- ops on batches of images, as functions that record on a tape. Each is one file in runner/ops. The rules of
 * ops.h hold.
 *
 * An image variable has dim = {n, h, w, c}, rows = n h w, cols = c. Where var->layout is NULL its elements lie as NHWC;
 * otherwise they lie in an order of the backend's own, which only the ops of this header read (v and g in the same
 * order; rows * cols says nothing about its bytes). Each of them takes either kind. rd_op_flatten and
 * rd_op_global_mean return plain matrices.
 *
 * On a GPU x may have 16-bit elements but in rd_op_class_loss; the result then has its type. Each op computes in float32 and
 * rounds what it stores, once (a convolution with bias or relu: before these, too). */
#ifndef RD_IMAGE_H
#define RD_IMAGE_H

#include "rd/ops.h"

RD_C_BEGIN

/* x with elements of another type (x itself where it has it), the gradient turned back. RD_EBUG: 16 bits on a CPU. */
rd_var *rd_op_cast(rd_tape *t, rd_var *x, rd_element type);
/* The batch itself: x is NHWC, borrowed until the reset. No gradient. */
rd_var *rd_op_image(rd_tape *t, const float *x, int64_t n, int64_t h, int64_t w, int64_t c);

typedef struct rd_conv {
    int64_t stride;                                   /* of both directions */
    int64_t pad_top, pad_left, pad_bottom, pad_right; /* zeros around the input */
    bool relu;                                        /* y = max(y, 0) in the same pass */
} rd_conv;
/* y = conv(x, W) (+ b): x (n, h, w, ci), W (kh, kw, ci, co), b (co) or NULL; cross-correlation, as everywhere in this
 * field. Output height floor((h + pad_top + pad_bottom - kh) / stride) + 1, width alike; none: RD_EUSAGE. */
rd_var *rd_op_conv2d(rd_tape *t, const rd_conv *c, rd_var *x, rd_var *W, rd_var *b);

typedef struct rd_batch_norm {
    float epsilon;
    int64_t
        group; /* statistics over so many samples that follow each other (the last group may be smaller);
                       0: over all samples of the call */
    bool relu;                 /* y = max(y, 0) after everything */
    rd_param *mean, *variance; /* running statistics, (c), declared by rd_params_add_state */
} rd_batch_norm;
/* y = gamma (x - m) / sqrt(s + epsilon) + beta (+ add), gamma, beta (c), add an image like x or NULL (the shortcut of a
 * residual block). While the tape is training m and s are mean and biased variance over n, h, w of the group, and the
 * gradient arenas of `mean` and `variance` get seed * sum over groups of (samples of the group) * (mean, unbiased
 * variance); else m and s are the running values. */
rd_var *rd_op_batch_norm(rd_tape *t, const rd_batch_norm *bn, rd_var *x, rd_var *gamma,
                         rd_var *beta, rd_var *add);

typedef enum rd_pool_kind { RD_POOL_MAX, RD_POOL_MEAN /* padding does not count */ } rd_pool_kind;
typedef struct rd_pool {
    rd_pool_kind kind;
    int64_t size, stride;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
} rd_pool;
/* Windows size x size; a window that lies whole in the padding is RD_EUSAGE. Of equal maxima the first in (row, column)
 * order gets the gradient. */
rd_var *rd_op_pool2d(rd_tape *t, const rd_pool *p, rd_var *x);

/* Mean over h and w: (n, c), plain. */
rd_var *rd_op_global_mean(rd_tape *t, rd_var *x);
/* (n, h w c), plain, elements of a sample in the order h, w, c. */
rd_var *rd_op_flatten(rd_tape *t, rd_var *x);
/* max(x, 0): images or matrices. */
rd_var *rd_op_relu(rd_tape *t, rd_var *x);
/* a + b, two images of one shape; with relu, max(a + b, 0). */
rd_var *rd_op_add(rd_tape *t, rd_var *a, rd_var *b, bool relu);
/* The shortcut of He et al. 2015, option A: every stride-th pixel, channels padded with zeros to c_out (half of the new
 * ones before the old ones, half after). */
rd_var *rd_op_shortcut(rd_tape *t, rd_var *x, int64_t stride, int64_t c_out);
/* Inverted dropout while training: element e (in the order h, w, c) of sample i is kept with probability d->keep and
 * then divided by it; the mask is a function of (d->seed, d->epoch, d->site, sample[i], e). sample: [n] ids, borrowed.
 * Images, or matrices with a row per sample. */
rd_var *rd_op_dropout(rd_tape *t, const rd_dropout *d, const int64_t *sample, rd_var *x);

typedef struct rd_class_loss {
    const int32_t *label; /* [n] */
    float
        smoothing; /* target distribution: (1 - smoothing) on the label, smoothing / V on every class */
    double *loss_sum; /* out: sum over samples of the cross-entropy with that distribution */
    double *nll_sum;  /* out: sum of -log p(label); NULL: not wanted */
    int32_t *argmax;  /* out, [n]: lowest class on ties; NULL: not wanted */
    int32_t *
        rank; /* out, [n]: how many classes score higher than the label (ties with lower number count): top-k is rank < k;
                               NULL: not wanted */
    float *probability; /* out, [n]: of the argmax; NULL: not wanted */
} rd_class_loss;
/* Softmax and cross-entropy of logits (n, V), plain; returns (1, 1), the sum. */
rd_var *rd_op_class_loss(rd_tape *t, const rd_class_loss *a, rd_var *logits);

RD_C_END
#endif
