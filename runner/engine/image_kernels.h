/* image_kernels.h -- what the ops on images ask of a backend: convolutions, and the order of elements they like. */
#ifndef RD_IMAGE_KERNELS_H
#define RD_IMAGE_KERNELS_H

#include "image_layout.h"

RD_C_BEGIN

typedef struct rd_conv_shape {
    int64_t n, h, w, ci; /* input */
    int64_t kh, kw, co;
    int64_t stride, top, left, bottom, right;
    int64_t block; /* of the input's layout; 0: NHWC */
    bool bias, relu;
} rd_conv_shape;

/* The layout that convolutions write. NULL st: none. */
rd_code rd_conv_layout(rd_backend *b, const void **layout, rd_status *st);
/* y = conv(x, W) + bias, then max(., 0) with s->relu. y lies in the layout above. ps: of the parameter W. */
rd_code rd_conv_forward(rd_backend *b, const rd_conv_shape *s, const rd_params *ps,
                        const rd_param *W, const float *x, const float *bias, float *y,
                        rd_status *st);
/* dy: of the result before the relu. dx is written, or added to with add; dW and dbias are added to; NULL: not wanted.
 */
rd_code rd_conv_backward(rd_backend *b, const rd_conv_shape *s, const rd_params *ps,
                         const rd_param *W, const float *x, const float *dy, float *dx, bool add,
                         float *dW, float *dbias, rd_status *st);

RD_C_END
#endif
