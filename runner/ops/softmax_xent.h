/* softmax_xent.h -- declarations that softmax_xent.c and softmax_xent.cu share. */
#ifndef RD_SOFTMAX_XENT_H
#define RD_SOFTMAX_XENT_H

#include "rd/ops.h"

RD_C_BEGIN

/* The loss of a row is right (-log p_y) + each sum_v (-log p_v). */
typedef struct rd_xent_shares {
    double right, each;
} rd_xent_shares;
/* Returns the shares of a loss. V: columns of the logits. */
static inline rd_xent_shares rd_xent_shares_of(const rd_xent *a, int64_t V)
{
    const double n = (double)(a->n_classes ? a->n_classes : V), e = (double)a->smoothing;
    const double each = e == 0.0 ? 0.0 : a->smooth_others ? e / (n - 1.0) : e / n;
    rd_xent_shares s;
    s.right = 1.0 - (a->smooth_others ? e + each : e);
    s.each = each;
    return s;
}

RD_C_END
#endif
