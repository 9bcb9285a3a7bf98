/* image.c -- the op image: the batch as a variable without a gradient. */
#include "rd/image.h"
#include <inttypes.h>
#include <string.h>

rd_var *rd_op_image(rd_tape *t, const float *x, int64_t n, int64_t h, int64_t w, int64_t c)
{
    float *v;
    if (n < 1 || h < 1 || w < 1 || c < 1) {
        rd_fail(rd_tape_status(t), RD_EBUG,
                "image: an empty batch of %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, n, h, w,
                c);
        return NULL;
    }
    /* The ops only read v; variables have no const. */
    memcpy(&v, &x, sizeof v);
    rd_var *y = rd_tape_const(t, v, n * h * w, c);
    if (!y) return NULL;
    y->n_dim = 4;
    y->dim[0] = n;
    y->dim[1] = h;
    y->dim[2] = w;
    y->dim[3] = c;
    return y;
}
