/* rotary.h -- declarations that rotary.c and rotary.cu share. */
#ifndef RD_ROTARY_H
#define RD_ROTARY_H

#include "positions.h"

RD_C_BEGIN

/* What forward leaves for backward. */
typedef struct rd_rotary_saved {
    const float *table; /* [positions, 2, head / 2] cosines, then sines */
    const int32_t *row; /* [N] position of each row in the table */
    float *r;           /* [N, heads] 1 / sqrt(mean(x^2) + eps); NULL: there is no norm */
} rd_rotary_saved;

/* Returns the number of rows of a chunk. Backward sums the gradients of gains over chunks of rows,
 * and then over the chunks in their order. It is a function of the number of rows alone. */
static inline int64_t rd_rotary_chunk(int64_t n)
{
    enum { MOST = 64, LEAST = 32 };
    const int64_t even = (n + MOST - 1) / MOST;
    return even > LEAST ? even : (int64_t)LEAST;
}

/* Finds where backward writes dx; *add: as in rd_call_grad. *dx may be dy, or NULL. */
rd_code rd_rotary_gradient(rd_call *c, void **dx, bool *add, rd_status *st);

RD_C_END
#endif
