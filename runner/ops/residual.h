/* residual.h -- declarations that residual.c and residual.cu share. */
#ifndef RD_RESIDUAL_H
#define RD_RESIDUAL_H

#include "rd/ops.h"
#include "rd/philox.h"
#include "shared/image_op.h"

RD_C_BEGIN

/* Returns whether the op drops anything in this call. */
bool rd_residual_drops(const rd_call *c);
/* Returns the key of the masks. */
rd_key rd_residual_key(const rd_call *c);
/* Returns the bytes of the mask of a row: one bit per element. */
static inline int64_t rd_residual_mask_bytes(int64_t d)
{
    return (d + 7) / 8;
}

/* One pass: y = x + z / keep where the mask is set, else x. */
typedef struct rd_residual_pass {
    const void *x; /* NULL: zeros */
    const void *z;
    void *y;                     /* may be x or z of its type */
    rd_element of_x, of_z, of_y; /* types; float32 on a CPU */
} rd_residual_pass;
typedef rd_code rd_residual_pass_of(rd_call *c, const rd_residual_pass *p, rd_status *st);
/* Returns the pass of forward. */
rd_residual_pass rd_residual_forward_pass(const rd_call *c);
/* Computes y without a mask, if all types are equal. */
rd_code rd_residual_plain(rd_call *c, rd_status *st);
/* Runs backward. It calls `masked` for the gradient of z if something is dropped. */
rd_code rd_residual_back(rd_call *c, rd_residual_pass_of *masked, rd_status *st);

RD_C_END
#endif
