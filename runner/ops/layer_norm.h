/* layer_norm.h -- declarations that layer_norm.c and layer_norm.cu share. */
#ifndef RD_LAYER_NORM_OP_H
#define RD_LAYER_NORM_OP_H

#include "rd/ops.h"

RD_C_BEGIN

/* What forward leaves for backward. */
typedef struct rd_layer_norm_saved {
    double *mean; /* [N] mean of each row; 0 with rms */
    float *r;     /* [N] 1 / sqrt(variance + eps) */
} rd_layer_norm_saved;

/* Returns the number of rows of a chunk. Backward sums dgain and dbias over chunks of rows, and
 * then over the chunks in their order. It is a function of the number of rows alone. */
static inline int64_t rd_layer_norm_chunk(int64_t n)
{
    enum { MOST = 64, LEAST = 32 };
    const int64_t even = (n + MOST - 1) / MOST;
    return even > LEAST ? even : (int64_t)LEAST;
}

RD_C_END
#endif
