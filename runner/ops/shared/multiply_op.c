/* multiply_op.c -- backward that multiply.c and multiply.cu share; see multiply.h. */
#include "../multiply.h"
#include "image_op.h"

rd_code rd_multiply_back(rd_call *c, rd_multiply_pass_of *pass, rd_status *st)
{
    for (int i = 1; i >= 0; i--) {
        float *g = c->out[0]->g;
        bool add = false;
        if (i > 0 || !rd_call_pass_grad(c, i)) RD_TRY(rd_call_grad(c, i, &g, &add, st));
        if (!g) continue;
        const rd_multiply_pass p = {rd_op_elements(c->out[0]), c->out[0]->g, c->in[1 - i]->v, g,
                                    add};
        RD_TRY(pass(c, &p, st));
    }
done:
    return st->code;
}
