/* ssru_op.c -- functions that ssru.c and ssru.cu share; see ssru.h. */
#include "../ssru.h"

rd_code rd_ssru_gradients(rd_call *c, rd_ssru_gradient out[RD_SSRU_INPUTS], rd_status *st)
{
    for (int i = 0; i < RD_SSRU_INPUTS; i++) {
        out[i] = (rd_ssru_gradient){NULL, false};
        if (c->in[i]) RD_TRY(rd_call_grad(c, i, &out[i].g, &out[i].add, st));
    }
done:
    return st->code;
}
