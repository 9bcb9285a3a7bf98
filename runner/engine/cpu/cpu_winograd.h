/* cpu_winograd.h -- 3x3 convolutions of stride 1 with fewer multiplications; for cpu_conv.c alone. */
#ifndef RD_CPU_WINOGRAD_H
#define RD_CPU_WINOGRAD_H

#include "cpu_impl.h"
#include "../image_kernels.h"

/* What goes in and comes out: of the forward convolution, or of the gradient of its data (flip: dy in, dx out). */
typedef struct rd_winograd {
    int64_t n, h, w, oh, ow; /* input, result */
    int64_t top, left;       /* zeros around the input */
    int64_t ci, co;          /* of the parameter, HWIO */
    int64_t block;           /* of both */
    bool flip, relu, add;
} rd_winograd;

/* The description of one direction of s, and whether it pays and is built in. */
bool rd_winograd_of(const rd_conv_shape *s, int64_t block, bool data, rd_winograd *out);
size_t rd_winograd_weight_bytes(const rd_winograd *g);
void rd_winograd_weights(rd_cpu *b, const rd_winograd *g, const float *W, float *U);
/* bias: co floats or NULL. room: scratch memory that is kept. */
rd_code rd_winograd_run(rd_cpu *b, const rd_winograd *g, const float *x, const float *U,
                        const float *bias, float *y, rd_room *room, rd_status *st);
/* The gradient of the weights, of the forward description: dW (HWIO) and dbias (NULL: not wanted) are added to. */
rd_code rd_winograd_gradient(rd_cpu *b, const rd_winograd *w, const float *x, const float *dy,
                             rd_room *room, float *dW, float *dbias, rd_status *st);

#endif
