/* cpu_conv_weights.h -- the gradient of a convolution's weights without the library; for cpu_conv.c alone. */
#ifndef RD_CPU_CONV_WEIGHTS_H
#define RD_CPU_CONV_WEIGHTS_H

#include "cpu_impl.h"
#include "../image_kernels.h"

/* Is there a kernel for results in blocks of so many channels in this build? */
bool rd_conv_weights_can(const rd_conv_shape *s, int64_t block);
/* Adds to dW (HWIO) and, where not NULL, dbias. room: scratch memory that is kept. */
rd_code rd_conv_weights(rd_cpu *b, const rd_conv_shape *s, int64_t block, int64_t oh, int64_t ow,
                        const float *x, const float *dy, rd_room *room, float *dW, float *dbias,
                        rd_status *st);

#endif
