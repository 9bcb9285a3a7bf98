/* ssru.h -- declarations that ssru.c and ssru.cu share. */
#ifndef RD_SSRU_H
#define RD_SSRU_H

#include "rd/ops.h"

RD_C_BEGIN

enum { RD_SSRU_INPUTS = 3 /* u, z, before */ };

/* The gradient of an input. */
typedef struct rd_ssru_gradient {
    void *g;  /* NULL: not needed */
    bool add; /* it holds contributions already */
} rd_ssru_gradient;

/* Finds where backward writes the gradients of the inputs. */
rd_code rd_ssru_gradients(rd_call *c, rd_ssru_gradient out[RD_SSRU_INPUTS], rd_status *st);

RD_C_END
#endif
