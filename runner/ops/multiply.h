/* multiply.h -- declarations that multiply.c and multiply.cu share. */
#ifndef RD_MULTIPLY_H
#define RD_MULTIPLY_H

#include "rd/ops.h"

RD_C_BEGIN

/* One pass over n elements of the type of the inputs: y (+)= a b. */
typedef struct rd_multiply_pass {
    int64_t n;
    const void *a, *b;
    void *y; /* may be a */
    bool add;
} rd_multiply_pass;
typedef rd_code rd_multiply_pass_of(rd_call *c, const rd_multiply_pass *p, rd_status *st);
/* Returns the pass of forward. */
rd_multiply_pass rd_multiply_forward_pass(const rd_call *c);
/* Runs backward: the pass of b first, since that of a may overwrite the gradient of the result. */
rd_code rd_multiply_back(rd_call *c, rd_multiply_pass_of *pass, rd_status *st);

RD_C_END
#endif
