/* cpu_conv_weights.h -- the gradient of a convolution's weights without oneDNN, for cpu_conv.c. */
#ifndef RD_CPU_CONV_WEIGHTS_H
#define RD_CPU_CONV_WEIGHTS_H

#include "cpu_impl.h"
#include "../image_kernels.h"

/* Returns whether this build has a kernel for this shape and results in blocks of `block`
 * channels. */
bool rd_conv_weights_can(const rd_conv_shape *s, int64_t block);
/* Adds the gradients to dW (HWIO) and to dbias (NULL: not wanted). oh, ow: size of the result.
 * buffer: buffer that is kept from call to call. */
rd_code rd_conv_weights(rd_cpu *b, const rd_conv_shape *s, int64_t block, int64_t oh, int64_t ow,
                        const float *x, const float *dy, rd_cpu_buffer *buffer, float *dW,
                        float *dbias, rd_status *st);

#endif
