/* image_kernels.h -- convolutions of a backend for the ops on images, and the order of elements
 * that they write. */
#ifndef RD_IMAGE_KERNELS_H
#define RD_IMAGE_KERNELS_H

#include "image_layout.h"

RD_C_BEGIN

typedef struct rd_conv_shape {
    /* Input: samples, height, width, channels. */
    int64_t n, h, w, ci;
    /* Kernel height and width, output channels. */
    int64_t kh, kw, co;
    /* top, left, bottom, right: padding. */
    int64_t stride, top, left, bottom, right;
    /* Channels of a block in the input's layout; 0: NHWC. */
    int64_t block;
    bool bias, relu;
} rd_conv_shape;

/* Sets *layout to the layout that convolutions write; NULL: NHWC. */
rd_code rd_conv_layout(rd_backend *b, const void **layout, rd_status *st);
/* Computes y = conv(x, W) + bias, then max(., 0) if s->relu. y has the layout of rd_conv_layout. ps
 * holds the parameter W. */
rd_code rd_conv_forward(rd_backend *b, const rd_conv_shape *s, const rd_params *ps,
                        const rd_param *W, const float *x, const float *bias, float *y,
                        rd_status *st);
/* Computes the gradients from dy, the gradient of the result before the relu: dx = (add: +=), dW
 * +=, dbias +=. Each of the three may be NULL: not wanted. */
rd_code rd_conv_backward(rd_backend *b, const rd_conv_shape *s, const rd_params *ps,
                         const rd_param *W, const float *x, const float *dy, float *dx, bool add,
                         float *dW, float *dbias, rd_status *st);

RD_C_END
#endif
