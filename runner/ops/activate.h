/* activate.h -- declarations that activate.c and activate.cu share. */
#ifndef RD_ACTIVATE_H
#define RD_ACTIVATE_H

#include "rd/ops.h"
#include "shared/image_op.h"

RD_C_BEGIN

/* gelu_tanh(x) = x / (1 + exp(-x (C1 + C3 x^2))): 2 sqrt(2 / pi), and that times 0.044715. */
#define RD_GELU_C1 1.5957691216057307118
#define RD_GELU_C3 0.07135481627260025

/* Finds where backward writes dx; *add: as in rd_call_grad. *dx may be dy, or NULL. */
rd_code rd_activate_gradient(rd_call *c, void **dx, bool *add, rd_status *st);

RD_C_END
#endif
