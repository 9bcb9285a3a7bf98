/* multiply_op.c -- functions that multiply.c and multiply.cu share; see multiply.h. */
#include "../multiply.h"
#include "image_op.h"

rd_multiply_pass rd_multiply_forward_pass(const rd_call *c)
{
    const rd_var *y = c->out[0];
    return (rd_multiply_pass){rd_op_elements(y), c->in[0]->values, c->in[1]->values, y->values,
                              false};
}

rd_code rd_multiply_back(rd_call *c, rd_multiply_pass_of *pass, rd_status *st)
{
    for (int i = 1; i >= 0; i--) {
        void *g = c->out[0]->grads;
        bool add = false;
        if (i > 0 || !rd_call_pass_grad(c, i)) RD_TRY(rd_call_grad(c, i, &g, &add, st));
        if (!g) continue;
        const rd_multiply_pass p = {rd_op_elements(c->out[0]), c->out[0]->grads,
                                    c->in[1 - i]->values, g, add};
        RD_TRY(pass(c, &p, st));
    }
done:
    return st->code;
}
