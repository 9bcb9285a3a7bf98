/* dropout.h -- declarations that dropout.c and dropout.cu share. */
#ifndef RD_DROPOUT_OP_H
#define RD_DROPOUT_OP_H

#include "shared/image_op.h"
#include "rd/philox.h"

RD_C_BEGIN

/* The attribute of the op. */
typedef struct rd_dropout_op {
    rd_dropout d;
    const int64_t *sample; /* [n] ids of the samples, borrowed */
} rd_dropout_op;

/* Returns whether the op drops anything. Otherwise y = x. */
bool rd_dropout_active(const rd_call *c);
/* Returns the key of the masks. */
rd_key rd_dropout_key(const rd_call *c);
/* Returns the view of an image, or of a matrix as images of one pixel. */
rd_image_view rd_dropout_view(const rd_var *x);
/* Copies y = x unless they are the same array: forward if nothing is dropped. */
rd_code rd_dropout_copy(rd_call *c, rd_status *st);

typedef struct rd_dropout_grad {
    const void *dy;
    void *dx; /* may be dy */
    bool add; /* dx += instead of dx = */
} rd_dropout_grad;
/* Computes dx (+)= dy / keep where the mask is set, and 0 elsewhere. */
typedef rd_code rd_dropout_pass(rd_call *c, const rd_dropout_grad *to, rd_status *st);
/* Runs backward of the op. It calls `back` if something is dropped. */
rd_code rd_dropout_back_by(rd_call *c, rd_dropout_pass *back, rd_status *st);

RD_C_END
#endif
