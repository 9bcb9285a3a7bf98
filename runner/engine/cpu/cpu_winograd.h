/* cpu_winograd.h -- 3x3 convolutions with stride 1 and fewer multiplications, for cpu_conv.c. */
#ifndef RD_CPU_WINOGRAD_H
#define RD_CPU_WINOGRAD_H

#include "cpu_impl.h"
#include "../image_kernels.h"

/* Sizes of the forward convolution, or of the gradient of its data (flip: the input is dy, the
 * result dx). */
typedef struct rd_winograd {
    /* Samples, input height and width, result height and width. */
    int64_t n, h, w, oh, ow;
    /* Zeros around the input. */
    int64_t top, left;
    /* Channels of the parameter, HWIO. */
    int64_t ci, co;
    /* Channels of a block, in input and result. */
    int64_t block;
    bool flip, relu, add;
} rd_winograd;

/* Fills in *out for one direction of s. Returns whether this build has the kernel and it is faster
 * than the direct convolution. */
bool rd_winograd_of(const rd_conv_shape *s, int64_t block, bool data, rd_winograd *out);
/* Returns the size of the transformed weights in bytes. */
size_t rd_winograd_weight_bytes(const rd_winograd *g);
/* Transforms the weights: U = G W G^T. */
void rd_winograd_weights(rd_cpu *b, const rd_winograd *g, const float *W, float *U);
/* Computes the result, or dx. bias: co floats, or NULL. buffer: scratch memory that is kept from
 * call to call. */
rd_code rd_winograd_run(rd_cpu *b, const rd_winograd *g, const float *x, const float *U,
                        const float *bias, float *y, rd_cpu_buffer *buffer, rd_status *st);
/* Adds the gradients of the weights to dW (HWIO) and to dbias (NULL: not wanted). w describes the
 * forward convolution. */
rd_code rd_winograd_gradient(rd_cpu *b, const rd_winograd *w, const float *x, const float *dy,
                             rd_cpu_buffer *buffer, float *dW, float *dbias, rd_status *st);

#endif
