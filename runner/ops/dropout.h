/* dropout.h -- what dropout.c and dropout.cu share of the op dropout. */
#ifndef RD_DROPOUT_OP_H
#define RD_DROPOUT_OP_H

#include "shared/image_op.h"
#include "rd/philox.h"

RD_C_BEGIN

typedef struct rd_dropout_op { /* the attribute */
    rd_dropout d;
    const int64_t *sample;
} rd_dropout_op;

/* Is something dropped? Else y is x. */
bool rd_dropout_active(const rd_call *c);
rd_key rd_dropout_key(const rd_call *c);
/* Of a matrix too: one pixel a sample. */
rd_image_view rd_dropout_view(const rd_var *x);
/* Forward where nothing is dropped: y = x, where they are not the same array. */
rd_code rd_dropout_copy(rd_call *c, rd_status *st);

typedef struct rd_dropout_grad {
    const void *dy;
    void *dx; /* may be dy itself */
    bool add;
} rd_dropout_grad;
/* dx (+)= dy / keep where the mask is set. */
typedef rd_code rd_dropout_pass(rd_call *c, const rd_dropout_grad *to, rd_status *st);
/* Backward, where something is dropped by `back`. */
rd_code rd_dropout_back_by(rd_call *c, rd_dropout_pass *back, rd_status *st);

RD_C_END
#endif
